"""Login and logout."""

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from moldau.console.failures import ConsoleError
from moldau.console.security.guard import COOKIE
from moldau.console.security.users import User, read_users, who
from moldau.console.web.console import console_of, local_path, text

AT_ONCE_MAX = 2
_hashing = asyncio.Semaphore(AT_ONCE_MAX)
"""Hashing takes 16 MiB and a core for 50 ms: guesses must not take the whole machine."""


async def login_page(request: Request) -> Response:
    """Serve `/login`."""
    console = console_of(request)
    if console.settings.users is None or request.scope.get("visitor") is not None:
        return RedirectResponse("/", 303)
    data = {"title": "Log in", "words": "", "next": local_path(request.query_params.get("next", "/"))}
    return console.page(request, "login.html", data)


async def login(request: Request) -> Response:
    """Serve POST `/login`."""
    console = console_of(request)
    path = console.settings.users
    if path is None:
        raise ConsoleError("nobody has to log in here", 404)
    form = await request.form(max_fields=10, max_files=0)
    then = local_path(text(form, "next", "/"))
    user: User | None = None
    async with _hashing:
        if not console.sessions.is_guessed_at:  # asked here, as many may have come at once
            name, password = text(form, "name"), str(form.get("password", ""))
            user = await asyncio.to_thread(lambda: who(read_users(path), name, password))
            if user is None:
                console.sessions.failed()
    if user is None:
        guessed = console.sessions.is_guessed_at
        words = "too many wrong passwords: wait a minute" if guessed else "name or password are wrong"
        data = {"title": "Log in", "words": words, "next": then}
        return console.page(request, "login.html", data, 429 if guessed else 403)
    answer = RedirectResponse(then, 303)
    console.sessions.end(request.cookies.get(COOKIE))
    token = console.sessions.begin(user.name, user.role, user.hashed)
    # TLS is what a proxy speaks; who lies here takes the cookie from himself alone
    is_secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_secure, path="/")
    return answer


async def logout(request: Request) -> Response:
    """Serve POST `/logout`."""
    console_of(request).sessions.end(request.cookies.get(COOKIE))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer
