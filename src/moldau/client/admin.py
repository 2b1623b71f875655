"""`Admin`: topics, their settings, and the offsets of groups.

with Admin("localhost:9092") as admin:
    admin.create_topic("visits", partitions=3, exist_ok=True)
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from moldau.client.errors import ClientError
from moldau.client.one_process import OneProcess
from moldau.client.records import milliseconds
from moldau.client.settings import REQUEST_TIMEOUT_S, Bootstrap, asked, failure, made, settings

T = TypeVar("T")
Partition = tuple[str, int]
BROKERS_CHOICE = -1
"""A number that the broker's own setting decides."""


class Broker(NamedTuple):
    """A broker that is alive."""

    id: int
    host: str
    port: int


class PartitionInfo(NamedTuple):
    """A partition: the ids of the brokers that have it. `leader` is None if there is none now."""

    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


class TopicInfo(NamedTuple):
    """A topic."""

    name: str
    partitions: list[PartitionInfo]
    is_internal: bool

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)


class Lag(NamedTuple):
    """Progress of a group in a partition; `committed` is None where it has no offset, and all is before it."""

    topic: str
    partition: int
    committed: int | None
    end: int

    @property
    def records(self) -> int:
        return self.end - (self.committed or 0)


def _spec(at: str | datetime | float) -> Any:
    if at == "earliest":
        return OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    if at == "latest":
        return OffsetSpec.latest()  # type: ignore[no-untyped-call]
    if isinstance(at, str):
        raise ValueError(f"a place is 'earliest', 'latest', a datetime or milliseconds, not {at!r}")
    return OffsetSpec.for_timestamp(milliseconds(at))


