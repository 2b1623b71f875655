"""Followers fetch: what is named to a leader, what is taken of its answers, and how failures are got over."""

import asyncio
import logging
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k01_fetch import EpochEndOffset, FetchResponse, PartitionData
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.replication.follower import FollowedPartition
from tests.broker.fake_leader import FakeLeader
from tests.broker.fetchers_stage import (
    EVERY_BYTE,
    LEADER_ID,
    OWN_ID,
    PARTITIONS,
    TOPIC,
    TOPIC_ID,
    Stage,
    broker,
    data,
    play,
    turns,
    until,
    written,
)
from tests.log.helpers import append, batch, offsets


def test_a_partition_is_fetched_from_its_end_and_asked_on_for() -> None:
    async def story(stage: Stage) -> None:
        followed = stage.follow()
        first = await stage.leader.asked()
        request, named = first.message, first.named[0]
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (OWN_ID, 5)
        assert (named.fetch_offset, named.last_fetched_epoch, named.current_leader_epoch) == (0, -1, 3)
        assert first.header.client_id == "broker-1-fetcher"
        first.answer_fetch(TOPIC_ID, data(written(b"a", b"b"), high_watermark=1))
        second = await stage.leader.asked()
        assert (second.message.session_id, second.message.session_epoch) == (77, 1)
        assert (second.named[0].fetch_offset, second.named[0].last_fetched_epoch) == (2, 0)
        assert offsets(followed.log) == [0, 1]
        assert followed.high_watermark == 1

    play(story)


def test_what_has_not_moved_is_not_named() -> None:
    async def story(stage: Stage) -> None:
        quiet, busy = await stage.established(0, 1)
        second = await stage.leader.asked()
        assert second.named == {}
        second.answer_fetch(TOPIC_ID, data(written(b"a"), index=1, high_watermark=1), data(index=0, high_watermark=0))
        third = await stage.leader.asked()
        assert list(third.named) == [1]
        third.answer_fetch(TOPIC_ID)
        fourth = await stage.leader.asked()
        assert fourth.named == {}
        assert fourth.message.session_epoch == 3
        assert (quiet.log.log_end_offset, busy.log.log_end_offset) == (0, 1)

    play(story)


def test_many_partitions_of_one_turn_are_named_in_one_request() -> None:
    async def story(stage: Stage) -> None:
        for index in range(PARTITIONS):
            stage.follow(index)
        first = await stage.leader.asked()
        assert sorted(first.named) == list(range(PARTITIONS))
        first.answer_fetch(TOPIC_ID)
        assert (await stage.leader.asked()).named == {}

    play(story)


def test_a_new_partition_is_named_while_a_fetch_waits_at_the_leader() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        waiting = await stage.leader.asked()
        late = stage.follow(1)
        behind = await stage.leader.asked()
        assert list(behind.named) == [1]
        assert behind.message.session_epoch == waiting.message.session_epoch + 1
        waiting.answer_fetch(TOPIC_ID)
        behind.answer_fetch(TOPIC_ID, data(written(b"a"), index=1))
        assert list((await stage.leader.asked()).named) == [1]
        assert late.log.log_end_offset == 1

    play(story)


def test_no_more_than_two_requests_are_under_way() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        first = await stage.leader.asked()
        stage.follow(1)
        second = await stage.leader.asked()
        stage.follow(2)
        await turns()
        assert stage.leader.is_quiet
        first.answer_fetch(TOPIC_ID)
        assert list((await stage.leader.asked()).named) == [2]
        second.answer_fetch(TOPIC_ID)

    play(story)


