"""A follower says how far its disk is, not how far its memory is."""

import pytest

from moldau.broker import follower_syncs
from moldau.broker.follower_syncs import FollowerSyncs
from moldau.core.ids import TopicPartition
from tests.broker.fetchers_stage import OWN_ID, TOPIC, TOPIC_ID, Stage, broker, data, play, turns, until, written
from tests.log.helpers import append, batch


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_syncs, "SYNC_AWAITED_S", 60.0)


def test_a_position_is_named_when_it_is_on_disk_and_not_before() -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a", b"b")))
        await until(lambda: stage.committer.waiting)
        await turns()
        assert stage.leader.is_quiet
        assert followed.log.log_end_offset == 2
        stage.committer.sync()
        assert (await stage.leader.asked()).named[0].fetch_offset == 2
        assert followed.log.recovery_point == 2

    play(story, log_flush_policy="group")


def test_a_fetch_that_brings_nothing_costs_no_sync() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        for _ in range(3):
            (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(high_watermark=0))
        await stage.leader.asked()
        assert not stage.committer.waiting

    play(story, log_flush_policy="group")


def test_under_the_policy_os_nothing_is_synced() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a")))
        assert (await stage.leader.asked()).named[0].fetch_offset == 1
        assert not stage.committer.waiting

    play(story, log_flush_policy="os")


def test_what_a_log_had_before_it_was_followed_is_synced_first() -> None:
    async def story(stage: Stage) -> None:
        log = stage.partition(0).log
        append(log, batch(b"as leader"), leader_epoch=2)
        stage.follow(0, log=log)
        await until(lambda: stage.committer.waiting)
        await turns()
        assert stage.leader.is_quiet
        stage.committer.sync()
        assert (await stage.leader.asked()).named[0].fetch_offset == 1

    play(story, log_flush_policy="group")


def test_a_slow_directory_does_not_hold_up_the_partitions_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_syncs, "SYNC_AWAITED_S", 0.0)

    async def story(stage: Stage) -> None:
        slow, fast = stage.follow(0, directory="/slow"), stage.follow(1, directory="/fast")
        (await stage.leader.asked()).answer_fetch(TOPIC_ID)
        both = data(written(b"a"), index=0), data(written(b"a"), index=1)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, *both)
        waiting = await stage.leader.asked()
        assert waiting.named == {}
        stage.committer.sync(next(n for n, (logs, _) in enumerate(stage.committer.waiting) if fast.log in logs))
        behind = await stage.leader.asked()
        assert list(behind.named) == [1]
        waiting.answer_fetch(TOPIC_ID)
        behind.answer_fetch(TOPIC_ID, data(written(b"b", first_offset=1), index=1))
        await until(lambda: len(stage.committer.waiting) == 2)
        assert slow.log.recovery_point == 0
        while stage.committer.waiting:
            stage.committer.sync()
        seen: dict[int, int] = {}
        while len(seen) < 2:
            request = await stage.leader.asked()
            seen.update((index, position.fetch_offset) for index, position in request.named.items())
            request.answer_fetch(TOPIC_ID)
        assert seen == {0: 1, 1: 2}

    play(story, log_flush_policy="group")


def test_while_a_sync_is_late_the_next_request_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[FollowerSyncs] = []
    begin = FollowerSyncs.begin

    def noted(self: FollowerSyncs) -> None:
        begin(self)
        late.append(self)

    monkeypatch.setattr(FollowerSyncs, "begin", noted)
    monkeypatch.setattr(follower_syncs, "SYNC_AWAITED_S", 0.0)

    async def story(stage: Stage) -> None:
        await stage.established(0, 1)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a"), index=0))
        second = await stage.leader.asked()
        monkeypatch.setattr(follower_syncs, "SYNC_AWAITED_S", 60.0)
        second.answer_fetch(TOPIC_ID, data(written(b"a"), index=1))
        assert (await stage.leader.asked()).named == {}
        assert len(stage.committer.waiting) == 2
        assert not late[-1].are_awaited

    play(story, log_flush_policy="group")


def test_a_new_session_does_not_name_what_is_not_on_disk_either() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0, 1)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a"), index=0))
        await until(lambda: stage.committer.waiting)
        stage.publish(stage.image.with_broker(broker(OWN_ID, 1, epoch=9)))
        stage.committer.sync()
        request = await stage.leader.asked()
        assert (request.message.session_epoch, request.named[0].fetch_offset) == (0, 1)

    play(story, log_flush_policy="group")


def test_a_partition_whose_sync_failed_is_not_fetched_any_more() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0, 1)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a"), index=0))
        await until(lambda: stage.committer.waiting)
        stage.files.fail_next_sync()
        stage.committer.sync()
        assert (await stage.leader.asked()).named == {}

    play(story, log_flush_policy="group")


def test_a_partition_whose_sync_was_refused_is_synced_again_before_it_is_named() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a")))
        await until(lambda: stage.committer.waiting)
        stage.committer.refuse()
        waiting = await stage.leader.asked()
        assert waiting.named == {}
        await until(lambda: stage.committer.waiting)
        stage.committer.sync()
        assert (await stage.leader.asked()).named[0].fetch_offset == 1

    play(story, log_flush_policy="group")


def test_a_partition_that_is_followed_no_more_is_not_named_after_its_sync() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0, 1)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"a"), index=0))
        await until(lambda: stage.committer.waiting)
        stage.fetchers.stop(TopicPartition(TOPIC, 0))
        stage.committer.sync()
        request = await stage.leader.asked()
        assert request.named == {}
        assert [each.partitions for each in request.message.forgotten_topics_data] == [[0]]

    play(story, log_flush_policy="group")
