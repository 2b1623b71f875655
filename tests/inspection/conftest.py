"""The tools in this process, as the tests of the commands run them."""

from tests.cli.conftest import run_tool

__all__ = ["run_tool"]
