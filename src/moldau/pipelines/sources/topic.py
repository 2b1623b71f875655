"""`topic`: the records of one topic, of several, or of all whose names match a pattern.

A first run begins at `starting`; after that the checkpoint says where, and `starting` is not looked at again. A topic
or partition that appears later is read from its beginning.

`lost: fail` ends the run when records were deleted before they were read (retention, or a topic made anew): later
results would be wrong without a word. `lost: skip` goes on with the oldest record that is there.

As a table (`as: table`) a topic is the newest record of each key, without keys whose newest record has no value: what
compaction leaves in the end. A run keeps it in the storage and reads for a batch only what has changed
(`kept_table.py`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, choice, mapping, names, text, whole
from moldau.pipelines.file.problems import Problem, near
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.file.transforms import drops_tombstones
from moldau.pipelines.formats.decoding import decode
from moldau.pipelines.formats.samples import lacks_keys
from moldau.pipelines.kinds import FORMATS, Context, Ranges, Reading
from moldau.pipelines.sources.batch_size import records_of_batch
from moldau.pipelines.topics import EARLIEST, LATEST, Cluster, ClusterError, Offsets, client_problems, cluster_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_PER_BATCH = 100_000
FETCH_WAIT_MS = "10"
"""Time that a broker keeps a fetch at the end of a partition. A task knows which records it wants, and they are there;
with Kafka's 500 ms a batch of one record took 630 ms, with this 130."""
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class Starting:
    """Start of a first run: one of the four. `offsets` may be for the only topic, under the name ""."""

    word: str | None = None
    group: str | None = None
    timestamp_ms: int | None = None
    offsets: Offsets | None = None

    def __str__(self) -> str:
        return self.word or f"{self.group or self.timestamp_ms or self.offsets}"


def starting(value: Any) -> Starting:
    if value in ("earliest", "latest"):
        return Starting(word=value)
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, given)] = value.items()
        if name == "group":
            return Starting(group=text(given))
        if name == "timestamp":
            return Starting(timestamp_ms=_moment_ms(given))
        if name == "offsets":
            return Starting(offsets=_offsets(given))
    raise ValueError("earliest, latest, {group: NAME}, {timestamp: TIME} or {offsets: {PARTITION: OFFSET}}")


