"""Reset: forget how far the queries of a pipeline have read. Written rows stay, and are written again."""

from collections.abc import Callable, Iterable, Iterator

from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.run import aside
from moldau.pipelines.run.graph import sources_of
from moldau.pipelines.run.groups import delete, readers
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.sinks.batches import checkpoint_id
from moldau.pipelines.sinks.topic import EXACTLY_ONCE, target
from moldau.pipelines.topics import Cluster

KEYED = "rows are put in the place of those with the same key"
AGAIN = {
    "topic": "all records are written once more, after those that are there",
    "http": "all requests are sent once more",
    "console": "everything is printed once more",
    "parquet": "its directory must be removed too: Spark leaves out the batches that it finds there",
}
ADDED = "rows are added to those that are there: empty it first"


def what_follows(sink: SinkSpec) -> str:
    """Effect on the sink when everything is read again."""
    if sink.kind in AGAIN:
        return AGAIN[sink.kind]
    return KEYED if sink.options.get("key") else ADDED


def queries(spec: PipelineSpec, sink: SinkSpec | None) -> list[str]:
    """The queries to forget, by the names of checkpoints: one sink's, or all, dead letters included."""
    if sink is not None:
        return [sink.name]
    return [*spec.sinks, *(f"{name}.dead-letters" for name in spec.sources)]


def reset(spec: PipelineSpec, sink: SinkSpec | None, say: Callable[[str], None]) -> None:
    """Forget the checkpoints. Raises Busy while the pipeline runs."""
    storage = Storage(spec.storage)
    with storage.lock():
        names = queries(spec, sink)
        # A sink that is no more in the file has left a checkpoint too, and a later one of its name would find it
        forgotten = names if sink is not None else sorted({*names, *storage.checkpoints()})
        tokens = list(_tokens(spec, [sink] if sink is not None else list(spec.sinks.values()), storage))
        for name in forgotten:
            storage.forget(name)
        aside.forget(spec.storage)
        if sink is None:
            storage.forget_schemas()
        _delete_groups(spec, sink, names, say)
        for cluster, group in tokens:
            _delete_group(cluster, group, say)
        _drop_slots(spec, say)
    for each in [sink] if sink is not None else spec.sinks.values():
        say(f"{each.name}: begins anew; {what_follows(each)}")


def _delete_groups(spec: PipelineSpec, sink: SinkSpec | None, names: Iterable[str], say: Callable[[str], None]) -> None:
    sources = sources_of(spec, sink) if sink is not None else list(spec.sources.values())
    groups = [f"{spec.name}.{name}" for name in names]
    for cluster in {reader.cluster for reader in readers(spec, sources)}:
        for group in groups:
            _delete_group(cluster, group, say)


def _delete_group(cluster: Cluster, group: str, say: Callable[[str], None]) -> None:
    for why in delete(cluster, [group]).values():
        say(f"group {group!r} could not be deleted: {why}")


def _tokens(spec: PipelineSpec, sinks: Iterable[SinkSpec], storage: Storage) -> Iterator[tuple[Cluster, str]]:
    """The groups in which sinks have noted the batches of their checkpoints."""
    for sink in sinks:
        checkpoint = storage.checkpoint(sink.name)
        if sink.options.get("delivery") == EXACTLY_ONCE and (checkpoint / "metadata").exists():
            place = target(sink, spec)
            yield place.cluster, place.group(checkpoint_id(checkpoint))


def _drop_slots(spec: PipelineSpec, say: Callable[[str], None]) -> None:
    """Drop slots that only the forgotten checkpoints named: PostgreSQL keeps its log for a slot that nobody reads."""
    if all(source.kind != "postgres" for source in spec.sources.values()):
        return
    from psycopg import Error

    from moldau.pipelines.sources.postgres import release_abandoned

    try:
        for slot in release_abandoned(spec):
            say(f"replication slot {slot!r} is dropped")
    except Error as error:
        say(f"replication slots are left for the next run to drop: {' '.join(str(error).split())}")
