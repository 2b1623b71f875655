"""UpdateFeatures, and the features that ApiVersions tells. The codes are those that Apache Kafka 4.3.1 gave."""

from collections.abc import Mapping

import pytest

from moldau.cluster import znodes
from moldau.cluster.features import transaction_version
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest
from moldau.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.requests.authorization import ALTER, CLUSTER
from tests.handlers.conftest import World
from tests.handlers.denying import Deny

TV = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(world: World, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> int:
    """The error code of an update of (feature, level, upgrade type)."""
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=way)
        if version
        else FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=way != UPGRADE)
        for name, level, way in updates
    ]
    answer = world.ask(UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only), version)
    told = [(each.feature, each.error_code) for each in answer.results]
    is_listed = version < 2 and answer.error_code == 0
    assert told == ([(name, 0) for name, _, _ in updates] if is_listed else [])
    assert bool(answer.error_message) == bool(answer.error_code)
    code: int = answer.error_code
    return code


def told(world: World, version: int = 4) -> tuple[Mapping[str, tuple[int, int]], int, Mapping[str, int]]:
    """Supported features, epoch and finalized features, as ApiVersions tells them."""
    answer = world.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    assert answer.error_code == 0
    assert not answer.zk_migration_ready
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    return supported, answer.finalized_features_epoch, finalized


def test_a_new_cluster_has_the_newest_levels(world: World) -> None:
    assert told(world) == ({"group.version": (1, 1), TV: (0, 2)}, 0, {"group.version": 1, TV: 2})
    assert transaction_version(world.image) == 2


def test_before_version_4_features_from_level_0_on_are_not_told_as_supported(world: World) -> None:
    assert told(world, 3) == ({"group.version": (1, 1)}, 0, {"group.version": 1, TV: 2})
    for version in (0, 1, 2):
        assert told(world, version) == ({}, -1, {})


@pytest.mark.parametrize("version", range(3))
def test_a_level_goes_down_and_up(world: World, version: int) -> None:
    for level, way in ((1, SAFE), (0, UNSAFE), (1, UPGRADE), (2, UPGRADE)):
        epoch = world.image.features_epoch
        assert update(world, (TV, level, way), version=version) == 0
        assert transaction_version(world.image) == level
        assert told(world)[1:] == (epoch + 1, {"group.version": 1, **({TV: level} if level else {})})


@pytest.mark.parametrize(
    ("name", "level", "way"),
    [
        (TV, 1, UPGRADE),
        (TV, 0, UPGRADE),
        (TV, 3, UPGRADE),
        (TV, 3, SAFE),
        (TV, -1, SAFE),
        (TV, 2, 0),
        (TV, 2, 7),
        ("group.version", 0, SAFE),
        ("metadata.version", 30, UPGRADE),
        ("nope", 0, SAFE),
        ("", 0, SAFE),
    ],
)
def test_a_level_that_cannot_be_changes_nothing(world: World, name: str, level: int, way: int) -> None:
    before = world.image
    assert update(world, (name, level, way)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, (TV, 1, SAFE), (name, level, way)) == ErrorCode.INVALID_UPDATE_VERSION
    assert world.image is before


def test_a_downgrade_to_a_higher_level_is_refused(world: World) -> None:
    assert update(world, (TV, 0, SAFE)) == 0
    assert update(world, (TV, 1, SAFE)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, (TV, 0, SAFE)) == update(world, (TV, 0, UPGRADE)) == 0


def test_nothing_is_changed_where_nothing_is_new(world: World) -> None:
    assert update(world) == update(world, (TV, 2, UPGRADE), ("group.version", 1, UPGRADE)) == 0
    assert world.image.features_epoch == 0


def test_an_update_may_only_be_checked(world: World) -> None:
    assert update(world, (TV, 1, SAFE), validate_only=True) == 0
    assert update(world, (TV, 1, UPGRADE), validate_only=True) == ErrorCode.INVALID_UPDATE_VERSION
    assert transaction_version(world.image) == 2


def test_whoever_may_not_alter_the_cluster_is_refused(world: World) -> None:
    world.services.policy.authorize_by(Deny((ALTER, CLUSTER)))
    assert update(world, (TV, 1, SAFE)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert transaction_version(world.image) == 2


def test_more_features_than_there_can_be_are_refused(world: World) -> None:
    assert update(world, *[(TV, 1, SAFE)] * 101) == ErrorCode.INVALID_REQUEST
    assert transaction_version(world.image) == 2


def test_a_change_of_another_is_seen(world: World) -> None:
    world.run(world.store.put(znodes.FEATURES, znodes.features_json({TV: 1})))
    world.run(world.metadata.refresh())
    assert told(world)[1:] == (1, {TV: 1})


def test_a_node_that_nobody_understands_changes_nothing_and_is_written_over(world: World) -> None:
    world.run(world.store.put(znodes.FEATURES, b"?"))
    world.run(world.metadata.refresh())
    assert told(world)[1:] == (0, {"group.version": 1, TV: 2})
    assert update(world, (TV, 1, SAFE)) == 0
    assert told(world)[1:] == (2, {"group.version": 1, TV: 1})
