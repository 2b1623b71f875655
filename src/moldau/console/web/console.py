"""Frame of all pages: what each of them has at hand, how it is rendered, and how a change is made.

A page is data: the same dictionary is rendered by a template for people and given as JSON to programs that ask with
`?format=json` or by their Accept header. A change is noted in the audit log before it is tried, and answered with a
redirect to a page that shows the outcome.
"""

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from moldau.console.cluster.clients import Clients
from moldau.console.cluster.sampler import Sampler
from moldau.console.failures import ConsoleError
from moldau.console.pipelines.watched import Pipelines
from moldau.console.security.audit import AuditLog
from moldau.console.security.guard import Visitor, is_token_right
from moldau.console.security.sessions import Sessions
from moldau.console.settings import Settings
from moldau.console.web import words

NOTES_MAX = 200
FIELDS_MAX = 2000


class Section(NamedTuple):
    """A part of the console, in the navigation."""

    title: str
    path: str
    is_there: Callable[[Settings], bool] = lambda _: True


NAVIGATION = (
    Section("Overview", "/"),
    Section("Topics", "/topics"),
    Section("Groups", "/groups"),
    Section("Clients", "/clients"),
    Section("Topology", "/topology"),
    Section("Pipelines", "/pipelines", lambda settings: bool(settings.pipelines)),
    Section("Dead letters", "/letters"),
    Section("Transactions", "/transactions"),
)
"""Sections in their order. Users, rights, quotas, links and audit get their line here with their pages."""


class Console:
    """Parts of a running console."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.sampler = Sampler(self.clients)
        self.pipelines = Pipelines(settings.pipelines, settings.bootstrap)
        self.sessions = Sessions()
        self.audit = None if settings.audit_log is None else AuditLog(settings.audit_log)
        self.letter_topics: dict[str, tuple[int, bool]] = {}
        """Ends of topics that were looked at for dead letters, and whether there were some."""
        self._notes: OrderedDict[str, tuple[str, bool]] = OrderedDict()
        self._templates = Environment(
            loader=PackageLoader("moldau.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "size": words.size,
            "number": words.number,
            "figure": words.figure,
            "counted": words.counted,
            "rate": words.rate,
            "span": words.span,
            "moment": words.moment,
            "visible": words.visible,
            "at_page": lambda query, page: urlencode({**query, "page": page}),
            "part": lambda text: quote(str(text), safe=""),
        }

    async def start(self) -> None:
        await self.sampler.start()

    async def stop(self) -> None:
        await self.sampler.stop()
        self.clients.close()

    # --- pages

    def page(self, request: Request, template: str, data: Mapping[str, Any], status: int = 200) -> Response:
        """The page for a person, or its data for a program."""
        if wants_json(request):
            return JSONResponse(_plain(data), status)
        note, is_error = self._notes.pop(request.query_params.get("note", ""), ("", False))
        section = next((each.path for each in reversed(NAVIGATION) if request.url.path.startswith(each.path)), "/")
        frame = {
            "console": self,
            "visitor": request.scope.get("visitor"),
            "navigation": [each for each in NAVIGATION if each.is_there(self.settings)],
            "section": section,
            "note": note,
            "note_is_error": is_error,
            "failure": self.sampler.failure,
            "seen_ms": self.sampler.snapshot.at_ms,
            "query": request.query_params,
            "path": request.url.path,
        }
        return HTMLResponse(self._templates.get_template(template).render(**frame, **data), status)

    def error(self, request: Request, error: ConsoleError) -> Response:
        """The page of a failure."""
        if wants_json(request):
            return JSONResponse({"error": str(error)}, error.status)
        return self.page(request, "error.html", {"title": "Not done", "words": str(error)}, error.status)

    # --- changes

    async def change(
        self,
        request: Request,
        what: str,
        of: Mapping[str, Any],
        work: Callable[[], Awaitable[str]],
        then: str,
    ) -> Response:
        """Make a change: `work` returns what was done, in words; `then` is the page that shows it."""
        visitor = visitor_of(request)
        address = request.client.host if request.client else ""
        if self.audit is None:
            raise ConsoleError("the console is in read-only mode", 403)
        note = self.audit.begin(visitor.name, address, what, of)
        try:
            done = await work()
        except BaseException as error:
            with suppress(ConsoleError):
                note(f"failed: {error}")
            if isinstance(error, ConsoleError) and not wants_json(request):
                return self._redirect(then, str(error), True)
            raise
        note(f"done: {done}")
        await self.sampler.refresh()
        return JSONResponse({"done": done}) if wants_json(request) else self._redirect(then, done, False)

    def _redirect(self, location: str, words: str, is_error: bool) -> Response:
        """A redirect; the words wait here, so that no address can put words into our page."""
        token = secrets.token_urlsafe(8)
        self._notes[token] = (words, is_error)
        while len(self._notes) > NOTES_MAX:
            self._notes.popitem(last=False)
        glue = "&" if "?" in location else "?"
        return RedirectResponse(f"{location}{glue}{urlencode({'note': token})}", 303)


def console_of(request: Request) -> Console:
    return cast(Console, request.app.state.console)


def visitor_of(request: Request) -> Visitor:
    visitor = request.scope.get("visitor")
    if visitor is None:
        raise ConsoleError("log in first", 401)
    return cast(Visitor, visitor)


async def checked_form(request: Request) -> FormData:
    """The form of a change, after its token was looked at."""
    form = await request.form(max_fields=FIELDS_MAX, max_files=0)
    if not is_token_right(visitor_of(request), form, request.headers):
        raise ConsoleError("the page that sent this is too old: load it again", 403)
    return form


def text(form: Mapping[str, Any], name: str, default: str = "") -> str:
    """A field of a form, without blanks around it."""
    value = form.get(name, default)
    return value.strip() if isinstance(value, str) else default


def whole(words_: str, what: str, lowest: int = 0, highest: int = (1 << 63) - 1) -> int:
    """A whole number that somebody has written. Raises ConsoleError."""
    if not words_.removeprefix("-").isdecimal() or len(words_) > 20 or not lowest <= int(words_) <= highest:
        raise ConsoleError(f"{what} is a whole number from {lowest} to {highest}, not {words_[:40]!r}")
    return int(words_)


def wants_json(request: Request) -> bool:
    asked = request.query_params.get("format")
    if asked is not None:
        return asked == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def local_path(path: str) -> str:
    """The path, if it is one of this console; else its first page."""
    parts = urlsplit(path)
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and not parts.scheme
    return path if is_ours and path.isprintable() else "/"


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data without what only templates need; charts are series of times and figures."""
    told = {key: value for key, value in data.items() if key not in ("charts", "graph")}
    if "charts" in data:
        told["series"] = [
            {"title": each.title, "points": [[int(1000 * point.at_s), point.value] for point in each.points]}
            for each in data["charts"]
        ]
    return told


class Slice(NamedTuple):
    """A page of a long list."""

    items: list[Any]
    page: int
    pages: int
    total: int


def sliced(items: list[Any], page: str, length: int = 50) -> Slice:
    """The part of a list that a page shows; pages are counted from 1."""
    pages = max(1, -(-len(items) // length))
    number = min(pages, max(1, int(page))) if page.isdecimal() and len(page) < 10 else 1
    return Slice(items[(number - 1) * length : number * length], number, pages, len(items))
