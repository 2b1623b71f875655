"""Whether a request was like one before it or not: the answer and the log are the same."""

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from moldau.broker.dispatch import Answer, Dispatcher, Peer
from moldau.fastpath.produce import KNOWN_MAX
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.layouts import PRODUCE_VERSIONS
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.records.batch import Record, build_batch
from moldau.requests.pending import PendingAnswer
from tests.handlers.conftest import World
from tests.records.produce_cases import changed

NEWEST = 13
CLIENT_ID = b"a producer"


class Server:
    """A broker's dispatcher, in its loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dispatcher = Dispatcher(world.services)

    def dispatch(self, frame: bytes, peer: Peer, is_lent: bool = False) -> Answer:
        """A frame that is lent can be written to, and is overwritten after its request was served."""
        given = memoryview(bytearray(frame) if is_lent else frame)

        async def dispatch() -> Answer:
            try:
                return self._dispatcher.dispatch(given, peer, is_lent=is_lent)
            finally:
                if is_lent:
                    given[:] = bytes(len(frame))

        return self._world.run(dispatch())


class Producers:
    """Two brokers that are given the same frames: one over one connection, one over a new connection each time."""

    def __init__(self, topics: tuple[str, ...] = ("t",), partitions: int = 2, *, is_lent: bool = False) -> None:
        """`is_lent`: the first one's frames are, as those above 4 KiB are by a connection."""
        self._partitions = partitions
        self._is_lent = is_lent
        self.worlds = (World({}), World({}))
        self.topic_ids, same_ids = ({name: world.create(name, partitions) for name in topics} for world in self.worlds)
        assert self.topic_ids == same_ids
        self._remembering, self._forgetful = map(Server, self.worlds)
        self._peer = Peer("PLAINTEXT")
        self._correlation_id = 0

    def frame(
        self,
        batch: bytes,
        *,
        topic: str = "t",
        index: int = 0,
        acks: int = 1,
        version: int = NEWEST,
        more: tuple[int, ...] = (),
    ) -> bytes:
        """A Produce request of `batch` for one partition, and for `more` of them."""
        data = [PartitionProduceData(index=each, records=batch) for each in (index, *more)]
        body = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, topic_id=self.topic_ids[topic], partition_data=data)],
        )
        self._correlation_id += 1
        head = struct.pack(">hhih", 0, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        return head + b"\0" + codec.encode(body, version)

    def send(self, frame: bytes) -> bytes | None:
        """What both answer; None: the connection is closed."""
        answer = _answer(self._remembering, frame, self._peer, is_lent=self._is_lent)
        assert answer == _answer(self._forgetful, frame, Peer("PLAINTEXT"))
        return answer

    def is_repeat(self, frame: bytes) -> bool:
        """Send it, and say whether it was taken for a repeat."""
        answer = self._remembering.dispatch(frame, self._peer, is_lent=self._is_lent)
        assert _bytes_of(answer) == _answer(self._forgetful, frame, Peer("PLAINTEXT"))
        return isinstance(answer, bytes)

    def check_logs(self) -> None:
        for name in self.topic_ids:
            for index in range(self._partitions):
                ours, theirs = (world.log_of(name, index) for world in self.worlds)
                assert (ours.log_end_offset, ours.size_bytes) == (theirs.log_end_offset, theirs.size_bytes)

    def close(self) -> None:
        for world in self.worlds:
            world.close()


@pytest.fixture(params=[False, True], ids=["kept frames", "lent frames"])
def producers(request: pytest.FixtureRequest) -> Iterator[Producers]:
    made = Producers(is_lent=request.param)
    yield made
    made.close()


def _answer(server: Server, frame: bytes, peer: Peer, *, is_lent: bool = False) -> bytes | None:
    try:
        return _bytes_of(server.dispatch(frame, peer, is_lent=is_lent))
    except ProtocolError:
        return None


def _bytes_of(answer: Answer) -> bytes:
    assert not isinstance(answer, PendingAnswer)
    assert answer is not None
    return answer if isinstance(answer, bytes) else b"".join(chunk for chunk in answer if isinstance(chunk, bytes))


def _batch(count: int = 3, *, sequence: int = -1, size: int = 10) -> bytes:
    records = [Record(offset, 1_700_000_000_000, None, b"x" * size) for offset in range(count)]
    if sequence < 0:
        return build_batch(records)
    return build_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence)


