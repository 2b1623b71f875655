"""Transactions: which are open, since when, whom they hold up; and ending one."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from moldau.cli.transaction_queries import IS_OPEN, Filters, describe_transaction, list_transactions, producers_on
from moldau.console.cluster.clients import REQUEST_S, Clients
from moldau.console.cluster.state import Place, Snapshot
from moldau.console.failures import ConsoleError
from moldau.console.web.console import checked_form, console_of, text

SHOWN_MAX = 100
BLOCKED_MAX = 200


async def transactions(request: Request) -> Response:
    """Serve `/transactions`."""
    console = console_of(request)
    snapshot = console.sampler.snapshot
    open_, blocked = await console.clients.run(lambda: _looked_at(console.clients, snapshot))
    data = {"title": "Transactions", "open": open_, "blocked": blocked, "shown_max": SHOWN_MAX}
    return console.page(request, "transactions.html", data)


def _looked_at(clients: Clients, snapshot: Snapshot) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    now_ms = int(time.time() * 1000)
    with clients.wire() as wire:
        listed = list_transactions(wire, Filters(states=IS_OPEN))[:SHOWN_MAX]
        found = [describe_transaction(wire, each.transactional_id) for each in listed]
        by_producer = {each.producer_id: each.transactional_id for each in found}
        waiting: dict[int, list[Place]] = {}
        for topic in snapshot.topics.values():
            for each in topic.partitions:
                if each.blocked and each.leader >= 0:
                    waiting.setdefault(each.leader, []).append((topic.name, each.id))
        blocked = []
        for leader, places in waiting.items():
            for place, producers in producers_on(wire, leader, places[:BLOCKED_MAX]).items():
                if not isinstance(producers, list):
                    continue
                opened = [each for each in producers if each.current_txn_start_offset >= 0]
                first = min(opened, key=lambda each: each.current_txn_start_offset, default=None)
                if first is not None:
                    partition = next(each for each in snapshot.topics[place[0]].partitions if each.id == place[1])
                    blocked.append(
                        {
                            "topic": place[0],
                            "partition": place[1],
                            "offsets": partition.blocked,
                            "producer_id": first.producer_id,
                            "transactional_id": by_producer.get(first.producer_id),
                            "groups": list(snapshot.readers.get(place[0], ())[:5]),
                        }
                    )
    rows = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.state,
            "age_s": None if each.start_ms < 0 else max(0, now_ms - each.start_ms) / 1000,
            "timeout_s": each.timeout_ms / 1000,
            "coordinator": each.coordinator,
            "partitions": [f"{topic}-{number}" for topic, number in each.partitions[:10]],
            "partition_count": len(each.partitions),
        }
        for each in found
        if each.state in IS_OPEN
    ]
    return sorted(rows, key=lambda row: -(row["age_s"] or 0)), blocked


async def abort(request: Request) -> Response:
    """Serve POST `/transactions/abort`: fence the producer, as its next run would; that aborts what it has open."""
    console = console_of(request)
    form = await checked_form(request)
    name = text(form, "transactional_id")
    if not name or text(form, "typed") != name:
        raise ConsoleError("nothing was aborted: type the transactional id to abort its transaction")

    def work() -> None:
        console.clients.transactional_producer(name).init_transactions(REQUEST_S)

    async def aborted() -> str:
        await console.clients.run(work)
        return f"the transaction of {name} is aborted, and its producer is fenced"

    return await console.change(request, "abort transaction", {"transactional_id": name}, aborted, "/transactions")
