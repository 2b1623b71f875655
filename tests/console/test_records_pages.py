"""Records: reading, filtering, following, writing and copying them."""

import itertools
import json
import threading
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer

from moldau.console.failures import ConsoleError
from moldau.console.records import reading, room
from moldau.console.records.reading import Bounds, Found, Query
from moldau.console.records.room import WAITING_MAX, Room
from moldau.console.web import records
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import ORIGIN, Asking
from tests.raw_records import produce_broken_header

BIG = 10_000_000
BEGUN_MS = int(time.time() * 1000)


@pytest.fixture(scope="module", autouse=True)
def _visits(producer: Producer, console: Asking) -> None:
    for number in range(40):
        value = json.dumps({"number": number, "country": "CZ" if number % 4 == 0 else "DE"})
        trace: list[tuple[str, str | bytes | None]] = [("trace", f"t{number}".encode())]
        producer.produce("visits", value, f"k{number}", number % 2, headers=trace, timestamp=BEGUN_MS + number)
    hostile = {
        b"script": b"<script>alert(1)</script>",
        b"</pre><script>alert(2)</script>": b"x",
        b"controls": b"\x1b[31mred\x07 \xe2\x80\xae gnp.exe",
        b"broken": b'\xff\xfe{"a": \xc3\x28}',
        b"deep": b"[" * 200_000,
        b"digits": b"9" * 100_000,
        b"big": b"y" * BIG,
    }
    for key, body in hostile.items():
        producer.produce("hostile", body, key, 0, headers=[("<b>", b"<i>\x00")])
    producer.produce("hostile", None, b"tombstone", 0)
    producer.flush(20)
    console.look()


def numbers(told: Any) -> list[int]:
    return [json.loads(each["value"]["text"])["number"] for each in told["records"]]


def test_the_newest_records_of_all_partitions_come_first(console: Asking, producer: Producer) -> None:
    """The newest 40 are in either partition, or all in one of them."""
    assert sorted(numbers(console.json("/topics/visits/records"))) == list(range(10, 40))
    assert numbers(console.json("/topics/visits/records?partition=1")) == list(range(39, 0, -2))
    for number in range(100):
        producer.produce("uneven", json.dumps({"number": number}), partition=number // 50, timestamp=1000 + number)
    assert producer.flush(20) == 0
    console.look()
    assert numbers(console.json("/topics/uneven/records")) == list(range(99, 69, -1))


def test_reading_goes_on_where_the_page_ended(console: Asking) -> None:
    first = console.json("/topics/visits/records?from=beginning")
    second = console.json(f"/topics/visits/records?{first['next']}")
    assert sorted(numbers(first) + numbers(second)) == list(range(40))
    assert second["next"] is None


def test_a_filter_reads_keys_headers_and_fields(console: Asking) -> None:
    words = 'value.country == "CZ" and value.number > 10 and headers.trace ~ "^t[123]"'
    told = console.json(f"/topics/visits/records?from=beginning&filter={words}")
    assert sorted(numbers(told)) == [12, 16, 20, 24, 28, 32, 36]
    assert numbers(console.json("/topics/visits/records?from=beginning&key=k17")) == [17]
    assert numbers(console.json("/topics/visits/records?from=beginning&filter=value.number > 17&key=k17")) == []
    assert "at character" in console.json("/topics/visits/records?filter=value ===", 400)["error"]


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        (b'{"id":1,"of":"CZ"}', '{"id":1,"of":"CZ"}'),
        (b'{"id":1,"of":"CZ"}', '{"id": 1, "of": "CZ"}'),
        (b"1e5", "1e5"),
        (b"007", "007"),
        (b'"quoted"', "quoted"),
        (b"\xff\x01", "ff01"),
    ],
)
def test_a_key_is_found_as_it_was_written_and_as_it_is_shown(
    console: Asking, producer: Producer, key: bytes, typed: str
) -> None:
    producer.produce("keys", b"1", key, 0)
    producer.produce("keys", b"2", b"another", 0)
    assert producer.flush(20) == 0
    console.look()
    address = f"/topics/keys/records?from=beginning&key={quote(typed)}"
    told = console.json(address)["records"]
    assert told
    assert {each["value"]["text"] for each in told} == {"1"}


