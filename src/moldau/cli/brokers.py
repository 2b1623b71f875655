"""`moldau brokers list|describe|log-dirs|drain|shutdown`: who is in the cluster, and how to do without one of them.

`shutdown` sends ControlledShutdown (API key 7), where a broker serves it: Apache Kafka before 4.0 with ZooKeeper. No
other request of the protocol stops a broker; Moldau and Kafka hand partitions over when their process gets SIGTERM.
"""

import argparse
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from moldau.cli.actions import Action, Command
from moldau.cli.cluster_queries import (
    BROKER,
    Cluster,
    broker_ids,
    describe_cluster,
    describe_configs,
    ensure_alive,
    log_dirs,
)
from moldau.cli.common import positive
from moldau.cli.diagnosis import some
from moldau.cli.failures import ToolError
from moldau.cli.output import confirm, note, say, show_json, show_table
from moldau.cli.partition_queries import (
    Partition,
    PartitionState,
    existing_partitions,
    matching_partitions,
    partitions_of,
    shown,
)
from moldau.cli.reassignment_plans import Plan, States, drained, without_leaderships
from moldau.cli.reassignments import begin_if_asked, ensure_settled, show_moves, sizes
from moldau.cli.refusals import check, error_name
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster
from moldau.protocol.apis import find
from moldau.protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

LIST_COLUMNS = {
    "id": "ID",
    "address": "ADDRESS",
    "rack": "RACK",
    "state": "STATE",
    "leaders": "LEADERS",
    "replicas": "REPLICAS",
}
LOG_DIR_COLUMNS = {
    "broker": "BROKER",
    "logDir": "LOG-DIR",
    "partition": "PARTITION",
    "size": "BYTES",
    "offsetLag": "OFFSET-LAG",
    "isFuture": "IS-FUTURE",
}
SETTINGS = ("listeners", "advertised.listeners", "process.roles", "log.dirs")


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _list_options(_: argparse.ArgumentParser) -> None:
    """Add no options: the list has none of its own."""


def _broker_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--broker", metavar="ID", help="the id of the broker")


def _describe_options(made: argparse.ArgumentParser) -> None:
    _broker_option(made)
    made.add_argument("--versions", action="store_true", help="all requests that it serves, with their versions")


def _log_dirs_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--describe", action="store_true", help="print the lines of kafka-log-dirs.sh")
    # In Kafka's tool --broker-list names the brokers to look at, and not those to ask.
    group = made.add_argument_group("which", conflict_handler="resolve")
    group.add_argument("--brokers", "--broker-list", metavar="ID,ID", help="only these brokers (default: all)")
    made.add_argument("--topic", "--topic-list", metavar="TOPIC,TOPIC", help="only these topics (default: all)")


def _drain_options(made: argparse.ArgumentParser) -> None:
    _broker_option(made)
    made.add_argument("--leaders", action="store_true", help="move leaderships only, and no replicas")
    made.add_argument(
        "--allow-fewer-replicas", action="store_true", help="where every other broker has a replica, have one less"
    )
    made.add_argument("--topic", help="only these: a name, or a,b,c, or a regular expression")
    made.add_argument(
        "--throttle", type=positive, metavar="BYTES", help="bytes a second that a broker may copy at most"
    )
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="do it, rather than show what would be done")
    mode.add_argument("--dry-run", action="store_true", help="show what would be done (the default)")


# --- the actions ---


