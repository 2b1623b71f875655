"""The application: routes, the guard before them, and failures as pages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from moldau.console.failures import ConsoleError
from moldau.console.security.guard import Guard
from moldau.console.settings import Settings
from moldau.console.web import (
    clients,
    groups,
    letters,
    login,
    overview,
    pipelines,
    records,
    topics,
    topology,
    transactions,
)
from moldau.console.web.console import Console, console_of

STATIC = Path(__file__).with_name("static")
GET, POST = ["GET"], ["POST"]


class _Name(PathConvertor):
    """A part of an address with anything in it, also ends of lines: groups may have any name."""

    regex = "(?s:.*)"


register_url_convertor("name", _Name())
ROUTES = (
    Route("/", overview.overview, methods=GET),
    Route("/login", login.login_page, methods=GET),
    Route("/login", login.login, methods=POST),
    Route("/logout", login.logout, methods=POST),
    Route("/topics", topics.topics, methods=GET),
    Route("/topics", topics.create, methods=POST),
    Route("/topics/{topic}", topics.topic, methods=GET),
    Route("/topics/{topic}/config", topics.configure, methods=POST),
    Route("/topics/{topic}/partitions", topics.grow, methods=POST),
    Route("/topics/{topic}/delete", topics.delete, methods=POST),
    Route("/topics/{topic}/produce", records.produce, methods=POST),
    Route("/topics/{topic}/records", records.records, methods=GET),
    Route("/topics/{topic}/replay", records.replay, methods=POST),
    Route("/topics/{topic}/events", records.events, methods=GET),
    Route("/topics/{topic}/download", records.download, methods=GET),
    Route("/topics/{topic}/records/{partition:int}/{offset:int}", records.record, methods=GET),
    Route("/topics/{topic}/records/{partition:int}/{offset:int}/raw", records.raw, methods=GET),
    Route("/groups", groups.groups, methods=GET),
    Route("/groups/{group:name}/reset", groups.plan, methods=GET),
    Route("/groups/{group:name}/reset", groups.reset, methods=POST),
    Route("/groups/{group:name}", groups.group, methods=GET),
    Route("/clients", clients.clients, methods=GET),
    Route("/clients/{id}", clients.client, methods=GET),
    Route("/topology", topology.topology, methods=GET),
    Route("/pipelines", pipelines.pipelines, methods=GET),
    Route("/pipelines/{name}", pipelines.pipeline, methods=GET),
    Route("/pipelines/{name}/stop", pipelines.stop, methods=POST),
    Route("/pipelines/{name}/start", pipelines.start, methods=POST),
    Route("/pipelines/{name}/restart", pipelines.restart, methods=POST),
    Route("/letters", letters.letters, methods=GET),
    Route("/letters/{topic}", letters.letters_of, methods=GET),
    Route("/letters/{topic}/redrive", letters.redrive, methods=POST),
    Route("/transactions", transactions.transactions, methods=GET),
    Route("/transactions/abort", transactions.abort, methods=POST),
    Mount("/static", StaticFiles(directory=STATIC)),
)


def application(settings: Settings) -> Starlette:
    """The console as an ASGI application."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await console.start()
        yield
        await console.stop()

    app = Starlette(
        routes=list(ROUTES),
        middleware=[Middleware(Guard, settings=settings, sessions=console.sessions)],
        exception_handlers={ConsoleError: _refused, HTTPException: _not_there, ClientDisconnect: _cut_off},
        lifespan=lifespan,
    )
    app.state.console = console
    return app


async def _refused(request: Request, error: Exception) -> Response:
    return console_of(request).error(request, error if isinstance(error, ConsoleError) else ConsoleError(str(error)))


async def _not_there(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = "there is no such page" if status == 404 else str(getattr(error, "detail", error))
    return console_of(request).error(request, ConsoleError(words, status))


async def _cut_off(request: Request, _: Exception) -> Response:
    """The answer to a body that the guard cut off; a client that went away does not see it."""
    return console_of(request).error(request, ConsoleError("the form is too large", 413))