def test_offset_and_time_are_beginnings(console: Asking) -> None:
    assert numbers(console.json("/topics/visits/records?from=offset&at=18&partition=0")) == [36, 38]
    assert numbers(console.json("/topics/visits/records?from=time&at=2999-01-01T00:00")) == []
    assert len(numbers(console.json("/topics/visits/records?from=time&at=0"))) == 30
    assert "is no time" in console.json("/topics/visits/records?from=time&at=soon", 400)["error"]


def test_a_search_streams_matches_and_its_progress(console: Asking) -> None:
    answer = console.client.get("/topics/visits/events?from=beginning&filter=value.number%20%3C%204")
    events = [block.split("\n", 1) for block in answer.text.strip().split("\n\n")]
    kinds = [name.removeprefix("event: ") for name, _ in events]
    assert kinds.count("record") == 4
    assert kinds[-1] == "done"
    assert "4 of 40 records match, 100% read" in events[-1][1]


def test_a_live_tail_begins_at_the_end(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "EVENT_BOUNDS", Bounds(seconds=0.5))
    answer = console.client.get("/topics/visits/events?from=tail")
    assert "event: record" not in answer.text
    assert "following the end" in answer.text
    assert "it has ended" in answer.text.split("event: done")[1]


def test_a_tail_that_was_cut_goes_on_where_it_was(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "EVENT_BOUNDS", Bounds(seconds=0.5))
    address = "/topics/visits/events?from=tail"
    assert "id: 0:20,1:20\nevent: progress" in console.client.get(address).text
    rest = console.client.get(address, headers={"Last-Event-ID": "0:18,1:20"}).text
    told = [json.loads(line.removeprefix("data: ")) for line in rest.splitlines() if '"offset"' in line]
    assert [(each["partition"], each["offset"]) for each in told] == [(0, 18), (0, 19)]
    assert console.client.get(address, headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_download_has_a_line_for_each_record(console: Asking) -> None:
    answer = console.client.get("/topics/visits/download?from=beginning")
    assert answer.headers["content-disposition"].startswith("attachment")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert len(lines) == 40
    assert lines[0]["headers"][0]["name"] == "trace"


def test_a_download_that_is_cut_says_so_and_where_it_goes_on(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "DOWNLOAD_BOUNDS", Bounds(matches=30))
    address = "/topics/visits/download?from=beginning&filter=value.number >= 0"
    *lines, last = map(json.loads, console.client.get(address).text.splitlines())
    assert len(lines) == 30
    assert last["problem"] == "cut after 30 records"
    rest = list(map(json.loads, console.client.get(last["next"]).text.splitlines()))
    assert sorted(json.loads(each["value"])["number"] for each in lines + rest) == list(range(40))


def test_a_download_that_fails_on_its_way_says_so(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    takes = Query.takes

    def fails(query: Query, found: Found) -> bool:
        if found.offset == 3:
            raise ConsoleError("the registry does not answer")
        return takes(query, found)

    monkeypatch.setattr(Query, "takes", fails)
    *lines, last = map(json.loads, console.client.get("/topics/visits/download?from=beginning").text.splitlines())
    assert lines
    assert last["problem"] == "the registry does not answer"


def test_records_that_wait_for_a_slow_reader_have_a_bound() -> None:
    asked: list[str] = []
    waiting = Room()

    def is_stopped() -> bool:
        asked.append("stopped?")
        return True

    waiting.enter(BIG, is_stopped)
    assert asked == [], "one alone may be of any size"
    waiting.enter(1, is_stopped)
    assert asked == ["stopped?"], "it waits until nobody listens any more"
    waiting.leave(1)
    waiting.leave(BIG)
    for _ in range(WAITING_MAX):
        waiting.enter(100, is_stopped)
    assert len(asked) == 1
    waiting.enter(0, is_stopped)
    assert len(asked) == 2


def test_a_stream_with_little_room_is_whole(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAITING_BYTES_MAX", 1)
    assert len(console.client.get("/topics/visits/download?from=beginning").text.splitlines()) == 40


def test_a_download_that_cannot_begin_is_refused_in_words(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = threading.BoundedSemaphore(1)
    taken.acquire()
    monkeypatch.setattr(records, "_streams", taken)
    assert "streams are open" in console.json("/topics/visits/download?from=beginning", 429)["error"]


def test_hostile_records_are_shown_harmlessly(console: Asking) -> None:
    page = console.page("/topics/hostile/records?from=beginning")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not any(each in page for each in ("\x1b", "\x07", "\x00", "\u202e"))
    assert len(page) < 200_000, "a value of 10 MB is cut"
    told = console.json("/topics/hostile/records?from=beginning")
    by_key = {each["key"]["text"]: each["value"] for each in told["records"]}
    assert by_key["big"]["is_cut"]
    assert by_key["big"]["size"] == BIG
    assert by_key["broken"]["format"] == "hex"
    assert by_key["tombstone"]["format"] == "null"
    whole = console.page("/topics/hostile/records/0/6")
    assert len(whole) < 200_000
    raw = console.client.get("/topics/hostile/records/0/6/raw")
    assert len(raw.content) == BIG
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("body", [b'"' * 5000, "\u6c34".encode() * 5000, b"W" * 5000])
def test_a_page_of_large_records_is_no_large_page(console: Asking, producer: Producer, body: bytes) -> None:
    """A quotation mark takes five bytes in a page, and a record may have hundreds of headers."""
    headers: list[tuple[str, str | bytes | None]] = [(f"h{number}", body[:600]) for number in range(60)]
    for _ in range(30):
        producer.produce("wordy", body, body[:900], 0, headers=headers)
    assert producer.flush(20) == 0
    console.look()
    page = console.page("/topics/wordy/records?partition=0")
    assert len(page.encode()) < 200_000
    assert page.count("Show all 5.0 kB") + page.count("Show all 15.0 kB") == 30
    assert "more headers" in page
    (first, *_) = console.json("/topics/wordy/records?partition=0")["records"]
    whole = console.json(first["link"])["record"]
    assert len(whole["value"]["text"]) == 5000
    assert (len(whole["headers"]), whole["headers_left"]) == (60, 0)


def test_a_long_header_is_whole_on_the_page_of_its_record(console: Asking, producer: Producer) -> None:
    trace = "Traceback:\n" + "  a line of a stack\n" * 200
    producer.produce("failed", b"1", headers=[("exception", trace), ("short", "s")], partition=0)
    assert producer.flush(20) == 0
    console.look()
    (told,) = console.json("/topics/failed/records")["records"]
    assert told["headers"][0][1].endswith("…")
    assert len(told["headers"][0][1]) == 300
    assert console.json(told["link"])["record"]["headers"] == [["exception", trace], ["short", "s"]]


def test_deep_values_are_shown_in_bounded_time_and_space(console: Asking, producer: Producer) -> None:
    """Each line of a value begins with as many blanks as it is deep: this megabyte would fill gigabytes."""
    wide = b"[" * 300 + b"1," * 400_000 + b"1" + b"]" * 300
    for body in (wide, *(b"[" * depth + b"]" * depth for depth in range(100, 1000, 30))):
        producer.produce("deep", body, b"k", 0)
    assert producer.flush(20) == 0
    console.look()
    begun = time.process_time()
    assert len(console.page("/topics/deep/records?from=beginning")) < 400_000
    console.json('/topics/deep/records?from=beginning&filter=value contains "x"')
    assert len(console.page("/topics/deep/records/0/0")) < 400_000
    assert time.process_time() - begun < 5.0


def test_a_header_whose_name_is_no_text_hides_nothing(
    kafka: BrokerInThread, console: Asking, producer: Producer
) -> None:
    """confluent-kafka returns null pointers for it, which end the process when they are looked at."""
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"1"), ("none", None)]
    for number in range(12):
        producer.produce("misnamed", str(number), headers=headers, partition=0)
    assert producer.flush(20) == 0
    for _ in range(2):
        produce_broken_header(kafka.bootstrap, "misnamed", b"broken")
    console.look()
    for _ in range(2):
        told = console.json("/topics/misnamed/records?from=beginning&partition=0")["records"]
        found = {each["offset"]: each for each in told}
        assert [found[number]["value"]["text"] for number in range(14)] == [*map(str, range(12)), "broken", "broken"]
        assert [found[number]["headers"] for number in range(14)] == [[["trace", "1"], ["none", ""]]] * 12 + [[]] * 2
        assert "no UTF-8" in found[12]["headers_problem"]
    assert "the name of a header is no UTF-8" in console.page("/topics/misnamed/records/0/12")
    lines = console.client.get("/topics/misnamed/download?from=beginning&partition=0").text.splitlines()
    assert [json.loads(line)["headers"] is None for line in lines] == [False] * 12 + [True] * 2
    refused = console.post("/topics/misnamed/replay", {"record": ["0:12"], "to": "visits"}, 409)
    assert "misnamed-0 offset 12 is not copied" in refused["error"]
    assert console.client.get("/letters").status_code == 200


def test_a_filter_is_stopped_in_the_middle_of_a_batch(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record may take long to decode and to match, and a batch has two hundred of them."""
    clock = itertools.count()
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr(records, "FILTER_BOUNDS", Bounds(seconds=10.0))
    told = console.json("/topics/visits/records?from=beginning&partition=0&filter=value.number == 1")
    assert told["scanned"] < 20
    assert told["next"] is not None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("records?from=time&at=0001-01-01", 200),
        ("records?partition=--0", 400),
        ("records?from=offset&at=-1", 400),
        ("records?positions=0:", 400),
        ("records?positions=7:1", 400),
        ("records/0/9999999999999999999999", 404),
        ("records/2147483648/0", 404),
        ("records/99999999999/0/raw", 404),
        ("records/2/0", 404),
    ],
)
def test_numbers_out_of_all_bounds_are_refused_in_one_line(console: Asking, path: str, status: int) -> None:
    told = console.json(f"/topics/visits/{path}", status)
    assert status == 200 or "\n" not in told["error"]
    assert "there is no topic" in console.json("/topics/nowhere/records/0/0", 404)["error"]


def test_a_record_is_produced_with_key_and_headers(console: Asking) -> None:
    console.post("/topics", {"name": "typed"})
    console.post("/topics/typed/produce", {"key": "k", "value": '{"a": 1}', "headers": "one: 1\ntwo: 2"})
    (told,) = console.json("/topics/typed/records")["records"]
    assert told["key"]["text"] == "k"
    assert told["value"]["format"] == "json"
    assert told["headers"] == [["one", "1"], ["two", "2"]]


def test_chosen_records_are_copied_with_headers_that_say_whence(
    console: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.post("/topics", {"name": "copies"})
    done = console.post("/topics/visits/replay", {"record": ["0:3", "1:4"], "to": "copies"})
    assert done == {"done": "2 records of visits are copied to copies"}
    copies = console.json("/topics/copies/records?from=beginning")
    assert numbers(copies) == [6, 9]
    headers = dict(copies["records"][0]["headers"])
    assert headers["moldau.replay.topic"] == "visits"
    assert headers["moldau.replay.offset"] == "3"
    assert headers["trace"] == "t6"
    refused = console.post("/topics/visits/replay", {"record": ["0:3", "1:999"], "to": "copies"}, 404)
    assert refused["error"] == "visits-1 has the offsets 0 to 19"
    again = [7, 3, 11, 2, *range(12, 20)]
    console.post("/topics/visits/replay", {"record": [f"0:{offset}" for offset in again], "to": "copies"})
    copied = numbers(console.json("/topics/copies/records?from=offset&at=2"))
    assert copied == [2 * offset for offset in again], "all of them or none, in the order of the form"
    monkeypatch.setattr(records, "CHOSEN_S", -1.0)
    refused = console.post("/topics/visits/replay", {"record": ["0:3"], "to": "copies"}, 504)
    assert "0 of 1 records were read" in refused["error"]
    assert "choose 1 to 500" in console.post("/topics/visits/replay", {"to": "copies"}, 400)["error"]


def test_reading_makes_no_group(console: Asking) -> None:
    console.look()
    assert console.json("/groups")["rows"] == []


def test_a_page_of_records_works_without_scripts(console: Asking) -> None:
    page = console.client.get("/topics/visits/records?from=beginning", headers={"Accept": "text/html"})
    assert 'rel="next"' in page.text
    assert page.request.headers.get("origin") != ORIGIN
