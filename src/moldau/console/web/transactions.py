"""Transactions: which are open, since when, whom they hold up; and ending one.

What a broker that is away would tell is missing and said to be: its transactions, or who holds up its partitions.
"""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from moldau.cli.failures import ToolError
from moldau.cli.transaction_queries import (
    IS_OPEN,
    Filters,
    Transaction,
    described_by,
    producers_on,
    terminate,
    transactions_of,
)
from moldau.cli.wire import WireCluster
from moldau.console.cluster.clients import Clients
from moldau.console.cluster.state import Place, Snapshot
from moldau.console.failures import ConsoleError
from moldau.console.web.console import checked_form, console_of, text

SHOWN_MAX = 100
BLOCKED_MAX = 200
ASK_S = 3.0
"""Time that a broker has for an answer: there may be three questions to one that is away."""


async def transactions(request: Request) -> Response:
    """Serve `/transactions`."""
    console = console_of(request)
    snapshot = console.sampler.snapshot
    look = await console.clients.run(lambda: _Look(console.clients, snapshot))
    data = {
        "title": "Transactions",
        "open": look.open,
        "blocked": look.blocked,
        "complaints": look.complaints,
        "shown_max": SHOWN_MAX,
    }
    return console.page(request, "transactions.html", data)


class _Look:
    """Transactions and those who wait for them, as far as brokers answer. Raises ToolError where none does."""

    def __init__(self, clients: Clients, snapshot: Snapshot) -> None:
        self.complaints: list[str] = []
        with clients.wire(ASK_S) as wire:
            found = self._found(wire)
            self.blocked = self._blocked(wire, snapshot, {each.producer_id: each.transactional_id for each in found})
        now_ms = int(time.time() * 1000)
        rows = [_row(each, now_ms) for each in found if each.state in IS_OPEN]
        self.open = sorted(rows, key=lambda row: -(row["age_s"] or 0))

    def _found(self, wire: WireCluster) -> list[Transaction]:
        found: list[Transaction] = []
        for broker in wire.brokers():
            try:
                names = [each.transactional_id for each in transactions_of(wire, broker, Filters(states=IS_OPEN))]
                told = described_by(wire, broker, names[: SHOWN_MAX - len(found)]) if names else []
            except ToolError as error:
                self.complaints.append(f"transactions of broker {broker} were not read: {error}")
                continue
            found += [each for each in told if isinstance(each, Transaction)]  # another one has just ended
            if len(found) >= SHOWN_MAX:
                break
        return found

    def _blocked(self, wire: WireCluster, snapshot: Snapshot, names: dict[int, str]) -> list[dict[str, Any]]:
        """Partitions whose readers wait, with the producer that began first."""
        waiting: dict[int, list[Place]] = {}
        for topic in snapshot.topics.values():
            for each in topic.partitions:
                if each.blocked and each.leader >= 0:
                    waiting.setdefault(each.leader, []).append((topic.name, each.id))
        blocked = []
        for leader, places in waiting.items():
            try:
                told = producers_on(wire, leader, places[:BLOCKED_MAX])
            except ToolError as error:
                self.complaints.append(f"who holds up partitions of broker {leader} was not read: {error}")
                continue
            for (name, index), producers in told.items():
                if not isinstance(producers, list):
                    continue
                opened = [each for each in producers if each.current_txn_start_offset >= 0]
                first = min(opened, key=lambda each: each.current_txn_start_offset, default=None)
                if first is not None:
                    blocked.append(
                        {
                            "topic": name,
                            "partition": index,
                            "offsets": next(
                                each.blocked for each in snapshot.topics[name].partitions if each.id == index
                            ),
                            "producer_id": first.producer_id,
                            "transactional_id": names.get(first.producer_id),
                            "groups": list(snapshot.readers.get(name, ())[:5]),
                        }
                    )
        return blocked


def _row(transaction: Transaction, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "state": transaction.state,
        "age_s": None if transaction.start_ms < 0 else max(0, now_ms - transaction.start_ms) / 1000,
        "timeout_s": transaction.timeout_ms / 1000,
        "coordinator": transaction.coordinator,
        "partitions": [f"{topic}-{number}" for topic, number in transaction.partitions[:10]],
        "partition_count": len(transaction.partitions),
    }


async def abort(request: Request) -> Response:
    """Serve POST `/transactions/abort`: fence the producer, as its next run would; that aborts what it has open."""
    console = console_of(request)
    form = await checked_form(request)
    name = text(form, "transactional_id")
    if not name or text(form, "typed") != name:
        raise ConsoleError("nothing was aborted: type the transactional id to abort its transaction")

    def work() -> None:
        with console.clients.wire() as wire:
            terminate(wire, name)

    async def aborted() -> str:
        await console.clients.run(work)
        return f"the transaction of {name} is aborted, and its producer is fenced"

    return await console.change(request, "abort transaction", {"transactional_id": name}, aborted, "/transactions")
