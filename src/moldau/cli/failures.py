"""Exit codes of the tools, and the error that ends one."""

from moldau.core.arguments import EXIT_USAGE

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "ToolError", "WrongUsage"]

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class ToolError(Exception):
    """Error: the command cannot do its work; the message is one line that says what to do."""

    exit_code = EXIT_FAILED


class WrongUsage(ToolError):
    """Error: what the command line asks for contradicts itself, or leaves something out."""

    exit_code = EXIT_USAGE
