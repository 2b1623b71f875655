"""The `moldau` command. A subcommand is imported when asked for: a broker starts without the tools' clients."""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from moldau import __version__

COMMANDS = {
    "serve": ("moldau.broker.main", "run a broker"),
    "topics": ("moldau.cli.topics", "list, create, describe, alter and delete topics"),
    "produce": ("moldau.cli.produce", "send lines from standard input to a topic"),
    "consume": ("moldau.cli.consume", "print the records of a topic"),
    "transactions": ("moldau.cli.transactions", "look at transactions, and end those that hang"),
    "pipeline": ("moldau.cli.pipeline", "check, run and look after a data pipeline on Spark"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that the first argument names; returns the exit code.

    Without `argv` the process is the command's own, from the shell.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    if name in COMMANDS:
        module, _ = COMMANDS[name]
        command = import_module(module) if argv is not None else _imported_unsearched(module)
        code: int = command.main(arguments[1:])
        return code
    if name in ("-h", "--help", "help"):
        sys.stdout.write(_usage())
        return 0
    if name in ("-V", "--version"):
        sys.stdout.write(f"moldau {__version__}\n")
        return 0
    sys.stderr.write(f"error: there is no command {name!r}\n{_usage()}")
    return 2


def _imported_unsearched(name: str) -> ModuleType:
    """Module of a command. Nothing that is imported is garbage: to look for some was a tenth of a broker's start."""
    gc.disable()
    module = import_module(name)
    gc.freeze()
    gc.enable()
    return module


def _usage() -> str:
    lines = "".join(f"  moldau {name:12} {purpose}\n" for name, (_, purpose) in COMMANDS.items())
    hint = "`moldau COMMAND --help` says more. The tools work on any Kafka cluster."
    return f"usage: moldau COMMAND ...\n{lines}{hint}\n"


if __name__ == "__main__":
    sys.exit(main())
