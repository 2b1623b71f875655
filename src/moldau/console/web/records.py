"""Records of a topic: a page of them, a stream of events, one whole, a download; producing and replaying."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from confluent_kafka import Message
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from moldau.client.message_headers import NO_UTF8
from moldau.console.cluster.clients import CALL_S
from moldau.console.failures import ConsoleError
from moldau.console.records import filters, reading
from moldau.console.records.decoding import CUT_AT, FORMATS, WHOLE_MAX, Decoder
from moldau.console.records.reading import Bounds, Found, Progress, Query, Scan
from moldau.console.records.room import Room
from moldau.console.records.writing import REPLAYED_MAX, Draft, copy_of, write
from moldau.console.web.console import Console, checked_form, console_of, text, visitor_of, whole
from moldau.console.web.topics import found_topic, topic_path
from moldau.console.web.words import counted, moment, visible

PAGE_BOUNDS = Bounds(matches=30)
NEWEST_READ_MAX = 600
"""Records that are read to find the newest of all partitions; with more partitions one of each."""
FILTER_BOUNDS = Bounds(matches=30, seconds=5.0)
EVENT_BOUNDS = Bounds(matches=100_000, records=10_000_000, bytes=2 << 30, seconds=600.0)
DOWNLOAD_BOUNDS = Bounds(matches=100_000, records=1_000_000, bytes=512 << 20, seconds=600.0)
PAGE_TEXT_MAX = 120_000
"""Bytes of keys, values and headers in a list: where there are more of them each is cut shorter."""
CUT_AT_LEAST = 128
CHARACTERS_OF_HEADER = 64
"""One header is shown for so many characters that are shown of a value."""
HEADERS_SHOWN_MAX = 30
HEADER_CUT = 300
HEADERS_WHOLE_MAX = 200
HEADER_WHOLE_CUT = 8192
"""Bounds of a record's own page: the header of a dead letter may have the trace of a stack."""
UNREADABLE = f"its headers cannot be read: {NO_UTF8}"
CHOSEN_S = 60.0
"""Time for reading what is to be copied: nothing is written before all of it is there."""
STREAMS_MAX = 8
SAY_EVERY_S = 0.5
_streams = threading.BoundedSemaphore(STREAMS_MAX)


def decoder_of(console: Console) -> Decoder:
    return Decoder(console.settings.registry)


def _query(request: Request, partitions: int) -> Query:
    """The question in an address. Raises ConsoleError."""
    asked = request.query_params
    start = asked.get("from", reading.END)
    if start not in reading.STARTS:
        raise ConsoleError(f"from is one of {', '.join(reading.STARTS)}")
    wanted = asked.get("as", "auto")
    if wanted not in FORMATS:
        raise ConsoleError(f"as is one of {', '.join(FORMATS)}")
    only, place = asked.get("partition", "").strip(), asked.get("at", "").strip()
    chosen = (whole(only, "the partition", 0, partitions - 1),) if only else tuple(range(partitions))
    words, key = asked.get("filter", ""), asked.get("key", "")
    return Query(
        request.path_params["topic"],
        chosen,
        filters.compiled(words),
        start,
        whole(place, "the offset") if start == reading.OFFSET and place else 0,
        time_ms(place) if start == reading.TIME else 0,
        _positions(asked.get("positions", ""), partitions),
        wanted,
        asked.get("uncommitted") != "1",
        bool(words.strip() or key),
        key or None,
    )


def time_ms(words: str) -> int:
    if words.isdecimal() and len(words) < 18:
        return int(words)
    try:
        at = datetime.fromisoformat(words)
        # brokers take numbers below 0 for something else
        return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise ConsoleError(f"{words[:40]!r} is no time: write 2026-11-18T12:00 or milliseconds") from error


def _positions(words: str, partitions: int) -> dict[int, int]:
    found = {}
    for each in filter(None, words.split(",")):
        partition, _, offset = each.partition(":")
        found[whole(partition, "a partition", 0, partitions - 1)] = whole(offset, "an offset")
    return found


