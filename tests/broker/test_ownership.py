"""Law: a data directory is touched only by its owner. What is typed by mistake is refused, and changes nothing."""

import shutil
import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.broker.ownership import check_directories, lock_cluster_directory, put_back, renamed_in
from moldau.core.memory_files import MemoryFiles
from moldau.log.data_directory import DirectoryError
from tests.broker.test_serve import START_ERROR, end_offset, produce, refused
from tests.broker.test_supervisor import supervised
from tests.serving import serving

HEX = "0123456789abcdef" * 2


def content(directory: Path) -> dict[str, bytes]:
    """Every file that says something, but for the store's own."""
    found = (path for path in directory.rglob("*") if path.is_file() and "metadata.sqlite" not in str(path))
    return {str(path.relative_to(directory)): path.read_bytes() for path in found if path.name != ".lock"}


# What a directory may be


class Tree:
    """Directories in memory, and the question whether a broker may use one."""

    def __init__(self) -> None:
        self.files = MemoryFiles()

    def broker(self, path: str, broker_id: int = 1) -> None:
        self.files.make_directory(path)
        self.files.write_atomically(f"{path}/meta.properties", f"broker.id={broker_id}\ncluster.id=c\n".encode())

    def refusal(self, *directories: str, names_store: bool = False) -> str:
        with pytest.raises(DirectoryError) as refusal:
            check_directories(directories, self.files, names_store=names_store)
        return str(refusal.value)

    def accepts(self, *directories: str, names_store: bool = False) -> None:
        check_directories(directories, self.files, names_store=names_store)


@pytest.fixture
def tree() -> Tree:
    return Tree()


def test_a_new_directory_and_ones_own_are_accepted(tree: Tree) -> None:
    tree.broker("/own")
    tree.accepts("/own", "/new")


def test_the_directory_of_a_cluster_is_refused_with_the_command_for_it(tree: Tree) -> None:
    lock_cluster_directory("/d", 3, tree.files)
    assert "moldau serve --brokers 3 --data /d" in tree.refusal("/d")


def test_a_cluster_of_an_earlier_version_is_known_by_its_brokers(tree: Tree) -> None:
    for number in (1, 2, 3):
        tree.broker(f"/d/broker-{number}", number)
    assert "moldau serve --brokers 3 --data /d" in tree.refusal("/d")


def test_a_directory_above_another_brokers_is_refused(tree: Tree) -> None:
    tree.broker("/d/broker-7", 7)
    assert "broker-7, the data directory of broker 7" in tree.refusal("/d")
    assert "moldau serve --data /d/broker-7" in tree.refusal("/d")
    tree.accepts("/d/broker-7")


def test_a_directory_inside_another_brokers_is_refused(tree: Tree) -> None:
    tree.broker("/d", 7)
    assert "inside /d, the data directory of broker 7" in tree.refusal("/d/more")


def test_one_broker_of_a_cluster_is_not_started_by_itself(tree: Tree) -> None:
    lock_cluster_directory("/d", 3, tree.files)
    tree.broker("/d/broker-1")
    assert "moldau serve --brokers 3 --data /d" in tree.refusal("/d/broker-1")
    tree.accepts("/d/broker-1", names_store=True)


@pytest.mark.parametrize(("one", "other"), [("/d", "/d"), ("/d", "/d/"), ("/d", "/d/e"), ("/d/e/f", "/d"), ("/", "/d")])
def test_directories_that_are_one_or_in_each_other_are_refused(tree: Tree, one: str, other: str) -> None:
    assert "log.dirs" in tree.refusal(one, other)


