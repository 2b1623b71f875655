"""`moldau transactions`: what kafka-transactions does, with the same options; and who holds readers up.

`producers` says which transaction the last stable offset of a partition waits for, and since when. `find-hanging` looks
for transactions that are open in a partition and that no coordinator will end; `abort` ends one of them.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from moldau.cli.actions import Action, Command, Work
from moldau.cli.common import whole
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.output import confirm, say, show_json
from moldau.cli.transaction_queries import (
    READ_UNCOMMITTED,
    Filters,
    Marker,
    Partition,
    Transaction,
    describe_transaction,
    end_offset,
    is_at_work,
    leader_of,
    list_transactions,
    producers_of,
    producers_on,
    terminate,
    transactions_by_producer,
    write_abort_marker,
)
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster
from moldau.protocol.fetch_values import READ_COMMITTED
from moldau.protocol.messages.k61_describe_producers import ProducerState

MAX_TRANSACTION_TIMEOUT_MINUTES = 15
MS_PER_MINUTE = 60_000
MINUTES_MAX = 1e9
NO_FILTER = -1
UNKNOWN_EPOCH = -1
PARTITIONS_ASKED_AT_ONCE_MAX = 500


class Open(NamedTuple):
    """A transaction that is open in a partition, and what its coordinator says of it."""

    partition: Partition
    producer: ProducerState
    transaction: Transaction | None

    @property
    def is_hanging(self) -> bool:
        """Whether nobody is going to end it."""
        return not is_at_work(self.transaction, self.producer, self.partition)

    @property
    def start_ms(self) -> int:
        """Start of the transaction, where the coordinator knows it; else the time of its last batch, which is later."""
        if self.transaction is None or self.is_hanging:
            return self.producer.last_timestamp
        return self.transaction.start_ms


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _describe_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--transactional-id", metavar="ID", help="as `transactions list` tells it")


def _producers_options(made: argparse.ArgumentParser) -> None:
    _partition_options(made, required=True)
    made.add_argument("--broker-id", type=whole(32), metavar="ID", help="ask this replica rather than the leader")


def _find_options(made: argparse.ArgumentParser) -> None:
    _partition_options(made, required=False)
    made.add_argument("--broker-id", type=whole(32), metavar="ID", help="only partitions that this broker leads")
    made.add_argument(
        "--max-transaction-timeout",
        type=_minutes,
        default=MAX_TRANSACTION_TIMEOUT_MINUTES,
        metavar="MINUTES",
        help=f"the longest that a transaction may last (default: {MAX_TRANSACTION_TIMEOUT_MINUTES})",
    )


def _minutes(text: str) -> float:
    """A time, from an option's text; below 0 whatever is open counts."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not abs(minutes) < MINUTES_MAX:  # neither is "nan"
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of minutes, such as 15 or 0.5")
    return minutes


def _list_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--duration-filter",
        type=whole(64, NO_FILTER),
        default=NO_FILTER,
        metavar="MS",
        help="only those open for longer",
    )
    made.add_argument("--transactional-id-pattern", metavar="REGEX", help="only ids that match all of it (RE2)")
    made.add_argument("--state", action="append", default=[], help="only those in this state, such as Ongoing")
    made.add_argument(
        "--producer-id", action="append", type=whole(64), default=[], metavar="ID", help="only this producer's"
    )


def _partition_options(made: argparse.ArgumentParser, *, required: bool) -> None:
    made.add_argument("--topic", required=required)
    made.add_argument("--partition", type=whole(32), required=required, metavar="N")


def _abort_options(made: argparse.ArgumentParser) -> None:
    _partition_options(made, required=True)
    made.add_argument(
        "--start-offset", type=whole(64), metavar="N", help="where the transaction begins, as producers tells"
    )
    made.add_argument("--producer-id", type=whole(64), metavar="ID", help="for brokers before 3.0, with both epochs")
    made.add_argument("--producer-epoch", type=whole(16), metavar="N")
    made.add_argument("--coordinator-epoch", type=whole(32, UNKNOWN_EPOCH), metavar="N")
    made.add_argument("--force", action="store_true", help="also a transaction that its coordinator is going to end")
    made.add_argument("--yes", action="store_true", help="do not ask first")


