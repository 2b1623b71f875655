"""Secrets of addresses do not reach messages and files."""

import stat
from pathlib import Path

import pytest

from moldau.pipelines.file.problems import Place, Problem
from moldau.pipelines.run.runner import RunFailed
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.secrets import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://host/path refuses", "https://host/path refuses"),
        ("https://hook.example/in?token=abc123 refuses", "https://hook.example/in?*** refuses"),
        ("https://me:hunter2@host:8443/x?y=1#z: no", "https://***@host:8443/x?*** no"),
        ("postgresql://u:p@ss/w?rd@db/shop", "postgresql://***@db/shop"),
        ("'mongodb://u:p@a,b/c'", "'mongodb://***@a,b/c'"),
        ("host=db password=hunter2 dbname=shop", "host=db password=*** dbname=shop"),
        ("host=db password='hunter 2' dbname=shop", "host=db password=*** dbname=shop"),
        ("basic.auth.user.info=me:hunter2, x", "basic.auth.user.info=***, x"),
        ('FATAL: password authentication failed for user "me"', 'FATAL: password authentication failed for user "me"'),
        ("SASL_SSL://broker:9093", "SASL_SSL://broker:9093"),
    ],
)
def test_addresses_are_shown_without_their_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_what_a_person_is_told_has_no_secret() -> None:
    secret = "https://me:hunter2@host/in?token=abc123"
    problem = Problem(Place("visits.yaml", 3), f"no address: {secret!r}", f"instead of {secret}")
    for told in (str(problem), str(RunFailed("visits.hook", ValueError(f"{secret} refuses")))):
        assert "hunter2" not in told
        assert "abc123" not in told
        assert "host/in" in told


def test_the_status_of_a_run_is_for_its_user_alone(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "run")
    storage.write_status({"error": "https://me:hunter2@host refuses"})
    written = storage.path / "status.json"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert "hunter2" not in written.read_text()