def test_a_large_answer_is_taken_in_several_turns_and_completely() -> None:
    async def story(stage: Stage) -> None:
        followed = await stage.established(0, 1, 2, 3)
        seen: set[int] = set()

        async def look() -> None:
            while True:
                seen.add(sum(each.log.log_end_offset for each in followed))
                await asyncio.sleep(0)

        looking = asyncio.ensure_future(look())
        answered = await stage.leader.asked()
        records = written(b"x" * 600_000)
        answered.answer_fetch(TOPIC_ID, *(data(records, index=index, high_watermark=1) for index in range(4)))
        following = await stage.leader.asked()
        looking.cancel()
        assert seen >= {2, 4}
        assert sorted(following.named) == [0, 1, 2, 3]
        assert [each.log.log_end_offset for each in followed] == [1, 1, 1, 1]
        for each in followed:
            region = each.log.read(0, EVERY_BYTE, 1)
            assert region is not None
            assert region.read() == records

    play(story)


def test_a_high_watermark_that_crosses_with_a_new_position_is_not_lost() -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        first = await stage.leader.asked()
        stage.follow(1)
        second = await stage.leader.asked()
        first.answer_fetch(TOPIC_ID, data(written(b"a")))
        third = await stage.leader.asked()
        assert third.named[0].fetch_offset == 1
        second.answer_fetch(TOPIC_ID, data(high_watermark=1))
        await until(lambda: followed.high_watermark == 1)

    play(story)


def test_an_answer_behind_a_large_one_does_not_overwrite_it() -> None:
    async def story(stage: Stage) -> None:
        followed = await stage.established(*range(8))
        first = await stage.leader.asked()
        late = stage.follow(8)
        second = await stage.leader.asked()
        records = [written(bytes([65 + index]) * 1_048_000) for index in range(9)]
        first.answer_fetch(TOPIC_ID, *(data(records[index], index=index) for index in range(8)))
        second.answer_fetch(TOPIC_ID, data(records[8], index=8))
        await until(lambda: late.log.log_end_offset)
        for each, sent in zip((*followed, late), records, strict=True):
            region = each.log.read(0, EVERY_BYTE, 1)
            assert region is not None
            assert region.read() == sent

    play(story)


# Roles that change


def test_an_answer_on_its_way_is_dropped_after_stop() -> None:
    async def story(stage: Stage) -> None:
        gone, stays = await stage.established(0, 1)
        waiting = await stage.leader.asked()
        stage.fetchers.stop(gone.topic_partition)
        waiting.answer_fetch(TOPIC_ID, data(written(b"late"), index=0), data(written(b"a"), index=1))
        following = await stage.leader.asked()
        assert (list(following.named), following.forgotten) == ([1], [0])
        assert (gone.log.log_end_offset, stays.log.log_end_offset) == (0, 1)

    play(story)


def test_an_answer_to_an_object_of_before_is_dropped() -> None:
    async def story(stage: Stage) -> None:
        (before,) = await stage.established(0)
        waiting = await stage.leader.asked()
        now = stage.follow(0, epoch=4, log=before.log)
        named_anew = await stage.leader.asked()
        waiting.answer_fetch(TOPIC_ID, data(written(b"of the old epoch"), high_watermark=1))
        named_anew.answer_fetch(TOPIC_ID, data(written(b"a", epoch=4), high_watermark=1))
        assert named_anew.named[0].current_leader_epoch == 4
        assert named_anew.forgotten == []
        following = await stage.leader.asked()
        assert following.named[0].fetch_offset == 1
        assert (before.high_watermark, now.high_watermark) == (0, 1)
        assert now.log.leader_epochs.latest == 4

    play(story)


def test_stop_in_the_middle_of_a_large_answer_drops_its_rest() -> None:
    async def story(stage: Stage) -> None:
        followed = await stage.established(0, 1)
        answered = await stage.leader.asked()
        records = written(b"x" * 1_048_000, b"y" * 1000)
        answered.answer_fetch(TOPIC_ID, data(records, index=0), data(records, index=1))
        loop = asyncio.get_running_loop()
        stopped = loop.create_future()

        def stop_between() -> None:
            if followed[0].log.log_end_offset:
                stage.fetchers.stop(followed[1].topic_partition)
                stopped.set_result(followed[1].log.log_end_offset)
            else:
                loop.call_soon(stop_between)

        stop_between()
        assert await stopped == 0
        following = await stage.leader.asked()
        assert (list(following.named), following.forgotten) == ([0], [1])
        assert followed[1].log.log_end_offset == 0

    play(story)


