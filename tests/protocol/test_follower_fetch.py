"""What is written by hand is what the tables write."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol import codec
from moldau.protocol.follower_fetch import FETCH_VERSION, FetchLimits, Position, encode_request
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)
POSITIONS = st.builds(Position, INT32, INT32, INT64, INT32, INT64)


@given(
    named=st.dictionaries(IDS, st.lists(POSITIONS, min_size=1, max_size=3), max_size=3),
    forgotten=st.dictionaries(IDS, st.lists(INT32, min_size=1, max_size=3), max_size=3),
    session=st.tuples(INT32, INT32),
    sender=st.tuples(st.integers(0, 2**31 - 1), INT64),
    limits=st.builds(FetchLimits, INT32, INT32, INT32, INT32),
)
def test_a_request_is_what_the_table_says(
    named: dict[bytes, list[Position]],
    forgotten: dict[bytes, list[int]],
    session: tuple[int, int],
    sender: tuple[int, int],
    limits: FetchLimits,
) -> None:
    topics = [
        FetchTopic(
            topic_id=topic_id,
            partitions=[
                FetchPartition(
                    partition=each.partition,
                    current_leader_epoch=each.current_leader_epoch,
                    fetch_offset=each.fetch_offset,
                    last_fetched_epoch=each.last_fetched_epoch,
                    log_start_offset=each.log_start_offset,
                    partition_max_bytes=limits.partition_max_bytes,
                )
                for each in positions
            ],
        )
        for topic_id, positions in named.items()
    ]
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=sender[0], replica_epoch=sender[1]),
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=[ForgottenTopic(topic_id=key, partitions=value) for key, value in forgotten.items()],
    )
    assert encode_request(*sender, limits, session, named, forgotten) == codec.encode(request, FETCH_VERSION)


def test_many_partitions_need_a_longer_count() -> None:
    positions = [Position(index, 1, 2, 3, 4) for index in range(200)]
    limits = FetchLimits(1, 2, 3, 4)
    body = encode_request(1, 2, limits, (5, 6), {bytes(16): positions}, {bytes(16): list(range(300))})
    request = codec.decode(FetchRequest, FETCH_VERSION, body)
    assert [each.partition for each in request.topics[0].partitions] == list(range(200))
    assert request.forgotten_topics_data[0].partitions == list(range(300))
