"""`moldau records delete`: takes the oldest records of partitions away, as kafka-delete-records does."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.cli.actions import Action, Command
from moldau.cli.common import REQUEST_TIMEOUT_S, client_settings, whole
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.moments import FORMS, moment
from moldau.cli.output import confirm, show
from moldau.cli.reading import Place, offsets_at, places_of, watermarks

KAFKAS_OPTION = "--offset-json-file"
TO_HIGH_WATERMARK = -1


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code. Kafka's script has one action, and no word for it."""
    is_kafkas = any(each.partition("=")[0] == KAFKAS_OPTION for each in argv) and "delete" not in argv
    return COMMAND.run(["delete", *argv] if is_kafkas else argv)


def _options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", help="the topic")
    made.add_argument(
        "--partition", type=whole(32), action="append", default=[], metavar="N", help="only this one (default: all)"
    )
    made.add_argument(
        "--before-offset",
        type=whole(64, -1),
        metavar="N",
        help="delete all before this offset (-1: all)",
    )
    made.add_argument("--before-time", type=moment, metavar="TIME", help=f"delete what is older: {FORMS}")
    made.add_argument(KAFKAS_OPTION, metavar="FILE", help="Kafka's file of partitions and offsets")


class _Cut(NamedTuple):
    """The records of a partition that go: those from `low` on before `before`."""

    place: Place
    low: int
    before: int

    @property
    def records(self) -> int:
        return max(0, self.before - self.low)

    def row(self) -> dict[str, Any]:
        """The partition, for programs."""
        return {"topic": self.place[0], "partition": self.place[1], "lowWatermark": self.low, "before": self.before}


def _delete(options: argparse.Namespace) -> int:
    settings = client_settings(options, {})
    consumer = Consumer({**settings, "group.id": "moldau-records", "enable.auto.commit": False})
    try:
        cuts = _cuts(consumer, options)
    finally:
        consumer.close()
    total = sum(cut.records for cut in cuts)
    if options.dry_run:
        lines = [f"Would delete {each.records} records of {_name(each.place)}, before {each.before}" for each in cuts]
        show(options, [{**each.row(), "deleted": False} for each in cuts], lines)
        return 0
    if total:
        confirm(options, f"Delete {total} records of {_counted(cuts)}?")
    lows = _cut_off(AdminClient(settings), cuts)
    head = ["Executing records delete operation", "Records delete operation completed:"]
    lines = [f"partition: {_name(place)}\tlow_watermark: {low}" for place, low in lows.items()]
    rows = [{**each.row(), "lowWatermark": lows[each.place], "deleted": True} for each in cuts]
    show(options, rows, [*head, *lines])
    return 0


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _counted(cuts: Sequence[_Cut]) -> str:
    topics = sorted({cut.place[0] for cut in cuts})
    count = "1 partition" if len(cuts) == 1 else f"{len(cuts)} partitions"
    return f"{count} of {', '.join(topics)}"


def _cut_off(admin: AdminClient, cuts: Sequence[_Cut]) -> dict[Place, int]:
    """Delete; returns where each partition begins now."""
    if not cuts:
        return {}
    wanted = [TopicPartition(*cut.place, cut.before) for cut in cuts]
    found = admin.delete_records(wanted, request_timeout=REQUEST_TIMEOUT_S, operation_timeout=REQUEST_TIMEOUT_S)
    return {(each.topic, each.partition): future.result().low_watermark for each, future in found.items()}


def _cuts(consumer: Consumer, options: argparse.Namespace) -> list[_Cut]:
    wanted = _of_file(consumer, options) if options.offset_json_file is not None else _of_options(consumer, options)
    cuts = []
    for place, before in wanted.items():
        low, high = watermarks(consumer, place)
        if before > high:
            raise ToolError(f"{_name(place)} ends before offset {high}: there is no offset {before} to delete before")
        cuts.append(_Cut(place, low, high if before < 0 else before))
    return cuts


def _of_options(consumer: Consumer, options: argparse.Namespace) -> dict[Place, int]:
    if not options.topic:
        raise WrongUsage(f"say which records: TOPIC with --before-offset or --before-time, or {KAFKAS_OPTION} FILE")
    if (options.before_offset is None) == (options.before_time is None):
        raise WrongUsage("say one of --before-offset and --before-time")
    places = places_of(consumer, [options.topic], options.partition or None)
    if options.before_offset is not None:
        return dict.fromkeys(places, options.before_offset)
    return {(each.topic, each.partition): each.offset for each in offsets_at(consumer, places, options.before_time)}


def _of_file(consumer: Consumer, options: argparse.Namespace) -> dict[Place, int]:
    path = options.offset_json_file
    if options.topic or options.partition or options.before_offset is not None or options.before_time is not None:
        raise ToolError(f"{KAFKAS_OPTION} says all: leave the topic and the other options out")
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{path} is not JSON: {error}") from error
    wanted = _read(path, content)
    for topic in {topic for topic, _ in wanted}:
        places_of(consumer, [topic], [number for name, number in wanted if name == topic])
    return wanted


def _read(path: str, content: Any) -> dict[Place, int]:
    """The partitions of Kafka's form: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}."""
    if not isinstance(content, dict) or not isinstance(content.get("partitions"), list):
        raise ToolError(f'{path} has no list "partitions"')
    if content.get("version", 1) != 1:
        raise ToolError(f"{path} is of version {content['version']!r}, not 1")
    wanted: dict[Place, int] = {}
    for each in content["partitions"]:
        found: Any = each if isinstance(each, dict) else {}
        topic, number, offset = found.get("topic"), found.get("partition"), found.get("offset")
        is_whole = [type(topic), type(number), type(offset)] == [str, int, int]
        if not is_whole or number < 0 or offset < TO_HIGH_WATERMARK:
            raise ToolError(f'{path}: {each!r:.80} is not of the form {{"topic": "foo", "partition": 1, "offset": 1}}')
        if (topic, number) in wanted:
            raise ToolError(f"{path} names {topic}-{number} twice")
        wanted[topic, number] = offset
    return wanted


COMMAND = Command(
    "records",
    "Delete the oldest records of partitions.",
    [
        Action(
            "delete",
            "delete the records before an offset or a time",
            _delete,
            _options,
            [
                "delete visits --partition 0 --before-offset 1000",
                "delete visits --before-time 7d --dry-run",
                "--offset-json-file offsets.json --bootstrap-server localhost:9092",
            ],
            noun="topic",
            destroys=True,
            tries=True,
        )
    ],
)