def test_without_partitions_the_connection_is_closed_and_made_anew_for_the_next() -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        await stage.leader.asked()
        stage.fetchers.stop(followed.topic_partition)
        await turns()
        stage.follow(1)
        request = await stage.leader.asked()
        assert (request.message.session_epoch, list(request.named)) == (0, [1])
        assert stage.leader.connections == 2

    play(story)


def test_after_close_nothing_is_fetched_or_followed() -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        waiting = await stage.leader.asked()
        await stage.fetchers.close()
        waiting.answer_fetch(TOPIC_ID, data(written(b"late")))
        stage.follow(1)
        await turns()
        assert stage.leader.is_quiet
        assert followed.log.log_end_offset == 0

    play(story)


# Logs that part


def test_a_diverging_epoch_cuts_the_log_and_the_new_position_is_named() -> None:
    async def story(stage: Stage) -> None:
        followed = stage.partition()
        for _ in range(3):
            append(followed.log, batch(b"a"), 1)
        stage.fetchers.follow(followed)
        first = await stage.leader.asked()
        assert (first.named[0].fetch_offset, first.named[0].last_fetched_epoch) == (3, 1)
        diverging = EpochEndOffset(epoch=1, end_offset=2)
        first.answer_fetch(TOPIC_ID, PartitionData(partition_index=0, high_watermark=2, diverging_epoch=diverging))
        assert (await stage.leader.asked()).named[0].fetch_offset == 2
        assert followed.log.log_end_offset == 2

    play(story)


@pytest.mark.parametrize(("leader_start", "leader_end", "position"), [(0, 1, 1), (9, 12, 9), (0, 5, 3)])
def test_out_of_range_asks_for_the_leaders_offsets(leader_start: int, leader_end: int, position: int) -> None:
    async def story(stage: Stage) -> None:
        followed = stage.partition()
        for _ in range(3):
            append(followed.log, batch(b"a"), 1)
        stage.fetchers.follow(followed)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        for target, offset in ((-1, leader_end), (-2, leader_start)):
            asked = await stage.leader.asked()
            assert asked.message.replica_id == OWN_ID
            assert asked.message.topics[0].partitions[0].timestamp == target
            assert asked.message.topics[0].partitions[0].current_leader_epoch == 3
            asked.answer(offsets_answer(offset))
        waiting = await stage.leader.asked()
        assert waiting.named == {}
        waiting.answer_fetch(TOPIC_ID)
        named = (await stage.leader.asked()).named
        assert named[0].fetch_offset == position

    play(story)


def offsets_answer(offset: int) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])


# Failures


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_an_error_of_the_leader_is_tried_again_while_others_go_on(error: ErrorCode) -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0, 1)
        second = await stage.leader.asked()
        second.answer_fetch(TOPIC_ID, data(error=error), data(written(b"a"), index=1))
        third = await stage.leader.asked()
        assert (list(third.named), third.forgotten) == ([1], [])
        fourth = await stage.leader.asked()
        assert list(fourth.named) == [0]

    play(story)