def _moment_ms(value: Any) -> int:
    """Milliseconds since 1970, or ISO 8601; a time without a zone is UTC."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1000)
    except ValueError:
        pass
    raise ValueError("a time such as 2026-11-16T08:00:00Z, or milliseconds since 1970")


def _offsets(value: Any) -> Offsets:
    """Offsets: `{0: 17}` for one topic, `{visits: {0: 17}}` for several; `earliest` and `latest` are offsets too."""
    try:
        if all(isinstance(found, Mapping) for found in value.values()) and value:
            return {str(topic): _of_topic(found) for topic, found in value.items()}
        return {"": _of_topic(value)}
    except (AttributeError, TypeError, ValueError):
        raise ValueError("offsets such as {0: 17, 1: earliest}, or for several topics {visits: {0: 17}}") from None


def _of_topic(found: Mapping[Any, Any]) -> dict[int, int]:
    return {int(number): _WORDS[at] if at in _WORDS else whole(at) for number, at in found.items()}


def regular_expression(value: Any) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text(value)


class Topic:
    options: tuple[Option, ...] = (
        Option("topic", names, "the topic, or a list of topics"),
        Option("pattern", regular_expression, "instead: a regular expression that the whole name of a topic matches"),
        Option("format", choice(*FORMATS), "what the values are", default="json"),
        Option("key", choice("text", "raw"), "`_key` as text, or as bytes", default="text"),
        Option("required", names, "fields without which a record is bad"),
        Option(
            "tombstones",
            names,
            "the fields that the key is (several: a JSON object); a record without value is then a row of them with "
            "`_deleted` true, not a bad record",
        ),
        Option(
            "starting",
            starting,
            "where a first run begins: earliest, latest, {group: NAME}, {timestamp: TIME} or {offsets: {...}}",
            default=Starting(word="earliest"),
        ),
        Option(
            "max_per_batch",
            whole,
            "records that a batch takes at most, so that a first run does not exhaust the memory; where it is not "
            "written, fewer if they are large, 128 MB or so; 0: no bound",
            default=MAX_PER_BATCH,
        ),
        Option(
            "lost",
            choice("fail", "skip"),
            "when records were deleted before they were read: end the run, or go on with the oldest there is",
            default="fail",
        ),
        Option("bootstrap", text, "the cluster, if it is not the pipeline's"),
        Option("client", mapping, "properties of Kafka clients, in Java's names"),
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        yield from _misfits(source)
        wrong = list(client_problems(_owner(source), source.options, pipeline, _place(source, "client")))
        yield from wrong
        if not wrong:
            try:
                yield from _not_there(source, pipeline)
            except ClusterError as error:
                yield Problem(_place(source, "bootstrap"), f"{_owner(source)}: {error}")

    def read(self, source: SourceSpec, context: Context) -> Reading:
        if source.options["as"] == "table" and context.keeps_tables:
            from moldau.pipelines.sources import kept_table

            return kept_table.read(source, context)
        options = spark_options(source, cluster_of(context.pipeline, source.options))
        records = _records(source, context, options)
        return decode(records.where("value IS NOT NULL") if drops_tombstones(source) else records, source, context)


KIND = Topic()


def _owner(source: SourceSpec) -> str:
    return f"source {source.name!r}"


def _place(source: SourceSpec, option: str) -> Any:
    return source.places.get(option, source.place)


# --- check ---


def _misfits(source: SourceSpec) -> Iterator[Problem]:
    topics, pattern, begin = (source.options[name] for name in ("topic", "pattern", "starting"))
    if bool(topics) == bool(pattern):
        yield Problem(source.place, f"{_owner(source)} needs either 'topic' or 'pattern'")
    if source.options["as"] == "table" and begin.word == "latest":
        yield Problem(
            _place(source, "starting"), f"{_owner(source)}: a table cannot start at 'latest': it would be empty"
        )
    if source.options["as"] == "table" and source.options["tombstones"]:
        message = f"{_owner(source)}: a table has no 'tombstones': a key whose newest record has no value is not in it"
        yield Problem(_place(source, "tombstones"), message)
    if begin.offsets and "" in begin.offsets and (pattern or len(topics or ()) != 1):
        message = f"{_owner(source)}: 'starting' must say which topic its offsets are of"
        yield Problem(_place(source, "starting"), message, "such as {offsets: {visits: {0: 17}}}")


def _not_there(source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
    """Topics, partitions and groups that the cluster does not know."""
    cluster = cluster_of(pipeline, source.options)
    there = cluster.topics()
    ours = _made_by(pipeline, cluster)
    missing = [topic for topic in source.options["topic"] or () if topic not in there and topic not in ours]
    for topic in missing:
        message = f"{_owner(source)}: there is no topic {topic!r} at {cluster.bootstrap}"
        yield Problem(_place(source, "topic"), message, near(topic, there))
    if missing:
        return
    if source.options["as"] == "table" and lacks_keys(cluster, source):
        message = f"{_owner(source)}: its records have no keys, and a table is the newest record of each key"
        yield Problem(_place(source, "as"), message, "write them with keys, or join them as a stream")
    begin = source.options["starting"]
    read = partitions_of(source, there)
    if begin.group and not _has_run(pipeline) and not cluster.offsets_of_group(begin.group, read):
        message = f"{_owner(source)}: group {begin.group!r} has no offsets of {', '.join(read) or 'such topics'}"
        yield Problem(_place(source, "starting"), message)
    for topic, offsets in _named(begin.offsets or {}, read).items():
        unknown = sorted(offsets.keys() - set(read.get(topic, ())))
        if unknown:
            message = f"{_owner(source)}: 'starting' names partition {unknown[0]} of {topic!r}, which is not read"
            yield Problem(_place(source, "starting"), message)


def _made_by(pipeline: PipelineSpec, cluster: Cluster) -> set[str]:
    """Topics that a sink of the pipeline will make."""
    return {
        sink.options["topic"]
        for sink in pipeline.sinks.values()
        if sink.kind == "topic" and sink.options.get("create") and cluster_of(pipeline, sink.options) == cluster
    }


def _has_run(pipeline: PipelineSpec) -> bool:
    return (pipeline.storage / "checkpoints").exists()


# --- read ---


def _records(source: SourceSpec, context: Context, options: dict[str, str]) -> "DataFrame":
    """The records as Spark's connector has them."""
    if source.options["as"] == "table":
        return newest(context.spark.read.format("kafka").options(**options).load())
    if context.ranges is not None:
        return read_ranges(source, context, context.ranges.get(source.name, {}))
    if context.whole:
        return context.spark.read.format("kafka").options(**options).load()
    if source.options["max_per_batch"]:  # in real time there is none, and its tasks never end
        options.setdefault("kafka.fetch.max.wait.ms", FETCH_WAIT_MS)
        options["maxOffsetsPerTrigger"] = str(_records_of_batch(source, context))
    return context.spark.readStream.format("kafka").options(**options).load()


