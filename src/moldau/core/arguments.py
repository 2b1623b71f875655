"""Command lines: a parser whose complaints are one line, and what is said of a mistyped word."""

import argparse
from collections.abc import Iterable
from typing import NoReturn

ALIKE = 0.6
"""Likeness from which on a word may be the one that was meant, as difflib measures it."""
EXIT_USAGE = 2


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, say what may have been meant, and name the help."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        _, colon, unknown = message.partition("unrecognized arguments: ")
        meant = self.meant((unknown.split() or [""])[0].partition("=")[0]) if colon else ""
        self.exit(EXIT_USAGE, f"{self.prog}: error: {printable(message)}{meant}\n`{self.prog} --help` says more.\n")

    def meant(self, word: str) -> str:
        """Words behind the complaint about an option that there is not: what may have been meant; or none."""
        return likely(word, self._option_string_actions)


def likely(word: str, known: Iterable[str]) -> str:
    """The words `: did you mean X?`, where a known word is like this one; nothing where none is."""
    from difflib import get_close_matches  # 3 ms that only a mistake needs

    found = get_close_matches(word, list(known), 1, ALIKE)
    return f": did you mean {found[0]}?" if found else ""


def printable(text: str) -> str:
    """The text without control characters but tabs: a client id may hold what moves a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(each if each == "\t" or each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
