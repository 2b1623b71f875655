"""Identity of a pipeline: what its storage remembers, so that no run goes on beside another or past rows.

A checkpoint is numbers: an offset says nothing about the topic it is of, or about who else counts under the same name.
So the storage has an id, which goes with every position into the consumer groups, and for each query the ids of its
topics and the place that it writes to. Compared when a run begins; refused is what would lose or double rows.
"""

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.run.graph import sources_of
from moldau.pipelines.run.groups import Reader, readers
from moldau.pipelines.run.places import place_written
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.secrets import without_secrets
from moldau.pipelines.topics import Cluster, ClusterError

FILE = "identity.json"
MARK = "moldau-pipeline"
"""First word of the metadata of offsets that a pipeline commits; the id and the storage follow."""


@dataclass(slots=True)
class Identity:
    """The id of a storage, where it was when a run last began, and the facts of each query by its checkpoint's name."""

    id: str
    path: str
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def claim(self) -> str:
        """The metadata of offsets: whose they are."""
        return f"{MARK} {self.id} {socket.gethostname()}:{self.path}"

    @classmethod
    def load(cls, storage: Path) -> "Identity | None":
        try:
            told = json.loads((storage / FILE).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return cls(told["id"], told["path"], told["topics"], told["places"])

    def save(self, storage: Path) -> None:
        """Write it as a whole or not at all."""
        storage.mkdir(parents=True, exist_ok=True)
        aside = storage / f".{FILE}"
        told = {"id": self.id, "path": self.path, "topics": self.topics, "places": self.places}
        aside.write_text(json.dumps(told, indent=1), "utf-8")
        aside.replace(storage / FILE)


def begin(spec: PipelineSpec, say: Callable[[str], None]) -> Identity:
    """The identity of a pipeline whose run begins. Raises PipelineError where the run would lose or double rows."""
    here = str(spec.storage.resolve())
    known = Identity.load(spec.storage) or Identity(uuid.uuid4().hex, here)
    now = Identity(known.id, here, _topic_ids(spec), {name: _place(sink) for name, sink in spec.sinks.items()})
    problems = [*_copies(spec, known, here), *_namesakes(spec, known), *_made_anew(spec, known, now)]
    if problems:
        raise PipelineError(problems)
    for name in _going_on(spec):
        before, after = known.places.get(name), now.places.get(name)
        if before and after and before != after:
            say(f"{name}: wrote to {before} before and goes on at {after}, without the rows of before")
    now.save(spec.storage)
    return now


def _queries(spec: PipelineSpec) -> dict[str, list[SourceSpec]]:
    """The sources that each query reads, by the name of its checkpoint."""
    sinks = {sink.name: sources_of(spec, sink) for sink in spec.sinks.values()}
    bad = spec.sources.values() if spec.dead_letters is not None else ()
    return sinks | {f"{source.name}.dead-letters": [source] for source in bad}


def _going_on(spec: PipelineSpec) -> list[str]:
    """The queries that go on from a checkpoint."""
    there = Storage(spec.storage).checkpoints()
    return [name for name in _queries(spec) if name in there]


def _place(sink: SinkSpec) -> str:
    return without_secrets(" ".join(str(part) for part in place_written(sink) if part))


# --- two of one name


def _copies(spec: PipelineSpec, known: Identity, here: str) -> Iterator[Problem]:
    if known.path == here:
        return
    other = Identity.load(Path(known.path))
    if other is not None and other.id == known.id:
        words = f"{here} is a copy of {known.path}, which is still there: both would go on under one name"
        yield Problem(spec.place, words, "remove one of the two")


def _namesakes(spec: PipelineSpec, known: Identity) -> Iterator[Problem]:
    """The problem of groups whose offsets another pipeline has committed. A cluster that is away is asked once, and
    left to Spark, which waits for it."""
    away: set[Cluster] = set()
    for name, sources in _queries(spec).items():
        group = f"{spec.name}.{name}"
        for reader in readers(spec, sources):
            for where in _others(reader, group, known.id, away):
                words = f"another pipeline is called {spec.name!r}: group {group!r} is that of {where}"
                hint = "give this one another `name`; if it is the same one, bring its storage along, or reset it"
                yield Problem(spec.place, words, hint)
                return


def namesakes(spec: PipelineSpec, known: Identity) -> list[Problem]:
    """Problems of another pipeline that has begun at the same time: when both began neither had committed anything."""
    return list(_namesakes(spec, known))


def _others(reader: Reader, group: str, ours: str, away: set[Cluster]) -> Iterator[str]:
    """The storages of other pipelines that have committed offsets of the group."""
    if reader.cluster in away:
        return
    try:
        there = reader.cluster.topics()
        read = {topic: partitions for topic, partitions in there.items() if reader.reads(topic)}
        claims = reader.cluster.metadata_of_group(group, read)
    except ClusterError:
        away.add(reader.cluster)
        return
    for claim in sorted(claims):
        mark, _, rest = claim.partition(" ")
        owner, _, where = rest.partition(" ")
        if mark == MARK and owner != ours:
            yield where


# --- topics that were made anew


def made_anew(spec: PipelineSpec, known: Identity) -> list[Problem]:
    """Problems of topics that were deleted and made anew since the run began. Asks the clusters only for sources that
    skip what is lost: the others end the run by themselves."""
    skipping = {name: source for name, source in spec.sources.items() if source.options.get("lost") == "skip"}
    if not skipping:
        return []
    now = Identity(known.id, known.path, _topic_ids(spec))
    return list(_made_anew(spec, known, now))


def _topic_ids(spec: PipelineSpec) -> dict[str, dict[str, str]]:
    """The id of each topic, for each query that reads it as a stream."""
    reading = {name: readers(spec, sources) for name, sources in _queries(spec).items()}
    ids = {reader: _ids(reader) for reader in {each for found in reading.values() for each in found}}
    return {name: {topic: i for each in found for topic, i in ids[each].items()} for name, found in reading.items()}


def _ids(reader: Reader) -> dict[str, str]:
    try:
        return reader.cluster.topic_ids([topic for topic in reader.cluster.topics() if reader.reads(topic)])
    except ClusterError:  # Spark waits for a cluster that is away
        return {}


def _made_anew(spec: PipelineSpec, known: Identity, now: Identity) -> Iterator[Problem]:
    told: set[str] = set()
    for name in _going_on(spec):
        then = known.topics.get(name, {})
        for topic, found in now.topics[name].items():
            if then.get(topic, found) != found and topic not in told:
                told.add(topic)
                words = f"the topic {topic!r} was deleted and made anew: its first records would be passed over"
                yield Problem(spec.place, words, "begin anew with `moldau pipeline reset`")
        # of a topic that cannot be asked about just now the id of before holds
        now.topics[name] = {**then, **now.topics[name]}
