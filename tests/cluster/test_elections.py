"""Leaders by request."""

import pytest

from moldau.cluster.changes import StateChange
from moldau.cluster.elections import imbalanced, preferred, unclean
from moldau.cluster.image import NO_LEADER, PartitionImage
from moldau.protocol.errors import ErrorCode
from tests.cluster.images import TOPIC_ID, image_of, with_offline


def state(leader: int, isr: tuple[int, ...], epoch: int = 5) -> PartitionImage:
    return PartitionImage(leader, epoch, isr, (1, 2, 3), 7)


def test_the_preferred_replica_leads_in_a_new_epoch() -> None:
    image = image_of(state(2, (2, 1)))
    assert preferred(image, "t", 0) == StateChange("t", TOPIC_ID, 0, state(1, (2, 1), epoch=6))


@pytest.mark.parametrize(
    ("before", "alive", "leaving", "code"),
    [
        (state(1, (1, 2)), (1, 2, 3), (), ErrorCode.ELECTION_NOT_NEEDED),
        (state(2, (2, 3)), (1, 2, 3), (), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state(2, (1, 2, 3)), (2, 3), (), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state(2, (1, 2, 3)), (2, 3), (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ],
    ids=["it leads", "it is out of sync", "it is dead", "it shuts down"],
)
def test_the_preferred_replica_cannot_be_elected(
    before: PartitionImage, alive: tuple[int, ...], leaving: tuple[int, ...], code: ErrorCode
) -> None:
    assert preferred(image_of(before, alive=alive, leaving=leaving), "t", 0) is code


@pytest.mark.parametrize("elect", [preferred, unclean])
@pytest.mark.parametrize(("topic", "index"), [("no", 0), ("t", 1), ("t", -1)])
def test_what_does_not_exist_has_no_election(elect: object, topic: str, index: int) -> None:
    assert callable(elect)
    assert elect(image_of(state(1, (1,))), topic, index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unclean_election_takes_whom_it_can_get_but_rather_one_in_sync() -> None:
    behind = image_of(state(NO_LEADER, (1,)), alive=(3, 2))
    assert unclean(behind, "t", 0) == StateChange("t", TOPIC_ID, 0, state(2, (2,), epoch=6))
    in_sync = image_of(state(NO_LEADER, (1, 3)), alive=(3, 2))
    assert unclean(in_sync, "t", 0) == StateChange("t", TOPIC_ID, 0, state(3, (3,), epoch=6))


def test_an_unclean_election_is_refused_where_there_is_a_leader_or_nobody() -> None:
    assert unclean(image_of(state(1, (1,))), "t", 0) is ErrorCode.ELECTION_NOT_NEEDED
    assert unclean(image_of(state(NO_LEADER, (1,)), alive=(4,)), "t", 0) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    failed = with_offline(image_of(state(1, (1,)), alive=(1, 2)), broker=1)
    assert unclean(failed, "t", 0) == StateChange("t", TOPIC_ID, 0, state(2, (2,), epoch=6))


def test_a_broker_that_leads_too_little_of_what_prefers_it_gets_it_back() -> None:
    nine_of_ten = [state(1, (1, 2))] * 9 + [state(2, (1, 2))]
    assert imbalanced(image_of(*nine_of_ten), 10) == []
    eight_of_ten = [state(1, (1, 2))] * 8 + [state(2, (1, 2)), state(2, (2,))]
    assert imbalanced(image_of(*eight_of_ten), 10) == [StateChange("t", TOPIC_ID, 8, state(1, (1, 2), epoch=6))]
    assert imbalanced(image_of(*eight_of_ten, alive=(2, 3)), 10) == []
