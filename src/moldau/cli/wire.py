"""A client of the wire protocol, for requests that librdkafka has no call for: one connection per broker, one request
at a time. Connections are plain, or as `wire_security.py` makes them."""

import socket
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self, TypeVar, cast

from moldau.cli.common import REQUEST_TIMEOUT_S
from moldau.cli.failures import ToolError
from moldau.cli.reachable import FIRST_ANSWER_TIMEOUT_S, REACH_TIMEOUT_S, ensure_reachable, host_and_port
from moldau.cli.wire_security import PLAINTEXT, Security, reason_of
from moldau.protocol import codec
from moldau.protocol.apis import Api, find, response_type
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import response_prefix
from moldau.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.schema import Message

M = TypeVar("M", bound=Message)

CLIENT_ID = "moldau"
API_VERSIONS_FIRST = 0
NO_TOPIC_ID = bytes(16)
ANSWER_BYTES_MAX = 100 * 1024 * 1024

_size = struct.Struct(">i")
_header = struct.Struct(">hhih")


class Address(NamedTuple):
    """Address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class WireConnection:
    """Speaks to one broker, in the newest versions that both sides know."""

    def __init__(self, address: Address, timeout_s: float = REQUEST_TIMEOUT_S, security: Security = PLAINTEXT) -> None:
        self.address = address
        self._correlation_id = 0
        try:
            plain = socket.create_connection(address, min(timeout_s, REACH_TIMEOUT_S))
            plain.settimeout(min(timeout_s, FIRST_ANSWER_TIMEOUT_S))
            self._socket = security.wrapped(plain, address.host)
        except OSError as error:
            raise self._failed(error) from error
        self._served: dict[int, tuple[int, int]] = {}
        told = self._exchange(ApiVersionsRequest(), API_VERSIONS_FIRST, ApiVersionsResponse)
        self._served = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
        security.authenticate(self)
        self._socket.settimeout(timeout_s)

    def request(self, message: Message, answer_type: type[M], version: int | None = None) -> M:
        """The answer; ToolError where there is none, or where the broker does not know the request."""
        return self._exchange(message, self.newest(message.api_key) if version is None else version, answer_type)

    def serves(self, api_key: int, version: int = 0) -> bool:
        """Whether the broker knows this version of a request."""
        first, last = self._served.get(api_key, (1, 0))
        return first <= version <= last

    def newest(self, api_key: int) -> int:
        """The newest version of a request that both sides know; ToolError where there is none."""
        api = find(api_key)
        if api is None:
            raise ToolError(f"there is no request with API key {api_key}")
        return self._version(api)

    @property
    def served(self) -> Mapping[int, tuple[int, int]]:
        """The first and the last version of each request that the broker serves, by API key."""
        return self._served

    def _version(self, api: Api) -> int:
        first, last = self._served.get(api.key, (1, 0))
        version = min(last, api.max_version)
        if version < max(first, api.min_version):
            raise ToolError(f"the broker at {self.address} does not serve {api.name}: it needs Kafka 3.0 or newer")
        return version

    def _exchange(self, message: Message, version: int, answer_type: type[M]) -> M:
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        api = find(message.api_key)
        tags = b"\0" if api is not None and version >= api.flexible_from else b""
        header = _header.pack(message.api_key, version, self._correlation_id, len(client_id)) + client_id + tags
        frame = codec.encode(message, version, header)
        try:
            self._socket.sendall(_size.pack(len(frame)) + frame)
            (size,) = _size.unpack(self._receive(_size.size))
            if not 0 < size <= ANSWER_BYTES_MAX:
                raise ToolError(f"the broker at {self.address} sent {size} bytes of an answer: is it a Kafka broker?")
            answer = self._receive(size)
        except OSError as error:
            raise self._failed(error) from error
        if answer_type is not response_type(message.api_key):
            raise TypeError(f"{answer_type.__name__} is no answer to {type(message).__name__}")
        try:
            position = response_prefix(message.api_key, version).size
            return cast(M, codec.decode(response_type(message.api_key), version, answer, position))
        except ProtocolError as error:
            raise ToolError(f"the broker at {self.address} sent an answer that cannot be read: {error}") from error

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            some = self._socket.recv(count - len(received))
            if not some:
                raise ConnectionResetError("the connection was closed")
            received += some
        return bytes(received)

    def _failed(self, error: OSError) -> ToolError:
        reason = "it took too long" if isinstance(error, TimeoutError) else reason_of(error)
        return ToolError(f"the broker at {self.address} does not answer ({reason})")

    def close(self) -> None:
        self._socket.close()


class WireCluster:
    """The brokers of a cluster, found through those that `bootstrap` names."""

    def __init__(self, bootstrap: str, timeout_s: float = REQUEST_TIMEOUT_S, security: Security = PLAINTEXT) -> None:
        ensure_reachable(bootstrap)
        self._security = security
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._connections: dict[Address, WireConnection] = {}
        self._addresses: dict[int, Address] = {}

    def brokers(self) -> list[int]:
        """The ids of the brokers that are alive."""
        self.metadata([])
        return sorted(self._addresses)

    def metadata(self, topics: Iterable[str] | None) -> list[MetadataResponseTopic]:
        """Metadata of these topics, of all topics for None."""
        wanted = (
            None if topics is None else [MetadataRequestTopic(topic_id=NO_TOPIC_ID, name=topic) for topic in topics]
        )
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.any().request(request, MetadataResponse)
        self._addresses = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        return answer.topics

    def broker(self, broker_id: int) -> WireConnection:
        """A connection to the broker of this id."""
        if broker_id not in self._addresses:
            self.metadata([])
        address = self._addresses.get(broker_id)
        if address is None:
            known = ", ".join(map(str, sorted(self._addresses)))
            raise ToolError(f"there is no broker {broker_id} that is alive: the brokers are {known}")
        return self._connection(address)

    def any(self) -> WireConnection:
        """A connection to one of the brokers that were named."""
        places = [Address(*host_and_port(each.strip())) for each in self._bootstrap.split(",")]
        failures = []
        for place in places:
            try:
                return self._connection(place)
            except ToolError as error:
                failures.append(error)
        raise failures[-1]

    def _connection(self, address: Address) -> WireConnection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = WireConnection(address, self._timeout_s, self._security)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._connections.values():
            each.close()
