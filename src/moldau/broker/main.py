"""`moldau serve`: one broker in one process, or with `--brokers N` a process that runs N of them."""

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.broker import state_changes
from moldau.broker.broker import Broker
from moldau.broker.ownership import put_back, renamed_in
from moldau.broker.registration import BrokerStartError
from moldau.core.arguments import Parser
from moldau.core.broker_config import BrokerConfig
from moldau.core.config import ConfigError
from moldau.core.properties import parse_properties
from moldau.core.real_files import RealFiles
from moldau.log.data_directory import DirectoryError

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger("moldau")

USAGE_ERROR = 2
FAILED = 1

BROKERS_MAX = 100
OBJECTS_BETWEEN_COLLECTIONS = 100_000

WITHOUT_A_FILE = {
    "host.name": "localhost",  # who is to listen to the network says so
    "group.initial.rebalance.delay.ms": "0",  # a first consumer does not wait for 3 s for a second
}
"""Properties of a broker that was given no file, where they are not Kafka's defaults."""


def main(argv: Sequence[str]) -> int:
    options = argument_parser().parse_args(argv)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        properties = chosen_properties(options)
        config, unknown = BrokerConfig.parse(properties)
        if not 1 <= options.brokers <= BROKERS_MAX:
            raise ConfigError("--brokers", f"must be from 1 to {BROKERS_MAX}: each is a process")
        if not _offer_to_put_back(config.data_directories, options):
            return FAILED
        if options.brokers > 1 and options.state_change_log:
            raise ConfigError("--state-change-log", "is the file of one broker: start each by itself")
        if options.brokers > 1:
            return _supervise(options, properties)
        if options.state_change_log:
            state_changes.write_to(options.state_change_log)
    except DirectoryError as error:
        return _complain(str(error), FAILED)
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), USAGE_ERROR)
    except (ConfigError, ValueError) as error:
        return _complain(str(error), USAGE_ERROR)
    for name in unknown:
        log.warning("unknown property %s is ignored", name)
    warn_of_message_format(config)
    _raise_open_files_limit()
    try:
        return _new_event_loop().run_until_complete(_serve(config, options))
    except BrokerStartError as error:
        return _complain(str(error), FAILED)


EXAMPLES = """examples:
  moldau serve
  moldau serve --port 9093 --data ./data
  moldau serve server.properties --override num.partitions=6
  moldau serve --brokers 3 --port 9092 --data ./cluster

Without broker.id one broker gets the first free id from 1001 on, as in Kafka; those of --brokers N are 1 to N."""


