"""`topic`: each row becomes a record.

At least once by Spark's connector: after a crash it writes its last batch again. With a `key` and a compacted topic, or
a reader that keeps the newest of each key, the result is the same. Exactly once by transactions: `topic_batches`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, choice, mapping, names, text
from moldau.pipelines.file.problems import PipelineError, Place, Problem, near, suggestion
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import FORMATS, Context, format_kind
from moldau.pipelines.sinks import batches, order, topic_route
from moldau.pipelines.sinks.batches import COLUMNS, DELETE_WHEN
from moldau.pipelines.sinks.order import NEWEST_BY
from moldau.pipelines.sinks.topic_batches import EachBatch, InOrder, unfinished
from moldau.pipelines.sinks.topic_transactions import Target, refusal, refused_properties
from moldau.pipelines.sinks.topic_versions import WithoutLate
from moldau.pipelines.topics import Cluster, ClusterError, client_problems, cluster_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType

AT_LEAST_ONCE, EXACTLY_ONCE = "at least once", "exactly once"
ONE_COLUMN_FORMATS = ("raw", "text")
NESTED = ("struct", "array", "map", "variant")
BROKERS_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Settings for a topic that is not there and is to be made."""

    partitions: int = BROKERS_DEFAULT
    replicas: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def new_topic(value: Any) -> NewTopic | None:
    """The settings of a new topic: `true` for the broker's defaults, or those that differ from them."""
    if isinstance(value, bool):
        return NewTopic() if value else None
    try:
        given = mapping(value)
        numbers = {name: int(given.pop(name, BROKERS_DEFAULT)) for name in ("partitions", "replication.factor")}
    except ValueError:
        raise ValueError("true, or such as {partitions: 6, replication.factor: 3, cleanup.policy: compact}") from None
    return NewTopic(numbers["partitions"], numbers["replication.factor"], given)


def header_columns(value: Any) -> dict[str, str]:
    """The column of each header, from a list of columns, or from names of headers with the column of each."""
    return mapping(value) if isinstance(value, Mapping) else {name: name for name in names(value)}


def tasks(value: Any) -> int:
    """The number of tasks."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number, 1 or more")
    return value


class TopicSink:
    guarantee = f"{AT_LEAST_ONCE}; {EXACTLY_ONCE} with `delivery: {EXACTLY_ONCE}`, for readers with `read_committed`"
    options: tuple[Option, ...] = (
        Option("topic", text, "the topic", required=True),
        topic_route.OPTION,
        Option("format", choice(*FORMATS), "what the values become", default="json"),
        Option("key", names, "the columns of the key: one is its text, several are a JSON object"),
        Option(
            "headers", header_columns, "columns that become headers too, or {HEADER: COLUMN}; `_headers` are passed on"
        ),
        COLUMNS,
        DELETE_WHEN,
        NEWEST_BY,
        Option(
            "create", new_topic, "make the topic if it is not there: true, or {partitions: 6, cleanup.policy: compact}"
        ),
        Option("delivery", choice(AT_LEAST_ONCE, EXACTLY_ONCE), "how often a row comes", default=AT_LEAST_ONCE),
        Option(
            "tasks",
            tasks,
            "exactly once: tasks that write a batch, each in a transaction of its own, at most one for each partition; "
            "with 1 readers see a batch as a whole",
            default=1,
        ),
        Option("bootstrap", text, "the cluster, if it is not the pipeline's"),
        Option("client", mapping, "properties of Kafka clients, in Java's names"),
    )

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        owner = f"sink {sink.name!r}"
        if sink.options["delete_when"] and not sink.options["key"]:
            yield Problem(
                _place(sink, "delete_when"), f"{owner}: 'delete_when' needs 'key'", "which key is to be deleted?"
            )
        yield from order.check(sink)
        wrong = list(client_problems(owner, sink.options, pipeline, _place(sink, "client")))
        wrong.extend(_unusable(sink, pipeline))
        yield from wrong
        if not wrong:
            problems = list(_not_there(sink, pipeline))
            yield from problems or _no_transactions(sink, pipeline)

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        cluster = cluster_of(context.pipeline, sink.options)
        wanted: NewTopic | None = sink.options["create"]
        if (
            wanted
            and cluster.create(sink.options["topic"], wanted.partitions, wanted.replicas, wanted.configs)
            and any((context.storage / "checkpoints" / sink.name / "commits").glob("[0-9]*"))
        ):
            batches.tell_made_anew(f"{context.pipeline.name}.{sink.name}", f"the topic {sink.options['topic']}")
        made = records(sink, rows, context)
        write = _by_batches(sink, context, cluster, ordered=bool(order.versions(sink, rows)))
        if write is None:
            writer = made.writeStream.format("kafka").options(**cluster.spark_options())
            return writer.option("topic", sink.options["topic"])
        if order.named(sink) and keeps_newest(sink, context.pipeline):
            write = WithoutLate(batches.owner(sink), context.storage / "checkpoints" / sink.name, write)
        return made.writeStream.foreachBatch(write)


KIND = TopicSink()


def _place(sink: SinkSpec, option: str) -> Place:
    return sink.places.get(option, sink.place)


def target(sink: SinkSpec, pipeline: PipelineSpec) -> Target:
    """The sink's topic, and the names that the sink has in its cluster."""
    cluster = cluster_of(pipeline, sink.options)
    return Target(batches.owner(sink), cluster, sink.options["topic"], f"{pipeline.name}.{sink.name}")


