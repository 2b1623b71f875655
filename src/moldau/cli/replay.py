"""`moldau replay`: sends records of a topic or a file once more: to another topic, another cluster or a file."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported by its stubs

from moldau.cli.common import REQUEST_TIMEOUT_S, add_client_options, client_settings, parser, positive, run, whole
from moldau.cli.failures import ToolError
from moldau.cli.moments import FORMS, moment
from moldau.cli.output import show
from moldau.cli.pace import Pace, Progress
from moldau.cli.places import place as place_of
from moldau.cli.reading import End, Place, Reading, Start, close, ends, places_of, positions, watermarks
from moldau.cli.record_json import InputRecord
from moldau.cli.replay_positions import GroupOffsets, Keeper, NoPositions, PositionFile, Positions
from moldau.cli.replay_sources import InTimeOrder, Item, check_kept, file_place, from_file, from_topic, partitions_in
from moldau.cli.replay_targets import Choose, FileTarget, Target, TopicTarget, TransactionTarget, with_provenance
from moldau.cli.sender import Sender, partition_checker

CHECKPOINT_S = 1.0
CHECKPOINT_RECORDS = 10_000
SLICE_S = 0.2

EXCLUSIVE = (
    ("from_offset", "from_time"),
    ("until_offset", "until_time"),
    ("rate", "speed"),
    ("group", "position_file"),
)

EXAMPLES = (
    "moldau replay visits --from-time 2h --to visits-again",
    "moldau replay visits --from-time 2026-05-04T10:00Z --until-time 2026-05-04T11:00Z --to visits-again --speed 10",
    "moldau replay visits --to visits --to-cluster staging --rate 500 --position-file visits.position",
    "moldau replay visits --to copies --exactly-once --group copies-replay",
    "moldau replay visits --to-file visits.jsonl",
    "moldau replay --from-file visits.jsonl --to visits-again",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = _parser()
    options = made.parse_intermixed_args(argv)
    if options.words:
        if options.topic is not None or len(options.words) > 1:
            made.error(f"one topic at a time: {' '.join(options.words)!r} is too much")
        options.topic = options.words[0]
    problem = _problem(options)
    if problem:
        made.error(problem)
    return run(lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    made = parser("replay", "Send records once more: to another topic, another cluster or a file.", EXAMPLES)
    made.add_argument("words", nargs="*", metavar="TOPIC", help="the topic that is read; the same as --topic")
    made.add_argument("--topic", help="the topic that is read")
    for name, dest in (("--inputtopic", "topic"), ("--outputtopic", "to")):  # kafka-replay-log-producer's words
        made.add_argument(name, dest=dest, help=argparse.SUPPRESS)
    made.add_argument("--from-file", metavar="FILE", help="read a file that --to-file, or consume --json, has written")
    made.add_argument("--partition", type=whole(32), action="append", metavar="N", help="only this one")
    made.add_argument("--from-offset", type=_offset, metavar="earliest|N", help="begin here (default: earliest)")
    made.add_argument("--from-time", type=moment, metavar="TIME", help=f"begin with the first record since: {FORMS}")
    made.add_argument("--until-offset", type=whole(64), metavar="N", help="end before this offset")
    made.add_argument("--until-time", type=moment, metavar="TIME", help="end before the first record since")
    made.add_argument(
        "--follow", action="store_true", help="go on with new records (default: end where the topic ends)"
    )
    made.add_argument("--isolation-level", default="read_committed", choices=("read_uncommitted", "read_committed"))
    _add_target_options(made)
    made.add_argument("--rate", type=positive, metavar="N", help="at most so many records a second")
    made.add_argument(
        "--speed", type=_speed, metavar="X", help="X times as fast as the records' own times; 1: the same"
    )
    made.add_argument("--position-file", metavar="FILE", help="keep positions in this file, and go on from them")
    made.add_argument("--group", metavar="NAME", help="keep positions as this group's offsets, and go on from them")
    made.add_argument(
        "--exactly-once", action="store_true", help="records and positions in transactions; needs --group"
    )
    made.add_argument("--json", action="store_true", help="print JSON, for programs")
    made.add_argument("--dry-run", action="store_true", help="say what would be sent, and do nothing")
    add_client_options(made, "--consumer.config", "--consumer-property")
    return made


def _add_target_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--to", metavar="TOPIC", help="the topic that is written")
    made.add_argument("--to-file", metavar="FILE", help="a new file, with a line of JSON for each record")
    made.add_argument("--to-bootstrap-server", metavar="HOST:PORT,...", help="another cluster's brokers")
    made.add_argument("--to-cluster", metavar="NAME", help="another cluster of ~/.config/moldau.toml")
    made.add_argument("--to-config", metavar="FILE", help="client properties for that cluster, from a file")
    made.add_argument(
        "--to-property", action="append", default=[], metavar="NAME=VALUE", help="a client property for it"
    )
    made.add_argument("--by-key", action="store_true", help="choose partitions by key (default: the same as before)")
    made.add_argument("--new-timestamps", action="store_true", help="records get the time at which they are sent")
    made.add_argument("--no-provenance", action="store_true", help="add no headers that say where a record was")


def _offset(text: str) -> int:
    if text == "earliest":
        return OFFSET_BEGINNING
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is neither earliest nor an offset")
    return int(text)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number above 0")
    return speed


def _problem(options: argparse.Namespace) -> str | None:
    """The problem of options that do not go together; None: there is none."""
    reads_file, to_topic = options.from_file is not None, options.to is not None
    for pair in EXCLUSIVE:
        if all(getattr(options, name) is not None for name in pair):
            return f"{' and '.join('--' + name.replace('_', '-') for name in pair)} exclude each other"
    places = (options.partition, options.from_offset, options.from_time, options.until_offset, options.until_time)
    cases = {
        "say one of a topic and --from-file": (options.topic is None) != reads_file,
        "say one of --to TOPIC and --to-file FILE": to_topic == (options.to_file is not None),
        "from a file to a file: use cp": reads_file and not to_topic,
        "--from-file is read as a whole": reads_file and (options.follow or any(each is not None for each in places)),
        "--exactly-once needs --group and --to": options.exactly_once and (options.group is None or not to_topic),
        "for a file the positions are kept with --position-file, not in a group": options.group is not None
        and not options.exactly_once
        and (reads_file or not to_topic),
    }
    return next((problem for problem, is_so in cases.items() if is_so), None)


def _run(options: argparse.Namespace) -> int:
    with ExitStack() as open_clients:
        consumer = None
        if options.topic is not None:
            consumer = Consumer(client_settings(options, _reader_settings(options)))
            open_clients.callback(close, consumer)
        places = (
            [file_place(options.from_file)]
            if consumer is None
            else places_of(consumer, [options.topic], options.partition)
        )
        if options.dry_run:
            return _tell_only(options, consumer, places)
        target = _target(options, consumer, places, open_clients)
        return _Replay(options, consumer, places, target).run()


def _reader_settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "group.id": "moldau-replay"
        if options.group is None
        else options.group,  # librdkafka wants one; nothing is committed under the second
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": options.isolation_level,
        "fetch.queue.backoff.ms": 10,
    }


# --- the target ---


def _target(
    options: argparse.Namespace, consumer: Consumer | None, places: Sequence[Place], open_clients: ExitStack
) -> Target:
    keeper = _keeper(options, consumer)
    if options.to_file is not None:
        return FileTarget(options.to_file, keeper if isinstance(keeper, PositionFile) else NoPositions())
    there = _target_options(options)
    settings: dict[str, Any] = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random"}
    if options.exactly_once:
        settings["transactional.id"] = f"moldau-replay-{options.group}"
    is_same = consumer is not None and _is_same_cluster(options, there, consumer)
    if is_same and options.to == options.topic:
        raise ToolError(f"{options.topic!r} cannot be replayed into itself: name another topic with --to")
    if consumer is not None:
        _create_like(there, options.to, len(places_of(consumer, [options.topic])))
    sender = Sender(client_settings(there, settings), options.to)
    choose = _chooser(options, sender, places if consumer is not None else [])
    if not options.exactly_once:
        return TopicTarget(sender, choose, keeper)
    group = {"group.id": options.group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    committer = Consumer(client_settings(there, group))
    open_clients.callback(close, committer)
    return TransactionTarget(sender, choose, committer, options.to, is_same)


def _keeper(options: argparse.Namespace, consumer: Consumer | None) -> Keeper:
    if options.position_file is not None:
        target = options.to_file or f"{options.to} at {place_of(_target_options(options)).bootstrap}"
        source = options.from_file or f"{options.topic} at {place_of(options).bootstrap}"
        return PositionFile(options.position_file, {"from": source, "to": target})
    if options.group is not None and consumer is not None and not options.exactly_once:
        return GroupOffsets(consumer)
    return NoPositions()


def _target_options(options: argparse.Namespace) -> argparse.Namespace:
    """The options of the target's cluster: the source's, unless another is named."""
    if options.to_bootstrap_server is None and options.to_cluster is None:
        return argparse.Namespace(
            bootstrap_server=options.bootstrap_server,
            cluster=options.cluster,
            client_config=options.to_config or options.client_config,
            client_properties=options.to_property,
        )
    return argparse.Namespace(
        bootstrap_server=options.to_bootstrap_server,
        cluster=options.to_cluster,
        client_config=options.to_config,
        client_properties=options.to_property,
    )


def _is_same_cluster(options: argparse.Namespace, there: argparse.Namespace, consumer: Consumer) -> bool:
    """Whether target and source are one cluster, by its id."""
    if options.to_bootstrap_server is None and options.to_cluster is None:
        return True
    other = AdminClient(client_settings(there, {})).list_topics(timeout=REQUEST_TIMEOUT_S)
    return bool(consumer.list_topics(timeout=REQUEST_TIMEOUT_S).cluster_id == other.cluster_id)


def _create_like(there: argparse.Namespace, topic: str, partitions: int) -> None:
    """Create the target's topic, if it is not there, with as many partitions as the source has."""
    admin = AdminClient(client_settings(there, {}))
    if topic not in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        admin.create_topics([NewTopic(topic, partitions)], operation_timeout=REQUEST_TIMEOUT_S)[topic].result()


