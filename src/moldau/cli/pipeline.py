"""`moldau pipeline`: check, run and look after a pipeline of a YAML or Python file. Needs moldau[pipelines].

Exit codes: 0 done, or stopped as asked; 1 failed, with one line that says why; 2 wrong usage; 130 or 143 if a run with
--once was stopped by a signal before its end.
"""

import argparse
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moldau.cli.common import pairs, parser, run
from moldau.cli.failures import EXIT_FAILED, ToolError
from moldau.cli.output import show_json, show_table

if TYPE_CHECKING:
    from moldau.pipelines.file.problems import Problem
    from moldau.pipelines.file.spec import PipelineSpec
    from moldau.pipelines.run.runner import Stop

INSTALL = "pip install 'moldau[pipelines]'"
STOP_TIMEOUT_S = 120.0
PORT_MAX = 65_535
ROWS_SHOWN = 20
EXAMPLES = {
    "check": ("check visits.yaml", "check visits.yaml --static --json"),
    "run": ("run visits.yaml", "run visits.yaml --once", "run a.yaml b.yaml --status-port 8090"),
    "status": ("status visits.yaml", "status visits.yaml --json"),
    "stop": ("stop visits.yaml",),
    "replay": ("replay visits.yaml --from 2026-05-04T00:00 --to sqlite=again.db,table=visits",),
    "reset": ("reset visits.yaml --yes",),
    "redrive": ("redrive visits.yaml --dry-run", "redrive visits.yaml --reason 'not JSON'"),
    "query": ("query visits.yaml", "query visits.yaml table praha --json"),
}
"""Command lines of each command, without the words `moldau pipeline`."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = _parser()
    options, left = made.parse_known_args(argv)
    if left and (options.command != "run" or any(word.startswith("-") for word in left)):
        made.error(f"unrecognized arguments: {' '.join(left)}")
    if left:  # files behind an option, which argparse does not take together with those in front of it
        options.files.extend(left)
    return run(lambda: _guarded(options))


def _parser() -> argparse.ArgumentParser:
    first = [f"moldau pipeline {some[0]}" for some in EXAMPLES.values()]
    made = parser("pipeline", "Check, run and look after pipelines on Spark.", first, is_local=True)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_add_check, _add_run, _add_status, _add_stop, _add_replay, _add_reset, _add_redrive, _add_query):
        add(commands)
    return made


def _command(
    commands: Any, name: str, act: Callable[[argparse.Namespace], int], purpose: str, several: bool = False
) -> Any:
    examples = "".join(f"  moldau pipeline {each}\n" for each in EXAMPLES[name])
    made = commands.add_parser(
        name,
        help=purpose,
        description=purpose,
        allow_abbrev=False,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(act=act)
    if several:
        made.add_argument("files", metavar="FILE", nargs="+", help="a pipeline, .yaml or .py; several share a Spark")
    else:
        made.add_argument("file", metavar="FILE", help="the pipeline, .yaml or .py")
    made.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="brokers in place of the file's `bootstrap`")
    made.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option in place of the file's: trigger='5 seconds', sinks.table.postgres=URL",
    )
    made.add_argument("--debug", action="store_true", help="show where an error comes from, with all stacks")
    return made


def _with_spark(made: argparse.ArgumentParser) -> None:
    where = made.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="where Spark runs, e.g. spark://host:7077 (default: local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server, e.g. sc://host:15002")


def _add_check(commands: Any) -> None:
    made = _command(commands, "check", _check, "Say what is wrong with the pipeline, before anything starts.")
    made.add_argument("--static", action="store_true", help="look at the file alone: ask no cluster, start no Spark")
    made.add_argument("--json", action="store_true", help="problems and warnings as JSON, for programs")
    _with_spark(made)


def _add_run(commands: Any) -> None:
    made = _command(commands, "run", _run, "Run the pipeline, on from where it stopped.", several=True)
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--once", dest="mode", action="store_const", const="once", help="until all that is there is read")
    mode.add_argument(
        "--continuous", dest="mode", action="store_const", const="continuous", help="until it is stopped (default)"
    )
    mode.add_argument(
        "--realtime", dest="mode", action="store_const", const="realtime", help="likewise, each row as it comes"
    )
    made.set_defaults(mode="continuous")
    made.add_argument(
        "--status-port", type=_port, metavar="PORT", help="serve the status over HTTP; 0: at any port that is free"
    )
    made.add_argument(
        "--status-host", default="127.0.0.1", metavar="HOST", help="where to serve it (default: this machine only)"
    )
    _with_spark(made)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: it is a number from 0 to {PORT_MAX}")
    return int(text)


def _add_status(commands: Any) -> None:
    made = _command(commands, "status", _status, "Show how far a run is, or how the last one ended.")
    made.add_argument("--json", action="store_true", help="all figures, as JSON")


def _add_stop(commands: Any) -> None:
    made = _command(commands, "stop", _stop, "Stop a run after the batch at hand, and wait for its end.")
    made.add_argument("--timeout", type=float, default=STOP_TIMEOUT_S, metavar="SECONDS", help="how long to wait")


def _add_replay(commands: Any) -> None:
    made = _command(commands, "replay", _replay, "Compute a sink again from some time on, into another place.")
    made.add_argument("--from", dest="begin", required=True, metavar="TIME", help="ISO 8601 (UTC), or ms since 1970")
    made.add_argument("--until", dest="end", metavar="TIME", help="without the records of this time and later")
    made.add_argument("--to", required=True, metavar="KIND=VALUE[,OPTION=VALUE...]", help="sqlite=out.db,table=visits")
    made.add_argument("--sink", metavar="NAME", help="which of several sinks")
    _with_spark(made)


def _add_reset(commands: Any) -> None:
    made = _command(commands, "reset", _reset, "Forget how far the pipeline has read: the next run begins anew.")
    made.add_argument("--sink", metavar="NAME", help="only this one")
    made.add_argument("--yes", action="store_true", help="really do it")


def _add_redrive(commands: Any) -> None:
    made = _command(commands, "redrive", _redrive, "Send dead letters back to the topics they came from.")
    made.add_argument("--reason", metavar="TEXT", help="only those with this text in their reason")
    made.add_argument("--source", metavar="NAME", help="only those of this source")
    made.add_argument("--max", type=int, metavar="N", help="so many at most")
    made.add_argument("--dry-run", action="store_true", help="only show what would be sent")


def _add_query(commands: Any) -> None:
    made = _command(commands, "query", _query, "Show rows of a sink, of a table that is joined, or of Spark's state.")
    made.add_argument(
        "table", metavar="TABLE", nargs="?", help="a sink, a source, or SINK.state; without: what there is"
    )
    made.add_argument("key", metavar="KEY", nargs="*", help="only the row of this key; a value for each of its columns")
    made.add_argument("--limit", type=_rows_at_most, default=ROWS_SHOWN, metavar="N", help="so many rows at most")
    made.add_argument("--json", action="store_true", help="the rows as JSON, one a line")


def _rows_at_most(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def _guarded(options: argparse.Namespace) -> int:
    """Run the command, and print every expected failure: as one line, or one for each problem of the file."""
    try:
        code: int = options.act(options)
        return code
    except ModuleNotFoundError as error:
        if (error.name or "moldau").startswith("moldau"):
            raise
        raise ToolError(f"pipelines need the package {error.name!r}: {INSTALL}") from error
    except _expected_errors() as error:
        if options.debug:
            traceback.print_exc()
        sys.stderr.write(_in_lines(error))
        return EXIT_FAILED


def _expected_errors() -> tuple[type[Exception], ...]:
    """Classes of errors whose message is for the user."""
    from moldau.pipelines.file.problems import PipelineError
    from moldau.pipelines.run.query import QueryError
    from moldau.pipelines.run.redrive import RedriveError
    from moldau.pipelines.run.runner import RunFailed
    from moldau.pipelines.run.status_page import PortTaken
    from moldau.pipelines.run.storage import Busy
    from moldau.pipelines.spark.jars import JarsMissing
    from moldau.pipelines.spark.java import JavaMissing
    from moldau.pipelines.spark.session import SessionFailed
    from moldau.pipelines.topics import ClusterError

    of_runs = (PipelineError, RunFailed, SessionFailed, Busy, PortTaken, RedriveError, QueryError)
    return (*of_runs, JavaMissing, JarsMissing, ClusterError)


def _in_lines(error: Exception) -> str:
    from moldau.pipelines.file.problems import PipelineError

    if isinstance(error, PipelineError):
        return "".join(f"{problem}\n" for problem in error.problems)
    return f"error: {' '.join(str(error).split())}\n"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# --- the commands


def _spec(options: argparse.Namespace, ask: bool = False, file: str | None = None) -> "PipelineSpec":
    from moldau.pipelines.file.files import load

    return load(file or options.file, options.bootstrap_server, pairs(options.settings), ask)


def _checked(options: argparse.Namespace, file: str | None = None) -> "PipelineSpec":
    """The spec, after all checks that need no Spark."""
    _need_spark()
    return _sound(_spec(options, ask=True, file=file))


def _sound(spec: "PipelineSpec") -> "PipelineSpec":
    from moldau.pipelines.file.check import check
    from moldau.pipelines.file.problems import PipelineError

    problems = check(spec)
    if problems:
        raise PipelineError(problems)
    return spec


def _need_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise ToolError(f"pipelines need PySpark: {INSTALL}")


def _check(options: argparse.Namespace) -> int:
    if not options.json:
        return _look(options, _say)
    from moldau.pipelines.file.problems import PipelineError

    problems: list[dict[str, Any]] = []
    told: list[str] = []
    try:
        _look(options, told.append)
    except PipelineError as error:
        problems = [
            {"file": each.place.file, "line": each.place.line, "problem": each.words()} for each in error.problems
        ]
    warnings = [line for line in told if ": warning: " in line]
    show_json({"file": options.file, "isSound": not problems, "problems": problems, "warnings": warnings})
    return EXIT_FAILED if problems else 0


def _look(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    from moldau.pipelines.file.check import check_names
    from moldau.pipelines.file.problems import PipelineError
    from moldau.pipelines.run.runner import analyse

    warnings: list[Problem] = []
    if options.static:
        spec = _spec(options)
        problems = list(check_names(spec))
    else:
        spec = _checked(options)
        problems, warnings = analyse(spec, options.master, options.remote)
    if problems:
        raise PipelineError(problems)
    for each in warnings:
        say(f"{each.place}: warning: {each.words()}")
    kinds = f"{len(spec.sources)} sources, {len(spec.views)} views, {len(spec.sinks)} sinks"
    say(f"{options.file}: {spec.name} is sound: {kinds}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from moldau.pipelines.run import runner
    from moldau.pipelines.run.status_page import serving

    specs = _all_checked(options)
    with ExitStack() as around:
        if options.status_port is not None:
            around.enter_context(serving(specs, options.status_host, options.status_port, _say))
        stop, failed = _run_all(specs, options)
    if failed:
        return EXIT_FAILED
    return 128 + stop.number if stop.number and options.mode == runner.ONCE else 0


def _all_checked(options: argparse.Namespace) -> "list[PipelineSpec]":
    """The specs of all files. Raises PipelineError with the problems of all of them."""
    from moldau.pipelines.file.problems import PipelineError

    specs: list[PipelineSpec] = []
    problems: list[Problem] = []
    for file in options.files:
        try:
            specs.append(_checked(options, file))
        except PipelineError as error:
            problems.extend(error.problems)
    if problems:
        raise PipelineError(problems)
    return specs


def _run_all(specs: "list[PipelineSpec]", options: argparse.Namespace) -> "tuple[Stop, list[Exception]]":
    from moldau.pipelines.run import runner, together

    if len(specs) == 1:
        return runner.run(specs[0], options.mode, options.master, options.remote), []
    if options.remote:
        raise ToolError("several pipelines share a Spark of their own, not a Spark Connect server: run them apart")
    return together.run(specs, options.mode, options.master)


def _status(options: argparse.Namespace) -> int:
    from moldau.pipelines.run.status import describe, found

    status = found(_spec(options))
    if options.json:
        _say(json.dumps(status, indent=1))
    else:
        for line in describe(status):
            _say(line)
    return EXIT_FAILED if status["state"] in ("failed", "killed") else 0


def _stop(options: argparse.Namespace) -> int:
    from moldau.pipelines.run.stopping import StopFailed, stop
    from moldau.pipelines.run.storage import Storage

    spec = _spec(options)
    try:
        was_running = stop(spec.name, Storage(spec.storage), options.timeout)
    except StopFailed as error:
        raise ToolError(str(error)) from error
    _say(f"{spec.name} is stopped" if was_running else f"{spec.name} is not running")
    return 0


def _replay(options: argparse.Namespace) -> int:
    from moldau.pipelines.file.files import read
    from moldau.pipelines.file.overrides import override
    from moldau.pipelines.run import replay, runner
    from moldau.pipelines.run.display import Display
    from moldau.pipelines.run.storage import Storage

    try:
        window = replay.Window(replay.moment(options.begin), replay.moment(options.end) if options.end else None)
        to = replay.target(options.to)
    except ValueError as error:
        raise ToolError(str(error)) from error
    production = _checked(options)
    draft = override(read(production.place.file), pairs(options.settings))
    name = replay.new_name(production, datetime.now(UTC))
    spec = _sound(replay.plan(draft, production, options.sink, to, window, name))
    display = Display()
    display.say(f"replay {name}: group {spec.name}.replay.{name}, storage {spec.storage}")
    with Storage(spec.storage).lock() as lock:
        runner.copy_schemas(production, Storage(spec.storage))
        stop = runner.launch(
            spec, runner.ONCE, lock, display, options.master, options.remote, window.shape, with_dead_letters=False
        )
    return 128 + stop.number if stop.number else 0


def _reset(options: argparse.Namespace) -> int:
    from moldau.pipelines.file.problems import suggestion
    from moldau.pipelines.run.reset import reset, what_follows

    spec = _spec(options)
    if options.sink is not None and options.sink not in spec.sinks:
        raise ToolError(f"there is no sink {options.sink!r} ({suggestion(options.sink, spec.sinks)})")
    sink = spec.sinks[options.sink] if options.sink is not None else None
    if not options.yes:
        for each in [sink] if sink is not None else spec.sinks.values():
            _say(f"{each.name}: would begin anew; {what_follows(each)}")
        raise ToolError("nothing was done: say --yes to forget how far the pipeline has read")
    reset(spec, sink, _say)
    return 0


def _redrive(options: argparse.Namespace) -> int:
    from moldau.pipelines.run.redrive import Filter, redrive, said_by

    spec = _spec(options)
    redriven = redrive(spec, Filter(options.reason, options.source, options.max), options.dry_run)
    for line in said_by(redriven, spec, options.dry_run):
        _say(line)
    return 0


def _query(options: argparse.Namespace) -> int:
    from moldau.pipelines.run.query import ask, askable

    spec = _spec(options)
    if options.table is None:
        found: list[dict[str, Any]] = [{"table": name, "is": what} for name, what in askable(spec).items()]
    else:
        found = ask(spec, options.table, options.key, options.limit)
    if options.json:
        for row in found:
            _say(json.dumps(row, default=_as_text))
        return 0
    shown = [{name: _as_cell(value) for name, value in row.items()} for row in found]
    headings = {name: name for row in shown for name in row}
    show_table(options, shown, headings, "no rows" if not options.key else "no row of this key")
    return 0


def _as_text(value: Any) -> str:
    """A value that JSON has no form for: times in ISO 8601, bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def _as_cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, default=_as_text)
    return value if isinstance(value, str | int | float | None) else _as_text(value)