def partitions_of(source: SourceSpec, there: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Partitions of the topics that the source reads now."""
    topics, pattern = source.options["topic"], source.options["pattern"]
    if topics:
        return {topic: there[topic] for topic in topics if topic in there}
    return {topic: numbers for topic, numbers in there.items() if re.fullmatch(pattern, topic)}


def _named(offsets: Offsets, read: Mapping[str, list[int]]) -> Offsets:
    """The offsets that were given for the only topic, under its name."""
    return {topic or next(iter(read), ""): found for topic, found in offsets.items()}


def spark_options(source: SourceSpec, cluster: Cluster) -> dict[str, str]:
    topics, pattern = source.options["topic"], source.options["pattern"]
    return {
        "kafka.isolation.level": "read_committed",  # what a transaction took back was never there
        **cluster.spark_options(),
        # Spark alone would be content with a part of the name.
        **({"subscribe": ",".join(topics)} if topics else {"subscribePattern": f"^(?:{pattern})$"}),
        **_begin(source, cluster),
        "includeHeaders": "true",
        "failOnDataLoss": "true" if source.options["lost"] == "fail" else "false",
    }


def _records_of_batch(source: SourceSpec, context: Context) -> int:
    """The bound that was written; where none was, fewer records than the default if they are large."""
    most: int = source.options["max_per_batch"]
    if "max_per_batch" in source.places:
        return most
    cluster = cluster_of(context.pipeline, source.options)
    try:
        there = cluster.topics()
    except ClusterError:  # Spark waits for a cluster that is away
        return most
    return records_of_batch(cluster, partitions_of(source, there), most)


def _begin(source: SourceSpec, cluster: Cluster) -> dict[str, str]:
    begin: Starting = source.options["starting"]
    if begin.word:
        return {"startingOffsets": begin.word}
    if begin.timestamp_ms is not None:
        # A partition without a record of that time or later starts at its end.
        return {"startingTimestamp": str(begin.timestamp_ms), "startingOffsetsByTimestampStrategy": "latest"}
    read = partitions_of(source, cluster.topics())
    known = _named(begin.offsets, read) if begin.offsets else cluster.offsets_of_group(begin.group or "", read)
    # Spark wants an offset for every partition.
    whole_list = {
        topic: {number: known.get(topic, {}).get(number, EARLIEST) for number in numbers}
        for topic, numbers in read.items()
    }
    return {"startingOffsets": json.dumps(whole_list)}


def read_ranges(source: SourceSpec, context: Context, ranges: Ranges) -> "DataFrame":
    """The records at some offsets of the source's topics, as they are."""
    cluster = cluster_of(context.pipeline, source.options)
    if not ranges:  # Spark wants a partition to read nothing of
        topic = next(iter(partitions_of(source, cluster.topics())))
        ranges = {topic: {0: (0, 0)}}
    options = {
        "kafka.isolation.level": "read_committed",
        **cluster.spark_options(),
        "assign": json.dumps({topic: list(found) for topic, found in ranges.items()}),
        "startingOffsets": json.dumps(
            {topic: {n: it[0] for n, it in found.items()} for topic, found in ranges.items()}
        ),
        "endingOffsets": json.dumps({topic: {n: it[1] for n, it in found.items()} for topic, found in ranges.items()}),
        "includeHeaders": "true",
        "failOnDataLoss": "false",
    }
    return context.spark.read.format("kafka").options(**options).load()


def newest(raw: "DataFrame") -> "DataFrame":
    """The newest record of each key. Offsets show it within a partition, times between partitions: a key moves when a
    topic gets more."""
    from pyspark.sql import functions as F

    record = F.struct(*raw.columns)
    keyed = raw.where(F.col("key").isNotNull())
    in_partition = keyed.groupBy("topic", "partition", "key").agg(F.max_by(record, F.col("offset")).alias("newest"))
    overall = in_partition.groupBy("key").agg(F.max_by("newest", F.col("newest.timestamp")).alias("newest"))
    return overall.select("newest.*").where(F.col("value").isNotNull())
