"""`moldau produce`: lines become records, in the manner of kafka-console-producer."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Message

from moldau.cli.common import (
    add_bygone,
    add_client_options,
    client_settings,
    pairs,
    parser,
    positive,
    run,
    tell_of_mistyped,
    whole,
)
from moldau.cli.failures import EXIT_FAILED, ToolError, WrongUsage
from moldau.cli.line_reader import PROPERTIES, BadLine, LineReader, shown
from moldau.cli.pace import Pace, Progress
from moldau.cli.payloads import FORMS, REGISTRY_FORMS, URL_PROPERTY, BadPayload, Form, add_form_options, form_of_class
from moldau.cli.places import read_properties
from moldau.cli.record_json import InputRecord, read_line
from moldau.cli.registry_payloads import Subject, registry_form
from moldau.cli.sender import Sender, partition_checker
from moldau.client.message_headers import header_name

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STDIN = "-"
RECORDS = "records"
LINE_READER = "org.apache.kafka.tools.LineMessageReader"
LINE_READERS = (LINE_READER, "kafka.tools.ConsoleProducer$LineMessageReader")
"""The name since 4.0, and the one before."""
SERIALIZERS = ("kafka.serializer.StringEncoder", "kafka.serializer.DefaultEncoder")
"""Classes of Kafka 0.8; each sends the bytes of a line."""

EXAMPLES = (
    "moldau produce visits < lines.txt",
    "moldau produce visits monday.txt tuesday.txt --rate 1000 --compression-codec zstd",
    "echo praha:hello | moldau produce visits --key-separator :",
    'echo \'{"city": "Praha"}\' | moldau produce visits --format json --header source=shell',
    "moldau consume visits --from-beginning --no-follow --json | moldau produce copies --format records",
    "moldau produce visits --format avro --registry http://localhost:8081 --schema visit.avsc < lines.json",
    "moldau produce --topic visits --property parse.key=true --property key.separator=:",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = _parser()
    options = made.parse_intermixed_args(argv)
    if options.topic is None:
        if not options.words:
            made.error("produce needs a topic")
        options.topic = options.words.pop(0)
    if options.whole_files and not options.words:
        made.error("--whole-files needs files")
    if options.max_partition_memory_bytes is not None:
        options.batch_size = options.max_partition_memory_bytes
    return run(lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    made = parser("produce", "Send each line of files, or of standard input, to a topic.", EXAMPLES)
    made.add_argument("words", nargs="*", metavar="TOPIC FILE", help="the topic, then files (default: standard input)")
    made.add_argument("--topic", help="the topic; all words are files then")
    made.add_argument("--partition", type=whole(32), metavar="N", help="default: by key, or spread")
    made.add_argument("--key", metavar="TEXT", help="the key of every record")
    made.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value in a line")
    made.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="a header of every record")
    add_form_options(made, RECORDS)
    made.add_argument("--schema", metavar="FILE", help="register this schema, and write values with it")
    made.add_argument("--message", metavar="NAME", help="the message of a Protobuf schema (default: its first)")
    made.add_argument("--keep-partitions", action="store_true", help="records: into the partition that a line names")
    made.add_argument("--whole-files", action="store_true", help="each file is one record")
    made.add_argument("--skip-errors", action="store_true", help="tell of lines that are wrong, and go on")
    made.add_argument("--rate", type=positive, metavar="N", help="at most so many records a second")
    made.add_argument("--sync", action="store_true", help="wait for each record before the next is sent")
    made.add_argument("--json", action="store_true", help="print the place of each record that was acknowledged")
    _add_kafkas_options(made)
    add_client_options(made, "--producer.config", "--producer-property")
    return made


def _add_kafkas_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--compression-codec", nargs="?", const="gzip", default="none", choices=CODECS)
    # Kafka 0.8.0's words, and those of 0.8.2 for which of two producers is meant.
    made.add_argument(
        "--compress", dest="compression_codec", action="store_const", const="gzip", help=argparse.SUPPRESS
    )
    made.add_argument("--queue-size", type=positive, metavar="N", help=argparse.SUPPRESS)
    for name in ("--key-serializer", "--value-serializer"):
        made.add_argument(name, choices=SERIALIZERS, help=argparse.SUPPRESS)
    add_bygone(made, "--new-producer", "--old-producer", values=["--queue-enqueuetimeout-ms"])
    made.add_argument("--acks", "--request-required-acks", default="all", choices=("0", "1", "-1", "all"))
    made.add_argument("--batch-size", type=positive, metavar="BYTES", help="the most that is sent as one batch")
    made.add_argument("--timeout", type=whole(32), metavar="MS", help="how long a batch may wait for more records")
    made.add_argument("--max-block-ms", type=positive, metavar="MS", help="how long to wait while the queue is full")
    made.add_argument("--max-memory-bytes", type=positive, metavar="BYTES", help="the size of that queue")
    for name in ("--max-partition-memory-bytes", "--message-send-max-retries", "--retry-backoff-ms"):
        made.add_argument(name, type=whole(32), metavar="N", help=argparse.SUPPRESS)
    for name in ("--request-timeout-ms", "--metadata-expiry-ms", "--socket-buffer-size"):
        made.add_argument(name, type=whole(32), metavar="N", help=argparse.SUPPRESS)
    made.add_argument("--line-reader", choices=LINE_READERS, help=argparse.SUPPRESS)
    made.add_argument("--reader-config", metavar="FILE", help="properties of --property, from a file")
    made.add_argument(
        "--property",
        "--reader-property",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, null.marker, ignore.error, schema.registry.url, value.schema, key.schema",
    )


def _run(options: argparse.Namespace) -> int:
    properties = {
        **({} if options.reader_config is None else read_properties(options.reader_config)),
        **pairs(options.properties),
    }
    if options.key_separator is not None:
        properties.update({"parse.key": "true", "key.separator": options.key_separator})
    tell_of_mistyped(properties, PROPERTIES)
    read = _reader(options, properties)
    fixed = _Fixed(options)
    sources = options.words or [STDIN]
    _check_files(sources)
    settings = client_settings(options, _settings(options))
    sender = Sender(settings, options.topic, options.max_block_ms, _tell if options.json else None)
    choose = _chooser(options, sender)
    total_failed = 0
    try:
        with Progress("sent") as progress:
            total_failed = _send_all(options, sources, lambda text: fixed.on(read(text)), sender, choose, progress)
    except (ToolError, KeyboardInterrupt):
        sender.give_up()
        raise
    sender.flush()
    return EXIT_FAILED if sender.failures or total_failed else 0


def _tell(message: Message) -> None:
    """Print the place of a record that was acknowledged; with acks=0 nobody knows its offset."""
    offset = message.offset()
    place = {"topic": message.topic(), "partition": message.partition(), "offset": offset if offset != -1 else None}
    sys.stdout.write(json.dumps({**place, "timestamp": message.timestamp()[1]}, separators=(",", ":")) + "\n")


def _send_all(
    options: argparse.Namespace,
    sources: Sequence[str],
    read: Callable[[bytes], InputRecord],
    sender: Sender,
    choose: Callable[[InputRecord], int],
    progress: Progress,
) -> int:
    """Send the records of all sources; returns how many lines were wrong."""
    pace = Pace(options.rate, lambda seconds: sender.producer.poll(seconds))
    wrong = 0
    for piece in _pieces(sources, options.whole_files):
        try:
            record = read(piece.text)
        except (BadLine, BadPayload) as error:
            wrong += 1
            if not options.skip_errors:
                raise ToolError(f"{piece.name}: {error} ({sender.sent} records before it are sent)") from error
            sys.stderr.write(f"error: {piece.name}: {error}\n")
            continue
        pace.wait(sender.sent)
        sender.send(record, choose(record))
        if options.sync:
            sender.flush()
        progress.show(sender.sent)
    return wrong


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression.codec": options.compression_codec,
        "acks": options.acks,
        "enable.idempotence": True,  # a retry must not write a line twice
        "partitioner": "murmur2_random",  # where the Java clients put a key
    }
    given = {
        "batch.size": options.batch_size,
        "linger.ms": options.timeout,
        "retries": options.message_send_max_retries,
        "retry.backoff.ms": options.retry_backoff_ms,
        "request.timeout.ms": options.request_timeout_ms,
        "metadata.max.age.ms": options.metadata_expiry_ms,
        "socket.send.buffer.bytes": options.socket_buffer_size,
        "queue.buffering.max.messages": options.queue_size,
        "queue.buffering.max.kbytes": options.max_memory_bytes and max(1, options.max_memory_bytes // 1024),
    }
    return settings | {name: value for name, value in given.items() if value is not None}


# --- lines to records ---


def _reader(options: argparse.Namespace, properties: dict[str, str]) -> Callable[[bytes], InputRecord]:
    if options.format == RECORDS:
        return _record_of_line
    value, key = _form(options, properties, "value"), _form(options, properties, "key")
    if options.whole_files:
        return lambda content: InputRecord(None, value.encode(content), [])
    return LineReader(properties, value, key).record


def _record_of_line(line: bytes) -> InputRecord:
    try:
        return read_line(line)[0]
    except BadPayload as error:
        raise BadLine(f"{error}: {shown(line)}") from None


def _form(options: argparse.Namespace, properties: dict[str, str], part: str) -> Form:
    """The form of keys or of values."""
    named = options.format if part == "value" else options.key_format
    if named is None and f"{part}.serializer" in properties:
        named = form_of_class(properties[f"{part}.serializer"])
    if named not in REGISTRY_FORMS:
        return FORMS[named or "text"]
    url = options.registry or properties.get(URL_PROPERTY)
    if url is None:
        raise WrongUsage(f"the format {named} needs --registry URL")
    text = properties.get(f"{part}.schema")
    if part == "value" and options.schema is not None:
        text = _content(options.schema).decode(errors="replace")
    subject = Subject(url, pairs(options.registry_property), f"{options.topic}-{part}", text, options.message)
    return registry_form(named, subject)


class _Fixed:
    """Key and headers that options give to every record."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._key = None if options.key is None else options.key.encode()
        self._headers = [(name, value.encode()) for name, value in (_header(each) for each in options.header)]

    def on(self, record: InputRecord) -> InputRecord:
        """The record, with a key if it has none and with the headers more."""
        if self._key is not None and record.key is None:
            record = record._replace(key=self._key)
        return record._replace(headers=[*record.headers, *self._headers]) if self._headers else record


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise WrongUsage(f"--header {text!r} is not of the form name=value")
    try:
        return header_name(name), value
    except ValueError as error:
        raise ToolError(f"--header: {error}") from None


