"""Topology: who writes and who reads what, as the brokers and the groups' coordinators see it.

A client with the id of a group's member is that group, so that one who reads and writes stands between its topics.
"""

from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from moldau.console.cluster.clients import CLIENT_ID
from moldau.console.cluster.state import Snapshot, TopicUse
from moldau.console.web import words
from moldau.console.web.console import console_of, sliced
from moldau.console.web.graphs import NODES_MAX, Edge, Node, drawn

NAMES_MAX = 20
"""Clients of a topic that its row names."""


class _User(NamedTuple):
    """One who writes or reads a topic: a group, or a client without one."""

    kind: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def link(self) -> str:
        return f"/groups/{quote(self.name, safe='')}" if self.kind == "group" else ""


async def topology(request: Request) -> Response:
    """Serve `/topology`: a graph, and a row for each topic that somebody uses."""
    console = console_of(request)
    snapshot = console.sampler.snapshot
    wanted = request.query_params.get("q", "").strip().lower()
    uses = _uses(snapshot)
    rows = [
        _row(snapshot, topic, *users)
        for topic, users in sorted(uses.items())
        if not wanted or _is_wanted(wanted, topic, users)
    ]
    part = sliced(rows, request.query_params.get("page", "1"))
    nodes, edges = _graph(part.items)
    data = {
        "title": "Topology",
        "q": request.query_params.get("q", ""),
        "rows": part.items,
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
        "knows_clients": bool(snapshot.traffic.brokers),
        "is_cut": len(nodes) > NODES_MAX,
        "graph": drawn("Clients, topics and groups", nodes, edges),
    }
    return console.page(request, "topology.html", data)


_Users = tuple[dict[_User, set[str]], dict[_User, set[str]]]
"""Writers and readers of a topic, with the hosts that they were seen on."""


def _uses(snapshot: Snapshot) -> dict[str, _Users]:
    """Users by topic."""
    group_of = {member.client_id: group.id for group in snapshot.groups.values() for member in group.members}
    found: dict[str, _Users] = {}
    for group in snapshot.groups.values():
        hosts = {member.host for member in group.members}
        for topic in group.topics:
            found.setdefault(topic, ({}, {}))[1][_User("group", group.id)] = hosts
    for place, uses in ((0, snapshot.traffic.writers), (1, snapshot.traffic.readers)):
        for use in uses:
            if use.client_id == CLIENT_ID or (use.topic in snapshot.topics and snapshot.topics[use.topic].is_internal):
                continue
            user = _user(use, group_of)
            found.setdefault(use.topic, ({}, {}))[place].setdefault(user, set()).add(use.host)
    return {topic: users for topic, users in found.items() if topic in snapshot.topics}


def _user(use: TopicUse, group_of: dict[str, str]) -> _User:
    group = group_of.get(use.client_id) if use.client_id else None
    return _User("client", use.client_id or "without a name") if group is None else _User("group", group)


def _is_wanted(wanted: str, topic: str, users: _Users) -> bool:
    return wanted in topic.lower() or any(wanted in user.name.lower() for side in users for user in side)


def _row(
    snapshot: Snapshot, topic: str, writers: dict[_User, set[str]], readers: dict[_User, set[str]]
) -> dict[str, Any]:
    return {
        "topic": topic,
        "writers": [_told(snapshot, topic, *each) for each in sorted(writers.items())[:NAMES_MAX]],
        "readers": [_told(snapshot, topic, *each) for each in sorted(readers.items())[:NAMES_MAX]],
        "writer_count": len(writers),
        "reader_count": len(readers),
    }


def _told(snapshot: Snapshot, topic: str, user: _User, hosts: set[str]) -> dict[str, Any]:
    group = snapshot.groups.get(user.name) if user.kind == "group" else None
    lags = [] if group is None else [each.records or 0 for (name, _), each in group.lags.items() if name == topic]
    return {
        "id": user.id,
        "kind": user.kind,
        "name": user.name,
        "link": user.link,
        "hosts": sorted(hosts)[:NAMES_MAX],
        "lag": sum(lags) if lags else None,
    }


def _graph(rows: list[dict[str, Any]]) -> tuple[list[Node], list[Edge]]:
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    lag_of: dict[str, int] = {}
    for row in rows:
        id_ = f"topic {row['topic']}"
        nodes[id_] = Node(id_, "topic", words.visible(row["topic"]), f"/topics/{quote(row['topic'], safe='')}")
        for each in (*row["writers"], *row["readers"]):
            lag_of[each["id"]] = lag_of.get(each["id"], 0) + (each["lag"] or 0)
            nodes[each["id"]] = Node(each["id"], each["kind"], words.visible(each["name"]), each["link"])
        edges += [(each["id"], id_) for each in row["writers"]]
        edges += [(id_, each["id"]) for each in row["readers"]]
    shown = [
        node._replace(words=f"{words.number(lag_of[node.id])} behind") if lag_of.get(node.id) else node
        for node in nodes.values()
    ]
    return shown, edges
