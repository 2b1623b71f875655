"""Choice of the metadata store of a broker, so that brokers meant to be one cluster are, and others never.

The first that fits: ZooKeeper; the file that `metadata.store.path` names; the file in the first data directory, which
every broker that ran alone has; the file that this broker joined before (`metadata.location`); the file of a sibling;
a new one in the first data directory.

A sibling is what three properties files on one machine make: directories side by side with names that differ in a
trailing `-<digits>` alone (`/tmp/kafka-logs`, `/tmp/kafka-logs-1`), of brokers with another `broker.id`. Only a
broker with a number of its own and without a past looks for one. Those that start at the same moment take turns.
What belongs to another user is no sibling: in `/tmp` anybody may make a directory of any name.
"""

import logging
import os
import re
from sqlite3 import DatabaseError
from typing import NamedTuple

from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.store import MetadataStore
from moldau.core.broker_config import BrokerConfig
from moldau.core.files import DirectoryLock, Files
from moldau.core.properties import parse_properties
from moldau.log.data_directory import META_PROPERTIES_FILE, DirectoryError

log = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"
LOCATION_FILE = "metadata.location"
_NUMBER_AT_THE_END = re.compile(r"-\d+$")


class StorePlace(NamedTuple):
    """Place of the store: the hosts of an ensemble, or a file."""

    zookeeper: str | None
    path: str
    is_joined: bool = False
    """The file is a sibling's: to be remembered, once we are in."""


def choose_store(config: BrokerConfig, files: Files) -> StorePlace:
    """Looks, and changes nothing."""
    directory = config.data_directories[0]
    connect, named = config.optional_string("zookeeper.connect"), config.optional_string("metadata.store.path")
    if connect:
        return StorePlace(connect, "")
    if named:
        return StorePlace(None, named)
    own = f"{directory}/{METADATA_FILE}"
    known = own if files.exists(own) else _location(directory, files)
    if known is not None:
        return StorePlace(None, known)
    sibling = _sibling_store(config, files) if looks_for_siblings(config, files) else None
    return StorePlace(None, own) if sibling is None else StorePlace(None, sibling, is_joined=True)


def open_store(place: StorePlace, config: BrokerConfig, files: Files) -> MetadataStore:
    """A session with it, or one that the first call begins."""
    if place.zookeeper is not None:
        from moldau.cluster.zookeeper.store import ZooKeeperStore  # kazoo is for those who have an ensemble

        connection_timeout_ms = config.optional_int("zookeeper.connection.timeout.ms")
        return ZooKeeperStore(place.zookeeper, config.int("zookeeper.session.timeout.ms"), connection_timeout_ms)
    files.make_directory(os.path.dirname(os.path.abspath(place.path)), private=True)
    try:
        return EmbeddedStore(place.path, session_timeout_ms=config.int("broker.session.timeout.ms"))
    except DatabaseError as error:
        raise DirectoryError(f"{place.path} cannot be used as a metadata store: {error}") from error


def looks_for_siblings(config: BrokerConfig, files: Files) -> bool:
    """Whether this is a new broker with a number of its own and without a word on where its metadata is."""
    if config.optional_string("zookeeper.connect") or config.optional_string("metadata.store.path"):
        return False
    return config.broker_id >= 0 and not any(_has_past(each, files) for each in config.data_directories)


def lock_siblings(config: BrokerConfig, files: Files) -> DirectoryLock | None:
    """The lock under which new siblings start one after the other; None while another has it.

    Raises OSError where another user has put something in its place.
    """
    parent, name = _place(config)
    files.make_directory(parent)
    return files.lock(f"{parent}/.{_stem(name)}.moldau.lock")


def remember(config: BrokerConfig, files: Files, place: StorePlace) -> None:
    """Write down which file we joined."""
    files.write_atomically(f"{config.data_directories[0]}/{LOCATION_FILE}", f"{place.path}\n".encode())
    log.info("joining the cluster of %s (set metadata.store.path to keep apart)", os.path.dirname(place.path))


def _has_past(directory: str, files: Files) -> bool:
    names = (META_PROPERTIES_FILE, METADATA_FILE, LOCATION_FILE)
    return any(files.exists(f"{directory}/{name}") for name in names)


def _location(directory: str, files: Files) -> str | None:
    path = f"{directory}/{LOCATION_FILE}"
    return files.read(path).decode().strip() if files.exists(path) else None


def _sibling_store(config: BrokerConfig, files: Files) -> str | None:
    """The one store of all siblings; None if there is none, or more than one."""
    parent, name = _place(config)
    found = {
        store
        for other in (files.list(parent) if files.is_directory(parent) else [])
        if other != name and _stem(other) == _stem(name)
        if (store := _store_of(f"{parent}/{other}", config.broker_id, files)) is not None
    }
    if len(found) > 1:
        log.warning("there are several clusters beside %s/%s: set metadata.store.path to join one", parent, name)
    return found.pop() if len(found) == 1 else None


def _store_of(directory: str, broker_id: int, files: Files) -> str | None:
    """The store that another broker's directory leads to."""
    if not files.exists(f"{directory}/{META_PROPERTIES_FILE}") or not files.is_ours(directory):
        return None
    properties = parse_properties(files.read(f"{directory}/{META_PROPERTIES_FILE}").decode(errors="replace"))
    if (properties.get("broker.id") or properties.get("node.id")) == str(broker_id):
        return None
    own = f"{directory}/{METADATA_FILE}"
    store = own if files.exists(own) else _location(directory, files)
    if store is None or not files.exists(store):
        return store
    return store if files.is_ours(store) else None


def _place(config: BrokerConfig) -> tuple[str, str]:
    parent, name = os.path.split(os.path.abspath(config.data_directories[0]))
    return parent, name


def _stem(name: str) -> str:
    return _NUMBER_AT_THE_END.sub("", name)
