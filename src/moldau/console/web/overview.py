"""The first page: problems first, then brokers, rates of the last hour and the clients that are connected."""

import shlex
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from moldau.console.cluster.sampler import BYTES_IN, BYTES_OUT, RECORDS_IN
from moldau.console.cluster.state import BAD_RULES, NOT_KNOWN_YET, Snapshot
from moldau.console.web import pipelines, words
from moldau.console.web.charts import chart
from moldau.console.web.console import console_of

CLIENTS_MAX = 20
LINES_MAX = 3


async def overview(request: Request) -> Response:
    """Serve `/`."""
    console = console_of(request)
    snapshot, memory = console.sampler.snapshot, console.sampler.memory
    own = [topic for topic in snapshot.topics.values() if not topic.is_internal]
    data = {
        "title": "Overview",
        "cluster": snapshot.cluster_id,
        "at_ms": snapshot.at_ms,
        "controller": snapshot.controller,
        "problems": [*await pipelines.problems(console), *problems(snapshot, console.sampler.failure)],
        "brokers": _brokers(snapshot),
        "topics": len(own),
        "partitions": sum(len(topic.partitions) for topic in own),
        "groups": len(snapshot.groups),
        "groups_unknown": sum(group.worst == NOT_KNOWN_YET for group in snapshot.groups.values()),
        "records_per_s": memory.totals[RECORDS_IN].last,
        "has_metrics": bool(snapshot.traffic.brokers),
        "bytes_in_per_s": memory.totals[BYTES_IN].last,
        "bytes_out_per_s": memory.totals[BYTES_OUT].last,
        "clients": software(snapshot),
        "charts": [
            chart("Records in, per second", memory.totals[RECORDS_IN].points(), words.rate),
            *(
                chart(f"{name.capitalize()}, per second", memory.totals[name].points(), words.size)
                for name in (BYTES_IN, BYTES_OUT)
                if memory.totals[name].points()
            ),
        ],
    }
    return console.page(request, "overview.html", data)


def problems(snapshot: Snapshot, failure: str | None) -> list[dict[str, Any]]:
    """Problems, the worst first; each with its page and the command that shows the same."""
    found: list[dict[str, Any]] = []
    if failure is not None:
        found.append(_problem("error", f"the cluster does not answer: {failure}; what is below is older", "/", ""))
    found.extend(
        _problem("error", f"broker {number} is not there", "/", "moldau topics describe") for number in snapshot.missing
    )
    found.extend(_under_replicated(snapshot))
    for topic in snapshot.topics.values():
        link = f"/topics/{quote(topic.name, safe='')}"
        if topic.offline:
            what = f"{topic.offline} of {len(topic.partitions)} partitions of {topic.name} have no leader"
            found.append(_problem("error", what, link, "moldau topics describe --unavailable-partitions"))
        if topic.blocked:
            what = f"an open transaction holds back {topic.blocked} offsets of {topic.name}"
            blocked = next(each.id for each in topic.partitions if each.blocked)
            command = f"moldau transactions producers --topic {topic.name} --partition {blocked}"
            found.append(_problem("warning", what, "/transactions", command))
    for group in snapshot.groups.values():
        rule = group.worst
        if rule in BAD_RULES:
            what = f"group {group.id} {RULES[rule]}: {group.lag:,} records behind"
            link, command = (
                f"/groups/{quote(group.id, safe='')}",
                f"moldau groups describe --group {shlex.quote(group.id)}",
            )
            found.append(_problem("error" if rule != "warn" else "warning", what, link, command))
    found.extend(_problem("warning", complaint, "/", "") for complaint in snapshot.complaints)
    return sorted(found, key=lambda each: str(each["level"] != "error"))


def _under_replicated(snapshot: Snapshot) -> list[dict[str, Any]]:
    """A line for each topic, or one for all where a lost broker would fill the page with them."""
    command = "moldau topics describe --under-replicated-partitions"
    topics = [each for each in snapshot.topics.values() if each.under_replicated and not each.offline]
    if len(topics) > LINES_MAX:
        count = sum(each.under_replicated for each in topics)
        what = f"{count:,} partitions of {len(topics):,} topics are under-replicated"
        return [_problem("warning", what, "/topics", command)]
    return [
        _problem(
            "warning",
            f"{each.under_replicated} of {len(each.partitions)} partitions of {each.name} are under-replicated",
            f"/topics/{quote(each.name, safe='')}",
            command,
        )
        for each in topics
    ]


RULES = {
    "ok": "keeps up",
    "warn": "falls behind",
    "stall": "commits the same offset again and again",
    "rewind": "has gone back",
    "stop": "has stopped",
    "unknown": "not known yet",
}
"""Words for the rules of `core/group_status.py`."""


def _problem(level: str, what: str, link: str, command: str) -> dict[str, Any]:
    return {"level": level, "what": what, "link": link, "command": command}


def _brokers(snapshot: Snapshot) -> list[dict[str, Any]]:
    leaders: dict[int, int] = {}
    copies: dict[int, int] = {}
    lost: dict[int, int] = {}
    for topic in snapshot.topics.values():
        for each in topic.partitions:
            leaders[each.leader] = leaders.get(each.leader, 0) + 1
            for number in each.replicas:
                copies[number] = copies.get(number, 0) + 1
                lost[number] = lost.get(number, 0) + (number not in each.isr)
    return [
        {
            "id": number,
            "address": snapshot.brokers[number].address if number in snapshot.brokers else None,
            "is_there": number in snapshot.brokers,
            "is_controller": number == snapshot.controller,
            "leads": leaders.get(number, 0),
            "replicas": copies.get(number, 0),
            "out_of_sync": lost.get(number, 0),
        }
        for number in sorted({*snapshot.brokers, *snapshot.missing})
    ]


def software(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Connections by the software at their other end, the most first."""
    ranked = sorted(snapshot.traffic.clients.items(), key=lambda item: -item[1])
    return [{"name": name, "version": version, "connections": count} for (name, version), count in ranked[:CLIENTS_MAX]]
