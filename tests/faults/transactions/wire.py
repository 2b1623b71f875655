"""Requests to a cluster by hand: leaders and coordinators are found, and one request is under way at a time.

What was sent and never answered is the caller's to judge: `Unanswered` says that it may have been done, or may be done
later.
"""

import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from moldau.core.files import FileRegion
from moldau.core.ids import TopicPartition
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.schema import Message, RecordData
from tests.broker.raw import R, RawClient, request_frame

T = TypeVar("T")

METADATA_VERSION, FIND_COORDINATOR_VERSION = 9, 3
GROUP, TRANSACTION = 0, 1
ANSWER_S = 4.0
AGAIN_S = 0.03
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors after which a client sends the same request again. A copy that is cut off, and so is behind, says
OFFSET_OUT_OF_RANGE to one that names no leader epoch; were records lost, the copies would not be whole at the end."""


class Refused(Exception):
    """Error code of an answer."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {ErrorCode(code).name}")
        self.code = ErrorCode(code)


class Unanswered(Exception):
    """Error: the request may be done already, later, or never."""


class Wire:
    """Connections of one client, one to each broker."""

    def __init__(self, bootstrap: Sequence[str], client_id: str, chance: random.Random) -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id.encode()
        self._chance = chance
        self._connections: dict[str, RawClient] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._coordinators: dict[tuple[int, str], str] = {}
        self._correlation_id = 0

    def ask(self, address: str, version: int, request: Message, answer: type[R]) -> R:
        connection = self._connections.get(address)
        try:
            if connection is None:
                connection = self._connections[address] = RawClient(address)
                connection.socket.settimeout(ANSWER_S)
                connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise Refused(ErrorCode.NETWORK_EXCEPTION, address) from error
        self._correlation_id += 1
        key, number = request.api_key, self._correlation_id
        frame = request_frame(key, version, codec.encode(request, version), number, self._client_id)
        try:
            connection.send(frame)
            return connection.answer(key, version, answer, number)
        except OSError as error:
            self._connections.pop(address).socket.close()
            raise Unanswered(type(request).__name__) from error

    def ask_leader(self, partition: TopicPartition, version: int, request: Message, answer: type[R]) -> R:
        if partition not in self._leaders:
            self._leaders |= self._ask_for_leaders(partition.topic)
        if partition not in self._leaders:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        return self.ask(self._leaders[partition], version, request, answer)

    def ask_coordinator(self, kind: int, key: str, version: int, request: Message, answer: type[R]) -> R:
        if (kind, key) not in self._coordinators:
            self._coordinators[kind, key] = self._find_coordinator(kind, key)
        return self.ask(self._coordinators[kind, key], version, request, answer)

    def forget(self) -> None:
        """Find leaders and coordinators anew."""
        self._leaders.clear()
        self._coordinators.clear()

    def patiently(self, attempt: Callable[[], T], *, again_if_unanswered: bool = True) -> T:
        """Result of the first attempt that is not refused for a passing reason."""
        while True:
            try:
                return attempt()
            except Refused as error:
                if error.code not in PASSING:
                    raise
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget()
            except Unanswered:
                self.forget()
                if not again_if_unanswered:
                    raise
            time.sleep(AGAIN_S)

    def ask_anybody(self, version: int, request: Message, answer: type[R]) -> R:
        return self.ask(self._chance.choice(self._bootstrap), version, request, answer)

    def _ask_for_leaders(self, topic: str) -> dict[TopicPartition, str]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.ask_anybody(METADATA_VERSION, request, MetadataResponse)
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        return {
            TopicPartition(topic, each.partition_index): brokers[each.leader_id]
            for found in answer.topics
            for each in found.partitions
            if each.leader_id in brokers
        }

    def _find_coordinator(self, kind: int, key: str) -> str:
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = self.ask_anybody(FIND_COORDINATOR_VERSION, request, FindCoordinatorResponse)
        if answer.error_code:
            raise Refused(answer.error_code, f"coordinator of {key}")
        return f"{answer.host}:{answer.port}"

    def close(self) -> None:
        for connection in self._connections.values():
            with suppress(OSError):
                connection.socket.close()


def sent_bytes(records: RecordData | None) -> bytes:
    """Records of an answer."""
    return records.read() if isinstance(records, FileRegion) else bytes(records or b"")
