"""Sessions of people who have logged in: random tokens, kept in memory, so that a restart ends them all."""

import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

IDLE_S_MAX = 2 * 3600.0
AGE_S_MAX = 12 * 3600.0
SESSIONS_MAX = 1000
TOKEN_BYTES = 32
FAILURES_MAX = 10
FAILURES_S = 60.0
"""Seconds in which so many wrong passwords stop everybody from trying another."""


@dataclass(slots=True)
class Session:
    """A person who has logged in."""

    user: str
    role: str
    csrf: str
    begun_s: float
    used_s: float
    hashed: bytes = b""
    """The hash of the password with which it began."""


class Sessions:
    """All sessions; the one that was used longest ago goes when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._failures: deque[float] = deque(maxlen=FAILURES_MAX)

    def begin(self, user: str, role: str, hashed: bytes = b"") -> str:
        """The token of a new session."""
        now = self._clock()
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._sessions[token] = Session(user, role, secrets.token_urlsafe(TOKEN_BYTES), now, now, hashed)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return token

    def find(self, token: str | None) -> Session | None:
        """The session of a token, unless it has ended."""
        session = self._sessions.get(token) if token else None
        if token is None or session is None:
            return None
        now = self._clock()
        if now - session.used_s > IDLE_S_MAX or now - session.begun_s > AGE_S_MAX:
            del self._sessions[token]
            return None
        session.used_s = now
        self._sessions.move_to_end(token)
        return session

    def end(self, token: str | None) -> None:
        if token:
            self._sessions.pop(token, None)

    def failed(self) -> None:
        """Note a wrong password."""
        self._failures.append(self._clock())

    @property
    def is_guessed_at(self) -> bool:
        """Whether there were too many wrong passwords just now."""
        return len(self._failures) == FAILURES_MAX and self._clock() - self._failures[0] < FAILURES_S
