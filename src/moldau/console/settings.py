"""Settings of a console."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moldau.cli.wire_security import Security, security_of

DEFAULT_PORT = 9480
DEFAULT_HOST = "127.0.0.1"
SAMPLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that the command line gives."""

    bootstrap: str
    properties: Mapping[str, Any]
    """Settings for librdkafka, `bootstrap.servers` among them."""
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    users: Path | None = None
    """The file of users; None: everybody who reaches the port is an editor, and only this machine does."""
    read_only: bool = False
    audit_log: Path | None = None
    """The file in which changes are noted; None only together with `read_only`."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides `localhost` under which browsers may reach the console."""
    metrics: tuple[str, ...] = ()
    """Addresses HOST:PORT of brokers' metrics; empty: those that the brokers' configuration names."""
    registry: str | None = None
    """URL of a Schema Registry."""
    pipelines: tuple[Path, ...] = ()
    """Files of pipelines that are shown, stopped and started."""
    sample_s: float = SAMPLE_S
    """Seconds between two looks at the cluster."""

    @property
    def security(self) -> Security:
        """The security of raw requests. Raises ToolError for one that only librdkafka speaks."""
        return security_of({name: value for name, value in self.properties.items() if isinstance(value, str)})


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
