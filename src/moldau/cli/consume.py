"""`moldau consume`: prints records, in the manner of kafka-console-consumer: in a group, or from exact places."""

import argparse
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, Protocol

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Message

from moldau.cli.common import (
    add_bygone,
    add_client_options,
    client_settings,
    cluster_place,
    pairs,
    parser,
    positive,
    run,
    tell_of_mistyped,
    whole,
)
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.formatter import PROPERTIES, Formatter, Forms, JsonFormatter, Nothing, searched_text
from moldau.cli.moments import FORMS as TIME_FORMS
from moldau.cli.moments import moment
from moldau.cli.output import raise_if_unread
from moldau.cli.pace import Progress
from moldau.cli.payloads import FORMS, REGISTRY_FORMS, URL_PROPERTY, BadPayload, add_form_options, form_of_class
from moldau.cli.places import read_properties
from moldau.cli.reading import BATCH_RECORDS, POLL_S, close
from moldau.cli.record_sources import ExactSource, GroupSource, Source
from moldau.cli.registry_payloads import Subject, registry_form

_NAMED_OFFSETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END, "-2": OFFSET_BEGINNING, "-1": OFFSET_END}
"""The numbers are those of kafka-simple-consumer-shell."""
FORMATTERS = (
    "DefaultMessageFormatter",
    "LoggingMessageFormatter",
    "NoOpMessageFormatter",
    "OffsetsMessageFormatter",
    "GroupMetadataMessageFormatter",
    "TransactionLogMessageFormatter",
)

EXACT_IN_GROUP = "a group goes on where it stopped: --from-time, --tail and --until-time are for reading without one"
RESETS_TO_BEGINNING = ("earliest", "smallest", "beginning")
RESETS_TO_END = ("latest", "largest", "end")
"""Values of auto.offset.reset, Kafka's and the other names that librdkafka has for them."""

