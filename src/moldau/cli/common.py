"""Common parts of the tools: the way to a cluster, Kafka's manner of passing properties, and errors in one line."""

import argparse
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from moldau.core.properties import parse_properties

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_PORT = 9092
REACH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class ToolError(Exception):
    """Error: the command cannot do its work; the message is one line that says what to do."""


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that every tool has."""
    made = argparse.ArgumentParser(f"moldau {command}", description=description, allow_abbrev=False)
    made.add_argument(
        "--bootstrap-server",
        "--broker-list",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: {DEFAULT_BOOTSTRAP})",
    )
    return made


def positive(text: str) -> int:
    """A whole number from 1 on, from an option's text."""
    number = int(text) if text.strip().lstrip("+-").isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def whole(bits: int, lowest: int = 0) -> Callable[[str], int]:
    """Reader of an option's whole number, of which a request has so many bits."""
    highest = (1 << (bits - 1)) - 1

    def read(text: str) -> int:
        is_number = text.strip().lstrip("+-").isdecimal() and len(text) <= bits
        if not is_number or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from {lowest} to {highest}")
        return int(text)

    return read


def add_client_options(made: argparse.ArgumentParser, config_option: str, *property_options: str) -> None:
    """Add the options for a file of client properties and for single ones, under the names of Kafka's tool."""
    made.add_argument(
        "--command-config",
        config_option,
        dest="client_config",
        metavar="FILE",
        help="client properties, from a file",
    )
    made.add_argument(
        "--command-property",
        *property_options,
        dest="client_properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a client property (librdkafka's names)",
    )


def client_settings(options: argparse.Namespace, defaults: dict[str, Any]) -> dict[str, Any]:
    """librdkafka's settings: the tool's defaults, then the file, then single properties."""
    ensure_reachable(options.bootstrap_server)
    settings = {"bootstrap.servers": options.bootstrap_server, "logger": _silent_logger(), **defaults}
    return {**settings, **client_properties(options), **pairs(getattr(options, "client_properties", []))}


def client_properties(options: argparse.Namespace) -> dict[str, str]:
    """The properties of the file that --command-config names."""
    return {} if options.client_config is None else _read_properties(options.client_config)


def _silent_logger() -> logging.Logger:
    """A logger without output, for librdkafka: errors that matter come back as such."""
    logger = logging.getLogger("moldau.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def _read_properties(path: str) -> dict[str, str]:
    try:
        return parse_properties(Path(path).read_text())
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error


def pairs(items: Iterable[str]) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dictionary. A comma is part of the value, as in Kafka's tools."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ToolError(f"{item!r} is not of the form name=value")
        found[name] = value
    return found


def is_true(properties: dict[str, str], name: str, default: bool = False) -> bool:
    """Whether a yes-or-no property is set, as Java reads it."""
    return properties.get(name, str(default)).strip().lower() == "true"


def ensure_reachable(bootstrap: str) -> None:
    """Connect to the brokers first: librdkafka alone would try for a long time without a word."""
    reasons = []
    for address in bootstrap.split(","):
        try:
            socket.create_connection(host_and_port(address.strip()), REACH_TIMEOUT_S).close()
            return
        except OSError as error:
            reasons.append(error.strerror or str(error))
    raise ToolError(
        f"no broker answers at {bootstrap} ({reasons[-1]}): "
        "start one with `moldau serve`, or name another with --bootstrap-server"
    )


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of `HOST:PORT`, also with a protocol before it or an address of IPv6 in brackets."""
    place = address.rpartition("://")[2]
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place.strip("[]"), DEFAULT_PORT
    if not port.isdigit():
        raise ToolError(f"{address!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


def run(work: Callable[[], int]) -> int:
    """Do `work`; an error becomes one line and an exit code."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except ToolError as error:
        return _fail(str(error))
    except KafkaException as error:
        return _fail(describe(error.args[0]))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return EXIT_FAILED


def describe(error: KafkaError) -> str:
    """The error's own words without librdkafka's prefix."""
    return error.str().removeprefix("Broker: ")
