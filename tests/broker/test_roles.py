"""What a broker does when the image says that its role has changed."""

import asyncio
from collections.abc import Iterator

import pytest

from moldau.broker.log_maker import AT_ONCE_MAX
from moldau.broker.roles import NotFollowed, Roles
from moldau.cluster.image import NO_TOPIC_ID, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.log.checkpoints import read_topic_id
from moldau.log.data_directory import TOPIC_ID_FILE
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.follower import FollowedPartition
from moldau.replication.partition import Partition
from tests.handlers.conftest import BROKER_ID, World

ME, OTHER, THIRD = int(BROKER_ID), 2, 3
TOPIC_ID = bytes(range(16))
EVENTS_0 = TopicPartition("events", 0)
PATIENCE_S = 5.0


class FakeFetchers:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.following: dict[TopicPartition, FollowedPartition] = {}
        self.stopped: list[TopicPartition] = []

    def follow(self, partition: FollowedPartition) -> None:
        self.following[partition.topic_partition] = partition

    def stop(self, topic_partition: TopicPartition) -> None:
        self.stopped.append(topic_partition)
        self.following.pop(topic_partition, None)


class Stage:
    """A follower of images that a test makes up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fetchers = FakeFetchers()
        self.offline: list[TopicPartition] = []
        self.roles = Roles(world.parts, self.fetchers, None, self.offline.extend)  # type: ignore[arg-type]
        self.image = ClusterImage(brokers={each: BrokerInfo(each, None, ()) for each in (ME, OTHER, THIRD)})

    def show(
        self,
        *states: PartitionImage,
        topic_id: bytes = TOPIC_ID,
        configs: dict[str, str] | None = None,
        version: int = 0,
    ) -> None:
        self._to(self.image.with_topic(TopicImage("events", topic_id, states, configs or {}, version)))

    def delete(self) -> None:
        self._to(self.image.without_topics(["events"]))

    def _to(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        self.world.metadata._image = image
        self.roles.image_changed(old, image)

    def led(self) -> Partition:
        return self.world.services.replicas.get("events", 0)

    def followed(self) -> FollowedPartition:
        replica = self.world.services.replicas.replica("events", 0)
        assert isinstance(replica, FollowedPartition)
        return replica

    def produce(self, count: int) -> None:
        self.world.produce("events", count)


def state(leader: int, epoch: int, isr: tuple[int, ...] = (ME, OTHER), version: int = 0) -> PartitionImage:
    return PartitionImage(leader, epoch, isr, (ME, OTHER), version)


@pytest.fixture
def stage() -> Iterator[Stage]:
    world = World({})
    yield Stage(world)
    world.close()


def test_what_the_image_names_us_for_is_led(stage: Stage) -> None:
    stage.show(state(ME, 3))
    assert stage.led().leader_epoch == 3
    assert stage.led().in_sync_replicas == (ME, OTHER)
    assert stage.fetchers.following == {}


def test_what_another_leads_is_fetched_from_it(stage: Stage) -> None:
    stage.show(state(OTHER, 3))
    followed = stage.fetchers.following[EVENTS_0]
    assert (followed.leader_id, followed.leader_epoch) == (OTHER, 3)
    with pytest.raises(ApiError) as refused:
        stage.led()
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_without_a_leader_nothing_is_fetched(stage: Stage) -> None:
    stage.show(state(-1, 3))
    assert stage.followed().leader_id == -1
    assert stage.fetchers.following == {}


def test_fetching_ends_before_leading_begins(stage: Stage) -> None:
    stage.show(state(OTHER, 3))
    stage.show(state(ME, 4, version=1))
    assert stage.fetchers.stopped[-1] == EVENTS_0
    assert stage.fetchers.following == {}
    assert stage.led().leader_epoch == 4


def test_a_leader_that_is_replaced_leads_no_more(stage: Stage) -> None:
    stage.show(state(ME, 3))
    before = stage.led()
    stage.show(state(OTHER, 4, version=1))
    assert not before.is_led
    assert stage.fetchers.following[EVENTS_0].leader_epoch == 4


def test_a_change_of_the_isr_alone_keeps_the_partition(stage: Stage) -> None:
    stage.show(state(ME, 3))
    before = stage.led()
    stage.show(state(ME, 3, isr=(ME,), version=1))
    assert stage.led() is before
    assert before.in_sync_replicas == (ME,)


def test_the_same_leader_in_a_new_epoch_is_a_new_partition(stage: Stage) -> None:
    stage.show(state(ME, 3))
    before = stage.led()
    stage.show(state(ME, 4, version=1))
    assert stage.led() is not before
    assert not before.is_led


def test_a_change_of_the_isr_leaves_a_follower_alone(stage: Stage) -> None:
    stage.show(state(OTHER, 3))
    before = stage.followed()
    stage.show(state(OTHER, 3, isr=(OTHER,), version=1))
    assert stage.fetchers.following[EVENTS_0] is before


def test_an_older_epoch_is_old_news(stage: Stage) -> None:
    stage.show(state(ME, 3))
    stage.show(state(OTHER, 2, version=1))
    assert stage.led().leader_epoch == 3


def test_the_high_watermark_goes_along_from_role_to_role(stage: Stage) -> None:
    stage.show(state(ME, 3, isr=(ME,)))
    stage.produce(5)
    assert stage.led().high_watermark == 5
    stage.show(state(OTHER, 4, version=1))
    assert stage.followed().high_watermark == 5
    stage.show(state(ME, 5, version=2))
    assert stage.led().high_watermark == 5


def test_a_partition_that_moved_away_is_deleted(stage: Stage) -> None:
    stage.show(state(OTHER, 3))
    stage.show(PartitionImage(OTHER, 3, (OTHER,), (OTHER, THIRD), 1))
    assert stage.world.services.logs.get(EVENTS_0) is None
    assert stage.world.services.replicas.replica("events", 0) is None
    assert stage.fetchers.following == {}


def test_a_deleted_topic_goes_with_its_logs(stage: Stage) -> None:
    stage.show(state(ME, 3))
    led = stage.led()
    stage.delete()
    assert not led.is_led
    assert stage.world.services.logs.get(EVENTS_0) is None
    with pytest.raises(ApiError) as refused:
        stage.led()
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_anew_starts_empty(stage: Stage) -> None:
    stage.show(state(ME, 3, isr=(ME,)))
    stage.produce(5)
    stage.show(state(ME, 0), topic_id=bytes(range(1, 17)))
    assert stage.led().log.log_end_offset == 0
    assert stage.led().high_watermark == 0


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_a_topic_that_gets_its_first_id_keeps_its_records(stage: Stage, leader: int) -> None:
    stage.show(state(ME, 3, isr=(ME,)), topic_id=NO_TOPIC_ID, version=4)
    stage.produce(5)
    log = stage.led().log
    stage.show(state(leader, 3 + (leader != ME), isr=(ME,)), topic_id=TOPIC_ID, version=5)
    replica = stage.world.services.replicas.replica("events", 0)
    assert replica is not None
    assert (replica.log, replica.topic_id, log.topic_id) == (log, TOPIC_ID, TOPIC_ID)
    assert (log.log_end_offset, log.failure) == (5, None)


def test_a_topic_whose_first_id_the_disk_refused_is_deleted_all_the_same(stage: Stage) -> None:
    stage.show(state(ME, 3, isr=(ME,)), topic_id=NO_TOPIC_ID, version=4)
    stage.produce(5)
    stage.world.files.fail_next_append()
    stage.show(state(ME, 3, isr=(ME,)), topic_id=TOPIC_ID, version=5)
    stage.delete()
    assert stage.world.services.logs.get(EVENTS_0) is None
    stage.show(state(ME, 0), topic_id=bytes(range(1, 17)))
    assert stage.led().log.log_end_offset == 0


def test_a_first_id_that_the_disk_refused_is_written_with_the_next_image(stage: Stage) -> None:
    stage.show(state(ME, 3, isr=(ME,)), topic_id=NO_TOPIC_ID, version=4)
    stage.world.files.fail_next_append()
    stage.show(state(ME, 3, isr=(ME,)), topic_id=TOPIC_ID, version=5)
    stage.show(state(ME, 4, isr=(ME,)), topic_id=TOPIC_ID, version=5)
    path = f"{stage.led().log.directory}/{TOPIC_ID_FILE}"
    assert read_topic_id(stage.world.files, path) == TOPIC_ID


def test_a_topic_without_an_id_that_was_made_anew_starts_empty(stage: Stage) -> None:
    stage.show(state(ME, 3, isr=(ME,)), topic_id=NO_TOPIC_ID, version=4)
    stage.produce(5)
    stage.show(state(ME, 0), topic_id=TOPIC_ID, version=0)
    assert stage.led().log.log_end_offset == 0


def test_who_fails_to_take_up_one_late_partition_keeps_no_other_from_being_made(stage: Stage) -> None:
    def fail(topic_partition: TopicPartition) -> None:
        if topic_partition.partition == AT_ONCE_MAX:  # the first that has to wait
            raise ValueError(topic_partition)

    stage.roles._on_late = fail

    async def make_many() -> None:
        stage.show(*[state(ME, 0)] * 3 * AT_ONCE_MAX)
        await asyncio.wait_for(stage.roles.made(), PATIENCE_S)

    stage.world.run(make_many())
    assert len(stage.world.services.logs) == 3 * AT_ONCE_MAX


def test_a_partition_that_nobody_has_looked_at_yet_is_left_alone(stage: Stage) -> None:
    stage.show(PartitionImage(-1, -1, (), (ME, OTHER), -1))
    assert stage.world.services.logs.get(EVENTS_0) is None


def test_a_topic_s_configuration_reaches_led_and_followed_logs(stage: Stage) -> None:
    for leader, epoch in ((ME, 1), (OTHER, 2)):
        stage.show(state(leader, epoch, version=epoch), configs={"retention.ms": str(1000 * epoch)})
        replica = stage.world.services.replicas.replica("events", 0)
        assert replica is not None
        assert replica.log.config.retention_ms == 1000 * epoch


def test_who_lost_the_session_resigns_within_the_call(stage: Stage) -> None:
    stage.show(state(ME, 3))
    led = stage.led()
    stage.roles.resign_all()
    assert not led.is_led
    assert stage.followed().leader_id == -1


def test_who_lost_the_session_does_not_lead_whatever_the_image_says(stage: Stage) -> None:
    stage.roles.resign_all()
    stage.show(state(ME, 3))
    assert stage.followed().leader_id == -1


def test_after_the_session_is_back_the_same_image_is_taken_up_again(stage: Stage) -> None:
    stage.show(state(ME, 3))
    stage.roles.resign_all()
    stage.roles.may_lead = True
    stage.roles.apply_all(stage.image)
    assert stage.led().leader_epoch == 3


def test_a_failed_directory_takes_its_partitions_offline(stage: Stage) -> None:
    stage.show(state(ME, 3))
    led = stage.led()
    stage.roles.directory_failed([EVENTS_0])
    assert not led.is_led
    assert stage.offline == [EVENTS_0]
    stage.show(state(ME, 4, version=1))
    assert stage.world.services.replicas.replica("events", 0) is None
    assert stage.offline == [EVENTS_0]


def test_a_log_that_cannot_be_used_is_told_of_once(stage: Stage) -> None:
    stage.show(state(ME, 3))
    stage.led().log.fail(OSError("disk"))
    stage.show(state(ME, 4, version=1))
    assert stage.offline == [EVENTS_0]


# One partition's error is its own


def break_next(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The next update of the partition that is led raises."""

    def update(*_: object) -> None:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(Partition, "update", update)


