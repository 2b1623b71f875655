"""Registry of the API keys that are served: exactly those with a file `kNN_name.py` in `handlers/`.

A handler serves all versions of its tables. Its module is imported at the first request, or after the start.
"""

import importlib
import os
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from moldau.protocol.apis import find
from moldau.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.schema import Message
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from moldau.requests.pieces import Pieces

Handler = Callable[[Any, RequestContext], Message | PendingAnswer | None]
"""None: the client wants no answer (acks=0)."""

TELEMETRY = frozenset({71, 72})

_HANDLERS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "handlers")


@cache
def modules() -> dict[int, str]:
    """API key to the name of its handler's module, in key order."""
    names = (re.fullmatch(r"(k(\d+)_\w+)\.py", entry) for entry in os.listdir(_HANDLERS))
    return dict(sorted((int(match[2]), match[1]) for match in names if match))


def served_versions(key: int) -> tuple[int, int] | None:
    """First and last version served of an API key, None if it has no handler."""
    api = find(key) if key in modules() else None
    return None if api is None else (api.min_version, api.max_version)


def handler(key: int) -> Handler:
    """The function that answers requests of this key."""
    handle: Handler = importlib.import_module(f"moldau.handlers.{modules()[key]}").handle
    return handle


def pieces(key: int, version: int) -> Pieces | None:
    """Pieces into which long requests of this key are cut, if they are. A file that cuts versions differently has a
    dictionary, by the first version."""
    cut: Pieces | dict[int, Pieces] | None
    cut = getattr(importlib.import_module(f"moldau.handlers.{modules()[key]}"), "PIECES", None)
    return cut[max(first for first in cut if first <= version)] if isinstance(cut, dict) else cut


def api_versions_answer(error_code: int = 0, *, with_telemetry: bool = False) -> ApiVersionsResponse:
    """Answer to ApiVersions: all that we serve. A client that hears of telemetry pushes it."""
    keys = [key for key in modules() if with_telemetry or key not in TELEMETRY]
    served = [api for api in map(find, keys) if api is not None]
    ranges = [ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version) for api in served]
    return ApiVersionsResponse(error_code=error_code, api_keys=ranges)
