"""The guard: every request passes it before any page sees it.

The law, in this order: the Host header names this console (a name that an attacker points at 127.0.0.1 does not); where
users are configured nothing but the login page and the files that it needs answers without a session of a user who is
still in their file; a page of another site may lead here, and not ask for anything in passing; a request that changes
something comes from a page of ours (Origin, and a token that only our pages know), from an editor, and not in read-only
mode. Every answer says what browsers may do with it.
"""

import hmac
import ipaddress
import logging
import secrets
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.console.security.sessions import Sessions
from moldau.console.security.users import EDITOR, UserFile
from moldau.console.settings import Settings, is_loopback

log = logging.getLogger("moldau.console")

COOKIE = "moldau_console"
CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
LOGIN = "/login"
OPEN_PATHS = (LOGIN, "/static/")
SAFE_METHODS = ("GET", "HEAD")
BODY_BYTES_MAX = 4 * 1024 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Visitor(NamedTuple):
    """A person or program that asks."""

    name: str
    role: str
    csrf: str
    may_change: bool
    token: str | None = None
    """The session's token; None where nobody logs in."""


class Guard:
    """Middleware that refuses what the law forbids, and says who asks in the scope's `visitor`."""

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions
        self._users = None if settings.users is None else UserFile(settings.users)
        self._names = {_name(each) for each in (*settings.allowed_hosts, settings.host)}
        self._csrf = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            return
        answer = _Answer(send)
        try:
            refusal = self._refusal(HTTPConnection(scope), scope)
            await (refusal or self._app)(scope, _limited(receive), answer)
        except Exception:
            if answer.has_begun:
                raise
            log.exception("%s %r failed", scope["method"], scope["path"])
            await PlainTextResponse("an error of the console: its log says more\n", 500)(scope, receive, answer)

    def _refusal(self, asked: HTTPConnection, scope: Scope) -> Response | None:
        headers = asked.headers
        if not self._is_our_name(headers.get("host", "")):
            return PlainTextResponse("this console is not served under that name: see --allowed-host\n", 421)
        token = asked.cookies.get(COOKIE)
        visitor = self._visitor(token)
        scope["visitor"] = visitor
        path = scope["path"]
        is_open = path == LOGIN or path.startswith(OPEN_PATHS[1])
        if visitor is None and not is_open:
            return _log_in(scope, headers)
        if scope["method"] in SAFE_METHODS:
            return PlainTextResponse("a page of another site asks for this\n", 403) if _is_embedded(headers) else None
        if scope["method"] != "POST":
            return PlainTextResponse("only GET, HEAD and POST are served\n", 405)
        return self._refuse_change(headers, visitor, path)

    def _refuse_change(self, headers: Headers, visitor: Visitor | None, path: str) -> Response | None:
        if not _is_from_here(headers):
            return PlainTextResponse("a page of another site has sent this\n", 403)
        if int(headers.get("content-length") or 0) > BODY_BYTES_MAX:
            return PlainTextResponse(f"more than {BODY_BYTES_MAX} bytes\n", 413)
        if path in (LOGIN, "/logout"):
            return None
        if visitor is None or not visitor.may_change:
            words = "the console is in read-only mode" if self._settings.read_only else "a reader may change nothing"
            return PlainTextResponse(f"{words}\n", 403)
        return None

    def _visitor(self, token: str | None) -> Visitor | None:
        may_write = not self._settings.read_only
        if self._users is None:
            return Visitor("", EDITOR, self._csrf, may_write)
        session = self._sessions.find(token)
        if session is None:
            return None
        user = self._users.users().get(session.user)
        if user is None or user.hashed != session.hashed:  # he was removed, or changed in any way
            self._sessions.end(token)
            return None
        return Visitor(user.name, user.role, session.csrf, may_write and user.role == EDITOR, token)

    def _is_our_name(self, host: str) -> bool:
        """Whether a browser was told to go to this console: an address, `localhost`, or a name that was configured."""
        name = _name(host)
        if name is None:
            return False
        if name in self._names or is_loopback(name):
            return True
        if is_loopback(self._settings.host):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_from_here(headers: Headers) -> bool:
    """Whether a POST comes from our own page. Browsers say so; a program without a browser says nothing at all."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or _place(origin) == headers.get("host")


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_embedded(headers: Headers) -> bool:
    """Whether a page of another origin asks by itself: nobody follows a link. It could not read what it gets, but would
    make the console work."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    return headers.get("sec-fetch-mode") != "navigate" or headers.get("sec-fetch-dest") != "document"


def is_token_right(visitor: Visitor, form: Mapping[str, object], headers: Headers) -> bool:
    """Whether a change brought the token of our pages."""
    sent = form.get(CSRF_FIELD) or headers.get(CSRF_HEADER) or ""
    return isinstance(sent, str) and hmac.compare_digest(sent.encode(), visitor.csrf.encode())


def _log_in(scope: Scope, headers: Headers) -> Response:
    wants_json = "application/json" in headers.get("accept", "") or b"format=json" in scope["query_string"]
    if scope["method"] != "GET" or wants_json or "text/event-stream" in headers.get("accept", ""):
        return JSONResponse({"error": "log in first"}, 401)
    query = f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
    return RedirectResponse(f"{LOGIN}?next={quote(scope['path'] + query, safe='')}", 303)


def _limited(receive: Receive) -> Receive:
    """Receive at most the bytes that a form of ours may have: a length in a header may be missing."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_BYTES_MAX:
            return {"type": "http.disconnect"}
        return message

    return limited


class _Answer:
    """An answer on its way, with what browsers may do with it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
