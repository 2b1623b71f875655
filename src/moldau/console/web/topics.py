"""Topics: a tree by prefix, one topic, and its changes."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide some of them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from starlette.requests import Request
from starlette.responses import Response

from moldau.console.cluster.clients import REQUEST_S, Clients
from moldau.console.cluster.state import Snapshot, TopicState
from moldau.console.failures import ConsoleError
from moldau.console.web import words
from moldau.console.web.charts import chart
from moldau.console.web.console import Console, checked_form, console_of, sliced, text, whole

SEPARATORS = ".-_"
PARTITIONS_MAX = 10_000
GROUPS_SHOWN_MAX = 3


async def topics(request: Request) -> Response:
    """Serve `/topics`: one level of the tree, or all names with a text in them."""
    console = console_of(request)
    snapshot = console.sampler.snapshot
    prefix, wanted = request.query_params.get("prefix", ""), request.query_params.get("q", "").strip()
    show_internal = request.query_params.get("internal") == "1"
    known = [each for each in snapshot.topics.values() if show_internal or not each.is_internal]
    if wanted:
        branches = [(each.name, [each]) for each in known if wanted.lower() in each.name.lower()]
    else:
        branches = list(_level([each for each in known if each.name.startswith(prefix)], prefix))
    part = sliced(branches, request.query_params.get("page", "1"))
    data = {
        "title": "Topics",
        "prefix": prefix,
        "parents": _parents(prefix),
        "q": wanted,
        "internal": show_internal,
        "rows": [
            _topic_row(console, below[0]) if len(below) == 1 else _branch_row(console, name, below)
            for name, below in part.items
        ],
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
        "brokers": len(snapshot.brokers),
    }
    return console.page(request, "topics.html", data)


def _level(known: list[TopicState], prefix: str) -> Iterable[tuple[str, list[TopicState]]]:
    """Topics below a prefix: those whose names share more of their beginning together."""
    shared: dict[str, list[TopicState]] = {}
    for topic in known:
        rest = topic.name[len(prefix) :]
        cut = next((at for at, each in enumerate(rest) if each in SEPARATORS and at > 0), None)
        shared.setdefault(topic.name if cut is None else prefix + rest[: cut + 1], []).append(topic)
    for name, below in sorted(shared.items()):
        if len(below) > 1 and len(shared) == 1 and name != prefix:
            yield from _level(below, name)
        else:
            yield name, below


def _branch_row(console: Console, name: str, below: list[TopicState]) -> dict[str, Any]:
    snapshot = console.sampler.snapshot
    groups = {group for topic in below for group in snapshot.readers.get(topic.name, ())}
    sizes = [topic.size for topic in below if topic.size is not None]
    return {
        "prefix": name,
        "topics": len(below),
        "partitions": sum(len(topic.partitions) for topic in below),
        "size": sum(sizes) if sizes else None,
        "rate": sum(_rate(console, topic.name) or 0.0 for topic in below),
        "groups": sorted(groups)[:GROUPS_SHOWN_MAX],
        "group_count": len(groups),
        "lag": max((snapshot.lags_by_topic.get(topic.name, 0) for topic in below), default=0),
        "offline": sum(topic.offline for topic in below),
        "under_replicated": sum(topic.under_replicated for topic in below),
    }


def _topic_row(console: Console, topic: TopicState) -> dict[str, Any]:
    groups = console.sampler.snapshot.readers.get(topic.name, ())
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "offset_range": topic.offset_range,
        "size": topic.size,
        "rate": _rate(console, topic.name),
        "groups": list(groups[:GROUPS_SHOWN_MAX]),
        "group_count": len(groups),
        "lag": console.sampler.snapshot.lags_by_topic.get(topic.name, 0),
        "offline": topic.offline,
        "under_replicated": topic.under_replicated,
    }


def _rate(console: Console, topic: str) -> float | None:
    series = console.sampler.memory.topic_rates.get(topic)
    return None if series is None else series.last


def _parents(prefix: str) -> list[str]:
    return [prefix[: at + 1] for at, each in enumerate(prefix) if each in SEPARATORS]


def found_topic(snapshot: Snapshot, name: str) -> TopicState:
    """The topic of this name. Raises ConsoleError."""
    topic = snapshot.topics.get(name)
    if topic is None:
        raise ConsoleError(f"there is no topic {words.visible(name)!r}", 404)
    return topic


def topic_path(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


async def topic(request: Request) -> Response:
    """Serve `/topics/NAME`: partitions, groups, settings."""
    console = console_of(request)
    snapshot = console.sampler.snapshot
    found = found_topic(snapshot, request.path_params["topic"])
    rates = console.sampler.memory.topic_rates.get(found.name)
    part = sliced(list(found.partitions), request.query_params.get("page", "1"), 100)
    settings = await console.clients.run(lambda: _settings(console.clients, found.name))
    data = {
        "title": found.name,
        "topic": _topic_row(console, found),
        "is_internal": found.is_internal,
        "blocked": found.blocked,
        "partitions": [_partition_row(each) for each in part.items],
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
        "groups": [
            {
                "id": name,
                "state": snapshot.groups[name].state,
                "lag": sum(e.records or 0 for (t, _), e in snapshot.groups[name].lags.items() if t == found.name),
            }
            for name in snapshot.readers.get(found.name, ())[:100]
        ],
        "settings": settings,
        "charts": [chart("Records in, per second", rates.points(), words.rate)] if rates else [],
    }
    return console.page(request, "topic.html", data)


def _partition_row(each: Any) -> dict[str, Any]:
    return {
        "id": each.id,
        "leader": each.leader,
        "replicas": list(each.replicas),
        "isr": list(each.isr),
        "start": each.start,
        "stable": each.stable,
        "end": each.end,
        "size": each.size,
        "is_offline": each.is_offline,
        "is_under_replicated": each.is_under_replicated,
        "blocked": each.blocked,
    }


def _settings(clients: Clients, name: str) -> list[dict[str, Any]]:
    """Settings of a topic, those that were set for it first."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    (future,) = clients.admin.describe_configs([resource], request_timeout=REQUEST_S).values()
    entries = future.result(REQUEST_S + 1).values()
    rows = [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "is_own": each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
            "is_read_only": bool(each.is_read_only),
        }
        for each in entries
    ]
    return sorted(rows, key=lambda row: (not row["is_own"], row["name"]))


