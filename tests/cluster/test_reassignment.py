"""How a move begins, is replaced and is called off."""

from contextlib import suppress
from random import Random

import pytest

from moldau.cluster import reassignment
from moldau.cluster.changes import applied, planned
from moldau.cluster.controller import reconcile
from moldau.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from moldau.protocol.errors import ApiError, ErrorCode
from tests.cluster.images import image_of, random_image

STILL = PartitionImage(1, 5, (1, 2, 3), (1, 2, 3), 7)
MOVING = PartitionImage(1, 5, (1, 2, 3), (3, 4, 5, 1, 2), 7, (4, 5), (1, 2))
EVERYBODY = range(1, 8)


def begun(state: PartitionImage, *target: int) -> PartitionImage:
    return reassignment.begin(image_of(state, alive=EVERYBODY), "t", 0, target)


def cancelled(state: PartitionImage) -> PartitionImage:
    return reassignment.cancel(image_of(state, alive=EVERYBODY), "t", 0)


def test_the_new_replicas_stand_before_those_that_are_to_go() -> None:
    assert begun(STILL, 3, 4, 5) == MOVING


def test_a_move_to_where_it_is_changes_nothing() -> None:
    assert begun(STILL, 1, 2, 3) is STILL


def test_another_order_or_fewer_replicas_need_no_copying() -> None:
    assert begun(STILL, 3, 1, 2) == STILL._replace(replicas=(3, 1, 2))
    assert begun(STILL, 3) == STILL._replace(replicas=(3, 1, 2), removing=(1, 2))


def test_a_second_move_replaces_the_first() -> None:
    assert begun(MOVING, 1, 2, 6) == PartitionImage(1, 5, (1, 2, 3), (1, 2, 6, 3), 7, (6,), (3,))


def test_a_move_back_is_the_same_as_calling_it_off() -> None:
    assert begun(MOVING, 3, 1, 2) == cancelled(MOVING) == STILL._replace(replicas=(3, 1, 2))


def test_who_is_dropped_on_the_way_leaves_the_isr_and_the_lead() -> None:
    led_by_new = MOVING._replace(leader=4, isr=(1, 2, 4))
    assert begun(led_by_new, 1, 2, 6) == PartitionImage(1, 6, (1, 2), (1, 2, 6, 3), 7, (6,), (3,))
    assert cancelled(led_by_new) == PartitionImage(1, 6, (1, 2), (3, 1, 2), 7)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)], ids=["nobody", "one twice", "a dead one"])
def test_a_move_that_cannot_be(target: tuple[int, ...]) -> None:
    with pytest.raises(ApiError) as error:
        begun(STILL, *target)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_dead_replica_may_stay_one() -> None:
    image = image_of(STILL, alive=(1, 4))
    assert reassignment.begin(image, "t", 0, (1, 2, 4)).adding == (4,)


def test_the_last_replica_in_sync_cannot_be_dropped() -> None:
    only_new = MOVING._replace(leader=4, isr=(4,))
    with pytest.raises(ApiError, match="in sync") as error:
        cancelled(only_new)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(ApiError, match="in sync"):
        begun(only_new, 1, 2, 6)


def test_where_nothing_moves_nothing_is_called_off() -> None:
    with pytest.raises(ApiError) as error:
        cancelled(STILL)
    assert error.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_partition_that_does_not_exist_does_not_move() -> None:
    for topic, index in (("t", 1), ("no", 0)):
        with pytest.raises(ApiError) as error:
            reassignment.begin(image_of(STILL), topic, index, (1,))
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_any_moves_end_at_the_target_once_everybody_is_in_sync() -> None:
    ended = 0
    for seed in range(300):
        random = Random(seed)
        image = random_image(random)
        image = image._replace(brokers={id_: image_of(alive=(id_,)).brokers[id_] for id_ in EVERYBODY})
        target = tuple(random.sample(EVERYBODY, random.randint(1, 4)))
        image = all_well(image)
        with suppress(ApiError):  # it would leave nobody in sync
            image = all_well(moved(image, target))
            ended += 1
            check_end(image, target, f"seed {seed}")
    assert ended > 200


def check_end(image: ClusterImage, target: tuple[int, ...], context: str) -> None:
    state = image.topics["t1"].partitions[0]
    assert not set(state.isr) - set(state.replicas), context
    done = all_well(with_state(image, state._replace(isr=(*state.isr, *missing(state)))))
    assert done.topics["t1"].partitions[0].replicas == target, context
    assert done.topics["t1"].partitions[0].leader != NO_LEADER, context


def missing(state: PartitionImage) -> tuple[int, ...]:
    return tuple(broker for broker in state.replicas if broker not in state.isr)


def with_state(image: ClusterImage, state: PartitionImage) -> ClusterImage:
    return image.with_topic(image.topics["t1"].with_partition(0, state))


def moved(image: ClusterImage, target: tuple[int, ...]) -> ClusterImage:
    return applied(image, planned(image.topics["t1"], {0: reassignment.begin(image, "t1", 0, target)}))


def all_well(image: ClusterImage) -> ClusterImage:
    return applied(image, reconcile(image, image.topics.values(), lambda _: False))
