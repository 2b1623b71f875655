"""`moldau perf`: how many records a second and how fast, measured and printed as Kafka's own tools do."""

import argparse
from collections.abc import Mapping, Sequence

from moldau.cli.actions import Action, Command
from moldau.cli.common import add_bygone, positive, whole
from moldau.cli.output import note
from moldau.cli.perf_consume import DATE_FORMAT, consume
from moldau.cli.perf_latency import end_to_end
from moldau.cli.perf_produce import produce

OLDER_PROPERTIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "--batch-size": ("batch.num.messages", {}),
    "--compression-codec": ("compression.codec", {"0": "none", "1": "gzip", "2": "snappy"}),
    "--request-num-acks": ("acks", {}),
}
"""Options of Kafka 0.8's tool, with the property and the values that they are today."""
SIZE = whole(32, 1, 1_000_000_000)
"""Reader of a record's size; librdkafka sends none that is larger."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(_with_names(argv))


def _with_names(argv: Sequence[str]) -> Sequence[str]:
    """The arguments, with names where they have the older form of Kafka's tool: `end-to-end BROKERS TOPIC RECORDS ACKS
    BYTES`, and perhaps a file of properties."""
    words = argv[1:]
    if argv[:1] != ["end-to-end"] or len(words) not in (5, 6) or any(each.startswith("-") for each in words):
        return argv
    names = ("--bootstrap-server", "--topic", "--num-records", "--producer-acks", "--record-size", "--command-config")
    return ["end-to-end", *(part for pair in zip(names, words, strict=False) for part in pair)]


def _topic_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", help="the topic")
    made.add_argument(
        "--reporting-interval", type=positive, default=5000, metavar="MS", help="time between lines (default 5000)"
    )
    made.add_argument("--print-metrics", action="store_true", help="print librdkafka's own numbers at the end")


def _produce_options(made: argparse.ArgumentParser) -> None:
    _topic_options(made)
    _older_produce_options(made)
    made.add_argument("--num-records", "--messages", type=positive, required=True, metavar="N", help="how many records")
    payload = made.add_mutually_exclusive_group(required=True)
    payload.add_argument(
        "--record-size", "--message-size", type=SIZE, metavar="BYTES", help="values of random letters, so long"
    )
    payload.add_argument("--payload-file", metavar="FILE", help="values drawn from the lines of this file")
    payload.add_argument("--payload-monotonic", action="store_true", help="values that are numbers: 0, 1, 2 ...")
    made.add_argument("--payload-delimiter", default="\\n", metavar="TEXT", help="what ends a line of --payload-file")
    made.add_argument("--throughput", type=float, default=-1, metavar="N", help="records a second (default -1: all)")
    made.add_argument("--warmup-records", type=whole(64), default=0, metavar="N", help="leave these out of a last line")
    made.add_argument("--transactional-id", metavar="NAME", help="send in transactions")
    made.add_argument("--transaction-duration-ms", type=positive, metavar="MS", help="how long one is (default 3000)")
    made.add_argument("--producer.config", dest="client_config", metavar="FILE", help=argparse.SUPPRESS)
    made.add_argument(
        "--producer-props",
        dest="client_properties",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="client properties, bootstrap.servers among them",
    )


def _older_produce_options(made: argparse.ArgumentParser) -> None:
    """Take the words of Kafka 0.8 to 0.10: --topics, and what are properties today."""
    made.add_argument("--topics", dest="topic", help=argparse.SUPPRESS)
    for option, (name, values) in OLDER_PROPERTIES.items():
        made.add_argument(option, dest=f"older {name}", choices=values or None, help=argparse.SUPPRESS)
    add_bygone(made, "--new-producer", "--sync", "--show-detailed-stats", values=["--threads"])


def _produce(options: argparse.Namespace) -> int:
    for name, values in OLDER_PROPERTIES.values():
        given = getattr(options, f"older {name}")
        if given is not None:
            options.client_properties.append(f"{name}={values.get(given, given)}")
    _tell_of_threads(options)
    return produce(options)


def _consume(options: argparse.Namespace) -> int:
    _tell_of_threads(options)
    return consume(options)


def _tell_of_threads(options: argparse.Namespace) -> None:
    if options.threads not in (None, "1"):
        note(f"--threads {options.threads} has no meaning: one client works here, as in Kafka's own tool since 3.0")


def _consume_options(made: argparse.ArgumentParser) -> None:
    _topic_options(made)
    made.add_argument("--num-records", "--messages", type=positive, required=True, metavar="N", help="how many records")
    made.add_argument("--include", metavar="REGEX", help="all topics whose whole name matches")
    made.add_argument("--group", metavar="NAME", help="the group (default: a new one)")
    made.add_argument("--from-latest", action="store_true", help="a new group begins with new records")
    made.add_argument("--fetch-size", type=positive, default=1 << 20, metavar="BYTES", help="the most of one partition")
    made.add_argument("--socket-buffer-size", type=positive, default=2 << 20, metavar="BYTES", help="TCP's buffer")
    made.add_argument("--timeout", type=positive, default=10_000, metavar="MS", help="the longest wait for records")
    made.add_argument("--show-detailed-stats", action="store_true", help="a line for each interval")
    made.add_argument("--hide-header", action="store_true", help="no line with the columns' names")
    made.add_argument("--date-format", default=DATE_FORMAT, metavar="FORM", help="of times, in Java's letters")
    made.add_argument("--consumer.config", dest="client_config", metavar="FILE", help=argparse.SUPPRESS)
    add_bygone(made, "--new-consumer", values=["--threads", "--num-fetch-threads"])


def _latency_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", help="the topic; it is created if it is not there")
    made.add_argument("--num-records", "--messages", type=positive, default=1000, metavar="N", help="default 1000")
    made.add_argument("--producer-acks", default="all", choices=("1", "all"), help="default all")
    made.add_argument("--record-size", type=SIZE, default=100, metavar="BYTES", help="default 100")


COMMAND = Command(
    "perf",
    "Measure producers, consumers, and the way from one to the other.",
    [
        Action(
            "produce",
            "send records as fast as it goes, or at a rate",
            _produce,
            _produce_options,
            [
                "produce visits --num-records 1000000 --record-size 100",
                "produce visits --num-records 100000 --record-size 1000 --throughput 5000 --command-property acks=1",
                "produce --topic visits --num-records 50000 --record-size 100 --throughput -1 "
                "--producer-props bootstrap.servers=localhost:9092 acks=1",
            ],
            noun="topic",
            required=True,
        ),
        Action(
            "consume",
            "read records as fast as it goes",
            _consume,
            _consume_options,
            [
                "consume visits --num-records 1000000",
                "consume --topic visits --messages 1000000 --bootstrap-server localhost:9092 --show-detailed-stats",
            ],
            noun="topic",
        ),
        Action(
            "end-to-end",
            "send one record after the other, and read each before the next",
            end_to_end,
            _latency_options,
            [
                "end-to-end visits --num-records 10000 --producer-acks all --record-size 100",
                "end-to-end --topic visits --num-records 10000 --producer-acks 1 --record-size 20 "
                "--bootstrap-server localhost:9092",
            ],
            noun="topic",
            required=True,
        ),
    ],
)