# --- changes


async def create(request: Request) -> Response:
    """Serve POST `/topics`."""
    console = console_of(request)
    form = await checked_form(request)
    name = text(form, "name")
    partitions = whole(text(form, "partitions", "1"), "the number of partitions", 1, PARTITIONS_MAX)
    replicas = text(form, "replicas")
    factor = whole(replicas, "the replication factor", 1, 1000) if replicas else -1
    config = _pairs(text(form, "config"))

    def work() -> None:
        new = NewTopic(name, partitions, factor, config=config)
        (future,) = console.clients.admin.create_topics([new], request_timeout=REQUEST_S).values()
        future.result(REQUEST_S + 1)

    async def made() -> str:
        await console.clients.run(work)
        return f"topic {name} is made, with {partitions} partitions"

    if not name:
        raise ConsoleError("a topic needs a name")
    facts = {"topic": name, "partitions": partitions, "replicas": factor, "config": config}
    return await console.change(request, "create topic", facts, made, "/topics")


def _pairs(lines: str) -> dict[str, str]:
    found = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise ConsoleError(f"{line[:80]!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found


async def configure(request: Request) -> Response:
    """Serve POST `/topics/NAME/config`: set one setting, or remove it."""
    console = console_of(request)
    name = found_topic(console.sampler.snapshot, request.path_params["topic"]).name
    form = await checked_form(request)
    key, value, is_removed = text(form, "key"), text(form, "value"), text(form, "remove") == "1"
    if not key:
        raise ConsoleError("a setting needs a name")

    def work() -> None:
        operation = AlterConfigOpType.DELETE if is_removed else AlterConfigOpType.SET
        entry = ConfigEntry(key, None if is_removed else value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        (future,) = console.clients.admin.incremental_alter_configs([resource], request_timeout=REQUEST_S).values()
        future.result(REQUEST_S + 1)

    async def set_it() -> str:
        await console.clients.run(work)
        return f"{key} has its default again" if is_removed else f"{key} is {value}"

    facts = {"topic": name, "key": key, "value": None if is_removed else value}
    return await console.change(request, "configure topic", facts, set_it, topic_path(name))


async def grow(request: Request) -> Response:
    """Serve POST `/topics/NAME/partitions`."""
    console = console_of(request)
    name = found_topic(console.sampler.snapshot, request.path_params["topic"]).name
    form = await checked_form(request)
    count = whole(text(form, "partitions"), "the number of partitions", 1, PARTITIONS_MAX)

    def work() -> None:
        (future,) = console.clients.admin.create_partitions(
            [NewPartitions(name, count)], request_timeout=REQUEST_S
        ).values()
        future.result(REQUEST_S + 1)

    async def grown() -> str:
        await console.clients.run(work)
        return f"{name} has {count} partitions; keys may go to other partitions from now on"

    facts = {"topic": name, "partitions": count}
    return await console.change(request, "add partitions", facts, grown, topic_path(name))


async def delete(request: Request) -> Response:
    """Serve POST `/topics/NAME/delete`; the name must be typed."""
    console = console_of(request)
    name = found_topic(console.sampler.snapshot, request.path_params["topic"]).name
    form = await checked_form(request)
    if text(form, "typed") != name:
        raise ConsoleError(f"nothing was deleted: type {name} to delete it")

    def work() -> None:
        (future,) = console.clients.admin.delete_topics([name], request_timeout=REQUEST_S).values()
        future.result(REQUEST_S + 1)

    async def deleted() -> str:
        await console.clients.run(work)
        return f"topic {name} is deleted"

    return await console.change(request, "delete topic", {"topic": name}, deleted, "/topics")
