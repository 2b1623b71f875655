"""Telemetry of clients (KIP-714): who is asked for which metrics, who may push now, and what came last.

The broker itself is the receiver: it keeps the newest figures of each client, for people who look. A state machine:
time is an argument, and what is pushed comes as figures that were read elsewhere. Everything that clients make longer
has a bound: clients, the figures of each, the memory of each and of all, and (in `otlp.py`) what is read of a push.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from zlib import crc32

from moldau.coordinators.consumer.topic_regex import TopicRegex
from moldau.core.client_metrics_config import (
    CLIENT_METRICS_KEYS,
    INTERVAL_MS,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    patterns_of,
    validate_client_metrics,
)
from moldau.core.config import ConfigError, parse_list
from moldau.core.invariants import invariant
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.schema import ZERO_UUID
from moldau.records.compression import Codec
from moldau.requests.otlp import Point
from moldau.requests.topic_clients import short

if TYPE_CHECKING:
    from moldau.requests.context import RequestContext

ENABLE = "client.telemetry.enable"
SUBSCRIPTIONS_MAX: Final = 100
PATTERNS_MAX: Final = 64
"""Patterns of all subscriptions: one takes up to a megabyte."""
METRICS_MAX: Final = 1_000
"""Names of metrics in all subscriptions: each client may be told all of them."""
INSTANCES_MAX: Final = 1_000
SERIES_MAX: Final = 200
INSTANCE_BYTES_MAX: Final = 256 * 1024
"""Memory for the figures of a client: 200 of Kafka's own take half of it."""
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Memory for the figures of all clients; the one that was heard of longest ago is forgotten when they take more."""
KEPT_MS_MIN: Final = 60_000
"""A client is forgotten after three of its intervals, or after this if it is longer."""
ALL: Final = "*"
ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
_LABEL_BYTES: Final = 64
_FIGURE_BYTES: Final = 256
"""Memory of a label and of a figure, but for their texts."""
MAY_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client need not wait before it asks again."""

Configs = Mapping[str, Mapping[str, str]]


class Client(NamedTuple):
    """A client as it says of itself, and as its connection says; the fields are `SELECTORS` without `client_`."""

    instance_id: bytes
    id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: int

    @classmethod
    def of(cls, instance_id: bytes, context: "RequestContext") -> "Client":
        """The client that sends a request."""
        name, version = context.client_software
        return cls(instance_id, short(context.client_id), name, version, context.client_host, context.client_port)


class Subscription(NamedTuple):
    """Answer to a client that asks what to push."""

    instance_id: bytes
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class Push(NamedTuple):
    """A request of a client that pushes."""

    subscription_id: int
    is_terminating: bool
    codec: int
    size: int


@dataclass(slots=True)
class Instance:
    """A client that has asked or pushed."""

    client: Client
    subscription: Subscription
    configs: Configs
    """Subscriptions of the cluster that this one's was made of."""
    asked_ms: int = -1
    pushed_ms: int = -1
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)
    kept_bytes: int = 0
    """Memory of the figures."""

    @property
    def last_ms(self) -> int:
        return max(self.asked_ms, self.pushed_ms)

    def is_over(self, now_ms: int) -> bool:
        return now_ms - self.last_ms > max(KEPT_MS_MIN, 3 * self.subscription.interval_ms)

    def take(self, points: list[Point]) -> None:
        """Take figures: of sums clients push what has come since the last push."""
        for each in points:
            key = (each.name, each.labels)
            if key not in self.series:
                size = _bytes_of(each)
                if len(self.series) >= SERIES_MAX or self.kept_bytes + size > INSTANCE_BYTES_MAX:
                    continue
                self.kept_bytes += size
            self.series[key] = each.value + (self.series.get(key, 0.0) if each.is_sum else 0.0)


