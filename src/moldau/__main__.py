"""The `moldau` command. A subcommand is imported when asked for: a broker starts without the tools' clients."""

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

from moldau import __version__
from moldau.cli.failures import EXIT_INTERRUPTED

COMMANDS = {
    "serve": ("moldau.broker.main", "run a broker"),
    "topics": ("moldau.cli.topics", "list, create, describe, alter and delete topics"),
    "produce": ("moldau.cli.produce", "send lines of files or of standard input to a topic"),
    "consume": ("moldau.cli.consume", "print the records of a topic"),
    "groups": ("moldau.cli.groups", "list, describe, reset and delete consumer groups, and tell their lag"),
    "offsets": ("moldau.cli.offsets", "show, export, import and verify offsets"),
    "brokers": ("moldau.cli.brokers", "list, describe, drain and shut down brokers"),
    "elect": ("moldau.cli.elect", "elect leaders of partitions"),
    "reassign": ("moldau.cli.reassign", "move replicas between brokers"),
    "configs": ("moldau.cli.configs", "list, describe and alter settings of topics, brokers and groups"),
    "features": ("moldau.cli.features", "describe, raise and lower the levels of features"),
    "records": ("moldau.cli.records", "delete the oldest records of partitions"),
    "replay": ("moldau.cli.replay", "send records once more: to another topic, cluster or file"),
    "perf": ("moldau.cli.perf", "measure producers and consumers, as Kafka's tools do"),
    "transactions": ("moldau.cli.transactions", "look at transactions, and end those that hang"),
    "log": ("moldau.cli.log", "dump and verify the files of a data directory"),
    "state-changes": ("moldau.cli.state_changes", "merge the state-change logs of several brokers"),
    "metrics": ("moldau.cli.metrics", "print the metrics of brokers"),
    "doctor": ("moldau.cli.doctor", "say what is wrong with a cluster or a data directory, and what to do"),
    "completion": ("moldau.cli.completion", "print a script that completes words in bash, zsh or fish"),
    "console": ("moldau.cli.console", "a web console for a cluster"),
    "pipeline": ("moldau.cli.pipeline", "check, run and look after a data pipeline on Spark"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that the first argument names; returns the exit code.

    Without `argv` the process is the command's own, from the shell.
    """
    if argv is not None:
        return _run(argv, import_module)
    _open_closed_streams()
    try:
        code = _run(sys.argv[1:], _imported_unsearched)
        sys.stdout.flush()
    except KeyboardInterrupt:  # while it was imported, or served
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write(f"error: cannot write: {error.strerror}\n")
        code = 1
    else:
        return code
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would complain once more at exit
    return code


def _run(arguments: Sequence[str], imported: Callable[[str], ModuleType]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in COMMANDS:
        module, _ = COMMANDS[name]
        code: int = imported(module).main(list(arguments[1:]))
        return code
    if name in ("-h", "--help", "help"):
        sys.stdout.write(_usage())
        return 0
    if name in ("-V", "--version"):
        sys.stdout.write(f"moldau {__version__}\n")
        return 0
    from difflib import get_close_matches  # only for a mistake

    meant = get_close_matches(name, list(COMMANDS), 1)
    hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(COMMANDS)}"
    sys.stderr.write(f"error: there is no command {name!r}: {hint} (`moldau --help` says what they are for)\n")
    return 2


def _open_closed_streams() -> None:
    """Let a standard stream that the shell closed (`>&-`) take all and give nothing; no socket gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  open until the end


def _imported_unsearched(name: str) -> ModuleType:
    """Module of a command. Nothing that is imported is garbage: to look for some was a tenth of a broker's start."""
    gc.disable()
    module = import_module(name)
    gc.freeze()
    gc.enable()
    return module


def _usage() -> str:
    lines = "".join(f"  moldau {name:13} {purpose}\n" for name, (_, purpose) in COMMANDS.items())
    hint = "`moldau COMMAND --help` says more. The tools work on any Kafka cluster."
    return f"usage: moldau COMMAND ...\n{lines}{hint}\n"


if __name__ == "__main__":
    sys.exit(main())