EXAMPLES = (
    "moldau consume visits --from-beginning --max-messages 10",
    "moldau consume visits --from-time 15m --grep 'praha|brno'",
    "moldau consume visits --from-time 2026-05-04T10:00Z --until-time 2026-05-04T11:00Z --json",
    "moldau consume visits --group audit --from-beginning --no-follow",
    "moldau consume visits --from-beginning --format avro --registry http://localhost:8081",
    "moldau consume --topic visits --partition 0 --offset 42 --property print.key=true --property print.offset=true",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parse(argv)
    return run(lambda: _run(options, sys.stdout.buffer))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    made = _parser()
    options = made.parse_intermixed_args(argv)
    if options.words:
        if options.topic is not None or len(options.words) > 1:
            made.error(f"one topic at a time: {' '.join(options.words)!r} is too much")
        options.topic = options.words[0]
    if (options.topic is None) == (options.include is None):
        made.error("say one of a topic and --include")
    if options.offset is not None and options.partition is None:
        made.error("--offset needs --partition")
    if options.partition is not None and options.include is not None:
        made.error("--partition and --include exclude each other")
    if options.until_offset is not None and options.partition is None:
        made.error("--until-offset needs --partition")
    _refuse_two(made, options, "offset", "from_beginning", "from_time", "tail")
    _refuse_two(made, options, "until_offset", "until_time")
    if options.group is not None and options.partition is not None:
        made.error("--group and --partition exclude each other: a group shares its partitions out")
    if options.group is not None and _names_an_exact_place(options):
        made.error(EXACT_IN_GROUP)
    return options


def _names_an_exact_place(options: argparse.Namespace) -> bool:
    return any(getattr(options, each) is not None for each in ("from_time", "tail", "until_time"))


def _refuse_two(made: argparse.ArgumentParser, options: argparse.Namespace, *names: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in (None, False)]
    if len(given) > 1:
        made.error(f"{given[0]} and {given[1]} exclude each other")


def _parser() -> argparse.ArgumentParser:
    made = parser("consume", "Print the records of a topic, as they come.", EXAMPLES)
    made.add_argument("words", nargs="*", metavar="TOPIC", help="the same as --topic")
    made.add_argument("--topic")
    made.add_argument("--include", "--whitelist", metavar="REGEX", help="all topics whose whole name matches")
    made.add_argument("--group", metavar="NAME", help="share partitions in this group, and commit what was printed")
    _add_places(made)
    made.add_argument("--max-messages", type=whole(32, -1), metavar="N", help="end after so many records (-1: never)")
    made.add_argument("--timeout-ms", type=whole(64), metavar="MS", help="end when no record has come for so long")
    made.add_argument("--isolation-level", default="read_uncommitted", choices=("read_uncommitted", "read_committed"))
    made.add_argument("--grep", metavar="REGEX", help="only records with this in the key or the value")
    made.add_argument("--count", action="store_true", help="print how many records there are, instead of them")
    made.add_argument("--json", action="store_true", help="print a line of JSON for each record, with all of its parts")
    add_form_options(made)
    made.add_argument("--skip-message-on-error", action="store_true", help="tell of values not of the form, and go on")
    made.add_argument("--formatter", metavar="CLASS", help=f"one of Kafka's: {', '.join(FORMATTERS)}")
    made.add_argument("--formatter-config", metavar="FILE", help="properties of --property, from a file")
    made.add_argument("--key-deserializer", metavar="CLASS", help="one of Kafka's; the same as --key-format")
    made.add_argument("--value-deserializer", metavar="CLASS", help="one of Kafka's; the same as --format")
    made.add_argument(
        "--property",
        "--formatter-property",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key, print.value, "
        "key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer",
    )
    add_client_options(made, "--consumer.config", "--consumer-property")
    add_bygone(made, "--new-consumer", values=["--clientId", "--fetchsize", "--max-wait-ms"])
    return made


def _add_places(made: argparse.ArgumentParser) -> None:
    made.add_argument("--partition", type=whole(32), metavar="N", help="only this one")
    made.add_argument(
        "--offset",
        type=_offset,
        metavar="earliest|latest|N",
        help="where to start in --partition (default: latest)",
    )
    made.add_argument("--from-beginning", action="store_true", help="start with the first record there is")
    made.add_argument(
        "--from-time", type=moment, metavar="TIME", help=f"start with the first record since: {TIME_FORMS}"
    )
    made.add_argument("--tail", type=positive, metavar="N", help="start with the last N records of each partition")
    made.add_argument("--until-offset", type=whole(64), metavar="N", help="end before this offset of --partition")
    made.add_argument("--until-time", type=moment, metavar="TIME", help="end before the first record since")
    made.add_argument(
        "--no-follow", "--until-end", action="store_true", help="end where the topic ends now, and wait for no more"
    )
    # kafka-simple-consumer-shell's words
    made.add_argument("--no-wait-at-logend", dest="no_follow", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--print-offsets", action="store_true", help=argparse.SUPPRESS)


def _offset(text: str) -> int:
    if text in _NAMED_OFFSETS:
        return _NAMED_OFFSETS[text]
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is neither earliest, latest nor an offset")
    return int(text)


def _run(options: argparse.Namespace, output: BinaryIO) -> int:
    properties = {
        **({"print.offset": "true"} if options.print_offsets else {}),
        **({} if options.formatter_config is None else read_properties(options.formatter_config)),
        **pairs(options.properties),
    }
    tell_of_mistyped(properties, PROPERTIES)
    forms = _forms(options, properties)
    formatter = _formatter(options, properties, forms)
    wants = _filter(options.grep, forms)
    _heed_properties(options, cluster_place(options).properties)
    consumer = Consumer(client_settings(options, _settings(options)))
    try:
        source = _source(consumer, options)
        _Printer(options, source, formatter, wants, output).run()
    finally:
        close(consumer)
    return 0


def _heed_properties(options: argparse.Namespace, properties: Mapping[str, str]) -> None:
    """Take the group and the place to begin at from client properties, as Kafka's console consumer does."""
    group = properties.get("group.id", options.group)
    if options.group not in (None, group):
        raise WrongUsage(f"--group {options.group!r} and the property group.id={group} do not agree: say one of them")
    if options.group != group and _names_an_exact_place(options):
        raise ToolError(EXACT_IN_GROUP)
    options.group = group
    reset = properties.get("auto.offset.reset", "")
    if options.from_beginning and reset in RESETS_TO_END:
        raise WrongUsage(f"--from-beginning and the property auto.offset.reset={reset} do not agree: say one of them")
    begins_elsewhere = any(getattr(options, each) is not None for each in ("offset", "from_time", "tail"))
    options.from_beginning |= reset in RESETS_TO_BEGINNING and not begins_elsewhere


def _settings(options: argparse.Namespace) -> dict[str, str | bool]:
    in_group = options.group is not None and options.partition is None
    reset = ("earliest" if options.from_beginning else "latest") if in_group else "error"
    return {
        "group.id": "moldau-consume"
        if options.group is None
        else options.group,  # librdkafka wants one; nothing is committed under the second
        "enable.auto.commit": options.group is not None,
        "enable.auto.offset.store": False,  # a record is stored once it is printed
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        "isolation.level": options.isolation_level,
    }


def _source(consumer: Consumer, options: argparse.Namespace) -> Source:
    if options.group is not None and options.partition is None:
        return GroupSource(consumer, options)
    return ExactSource(consumer, options)


# --- how records are shown ---


class _LineMaker(Protocol):
    """Maker of lines."""

    def line(self, message: Message, /) -> bytes:
        """The line for a record, with its end."""


def _formatter(options: argparse.Namespace, properties: dict[str, str], forms: Forms) -> _LineMaker:
    # Before 4.0 some were classes in a class: kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter.
    named = "" if options.formatter is None else re.split(r"[.$]", options.formatter)[-1]
    if named and named not in FORMATTERS:
        raise ToolError(f"there is no formatter {options.formatter!r}: there are {', '.join(FORMATTERS)}, and --json")
    if options.count or named == "NoOpMessageFormatter":
        return Nothing()
    if named in FORMATTERS[3:]:
        from moldau.cli import internal_topics  # their tables take time that others do not need

        return internal_topics.FORMATTERS[named]
    return JsonFormatter(forms) if options.json else Formatter(properties, forms)


def _forms(options: argparse.Namespace, properties: dict[str, str]) -> Forms:
    """The forms of keys, values and headers that are not shown as they are."""
    named = {
        "value": options.format or _by_class(options.value_deserializer or properties.get("value.deserializer")),
        "key": options.key_format or _by_class(options.key_deserializer or properties.get("key.deserializer")),
        "headers": _by_class(properties.get("headers.deserializer") or properties.get("header.deserializer")),
    }
    forms = {}
    for part, name in named.items():
        if name in REGISTRY_FORMS:
            url = options.registry or properties.get(URL_PROPERTY)
            if url is None:
                raise WrongUsage(f"the format {name} needs --registry URL")
            forms[part] = (name, registry_form(name, Subject(url, pairs(options.registry_property), "")))
        elif name is not None and name != "text":
            forms[part] = (name, FORMS[name])
    return forms


def _by_class(name: str | None) -> str | None:
    return None if name is None else form_of_class(name)


def _filter(expression: str | None, forms: Forms) -> Callable[[Message], bool]:
    """A function that says whether a record is wanted."""
    if expression is None:
        return lambda _: True
    try:
        pattern = re.compile(expression.encode())
    except re.error as error:
        raise ToolError(f"--grep {expression!r} is not a regular expression: {error}") from error
    return lambda message: pattern.search(searched_text(message, forms)) is not None


class _Printer:
    """Printer of what a source has, until it is done or enough is printed."""

    def __init__(
        self,
        options: argparse.Namespace,
        source: Source,
        formatter: _LineMaker,
        wants: Callable[[Message], bool],
        output: BinaryIO,
    ) -> None:
        self._options = options
        self._source = source
        self._formatter = formatter
        self._wants = wants
        self._output = output
        self._shown = 0
        self._limit = sys.maxsize if options.max_messages in (None, -1) else options.max_messages

    def run(self) -> None:
        try:
            with Progress("read") as progress:
                self._read(progress if not self._output.isatty() else None)
        finally:
            if self._options.count:
                sys.stdout.write(f"{self._shown}\n")
            sys.stderr.write(f"Processed a total of {self._shown} messages\n")

    def _read(self, progress: Progress | None) -> None:
        last_s = time.monotonic()
        timeout_s = float("inf") if self._options.timeout_ms is None else self._options.timeout_ms / 1000
        is_filtered = self._options.grep is not None
        while self._shown < self._limit and not self._source.is_done:
            size = BATCH_RECORDS if is_filtered else min(self._limit - self._shown, BATCH_RECORDS)
            batch = self._source.next_batch(size, min(POLL_S, timeout_s))
            if batch:
                self._print(batch)
                last_s = time.monotonic()
            elif time.monotonic() - last_s > timeout_s:
                return
            else:
                raise_if_unread(self._output)
            if progress is not None:
                progress.show(self._shown)

    def _print(self, batch: list[Message]) -> None:
        lines = []
        seen = 0
        try:
            for message in batch:
                line = self._line(message)
                seen += 1
                if line is not None:
                    lines.append(line)
                    if self._shown + len(lines) == self._limit:
                        break
        finally:
            self._shown += len(lines)  # before, as Ctrl-C may come right behind the lines
            self._output.writelines(lines)
            self._output.flush()
            self._source.printed(batch[:seen])

    def _line(self, message: Message) -> bytes | None:
        """The line of a record; None: it is not wanted."""
        try:
            return self._formatter.line(message) if self._wants(message) else None
        except BadPayload as error:
            where = f"{message.topic()}-{message.partition()} offset {message.offset()}: {error}"
            if not self._options.skip_message_on_error:
                raise ToolError(f"{where} (--skip-message-on-error goes on)") from error
            sys.stderr.write(f"error: {where}\n")
            return None
