"""Settings that all clients share: the cluster, librdkafka's log, and properties in librdkafka's names."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from moldau.client.errors import ClientError, client_error

log = logging.getLogger("moldau.client")
T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
IN_ORDER_MAX = 5
"""Requests on their way at once up to which a broker tells repeated batches from new ones."""
DEFAULT_BOOTSTRAP = "localhost:9092"
Bootstrap = str | Sequence[str]
"""Brokers to ask first: `"a:9092,b:9092"`, or a list of them."""
QUIET = 0
"""librdkafka's own log lines: what matters comes back as an error."""


def settings(
    bootstrap: Bootstrap | None, defaults: Mapping[str, Any], properties: Mapping[str, Any] | None
) -> dict[str, Any]:
    """librdkafka's settings: ours, then the program's own `properties`. Without `bootstrap` MOLDAU_BOOTSTRAP_SERVER
    names the brokers, as for the tools."""
    named = os.environ.get("MOLDAU_BOOTSTRAP_SERVER") or DEFAULT_BOOTSTRAP if bootstrap is None else bootstrap
    return {"bootstrap.servers": brokers(named), "log_level": QUIET, **defaults, **(properties or {})}


def brokers(bootstrap: Bootstrap) -> str:
    """librdkafka's text for brokers. Raises ValueError for what it would look for in vain, and without an end."""
    named = [bootstrap] if isinstance(bootstrap, str) else bootstrap
    if (
        not isinstance(named, Sequence)
        or not named
        or not all(isinstance(each, str) and each.strip() for each in named)
    ):
        raise ValueError(f"bootstrap is 'HOST:PORT', or a list of these, not {bootstrap!r}")
    return ",".join(named)


def is_idempotent(chosen: Mapping[str, Any]) -> bool:
    """Whether a producer of these properties can keep a retry from writing twice: as Java's, it does so unless they
    say that nobody acknowledges, that nothing is tried again, or that much is on its way at once."""
    acks = chosen.get("request.required.acks", chosen.get("acks", "all"))
    retries = chosen.get("retries", chosen.get("message.send.max.retries", 1))
    in_flight = chosen.get("max.in.flight.requests.per.connection", chosen.get("max.in.flight", 1))
    return str(acks) in ("all", "-1") and str(retries) != "0" and _number(in_flight) <= IN_ORDER_MAX


def _number(value: object) -> int:
    return int(str(value)) if str(value).isdecimal() else 0


def made(make: Callable[[dict[str, Any]], T], chosen: dict[str, Any]) -> T:
    """A client of librdkafka. Raises ValueError for a property that it does not know, or a value that it refuses."""
    _ensure_usable(chosen)
    try:
        return make(chosen)
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from error


def _ensure_usable(chosen: Mapping[str, Any]) -> None:
    """Refuse what librdkafka does not refuse: a consumer without the name of its group aborts the process."""
    for name, value in chosen.items():
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name}: {value!r} is not text in UTF-8") from error
    group = chosen.get("group.id")
    if "group.id" in chosen and (group is None or not str(group).strip()):
        raise ValueError("the name of the group is empty")
    if str(chosen.get("transactional.id", "")).isspace():  # its producer would ask for an id for ever
        raise ValueError("the transactional id is blank")


def asked(call: Callable[[], T], what: str) -> T:
    """Answer of a cluster; a failure is a ClientError that begins with `what`."""
    try:
        return call()
    except KafkaException as error:
        raise failure(error, what) from error


def failure(error: KafkaException, what: str) -> ClientError:
    """A ClientError of an exception of confluent-kafka."""
    first = error.args[0]
    return client_error(first, what) if hasattr(first, "code") else ClientError(f"{what}: {error}")
