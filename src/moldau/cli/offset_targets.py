"""Targets of `moldau groups reset`: the offset that each partition of a group is to have, in Kafka's scenarios."""

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from moldau.cli.common import whole
from moldau.cli.failures import ToolError
from moldau.cli.partition_queries import (
    Partition,
    ends_of,
    offsets_at,
    shown,
    starts_of,
)
from moldau.cli.wire import WireCluster

Offsets = dict[Partition, int]

_DURATION = re.compile(r"(-?)P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?")


def add_scenarios(made: argparse.ArgumentParser) -> None:
    """Add the options that say where to; one of them has to be given."""
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="behind the last record")
    where.add_argument("--to-offset", type=whole(64), metavar="N", help="to this offset")
    where.add_argument("--shift-by", type=whole(64, -(1 << 63)), metavar="N", help="N on, or back if N is below 0")
    where.add_argument("--to-datetime", type=moment_ms, metavar="YYYY-MM-DDTHH:mm:SS.sss", help="to a time (UTC)")
    where.add_argument("--by-duration", type=duration_ms, metavar="PnDTnHnMnS", help="to so long ago")
    where.add_argument("--to-current", action="store_true", help="to where it is: with --export, writes a file")
    where.add_argument("--from-file", metavar="FILE", help="to the offsets of a CSV file that --export wrote")


def moment_ms(text: str) -> int:
    """A time from an option's text, in milliseconds; UTC where it names no zone, as Kafka's tool has it."""
    try:
        if "T" not in text:
            raise ValueError
        at = datetime.fromisoformat(text)
        return max(0, int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a time such as 2026-01-31T12:30:00.000") from None


def duration_ms(text: str) -> int:
    """A duration of ISO 8601 from an option's text, in milliseconds."""
    found = _DURATION.fullmatch(text.strip().upper())
    if found is None or not any(found.groups()[1:]):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a duration such as P7D or PT1H30M")
    sign, days, hours, minutes, seconds = found.groups()
    try:
        length = timedelta(
            days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0)
        )
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is longer than a calendar") from None
    return int(length.total_seconds() * 1000) * (-1 if sign else 1)


def targets(
    cluster: WireCluster, options: argparse.Namespace, partitions: Sequence[Partition], current: Mapping[Partition, int]
) -> Offsets:
    """The new offset of each partition, by the scenario that the options name."""
    starts, ends = starts_of(cluster, partitions), ends_of(cluster, partitions)

    def within(offsets: Mapping[Partition, int]) -> Offsets:
        """Offsets that the log has: Kafka takes the nearest one, too."""
        return {each: min(max(offset, starts[each]), ends[each]) for each, offset in offsets.items()}

    if options.to_earliest:
        return starts
    if options.to_latest:
        return ends
    if options.to_offset is not None:
        return within(dict.fromkeys(partitions, options.to_offset))
    if options.shift_by is not None:
        return within(_shifted(partitions, current, options.shift_by))
    if options.to_current:
        return within({each: current.get(each, ends[each]) for each in partitions})
    at_ms = options.to_datetime if options.to_datetime is not None else _ago_ms(options.by_duration)
    found = offsets_at(cluster, dict.fromkeys(partitions, at_ms))
    return {each: ends[each] if offset is None else offset for each, offset in found.items()}


def _shifted(partitions: Sequence[Partition], current: Mapping[Partition, int], by: int) -> Offsets:
    for each in partitions:
        if each not in current:
            raise ToolError(f"{shown(each)} has no committed offset that could be shifted: use another scenario")
    return {each: current[each] + by for each in partitions}


def _ago_ms(duration: int) -> int:
    return max(0, time.time_ns() // 1_000_000 - duration)
