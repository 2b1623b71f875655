"""PushTelemetry: when a push is taken, what is kept of it, and what a hostile one comes to."""

import struct

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.k72_push_telemetry import PushTelemetryRequest
from moldau.records.compression import compress
from moldau.requests import otlp, telemetry
from moldau.requests.otlp import Point
from tests.handlers.conftest import World

pytestmark = pytest.mark.moldau({"client.telemetry.enable": "true"})
INTERVAL_MS = 300_000
GAUGE, SUM = 5, 7


def field(number: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + body


def metrics(*told: tuple[str, int, float], label: str = "") -> bytes:
    """A message of OpenTelemetry: name, kind and value of each."""
    attribute = field(7, field(1, b"topic") + field(2, field(1, label.encode()))) if label else b""
    bodies = b""
    for name, kind, value in told:
        point = field(1, bytes([4 << 3 | 1]) + struct.pack("<d", value) + attribute)
        bodies += field(2, field(1, name.encode()) + field(kind, point))
    return field(1, field(1, b"") + field(2, field(1, b"") + bodies))


class Pusher:
    """A client that has asked, and pushes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told = world.ask(GetTelemetrySubscriptionsRequest())

    def push(self, data: bytes, **more: object) -> int:
        asked = {"client_instance_id": self.told.client_instance_id, "subscription_id": self.told.subscription_id}
        request = PushTelemetryRequest(metrics=data, **{**asked, **more})
        code: int = self.world.ask(request).error_code
        return code

    def kept(self) -> dict[str, float]:
        (instance,) = self.world.services.telemetry.instances(self.world.clock.monotonic_ms())
        return {name: value for (name, _), value in instance.series.items()}


@pytest.mark.parametrize("codec", range(5))
def test_gauges_are_replaced_and_sums_added_up(world: World, codec: int) -> None:
    client = Pusher(world)
    for latency in (5.0, 7.5):
        data = bytes(compress(codec, metrics(("latency", GAUGE, latency), ("records", SUM, 3))))
        assert client.push(data, compression_type=codec) == 0
        world.clock.advance(INTERVAL_MS)
    assert client.kept() == {"latency": 7.5, "records": 6.0}


def test_a_client_that_slept_for_longer_than_it_is_kept_goes_on(world: World) -> None:
    """A laptop was closed, and nobody else has pushed since."""
    client = Pusher(world)
    assert client.push(metrics(("records", SUM, 3))) == 0
    world.clock.advance(4 * INTERVAL_MS)
    assert client.push(metrics(("records", SUM, 4))) == 0
    world.clock.advance(4 * INTERVAL_MS)
    asked = GetTelemetrySubscriptionsRequest(client_instance_id=client.told.client_instance_id)
    assert world.ask(asked).error_code == 0
    assert client.kept() == {"records": 7.0}


def test_labels_tell_figures_of_one_name_apart(world: World) -> None:
    client = Pusher(world)
    assert client.push(metrics(("lag", GAUGE, 1), label="a") + metrics(("lag", GAUGE, 2), label="b")) == 0
    (instance,) = world.services.telemetry.instances(world.clock.monotonic_ms())
    assert instance.series == {("lag", (("topic", "a"),)): 1.0, ("lag", (("topic", "b"),)): 2.0}


def test_checks_come_in_kafkas_order(world: World) -> None:
    client = Pusher(world)
    data = metrics(("a", GAUGE, 1))
    assert client.push(data, client_instance_id=bytes(16)) == ErrorCode.INVALID_REQUEST
    assert client.push(data, subscription_id=1, compression_type=9) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    world.ask(GetTelemetrySubscriptionsRequest(client_instance_id=client.told.client_instance_id))
    assert client.push(data, subscription_id=1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.advance(INTERVAL_MS)
    assert client.push(data, compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    world.clock.advance(INTERVAL_MS)
    assert client.push(bytes(1_048_577)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert client.push(data, terminating=True) == 0, "the last one need not wait"
    assert client.push(data, terminating=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x0a\x7f",
        b"\x0a" + b"\xff" * 11,
        b"\x08\x01\x0b",
        field(1, b"\x10\x01"),
        metrics(("a", GAUGE, 1))[:-3],
    ],
)
def test_what_cannot_be_read_is_an_invalid_record(world: World, data: bytes) -> None:
    client = Pusher(world)
    assert client.push(data) == ErrorCode.INVALID_RECORD
    assert client.kept() == {}


def test_a_bomb_is_not_opened(world: World) -> None:
    client = Pusher(world)
    assert client.push(bytes(compress(4, bytes(50_000_000))), compression_type=4) == ErrorCode.INVALID_RECORD


def test_figures_have_a_bound_and_a_value_that_is_none_is_left_out(world: World) -> None:
    client = Pusher(world)
    many = [(f"m{number}", GAUGE, 1.0) for number in range(telemetry.SERIES_MAX + 50)]
    assert client.push(metrics(("nan", GAUGE, float("nan")), *many)) == 0
    assert len(client.kept()) == telemetry.SERIES_MAX
    assert "nan" not in client.kept()
    data = metrics(*[("m", GAUGE, 1.0)] * (otlp.POINTS_MAX + 5))
    assert len(otlp.points(data)) == otlp.POINTS_MAX


def labelled(count: int, text: str) -> bytes:
    """A metric with so many labels."""
    labels = b"".join(field(7, field(1, b"k%d" % each) + field(2, field(1, text.encode()))) for each in range(count))
    point = field(1, bytes([4 << 3 | 1]) + struct.pack("<d", 1.0) + labels)
    return field(2, field(1, text.encode()) + field(GAUGE, point))


def test_labels_and_fields_have_a_bound() -> None:
    (point,) = otlp.points(field(1, field(2, labelled(otlp.LABELS_MAX + 5, "v"))))
    assert len(point.labels) == otlp.LABELS_MAX
    with pytest.raises(otlp.NotMetrics, match="fields"):
        otlp.points(b"\x0a\x00" * (otlp.FIELDS_MAX + 1))


def test_figures_with_long_labels_take_no_more_memory_than_they_may(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = field(1, field(2, b"".join(labelled(20, f"{number:04d}" + "v" * 196) for number in range(200))))
    first = Pusher(world)
    assert first.push(long) == 0
    kept = sum(len(name) + sum(len("".join(each)) for each in labels) for name, labels in first_series(world))
    assert 0 < kept < telemetry.INSTANCE_BYTES_MAX
    monkeypatch.setattr(telemetry, "KEPT_BYTES_MAX", 3 * telemetry.INSTANCE_BYTES_MAX)
    others = [Pusher(world) for _ in range(4)]
    assert [each.push(long) for each in others] == [0, 0, 0, 0]
    left = world.services.telemetry.instances(world.clock.monotonic_ms())
    assert [each.client.instance_id for each in left] == [each.told.client_instance_id for each in others[1:]]
    world.clock.advance(10 * INTERVAL_MS)
    assert world.services.telemetry.instances(world.clock.monotonic_ms()) == []
    assert Pusher(world).push(long) == 0
    assert len(world.services.telemetry.instances(world.clock.monotonic_ms())) == 1


def first_series(world: World) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    (instance,) = world.services.telemetry.instances(world.clock.monotonic_ms())
    return list(instance.series)


def test_points_of_other_shapes_are_passed_over() -> None:
    whole = bytes([6 << 3 | 1]) + struct.pack("<q", -4)
    number = field(7, field(1, b"id") + field(2, b"\x18\x05"))
    histogram = field(2, field(1, b"h") + field(9, field(1, whole)))
    data = field(1, field(2, field(2, field(1, b"x") + field(SUM, field(1, whole + number))) + histogram))
    assert otlp.points(data) == [Point("x", (("id", "5"),), -4.0, True)]