class Admin:
    """Creates, describes, alters and deletes. Each call waits for the cluster; a failure is a ClientError."""

    def __init__(self, bootstrap: Bootstrap | None = None, *, properties: Mapping[str, Any] | None = None) -> None:
        self._kafka = made(AdminClient, settings(bootstrap, {}, properties))
        self._process = OneProcess(self._kafka, "admin")

    # --- topics ---

    def topics(self, internal: bool = False) -> list[str]:
        """Names of all topics; internal ones only if asked for."""
        names = asked(lambda: self._kafka.list_topics(timeout=REQUEST_TIMEOUT_S), "topics").topics
        return sorted(name for name in names if internal or not name.startswith("__"))

    def brokers(self) -> list[Broker]:
        """The brokers that are alive."""
        found = asked(lambda: self._kafka.list_topics(timeout=REQUEST_TIMEOUT_S), "brokers").brokers
        return sorted(Broker(each.id, str(each.host), int(each.port or 0)) for each in found.values())

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic; without numbers the broker's own hold. Whether it is new: False only with `exist_ok`."""
        topic = NewTopic(
            name,
            num_partitions=BROKERS_CHOICE if partitions is None else partitions,
            replication_factor=BROKERS_CHOICE if replication_factor is None else replication_factor,
            config={key: str(value) for key, value in (config or {}).items()},
        )
        try:
            self._one(
                lambda: self._kafka.create_topics([topic], operation_timeout=REQUEST_TIMEOUT_S), f"topic {name!r}"
            )
        except ClientError as error:
            if error.code != "TOPIC_ALREADY_EXISTS" or not exist_ok:
                raise
            return False
        return True

    def delete_topic(self, name: str, missing_ok: bool = False) -> bool:
        """Delete a topic and all its records. Whether there was one: False only with `missing_ok`."""
        try:
            self._one(lambda: self._kafka.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S), f"topic {name!r}")
        except ClientError as error:
            if error.code != "UNKNOWN_TOPIC_OR_PART" or not missing_ok:
                raise
            return False
        return True

    def describe_topic(self, name: str) -> TopicInfo:
        """The topic, its partitions and where they are."""
        found = self._one(lambda: self._kafka.describe_topics(TopicCollection([name])), f"topic {name!r}")
        partitions = [
            PartitionInfo(
                each.id,
                None if each.leader is None else each.leader.id,
                [node.id for node in each.replicas],
                [node.id for node in each.isr],
            )
            for each in found.partitions
        ]
        return TopicInfo(name, sorted(partitions), found.is_internal)

    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic this many partitions in all. A key may go to another partition from then on."""
        self._one(lambda: self._kafka.create_partitions([NewPartitions(name, partitions)]), f"topic {name!r}")

    def topic_config(self, name: str) -> dict[str, str]:
        """Settings of a topic, also those that are defaults."""
        self.describe_topic(name)  # a topic that is not there has settings, too, for some brokers
        wanted = ConfigResource(ConfigResource.Type.TOPIC, name)
        found = self._one(lambda: self._kafka.describe_configs([wanted]), f"topic {name!r}")
        return {entry.name: entry.value for entry in found.values()}

    def alter_topic_config(self, name: str, config: Mapping[str, Any]) -> None:
        """Give settings these values; None gives one its default again."""
        entries = [
            ConfigEntry(
                key,
                "" if value is None else str(value),
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        wanted = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self._one(lambda: self._kafka.incremental_alter_configs([wanted]), f"topic {name!r}")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records before an offset, by partition."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for future in asked(lambda: self._kafka.delete_records(places), f"topic {topic!r}").values():
            self._result(future, f"topic {topic!r}")

    # --- offsets and groups ---

    def offsets(self, topic: str, at: Literal["earliest", "latest"] | datetime | float = "latest") -> dict[int, int]:
        """Offsets by partition: of the oldest record, of the next one, or of the first of a time (a datetime, or
        milliseconds) or later. -1 where there is none so late."""
        spec = _spec(at)
        partitions = [each.partition for each in self.describe_topic(topic).partitions]
        wanted = {TopicPartition(topic, each): spec for each in partitions}
        answers = asked(lambda: self._kafka.list_offsets(wanted), f"topic {topic!r}")
        found = {place.partition: self._result(future, f"topic {topic!r}") for place, future in answers.items()}
        if any(each.offset == OFFSET_INVALID for each in found.values()):  # librdkafka's answer without an error
            raise failure(KafkaException(KafkaError(KafkaError._TIMED_OUT)), f"topic {topic!r}")
        return {partition: found[partition].offset for partition in sorted(found)}

    def groups(self) -> list[str]:
        """Names of all consumer groups."""
        found = self._result(asked(self._kafka.list_consumer_groups, "groups"), "groups")
        if found.errors:
            raise failure(found.errors[0], "groups")
        return sorted(each.group_id for each in found.valid)

    def group_offsets(self, group_id: str) -> dict[Partition, int]:
        """Committed offsets of a group."""
        wanted = [ConsumerGroupTopicPartitions(group_id)]
        found = self._one(lambda: self._kafka.list_consumer_group_offsets(wanted), f"group {group_id!r}")
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0}

    def group_lag(self, group_id: str) -> list[Lag]:
        """Progress of a group in all partitions of the topics that it has offsets of."""
        committed = self.group_offsets(group_id)
        return [
            Lag(topic, partition, committed.get((topic, partition)), end)
            for topic in sorted({topic for topic, _ in committed})
            for partition, end in self.offsets(topic).items()
        ]

    def set_group_offsets(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Commit these offsets for a group that has no members."""
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        wanted = [ConsumerGroupTopicPartitions(group_id, places)]
        done = self._one(lambda: self._kafka.alter_consumer_group_offsets(wanted), f"group {group_id!r}")
        for place in done.topic_partitions:
            if place.error is not None:
                raise failure(KafkaException(place.error), f"group {group_id!r}, {place.topic}-{place.partition}")

    def reset_group(
        self, group_id: str, topic: str, to: Literal["earliest", "latest"] | datetime | float = "earliest"
    ) -> dict[int, int]:
        """Let a group without members begin at another place of a topic; returns its new offsets."""
        ends = self.offsets(topic)
        found = {each: offset if offset >= 0 else ends[each] for each, offset in self.offsets(topic, to).items()}
        self.set_group_offsets(group_id, {(topic, partition): offset for partition, offset in found.items()})
        return found

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        self._one(lambda: self._kafka.delete_consumer_groups([group_id]), f"group {group_id!r}")

    # --- answers ---

    def _one(self, call: Callable[[], Mapping[Any, Future[Any]]], what: str) -> Any:
        """The answer of a call that asks for one thing."""
        self._process.check()
        [future] = asked(call, what).values()
        return self._result(future, what)

    @staticmethod
    def _result(future: "Future[T]", what: str) -> T:
        return asked(lambda: future.result(REQUEST_TIMEOUT_S), what)

    def close(self) -> None:
        """End. librdkafka's client ends with the last reference to it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