def test_pauses_grow_up_to_the_configured_one_and_end_with_a_new_object() -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        loop = asyncio.get_running_loop()
        pauses = []
        asked = await stage.leader.asked()
        for _ in range(5):
            asked.answer_fetch(TOPIC_ID, data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
            began = loop.time()
            empty = await stage.leader.asked()
            assert empty.named == {}
            named = await stage.leader.asked()
            pauses.append(loop.time() - began)
            empty.answer_fetch(TOPIC_ID)
            asked = named
        for pause, expected in zip(pauses, [0.02, 0.04, 0.08, 0.08, 0.08], strict=True):
            assert expected * 0.9 <= pause, pauses
        asked.answer_fetch(TOPIC_ID, data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        empty = await stage.leader.asked()
        stage.follow(0, epoch=4, log=followed.log)
        named = await stage.leader.asked()
        if named.named[0].current_leader_epoch == 3:  # we were held up, and the pause was over before
            empty.answer_fetch(TOPIC_ID)
            named = await stage.leader.asked()
        assert named.named[0].current_leader_epoch == 4

    play(story)


def test_a_broken_batch_is_fetched_again_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        broken = bytearray(written(b"a"))
        broken[-1] ^= 1
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(bytes(broken)))
        left_out = await stage.leader.asked()
        assert left_out.forgotten == [0]
        again = await stage.leader.asked()
        assert again.named[0].fetch_offset == 0
        left_out.answer_fetch(TOPIC_ID)
        again.answer_fetch(TOPIC_ID, data(written(b"a")))
        await until(lambda: followed.log.log_end_offset == 1)

    with caplog.at_level(logging.ERROR):
        play(story)
    assert "checksum" in caplog.text


def test_a_partition_that_we_cannot_cope_with_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        odd, fine = await stage.established(0, 1)
        take = FollowedPartition.take

        def stumble(self: FollowedPartition, *arguments: Any) -> int:
            if self is odd:
                raise RuntimeError("a mistake of ours")
            return take(self, *arguments)

        monkeypatch.setattr(FollowedPartition, "take", stumble)
        answered = await stage.leader.asked()
        answered.answer_fetch(TOPIC_ID, data(written(b"a")), data(written(b"a"), index=1))
        following = await stage.leader.asked()
        assert (list(following.named), following.forgotten) == ([1], [0])
        assert fine.log.log_end_offset == 1
        assert list((await stage.leader.asked()).named) == [0]

    play(story)


def test_a_partition_whose_log_failed_is_not_fetched_any_more() -> None:
    async def story(stage: Stage) -> None:
        broken, fine = await stage.established(0, 1)
        broken.log.fail(OSError(5, "the disk is broken"))
        answered = await stage.leader.asked()
        answered.answer_fetch(TOPIC_ID, data(written(b"a")), data(written(b"a"), index=1))
        following = await stage.leader.asked()
        assert (list(following.named), following.forgotten) == ([1], [0])
        following.answer_fetch(TOPIC_ID, data(index=1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert (await stage.leader.asked()).named == {}
        assert list((await stage.leader.asked()).named) == [1]  # after its pause, which the other would have had, too
        assert fine.log.log_end_offset == 1

    play(story)


def test_a_refused_session_is_begun_anew_with_everything() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0, 1)
        refused = await stage.leader.asked()
        refused.answer(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        anew = await stage.leader.asked()
        assert (anew.message.session_id, anew.message.session_epoch) == (0, 0)
        assert sorted(anew.named) == [0, 1]
        anew.answer_fetch(TOPIC_ID, session_id=78)
        assert (await stage.leader.asked()).message.session_id == 78
        assert stage.leader.connections == 1

    play(story)


@pytest.mark.parametrize("garbage", [None, b"\x7f\xff\xff\xff", b"\0\0\0\4\0\0\x99\x99", b"\0\0\0\5\0\0\0\2\0"])
def test_a_lost_connection_is_made_anew_and_everything_is_named(garbage: bytes | None) -> None:
    """Hung up; too long; an answer to nothing; an answer that is none."""

    async def story(stage: Stage) -> None:
        followed = await stage.established(0, 1)
        asked = await stage.leader.asked()
        if garbage is None:
            asked.hang_up()
        else:
            asked.write(garbage)
        anew = await stage.leader.asked()
        assert (anew.message.session_id, anew.message.session_epoch) == (0, 0)
        assert sorted(anew.named) == [0, 1]
        assert stage.leader.connections == 2
        anew.answer_fetch(TOPIC_ID, data(written(b"a")))
        await until(lambda: followed[0].log.log_end_offset == 1)

    play(story)


def test_a_leader_that_does_not_answer_in_time_is_left() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        await stage.leader.asked()
        before = stage.leader.connections  # more than one if we were held up ourselves
        anew = await stage.leader.asked()
        assert anew.message.session_epoch == 0
        assert stage.leader.connections > before

    play(story, replica_socket_timeout_ms="150")


def test_a_leader_that_is_not_there_yet_is_found_when_it_registers() -> None:
    async def story(stage: Stage) -> None:
        there = stage.image
        stage.publish(there.without_broker(LEADER_ID))
        stage.follow(0)
        await turns()
        assert stage.leader.connections == 0
        stage.publish(there)
        assert list((await stage.leader.asked()).named) == [0]

    play(story)


def test_a_leader_with_a_new_address_is_followed_there() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        await stage.leader.asked()
        other = FakeLeader()
        stage.publish(stage.image.with_broker(broker(LEADER_ID, await other.start(), epoch=9)))
        asked = await other.asked()
        assert (asked.message.session_epoch, list(asked.named)) == (0, [0])
        await other.stop()

    play(story)


def test_registered_anew_we_name_everything_under_the_new_epoch() -> None:
    async def story(stage: Stage) -> None:
        (followed,) = await stage.established(0)
        waiting = await stage.leader.asked()
        stage.publish(stage.image.with_broker(broker(OWN_ID, 1, epoch=11)))
        anew = await stage.leader.asked()
        assert (anew.message.replica_state.replica_epoch, list(anew.named)) == (11, [0])
        waiting.answer_fetch(TOPIC_ID, data(written(b"to the old session")))
        anew.answer_fetch(TOPIC_ID, data(written(b"a"), high_watermark=1), session_id=80)
        assert (await stage.leader.asked()).message.session_id == 80
        assert followed.high_watermark == 1
        assert stage.leader.connections == 1

    play(story)


def test_another_broker_that_comes_or_goes_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.established(0)
        await stage.leader.asked()
        stage.publish(stage.image.with_broker(broker(9, 1, epoch=40)))
        stage.publish(stage.image.without_broker(9))
        stage.publish(stage.image.without_broker(LEADER_ID))
        await turns()
        assert stage.leader.is_quiet
        assert stage.leader.connections == 1

    play(story)


# In sync, or not


def test_a_partition_that_is_not_in_sync_is_named_again_after_each_wait() -> None:
    async def story(stage: Stage) -> None:
        stage.add_topic((LEADER_ID,))
        await stage.established(0)
        again = await stage.leader.asked()
        while not again.named:
            again.answer_fetch(TOPIC_ID)
            again = await stage.leader.asked()
        assert again.named[0].fetch_offset == 0
        stage.add_topic((LEADER_ID, OWN_ID))
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - began < 0.1:
            again.answer_fetch(TOPIC_ID)
            again = await stage.leader.asked()
            assert again.named == {}

    play(story, replica_fetch_wait_max_ms="30")


# Throttles


@pytest.mark.parametrize(
    ("isr", "throttled", "is_left_out"),
    [
        ((LEADER_ID,), "0:1", True),
        ((LEADER_ID,), "*", True),
        ((LEADER_ID,), "1:1", False),
        ((LEADER_ID, OWN_ID), "0:1", False),
    ],
)
def test_a_throttled_partition_waits_while_the_rate_is_exceeded(
    isr: tuple[int, ...], throttled: str, is_left_out: bool
) -> None:
    async def story(stage: Stage) -> None:
        stage.add_topic(isr, throttled)
        await stage.established(0)
        (await stage.leader.asked()).answer_fetch(TOPIC_ID, data(written(b"x" * 10_000), high_watermark=1))
        following = await stage.leader.asked()
        if is_left_out:
            assert (following.named, following.forgotten) == ({}, [0])
            stage.parts.follower_throttle.configure(None)
            following = await stage.leader.asked()
        assert following.named[0].fetch_offset == 1

    play(story, follower_replication_throttled_rate="1000")
