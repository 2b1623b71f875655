"""`moldau elect`: elects leaders of partitions; the work of kafka-leader-election, with the same options."""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moldau.cli.common import add_client_options, parser, run, whole
from moldau.cli.elections import KINDS, elect_leaders
from moldau.cli.failures import EXIT_FAILED, ToolError
from moldau.cli.offset_files import read_text
from moldau.cli.output import confirm, show
from moldau.cli.partition_queries import Partition, PartitionState, existing_partitions, partitions_of, shown
from moldau.cli.refusals import Refused
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster
from moldau.protocol.errors import ErrorCode

EXAMPLES = (
    "moldau elect preferred --all-topic-partitions",
    "moldau elect preferred --topic visits --partition 0 --dry-run",
    "moldau elect --election-type unclean --topic visits --partition 0",
    "moldau elect --election-type preferred --path-to-json-file partitions.json",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = _parser()
    options = made.parse_intermixed_args(argv)
    kinds = {each.lower() for each in (options.kind, options.election_type) if each}
    if len(kinds) != 1 or not kinds <= set(KINDS):
        made.error("say which election: preferred or unclean")
    (options.kind,) = kinds
    chosen = [options.all_topic_partitions, options.topic is not None, options.path_to_json_file is not None]
    if sum(chosen) != 1:
        made.error("say where: one of --all-topic-partitions, --topic with --partition, --path-to-json-file")
    if (options.partition is None) != (options.topic is None):
        made.error("--topic and --partition go together")
    return run(lambda: _elect(options))


def _parser() -> argparse.ArgumentParser:
    made = parser("elect", "Elect leaders: the preferred ones, or unclean ones where none in sync is left.", EXAMPLES)
    add_client_options(made, "--admin.config")
    made.add_argument("kind", nargs="?", metavar="preferred|unclean", help="the same as --election-type")
    made.add_argument("--election-type", metavar="TYPE", help="preferred or unclean")
    made.add_argument("--topic", help="the topic of --partition")
    made.add_argument("--partition", type=whole(32), metavar="N", help="the partition of --topic")
    made.add_argument("--all-topic-partitions", action="store_true", help="all partitions for which it is needed")
    made.add_argument("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "a", "partition": 0}]}')
    made.add_argument("--json", action="store_true", help="print JSON, for programs")
    made.add_argument("--yes", "--force", action="store_true", help="do not ask before an unclean election")
    made.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    return made


def _elect(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        wanted = _wanted(cluster, options)
        needed = [each for each, state in wanted.items() if _is_needed(state, options.kind)]
        if options.dry_run:
            _show_dry(options, wanted, needed)
            return 0
        if options.kind == "unclean" and needed:
            confirm(options, f"Elect replicas that may lack records for {', '.join(map(shown, needed))}?")
        asked = needed if options.all_topic_partitions else list(wanted)
        codes = elect_leaders(cluster, asked, options.kind) if asked else {}
    return _tell(options, codes)


def _wanted(cluster: WireCluster, options: argparse.Namespace) -> dict[Partition, PartitionState]:
    if options.all_topic_partitions:
        return partitions_of(cluster)
    named = (
        [(options.topic, options.partition)] if options.topic is not None else partitions_in(options.path_to_json_file)
    )
    present = existing_partitions(cluster, sorted({topic for topic, _ in named}))
    for each in named:
        if each not in present:
            raise ToolError(f"there is no partition {shown(each)}: `moldau topics describe {each[0]}`")
    return {each: present[each] for each in named}


def partitions_in(path: str) -> list[Partition]:
    """The partitions that a JSON file of Kafka's tool names."""
    try:
        rows = json.loads(read_text(path))["partitions"]
        found = [(row["topic"], row["partition"]) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ToolError(f'{path} is not of the form {{"partitions": [{{"topic": "a", "partition": 0}}]}}') from error
    if not found or not all(isinstance(topic, str) and type(index) is int and index >= 0 for topic, index in found):
        raise ToolError(f"{path} names no partitions")
    return list(dict.fromkeys(found))


def _is_needed(state: PartitionState, kind: str) -> bool:
    if kind == "unclean":
        return state.leader < 0
    return bool(state.replicas) and state.leader != state.replicas[0]


def _show_dry(
    options: argparse.Namespace, wanted: Mapping[Partition, PartitionState], needed: Sequence[Partition]
) -> None:
    rows = [
        {"topic": each[0], "partition": each[1], "leader": wanted[each].leader, "replicas": wanted[each].replicas}
        for each in needed
    ]
    if options.kind == "preferred":
        lines = [
            f"Would elect {wanted[each].replicas[0]} for {shown(each)}, led by {wanted[each].leader}."
            for each in needed
        ]
    else:
        lines = [f"Would elect one of {_listed(wanted[each].replicas)} for {shown(each)}." for each in needed]
    show(options, rows, lines or ["No election is needed."])


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _tell(options: argparse.Namespace, codes: Mapping[Partition, tuple[int, str | None]]) -> int:
    kind = options.kind.upper()
    elected = [each for each, (code, _) in codes.items() if code == ErrorCode.NONE]
    already = [each for each, (code, _) in codes.items() if code == ErrorCode.ELECTION_NOT_NEEDED]
    failed = {each: told for each, told in codes.items() if each not in elected and each not in already}
    lines = []
    if elected:
        lines.append(f"Successfully completed leader election ({kind}) for partitions {', '.join(map(shown, elected))}")
    if already:
        lines.append(f"Valid replica already elected for partitions {', '.join(map(shown, already))}")
    for each, (code, message) in failed.items():
        lines.append(
            str(Refused(f"Error completing leader election ({kind}) for partition {shown(each)}", code, message))
        )
    rows: list[dict[str, Any]] = [
        {
            "topic": each[0],
            "partition": each[1],
            "elected": each in elected,
            "error": ErrorCode(code).name if code else None,
        }
        for each, (code, _) in codes.items()
    ]
    show(options, rows, lines or ["No election is needed."])
    return EXIT_FAILED if failed else 0