def test_a_link_to_a_directory_is_that_directory(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert "twice" in tree.refusal(str(tmp_path / "data"), str(tmp_path / "link"))


def test_the_directory_of_a_running_cluster_is_locked(tree: Tree) -> None:
    held = lock_cluster_directory("/d", 3, tree.files)
    with pytest.raises(DirectoryError, match="running already"):
        lock_cluster_directory("/d", 3, tree.files)
    held.release()
    lock_cluster_directory("/d", 4, tree.files)


# What an earlier version renamed


def renamed_cluster(tree: Tree) -> None:
    for number in (1, 2):
        tree.broker(f"/d/broker-{number}.{HEX}-stray", number)
    tree.broker("/d", 1001)  # what the mistaken broker left


def test_renamed_directories_are_put_back(tree: Tree) -> None:
    renamed_cluster(tree)
    assert "--put-back" in tree.refusal("/d")
    put_back(renamed_in("/d", tree.files), tree.files)
    assert tree.files.exists("/d/broker-1/meta.properties")
    assert tree.files.exists("/d/broker-2/meta.properties")
    assert not tree.files.exists("/d/meta.properties"), "or the cluster would be refused as a single broker's"
    assert renamed_in("/d", tree.files) == []


def test_a_renamed_directory_in_use_stays_as_it_is(tree: Tree) -> None:
    renamed_cluster(tree)
    tree.files.lock(f"/d/broker-2.{HEX}-stray/.lock")
    with pytest.raises(DirectoryError, match="stop it first"):
        put_back(renamed_in("/d", tree.files), tree.files)
    assert len(renamed_in("/d", tree.files)) == 2


def test_nothing_is_put_back_over_records(tree: Tree) -> None:
    renamed_cluster(tree)
    tree.broker("/d/broker-1", 1)
    tree.files.make_directory("/d/broker-1/events-0")
    tree.files.write_atomically(f"/d/broker-1/events-0/{0:020d}.log", b"x")
    with pytest.raises(DirectoryError, match="has records in events-0"):
        put_back(renamed_in("/d", tree.files), tree.files)
    assert len(renamed_in("/d", tree.files)) == 2


def test_what_was_made_since_without_a_record_gets_another_name(tree: Tree) -> None:
    renamed_cluster(tree)
    tree.broker("/d/broker-1", 1)
    tree.files.make_directory("/d/broker-1/events-0")
    tree.files.write_atomically(f"/d/broker-1/events-0/{0:020d}.log", b"")
    put_back(renamed_in("/d", tree.files), tree.files)
    assert tree.files.exists("/d/broker-1.replaced/events-0")
    assert not tree.files.exists("/d/broker-1/events-0")
    assert "--brokers 2" in tree.refusal("/d")


def test_a_stray_partition_is_not_a_brokers_directory(tree: Tree) -> None:
    tree.files.make_directory(f"/d/events-1.{HEX}-stray")
    tree.accepts("/d")


# As a person types it


def test_a_single_broker_is_refused_where_three_are_running_and_where_they_have_stopped(tmp_path: Path) -> None:
    data = tmp_path / "d"
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={data}\nlisteners=PLAINTEXT://localhost:0\n")
    with supervised(data, "--port", "0") as running:
        bootstrap = running.line_with("3 brokers are ready at ").rpartition(" ")[2].strip()
        names = sorted(path.name for path in data.iterdir())
        for arguments in (("--data", data, "--port", 0), (file,)):
            code, complaint = refused(*arguments)
            assert (code, complaint.count("\n")) == (START_ERROR, 1)
            assert f"moldau serve --brokers 3 --data {data}" in complaint
        assert sorted(path.name for path in data.iterdir()) == names
        code, complaint = refused("--brokers", 3, "--data", data, "--port", 0)
        assert (code, "running already" in complaint) == (START_ERROR, True)
        produce(bootstrap.split(",")[0])
        running.process.terminate()
        assert running.process.wait(60) == 0
    before = content(data)
    for arguments in (("--data", data, "--port", 0), (file,), ("--data", data / "broker-1", "--port", 0)):
        code, complaint = refused(*arguments)
        assert code == START_ERROR
        assert f"moldau serve --brokers 3 --data {data}" in complaint
    assert content(data) == before


def test_several_brokers_are_refused_in_the_directory_of_one(tmp_path: Path) -> None:
    data = tmp_path / "d"
    with serving(data) as server:
        produce(server.bootstrap)
        assert server.stop() == 0
    before = content(data)
    code, complaint = refused("--brokers", 3, "--data", data, "--port", 0)
    assert code == START_ERROR
    assert f"moldau serve --data {data}" in complaint
    assert content(data) == before


def test_a_port_in_use_is_found_out_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "d"
    with serving(data) as server:
        produce(server.bootstrap)
        server.kill()
    (data / "photos-2019").mkdir()
    (data / "photos-2019" / "summer.tmp").write_text("theirs")
    before = content(data)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, complaint = refused("--data", data, "--host", "127.0.0.1", "--port", taken.getsockname()[1])
    assert (code, "in use" in complaint) == (START_ERROR, True)
    assert content(data) == before
    with serving(data) as again:
        assert "left alone: photos-2019" in again.log
        assert end_offset(again.bootstrap) == 1
    assert (data / "photos-2019" / "summer.tmp").read_text() == "theirs"


def test_a_lost_store_is_not_taken_for_a_cluster_without_topics(tmp_path: Path) -> None:
    data = tmp_path / "d"
    with serving(data) as server:
        produce(server.bootstrap, 3)
        assert server.stop() == 0
    store = tmp_path / "elsewhere" / "metadata.sqlite"
    before = content(data)
    code, complaint = refused("--data", data, "--port", 0, "--override", f"metadata.store.path={store}")
    assert (code, "--adopt" in complaint, store.exists()) == (START_ERROR, True, False)
    shutil.move(data / "metadata.sqlite", tmp_path / "lost.sqlite")
    for _ in ("once", "again"):  # the first refusal must not make the store that the second would believe
        code, complaint = refused("--data", data, "--port", 0)
        assert (code, "a new metadata store" in complaint) == (START_ERROR, True)
    assert content(data) == before
    with serving(data, "--adopt") as adopted:
        assert end_offset(adopted.bootstrap) == 3
        assert adopted.stop() == 0
    with serving(data) as again:
        assert end_offset(again.bootstrap) == 3


def test_a_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with serving(tmp_path / name) as server:
            produce(server.bootstrap, 3)
            assert server.stop() == 0
    before = content(tmp_path / "a")
    other = tmp_path / "b" / "metadata.sqlite"
    code, complaint = refused("--data", tmp_path / "a", "--port", 0, "--override", f"metadata.store.path={other}")
    assert code == START_ERROR
    assert "has the metadata of cluster" in complaint
    assert content(tmp_path / "a") == before


def test_renamed_directories_are_offered_and_put_back_by_a_flag(tmp_path: Path) -> None:
    data = tmp_path / "d"
    with supervised(data, "--port", "0") as running:
        bootstrap = running.line_with("3 brokers are ready at ").rpartition(" ")[2].strip()
        produce(bootstrap.split(",")[0])
        running.process.terminate()
        assert running.process.wait(60) == 0
    for number in (1, 2, 3):
        (data / f"broker-{number}").rename(data / f"broker-{number}.{HEX}-stray")
    (data / "cluster.properties").unlink()
    (data / "meta.properties").write_text("version=0\nbroker.id=1001\ncluster.id=x\ndirectory.id=y\n")
    for arguments in (("--data", data), ("--brokers", 3, "--data", data)):
        code, complaint = refused(*arguments, "--port", 0)
        assert (code, "--put-back" in complaint) == (START_ERROR, True)
    with supervised(data, "--port", "0", "--put-back") as again:
        bootstrap = again.line_with("3 brokers are ready at ").rpartition(" ")[2].strip()
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("events", 0)])
        while (message := consumer.poll(60)) is not None and message.error() is not None:
            pass  # a leader is being elected
        assert message is not None
        assert (message.offset(), message.value()) == (0, b"v")
        consumer.close()