class _Rule(NamedTuple):
    """A subscription of the cluster, ready to be compared with clients."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, TopicRegex]

    def fits(self, client: Client) -> bool:
        said = {f"client_{name}": str(value) for name, value in client._asdict().items() if name != "instance_id"}
        said["client_instance_id"] = uuid_text(client.instance_id)
        return all(pattern.matches(said[selector]) for selector, pattern in self.patterns.items())


class Wish(NamedTuple):
    """Metrics and interval that the subscriptions which fit a client ask for."""

    metrics: tuple[str, ...]
    interval_ms: int


class Matcher:
    """Finds the subscriptions that fit a client. Patterns take their time: it belongs to the thread of the opener."""

    def __init__(self) -> None:
        self._configs: Configs = {}
        self._rules: list[_Rule] = []

    def wish(self, client: Client, configs: Configs) -> Wish:
        if configs is not self._configs:
            self._configs, self._rules = configs, [_rule(each) for each in configs.values()]
        fitting = [rule for rule in self._rules if rule.fits(client)]
        metrics = sorted({name for rule in fitting for name in rule.metrics})
        interval_ms = min((rule.interval_ms for rule in fitting), default=INTERVAL_MS_DEFAULT)
        return Wish((ALL,) if ALL in metrics else tuple(metrics), interval_ms)


class Telemetry:
    """Clients that push metrics, the one that was heard of longest ago first."""

    def __init__(self, new_uuid: Callable[[], bytes]) -> None:
        self._new_uuid = new_uuid
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        self._kept_bytes = 0
        self.matcher = Matcher()
        self.pushes = 0
        self.pushed_bytes = 0
        self.refusals = 0

    def instances(self, now_ms: int) -> list[Instance]:
        """Clients that were heard of lately."""
        self._forget(now_ms)
        return list(self._instances.values())

    def is_matched(self, client: Client, configs: Configs) -> bool:
        """Whether it is known which of these subscriptions fit the client."""
        known = self._instances.get(client.instance_id)
        return known is not None and known.configs is configs

    def subscribe(self, client: Client, wish: Wish | None, configs: Configs, now_ms: int) -> Subscription:
        """Metrics that a client is to push; `wish` is for one that is not matched. Raises ApiError for one that is too
        early."""
        if client.instance_id == ZERO_UUID:
            client = client._replace(instance_id=self._new_uuid())
        known = self._instances.get(client.instance_id)
        instance = self._instance(client, wish, configs, now_ms)
        is_early = known is not None and now_ms - instance.last_ms < instance.subscription.interval_ms
        if is_early and instance.last_error not in MAY_ASK_AGAIN:
            raise self._refused(instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asked before its interval was over")
        instance.asked_ms, instance.last_error = now_ms, ErrorCode.NONE
        return instance.subscription

    def admit(
        self, client: Client, push: Push, wish: Wish | None, configs: Configs, bytes_max: int, now_ms: int
    ) -> Instance:
        """The client whose push may be read. Raises ApiError, in Kafka's order of checks."""
        if client.instance_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a client that pushes has an instance id")
        instance = self._instance(client, wish, configs, now_ms)
        if instance.is_terminating:
            raise self._refused(instance, ErrorCode.INVALID_REQUEST, "the client has said that it ends")
        is_first = instance.asked_ms > instance.pushed_ms
        is_time = is_first or instance.pushed_ms < 0 or now_ms - instance.pushed_ms >= instance.subscription.interval_ms
        if is_time:
            instance.pushed_ms = now_ms
        elif not push.is_terminating:
            raise self._refused(instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushed before its interval was over")
        if push.subscription_id != instance.subscription.subscription_id:
            raise self._refused(instance, ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription is another one now")
        if push.codec not in (Codec.NONE, *ACCEPTED_CODECS):
            raise self._refused(instance, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{push.codec} is no codec")
        if push.size > bytes_max:
            raise self._refused(instance, ErrorCode.TELEMETRY_TOO_LARGE, f"more than {bytes_max} bytes")
        instance.is_terminating = push.is_terminating
        return instance

    def take(self, instance: Instance, points: list[Point], size: int) -> None:
        """Keep what an admitted client has pushed."""
        self.pushes += 1
        self.pushed_bytes += size
        instance.last_error = ErrorCode.NONE
        if self._instances.get(instance.client.instance_id) is not instance:
            return  # forgotten while its push was read
        self._kept_bytes -= instance.kept_bytes
        instance.take(points)
        self._kept_bytes += instance.kept_bytes
        while self._kept_bytes > KEPT_BYTES_MAX:
            self._forget_oldest()

    def refuse_record(self, instance: Instance) -> ApiError:
        """Error for a push that is not what it claims to be."""
        return self._refused(instance, ErrorCode.INVALID_RECORD, "the metrics cannot be read")

    def _refused(self, instance: Instance, code: ErrorCode, words: str) -> ApiError:
        self.refusals += 1
        instance.last_error = code
        return ApiError(code, words)

    def _instance(self, client: Client, wish: Wish | None, configs: Configs, now_ms: int) -> Instance:
        """The client, known or new, with the subscription that it has now. One that comes back late is still known:
        nobody has looked for its wish."""
        instance = self._instances.pop(client.instance_id, None)
        self._forget(now_ms)
        if instance is None:
            instance = Instance(client, _subscription(client, _given(wish)), configs)
        elif instance.configs is not configs:
            instance.subscription, instance.configs = _subscription(client, _given(wish)), configs
        instance.client = client
        self._instances[client.instance_id] = instance
        while len(self._instances) > INSTANCES_MAX:
            self._forget_oldest()
        return instance

    def _forget(self, now_ms: int) -> None:
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if oldest.last_ms < 0 or not oldest.is_over(now_ms):
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, instance = self._instances.popitem(last=False)
        self._kept_bytes -= instance.kept_bytes


async def wish_of(client: Client, context: "RequestContext", configs: Configs) -> Wish | None:
    """Wish of the subscriptions that fit a client; None where that is known."""
    services = context.services
    if services.telemetry.is_matched(client, configs):
        return None
    return await services.opener.run(partial(services.telemetry.matcher.wish, client, configs))


def _given(wish: Wish | None) -> Wish:
    invariant(wish is not None, "a client that is not matched comes with a wish")
    return cast(Wish, wish)


def _subscription(client: Client, wish: Wish) -> Subscription:
    checksum = crc32(f"{wish.metrics} {wish.interval_ms} {client.instance_id.hex()}".encode())
    return Subscription(client.instance_id, checksum - (1 << 31), wish.interval_ms, wish.metrics)


def _bytes_of(point: Point) -> int:
    """Memory that a figure takes, with its place in the tables."""
    labels = sum(sys.getsizeof(name) + sys.getsizeof(text) + _LABEL_BYTES for name, text in point.labels)
    return sys.getsizeof(point.name) + labels + _FIGURE_BYTES


def _rule(configs: Mapping[str, str]) -> _Rule:
    patterns = {selector: TopicRegex(pattern) for selector, pattern in patterns_of(configs).items()}
    interval = int(configs.get(INTERVAL_MS, INTERVAL_MS_DEFAULT))
    return _Rule(parse_list(configs.get(METRICS, "")), interval, patterns)


def check_subscription(name: str, configs: Mapping[str, str], others: Configs) -> None:
    """Raise ApiError for a subscription that nobody could follow, or that is one too many beside the `others`."""
    unknown = [name for name in configs if name not in CLIENT_METRICS_KEYS]
    if unknown:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{min(unknown)[:80]}: there is no such property of client metrics")
    try:
        validate_client_metrics(configs)
        _rule(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    except ApiError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{MATCH}: {error.message}") from None
    _check_bounds([configs, *(each for other, each in others.items() if other != name)])


def _check_bounds(subscriptions: Sequence[Mapping[str, str]]) -> None:
    patterns = sum(len(patterns_of(each)) for each in subscriptions)
    metrics = sum(len(parse_list(each.get(METRICS, ""))) for each in subscriptions)
    for bound, count, what in (
        (SUBSCRIPTIONS_MAX, sum(map(bool, subscriptions)), "subscriptions to client metrics"),
        (PATTERNS_MAX, patterns, f"patterns in {MATCH} of all subscriptions"),
        (METRICS_MAX, metrics, f"{METRICS} in all subscriptions"),
    ):
        if count > bound:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"more than {bound} {what}")


def uuid_text(uuid: bytes) -> str:
    """An id as Kafka writes it: URL-safe base64 without its end."""
    from base64 import urlsafe_b64encode  # most brokers have no client that pushes

    return urlsafe_b64encode(uuid).decode().rstrip("=")