def _chooser(options: argparse.Namespace, sender: Sender, places: Sequence[Place]) -> Choose:
    if options.by_key:
        return lambda _: -1
    checked = partition_checker(sender, options.to, ", and --by-key chooses among them")
    if partitions_in(places) > len(sender.partitions):
        raise ToolError(
            f"topic {options.to!r} has {len(sender.partitions)} partitions, and {options.topic!r} has more: "
            f"`moldau topics alter {options.to} --partitions {partitions_in(places)}`, or --by-key"
        )

    def choose(record: InputRecord) -> int:
        return -1 if record.partition is None else checked(record.partition)

    return choose


# --- the work ---


def _tell_only(options: argparse.Namespace, consumer: Consumer | None, places: Sequence[Place]) -> int:
    if consumer is None:
        show(options, {"file": options.from_file}, [f"Would send the records of {options.from_file}."])
        return 0
    starts, before = _bounds(options, consumer, places)
    rows = []
    for place in places:
        low, high = watermarks(consumer, place)
        begin = max(low, high if starts[place] == OFFSET_END else starts[place])
        end = before.get(place, high)
        rows.append({"topic": place[0], "partition": place[1], "from": begin, "before": max(begin, end)})
    lines = [
        f"Would send {row['topic']}-{row['partition']} from {row['from']}, before {row['before']}." for row in rows
    ]
    show(options, rows, lines)
    return 0