async def records(request: Request) -> Response:
    """Serve `/topics/NAME/records`."""
    console = console_of(request)
    topic = found_topic(console.sampler.snapshot, request.path_params["topic"])
    query = _query(request, len(topic.partitions))
    is_tail = query.start == reading.TAIL or request.query_params.get("stream") == "1"
    bounds = FILTER_BOUNDS if query.is_filtered else PAGE_BOUNDS
    if query.is_newest:  # the newest of a topic may all be in one partition
        count = len(query.partitions)
        bounds = replace(PAGE_BOUNDS, matches=max(count, min(PAGE_BOUNDS.matches * count, NEWEST_READ_MAX)))
    scan = Scan(console.clients, decoder_of(console), query, bounds)
    found = [] if is_tail else await console.clients.run(lambda: [each for each in scan if each is not None])
    newest_first = query.is_newest
    found.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset), reverse=newest_first)
    progress = scan.progress
    shown = found[: PAGE_BOUNDS.matches]
    kept = {name: value for name, value in request.query_params.items() if name not in ("positions", "note", "format")}
    more = not is_tail and not newest_first and not progress.is_over
    data = {
        "title": f"Records of {topic.name}",
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "records": _rows(topic.name, shown),
        "is_tail": is_tail,
        "scanned": len(shown) if newest_first else progress.records,
        "scanned_bytes": progress.bytes,
        "unread": _unread(progress),
        "next": urlencode({**kept, "positions": _at(progress)}) if more else None,
        "search": urlencode({**kept, "stream": "1"}) if more and query.is_filtered else None,
        "download": urlencode(kept),
        "events": f"{topic_path(topic.name)}/events?{urlencode(kept)}",
        "starts": list(reading.STARTS),
        "formats": list(FORMATS),
    }
    return console.page(request, "records.html", data)


def _unread(progress: Progress) -> list[dict[str, Any]]:
    """Partitions that were left out, by the reason."""
    reasons: dict[str, list[int]] = {}
    for partition, why in progress.unread.items():
        reasons.setdefault(why, []).append(partition)
    return [{"why": why, "partitions": partitions} for why, partitions in reasons.items()]


