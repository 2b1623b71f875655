"""`moldau reassign plan|execute|verify|cancel|list|balance`: the work of kafka-reassign-partitions, with its options.

`balance` makes a plan by itself: first the bytes of brokers, then the partitions that they lead. It shows what
moves, the largest first, and moves with --execute.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from moldau.cli.actions import Action, Command
from moldau.cli.cluster_queries import (
    Move,
    broker_ids,
    describe_cluster,
    ensure_alive,
    move_replicas,
    moves_under_way,
)
from moldau.cli.common import positive
from moldau.cli.failures import EXIT_FAILED, ToolError, WrongUsage
from moldau.cli.offset_files import read_text, write_text
from moldau.cli.output import confirm, show, show_json
from moldau.cli.partition_queries import Partition, existing_partitions, matching_partitions, partitions_of, shown
from moldau.cli.reassignment_plans import (
    Plan,
    States,
    balanced,
    current,
    document,
    generated,
    leaders_balanced,
    plan_in,
    topics_in,
    with_copies,
)
from moldau.cli.reassignments import (
    begin,
    begin_if_asked,
    check_plan,
    clear_throttle,
    ensure_settled,
    show_moves,
    sizes,
)
from moldau.cli.refusals import raise_first
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _brokers_option(made: argparse.ArgumentParser, required: bool) -> None:
    # In Kafka's tool --broker-list names the brokers to use here, and not those to ask.
    group = made.add_argument_group("where to", conflict_handler="resolve")
    group.add_argument("--brokers", "--broker-list", required=required, metavar="ID,ID", help="the brokers to use")


def _plan_options(made: argparse.ArgumentParser) -> None:
    _brokers_option(made, required=False)
    made.add_argument(
        "--replication-factor", type=positive, metavar="N", help="so many replicas; those that are there stay"
    )
    made.add_argument("--topics-to-move-json-file", metavar="FILE", help='{"topics": [{"topic": "a"}]}')
    made.add_argument("--topic", help="a name, or a,b,c, or a regular expression")
    made.add_argument("--disable-rack-aware", action="store_true", help="do not look at racks")
    _file_option(made)


def _file_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--file", metavar="FILE", help="write the plan to a file, for `execute`")


def _reassignment_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--plan", "--reassignment-json-file", metavar="FILE", help="a file; - is standard input")
    made.add_argument("--timeout", metavar="MS", help=argparse.SUPPRESS)


def _throttle_option(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--throttle", type=positive, metavar="BYTES", help="bytes a second that a broker may copy at most"
    )


def _execute_options(made: argparse.ArgumentParser) -> None:
    _reassignment_options(made)
    _throttle_option(made)
    made.add_argument("--additional", action="store_true", help="also while other moves are under way")
    made.add_argument(
        "--disallow-replication-factor-change", action="store_true", help="refuse a plan that changes how many copies"
    )
    made.add_argument("--replica-alter-log-dirs-throttle", type=positive, metavar="BYTES", help=argparse.SUPPRESS)


def _preserving_options(made: argparse.ArgumentParser) -> None:
    _reassignment_options(made)
    made.add_argument("--preserve-throttles", action="store_true", help="leave throttles as they are")


def _list_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--timeout", metavar="MS", help=argparse.SUPPRESS)


def _balance_options(made: argparse.ArgumentParser) -> None:
    _brokers_option(made, required=False)
    made.add_argument("--topic", help="only these: a name, or a,b,c, or a regular expression")
    made.add_argument("--by", choices=("size", "leaders"), default="size", help="leaders: copy nothing (default: size)")
    _throttle_option(made)
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="do it, rather than show what would be done")
    mode.add_argument("--dry-run", action="store_true", help="show what would be done (the default)")
    _file_option(made)


# --- the actions ---


def _plan(options: argparse.Namespace) -> int:
    if (options.topic is None) == (options.topics_to_move_json_file is None):
        raise WrongUsage("say which topics: --topic NAME or --topics-to-move-json-file FILE")
    if options.brokers is None and options.replication_factor is None:
        raise WrongUsage("say which brokers: --brokers ID,ID; or --replication-factor N, on any")
    brokers = [] if options.brokers is None else broker_ids(options.brokers)
    with wire_cluster(options) as cluster:
        brokers = brokers or sorted(cluster.brokers())
        if options.topic is not None:
            states = matching_partitions(cluster, options.topic)
        else:
            path = options.topics_to_move_json_file
            states = existing_partitions(cluster, topics_in(read_text(path), path))
        ensure_alive(cluster, brokers)
        ensure_settled(cluster, states)
        known = describe_cluster(cluster).brokers
        racks = {} if options.disable_rack_aware else {each.broker_id: each.rack for each in known}
    if options.replication_factor is None:
        proposed = generated(states, brokers, racks)
    else:
        proposed = with_copies(states, brokers, racks, options.replication_factor)
    _write(options, proposed)
    if options.json:
        show_json({"current": document(current(states)), "proposed": document(proposed)})
        return 0
    sys.stdout.write(f"Current partition replica assignment\n{_text(current(states))}\n\n")
    sys.stdout.write(f"Proposed partition reassignment configuration\n{_text(proposed)}\n")
    return 0


def _execute(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        plan, states = _read(cluster, options)
        check_plan(cluster, states, plan)
        if options.disallow_replication_factor_change:
            _check_copies(states, plan)
        if moves_under_way(cluster) and not options.additional:
            raise ToolError("other moves are under way (`moldau reassign list`): --additional begins these as well")
        if options.dry_run:
            show_moves(options, states, plan, sizes(cluster, cluster.brokers()))
            return 0
        begin(cluster, states, plan, options.throttle)
    before = current({each: states[each] for each in plan})
    lines = [
        f"Current partition replica assignment\n\n{_text(before)}\n",
        "Save this to use as the --reassignment-json-file option during rollback",
    ]
    if options.throttle is not None:
        lines.append(f"The inter-broker throttle limit was set to {options.throttle} B/s: `verify` takes it away")
    begun = "reassignment" if len(plan) == 1 else "reassignments"
    lines.append(f"Successfully started partition {begun} for {','.join(map(shown, plan))}")
    show(options, {"before": document(before), "begun": document(plan)}, "\n".join(lines).splitlines())
    return 0


def _check_copies(states: States, plan: Plan) -> None:
    """Raise ToolError where a plan changes how many replicas a partition has."""
    for each, replicas in plan.items():
        if len(replicas) != len(states[each].replicas):
            raise ToolError(
                f"the plan changes the replication factor of {shown(each)}: it has {len(states[each].replicas)}"
            )


def _verify(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        plan, states = _read(cluster, options)
        moves = moves_under_way(cluster)
        rows = [_verified(each, replicas, states, moves) for each, replicas in plan.items()]
        lines = ["Status of partition reassignment:", *(str(row["status"]) for row in rows)]
        if not moves and not options.preserve_throttles:
            lines += clear_throttle(
                cluster, sorted({topic for topic, _ in plan if any(topic == each for each, _ in states)})
            )
    show(options, rows, lines)
    return 0 if all(row["isCompleted"] for row in rows) else EXIT_FAILED


def _verified(
    each: Partition, replicas: Sequence[int], states: States, moves: Mapping[Partition, Move]
) -> dict[str, object]:
    present = states[each].replicas if each in states else ()
    is_done = each not in moves and present == tuple(replicas)
    if is_done:
        status = f"Reassignment of partition {shown(each)} is completed."
    elif each in moves:
        status = f"Reassignment of partition {shown(each)} is still in progress."
    else:
        status = (
            f"There is no active reassignment of partition {shown(each)}, but replica set is {_ids(present)} "
            f"rather than {_ids(replicas)}."
        )
    return {"topic": each[0], "partition": each[1], "isCompleted": is_done, "status": status}


def _cancel(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        plan, _ = _read(cluster, options)
        active = [each for each in plan if each in moves_under_way(cluster)]
        if active and not options.dry_run:
            confirm(options, f"Give up the moves of {len(active)} partitions?")
            raise_first([*move_replicas(cluster, dict.fromkeys(active)).values()])
        lines = [_cancelled(active, options.dry_run)]
        if not options.dry_run and not options.preserve_throttles and not moves_under_way(cluster):
            lines += clear_throttle(cluster, sorted({topic for topic, _ in plan}))
    show(options, [{"topic": topic, "partition": index} for topic, index in active], lines)
    return 0


def _cancelled(active: Sequence[Partition], is_tried: bool) -> str:
    if not active:
        return "None of the specified partition reassignments are active."
    verb = "Would cancel" if is_tried else "Successfully cancelled"
    return f"{verb} partition reassignments for: {','.join(map(shown, active))}"


def _list(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        moves = moves_under_way(cluster)
    rows = [
        {"topic": topic, "partition": index, **{name: list(ids) for name, ids in move._asdict().items()}}
        for (topic, index), move in sorted(moves.items())
    ]
    lines = [
        f"{shown(each)}: replicas: {_ids(move.replicas)}. adding: {_ids(move.adding)}. removing: {_ids(move.removing)}."
        for each, move in sorted(moves.items())
    ]
    show(options, rows, ["Current partition reassignments:", *lines] if rows else ["No partition reassignments found."])
    return 0


def _balance(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        alive = cluster.brokers()
        brokers = alive if options.brokers is None else broker_ids(options.brokers)
        ensure_alive(cluster, brokers)
        states = matching_partitions(cluster, options.topic)
        ensure_settled(cluster, states)
        bytes_of = sizes(cluster, alive)
        plan = leaders_balanced(states, brokers) if options.by == "leaders" else balanced(states, brokers, bytes_of)
        show_moves(options, states, plan, bytes_of)
        _write(options, plan)
        begin_if_asked(options, cluster, states, plan)
    return 0


# --- what they are made of ---


def _read(cluster: WireCluster, options: argparse.Namespace) -> tuple[Plan, States]:
    path = options.plan
    plan = plan_in(read_text(path), path)
    return plan, partitions_of(cluster, {topic for topic, _ in plan})


def _write(options: argparse.Namespace, plan: Plan) -> None:
    if options.file is not None:
        write_text(options.file, _text(plan) + "\n")


def _text(plan: Plan) -> str:
    return json.dumps(document(plan), separators=(",", ":"))


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


COMMAND = Command(
    "reassign",
    "Move replicas between brokers.",
    [
        Action(
            "plan",
            "make a plan that spreads topics over brokers",
            _plan,
            _plan_options,
            [
                "plan visits --brokers 1,2,3 --file plan.json",
                "--generate --topics-to-move-json-file topics.json --broker-list 1,2,3",
            ],
            noun="topic",
            flags=["--generate"],
        ),
        Action(
            "execute",
            "begin the moves of a plan",
            _execute,
            _execute_options,
            ["execute plan.json --dry-run", "--execute --reassignment-json-file plan.json --throttle 50000000"],
            noun="plan",
            required=True,
            flags=["--execute"],
            tries=True,
        ),
        Action(
            "verify",
            "how far the moves of a plan are; takes throttles away when all is done",
            _verify,
            _preserving_options,
            ["verify plan.json", "--verify --reassignment-json-file plan.json"],
            noun="plan",
            required=True,
            flags=["--verify"],
        ),
        Action(
            "cancel",
            "give up the moves of a plan",
            _cancel,
            _preserving_options,
            ["cancel plan.json", "--cancel --reassignment-json-file plan.json"],
            noun="plan",
            required=True,
            flags=["--cancel"],
            destroys=True,
            tries=True,
        ),
        Action("list", "moves under way", _list, _list_options, ["list", "--list"], flags=["--list"]),
        Action(
            "balance",
            "even out bytes and leaders between brokers",
            _balance,
            _balance_options,
            ["balance", "balance --by leaders --execute", "balance visits --brokers 1,2 --throttle 50000000 --execute"],
            noun="topic",
            destroys=True,
        ),
    ],
)
