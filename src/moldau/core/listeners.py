"""Listener addresses, in the form of `listeners` and `advertised.listeners`: NAME://host:port between commas."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.core.config import ConfigError

SERVED_PROTOCOL = "PLAINTEXT"
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS = re.compile(r"([^:/\s]+)://(?:\[([0-9a-zA-Z%.:]*)\]|([0-9a-zA-Z\-%._:]*)):([0-9]{1,5})")


class Listener(NamedTuple):
    """An address by name. Host "" is every interface (or, advertised, this machine); port 0 is any free one."""

    name: str
    host: str
    port: int
    security: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Address(NamedTuple):
    """A host, "" for every interface, and a port, 0 for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def to_bind(self) -> tuple[str | None, int]:
        """Arguments of `create_server`."""
        return self.host or None, self.port


def parse_address(prop: str, text: str) -> Address | None:
    """The `host:port` that property `prop` names, None if it names nothing; raises ConfigError."""
    if not text:
        return None
    match = _ADDRESS.fullmatch(f"X://{text}")
    if not match or int(match[4]) > 65535:
        raise ConfigError(prop, f"{text!r} is not an address like host:port")
    return Address(match[2] or match[3] or "", int(match[4]))


def parse_listeners(prop: str, addresses: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners that property `prop` names; raises ConfigError. `protocols`: security protocol by name."""
    return tuple(_parse_listener(prop, address, protocols) for address in addresses)


def _parse_listener(prop: str, address: str, protocols: Mapping[str, str]) -> Listener:
    match = _ADDRESS.fullmatch(address)
    if not match or int(match[4]) > 65535:
        raise ConfigError(prop, f"{address!r} is not an address like NAME://host:port")
    name = match[1].upper()
    if name not in protocols:
        raise ConfigError(prop, f"listener {name} has no entry in listener.security.protocol.map")
    return Listener(name, match[2] or match[3] or "", int(match[4]), protocols[name])


def check_distinct(prop: str, listeners: Iterable[Listener]) -> None:
    """Refuse two listeners of one name, or on one host and port."""
    names: set[str] = set()
    addresses: set[tuple[str, int]] = set()
    for listener in listeners:
        address = (listener.host, listener.port)
        if listener.name in names:
            raise ConfigError(prop, f"listener {listener.name} is there twice")
        if listener.port and address in addresses:
            raise ConfigError(prop, f"two listeners on port {listener.port}")
        names.add(listener.name)
        addresses.add(address)


def check_served(prop: str, listeners: Iterable[Listener]) -> None:
    """Refuse listeners that would be served in the clear though their protocol says otherwise."""
    for listener in listeners:
        if listener.security != SERVED_PROTOCOL:
            reason = f"{listener} wants {listener.security}, and only {SERVED_PROTOCOL} is served yet: make it that"
            raise ConfigError(prop, f"{reason}, here or in listener.security.protocol.map")


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: security protocol by listener name; raises ConfigError."""
    prop = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(prop, f"{item!r} is not NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
        if name in protocols:
            raise ConfigError(prop, f"listener {name} is there twice")
        protocols[name] = protocol
    return protocols
