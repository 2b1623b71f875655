"""What goes into each pipeline of `examples/pipelines`, and what must come out."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Rows = list[Any]
NINE = "2026-11-16T09:{:02}:00Z"


def at(minute: int) -> str:
    return NINE.format(minute)


def utc(minute: int) -> datetime:
    return datetime(2026, 11, 16, 9, minute, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Case:
    """Rows by source, run by run, and rows by sink in the end; of dead letters the values."""

    file: str
    given: list[dict[str, Rows]]
    expected: dict[str, Rows]
    schemas: dict[str, str] = field(default_factory=dict)
    bad: tuple[bytes, ...] = ()
    topics: dict[str, str] = field(default_factory=dict)
    """Topic that rows of a source go to, where it reads several."""


ORDER = {"id": 1, "town": "Brno"}

CASES = [
    Case(
        "clicks.yaml",
        [
            {
                "shown": [{"ad": "a", "shown_at": at(0)}, {"ad": "b", "shown_at": at(0)}],
                "clicked": [{"ad": "a", "clicked_at": at(9)}, {"ad": "b", "clicked_at": at(11)}],
            }
        ],
        {"seen": [{"ad": "a", "shown_at": "2026-11-16T09:00:00.000Z", "clicked_at": "2026-11-16T09:09:00.000Z"}]},
    ),
    Case(
        "not-clicked.yaml",
        [
            {
                "shown": [{"ad": "a", "shown_at": at(0)}, {"ad": "b", "shown_at": at(1)}],
                "clicked": [{"ad": "a", "clicked_at": at(2)}],
            },
            {"shown": [{"ad": "z", "shown_at": at(40)}], "clicked": [{"ad": "z", "clicked_at": at(40)}]},
        ],
        {"nobody": [{"ad": "b", "shown_at": "2026-11-16T09:01:00.000Z"}]},
    ),
    Case(
        "visits-by-hour.yaml",
        [
            {"visits": [{"page": "/", "at": at(5)}, {"page": "/", "at": at(59)}]},
            {"visits": [{"page": "/", "at": at(0)}]},
        ],
        {"table": [{"page": "/", "hour": utc(0), "visits": 3}]},
    ),
    Case(
        "busy-pages.yaml",
        [{"visits": [{"page": "/", "at": at(7)}]}],
        {
            "busy": [
                {"page": "/", "until": "2026-11-16T09:10:00.000Z", "visits": 1},
                {"page": "/", "until": "2026-11-16T09:15:00.000Z", "visits": 1},
            ]
        },
    ),
    Case(
        "sessions.yaml",
        [
            {"visits": [{"visitor": "eva", "page": page, "at": at(minute)} for page, minute in (("/", 0), ("/a", 20))]},
            {"visits": [{"visitor": "jan", "page": "/", "at": "2026-11-16T12:00:00Z"}]},
        ],
        {"sessions": [{"visitor": "eva", "began": utc(0), "ended": utc(50), "pages": 2}]},
    ),
    Case(
        "all-time.yaml",
        [{"visits": [{"page": "/"}, {"page": "/a"}]}, {"visits": [{"page": "/"}]}],
        {"pages": [{"page": "/", "visits": 2}, {"page": "/a", "visits": 1}]},
    ),
    Case(
        "orders-with-customers.yaml",
        [
            {
                "customers": [
                    {"_key": "7", "customer": 7, "name": name, "town": "Brno"} for name in ("Eva", "Eva Nova")
                ],
                "orders": [{"id": 1, "customer": 7, "amount": 5}, {"id": 2, "customer": 8, "amount": 6}],
            }
        ],
        {
            "named": [
                {"id": 1, "amount": Decimal("5.00"), "name": "Eva Nova", "town": "Brno"},
                {"id": 2, "amount": Decimal("6.00"), "name": None, "town": None},
            ]
        },
    ),
    Case(
        "priced.yaml",
        [{"prices": [{"article": "pen", "price": "1.50"}], "orders": [{"id": 1, "article": "pen", "pieces": 3}]}],
        {"priced": [{"id": 1, "total": 4.5}]},
    ),
    Case(
        "once.py",
        [
            {"orders": [{"id": 1, "at": at(0)}, {"id": 1, "at": at(1)}]},
            {"orders": [{"id": 1, "at": at(2)}, {"id": 2, "at": at(2)}]},
        ],
        {"orders": [{"id": 1, "at": "2026-11-16T09:00:00.000Z"}, {"id": 2, "at": "2026-11-16T09:02:00.000Z"}]},
    ),
    Case(
        "late.yaml",
        [
            {"orders": [{"id": 1, "at": at(0)}, {"id": 2, "at": at(30)}]},
            {"orders": [{"id": 3, "at": at(0)}, {"id": 4, "at": at(50)}]},
        ],
        {
            "minutes": [
                {"minute": "2026-11-16T09:00:00.000Z", "orders": 1},
                {"minute": "2026-11-16T09:30:00.000Z", "orders": 1},
            ]
        },
    ),
    Case(
        "streaks.py",
        [
            {"orders": [{"customer": "eva", "paid": paid} for paid in (True, True, False)]},
            {"orders": [{"customer": "eva", "paid": True}]},
        ],
        {"streaks": [{"customer": "eva", "streak": 2}, {"customer": "eva", "streak": 2}]},
    ),
    Case(
        "checked.yaml",
        [{"orders": [{"id": 1, "at": at(0), "amount": 2}, {"id": 2, "at": at(0)}, "{torn"]}],
        {"orders": [{"id": 1, "at": "2026-11-16T09:00:00.000Z", "amount": 2.0}]},
        bad=(b'{"id": 2, "at": "2026-11-16T09:00:00Z"}', b"{torn"),
    ),
    Case(
        "csv-to-parquet.yaml",
        [{"orders": [{"id": 1, "at": at(0), "town": "Brno,\nstred"}]}],
        {"lake": [{"id": 1, "at": utc(0), "town": "Brno,\nstred", "day": date(2026, 11, 16)}]},
    ),
    Case("json-to-delta.yaml", [{"orders": [ORDER]}], {"lake": [ORDER]}),
    Case(
        "orders-to-iceberg.yaml",
        [{"orders": [{**ORDER, "at": at(0)}]}],
        {"lake": [{**ORDER, "at": utc(0), "day": date(2026, 11, 16)}]},
    ),
    Case("three-lakes.yaml", [{"orders": [ORDER]}], {name: [ORDER] for name in ("parquet", "delta", "iceberg")}),
    Case(
        "capture.yaml",
        [{"orders": [{**ORDER, "_op": "c", "_lsn": 10, "_number": 1}]}],
        {"changes": [{**ORDER, "op": "c", "lsn": 10, "number": 1}]},
        schemas={"orders": "id BIGINT, town STRING, _op STRING, _lsn BIGINT, _number BIGINT"},
    ),
    Case(
        "captured-to-delta.yaml",
        [
            {"changes": [{"id": n, "town": "Brno", "op": "c", "lsn": n, "number": 0} for n in (1, 2, 3)]},
            {
                "changes": [
                    {"id": 1, "op": "d", "lsn": 4, "number": 0},
                    {"id": 2, "town": "Praha", "op": "u", "lsn": 5, "number": 1},
                    {"id": 2, "town": "Plzen", "op": "u", "lsn": 5, "number": 0},
                ]
            },
        ],
        {
            "copy": [
                {"id": 2, "town": "Praha", "op": "u", "lsn": 5, "number": 1},
                {"id": 3, "town": "Brno", "op": "c", "lsn": 3, "number": 0},
            ]
        },
    ),
    Case(
        "profiles.yaml",
        [
            {
                "profiles": [
                    {"_key": "eva", "user": "eva", "name": "Eva"},
                    {"_key": "jan", "user": "jan", "name": "Jan"},
                    {"_key": "eva", "_deleted": True},
                ]
            }
        ],
        {"table": [{"user": "jan", "name": "Jan"}]},
    ),
    Case(
        "avro-orders.yaml",
        [{"orders": [{**ORDER, "amount": 99.0}, {"id": 2, "town": "Praha", "amount": 100.0}]}],
        {"large": [{"id": 2, "town": "Praha", "amount": 100.0}]},
        schemas={"orders": "id BIGINT, town STRING, amount DOUBLE"},
    ),
    Case(
        "protobuf-positions.yaml",
        [{"positions": [{"tram": 9, "at": 2, "x": 1.5}, {"tram": 9, "at": 1, "x": 0.5}]}],
        {"trams": [{"tram": 9, "at": 2, "x": 1.5}]},
        schemas={"positions": "tram INT, at BIGINT, x DOUBLE"},
    ),
    Case(
        "routed.yaml",
        [{"events": [{"kind": kind, "user": "eva", "text": "x"} for kind in ("error", "login")]}],
        {
            "errors": [{"user": "eva", "text": "x"}],
            "others": [{"kind": "login", "user": "eva", "text": "x"}],
        },
    ),
    Case(
        "merged.yaml",
        [{"web": [{"id": 1, "total": 2}], "shop": [{"number": 1, "price": 1.5, "pieces": 2}]}],
        {"orders": [{"id": "shop-1", "total": 3.0}, {"id": "web-1", "total": 2.0}]},
    ),
    Case(
        "every-town.yaml",
        [{"every": [{"id": 1}]}],
        {"table": [{"id": 1, "town": "brno"}]},
        topics={"every": "orders-brno"},
    ),
    Case(
        "masked.yaml",
        [{"orders": [{"id": 1, "email": "A@b.cz", "amount": 1}]}],
        {
            "masked": [
                {
                    "id": 1,
                    "buyer": "c4b5614a75fda0ea041b82a5029f8ea8e0a4a339c616c35a86d86b983ab01668",
                    "amount": 1.0,
                }
            ]
        },
    ),
    Case(
        "order-lines.yaml",
        [{"orders": [{"id": 1, "lines": [{"article": "pen", "pieces": 2}, {"article": "ink", "pieces": 1}]}]}],
        {
            "lines": [
                {"id": 1, "line": 1, "article": "pen", "pieces": 2},
                {"id": 1, "line": 2, "article": "ink", "pieces": 1},
            ]
        },
    ),
    Case(
        "alerts.yaml",
        [{"orders": [{"id": 1, "amount": 1000}, {"id": 2, "amount": 1000.5}]}],
        {"alerts": [{"id": 2, "amount": Decimal("1000.50")}]},
    ),
    Case(
        "audit.yaml",
        [{"records": [{"value": b"12345", "_timestamp": 1}, {"value": b"1", "_timestamp": 2}]}],
        {"counts": [{"topic": "orders", "minute": datetime(1970, 1, 1, tzinfo=UTC), "records": 2, "bytes": 6}]},
        topics={"records": "orders"},
    ),
    Case(
        "parsed-logs.yaml",
        [{"lines": ['10.0.0.1 - - [16/Nov/2026] "GET / HTTP/1.1" 404 12', "out of memory"]}],
        {"table": [{"host": "10.0.0.1", "status": 404}]},
    ),
    Case(
        "newest.yaml",
        [
            {"products": [{"id": 1, "name": "second", "changed": at(2)}]},
            {"products": [{"id": 1, "name": "first", "changed": at(1)}]},
        ],
        {"products": [{"id": 1, "name": "second", "changed": utc(2)}]},
    ),
    Case("mirror.yaml", [{"orders": [b"\x00\xff"]}], {}),
    Case(
        "daily.yaml",
        [
            {"orders": [{"town": "Brno", "amount": amount, "at": at(0)} for amount in (1, 2.5)]},
            {"orders": [{"town": "Brno", "amount": 9, "at": "2026-11-19T00:00:00Z"}]},
        ],
        {"days": [{"town": "Brno", "day": date(2026, 11, 16), "turnover": Decimal("3.50")}]},
    ),
]