def argument_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="moldau serve",
        description="Run a broker.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("properties", nargs="?", help="a server.properties file with Kafka's own names")
    parser.add_argument("--port", type=int, help="listen on this port (default 9092, 0 for a free one)")
    parser.add_argument("--host", help="listen on this address (default: localhost, or what the file says)")
    parser.add_argument("--data", metavar="DIR", help="data directory, the same as log.dirs")
    parser.add_argument(
        "--brokers", metavar="N", type=int, default=1, help="run N brokers as one cluster, on neighbouring ports"
    )
    parser.add_argument("--override", metavar="KEY=VALUE", action="append", default=[], help="set one property")
    parser.add_argument(
        "--put-back",
        action="store_true",
        help="give data directories their names again that an earlier version changed",
    )
    parser.add_argument(
        "--adopt", action="store_true", help="the metadata store is lost: make its topics anew from what is on disk"
    )
    parser.add_argument(
        "--state-change-log",
        metavar="FILE",
        help="append a line for every partition that changes its leader, as StateChangeLogMerger reads them",
    )
    parser.add_argument("--console", action="store_true", help="serve a web console beside it, at localhost:9480")
    parser.add_argument(
        "--console-port", metavar="PORT", type=int, help="the console's port (0 for a free one); the same as --console"
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def warn_of_message_format(config: BrokerConfig) -> None:
    """Say what an older `log.message.format.version` does not change."""
    version = config.string("log.message.format.version")
    numbers = [int(part) for part in version.split("-")[0].split(".")[:2] if part.isdecimal()]
    if numbers and numbers < [0, 11]:
        log.warning(
            "log.message.format.version %s: batches are stored in version 2 all the same, and converted for consumers "
            "that need it; DumpLogSegments from before Kafka 0.11 cannot read them",
            version,
        )


def chosen_properties(options: argparse.Namespace) -> dict[str, str]:
    """Properties of the file, then of the flags, then the overrides: the later wins."""
    properties: dict[str, str] = {}
    if options.properties is not None:
        with open(options.properties, encoding="utf-8") as file:
            properties.update(parse_properties(file.read()))
    if options.port is not None or options.host is not None:
        host = options.host if options.host is not None else "localhost"
        port = options.port if options.port is not None else 9092
        properties["listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        properties.pop("advertised.listeners", None)
    if options.data is not None:
        properties["log.dirs"] = options.data
    for override in options.override:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError("--override", f"takes KEY=VALUE, not {override!r}")
        properties[key.strip()] = value.strip()
    return properties if options.properties is not None else {**WITHOUT_A_FILE, **properties}


def _raise_open_files_limit() -> None:
    """Every connection and every segment is a descriptor; the soft limit of 1024 is for interactive programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _collect_rarely() -> None:
    """Requests leave no cycles behind, what they made is freed at once. At Python's own pace the search for cycles took
    a third of the CPU while a thousand groups joined."""
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 10, 10)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _supervise(options: argparse.Namespace, properties: dict[str, str]) -> int:
    from moldau.broker.supervisor import plan_brokers, supervise, take_directories  # a single broker starts without it

    files = RealFiles()
    shared = [options.properties] if options.properties is not None else []
    shared += [part for override in options.override for part in ("--override", override)]
    shared += ["--adopt"] if options.adopt else []
    plans = plan_brokers(options.brokers, properties, [*shared, "--log-level", options.log_level], files)
    locks = take_directories(options.brokers, properties, files)
    try:
        return _new_event_loop().run_until_complete(supervise(plans, lambda at: start_console(options, at)))
    finally:
        for lock in locks:
            lock.release()


def _offer_to_put_back(directories: Sequence[str], options: argparse.Namespace) -> bool:
    """Whether the start may go on: no data directory is called a stray partition, or all have their names again."""
    files = RealFiles()
    renamed = [each for path in directories for each in renamed_in(path, files)]
    if not renamed:
        return True
    for each in renamed:
        _complain(f"{each.path} is a broker's data directory that an earlier version renamed", FAILED)
    if not options.put_back and not _ask("Put them back?"):
        _complain("the same command with --put-back gives them their names again", FAILED)
        return False
    put_back(renamed, files)
    for each in renamed:
        _complain(f"{each.original} is back", os.EX_OK)
    return True


def _ask(question: str) -> bool:
    """Answer of a person at the terminal; no if there is nobody."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201  where a person looks
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _serve(config: BrokerConfig, options: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    broker = Broker(config, may_adopt=options.adopt)
    loop.set_exception_handler(broker.unhandled)
    await broker.start()
    _collect_rarely()
    print(f"moldau: broker {broker.broker_id} is ready at {', '.join(broker.addresses)}", flush=True)  # noqa: T201  a promise
    console = start_console(options, broker.addresses[0].rpartition("/")[2])
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, broker.failed)]
    _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in pending:
        wait.cancel()
    if console is not None:
        console.terminate()
    is_clean = await broker.stop()
    return os.EX_OK if stop.is_set() and is_clean else FAILED


def start_console(options: argparse.Namespace, bootstrap: str) -> "subprocess.Popen[bytes] | None":
    """Start the console in a process of its own, if it is asked for; it ends with this one, however that ends."""
    if not options.console and options.console_port is None:
        return None
    import subprocess  # a broker without a console starts without it

    from moldau.broker.supervisor import die_with_parent

    command = [sys.executable, "-m", "moldau", "console", "--bootstrap-server", bootstrap]
    port = [] if options.console_port is None else ["--port", str(options.console_port)]
    return subprocess.Popen([*command, *port], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)


def _complain(message: str, code: int) -> int:
    print(f"moldau serve: {message}", file=sys.stderr)  # noqa: T201  where a person looks
    return code
