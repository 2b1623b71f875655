"""Which metadata store a broker takes: brokers meant to be one cluster meet, others never do."""

import pytest

from moldau.broker.store_choice import StorePlace, choose_store, lock_siblings, looks_for_siblings, remember
from moldau.core.broker_config import BrokerConfig
from moldau.core.memory_files import MemoryFiles


def config_of(directory: str, broker_id: int | None = None, **properties: str) -> BrokerConfig:
    given = {"log.dirs": directory, **{name.replace("_", "."): value for name, value in properties.items()}}
    return BrokerConfig(given if broker_id is None else {**given, "broker.id": str(broker_id)})


def settle(files: MemoryFiles, directory: str, broker_id: int, *, store: bool = True, location: str = "") -> None:
    """A broker has run in `directory`."""
    files.make_directory(directory)
    files.write_atomically(f"{directory}/meta.properties", f"broker.id={broker_id}\ncluster.id=c\n".encode())
    if store:
        files.write_atomically(f"{directory}/metadata.sqlite", b"x")
    if location:
        files.write_atomically(f"{directory}/metadata.location", f"{location}\n".encode())


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    made.make_directory("/tmp")
    return made


def test_zookeeper_wins_over_every_file(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    config = config_of("/tmp/kafka-logs", 0, zookeeper_connect="zk:2181", metadata_store_path="/tmp/m")
    assert choose_store(config, files) == StorePlace("zk:2181", "")


def test_the_named_file_wins_over_the_own_one(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    config = config_of("/tmp/kafka-logs", 0, metadata_store_path="/tmp/m")
    assert choose_store(config, files) == StorePlace(None, "/tmp/m")


def test_a_broker_that_ran_alone_keeps_its_own_file_whoever_is_beside_it(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    settle(files, "/tmp/kafka-logs-1", 1)
    assert choose_store(config_of("/tmp/kafka-logs-1", 1), files).path == "/tmp/kafka-logs-1/metadata.sqlite"


@pytest.mark.parametrize("name", ["kafka-logs-1", "kafka-logs-22", "kafka-logs"])
def test_a_new_broker_joins_its_sibling(files: MemoryFiles, name: str) -> None:
    first = "kafka-logs-0" if name == "kafka-logs" else "kafka-logs"
    settle(files, f"/tmp/{first}", 0)
    place = choose_store(config_of(f"/tmp/{name}", 1), files)
    assert place == StorePlace(None, f"/tmp/{first}/metadata.sqlite", is_joined=True)


def test_a_third_broker_finds_the_store_by_way_of_the_second(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs-1", 1, store=False, location="/tmp/kafka-logs/metadata.sqlite")
    assert choose_store(config_of("/tmp/kafka-logs-2", 2), files).path == "/tmp/kafka-logs/metadata.sqlite"


def test_what_was_joined_once_is_remembered(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    config = config_of("/tmp/kafka-logs-1", 1)
    files.make_directory("/tmp/kafka-logs-1")
    remember(config, files, choose_store(config, files))
    files.remove("/tmp/kafka-logs/meta.properties")
    assert choose_store(config, files) == StorePlace(None, "/tmp/kafka-logs/metadata.sqlite")


@pytest.mark.parametrize(
    ("directory", "broker_id"),
    [
        ("/tmp/kafka-logs-1", None),  # takes a number that the store gives out
        ("/tmp/kafka-logs-1", 0),  # the sibling's own number: not another broker
        ("/tmp/other-logs-1", 1),  # another name
        ("/tmp/kafka-logs-b", 1),  # no number at the end
        ("/data/kafka-logs-1", 1),  # not side by side
    ],
)
def test_who_is_not_a_sibling_has_a_store_of_its_own(files: MemoryFiles, directory: str, broker_id: int | None) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    assert choose_store(config_of(directory, broker_id), files) == StorePlace(None, f"{directory}/metadata.sqlite")


def test_a_broker_with_a_past_joins_nobody(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    settle(files, "/tmp/kafka-logs-1", 1, store=False)  # Apache Kafka's, to be adopted
    assert choose_store(config_of("/tmp/kafka-logs-1", 1), files).path == "/tmp/kafka-logs-1/metadata.sqlite"


@pytest.mark.parametrize("foreign", ["/tmp/kafka-logs", "/tmp/kafka-logs/metadata.sqlite"])
def test_what_belongs_to_another_user_is_not_joined(files: MemoryFiles, foreign: str) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    files.foreign.add(foreign)
    assert choose_store(config_of("/tmp/kafka-logs-1", 1), files).path == "/tmp/kafka-logs-1/metadata.sqlite"


def test_two_clusters_side_by_side_are_not_guessed_between(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    settle(files, "/tmp/kafka-logs-1", 1)
    assert choose_store(config_of("/tmp/kafka-logs-2", 2), files).path == "/tmp/kafka-logs-2/metadata.sqlite"


def test_new_siblings_take_turns(files: MemoryFiles) -> None:
    first, second = config_of("/tmp/kafka-logs-1", 1), config_of("/tmp/kafka-logs-2", 2)
    assert looks_for_siblings(first, files)
    assert looks_for_siblings(second, files)
    held = lock_siblings(first, files)
    assert held is not None
    assert lock_siblings(second, files) is None
    held.release()
    assert lock_siblings(second, files) is not None


def test_a_broker_with_a_past_waits_for_nobody(files: MemoryFiles) -> None:
    settle(files, "/tmp/kafka-logs", 0)
    assert not looks_for_siblings(config_of("/tmp/kafka-logs", 0), files)