# --- the actions ---


def _list(cluster: WireCluster, options: argparse.Namespace) -> None:
    filters = Filters(options.state, options.producer_id, options.duration_filter, options.transactional_id_pattern)
    rows = [
        {
            "transactionalId": each.transactional_id,
            "coordinator": each.coordinator,
            "producerId": each.producer_id,
            "transactionState": each.state,
        }
        for each in list_transactions(cluster, filters)
    ]
    _show(options, rows, "no such transactional id is known")


def _describe(cluster: WireCluster, options: argparse.Namespace) -> None:
    found = describe_transaction(cluster, options.transactional_id)
    is_open = found.start_ms >= 0
    row = {
        "coordinatorId": found.coordinator,
        "transactionalId": found.transactional_id,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "transactionState": found.state,
        "transactionTimeoutMs": found.timeout_ms,
        "currentTransactionStartTimeMs": found.start_ms if is_open else None,
        "transactionDurationMs": _now_ms() - found.start_ms if is_open else None,
        "topicPartitions": [f"{topic}-{index}" for topic, index in found.partitions],
    }
    _show(options, [row], "")


def _producers(cluster: WireCluster, options: argparse.Namespace) -> None:
    partition = (options.topic, options.partition)
    found = producers_of(cluster, partition, options.broker_id)
    open_ = _opened(cluster, {partition: list(filter(_is_open, found))})
    ids = {each.producer.producer_id: each.transaction for each in open_}
    rows = [_producer_row(each, ids.get(each.producer_id)) for each in found]
    blocked = _blocked(cluster, partition, open_)
    if options.json:
        show_json({"producers": rows, **blocked})
        return
    _show(options, rows, f"no producer is active in {options.topic}-{options.partition}")
    say("")
    say(_blocked_in_words(partition, blocked))


def _find_hanging(cluster: WireCluster, options: argparse.Namespace) -> None:
    if options.partition is not None and options.topic is None:
        raise WrongUsage("--partition needs --topic")
    oldest_ms = _now_ms() - options.max_transaction_timeout * MS_PER_MINUTE
    candidates = {
        partition: [each for each in producers if _is_open(each) and each.last_timestamp < oldest_ms]
        for partition, producers in _all_producers(cluster, options).items()
    }
    rows = [_hanging_row(each) for each in _opened(cluster, candidates) if each.is_hanging]
    _show(options, rows, "no transaction hangs")
    if rows and not options.json:
        first = rows[0]
        where = f"--topic {first['topic']} --partition {first['partition']} --start-offset {first['startOffset']}"
        say("")
        say(f"To end the first of them: moldau transactions abort {where}")


def _abort(cluster: WireCluster, options: argparse.Namespace) -> None:
    partition = (options.topic, options.partition)
    marker = _marker_by_offset(cluster, options) if options.start_offset is not None else _marker_as_told(options)
    place = f"{options.topic}-{options.partition}"
    confirm(options, f"Abort what producer {marker.producer_id}, epoch {marker.producer_epoch}, has open in {place}?")
    write_abort_marker(cluster, partition, marker)
    if options.json:
        show_json({"topic": options.topic, "partition": options.partition, **marker._asdict()})
    else:
        say(f"The transaction of producer {marker.producer_id}, epoch {marker.producer_epoch}, is aborted in {place}.")


def _terminate(cluster: WireCluster, options: argparse.Namespace) -> None:
    named = options.transactional_id
    confirm(options, f"Abort what transactional id {named} has open, and shut its producer out?")
    terminate(cluster, named)
    if options.json:
        show_json({"transactionalId": named, "terminated": True})
    else:
        say(f"Transactional id {named} has nothing open any more, and its producer is shut out.")


# --- what they are made of ---


