"""`moldau log dump FILES`, the work of kafka-dump-log, and `moldau log verify DIR`: both only read."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence

from moldau.cli.actions import Action, Command
from moldau.cli.common import positive
from moldau.cli.failures import EXIT_FAILED, ToolError
from moldau.cli.output import RED, painted, show_json
from moldau.core.arguments import printable
from moldau.inspection.decoders import Decoder, group_record, text, transaction_record
from moldau.inspection.directory_check import Found, check, find
from moldau.inspection.dump import DumpOptions, dump_file, is_dumped
from moldau.inspection.dump_segments import ALL_BYTES, SegmentOptions
from moldau.inspection.faults import Faults
from moldau.inspection.findings import Report
from moldau.inspection.reading import ReadError, names_in
from moldau.inspection.rows import Row

PROGRESS_S = 0.2
STRING_DECODERS = ("org.apache.kafka.tools.api.StringDecoder", "kafka.serializer.StringDecoder")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_UNSERVED = {
    "cluster_metadata_decoder": "--cluster-metadata-decoder",
    "remote_log_metadata_decoder": "--remote-log-metadata-decoder",
    "share_group_state_decoder": "--share-group-state-decoder",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- dump ---


def _dump_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--files", action="append", default=[], metavar="A,B,...", help="files, or directories of them")
    made.add_argument("--print-data-log", action="store_true", help="show keys and values")
    made.add_argument("--deep-iteration", action="store_true", help="show records, not only batches")
    made.add_argument("--index-sanity-check", action="store_true", help="check indexes as a start of a broker does")
    made.add_argument("--verify-index-only", action="store_true", help="compare indexes with the log, print no entry")
    made.add_argument("--offsets-decoder", action="store_true", help="records are those of __consumer_offsets")
    made.add_argument("--transaction-log-decoder", action="store_true", help="records are those of __transaction_state")
    made.add_argument("--skip-record-metadata", action="store_true", help="of records show key and value only")
    made.add_argument("--max-bytes", type=positive, default=ALL_BYTES, metavar="N", help="read so much of each segment")
    made.add_argument("--max-message-size", type=positive, metavar="N", help=argparse.SUPPRESS)
    made.add_argument("--value-decoder-class", nargs="?", const=STRING_DECODERS[0], help=argparse.SUPPRESS)
    made.add_argument("--key-decoder-class", nargs="?", const=STRING_DECODERS[0], help=argparse.SUPPRESS)
    for name in _UNSERVED.values():
        made.add_argument(name, action="store_true", help=argparse.SUPPRESS)


def _dump(options: argparse.Namespace) -> int:
    wanted = _wanted(options)
    faults = Faults()
    for path in _files(options.files):
        if not options.json:
            _write(f"Dumping {path}")
        told = len(faults.errors)
        try:
            for row in dump_file(path, wanted, faults):
                _print_row(options, path, row)
        except ReadError as error:
            faults.errors.append(str(error))
        sys.stdout.flush()
        sys.stderr.writelines(f"{printable(line)}\n" for line in faults.errors[told:])
    sys.stderr.writelines(f"{printable(line)}\n" for line in faults.lines())
    return EXIT_FAILED if faults.are_serious else 0


def _wanted(options: argparse.Namespace) -> DumpOptions:
    for name, option in _UNSERVED.items():
        if getattr(options, name):
            raise ToolError(f"{option} is not served: use kafka-dump-log.sh of Apache Kafka, which reads these files")
    for option in ("key_decoder_class", "value_decoder_class"):
        named = getattr(options, option)
        if named is not None and named not in STRING_DECODERS:
            name = "--" + option.replace("_", "-")
            raise ToolError(f"{name} {named}: classes of Java cannot be loaded; bytes are shown as UTF-8 text")
    decoder = _decoder(options)
    is_deep = options.deep_iteration or decoder is not None
    segment = SegmentOptions(is_deep, decoder, options.skip_record_metadata, options.max_bytes)
    return DumpOptions(segment, options.index_sanity_check, options.verify_index_only)


def _decoder(options: argparse.Namespace) -> Decoder | None:
    if options.offsets_decoder:
        return group_record
    if options.transaction_log_decoder:
        return transaction_record
    is_asked_for = options.print_data_log or options.key_decoder_class or options.value_decoder_class
    return text if is_asked_for else None


def _files(named: Sequence[str]) -> Iterator[str]:
    """The files that were named: one by one, joined by commas, or by their directory."""
    for each in named:
        for path in [each] if os.path.exists(each) else [part for part in each.split(",") if part]:
            if os.path.isdir(path):
                found = [f"{path.rstrip('/')}/{name}" for name in _names(path) if is_dumped(name)]
                if not found:
                    raise ToolError(f"{path} has no file of a partition in it: name one, such as {path}/TOPIC-0")
                yield from found
            else:
                yield path


def _names(directory: str) -> list[str]:
    try:
        return names_in(directory).files
    except ReadError as error:
        raise ToolError(str(error)) from error


def _print_row(options: argparse.Namespace, path: str, row: Row) -> None:
    if options.json:
        sys.stdout.write(json.dumps({"file": printable(path), **row.value()}) + "\n")
    else:
        _write(row.line())


def _write(line: str) -> None:
    """Print a line. A pipe gets what is in the record, as from Kafka's tool; a terminal nothing that moves its
    cursor."""
    sys.stdout.write(f"{printable(line) if sys.stdout.isatty() else line.encode(errors='replace').decode()}\n")


# --- verify ---


def _verify_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--dir", metavar="DIR", help="a partition's directory, a data directory, or one above several")
    made.add_argument("--quiet", action="store_true", help="print problems only")


def _verify(options: argparse.Namespace) -> int:
    report = Report()
    began = time.monotonic()
    try:
        found = find(options.dir, report)
    except ReadError as error:
        raise ToolError(str(error)) from error
    progress = _Progress(found.size)
    check(found, report, progress.advance, progress.begin)
    progress.end()
    seconds = time.monotonic() - began
    if options.json:
        show_json(_verified(options, found, report, seconds))
    else:
        _tell(options, found, report, seconds)
    return EXIT_FAILED if report.problems else 0


def _tell(options: argparse.Namespace, found: Found, report: Report, seconds: float) -> None:
    for finding in report.findings:
        if finding.is_problem or not options.quiet:
            line = printable(finding.line())
            word, rest = line.split(":", 1)
            sys.stdout.write(f"{painted(word, RED, sys.stdout) if finding.is_problem else word}:{rest}\n")
    untold = report.problems - sum(finding.is_problem for finding in report.findings)
    if untold > 0:
        sys.stdout.write(f"problem: and {untold} more\n")
    if options.quiet:
        return
    for each in found.directories:
        if each.is_running:
            sys.stdout.write(f"note: {printable(each.path)}: a broker is running on it and goes on writing\n")
    speed = f", {in_bytes(report.bytes / seconds)}/s" if seconds > 0 else ""
    sys.stdout.write(
        f"{report.partitions} partitions, {report.segments} segments, {report.batches} batches, "
        f"{in_bytes(report.bytes)} in {seconds:.1f} s{speed}: "
        f"{'no problem' if not report.problems else f'{report.problems} problems'}\n"
    )


def _verified(options: argparse.Namespace, found: Found, report: Report, seconds: float) -> dict[str, object]:
    return {
        "path": options.dir,
        "isRunning": any(each.is_running for each in found.directories),
        "partitions": report.partitions,
        "segments": report.segments,
        "batches": report.batches,
        "bytes": report.bytes,
        "seconds": round(seconds, 3),
        "problemCount": report.problems,
        "problems": [each.value() for each in report.findings if each.is_problem],
        "notes": [each.value() for each in report.findings if not each.is_problem],
    }


class _Progress:
    """A line on a terminal that says how far the walk is."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = 0
        self._name = ""
        self._is_shown = sys.stderr.isatty()
        self._began = self._shown_at = time.monotonic()

    def begin(self, path: str) -> None:
        self._name = os.path.basename(path)

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if not self._is_shown or now - self._shown_at < PROGRESS_S:
            return
        self._shown_at = now
        share = min(self._done / self._size, 1) if self._size else 1
        speed = in_bytes(self._done / (now - self._began))
        line = f"{share:4.0%} {in_bytes(self._done)} of {in_bytes(self._size)}, {speed}/s, {printable(self._name)}"
        sys.stderr.write(f"\r\033[K{line[:100]}")
        sys.stderr.flush()

    def end(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\033[K")


def in_bytes(count: float) -> str:
    """A number of bytes in words."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes everything")


COMMAND = Command(
    "log",
    "Dump and verify the files of a data directory, Moldau's or Apache Kafka's. Nothing is changed.",
    [
        Action(
            "dump",
            "print what is in segments, indexes, snapshots and checkpoints",
            _dump,
            _dump_options,
            [
                "dump data/visits-0/00000000000000000000.log",
                "dump data/visits-0 --print-data-log --json",
                "dump data/__consumer_offsets-7/00000000000000000000.log --offsets-decoder",
                "dump --files data/visits-0/00000000000000000000.index --index-sanity-check",
            ],
            noun="files",
            required=True,
        ),
        Action(
            "verify",
            "check every batch, index, snapshot and checkpoint; a broker may be running on them",
            _verify,
            _verify_options,
            ["verify data", "verify data/visits-0 --json", "verify data --quiet"],
            noun="dir",
            required=True,
        ),
    ],
    is_local=True,
)