def _by_batches(
    sink: SinkSpec, context: Context, cluster: Cluster, ordered: bool
) -> "Callable[[DataFrame, int], None] | None":
    """The function that writes a batch; None where Spark's connector does by itself."""
    if sink.options["delivery"] == EXACTLY_ONCE:
        return _each_batch(sink, context)
    if sink.options["route"]:
        wanted: NewTopic | None = sink.options["create"]
        new = (wanted.partitions, wanted.replicas, wanted.configs) if wanted else None
        return topic_route.Routed(batches.owner(sink), cluster, new, ordered)
    return InOrder(sink.options["topic"], cluster.spark_options()) if ordered else None


def _each_batch(sink: SinkSpec, context: Context) -> EachBatch:
    place = target(sink, context.pipeline)
    partitions = place.cluster.topics().get(place.topic)
    if partitions is not None and len(partitions) < sink.options["tasks"]:
        raise PipelineError([_too_many_tasks(sink, len(partitions))])
    checkpoint = context.storage / "checkpoints" / sink.name
    return EachBatch(place, checkpoint, sink.options["tasks"], unfinished(checkpoint))


def _unusable(sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
    """Problems with options that do not go together with the delivery, by the file alone."""
    owner = f"sink {sink.name!r}"
    if sink.options["delivery"] != EXACTLY_ONCE:
        if "tasks" in sink.places:
            hint = f"`delivery: {EXACTLY_ONCE}`; otherwise the tasks are Spark's own"
            yield Problem(_place(sink, "tasks"), f"{owner}: 'tasks' is of {EXACTLY_ONCE!r}", hint)
        return
    if sink.options["route"]:
        message = f"{owner}: {EXACTLY_ONCE!r} writes one topic, and a 'route' leads to several"
        yield Problem(_place(sink, "route"), message, f"`delivery: {AT_LEAST_ONCE}`")
    for name, hint in refused_properties(dict(cluster_of(pipeline, sink.options).client)):
        message = f"{owner}: with {EXACTLY_ONCE!r} the client property {name!r} cannot be as it is"
        yield Problem(_place(sink, "client"), message, hint)
    if pipeline.spark.get("spark.speculation", "false").lower() == "true":
        message = f"{owner}: {EXACTLY_ONCE!r} and 'spark.speculation' do not go together"
        yield Problem(_place(sink, "delivery"), message, "two attempts at a task would fence each other")


def _no_transactions(sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
    if sink.options["delivery"] != EXACTLY_ONCE:
        return
    place = target(sink, pipeline)
    wanted: NewTopic | None = sink.options["create"]
    partitions = place.cluster.topics().get(place.topic)
    count = len(partitions) if partitions is not None else wanted.partitions if wanted else BROKERS_DEFAULT
    if count != BROKERS_DEFAULT and count < sink.options["tasks"]:
        yield _too_many_tasks(sink, count)
    refused = refusal(place)
    if refused is not None:
        yield from refused.problems


def _too_many_tasks(sink: SinkSpec, partitions: int) -> Problem:
    there = f"{sink.options['topic']!r} has {partitions} partition{'' if partitions == 1 else 's'}"
    message = f"sink {sink.name!r}: {sink.options['tasks']} tasks, but {there}"
    return Problem(_place(sink, "tasks"), message, "a task needs a partition for the word of what it has written")


def _not_there(sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
    cluster = cluster_of(pipeline, sink.options)
    try:
        there = cluster.topics()
    except ClusterError as error:
        yield Problem(_place(sink, "bootstrap"), f"sink {sink.name!r}: {error}")
        return
    topic = sink.options["topic"]
    if topic not in there and not sink.options["create"]:
        message = f"sink {sink.name!r}: there is no topic {topic!r} at {cluster.bootstrap}"
        yield Problem(_place(sink, "topic"), message, near(topic, there) or "`create: true` makes it")


def records(sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataFrame":
    """Rows as Spark's connector takes them: `key`, `value` and `headers`."""
    from pyspark.sql import functions as F

    types = {found.name: found.dataType for found in rows.schema.fields}
    _refuse_unknown(sink, types)
    value_rows = rows.select(*map(_column, _value_columns(sink, rows.columns)))
    value = format_kind(sink.options["format"]).encode(
        F.struct(*map(_column, value_rows.columns)), value_rows.schema, sink, context
    )
    condition = batches.deletes_when(sink, rows.columns)
    if condition:
        value = F.when(F.coalesce(F.expr(condition), F.lit(False)), None).otherwise(value)
    made = [value.alias("value")]
    if sink.options["route"]:
        made.append(topic_route.topic_of_row(sink.options["route"], sink.options["topic"]).alias("topic"))
    if sink.options["key"]:
        made.append(_key(sink.options["key"], types).alias("key"))
    if sink.options["headers"]:
        made.append(_headers(sink.options["headers"], types).alias("headers"))
    return rows.select(*order.with_versions(made, order.versions(sink, rows)))


def keeps_newest(sink: SinkSpec, pipeline: PipelineSpec) -> bool:
    """Whether the last record of a key is all that there is in the end."""
    return bool(sink.options["delete_when"]) or is_compacted(sink, pipeline)


def is_compacted(sink: SinkSpec, pipeline: PipelineSpec) -> bool:
    """Whether the topic is, or will be, compacted: it then takes no record without a key."""
    wanted: NewTopic | None = sink.options["create"]
    if wanted and "compact" in wanted.configs.get("cleanup.policy", ""):
        return True
    try:
        return "compact" in cluster_of(pipeline, sink.options).config(sink.options["topic"], "cleanup.policy")
    except ClusterError:
        return False


def _value_columns(sink: SinkSpec, there: list[str]) -> list[str]:
    """The columns that are named; else all without `_` in front, and in a format of one column without the key's and
    the headers'."""
    if sink.options["columns"]:
        return list(sink.options["columns"])
    elsewhere: set[str] = set()
    if sink.options["format"] in ONE_COLUMN_FORMATS:
        elsewhere = {*(sink.options["key"] or ()), *(sink.options["headers"] or {}).values()}
    return [name for name in there if not name.startswith("_") and name not in elsewhere]


def _refuse_unknown(sink: SinkSpec, types: "Mapping[str, DataType]") -> None:
    routed = topic_route.columns(sink.options["route"] or "")
    for option in ("key", "headers", "columns", "route"):
        given = sink.options[option] or () if option != "route" else routed
        for name in given.values() if isinstance(given, Mapping) else given:
            if name not in types:
                message = f"sink {sink.name!r}: its rows have no column {name!r} for {option!r}"
                raise PipelineError([Problem(_place(sink, option), message, suggestion(name, types))])


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _key(columns: tuple[str, ...], types: "Mapping[str, DataType]") -> "Column":
    from pyspark.sql import functions as F

    if len(columns) == 1:
        return _bytes(columns[0], types)
    return F.to_json(F.struct(*map(_column, columns)), {"ignoreNullFields": "false"}).cast("binary")


def _bytes(name: str, types: "Mapping[str, DataType]") -> "Column":
    """The column as bytes: bytes as they are, nested values as JSON, anything else as its text."""
    from pyspark.sql import functions as F

    kind = types[name].typeName()
    if kind == "binary":
        return _column(name)
    return F.to_json(_column(name)).cast("binary") if kind in NESTED else _column(name).cast("string").cast("binary")


def _headers(columns: Mapping[str, str], types: "Mapping[str, DataType]") -> "Column":
    from pyspark.sql import functions as F

    own = [
        F.struct(F.lit(header).alias("key"), _bytes(column, types).alias("value"))
        for header, column in columns.items()
        if not _are_headers(types[column])
    ]
    passed_on = [
        F.coalesce(_column(column), F.array().cast(types[column]))
        for column in columns.values()
        if _are_headers(types[column])
    ]
    return F.concat(*passed_on, *([F.array(*own)] if own else []))


def _are_headers(found: "DataType") -> bool:
    return found.simpleString() == "array<struct<key:string,value:binary>>"
