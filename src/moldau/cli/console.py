"""`moldau console`: a web console for a cluster, Moldau's or any other of Kafka's protocol."""

import argparse
import getpass
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from moldau.cli.common import add_client_options, client_settings, cluster_place, parser, run, whole
from moldau.cli.failures import ToolError
from moldau.cli.output import say
from moldau.cli.reachable import host_and_port

INSTALL = "pip install 'moldau[console]'"
DEFAULT_PORT = 9480
DEFAULT_HOST = "127.0.0.1"
SAMPLE_S = 5.0
PORT_MAX = 65_535
EXAMPLES = (
    "moldau console",
    "moldau console --bootstrap-server kafka-1:9092 --port 8080 --read-only",
    "moldau console add-user anna --role editor --users users.json",
    "moldau console --host 0.0.0.0 --users users.json --allowed-host console.example.com",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    if argv and argv[0] == "add-user":
        options = _user_parser().parse_args(argv[1:])
        return run(lambda: _add_user(options))
    options = _parser().parse_args(argv)
    return run(lambda: _serve(options))


def _parser() -> argparse.ArgumentParser:
    made = parser("console", "Serve a web console for a cluster. `moldau console add-user` makes its users.", EXAMPLES)
    add_client_options(made, "--command-config")
    made.add_argument("--host", default=DEFAULT_HOST, help=f"listen on this address (default {DEFAULT_HOST})")
    made.add_argument(
        "--port",
        type=whole(32),
        default=DEFAULT_PORT,
        help=f"listen on this port (default {DEFAULT_PORT}, 0: a free one)",
    )
    made.add_argument("--users", metavar="FILE", help="people must log in; needed where other machines may connect")
    made.add_argument("--read-only", action="store_true", help="nobody may change anything")
    made.add_argument("--audit-log", metavar="FILE", help="where changes are noted (default: below ~/.local/state)")
    made.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="a name under which browsers find it"
    )
    made.add_argument("--metrics", metavar="HOST:PORT,...", help="brokers' metrics (default: ask the brokers)")
    made.add_argument("--registry", metavar="URL", help="a Schema Registry, for Avro and Protobuf")
    made.add_argument(
        "--pipeline",
        action="append",
        default=[],
        metavar="FILE",
        help="show this pipeline, and let editors stop and start it; may be repeated",
    )
    made.add_argument(
        "--sample-seconds", type=float, default=SAMPLE_S, help=f"look at the cluster so often (default {SAMPLE_S:g})"
    )
    return made


def _user_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "moldau console add-user",
        description="Add a user to a file, or change one. The password is asked for, or read from standard input.",
        allow_abbrev=False,
    )
    made.add_argument("name")
    made.add_argument("--role", choices=("reader", "editor"), default="reader", help="default: reader")
    made.add_argument("--users", metavar="FILE", required=True, help="the file; made if it is not there")
    return made


def _serve(options: argparse.Namespace) -> int:
    missing = [each for each in ("starlette", "uvicorn", "jinja2", "multipart") if not importlib.util.find_spec(each)]
    if missing:
        raise ToolError(f"the console needs {', '.join(missing)}: {INSTALL}")
    if options.port > PORT_MAX:
        raise ToolError(f"{options.port} is no port")
    if not 0.1 <= options.sample_seconds <= 3600:
        raise ToolError("--sample-seconds is from 0.1 to 3600")
    metrics = tuple(each.strip() for each in (options.metrics or "").split(",") if each.strip())
    for each in metrics:
        host_and_port(each)
    wrong = next((each for each in options.allowed_host if "/" in each), None)
    if wrong is not None:
        raise ToolError(f"--allowed-host is a name such as console.example.com, not {wrong!r}")
    if options.registry and not options.registry.startswith(("http://", "https://")):
        raise ToolError(f"{options.registry!r} is no URL of a Schema Registry: it begins with http:// or https://")
    from moldau.console.failures import ConsoleError
    from moldau.console.server import serve
    from moldau.console.settings import Settings

    settings = Settings(
        bootstrap=cluster_place(options).bootstrap,
        properties=client_settings(options, {}),
        host=options.host,
        port=options.port,
        users=Path(options.users) if options.users else None,
        read_only=options.read_only,
        audit_log=None if options.read_only else Path(options.audit_log or _default_audit_log()),
        allowed_hosts=tuple(each.lower() for each in options.allowed_host),
        metrics=metrics,
        registry=options.registry,
        pipelines=tuple(Path(each).resolve() for each in options.pipeline),
        sample_s=options.sample_seconds,
    )
    try:
        serve(settings)
    except ConsoleError as error:
        raise ToolError(str(error)) from error
    return 0


def _default_audit_log() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "moldau", "console-audit.jsonl")


def _add_user(options: argparse.Namespace) -> int:
    from moldau.console.failures import ConsoleError
    from moldau.console.security.users import new_user, read_users, write_users

    path = Path(options.users)
    try:
        users = read_users(path) if path.exists() else {}
        is_new = options.name not in users
        users[options.name] = new_user(options.name, options.role, _password())
        write_users(path, users)
    except ConsoleError as error:
        raise ToolError(str(error)) from error
    say(f"{options.name} is {'added' if is_new else 'changed'}: {options.role}")
    return 0


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != first:
        raise ToolError("the two are not the same: nothing was done")
    return first