def _list(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        found = describe_cluster(cluster)
        states = partitions_of(cluster).values()
    rows: list[dict[str, Any]] = [
        {
            "id": each.broker_id,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
            "state": "fenced" if each.is_fenced else "alive",
            **_counts(each.broker_id, states),
        }
        for each in found.brokers
    ]
    known = {row["id"] for row in rows}
    gone = sorted({broker for state in states for broker in state.replicas} - known)
    rows += [{"id": broker, "state": "gone", **_counts(broker, states)} for broker in gone]
    show_table(options, rows, LIST_COLUMNS, "there are no brokers")
    return 0


def _counts(broker: int, states: Iterable[PartitionState]) -> dict[str, int]:
    return {
        "leaders": sum(state.leader == broker for state in states),
        "replicas": sum(broker in state.replicas for state in states),
    }


def _describe(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        wanted = cluster.brokers() if options.broker is None else [_id(options.broker)]
        ensure_alive(cluster, wanted)
        known = describe_cluster(cluster)
        states = partitions_of(cluster)
        found = [_described(cluster, broker, known, states.values()) for broker in wanted]
    if options.json:
        show_json(found)
        return 0
    for each in found:
        for line in _lines(each, options.versions):
            say(line)
    return 0


def _described(cluster: WireCluster, broker: int, known: Cluster, states: Iterable[PartitionState]) -> dict[str, Any]:
    node = next(each for each in known.brokers if each.broker_id == broker)
    settings = {each.name: each.value for each in describe_configs(cluster, (BROKER, str(broker)), SETTINGS)}
    # Brokers of Kafka 4 pass requests on to controllers that clients do not see, and name any of themselves.
    roles = settings.get("process.roles") or ("broker,controller" if known.controller == broker else "broker")
    own = [state for state in states if broker in state.replicas]
    return {
        "id": broker,
        "clusterId": known.cluster_id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "roles": roles.split(","),
        "listeners": settings.get("listeners"),
        "advertisedListeners": settings.get("advertised.listeners"),
        "leaders": sum(state.leader == broker for state in own),
        "preferredLeaders": sum(state.replicas[0] == broker for state in own),
        "replicas": len(own),
        "outOfSync": sum(broker not in state.isr for state in own),
        "aloneInSync": [shown(state.partition) for state in own if state.isr == (broker,) and len(state.replicas) > 1],
        "logDirs": [_directory(each) for each in log_dirs(cluster, broker)],
        "versions": _versions(cluster.broker(broker).served),
    }


def _log_dirs(options: argparse.Namespace) -> int:
    topics = None if not options.topic else {each.strip() for each in options.topic.split(",")}
    with wire_cluster(options) as cluster:
        wanted = broker_ids(options.brokers) if options.brokers else cluster.brokers()
        ensure_alive(cluster, wanted)
        if topics is not None:
            existing_partitions(cluster, sorted(topics))
        found = {each: _in_directories(cluster, each, topics) for each in wanted}
    brokers = [{"broker": broker, "logDirs": directories} for broker, directories in found.items()]
    document = {"version": 1, "brokers": brokers}
    if options.describe:
        say("Querying brokers for log directories information")
        say(f"Received log directory information from brokers {','.join(map(str, wanted))}")
        say(json.dumps(document, separators=(",", ":")))
    elif options.json:
        show_json(document)
    else:
        rows = [
            {"broker": broker, "logDir": directory["logDir"], **each}
            for broker, directories in found.items()
            for directory in directories
            for each in directory["partitions"]
        ]
        show_table(options, rows, LOG_DIR_COLUMNS, "these brokers have no such replicas")
    return 0


def _in_directories(cluster: WireCluster, broker: int, topics: Container[str] | None) -> list[dict[str, Any]]:
    return [
        {
            "partitions": [
                {
                    "partition": f"{topic.name}-{each.partition_index}",
                    "size": each.partition_size,
                    "offsetLag": each.offset_lag,
                    "isFuture": each.is_future_key,
                }
                for topic in directory.topics
                if topics is None or topic.name in topics
                for each in topic.partitions
            ],
            "error": error_name(directory.error_code) if directory.error_code else None,
            "logDir": directory.log_dir,
        }
        for directory in log_dirs(cluster, broker)
    ]


def _directory(told: Any) -> dict[str, Any]:
    parts = [each for topic in told.topics for each in topic.partitions]
    return {
        "path": told.log_dir,
        "error": error_name(told.error_code) if told.error_code else None,
        "replicas": len(parts),
        "bytes": sum(each.partition_size for each in parts),
        "totalBytes": None if told.total_bytes < 0 else told.total_bytes,
        "usableBytes": None if told.usable_bytes < 0 else told.usable_bytes,
    }


def _versions(served: Mapping[int, tuple[int, int]]) -> list[dict[str, Any]]:
    named = ((key, find(key), versions) for key, versions in sorted(served.items()))
    return [
        {"key": key, "name": api.name if api else "unknown", "min": first, "max": last}
        for key, api, (first, last) in named
    ]


def _lines(told: dict[str, Any], with_versions: bool) -> Iterable[str]:
    roles = ",".join(told["roles"])
    yield f"Broker: {told['id']}\tAddress: {told['address']}\tRack: {told['rack'] or '-'}\tRoles: {roles}"
    yield f"\tCluster: {told['clusterId']}"
    yield f"\tListeners: {told['listeners'] or '-'}\tAdvertised: {told['advertisedListeners'] or '-'}"
    yield (
        f"\tLeaders: {told['leaders']}\tPreferredLeaders: {told['preferredLeaders']}\tReplicas: {told['replicas']}"
        f"\tOutOfSync: {told['outOfSync']}\tAloneInSync: {','.join(told['aloneInSync']) or '-'}"
    )
    for each in told["logDirs"]:
        place = f"\tLogDir: {each['path']}\tReplicas: {each['replicas']}\tBytes: {each['bytes']}"
        yield f"{place}\tUsableBytes: {each['usableBytes'] or '-'}" + (
            f"\tError: {each['error']}" if each["error"] else ""
        )
    yield f"\tRequests: {len(told['versions'])} kinds are served" + (
        "" if with_versions else " (--versions lists them)"
    )
    if with_versions:
        yield from (f"\t\t{each['name']}({each['key']}): {each['min']} to {each['max']}" for each in told["versions"])


def _drain(options: argparse.Namespace) -> int:
    broker = _id(options.broker)
    with wire_cluster(options) as cluster:
        alive = cluster.brokers()
        states = matching_partitions(cluster, options.topic)
        if broker not in alive and not any(broker in state.replicas for state in states.values()):
            raise ToolError(f"there is no broker {broker}: `moldau brokers list` shows those that there are")
        ensure_settled(cluster, states)
        others = [each for each in alive if each != broker]
        bytes_of: dict[Partition, int] = {} if options.leaders else sizes(cluster, alive)
        plan = (
            without_leaderships(states, broker)
            if options.leaders
            else drained(states, broker, others, bytes_of, options.allow_fewer_replicas)
        )
        show_moves(options, states, plan, bytes_of)
        _tell_of_those_that_stay(states, plan, broker)
        begin_if_asked(options, cluster, states, plan)
    return 0


def _tell_of_those_that_stay(states: States, plan: Plan, broker: int) -> None:
    """Say of which partitions the broker stays the leader: without it they are offline."""
    stay = [shown(each) for each, state in states.items() if state.leader == broker and each not in plan]
    if stay:
        note(f"broker {broker} stays the leader of {some(stay)}, which no other replica in sync can lead")


def _shutdown(options: argparse.Namespace) -> int:
    broker = _id(options.broker)
    with wire_cluster(options) as cluster:
        ensure_alive(cluster, [broker])
        controller = describe_cluster(cluster).controller
        connection = cluster.any() if controller < 0 else cluster.broker(controller)
        if not connection.serves(ControlledShutdownRequest.api_key):
            raise ToolError(
                f"the cluster takes no request to stop broker {broker}: end its process with SIGTERM, which hands its "
                f"partitions over first (`moldau brokers drain {broker} --leaders --execute` does that part from here)"
            )
        confirm(options, f"Take all leaderships from broker {broker}, so that it can be stopped?")
        answer = connection.request(ControlledShutdownRequest(broker_id=broker), ControlledShutdownResponse)
    check(f"broker {broker} is not shut down", answer.error_code)
    left = [f"{each.topic_name}-{each.partition_index}" for each in answer.remaining_partitions]
    if options.json:
        show_json({"broker": broker, "remainingPartitions": left})
    else:
        say(f"Broker {broker} leads {', '.join(left) or 'nothing'}. Its process may be stopped now.")
    return 0


def _id(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ToolError(f"{text!r:.40} is not the id of a broker: `moldau brokers list` shows those that there are")
    return int(text)


COMMAND = Command(
    "brokers",
    "List, describe, drain and shut down brokers.",
    [
        Action("list", "brokers with their addresses and loads", _list, _list_options, ["list", "list --json"]),
        Action(
            "describe",
            "listeners, rack, roles, log directories, versions",
            _describe,
            _describe_options,
            ["describe", "describe 1 --versions", "describe 1 --json"],
            noun="broker",
        ),
        Action(
            "log-dirs",
            "replicas in each log directory, with their sizes",
            _log_dirs,
            _log_dirs_options,
            ["log-dirs", "log-dirs --topic visits --json", "log-dirs --describe --broker-list 1,2 --topic-list visits"],
            noun="topic",
        ),
        Action(
            "drain",
            "move replicas, or only leaderships, away from a broker",
            _drain,
            _drain_options,
            ["drain 1", "drain 1 --execute --throttle 50000000", "drain 1 --leaders --execute"],
            noun="broker",
            required=True,
            destroys=True,
        ),
        Action(
            "shutdown",
            "controlled shutdown, where brokers take a request for it",
            _shutdown,
            _broker_option,
            ["shutdown 1"],
            noun="broker",
            required=True,
            destroys=True,
        ),
    ],
)
