"""The unit for systemd and the container's file name only what is there, and start what they should."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from moldau.broker.main import argument_parser, chosen_properties
from moldau.core.broker_config import BrokerConfig

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging" / "moldau.service"
INSTRUCTIONS = ("FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Containerfile").read_text()).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def serves(words: list[str]) -> BrokerConfig:
    """The configuration that a `moldau serve` of these words would have."""
    assert Path(words[0]).name == "moldau"
    assert words[1] == "serve"
    options = argument_parser().parse_args([word for word in words[2:] if word != "/etc/moldau/server.properties"])
    config, unknown = BrokerConfig.parse(chosen_properties(options))
    assert not unknown
    return config


def test_the_container_copies_only_what_is_there() -> None:
    copied = [words.split()[:-1] for name, words in instructions() if name == "COPY" and "--from" not in words]
    names = [name for each in copied for name in each]
    assert "src" in names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_container_has_known_instructions_and_no_root() -> None:
    names = [name for name, _ in instructions()]
    assert set(names) <= {*INSTRUCTIONS, "ENTRYPOINT"}
    [user] = [words for name, words in instructions() if name == "USER"]
    assert any(words.split("&&")[0].rstrip().endswith(f" {user}") for name, words in instructions() if name == "RUN")
    assert user != "root"


def test_the_container_serves_on_the_ports_that_it_exposes() -> None:
    found = dict(instructions())
    config = serves([*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])])
    assert list(config.data_directories) == ["/var/lib/moldau"]
    assert config.string("metrics.listener").endswith(":9404")
    assert found["EXPOSE"].split() == ["9092", "9404"]
    health = json.loads(found["HEALTHCHECK"].split("CMD ", 1)[1])
    assert health[0] == "python"
    compile(health[2], "health", "exec")
    assert "http://127.0.0.1:9404/healthz" in health[2]


def test_the_unit_starts_a_broker_with_a_users_rights() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    unit.read(UNIT)
    service = dict(unit["Service"])
    serves(shlex.split(service["ExecStart"]))
    assert service["User"] == "moldau"
    assert service["KillSignal"] == "SIGTERM"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.foreign
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # the test before reads the unit without it
    text = re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text())  # it asks whether the program is there
    (tmp_path / "moldau.service").write_text(text)
    told = subprocess.run([analyze, "verify", tmp_path / "moldau.service"], capture_output=True, text=True, check=False)
    assert (told.returncode, "moldau.service" in told.stderr) == (0, False), told.stderr
