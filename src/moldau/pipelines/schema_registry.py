"""A Schema Registry with Confluent's HTTP API, asked once for each schema and process.

A schema's id never changes its meaning, so answers are kept for good. An id that the registry does not know is asked
for again after a while, as it may be registered yet. A registry that does not answer is an error of the run, never a
reason against a record.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from moldau.pipelines.file.options import Option, flag, mapping, text
from moldau.pipelines.file.problems import PipelineError, Problem, suggestion
from moldau.pipelines.file.spec import SinkSpec, SourceSpec

UNKNOWN_KEPT_S = 30.0
REGISTRY_OPTIONS = (
    Option("registry", text, "URL of a Schema Registry"),
    Option("subject", text, "the schema's subject there; default TOPIC-value"),
    Option(
        "registry_client",
        mapping,
        "properties of the registry's client, such as `basic.auth.user.info`, in Confluent's names",
        default={},
    ),
)
REGISTER_OPTION = Option(
    "register",
    flag,
    "sinks: register the schema of the columns; false: write with the newest that the subject has",
    default=True,
)


class UnknownSchema(Exception):
    """Error: the registry has no such subject, version or id."""


class RegistryRefused(Exception):
    """Error: the registry does not take a schema, or does not answer."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema. `references`: the schemas that it needs, by the names that it calls them, first those that need no
    other."""

    id: int
    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type, "text": self.text, "references": [list(r) for r in self.references]}


def schema_from_json(kept: Mapping[str, Any]) -> RegisteredSchema:
    references = tuple((name, words) for name, words in kept["references"])
    return RegisteredSchema(kept["id"], kept["type"], kept["text"], references)


class Registry:
    """Client of a registry; `now_s` is a clock that only goes forward."""

    def __init__(self, url: str, client: Mapping[str, str], now_s: Callable[[], float] = time.monotonic) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        # what is newest is asked anew each time: a schema that was found is kept in a file, not here
        settings = {"cache.latest.ttl.sec": 0} | {name: _setting(value) for name, value in client.items()}
        try:
            self._client = SchemaRegistryClient({"url": url, **settings})
        except (TypeError, ValueError) as error:
            raise RegistryRefused(f"the registry's client at {url}: {error}") from None
        self._url = url
        self._now_s = now_s
        self._by_id: dict[int, RegisteredSchema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id. Raises UnknownSchema."""
        found = self._by_id.get(schema_id)
        if found is not None:
            return found
        since_s, words = self._unknown.get(schema_id, (-UNKNOWN_KEPT_S, ""))
        if words and self._now_s() - since_s < UNKNOWN_KEPT_S:
            raise UnknownSchema(words)
        try:
            answer = self._ask(lambda: self._client.get_schema(schema_id))
        except UnknownSchema:
            words = f"schema id {schema_id} is not in the registry"
            self._unknown[schema_id] = (self._now_s(), words)
            raise UnknownSchema(words) from None
        return self._keep(schema_id, answer)

    def newest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject. Raises UnknownSchema."""
        answer = self._ask(lambda: self._client.get_latest_version(subject))
        return self._keep(answer.schema_id, answer.schema)

    def subjects(self) -> list[str]:
        return list(self._ask(self._client.get_subjects))

    def register(self, subject: str, kind: str, words: str) -> int:
        """The schema's id; the same schema has the same id however often it is registered."""
        from confluent_kafka.schema_registry import Schema

        return int(self._ask(lambda: self._client.register_schema(subject, Schema(words, kind))))

    def _keep(self, schema_id: int, answer: Any) -> RegisteredSchema:
        references = dict(self._references(answer))
        found = RegisteredSchema(schema_id, answer.schema_type or "AVRO", answer.schema_str, tuple(references.items()))
        return self._by_id.setdefault(schema_id, found)

    def _references(self, schema: Any) -> Iterator[tuple[str, str]]:
        for reference in schema.references or ():
            answer = self._version(reference.subject, reference.version)
            yield from self._references(answer.schema)
            yield reference.name, answer.schema.schema_str

    def _version(self, subject: str, version: int) -> Any:
        return self._ask(lambda: self._client.get_version(subject, version))

    def _ask(self, question: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise UnknownSchema(error.error_message) from None
            raise RegistryRefused(f"the registry at {self._url} refuses: {error}") from None
        except Exception as error:  # its HTTP library, and so their errors, are not the same in all versions
            raise RegistryRefused(f"the registry at {self._url} does not answer: {error}") from None


def _setting(value: str) -> Any:
    """The setting's value, a number where it is one: the client insists."""
    return int(value) if value.isdigit() else value


@cache
def _registry(url: str, client: tuple[tuple[str, str], ...]) -> Registry:
    return Registry(url, dict(client))


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """Address of a registry, from which a process makes its own client: this goes to Spark's workers."""

    url: str
    client: tuple[tuple[str, str], ...]

    def open(self) -> Registry:
        """The client, one for all of the process."""
        return _registry(self.url, self.client)


def address(spec: SourceSpec | SinkSpec) -> RegistryAddress:
    if not spec.options.get("registry"):
        raise PipelineError([no_registry(spec)])
    return RegistryAddress(spec.options["registry"], tuple(sorted(spec.options["registry_client"].items())))


def no_registry(spec: SourceSpec | SinkSpec) -> Problem:
    place = spec.places.get("format", spec.place)
    return Problem(place, f"{_owner(spec)} needs 'registry': URL of a Schema Registry")


def _owner(spec: SourceSpec | SinkSpec) -> str:
    return f"{'source' if isinstance(spec, SourceSpec) else 'sink'} {spec.name!r}"


def subject_of(spec: SourceSpec | SinkSpec) -> str | None:
    """The subject; None: it must be written."""
    if spec.options.get("subject"):
        return str(spec.options["subject"])
    topics = spec.options.get("topic")
    if isinstance(topics, list | tuple):
        topics = topics[0] if len(topics) == 1 else None
    return f"{topics}-value" if topics else None


def check_subject(source: SourceSpec) -> Iterator[Problem]:
    """Problems of a subject: it cannot be known, or is not there."""
    subject = subject_of(source)
    if not source.options.get("registry"):
        yield no_registry(source)
    elif subject is None:
        yield _no_subject(source)
    else:
        yield from _unknown_subject(source, subject)


def _no_subject(spec: SourceSpec | SinkSpec) -> Problem:
    return Problem(spec.place, f"{_owner(spec)} needs 'subject', as it does not name one topic")


def _unknown_subject(source: SourceSpec, subject: str) -> Iterator[Problem]:
    try:
        address(source).open().newest(subject)
    except UnknownSchema:
        place = source.places.get("subject", source.places.get("registry", source.place))
        known = address(source).open().subjects()
        yield Problem(place, f"{_owner(source)}: the registry has no subject {subject!r}", suggestion(subject, known))
    except RegistryRefused as error:
        yield Problem(source.places.get("registry", source.place), f"{_owner(source)}: {error}")


def newest_of(spec: SourceSpec | SinkSpec, kinds: tuple[str, ...]) -> RegisteredSchema:
    """The newest schema of its subject; PipelineError if there is none or it is of another type."""
    subject = known_subject(spec)
    place = spec.places.get("registry", spec.place)
    try:
        found = address(spec).open().newest(subject)
    except UnknownSchema:
        raise PipelineError([Problem(place, f"{_owner(spec)}: the registry has no subject {subject!r}")]) from None
    except RegistryRefused as error:
        raise PipelineError([Problem(place, f"{_owner(spec)}: {error}")]) from None
    if found.type not in kinds:
        message = f"{_owner(spec)}: the schema of {subject!r} is {found.type}, not {' or '.join(kinds)}"
        raise PipelineError([Problem(place, message)])
    return found


def known_subject(spec: SourceSpec | SinkSpec) -> str:
    subject = subject_of(spec)
    if subject is None:
        raise PipelineError([_no_subject(spec)])
    return subject


def registered(sink: SinkSpec, kind: str, words: str) -> int:
    """The id of a sink's schema; PipelineError if the registry does not take it."""
    try:
        return address(sink).open().register(known_subject(sink), kind, words)
    except (RegistryRefused, UnknownSchema) as error:
        raise PipelineError([Problem(sink.places.get("registry", sink.place), f"{_owner(sink)}: {error}")]) from None
