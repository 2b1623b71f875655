"""Common parts of the tools: the way to a cluster, Kafka's manner of passing properties, and errors in one line."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from moldau import __version__
from moldau.cli.failures import EXIT_FAILED, EXIT_INTERRUPTED, ToolError, WrongUsage
from moldau.cli.interrupts import Interrupts
from moldau.cli.java_names import librdkafka_names
from moldau.cli.output import RED, painted
from moldau.cli.places import DEFAULT_BOOTSTRAP, Place, place, read_properties
from moldau.cli.reachable import ensure_reachable
from moldau.client.settings import is_idempotent
from moldau.core import arguments
from moldau.core.arguments import likely, printable

REQUEST_TIMEOUT_S = 30.0
TOLD_AGAIN_S = 30.0
TRACEBACK_VARIABLE = "MOLDAU_TRACEBACK"
"""Set, it lets a defect of ours end a command with Python's traceback."""


class Parser(arguments.Parser):
    """A parser of the tools, who ask brokers."""

    def meant(self, word: str) -> str:
        """Words behind the complaint about an option that there is not."""
        return zookeeper_hint([word]) or super().meant(word)


def zookeeper_hint(words: Iterable[str]) -> str:
    """The words for who names ZooKeeper, as lines for Kafka before 3.0 do; nothing where nobody does."""
    named = any(each.partition("=")[0] in ("--zookeeper", "--zkconnect") for each in words)
    return ": brokers are asked here, and not ZooKeeper: name some with --bootstrap-server HOST:PORT" if named else ""


def parser(command: str, description: str, examples: Sequence[str] = (), *, is_local: bool = False) -> Parser:
    """A parser with the options that every tool has; one that is local asks no cluster."""
    made = Parser(
        f"moldau {command}",
        description=description,
        epilog="".join(["examples:\n", *(f"  {each}\n" for each in examples)]) if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"moldau {__version__}", help=argparse.SUPPRESS)
    if is_local:
        return made
    made.add_argument(
        "--bootstrap-server",
        "--broker-list",
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: MOLDAU_BOOTSTRAP_SERVER, else {DEFAULT_BOOTSTRAP})",
    )
    made.add_argument("--cluster", metavar="NAME", help="a cluster of ~/.config/moldau.toml (or MOLDAU_CLUSTER)")
    return made


def positive(text: str) -> int:
    """A whole number from 1 on, from an option's text."""
    number = int(text) if text.strip().lstrip("+-").isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def whole(bits: int, lowest: int = 0, highest: int | None = None) -> Callable[[str], int]:
    """Reader of an option's whole number, of which a request has so many bits."""
    highest = (1 << (bits - 1)) - 1 if highest is None else highest

    def read(text: str) -> int:
        is_number = text.strip().lstrip("+-").isdecimal() and len(text) <= bits
        if not is_number or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from {lowest} to {highest}")
        return int(text)

    return read


def add_client_options(made: argparse.ArgumentParser, config_option: str, *property_options: str) -> None:
    """Add the options for a file of client properties and for single ones, under the names of Kafka's tool."""
    made.add_argument(
        *dict.fromkeys(("--command-config", config_option)),
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
        help="a client property (librdkafka's names, and Kafka's for the common ones)",
    )


def add_bygone(made: argparse.ArgumentParser, *flags: str, values: Sequence[str] = ()) -> None:
    """Take options of Kafka's older tools that change nothing here; `values` have a value."""
    for flag in flags:
        made.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    for name in values:
        made.add_argument(name, metavar="VALUE", help=argparse.SUPPRESS)


def client_settings(options: argparse.Namespace, defaults: dict[str, Any]) -> dict[str, Any]:
    """librdkafka's settings: the tool's defaults, then the file, then single properties."""
    there = cluster_place(options)
    ensure_reachable(there.bootstrap, there.properties)
    told = {"logger": _silent_logger(), "error_cb": _Outages().on_error}
    settings = {"bootstrap.servers": there.bootstrap, **told, **defaults, **there.properties}
    if "enable.idempotence" in defaults and "enable.idempotence" not in there.properties:
        settings["enable.idempotence"] = is_idempotent(settings)
    ensure_usable(settings)
    return settings


def ensure_usable(settings: Mapping[str, Any]) -> None:
    """Refuse what librdkafka does not refuse: a consumer without the name of its group aborts the process."""
    for value in settings.values():
        if isinstance(value, str):
            value.encode()
    if "group.id" in settings and not str(settings["group.id"]).strip():
        raise ToolError("the name of the group is empty: leave --group out, or name one")
    if str(settings.get("transactional.id", "")).isspace():  # its producer would ask for an id for ever
        raise ToolError("the transactional id is blank: leave it out, or name one")


