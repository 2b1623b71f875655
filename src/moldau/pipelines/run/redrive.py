"""Redrive: dead letters go back to their topics, after the cause has been repaired.

The law: each is read once, with a consumer group (`NAME.redrive`) whose offsets are committed when the cluster has
acknowledged every record before them. It goes up to the end that was seen at the start: a record that is bad again
waits for the next time. A letter that the filters leave out is written again to the end of the dead-letter topic, as
the group has one position in a partition and could not come back to it.

A letter of a file goes back as a line of a new file beside it (`redrive_files.py`); one that cannot is written again to
the end of the dead-letter topic, too, and told of.

A record that goes back has the time of its sending: with its first one the topic's retention might remove it before it
is read. The first time stays in the header `moldau.dlq.timestamp`, beside `moldau.dlq.attempts`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.client.message_headers import read_headers
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run import redrive_files
from moldau.pipelines.run.dead_letters import PREFIX
from moldau.pipelines.topics import Cluster, asking, cluster_of, when_ready

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer, TopicPartition

BATCH_RECORDS = 500
VALUE_MAX = 80
"""Characters of a value that are shown."""
REQUEST_TIMEOUT_S = 30.0
ATTEMPTS = PREFIX + "attempts"
TIMESTAMP = PREFIX + "timestamp"

Headers = list[tuple[str, bytes | None]]


class RedriveError(Exception):
    """Error: not all letters could be sent back; those that were are committed. The message is one line."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the record, its origin and the reason why it was bad."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The record's own headers."""
    source: str
    topic: str
    """The topic, or the address of the file."""
    partition: int | None
    """The partition; None: it is of a file."""
    offset: int | None
    timestamp_ms: int
    reason: str
    attempts: int

    @property
    def destination(self) -> str:
        """The topic that it goes back to, or the directory."""
        return self.topic if self.partition is not None else str(redrive_files.directory(self.topic))

    def __str__(self) -> str:
        if self.partition is not None:
            return f"{self.topic}-{self.partition} offset {self.offset}: {self.reason}"
        words = (self.value or b"").decode(errors="replace")
        return f"{self.topic}: {self.reason}: {words[:VALUE_MAX]}{'...' if len(words) > VALUE_MAX else ''}"


@dataclass(slots=True)
class Redriven:
    """Outcome. `sent` by topic or directory; `stuck`: those that cannot go back, by the reason; `kept`: left out by the
    filters; `foreign`: not written by a pipeline, and passed over."""

    sent: Counter[str] = field(default_factory=Counter)
    stuck: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    foreign: int = 0
    letters: list[Letter] = field(default_factory=list)
    """Letters of a dry run, which would be sent."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of letters. `reason`: a text in the reason, in any case; `source`: a name; `records_max`: the most that
    are sent."""

    reason: str | None = None
    source: str | None = None
    records_max: int | None = None

    def takes(self, letter: Letter) -> bool:
        if self.source is not None and letter.source != self.source:
            return False
        return self.reason is None or self.reason.lower() in letter.reason.lower()


def redrive(pipeline: PipelineSpec, chosen: Filter | None = None, dry_run: bool = False) -> Redriven:
    """Send back all letters. Raises RedriveError, or ClusterError if a cluster does not answer."""
    if pipeline.dead_letters is None:
        raise RedriveError(f"pipeline {pipeline.name!r} has no dead letters")
    with _Work(pipeline, pipeline.dead_letters, chosen or Filter(), dry_run) as work:
        return work.to_the_end()


def group_of(pipeline: PipelineSpec) -> str:
    return f"{pipeline.name}.redrive"


