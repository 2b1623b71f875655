"""Consumer groups: how they keep up, who is in them, and their offsets."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from moldau.cli.group_queries import commit_offsets
from moldau.console.cluster.clients import REQUEST_S, Clients
from moldau.console.cluster.history import Series
from moldau.console.cluster.offset_specs import EARLIEST, LATEST, at_time, offsets_at
from moldau.console.cluster.state import GroupState, Place, Snapshot
from moldau.console.failures import ConsoleError
from moldau.console.web import words
from moldau.console.web.charts import chart
from moldau.console.web.console import checked_form, console_of, sliced, text, whole
from moldau.console.web.overview import RULES
from moldau.console.web.records import time_ms

SPEED_S = 60.0
WAYS = ("earliest", "latest", "offset", "shift", "time")
MEMBERS_MAX = 200


async def groups(request: Request) -> Response:
    """Serve `/groups`."""
    console = console_of(request)
    wanted = request.query_params.get("q", "").strip()
    found = [each for each in console.sampler.snapshot.groups.values() if wanted.lower() in each.id.lower()]
    found.sort(key=lambda each: (each.worst == "ok", -each.lag, each.id))
    part = sliced(found, request.query_params.get("page", "1"))
    data = {
        "title": "Groups",
        "q": wanted,
        "rows": [_row(each) for each in part.items],
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
    }
    return console.page(request, "groups.html", data)


def _row(group: GroupState) -> dict[str, Any]:
    rule = group.worst
    return {
        "id": group.id,
        "state": group.state,
        "kind": group.kind,
        "members": len(group.members),
        "topics": list(group.topics[:3]),
        "topic_count": len(group.topics),
        "lag": group.lag,
        "seconds": group.seconds,
        "is_exact": group.is_exact,
        "rule": rule,
        "words": RULES[rule],
    }


def _found(snapshot: Snapshot, name: str) -> GroupState:
    group = snapshot.groups.get(name)
    if group is None:
        raise ConsoleError(f"there is no group {words.visible(name)!r}", 404)
    return group


def group_path(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


async def group(request: Request) -> Response:
    """Serve `/groups/NAME`."""
    console = console_of(request)
    memory = console.sampler.memory
    found = _found(console.sampler.snapshot, request.path_params["group"])
    owners = {place: member.client_id for member in found.members for place in member.assignment}
    part = sliced(list(found.lags.items()), request.query_params.get("page", "1"), 100)
    lags, seconds = memory.group_lags.get(found.id), memory.group_seconds.get(found.id)
    data = {
        "title": found.id,
        "group": _row(found),
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "catch_up": catch_up(lags, found.lag),
        "members": [
            {
                "id": each.id,
                "client_id": each.client_id,
                "host": each.host,
                "partitions": len(each.assignment),
                "assignment": [f"{topic}-{number}" for topic, number in each.assignment[:10]],
            }
            for each in found.members[:MEMBERS_MAX]
        ],
        "lags": [
            {
                "topic": topic,
                "partition": number,
                "committed": each.committed,
                "lag": each.records,
                "seconds": each.seconds,
                "is_exact": each.is_exact,
                "rule": each.rule,
                "owner": owners.get((topic, number), ""),
            }
            for (topic, number), each in part.items
        ],
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
        "topics": list(found.topics),
        "ways": list(WAYS),
        "charts": [
            *([chart("Lag in records", lags.points(), words.number)] if lags else []),
            *([chart("Lag in time", seconds.points(), words.span)] if seconds else []),
        ],
    }
    return console.page(request, "group.html", data)


def catch_up(series: Series | None, lag: int) -> str:
    """Time until a group has caught up, if it goes on as in the last minute."""
    if lag == 0:
        return "now"
    change = None if series is None else series.change_per_s(SPEED_S)
    if change is None:
        return "not known yet"
    if change >= 0:
        return "not in sight"
    return f"in about {words.span(lag / -change)}"


# --- offsets


async def plan(request: Request) -> Response:
    """Serve `/groups/NAME/reset`: a table of what would change; nothing does."""
    console = console_of(request)
    asked, name = request.query_params, request.path_params["group"]
    if "topic" not in asked and f"{name}/reset" in console.sampler.snapshot.groups:
        request.path_params["group"] = f"{name}/reset"  # that is its name
        return await group(request)
    found = _found(console.sampler.snapshot, name)
    rows = await console.clients.run(lambda: _planned(console.clients, found, console.sampler.snapshot, asked))
    data = {
        "title": f"Reset {found.id}",
        "group": _row(found),
        "rows": rows,
        "offsets": ",".join(f"{row['partition']}:{row['to']}" for row in rows),
        "topic": asked.get("topic", ""),
        "to": asked.get("to", ""),
    }
    return console.page(request, "reset.html", data)


def _planned(clients: Clients, group: GroupState, snapshot: Snapshot, asked: QueryParams) -> list[dict[str, Any]]:
    topic, way = asked.get("topic", ""), asked.get("to", "")
    if way not in WAYS:
        raise ConsoleError(f"to is one of {', '.join(WAYS)}")
    if topic not in snapshot.topics:
        raise ConsoleError(f"there is no topic {words.visible(topic)!r}", 404)
    places = [(topic, each.id) for each in snapshot.topics[topic].partitions]
    starts, ends = _offsets(clients, places, EARLIEST), _offsets(clients, places, LATEST)
    targets = _targets(clients, group, places, way, asked.get("value", "").strip(), starts, ends)
    rows = []
    for place in places:
        lag = group.lags.get(place)
        before = lag.committed if lag else None
        after = min(max(targets[place], starts[place]), ends[place])
        rows.append(
            {
                "partition": place[1],
                "start": starts[place],
                "end": ends[place],
                "from": before,
                "to": after,
                "change": None if before is None else after - before,
                "lag": ends[place] - after,
            }
        )
    return rows


def _targets(
    clients: Clients,
    group: GroupState,
    places: list[Place],
    way: str,
    value: str,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> Mapping[Place, int]:
    if way == "earliest":
        return starts
    if way == "latest":
        return ends
    if way == "time":
        found = _offsets(clients, places, at_time(time_ms(value)))
        return {place: ends[place] if found[place] < 0 else found[place] for place in places}
    if way == "offset":
        return dict.fromkeys(places, whole(value, "the offset"))
    by = whole(value, "the shift", -(1 << 62))
    known = {place: lag.committed for place, lag in group.lags.items()}
    return {place: (starts[place] if known.get(place) is None else known[place] or 0) + by for place in places}


def _offsets(clients: Clients, places: list[Place], spec: Any) -> dict[Place, int]:
    return offsets_at(clients.admin, places, spec, REQUEST_S)


async def reset(request: Request) -> Response:
    """Serve POST `/groups/NAME/reset`: commit the offsets that the table showed."""
    console = console_of(request)
    found = _found(console.sampler.snapshot, request.path_params["group"])
    form = await checked_form(request)
    topic = text(form, "topic")
    offsets = {}
    for each in filter(None, text(form, "offsets").split(",")):
        partition, _, offset = each.partition(":")
        number = whole(partition, "a partition", 0, (1 << 31) - 1)
        offsets[topic, number] = whole(offset, "an offset")
    if not offsets or topic not in console.sampler.snapshot.topics:
        raise ConsoleError("look at the table first: it says what is changed")

    def work() -> None:
        with console.clients.wire() as wire:
            commit_offsets(wire, found.id, offsets)

    async def done() -> str:
        if found.members:
            raise ConsoleError(f"{found.id} has {words.counted(len(found.members), 'member')}: stop them first", 409)
        await console.clients.run(work)
        return f"{words.counted(len(offsets), 'offset')} of {found.id} {'is' if len(offsets) == 1 else 'are'} reset"

    facts = {"group": found.id, "topic": topic, "offsets": text(form, "offsets")[:2000]}
    return await console.change(request, "reset offsets", facts, done, group_path(found.id))