def _decode(answer: bytes | None, version: int = NEWEST) -> ProduceResponse:
    assert answer is not None
    return codec.decode(ProduceResponse, version, answer, 9)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_the_second_request_is_a_repeat_and_answered_the_same(producers: Producers, version: int, acks: int) -> None:
    found = [producers.is_repeat(producers.frame(_batch(), version=version, acks=acks)) for _ in range(3)]
    assert found == [False, True, True]
    result = _decode(producers.send(producers.frame(_batch(), version=version, acks=acks)), version)
    assert result.responses[0].partition_responses[0].base_offset == 9
    producers.check_logs()


@pytest.mark.parametrize("size", [1, 60, 200, 20_000, 700_000])
def test_the_batch_may_have_any_length(producers: Producers, size: int) -> None:
    producers.send(producers.frame(_batch()))
    assert producers.is_repeat(producers.frame(_batch(1, size=size)))
    producers.check_logs()


def test_another_partition_or_other_acks_are_no_repeat(producers: Producers) -> None:
    producers.send(producers.frame(_batch()))
    assert not producers.is_repeat(producers.frame(_batch(), index=1))
    assert not producers.is_repeat(producers.frame(_batch(), acks=-1))
    assert producers.is_repeat(producers.frame(_batch(), index=1))
    producers.check_logs()


def test_requests_for_several_partitions_are_repeats_once_all_are_known(producers: Producers) -> None:
    assert not producers.is_repeat(producers.frame(_batch()))
    assert not producers.is_repeat(producers.frame(_batch(), more=(1,)))
    assert producers.is_repeat(producers.frame(_batch(), more=(1,)))
    assert producers.is_repeat(producers.frame(_batch(), index=1, more=(0, 1)))
    assert not producers.is_repeat(producers.frame(_batch(), more=(1, 2)))  # there is none
    producers.check_logs()


def test_one_bad_batch_does_not_hurt_the_others(producers: Producers) -> None:
    producers.send(producers.frame(_batch(sequence=0), more=(1,)))
    producers.send(producers.frame(_batch(sequence=3)))
    answer = _decode(producers.send(producers.frame(_batch(sequence=6), more=(1,))))
    first, second = answer.responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (0, 6)
    assert second.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.check_logs()


def test_acks_0_is_never_answered(producers: Producers) -> None:
    for _ in range(3):
        frame = producers.frame(_batch(), acks=0)
        assert producers._remembering.dispatch(frame, producers._peer) is None


