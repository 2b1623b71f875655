"""A first word with a broker, before librdkafka speaks: it tries for half a minute, and then does not say why.

The word is a Metadata request that asks for no topic. A listener for TLS answers it with an alert, one for SASL hangs
up, and what is no broker says something else, or nothing. The answer has the addresses that clients are told to use.
"""

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.cli.failures import ToolError, WrongUsage

if TYPE_CHECKING:
    from moldau.cli.wire_security import Security

DEFAULT_PORT = 9092
PORT_MAX = 65535
REACH_TIMEOUT_S = 5.0
"""Time for a connection, of each broker that is named."""
FIRST_ANSWER_TIMEOUT_S = 10.0

CORRELATION_ID = 19
METADATA_OF_NO_TOPIC = struct.pack(">ihhih6si", 20, 3, 1, CORRELATION_ID, 6, b"moldau", 0)
"""Metadata, version 1: the first in which an empty list means none."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
BEGIN_BYTES = 8
"""Size and correlation id."""
BROKERS_TRIED_MAX = 3
TLS_ALERT = b"\x15\x03"

UNDERSTOOD_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OF_LIBRDKAFKA_ALONE = ("ssl.keystore.", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.engine.", "ssl.crl.")
"""Beginnings of properties that the wire client does not know; librdkafka has to try by itself then."""


class Unreachable(ToolError):
    """Error: nothing at the address answers as a broker does."""


def ensure_reachable(bootstrap: str, properties: Mapping[str, object] | None = None) -> None:
    """Ask the brokers that are named, one after the other, until one answers. Raises ToolError where none does.

    Without properties it is enough that one of them takes a connection.
    """
    reasons = []
    for address in bootstrap.split(","):
        place = host_and_port(address.strip())
        try:
            if properties is None:
                socket.create_connection(place, REACH_TIMEOUT_S).close()
            else:
                _greet(place, {name: str(value) for name, value in properties.items()})
            return
        except Unreachable as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(error.strerror or str(error))
    raise Unreachable(
        f"no broker answers at {bootstrap} ({reasons[-1]}): "
        "start one with `moldau serve`, or name another with --bootstrap-server"
    )


def _greet(place: tuple[str, int], properties: Mapping[str, str]) -> None:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        _ask(place)
        return
    from moldau.cli.wire import Address, WireConnection  # plain connections need nothing of it
    from moldau.cli.wire_security import PROTOCOLS, security_of

    if protocol not in PROTOCOLS or not _is_understood(protocol, properties):
        socket.create_connection(place, REACH_TIMEOUT_S).close()
        return
    security: Security = security_of(properties)
    WireConnection(Address(*place), FIRST_ANSWER_TIMEOUT_S, security).close()


def _is_understood(protocol: str, properties: Mapping[str, str]) -> bool:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    if protocol.startswith("SASL") and mechanism.upper() not in UNDERSTOOD_SASL:
        return False
    return not any(name.startswith(OF_LIBRDKAFKA_ALONE) for name in properties)


def _ask(place: tuple[str, int]) -> None:
    with socket.create_connection(place, REACH_TIMEOUT_S) as connection:
        connection.settimeout(FIRST_ANSWER_TIMEOUT_S)
        try:
            connection.sendall(METADATA_OF_NO_TOPIC)
            begin = connection.recv(BEGIN_BYTES, socket.MSG_WAITALL)
            rest = connection.recv(max(0, _size_of(begin) - 4), socket.MSG_WAITALL)
        except TimeoutError:
            raise Unreachable("it takes connections and says nothing: is it a Kafka broker?") from None
        except ConnectionError:
            begin = rest = b""
    if begin.startswith(TLS_ALERT):
        raise Unreachable("its listener wants TLS: say so with --command-property security.protocol=SSL, or SASL_SSL")
    if len(begin) < BEGIN_BYTES:
        raise Unreachable(
            "it hangs up: its listener may want TLS or SASL (--command-property security.protocol=...), "
            "or it is no Kafka broker"
        )
    if not _size_of(begin) or begin[4:] != struct.pack(">i", CORRELATION_ID):
        raise Unreachable("what it says is not Kafka's protocol: is it a Kafka broker?")
    _reach_any(_addresses(rest), place)


def _size_of(begin: bytes) -> int:
    """The size of an answer that begins so; 0 if it is none."""
    size = int.from_bytes(begin[:4], "big")
    return size if len(begin) == BEGIN_BYTES and 4 < size <= ANSWER_BYTES_MAX else 0


def _addresses(answer: bytes) -> list[tuple[str, int]]:
    """The brokers that an answer names."""
    found = []
    try:
        (count,) = struct.unpack_from(">i", answer)
        at = 4
        for _ in range(count):
            (length,) = struct.unpack_from(">h", answer, at + 4)
            host = answer[at + 6 : at + 6 + length].decode()
            at += 6 + length
            port, rack = struct.unpack_from(">ih", answer, at)
            at += 6 + max(0, rack)
            found.append((host, port))
    except (struct.error, UnicodeDecodeError):
        raise Unreachable("its answer cannot be read: is it a Kafka broker?") from None
    return found


def _reach_any(brokers: Sequence[tuple[str, int]], asked: tuple[str, int]) -> None:
    """Connect to a broker at the address that clients are told: often it is none that is known here."""
    reason = ""
    for host, port in () if asked in brokers else brokers[:BROKERS_TRIED_MAX]:
        try:
            socket.create_connection((host, port), REACH_TIMEOUT_S).close()
            return
        except OSError as error:
            reason = f"{host}:{port} ({error.strerror or error})"
    if reason:
        raise Unreachable(
            f"it answers, and sends clients to {reason}: give it advertised.listeners that are reached from here"
        )


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of `HOST:PORT`, also with a protocol before it or an address of IPv6 in brackets."""
    place = address.rpartition("://")[2]
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(DEFAULT_PORT)
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise WrongUsage(f"{address!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)
