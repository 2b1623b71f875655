"""A console over an in-process broker, with a client that asks it as a browser or a program would."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from moldau.console.app import application
from moldau.console.settings import Settings
from moldau.console.web.console import Console

ORIGIN = "http://localhost"
SAMPLE_S = 3600.0
"""Tests look by themselves: nothing changes behind their backs."""


class Asking:
    """A client of a console."""

    def __init__(self, client: TestClient, console: Console) -> None:
        self.client = client
        self.console = console

    def page(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == status, answer.text
        return answer.text

    def json(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path, headers={"Accept": "application/json"})
        assert answer.status_code == status, answer.text
        return answer.json()

    def token(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.page("/topics"))
        assert found is not None
        return found[1]

    def post(self, path: str, fields: Mapping[str, Any], status: int = 200) -> Any:
        headers = {"Accept": "application/json", "Origin": ORIGIN}
        answer = self.client.post(path, data={"csrf": self.token(), **fields}, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def look(self) -> None:
        """Look at the cluster again, now."""
        assert self.client.portal is not None
        self.client.portal.call(self.console.sampler.refresh)


@contextmanager
def asking(bootstrap: str, directory: Path, **more: Any) -> Iterator[Asking]:
    """A running console, without a socket."""
    audit = None if more.get("read_only") else directory / "audit.jsonl"
    settings = Settings(
        bootstrap=bootstrap,
        properties={"bootstrap.servers": bootstrap, "log_level": 0},
        audit_log=audit,
        sample_s=SAMPLE_S,
        **more,
    )
    app = application(settings)
    with TestClient(app, base_url=ORIGIN) as client:
        yield Asking(client, app.state.console)