def cluster_place(options: argparse.Namespace) -> Place:
    """The way to the cluster: options, environment and files together. Properties have librdkafka's names.

    Single properties go before those of --command-config, and these before the file of clusters. Where no option
    names the cluster, bootstrap.servers among the properties of the command line does.
    """
    if getattr(options, "bootstrap_controller", None):
        raise ToolError("controllers are not asked here, brokers answer for them: name some with --bootstrap-server")
    config = getattr(options, "client_config", None)
    given = {} if config is None else read_properties(config)
    given |= pairs(getattr(options, "client_properties", []))
    named = given.pop("bootstrap.servers", None)
    is_named = getattr(options, "bootstrap_server", None) is not None or getattr(options, "cluster", None) is not None
    there = Place(named, {}) if named and not is_named else place(options)
    properties = {name: value for name, value in there.properties.items() if name != "bootstrap.servers"}
    return Place(there.bootstrap, librdkafka_names(properties | given))


class _Outages:
    """Teller of outages, which librdkafka outlasts without a word."""

    def __init__(self) -> None:
        self._told_s = -TOLD_AGAIN_S

    def on_error(self, error: KafkaError) -> None:
        """Tell a person that nobody answers, now and then."""
        now_s = time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN and now_s - self._told_s >= TOLD_AGAIN_S:
            self._told_s = now_s
            sys.stderr.write("warning: no broker answers; trying again\n")


def _silent_logger() -> logging.Logger:
    """A logger without output, for librdkafka: errors that matter come back as such."""
    logger = logging.getLogger("moldau.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def pairs(items: Iterable[str]) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dictionary. A comma is part of the value, as in Kafka's tools."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{item!r} is not of the form name=value")
        found[name] = value
    return found


def ensure_known(deleted: Iterable[str], known: Sequence[str]) -> None:
    """Refuse the name of a setting that there is not: brokers take it, and the setting that was meant stays."""
    for name in deleted:
        if name not in known:
            raise ToolError(f"nothing was altered, there is no setting {name!r}{likely(name, known)}")


def tell_of_mistyped(given: Iterable[str], known: Iterable[str]) -> None:
    """Warn of properties that are nearly those that mean something; others are ignored, as by Kafka's tools."""
    known = list(known)
    for name in given:
        meant = "" if name in known else likely(name, known)
        if meant:
            sys.stderr.write(f"warning: the property {printable(name)!r} means nothing{meant}\n")


def is_true(properties: Mapping[str, str], name: str, default: bool = False) -> bool:
    """Whether a yes-or-no property is set, as Java reads it."""
    return properties.get(name, str(default)).strip().lower() == "true"


def run(work: Callable[[], int]) -> int:
    """Do `work`; an error becomes one line and an exit code."""
    interrupts = Interrupts()
    try:
        with interrupts:
            code = work()
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_output()  # whoever read it has seen enough
        return 0
    except Exception as error:
        if interrupts.came and not isinstance(error, ToolError):
            return EXIT_INTERRUPTED
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say in one line why a command failed; returns its exit code."""
    if isinstance(error, ToolError):
        return _fail(str(error), error.exit_code)
    if isinstance(error, KafkaException):
        return _fail(describe(error.args[0]))
    if isinstance(error, UnicodeEncodeError) and isinstance(error.object, str):
        return _fail(f"{error.object!r:.80} is not text in UTF-8: names of topics, groups and settings have to be")
    if isinstance(error, OSError):
        code = _fail(f"cannot write: {error.strerror or error}")
        _forget_output()
        return code
    if os.environ.get(TRACEBACK_VARIABLE):
        raise error
    reason = f"{type(error).__name__}: {error}"
    return _fail(f"this is a defect of moldau, please report it: {reason} ({TRACEBACK_VARIABLE}=1 shows where)")


def _forget_output() -> None:
    """Let Python not complain once more at exit about an output that takes nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, exit_code: int = EXIT_FAILED) -> int:
    sys.stderr.write(f"{painted('error:', RED, sys.stderr)} {printable(' '.join(message.split()))}\n")
    return exit_code


def describe(error: KafkaError) -> str:
    """The error's own words without librdkafka's prefix."""
    return error.str().removeprefix("Broker: ")
