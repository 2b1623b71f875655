"""The lines of a pipeline's file that count: neither blank, comment nor docstring."""

import ast
from pathlib import Path


def lines(file: Path) -> int:
    text = file.read_text()
    left_out = _docstrings(text) if file.suffix == ".py" else set()
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in left_out
        for number, line in enumerate(text.splitlines(), 1)
    )


def _docstrings(text: str) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            written = node.body[0]
            found.update(range(written.lineno, (written.end_lineno or written.lineno) + 1))
    return found
