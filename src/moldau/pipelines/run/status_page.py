"""The status of running pipelines over HTTP: the same as `moldau pipeline status --json`, and a page for people.

It can only be read, says nothing that the files in the storage do not say, and listens on this machine unless told
otherwise: nobody is asked who they are.
"""

import html
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.status import describe, found

LIST = "/pipelines"
HEALTH = "/healthz"
WELL = ("starting", "running", "stopping", "finished", "stopped")
READ_WAIT_S = 10.0
"""Seconds that a client has for its request."""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Pipelines</title>
<meta http-equiv="refresh" content="5"></head><body><h1>Pipelines</h1>{}</body></html>
"""


class PortTaken(Exception):
    """Error: the status page cannot listen where it was told to."""


@contextmanager
def serving(specs: Sequence[PipelineSpec], host: str, port: int, say: Callable[[str], None]) -> Iterator[str]:
    """Serve the status of pipelines inside the block, at the address that is returned. Port 0: any that is free."""
    by_name = {spec.name: spec for spec in specs}

    class Handler(_Handler):
        pipelines = by_name

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of a client that went away."""

    try:
        server = Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise PortTaken(f"the status page cannot listen at {host}:{port}: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="status", daemon=True)
    thread.start()
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{server.server_address[1]}"
    say(f"status at {address}{LIST}")
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    pipelines: dict[str, PipelineSpec]
    timeout = READ_WAIT_S
    server_version = "moldau"
    sys_version = ""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/":
            self._answer(HTTPStatus.OK, self._page(), "text/html; charset=utf-8")
        elif path == HEALTH:
            states = {name: found(spec)["state"] for name, spec in self.pipelines.items()}
            well = all(state in WELL for state in states.values())
            self._json(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, states)
        elif path.rstrip("/") == LIST:
            self._json(HTTPStatus.OK, [found(spec) for spec in self.pipelines.values()])
        else:
            name = unquote(path.removeprefix(f"{LIST}/")) if path.startswith(f"{LIST}/") else None
            spec = self.pipelines.get(name or "")
            if spec is None:
                words = f"no pipeline {name!r} runs here" if name else f"nothing is at {path}: ask for {LIST}"
                self._json(HTTPStatus.NOT_FOUND, {"error": words})
            else:
                self._json(HTTPStatus.OK, found(spec))

    do_HEAD = do_GET

    def _page(self) -> str:
        texts = ("\n".join(describe(found(spec))) for spec in self.pipelines.values())
        return PAGE.format("".join(f"<pre>{html.escape(text)}</pre>" for text in texts))

    def _json(self, code: HTTPStatus, value: Any) -> None:
        self._answer(code, json.dumps(value, indent=1) + "\n", "application/json")

    def _answer(self, code: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is for the run."""