@pytest.mark.parametrize(
    ("name", "said", "complaint"),
    [
        ("meta.properties", b"\xff\xfe", "broken"),
        ("meta.properties", b"broker.id=one\n", "broker.id 'one'"),
        ("metadata.sqlite", b"not a database at all", "cannot be used as a metadata store"),
    ],
)
def test_a_file_that_is_broken_is_named(tmp_path: Path, name: str, said: bytes, complaint: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_bytes(said)
    code, told = refused("--data", tmp_path / "d", "--port", 0)
    assert (code, told.count("\n")) == (START_ERROR, 1)
    assert str(tmp_path / "d") in told
    assert complaint in told
    assert (tmp_path / "d" / name).read_bytes() == said


@pytest.mark.parametrize("is_link", [True, False])
def test_what_is_not_a_directory_is_called_so(tmp_path: Path, is_link: bool) -> None:
    if is_link:
        (tmp_path / "d").symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / "d").write_text("a file")
    for several in ((), ("--brokers", 3)):
        _, told = refused("--data", tmp_path / "d", "--port", 0, *several)
        assert "Not a directory" in told.splitlines()[-1]


def test_a_comma_too_many_is_told(tree: Tree) -> None:
    assert "comma" in tree.refusal("/d", "")


def test_new_data_directories_are_for_their_owner_alone(tmp_path: Path) -> None:
    with serving(tmp_path / "d", "--override", f"metadata.store.path={tmp_path / 's' / 'metadata.sqlite'}"):
        assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