def _marker_by_offset(cluster: WireCluster, options: argparse.Namespace) -> Marker:
    if options.producer_id is not None:
        raise WrongUsage("give --start-offset alone, or --producer-id with both epochs")
    partition, start = (options.topic, options.partition), options.start_offset
    producers = producers_of(cluster, partition)
    producer = next((each for each in producers if each.current_txn_start_offset == start), None)
    if producer is None:
        starts = sorted(each.current_txn_start_offset for each in filter(_is_open, producers))
        known = f"the open ones begin at {', '.join(map(str, starts))}" if starts else "none is open"
        raise ToolError(f"no open transaction of {options.topic}-{options.partition} begins at offset {start}: {known}")
    transaction = transactions_by_producer(cluster, [producer.producer_id]).get(producer.producer_id)
    if transaction is not None and is_at_work(transaction, producer, partition) and not options.force:
        raise ToolError(
            f"this transaction does not hang: transactional id {transaction.transactional_id!r} is at work in it, and "
            f"its coordinator ends it {transaction.timeout_ms} ms after its start at the latest (--force aborts it "
            "here alone, and tears it)"
        )
    # A coordinator that never wrote there has no epoch: any number will do.
    return Marker(producer.producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0))


def _marker_as_told(options: argparse.Namespace) -> Marker:
    told = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    if None in told:
        raise WrongUsage("say which: --start-offset, or --producer-id with --producer-epoch and --coordinator-epoch")
    return Marker(told[0], told[1], max(told[2], 0))


def _all_producers(cluster: WireCluster, options: argparse.Namespace) -> dict[Partition, list[ProducerState]]:
    """The producers of every partition that the options name and that has a leader."""
    if options.partition is not None:
        partition = (options.topic, options.partition)
        leader_of(cluster, partition)  # says what is wrong with a partition that is not there
        return {partition: producers_of(cluster, partition)}
    by_leader: dict[int, list[Partition]] = {}
    for topic in cluster.metadata(None if options.topic is None else [options.topic]):
        if options.topic is not None and topic.error_code:
            leader_of(cluster, (options.topic, 0))
        for each in topic.partitions:
            by_leader.setdefault(each.leader_id, []).append((str(topic.name), each.partition_index))
    if options.broker_id is not None:
        cluster.broker(options.broker_id)
    found: dict[Partition, list[ProducerState]] = {}
    for leader, partitions in by_leader.items():
        if leader < 0 or options.broker_id not in (None, leader):
            continue
        for at in range(0, len(partitions), PARTITIONS_ASKED_AT_ONCE_MAX):
            found |= _asked(cluster, leader, partitions[at : at + PARTITIONS_ASKED_AT_ONCE_MAX])
    return found


def _asked(cluster: WireCluster, leader: int, partitions: Sequence[Partition]) -> dict[Partition, list[ProducerState]]:
    """The producers of each partition; a partition that has moved meanwhile is asked for again."""
    answers = producers_on(cluster, leader, partitions)
    return {
        partition: answer if isinstance(answer, list) else producers_of(cluster, partition)
        for partition, answer in answers.items()
    }


def _is_open(producer: ProducerState) -> bool:
    """Whether the producer has a transaction in the partition that is not ended."""
    return producer.current_txn_start_offset >= 0


def _opened(cluster: WireCluster, producers: Mapping[Partition, Iterable[ProducerState]]) -> list[Open]:
    ids = sorted({each.producer_id for some in producers.values() for each in some})
    known = transactions_by_producer(cluster, ids)
    return [
        Open(partition, each, known.get(each.producer_id)) for partition, some in producers.items() for each in some
    ]


def _blocked(cluster: WireCluster, partition: Partition, open_: Sequence[Open]) -> dict[str, Any]:
    """The last stable offset, at which readers of committed records stop, and the transaction that they wait for."""
    stable, high = (end_offset(cluster, partition, level) for level in (READ_COMMITTED, READ_UNCOMMITTED))
    first = min(open_, key=lambda each: each.producer.current_txn_start_offset, default=None)
    told: dict[str, Any] = {"lastStableOffset": stable, "highWatermark": high, "blockedBy": None}
    if first is not None and stable < high:
        told["blockedBy"] = {
            "producerId": first.producer.producer_id,
            "transactionalId": first.transaction.transactional_id if first.transaction else None,
            "startOffset": first.producer.current_txn_start_offset,
            "sinceMs": first.start_ms,
            "isHanging": first.is_hanging,
        }
    return told