def _rows(topic: str, found: list[Found]) -> list[dict[str, Any]]:
    """Rows of a list that fit into a page together."""
    at_most = CUT_AT
    while True:
        rows = [_shown(topic, each, at_most) for each in found]
        size = sum(map(_size_in_page, rows))
        if size <= PAGE_TEXT_MAX or at_most <= CUT_AT_LEAST:
            return rows
        at_most = max(CUT_AT_LEAST, min(at_most // 2, at_most * PAGE_TEXT_MAX // size))


def _size_in_page(row: dict[str, Any]) -> int:
    texts = [row["key"]["text"], row["value"]["text"], *(text for header in row["headers"] for text in header)]
    return sum(len(escape(text).encode()) for text in texts)


def _shown(topic: str, found: Found, at_most: int = CUT_AT, in_line: bool = True) -> dict[str, Any]:
    headers = found.headers or ()
    count = min(at_most // CHARACTERS_OF_HEADER, HEADERS_SHOWN_MAX if in_line else HEADERS_WHOLE_MAX)
    cut_at = min(at_most // 4, HEADER_CUT) if in_line else HEADER_WHOLE_CUT
    return {
        "partition": found.partition,
        "offset": found.offset,
        "timestamp_ms": found.timestamp_ms,
        "time": moment(found.timestamp_ms),
        "key": found.key.shown(at_most // 8, in_line),
        "value": found.value.shown(at_most, in_line),
        "headers": [_header(name, data, cut_at) for name, data in headers[:count]],
        "headers_left": max(0, len(headers) - count),
        "headers_problem": UNREADABLE if found.headers is None else "",
        "link": f"{topic_path(topic)}/records/{found.partition}/{found.offset}",
    }


def _header(name: str, data: bytes | None, cut_at: int) -> list[str]:
    shown = visible((data or b"")[: 4 * cut_at].decode(errors="backslashreplace"))
    return [visible(name[:cut_at]), shown if len(shown) <= cut_at else f"{shown[: cut_at - 1]}…"]


async def _one(request: Request) -> Message:
    """The record that an address names. Raises ConsoleError."""
    console = console_of(request)
    topic, partition, offset = (request.path_params[each] for each in ("topic", "partition", "offset"))
    count = len(found_topic(console.sampler.snapshot, topic).partitions)
    if partition >= count:
        raise ConsoleError(f"{topic} has the partitions 0 to {count - 1}", 404)
    return await console.clients.run(lambda: reading.one(console.clients, topic, partition, offset))


async def record(request: Request) -> Response:
    """Serve one record, with all of its value that a page can hold."""
    console = console_of(request)
    message = await _one(request)
    topic, partition, offset = (request.path_params[each] for each in ("topic", "partition", "offset"))
    found = reading.found_in(message, decoder_of(console), request.query_params.get("as", "auto"))
    data = {
        "title": f"{topic}-{partition} offset {offset}",
        "topic": topic,
        "record": _shown(topic, found, WHOLE_MAX, in_line=False),
        "formats": list(FORMATS),
    }
    return console.page(request, "record.html", data)


async def raw(request: Request) -> Response:
    """Serve the bytes of a value as a file."""
    message = await _one(request)
    topic, partition, offset = (request.path_params[each] for each in ("topic", "partition", "offset"))
    name = quote(f"{topic}-{partition}-{offset}.bin")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(message.value() or b"", media_type="application/octet-stream", headers=headers)


# --- streams


async def _stream(console: Console, query: Query, bounds: Bounds) -> AsyncIterator[tuple[Found | None, Scan]]:
    """Records of a scan that runs in a thread of its own; who stops iterating stops the thread."""
    if not _streams.acquire(blocking=False):
        raise ConsoleError(f"{STREAMS_MAX} streams are open: close one", 429)
    loop, stopped = asyncio.get_running_loop(), threading.Event()
    queue: asyncio.Queue[Found | BaseException | None] = asyncio.Queue()
    room = Room()
    scan = Scan(console.clients, decoder_of(console), query, bounds, stopped.is_set)

    def read() -> None:
        outcome: BaseException | None = None
        try:
            for each in scan:
                room.enter(_size(each), stopped.is_set)
                loop.call_soon_threadsafe(queue.put_nowait, each)
        except Exception as error:  # told to the one who reads the stream
            outcome = error
        finally:
            _streams.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, outcome or StopAsyncIteration())

    threading.Thread(target=read, name="console-stream", daemon=True).start()
    try:
        while True:
            each = await queue.get()
            if isinstance(each, StopAsyncIteration):
                return
            if isinstance(each, BaseException):
                raise ConsoleError(str(each), 409) from each
            room.leave(_size(each))
            yield each, scan
    finally:
        stopped.set()


def _size(found: Found | None) -> int:
    return 0 if found is None else len(found.raw_key or b"") + len(found.raw_value or b"")


async def events(request: Request) -> Response:
    """Serve records as server-sent events: a live tail, or a search with its progress.

    Progress has the positions as its id: a browser whose connection was cut sends the last one, and misses nothing.
    """
    console = console_of(request)
    topic = found_topic(console.sampler.snapshot, request.path_params["topic"])
    query = _query(request, len(topic.partitions))
    seen = request.headers.get("last-event-id", "")
    if seen:
        query = replace(query, positions=_positions(seen, len(topic.partitions)))

    async def body() -> AsyncIterator[str]:
        said_at, is_tail = -SAY_EVERY_S, query.start == reading.TAIL
        clock = asyncio.get_running_loop().time
        try:
            scan: Scan | None = None
            async for found, scan in _stream(console, query, EVENT_BOUNDS):
                if found is not None:
                    yield _event("record", _shown(topic.name, found))
                if clock() - said_at >= SAY_EVERY_S:
                    said_at = clock()
                    yield _event("progress", _said(scan, is_tail), _at(scan.progress))
            if scan is not None:
                yield _event("done", _said(scan, is_tail, True))
        except ConsoleError as error:
            yield _event("refused", {"words": str(error)})

    return StreamingResponse(body(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _said(scan: Scan, is_tail: bool, is_over: bool = False) -> dict[str, Any]:
    progress = scan.progress
    words = f"{progress.matches:,} of {progress.records:,} records match"
    if progress.unread:
        words += f"; {counted(len(progress.unread), 'partition does', 'partitions do')} not answer"
    if is_tail:
        end = "it has ended: load the page to follow again" if is_over else "following the end"
        return {"words": f"{words}; {end}", "share": None}
    return {"words": f"{words}, {progress.share:.0%} read", "share": progress.share}


def _event(name: str, data: dict[str, Any], id_: str = "") -> str:
    told = f"id: {id_}\n" if id_ else ""
    return f"{told}event: {name}\ndata: {json.dumps(data)}\n\n"


async def download(request: Request) -> Response:
    """Serve records as lines of JSON; bytes that are no text are in base64. A last line says what is missing."""
    console = console_of(request)
    topic = found_topic(console.sampler.snapshot, request.path_params["topic"])
    query = _query(request, len(topic.partitions))
    if query.start == reading.TAIL:
        raise ConsoleError("a live tail has no end: choose another beginning")

    stream = _stream(console, query, DOWNLOAD_BOUNDS)
    found, scan = await anext(stream)  # what refuses the download does so now, while a page can still say it

    async def lines() -> AsyncIterator[str]:
        problem = ""
        if found is not None:
            yield json.dumps(_line(topic.name, found)) + "\n"
        try:
            async for each, _ in stream:
                if each is not None:
                    yield json.dumps(_line(topic.name, each)) + "\n"
        except ConsoleError as error:  # its status is sent: this is the only place left to say it
            problem = str(error)
        missing = _missing(request, scan.progress, problem)
        if missing is not None:
            yield json.dumps(missing) + "\n"

    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(topic.name)}.ndjson"}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


def _missing(request: Request, progress: Progress, problem: str) -> dict[str, Any] | None:
    """The last line of a download that is not whole, with the address at which it goes on."""
    if progress.is_over and not progress.unread:
        return None
    why = problem or (f"cut after {counted(progress.records, 'record')}" if not progress.is_over else "")
    asked = {**request.query_params, "positions": _at(progress)}
    return {
        "problem": why or "partitions were not read",
        "unread": _unread(progress),
        "next": None if progress.is_over else f"{request.url.path}?{urlencode(asked)}",
    }


def _at(progress: Progress) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(progress.positions.items()))


def _line(topic: str, found: Found) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": found.partition,
        "offset": found.offset,
        "timestamp": found.timestamp_ms,
        **_field("key", found.raw_key),
        **_field("value", found.raw_value),
        "headers": None
        if found.headers is None
        else [{"name": name, **_field("value", data)} for name, data in found.headers],
    }


def _field(name: str, data: bytes | None) -> dict[str, Any]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


# --- changes


async def produce(request: Request) -> Response:
    """Serve POST `/topics/NAME/produce`."""
    console = console_of(request)
    topic = found_topic(console.sampler.snapshot, request.path_params["topic"])
    form = await checked_form(request)
    key, value = form.get("key", ""), form.get("value", "")
    partition = text(form, "partition")
    draft = Draft(
        str(key).encode() if key else None,
        None if text(form, "tombstone") == "1" else str(value).replace("\r\n", "\n").encode(),
        _headers(text(form, "headers")),
        whole(partition, "the partition", 0, len(topic.partitions) - 1) if partition else None,
    )

    async def written() -> str:
        [(at, offset)] = await console.clients.run(lambda: write(console.clients, topic.name, [draft]))
        return f"a record is written to {topic.name}-{at} at offset {offset}"

    facts = {"topic": topic.name, "key": str(key)[:200], "bytes": len(draft.value or b"")}
    return await console.change(request, "produce", facts, written, topic_path(topic.name))


def _headers(lines: str) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConsoleError(f"{line[:80]!r} is not of the form name: value")
        found.append((name.strip(), value.strip().encode()))
    return found


async def replay(request: Request) -> Response:
    """Serve POST `/topics/NAME/replay`: copy chosen records to another topic."""
    console = console_of(request)
    source = found_topic(console.sampler.snapshot, request.path_params["topic"])
    form = await checked_form(request)
    target = found_topic(console.sampler.snapshot, text(form, "to"))
    places = []
    for each in form.getlist("record"):
        partition, _, offset = str(each).partition(":")
        places.append((whole(partition, "a partition", 0, len(source.partitions) - 1), whole(offset, "an offset")))
    if not 0 < len(places) <= REPLAYED_MAX:
        raise ConsoleError(f"choose 1 to {REPLAYED_MAX} records")
    user = visitor_of(request).name

    def copied() -> int:
        found = reading.chosen(console.clients, source.name, places, CHOSEN_S)
        return len(write(console.clients, target.name, [copy_of(each, source.name, user) for each in found]))

    async def work() -> str:
        # who waits must not be told that it failed while it goes on
        count = await console.clients.run(copied, CHOSEN_S + 3 * CALL_S)
        return f"{counted(count, 'record')} of {source.name} {'is' if count == 1 else 'are'} copied to {target.name}"

    facts = {"topic": source.name, "to": target.name, "records": [f"{p}:{o}" for p, o in places]}
    return await console.change(request, "replay", facts, work, f"{topic_path(source.name)}/records")
