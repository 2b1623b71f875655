"""Pipelines: their progress, lag and state, what flows where, and stopping and starting their runs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from moldau.console.cluster.state import Snapshot
from moldau.console.failures import ConsoleError
from moldau.console.pipelines.watched import Pipeline
from moldau.console.web import words
from moldau.console.web.charts import Chart, chart
from moldau.console.web.console import Console, checked_form, console_of
from moldau.console.web.graphs import Edge, Node, drawn

if TYPE_CHECKING:
    from moldau.pipelines.file.spec import PipelineSpec

WAIT_S = 90.0
GOING_ON = ("starting", "running", "stopping")
BAD = ("failed", "killed", "not sound", "unknown")


async def pipelines(request: Request) -> Response:
    """Serve `/pipelines`."""
    console = console_of(request)
    found = await console.clients.run(console.pipelines.found)
    return console.page(request, "pipelines.html", {"title": "Pipelines", "rows": [_row(each) for each in found]})


def level(state: str) -> str:
    """The colour of a state."""
    return "error" if state in BAD else "ok" if state in ("running", "finished") else "plain"


def _row(pipeline: Pipeline) -> dict[str, Any]:
    status = pipeline.status
    queries = status["queries"]
    lags = [each["lag"] for each in queries if each.get("lag") is not None]
    return {
        "name": pipeline.name,
        "file": str(pipeline.file),
        "state": status["state"],
        "level": level(status["state"]),
        "mode": status.get("mode", ""),
        "pid": status.get("pid") if status["state"] in GOING_ON else None,
        "started": str(status.get("started", ""))[:19].replace("T", " "),
        "updated": str(status.get("updated", ""))[:19].replace("T", " "),
        "rows": sum(each["rows"] for each in queries),
        "rows_per_second": sum(each["rows_per_second"] for each in queries),
        "lag": sum(lags) if lags else None,
        "state_rows": sum(each["state_rows"] for each in queries),
        "state_bytes": sum(each["state_bytes"] for each in queries),
        "late_rows": sum(each["late_rows"] for each in queries),
        "problem": pipeline.problem or status.get("error") or "",
        "is_going_on": status["state"] in GOING_ON,
    }


async def pipeline(request: Request) -> Response:
    """Serve `/pipelines/NAME`."""
    console = console_of(request)
    name = request.path_params["name"]
    found = await console.clients.run(lambda: console.pipelines.named(name))
    snapshot = console.sampler.snapshot
    data = {
        "title": f"Pipeline {found.name}",
        "pipeline": _row(found),
        "queries": [
            {**each, "group": each["name"] if each["name"] in snapshot.groups else None}
            for each in found.status["queries"]
        ],
        "dead_letters": _dead_letters(found, snapshot),
        "charts": _charts(console, found),
        "graph": Markup("") if found.spec is None else _graph(found.spec, snapshot),
        "flows": [] if found.spec is None else [{"from": begin, "to": end} for begin, end in _named_edges(found.spec)],
    }
    return console.page(request, "pipeline.html", data)


def _dead_letters(pipeline: Pipeline, snapshot: Snapshot) -> str | None:
    topic = pipeline.spec.dead_letters if pipeline.spec else None
    return topic if topic in snapshot.topics else None


def _charts(console: Console, pipeline: Pipeline) -> list[Chart]:
    """Lag of each sink over the last hour, as its consumer group tells it."""
    lags = console.sampler.memory.group_lags
    names = [each["name"] for each in pipeline.status["queries"]]
    return [chart(f"Lag of {name}", lags[name].points(), words.number) for name in names if name in lags]


def _named_edges(spec: "PipelineSpec") -> list[Edge]:
    """Flows by the names in the file."""
    found = [(name, view.name) for view in spec.views.values() for name in view.inputs]
    return found + [(name, sink.name) for sink in spec.sinks.values() for name in sink.flows]


def _graph(spec: "PipelineSpec", snapshot: Snapshot) -> Markup:
    nodes = [_end(f"in {each.name}", each.name, each.kind, each.options, snapshot) for each in spec.sources.values()]
    nodes += [Node(f"in {each.name}", "view", each.name, words="view") for each in spec.views.values()]
    nodes += [_end(f"out {each.name}", each.name, each.kind, each.options, snapshot) for each in spec.sinks.values()]
    edges = [(f"in {name}", f"in {view.name}") for view in spec.views.values() for name in view.inputs]
    edges += [(f"in {name}", f"out {sink.name}") for sink in spec.sinks.values() for name in sink.flows]
    return drawn(f"Flow of {spec.name}", nodes, edges)


def _end(id_: str, name: str, kind: str, options: Any, snapshot: Snapshot) -> Node:
    """A source or a sink. Of others than topics only the kind is told: an address may have a password in it."""
    if kind != "topic":
        return Node(id_, "store", name, words=kind)
    topic = options.get("topic")
    names = [topic] if isinstance(topic, str) else list(topic or ())
    link = f"/topics/{quote(names[0], safe='')}" if len(names) == 1 and names[0] in snapshot.topics else ""
    return Node(id_, "topic", name, link, f"topic {', '.join(names) or options.get('pattern', '')}")


async def stop(request: Request) -> Response:
    """Serve POST `/pipelines/NAME/stop`."""
    return await _changed(request, "stop pipeline", lambda console: console.pipelines.stop)


async def start(request: Request) -> Response:
    """Serve POST `/pipelines/NAME/start`."""
    return await _changed(request, "start pipeline", lambda console: console.pipelines.start)


async def restart(request: Request) -> Response:
    """Serve POST `/pipelines/NAME/restart`."""
    return await _changed(request, "restart pipeline", lambda console: console.pipelines.restart)


async def _changed(request: Request, what: str, change: Callable[[Console], Callable[[str], str]]) -> Response:
    console = console_of(request)
    await checked_form(request)
    name = request.path_params["name"]
    found = await console.clients.run(lambda: console.pipelines.named(name))

    async def done() -> str:
        return await console.clients.run(lambda: change(console)(found.name), WAIT_S)

    facts = {"pipeline": found.name, "file": str(found.file)}
    return await console.change(request, what, facts, done, f"/pipelines/{quote(found.name, safe='')}")


async def problems(console: Console) -> list[dict[str, Any]]:
    """Pipelines that are not well, for the overview."""
    if not console.settings.pipelines:
        return []
    try:
        found = await console.clients.run(console.pipelines.found)
    except ConsoleError as error:
        return [_problem("pipelines", str(error), "/pipelines", "")]
    return [
        _problem(
            each.name,
            f"is {each.status['state']}: {each.problem or each.status.get('error') or 'it did not end by itself'}",
            f"/pipelines/{quote(each.name, safe='')}",
            f"moldau pipeline status {each.file}",
        )
        for each in found
        if each.status["state"] in BAD
    ]


def _problem(name: str, why: str, link: str, command: str) -> dict[str, Any]:
    return {"level": "error", "what": f"pipeline {name} {why}", "link": link, "command": command}