def _blocked_in_words(partition: Partition, told: Mapping[str, Any]) -> str:
    place = f"{partition[0]}-{partition[1]}: last stable offset {told['lastStableOffset']}"
    place += f", high watermark {told['highWatermark']}."
    by = told["blockedBy"]
    if by is None:
        return f"{place} No transaction holds readers up."
    who = f"producer {by['producerId']}"
    if by["transactionalId"] is not None:
        who = f"transactional id {by['transactionalId']} ({who})"
    end = f" Readers of committed records wait at offset {by['startOffset']} for {who}, since {_time(by['sinceMs'])}"
    rest = " (its last record here); no coordinator will end it: see find-hanging." if by["isHanging"] else "."
    return f"{place}{end}{rest}"


def _producer_row(producer: ProducerState, transaction: Transaction | None) -> dict[str, Any]:
    return {
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "latestCoordinatorEpoch": producer.coordinator_epoch,
        "lastSequence": producer.last_sequence,
        "lastTimestamp": producer.last_timestamp,
        "currentTransactionStartOffset": producer.current_txn_start_offset if _is_open(producer) else None,
        "transactionalId": transaction.transactional_id if transaction else None,
    }


def _hanging_row(found: Open) -> dict[str, Any]:
    (topic, index), producer = found.partition, found.producer
    return {
        "topic": topic,
        "partition": index,
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "startOffset": producer.current_txn_start_offset,
        "lastTimestamp": producer.last_timestamp,
        "durationMinutes": (_now_ms() - producer.last_timestamp) // MS_PER_MINUTE,
        "transactionalId": found.transaction.transactional_id if found.transaction else None,
    }


# --- words ---


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _time(time_ms: int) -> str:
    if time_ms < 0:
        return "a time that nobody knows"
    seconds = max(_now_ms() - time_ms, 0) // 1000
    ago = (
        f"{seconds // 3600} h {seconds // 60 % 60} min" if seconds >= 3600 else f"{seconds // 60} min {seconds % 60} s"
    )
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC, {ago} ago"


def _show(options: argparse.Namespace, rows: Sequence[Mapping[str, Any]], nothing: str) -> None:
    """Rows as a table with Kafka's headings, or as JSON; `nothing` is said where there is none."""
    if options.json:
        show_json(list(rows))
        return
    if not rows:
        say(nothing)
        return
    table = [
        [name[0].upper() + name[1:] for name in rows[0]],
        *([_cell(value) for value in row.values()] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value is None else str(value)


def _with_cluster(ask: Callable[[WireCluster, argparse.Namespace], None]) -> Work:
    """An action's work, of a function that asks the cluster."""

    def work(options: argparse.Namespace) -> int:
        with wire_cluster(options) as cluster:
            ask(cluster, options)
        return 0

    return work


COMMAND = Command(
    "transactions",
    "Look at transactions, and end those that hang.",
    [
        Action(
            "list",
            "transactional ids of the cluster",
            _with_cluster(_list),
            _list_options,
            ["list", "list --state Ongoing --json", "list --duration-filter 60000"],
        ),
        Action(
            "describe",
            "what the coordinator knows of a transactional id",
            _with_cluster(_describe),
            _describe_options,
            ["describe clerk-1", "describe --transactional-id clerk-1"],
            noun="transactional_id",
            required=True,
        ),
        Action(
            "producers",
            "producers of a partition, and who holds its readers up",
            _with_cluster(_producers),
            _producers_options,
            ["producers --topic visits --partition 0", "describe-producers --topic visits --partition 0"],
            flags=["describe-producers"],
        ),
        Action(
            "find-hanging",
            "transactions that no coordinator will end",
            _with_cluster(_find_hanging),
            _find_options,
            ["find-hanging --json", "find-hanging --topic visits --max-transaction-timeout 5"],
        ),
        Action(
            "abort",
            "end a hanging transaction in one partition",
            _with_cluster(_abort),
            _abort_options,
            ["abort --topic visits --partition 0 --start-offset 42"],
        ),
        Action(
            "terminate",
            "abort what a transactional id has open, and shut its producer out",
            _with_cluster(_terminate),
            _describe_options,
            ["terminate clerk-1", "forceTerminateTransaction --transactional-id clerk-1"],
            noun="transactional_id",
            required=True,
            flags=["forceTerminateTransaction"],
            destroys=True,
        ),
    ],
)