def _chooser(options: argparse.Namespace, sender: Sender) -> Callable[[InputRecord], int]:
    """A function that says into which partition a record goes; -1: librdkafka chooses."""
    checked = partition_checker(sender, options.topic)
    if options.partition is not None:
        fixed = checked(options.partition)
        return lambda _: fixed
    if options.keep_partitions:
        return lambda record: -1 if record.partition is None else checked(record.partition)
    return lambda _: -1


# --- files ---


class _Piece(NamedTuple):
    """A line, or a whole file, with the name that an error calls it."""

    name: str
    text: bytes


def _pieces(sources: Iterable[str], whole_files: bool) -> Iterator[_Piece]:
    for source in sources:
        if whole_files:
            yield _Piece(source, _content(source))
        elif source == STDIN:
            yield from _lines("", _stdin_lines())
        else:
            with closing(_opened(source)) as file:
                yield from _lines(f"{source}, ", file)


def _lines(where: str, lines: Iterable[bytes]) -> Iterator[_Piece]:
    for number, line in enumerate(lines, start=1):
        yield _Piece(f"{where}line {number}", line)


def _stdin_lines() -> Iterator[bytes]:
    """Lines of standard input; a person is shown a prompt, as by Kafka's tool."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        yield from sys.stdin.buffer
        return
    while True:
        sys.stderr.write(">")
        sys.stderr.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            return
        yield line


def _check_files(sources: Iterable[str]) -> None:
    """Look at each file before anything is sent. None is opened: what a pipe holds can be read once."""
    for source in sources:
        if source != STDIN and (not os.access(source, os.R_OK) or Path(source).is_dir()):
            _opened(source)
            raise ToolError(f"cannot read {source}")


def _opened(path: str) -> Any:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error


def _content(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error
