"""Brokers that come, go, fail and return: several of them in one event loop, over one store."""

import asyncio
import functools
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec

import pytest

from moldau.broker.broker import Broker
from moldau.broker.registration import BrokerStartError
from moldau.cluster.changes import TopicChange
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import ClusterImage, PartitionImage
from moldau.cluster.metadata import Metadata
from moldau.core.broker_config import BrokerConfig
from moldau.core.ids import TopicPartition
from moldau.log.data_directory import STRAY_SUFFIX
from moldau.log.manager import LogManager
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import Record, build_batch
from moldau.replication.partition import Partition
from moldau.testing import async_broker
from tests.cluster.embedded.slow_disk import Disk
from tests.cluster.embedded.test_store import end_session

DEADLINE_S = 20.0
SHUTDOWN_S = 20.0
"""How long a broker tries to hand over what it leads: `controlled.shutdown.max.retries`, and the pause between them."""
PRODUCE_VERSION = 9
EVENTS_0 = TopicPartition("events", 0)

Parameters = ParamSpec("Parameters")


def in_loop(test: Callable[Parameters, Coroutine[None, None, None]]) -> Callable[Parameters, None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 2 * DEADLINE_S))

    return run


class Brokers:
    """Brokers with the numbers 1, 2, 3, each with two data directories."""

    def __init__(self, root: Path, directories: str = "xy") -> None:
        self._root = root
        self._letters = directories
        self.running: dict[int, Broker] = {}

    def directories(self, number: int) -> list[Path]:
        return [self._root / f"{letter}{number}" for letter in self._letters]

    async def start(self, *numbers: int, may_adopt: bool = False) -> None:
        for number in numbers:
            properties = {
                "broker.id": str(number),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": ",".join(map(str, self.directories(number))),
                "log.flush.policy": "os",
                "metadata.store.path": str(self._root / "metadata.sqlite"),
                "metrics.listener": "",
            }
            broker = Broker(BrokerConfig.parse(properties)[0], may_adopt=may_adopt)
            await broker.start()
            self.running[number] = broker

    async def stop(self, number: int) -> None:
        await self.running.pop(number).stop()

    async def kill(self, number: int) -> None:
        await self.running.pop(number).abort()

    async def create(self, *replicas: int, partitions: int = 1) -> None:
        metadata = next(iter(self.running.values())).services.metadata
        await metadata.create_topic("events", [list(replicas)] * partitions)
        await self.until(lambda image: "events" in image.topics)

    async def until(self, condition: Callable[[ClusterImage], bool]) -> None:
        """Until every running broker knows of a cluster like that."""
        await until(lambda: all(condition(each.services.metadata.image) for each in self.running.values()))

    async def until_state(self, condition: Callable[[PartitionImage], bool], index: int = 0) -> PartitionImage:
        await self.until(lambda image: "events" in image.topics and condition(image.topics["events"].partitions[index]))
        return self.state(index)

    def state(self, index: int = 0) -> PartitionImage:
        image = next(iter(self.running.values())).services.metadata.image
        return image.topics["events"].partitions[index]

    def led(self, number: int, index: int = 0) -> Partition:
        return self.running[number].services.replicas.get("events", index)

    def produce(self, number: int, count: int, index: int = 0) -> None:
        now_ms = self.running[number].services.clock.now_ms()
        batch = build_batch([Record(offset, now_ms, None, b"x") for offset in range(count)])
        self.led(number, index).append(batch, PRODUCE_VERSION, 1, now_ms)


def is_committed_by_both(cluster: Brokers) -> bool:
    """Whether two in-sync replicas have a record; whoever leads now is given one. The leader may be another one at each
    look."""
    leader = cluster.state().leader
    led = cluster.running[leader].services.replicas.find("events", 0) if leader in cluster.running else None
    if led is None:
        return False
    if not led.log.log_end_offset:
        cluster.produce(led.broker_id, 1)
    return led.high_watermark > 0 and set(led.in_sync_replicas) == {1, 2}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def brokers(root: Path, *numbers: int) -> AsyncIterator[Brokers]:
    made = Brokers(root)
    try:
        await made.start(*numbers)
        await made.until(lambda image: len(image.brokers) == len(numbers) and image.controller_id != -1)
        yield made
    finally:
        for number in list(made.running):
            await made.stop(number)