class _Work:
    def __init__(self, pipeline: PipelineSpec, topic: str, chosen: Filter, dry_run: bool) -> None:
        from confluent_kafka import Consumer

        self._pipeline = pipeline
        self._topic = topic
        self._filter = chosen
        self._dry_run = dry_run
        self._cluster = cluster_of(pipeline)
        self._partitions = self._cluster.topics().get(topic, [])
        self._producers: dict[Cluster, Producer] = {}
        self._done = Redriven()
        self._of_files: dict[tuple[str, str], list[bytes]] = {}
        """Values of the batch that go to files, by source and the file that they came from."""
        self._consumer: Consumer = Consumer(
            {**self._cluster.settings(), "group.id": group_of(pipeline), "enable.auto.commit": False}
        )

    def __enter__(self) -> "_Work":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def to_the_end(self) -> Redriven:
        with asking(self._cluster):
            for partition in self._partitions:
                self._partition(partition)
        return self._done

    def _partition(self, number: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        place = TopicPartition(self._topic, number)
        low, high = self._consumer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
        [committed] = when_ready(lambda: self._consumer.committed([place], timeout=REQUEST_TIMEOUT_S))
        if committed.error:
            raise KafkaException(committed.error)
        position = max(low, committed.offset)
        self._consumer.assign([TopicPartition(self._topic, number, position)])
        while position < high and not self._enough():
            position = self._batch(place, position, high)

    def _enough(self) -> bool:
        wanted = self._filter.records_max
        return wanted is not None and self._done.sent.total() + len(self._done.letters) >= wanted

    def _batch(self, place: "TopicPartition", position: int, high: int) -> int:
        """Send a batch and commit it; returns the position after it."""
        from confluent_kafka import KafkaException, TopicPartition

        waiting = _Waiting()
        for message in self._consumer.consume(BATCH_RECORDS, 1.0):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            offset = message.offset()
            if offset is None or offset >= high or self._enough():
                break
            self._one(message, waiting)
            position = offset + 1
        else:
            # where the tail is compacted or aborted no record brings the last offset: the consumer's position does
            position = max(position, min(self._consumer.position([place])[0].offset, high))
        waiting.settle(self._producers.values())
        self._put_back()
        if not self._dry_run:
            reached = [TopicPartition(self._topic, place.partition, position)]
            when_ready(lambda: self._consumer.commit(offsets=reached, asynchronous=False))
        return position

    def _one(self, message: "Message", waiting: "_Waiting") -> None:
        letter = letter_of(message)
        if letter is None:
            self._done.foreign += 1
        elif not self._filter.takes(letter):
            self._done.kept += 1
            self._keep(message, waiting)
        elif why := self._refusal(letter):
            self._done.stuck[why] += 1
            self._keep(message, waiting)
        elif self._dry_run:
            self._done.letters.append(letter)
        else:
            self._done.sent[letter.destination] += 1
            if letter.partition is None:
                self._of_files.setdefault((letter.source, letter.topic), []).append(letter.value or b"")
            else:
                self._send(letter, letter.partition, waiting)

    def _refusal(self, letter: Letter) -> str | None:
        if letter.partition is not None:
            return None
        return redrive_files.refusal(self._pipeline.sources.get(letter.source), letter.topic, letter.reason)

    def _put_back(self) -> None:
        """Write the batch's letters of files; raises RedriveError."""
        for (source, address), values in self._of_files.items():
            try:
                redrive_files.put_back(self._pipeline.sources[source], address, values)
            except (OSError, UnicodeError) as error:
                raise RedriveError(f"no file can be written beside {address}: {error}") from error
        self._of_files.clear()

    def _send(self, letter: Letter, partition: int, waiting: "_Waiting") -> None:
        """Send a letter to its own partition, if the topic still has it: another client's partitioner would choose
        another."""
        source = self._pipeline.sources.get(letter.source)
        cluster = cluster_of(self._pipeline, source.options if source else None)
        headers: Headers = [
            *letter.headers,
            (TIMESTAMP, str(letter.timestamp_ms).encode()),
            (ATTEMPTS, str(letter.attempts + 1).encode()),
        ]
        self._producer(cluster).produce(
            letter.topic,
            letter.value,
            letter.key,
            partition,
            on_delivery=waiting.expect(f"{letter.topic}-{partition}"),
            headers=headers,  # type: ignore[arg-type]  # its stubs know no header without a value
        )

    def _keep(self, message: "Message", waiting: "_Waiting") -> None:
        if not self._dry_run:
            self._producer(self._cluster).produce(
                self._topic,
                message.value(),
                message.key(),
                on_delivery=waiting.expect(self._topic),
                headers=read_headers(message) or [],  # type: ignore[arg-type]  # its stubs know no header without a value
            )

    def _producer(self, cluster: Cluster) -> "Producer":
        from confluent_kafka import Producer

        if cluster not in self._producers:
            settings = {**cluster.settings(), "acks": "all", "delivery.timeout.ms": int(REQUEST_TIMEOUT_S * 1000)}
            self._producers[cluster] = Producer(settings)
        return self._producers[cluster]


class _Waiting:
    """Letters that were sent and are not acknowledged yet."""

    def __init__(self) -> None:
        self._open = 0
        self._refused: list[str] = []

    def expect(self, where: str):  # type: ignore[no-untyped-def]  # librdkafka's callback
        self._open += 1

        def delivered(error: object, _: "Message") -> None:
            self._open -= 1
            if error is not None:
                self._refused.append(f"{where} does not take a record: {error}")

        return delivered

    def settle(self, producers: "Iterable[Producer]") -> None:
        for producer in producers:
            producer.flush(REQUEST_TIMEOUT_S)
        if self._refused:
            raise RedriveError(self._refused[0])
        if self._open:
            raise RedriveError(f"{self._open} records were not acknowledged within {REQUEST_TIMEOUT_S:.0f} s")


def letter_of(message: "Message") -> Letter | None:
    """The letter in a record; None if the record has not the headers of one."""
    headers = read_headers(message)
    if headers is None:
        return None
    # of a record that was sent back before the newest words count, but its first time
    told = [(name.removeprefix(PREFIX), _text(value)) for name, value in headers if name.startswith(PREFIX)]
    said = dict(told) | dict([item for item in told if item[0] == "timestamp"][:1])
    try:
        return Letter(
            key=message.key(),
            value=message.value(),
            headers=tuple(_own(headers)),
            source=said["source"],
            topic=said["topic"],
            partition=int(said["partition"]) if said["partition"] else None,
            offset=int(said["offset"]) if said["offset"] else None,
            timestamp_ms=int(said["timestamp"]),
            reason=said["reason"],
            attempts=int(said.get("attempts", "0")),
        )
    except (KeyError, ValueError):
        return None


def _own(headers: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, bytes | None]]:
    for name, value in headers:
        if not name.startswith(PREFIX):
            yield name, value.encode() if isinstance(value, str) else value


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def said_by(redriven: Redriven, pipeline: PipelineSpec, dry_run: bool) -> Iterator[str]:
    """Lines for a person about the outcome."""
    if dry_run:
        for letter in redriven.letters:
            yield str(letter)
    counts: Mapping[str, int] = redriven.sent or Counter(letter.destination for letter in redriven.letters)
    word = "would be sent back" if dry_run else "sent back"
    for topic, count in sorted(counts.items()):
        yield f"{count} {word} to {topic}"
    if not counts:
        yield f"nothing to send back in {pipeline.dead_letters}"
    for why, count in sorted(redriven.stuck.items()):
        yield f"{count} still in {pipeline.dead_letters}: {why}"
    if redriven.kept:
        yield f"{redriven.kept} left out by the filters, still in {pipeline.dead_letters}"
    if redriven.foreign:
        yield f"{redriven.foreign} passed over: no dead letters of a pipeline"