def test_a_refused_batch_gets_the_same_error(producers: Producers) -> None:
    producers.send(producers.frame(_batch(sequence=0)))
    producers.send(producers.frame(_batch(sequence=3)))
    out_of_order = _decode(producers.send(producers.frame(_batch(sequence=30))))
    assert out_of_order.responses[0].partition_responses[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    duplicate = _decode(producers.send(producers.frame(_batch(sequence=3))))
    assert duplicate.responses[0].partition_responses[0].base_offset == 3
    torn = bytearray(_batch())
    torn[-1] ^= 1
    corrupt = _decode(producers.send(producers.frame(bytes(torn))))
    assert corrupt.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert producers.is_repeat(producers.frame(_batch(sequence=6)))
    producers.check_logs()


def test_a_deleted_topic_is_gone(producers: Producers) -> None:
    producers.send(producers.frame(_batch()))
    for world in producers.worlds:
        world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    answer = _decode(producers.send(producers.frame(_batch())))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_new_settings_of_the_topic_are_heeded(producers: Producers) -> None:
    producers.send(producers.frame(_batch()))
    for world in producers.worlds:
        partition = world.services.replicas.get("t", 0)
        partition.configure(replace(partition.log.config, max_message_bytes=100))
    answer = _decode(producers.send(producers.frame(_batch(size=200))))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_batches_of_transactions_and_of_liars_are_refused(producers: Producers) -> None:
    for sequence in (0, 3):
        producers.send(producers.frame(_batch(sequence=sequence)))
    records = [Record(0, 1_700_000_000_000, None, b"x")]
    transactional = build_batch(records, producer_id=9, producer_epoch=0, base_sequence=6, is_transactional=True)
    answer = _decode(producers.send(producers.frame(transactional)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    liar = changed(_batch(sequence=6), record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    answer = _decode(producers.send(producers.frame(liar)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    producers.check_logs()


def _break_disk(world: World, partition: int, error: int | None) -> None:
    """Appends to the log of `partition` fail from now on; None: they do not any more."""

    def check_append(path: str) -> None:
        if error is not None and path.endswith(".log") and f"/t-{partition}/" in path:
            raise OSError(error, os.strerror(error), path)

    world.files.check_append = check_append  # type: ignore[method-assign]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_or_failing_disk_is_told_as_a_storage_error(error: int, broken: int, acks: int) -> None:
    producers = Producers(partitions=3, is_lent=True)
    try:
        for _ in range(2):
            producers.send(producers.frame(_batch(), more=(1, 2), acks=acks))
        for world in producers.worlds:
            _break_disk(world, broken, error)
        for _ in range(2):
            results = _decode(producers.send(producers.frame(_batch(), more=(1, 2), acks=acks))).responses[0]
            codes = [result.error_code for result in results.partition_responses]
            assert codes[broken] == ErrorCode.KAFKA_STORAGE_ERROR
            assert set(codes) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        producers.check_logs()
    finally:
        producers.close()


def test_a_disk_with_room_again_takes_the_same_batches(producers: Producers) -> None:
    for sequence in (0, 3):
        producers.send(producers.frame(_batch(sequence=sequence)))
    for world in producers.worlds:
        _break_disk(world, 0, errno.ENOSPC)
    refused = _decode(producers.send(producers.frame(_batch(sequence=6))))
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for world in producers.worlds:
        _break_disk(world, 0, None)
        world.services.logs.look_for_room()
    taken = _decode(producers.send(producers.frame(_batch(sequence=6))))
    assert taken.responses[0].partition_responses[0].base_offset == 6
    producers.check_logs()


def test_topics_with_names_of_many_lengths(seeded: Random) -> None:
    names = tuple("t" * length for length in range(1, 12))
    producers = Producers(names, 1)
    try:
        for _ in range(200):
            producers.send(producers.frame(_batch(), topic=seeded.choice(names), version=seeded.choice((9, 12, 13))))
        producers.check_logs()
    finally:
        producers.close()


def test_no_more_is_remembered_than_the_bound(seeded: Random) -> None:
    names = tuple(f"topic-{number:03d}" for number in range(2 * KNOWN_MAX))
    producers = Producers(names, 1)
    try:
        for name in [*names, *seeded.choices(names, k=100)]:
            producers.send(producers.frame(_batch(), topic=name))
        (introduction,) = producers._peer.introductions.values()
        assert 0 < len(introduction.repeats._known) <= KNOWN_MAX  # type: ignore[union-attr]
    finally:
        producers.close()


def test_mutated_frames_are_answered_as_if_they_were_the_first(producers: Producers, seeded: Random) -> None:
    for _ in range(2):
        producers.send(producers.frame(_batch(), more=(1,)))
    for _ in range(3000):
        frame = bytearray(producers.frame(_batch(), more=(1,) * seeded.randrange(3)))
        for _ in range(seeded.randrange(3)):
            frame[seeded.randrange(8, len(frame))] = seeded.choice((0, 1, 2, 0x7F, 0x80, 0xFF, seeded.randrange(256)))
        if seeded.random() < 0.2:
            del frame[seeded.randrange(4, len(frame)) :]
        if seeded.random() < 0.2:
            frame += seeded.randbytes(seeded.randrange(5))
        _send_mutated(producers, bytes(frame))
    producers.check_logs()


def _send_mutated(producers: Producers, frame: bytes) -> None:
    """Acks may have become 0, and then there is no answer."""
    answers = []
    for server, peer in (
        (producers._remembering, producers._peer),
        (producers._forgetful, Peer("PLAINTEXT")),
    ):
        try:
            answer = server.dispatch(frame, peer, is_lent=producers._is_lent and server is producers._remembering)
            answers.append(None if answer is None else _bytes_of(answer))
        except ProtocolError:
            answers.append(b"closed")
    assert answers[0] == answers[1], frame.hex()