def lose_session(broker: Broker) -> None:
    """As another process ends the session of one that hangs; this one notices at its next call."""
    tree = broker.store._tree  # type: ignore[attr-defined]
    with tree.transaction():
        tree.log(tree.end_sessions([broker.store.session_id]))
    broker.store._in_loop(broker.store._catch_up)  # type: ignore[attr-defined]


@in_loop
async def test_a_follower_takes_over_from_a_leader_that_is_killed(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        cluster.produce(1, 10)
        await until(lambda: cluster.led(1).high_watermark == 10)
        await cluster.kill(1)
        after = await cluster.until_state(lambda state: state.leader == 2)
        assert (after.leader_epoch, after.isr) == (1, (2,))
        assert cluster.led(2).log.log_end_offset == 10


@in_loop
async def test_clients_are_served_while_the_metadata_store_waits_for_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        disk.stand_still()
        change = asyncio.create_task(cluster.running[1].services.metadata.set_topic_configs("events", {}))
        await asyncio.to_thread(disk.is_syncing.wait)
        cluster.produce(1, 10)
        await until(lambda: cluster.led(1).high_watermark == 10)
        assert not change.done()
        disk.go_on()
        await change


@in_loop
async def test_who_was_killed_follows_and_comes_into_sync_again(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        await cluster.kill(1)
        await cluster.until_state(lambda state: state.leader == 2)
        cluster.produce(2, 7)
        await cluster.start(1)
        after = await cluster.until_state(lambda state: state.isr == (2, 1))
        assert (after.leader, after.leader_epoch) == (2, 1)
        replica = cluster.running[1].services.replicas.replica("events", 0)
        assert replica is not None
        assert replica.log.log_end_offset == 7


@in_loop
async def test_a_broker_that_stops_lets_others_lead_first(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        seen: list[PartitionImage] = []
        cluster.running[2].services.metadata.subscribe(
            lambda _, new: seen.append(new.topics["events"].partitions[0]) if 1 in new.brokers else None
        )
        await cluster.stop(1)
        assert seen[-1].leader == 2, "it was handed over while the broker was still there"
        assert seen[-1].isr == (2,)


@in_loop
async def test_after_a_clean_stop_nothing_is_written(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.create(1)
        before = cluster.state()
        await cluster.stop(1)
        await cluster.start(1)
        assert cluster.state() == before


@in_loop
async def test_after_an_unclean_stop_a_lone_leader_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.create(1)
        cluster.produce(1, 3)
        await cluster.kill(1)
        await cluster.start(1)
        assert (cluster.state().leader, cluster.state().leader_epoch, cluster.state().isr) == (1, 1, (1,))
        assert cluster.led(1).leader_epoch == 1
        assert cluster.led(1).high_watermark == 3


@in_loop
async def test_brokers_that_all_stop_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3, partitions=5)
        stopping = [cluster.running.pop(number).stop() for number in (1, 2, 3)]
        await asyncio.wait_for(asyncio.gather(*stopping), SHUTDOWN_S / 2)


@in_loop
async def test_who_loses_the_session_leads_nothing_until_it_is_registered_again(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        led = cluster.led(1)
        before = cluster.running[1].services.metadata.image.brokers[1].epoch
        lose_session(cluster.running[1])
        assert not led.is_led
        with pytest.raises(ApiError) as refused:
            cluster.produce(1, 1)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.until(lambda image: 1 in image.brokers and image.brokers[1].epoch > before)
        await until(lambda: is_committed_by_both(cluster))


@in_loop
async def test_a_deleted_topic_leaves_no_file_open_though_its_partition_is_still_held(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.create(1)
        cluster.produce(1, 1)
        held = cluster.led(1)
        assert held.log.segments.active.is_open
        await cluster.running[1].services.metadata.delete_topic("events")
        await cluster.until(lambda image: "events" not in image.topics)
        assert not any(segment.is_open for segment in held.log.segments)


@in_loop
async def test_a_lone_broker_that_loses_the_session_leads_again(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.create(1)
        before = cluster.led(1)
        lose_session(cluster.running[1])
        await until(lambda: cluster.running[1].services.replicas.find("events", 0) is not None)
        assert cluster.led(1) is not before
        cluster.produce(1, 1)
        assert cluster.led(1).high_watermark == 1


@in_loop
async def test_a_directory_that_fails_costs_its_partitions_their_leader_and_nothing_else(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, partitions=4)
        await until(lambda: len(cluster.running[1].services.replicas.led()) == 4)
        logs = cluster.running[1].services.logs
        failing = logs.directories[1]
        lost = {index for index in range(4) if logs.home_of(TopicPartition("events", index)) == failing.path}
        assert 0 < len(lost) < 4
        cluster.led(1, min(lost)).log.fail(OSError("the disk is gone"))
        for index in range(4):
            leader = 2 if index in lost else 1
            await cluster.until_state(lambda state, leader=leader: state.leader == leader, index)  # type: ignore[misc]
        image = cluster.running[2].services.metadata.image
        assert set(image.brokers[1].offline["events"]) == lost
        assert {index for index in range(4) if image.offline_replicas("events", index) == [1]} == lost


@in_loop
async def test_a_partition_in_a_directory_that_cannot_be_read_is_not_made_anew(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, partitions=4)
        await until(lambda: len(cluster.running[1].services.replicas.led()) == 4)
        lost = {int(path.name.rpartition("-")[2]) for path in cluster.directories(1)[1].glob("events-*")}
        assert 0 < len(lost) < 4
        await cluster.kill(2)
        await cluster.until(lambda image: 2 not in image.brokers)
        await cluster.stop(1)
        shutil.move(cluster.directories(1)[1], tmp_path / "away")
        cluster.directories(1)[1].write_text("not a directory")
        await cluster.start(1)
        await until(lambda: len(cluster.running[1].services.replicas.led()) == 4 - len(lost))
        assert set(cluster.running[1].services.metadata.image.brokers[1].offline["events"]) == lost
        assert not [path for index in lost for path in cluster.directories(1)[0].glob(f"events-{index}")]


@in_loop
async def test_a_topic_made_anew_while_a_broker_was_down_is_not_mixed_up_with_the_old_one(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        cluster.produce(1, 9)
        await until(lambda: cluster.led(1).high_watermark == 9)
        await cluster.kill(2)
        metadata = cluster.running[1].services.metadata
        await metadata.delete_topic("events")
        await cluster.create(1, 2)
        cluster.produce(1, 1)
        await cluster.start(2)
        await cluster.until_state(lambda state: state.isr == (1, 2))
        replica = cluster.running[2].services.replicas.replica("events", 0)
        assert replica is not None
        assert replica.log.log_end_offset == 1
        assert [path for each in cluster.directories(2) for path in each.glob(f"events-0.*{STRAY_SUFFIX}")]


@in_loop
async def test_a_log_whose_replicas_are_others_now_is_set_aside_and_not_deleted(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        cluster.produce(1, 9)
        await until(lambda: cluster.led(1).high_watermark == 9)
        await cluster.kill(2)
        before = await cluster.until_state(lambda state: state.isr == (1,))
        metadata = cluster.running[1].services.metadata
        topic = metadata.image.topics["events"]
        await metadata.write([TopicChange(topic.with_partition(0, before._replace(replicas=(1,))))])
        await cluster.start(2)
        assert [path for each in cluster.directories(2) for path in each.glob(f"events-0.*{STRAY_SUFFIX}")]


@in_loop
async def test_a_log_in_a_directory_that_was_not_ours_is_left_alone(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.create(1)
        cluster.produce(1, 3)
        await cluster.stop(1)
        for directory in cluster.directories(1):
            if (directory / "events-0").exists():
                shutil.copytree(directory / "events-0", directory / "others-0")
                (directory / "meta.properties").unlink()
                home = directory
        before = sorted(path.name for path in (home / "others-0").iterdir())
        for _ in ("now the directory was not ours", "now it was"):
            await cluster.start(1)
            assert sorted(path.name for path in (home / "others-0").iterdir()) == before
            assert cluster.led(1).log.log_end_offset == 3
            await cluster.stop(1)


@in_loop
async def test_no_replica_is_deleted_when_a_lost_store_is_made_anew(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, partitions=2)
        cluster.produce(1, 3)
        await until(lambda: cluster.led(1).high_watermark == 3)
        for number in (1, 2):
            await cluster.stop(number)
        for path in tmp_path.glob("metadata.sqlite*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for _ in ("adopted", "and once more, as any other start"):
            await cluster.start(1, 2, may_adopt=True)
            await until(lambda: cluster.running[1].services.replicas.find("events", 0) is not None)
            assert cluster.led(1).log.log_end_offset == 3
            second = [path for each in cluster.directories(2) for path in each.glob("events-?")]
            assert sorted(path.name for path in second) == ["events-0", "events-1"], (
                "left alone: nobody knows which is newer"
            )
            for number in (1, 2):
                await cluster.stop(number)


@in_loop
async def test_a_link_in_the_place_where_siblings_take_turns_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / ".kafka-logs.moldau.lock").symlink_to(tmp_path / "elsewhere")
    properties = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "kafka-logs-1"),
    }
    broker = Broker(BrokerConfig.parse(properties)[0])
    await broker.start()
    assert not (tmp_path / "elsewhere").exists()
    await broker.stop()


@in_loop
async def test_the_high_watermark_of_a_follower_outlives_a_clean_restart(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        cluster.produce(1, 5)
        followed = cluster.running[2].services.replicas.replica("events", 0)
        await until(lambda: followed is not None and followed.high_watermark == 5)
        await cluster.stop(2)
        await cluster.start(2)
        again = cluster.running[2].services.replicas.replica("events", 0)
        assert again is not None
        assert again.high_watermark == 5


@in_loop
async def test_a_second_broker_of_the_same_number_is_refused(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        other = Brokers(tmp_path, directories="uv")
        with pytest.raises(BrokerStartError, match=r"broker 1 is running already at 127\.0\.0\.1:"):
            await other.start(1)
        assert set(cluster.running[1].services.metadata.image.brokers) == {1}


@in_loop
async def test_three_properties_files_side_by_side_make_one_cluster(tmp_path: Path) -> None:
    made = []
    for number, name in enumerate(("kafka-logs", "kafka-logs-1", "kafka-logs-2")):
        properties = {
            "broker.id": str(number),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / name),
        }
        made.append(Broker(BrokerConfig.parse(properties)[0]))
    await asyncio.gather(*(each.start() for each in made))
    await until(lambda: all(set(each.services.metadata.image.brokers) == {0, 1, 2} for each in made))
    assert len({each.services.metadata.image.cluster_id for each in made}) == 1
    for each in made:
        await each.stop()


@in_loop
async def test_a_broker_whose_session_ends_while_it_opens_its_logs_begins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers(tmp_path, 1, 2) as two:
        await two.create(1, 2)
        await two.kill(2)
        judge = EmbeddedStore(str(tmp_path / "metadata.sqlite"))
        loop, load = asyncio.get_running_loop(), LogManager.load

        async def end_the_newest_session() -> None:
            end_session(judge, max(judge._tree.sessions()))

        def load_for_long(logs: LogManager, topics: Iterable[bytes]) -> None:
            load(logs, topics)
            asyncio.run_coroutine_threadsafe(end_the_newest_session(), loop).result(DEADLINE_S)

        with monkeypatch.context() as slow:
            slow.setattr(LogManager, "load", load_for_long)
            await two.start(2)
        await two.until_state(lambda state: set(state.isr) == {1, 2})
        await judge.close()


@in_loop
async def test_who_is_served_is_told_of_a_controller(tmp_path: Path) -> None:
    """librdkafka's administrator waits for minutes if the first answer knows of none."""
    claim = Metadata.claim_controller

    async def claim_slowly(metadata: Metadata, broker_id: int) -> bool:
        await asyncio.sleep(0.1)
        return await claim(metadata, broker_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Metadata, "claim_controller", claim_slowly)
        async with async_broker(data=tmp_path) as running:
            assert running.broker.services.metadata.image.controller_id == running.broker.broker_id