def test_the_partitions_behind_one_that_cannot_follow_do_follow(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.show(state(ME, 3), state(ME, 3))
    break_next(monkeypatch, KeyError("a follower that is not there"))
    with pytest.raises(NotFollowed):
        stage.show(state(ME, 3, (ME,), 1), state(ME, 3, (ME,), 1))
    assert stage.led().in_sync_replicas == (ME, OTHER)
    assert stage.world.services.replicas.get("events", 1).in_sync_replicas == (ME,)


def test_a_partition_that_could_not_follow_is_tried_again_with_any_image(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.show(state(ME, 3))
    break_next(monkeypatch, KeyError("a follower that is not there"))
    with pytest.raises(NotFollowed):
        stage.show(state(ME, 3, (ME,), 1))
    stage.roles.image_changed(stage.image, stage.image)
    assert stage.led().in_sync_replicas == (ME,)


def test_a_partition_that_broke_a_promise_is_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.show(state(ME, 3), state(ME, 3))
    break_next(monkeypatch, InvariantError("the high watermark went back"))
    stage.show(state(ME, 3, (ME,), 1), state(ME, 3, (ME,), 1))
    assert stage.offline == [EVENTS_0]
    assert stage.world.services.replicas.replica("events", 0) is None
    stopped = stage.world.services.logs.get(EVENTS_0)
    assert stopped is not None
    assert stopped.failure is not None
    assert stage.world.services.replicas.get("events", 1).in_sync_replicas == (ME,)


def test_a_topic_made_anew_keeps_its_records_when_the_end_of_the_old_one_is_told_again(stage: Stage) -> None:
    stage.show(state(ME, 3))
    old = stage.image
    stage.show(state(ME, 0), topic_id=bytes(16))
    stage.produce(2)
    stage.roles.image_changed(old, stage.image)
    assert stage.led().log.log_end_offset == 2