def _bounds(
    options: argparse.Namespace, consumer: Consumer, places: Sequence[Place]
) -> tuple[Positions, Mapping[Place, int]]:
    """The place to begin at of each partition, and the place to end before; a replay that follows has no ends."""
    start = Start(OFFSET_BEGINNING if options.from_offset is None else options.from_offset, options.from_time)
    end = End(options.until_offset, options.until_time, not options.follow)
    before = ends(consumer, places, end) if end.is_given else {}
    return {(each.topic, each.partition): each.offset for each in positions(consumer, places, start)}, before


class _Replay:
    """One run."""

    def __init__(
        self, options: argparse.Namespace, consumer: Consumer | None, places: Sequence[Place], target: Target
    ) -> None:
        self._options = options
        self._consumer = consumer
        self._places = places
        self._target = target
        self._positions: Positions = {}
        self._sent = 0
        self._unkept = 0
        self._is_keeping = False
        self._kept_s = time.monotonic()
        self._total: int | None = None
        self._pace = Pace(options.rate, self._rest)
        self._first: tuple[float, int] | None = None
        """The moment at which the first record was sent, and its own time."""

    def run(self) -> int:
        saved = self._target.resume(self._places)
        self._positions = dict(saved)
        batches = self._batches(saved)
        self._pace = Pace(self._options.rate, self._rest)
        try:
            with Progress("replayed", self._total) as progress:
                for batch in batches:
                    for item in batch:
                        self._send(item)
                    self._keep(is_due=False)
                    progress.show(self._sent)
            self._keep(is_due=True)
        except KeyboardInterrupt:
            self._keep(is_due=True)
            self._say(saved, "until it was interrupted")
            raise
        except ToolError:
            if not self._is_keeping:  # what was sent before a bad line need not be sent again
                self._keep(is_due=True)
            self._target.give_up()
            raise
        self._say(saved, "")
        return 0

    def _batches(self, saved: Positions) -> Iterator[list[Item]]:
        if self._consumer is None:
            return from_file(self._options.from_file, saved.get(self._places[0], 0))
        starts, before = _bounds(self._options, self._consumer, self._places)
        if saved:
            # Asked twice: under load librdkafka was seen to tell the end of a partition as its beginning.
            lows = {place: min(watermarks(self._consumer, place)[0] for _ in range(2)) for place in self._places}
            check_kept(saved, lows, self._options.position_file or f"the group {self._options.group!r}")
        starts.update(saved)
        reading = Reading(self._consumer)
        reading.begin([TopicPartition(*place, offset) for place, offset in starts.items()], before or None)
        if before:
            self._total = sum(max(0, end - max(0, starts[place])) for place, end in before.items())
        if self._options.speed is not None:
            return InTimeOrder(self._consumer, reading).batches()
        return from_topic(reading)

    def _send(self, item: Item) -> None:
        self._pace.wait(self._sent)
        if self._options.speed is not None:
            self._await(item)
        if self._options.to is not None and not self._options.no_provenance:
            item = item._replace(record=with_provenance(item))
        if self._options.new_timestamps:
            item = item._replace(record=item.record._replace(timestamp_ms=None))
        self._target.send(item)
        self._positions[item.place] = item.next
        self._sent += 1
        self._unkept += 1
        if self._unkept >= CHECKPOINT_RECORDS:
            self._keep(is_due=True)

    def _await(self, item: Item) -> None:
        """Wait until the record is due by its own time."""
        own_ms = item.record.timestamp_ms
        if own_ms is None:
            return
        if self._first is None:
            self._first = (time.monotonic(), own_ms)
        due_s = self._first[0] + (own_ms - self._first[1]) / 1000 / self._options.speed
        while (left_s := due_s - time.monotonic()) > 0:
            self._rest(left_s)

    def _rest(self, seconds: float) -> None:
        """Wait a moment; what was sent is kept meanwhile."""
        self._keep(is_due=False)
        self._target.rest(min(seconds, SLICE_S))

    def _keep(self, is_due: bool) -> None:
        if self._unkept and (is_due or time.monotonic() - self._kept_s > CHECKPOINT_S):
            self._is_keeping = True
            self._target.checkpoint(self._positions)
            self._is_keeping = False
            self._unkept = 0
            self._kept_s = time.monotonic()

    def _say(self, saved: Positions, more: str) -> None:
        source = self._options.from_file or self._options.topic
        target = self._options.to_file or self._options.to
        again = ", from where an earlier replay stopped" if saved else ""
        until = f", {more}" if more else ""
        value = {"records": self._sent, "resumed": bool(saved), "from": source, "to": target}
        show(self._options, value, [f"Replayed {self._sent} records of {source} to {target}{again}{until}."])
        sys.stdout.flush()
