"""Clients: their software, and the metrics that they push to brokers (KIP-714)."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from moldau.console.cluster.scrapes import pushed_metrics
from moldau.console.failures import ConsoleError
from moldau.console.web import words
from moldau.console.web.console import Console, console_of, sliced
from moldau.console.web.overview import software

METRICS_MAX = 500
SHORT = "org.apache.kafka."
COMMAND = "moldau configs alter client-metrics everything --add-config metrics=[*],interval.ms=10000"


async def clients(request: Request) -> Response:
    """Serve `/clients`."""
    console = console_of(request)
    wanted = request.query_params.get("q", "").strip().lower()
    found, is_enabled = await _pushing(console)
    rows = [_row(each) for each in found if wanted in f"{each['client_id']} {each['software_name']}".lower()]
    part = sliced(
        sorted(rows, key=lambda row: (row["client_id"], row["address"])), request.query_params.get("page", "1")
    )
    data = {
        "title": "Clients",
        "q": request.query_params.get("q", ""),
        "software": software(console.sampler.snapshot),
        "has_metrics": bool(console.sampler.snapshot.traffic.brokers),
        "is_enabled": is_enabled,
        "command": COMMAND,
        "has_pushes": any(each["metrics"] for each in found),
        "rows": part.items,
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
    }
    return console.page(request, "clients.html", data)


async def _pushing(console: Console) -> tuple[list[dict[str, Any]], bool]:
    addresses = console.sampler.snapshot.traffic.brokers
    return await console.clients.run(lambda: pushed_metrics(addresses)) if addresses else ([], False)


def _row(client: dict[str, Any]) -> dict[str, Any]:
    return {
        "instance_id": client["instance_id"],
        "client_id": client["client_id"] or "without a name",
        "software": f"{client['software_name']} {client['software_version']}".strip() or "not named",
        "address": f"{client['address']}:{client['port']}",
        "pushed_s_ago": client["pushed_s_ago"],
        "interval_s": client["interval_ms"] / 1000,
        "metrics": len(client["metrics"]),
        "link": f"/clients/{quote(client['instance_id'], safe='')}",
    }


async def client(request: Request) -> Response:
    """Serve `/clients/ID`: the newest figures of one client."""
    console = console_of(request)
    id_ = request.path_params["id"]
    found, _ = await _pushing(console)
    # a client may push to one broker after the other: the newest figures count
    newest: dict[str, dict[str, Any]] = {}
    known = [each for each in found if each["instance_id"] == id_]
    if not known:
        raise ConsoleError(f"no client {words.visible(id_[:80])!r} pushes metrics now", 404)
    for each in sorted(known, key=lambda each: -(each["pushed_s_ago"] or 0)):
        for metric in each["metrics"]:
            newest[f"{metric['name']} {sorted(metric['labels'].items())}"] = metric
    shown = sorted(newest.values(), key=lambda metric: (metric["name"], sorted(metric["labels"].items())))
    data = {
        "title": f"Client {known[0]['client_id']}",
        "client": _row(known[0]),
        "asked_for": known[0]["asked_for"],
        "metrics": [
            {
                "name": str(metric["name"]).removeprefix(SHORT),
                "labels": ", ".join(f"{name}={value}" for name, value in sorted(metric["labels"].items())),
                "value": metric["value"],
            }
            for metric in shown[:METRICS_MAX]
        ],
    }
    return console.page(request, "client.html", data)
