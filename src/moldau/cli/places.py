"""The cluster that a tool speaks to: named by options, else by the environment, else by the file of named clusters.

`~/.config/moldau.toml` (or the file that MOLDAU_CONFIG names) looks like this:

    default = "laptop"

    [clusters.laptop]
    bootstrap-server = "localhost:9092"

    [clusters.production]
    bootstrap-server = "kafka-1:9093,kafka-2:9093"
    command-config = "/etc/moldau/client.properties"
    properties = { "security.protocol" = "SSL" }
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from moldau.cli.failures import ToolError, WrongUsage
from moldau.core.properties import parse_properties

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP_SERVER"
CLUSTER_VARIABLE = "MOLDAU_CLUSTER"
FILE_VARIABLE = "MOLDAU_CONFIG"

_KEYS = {"bootstrap-server": str, "command-config": str, "properties": dict}


class Place(NamedTuple):
    """The way to a cluster."""

    bootstrap: str
    properties: Mapping[str, str]
    """Client properties that the file of clusters gives."""


def place(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Place:
    """The cluster that options, environment and file name, in this order."""
    named_address = getattr(options, "bootstrap_server", None)
    named_cluster = getattr(options, "cluster", None)
    for name, given in (("--bootstrap-server", named_address), ("--cluster", named_cluster)):
        if given is not None and not given.strip():
            raise WrongUsage(f"{name} is empty: leave it out, or name a cluster")
    if named_address and named_cluster:
        raise WrongUsage("--bootstrap-server and --cluster exclude each other")
    if named_address:
        return Place(named_address, {})
    if named_cluster:
        return _cluster(named_cluster, environment)
    if environment.get(BOOTSTRAP_VARIABLE):
        return Place(environment[BOOTSTRAP_VARIABLE], {})
    if environment.get(CLUSTER_VARIABLE):
        return _cluster(environment[CLUSTER_VARIABLE], environment)
    default = _file(environment)[1].get("default")
    return Place(DEFAULT_BOOTSTRAP, {}) if default is None else _cluster(default, environment)


def config_path(environment: Mapping[str, str]) -> Path:
    """The path of the file of clusters."""
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "~"), ".config")
    return Path(home).expanduser() / "moldau.toml"


def _file(environment: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    path = config_path(environment)
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        if environment.get(FILE_VARIABLE):
            raise ToolError(f"{FILE_VARIABLE} names {path}, which does not exist") from error
        return path, {}
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    import tomllib  # 8 ms that most commands do not need

    try:
        return path, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ToolError(f"{path} is not TOML: {error}") from error


def _cluster(name: str, environment: Mapping[str, str]) -> Place:
    path, content = _file(environment)
    clusters = content.get("clusters", {})
    found = clusters.get(name) if isinstance(clusters, dict) and isinstance(name, str) else None
    if not isinstance(found, dict):
        known = ", ".join(clusters) if isinstance(clusters, dict) and clusters else "none"
        raise ToolError(f"there is no cluster {name!r} in {path}: it names {known}")
    for key, value in found.items():
        if key not in _KEYS:
            raise ToolError(f"{path}: cluster {name} has {key!r}, which is none of {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]):
            raise ToolError(f"{path}: {key} of cluster {name} is not a {_KEYS[key].__name__}")
    if not found.get("bootstrap-server"):
        raise ToolError(f"{path}: cluster {name} has no bootstrap-server")
    given = found.get("properties", {})
    return Place(found["bootstrap-server"], {**_command_config(found, path), **{k: _text(v) for k, v in given.items()}})


def _command_config(found: Mapping[str, Any], beside: Path) -> dict[str, str]:
    named = found.get("command-config")
    return {} if named is None else read_properties(str(beside.parent / Path(named).expanduser()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file."""
    try:
        return parse_properties(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
