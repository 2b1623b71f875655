"""ListConfigResources."""

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.handlers.conftest import World

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def resources(world: World, *types: int) -> set[tuple[int, str]]:
    answer = world.ask(ListConfigResourcesRequest(resource_types=list(types)))
    assert answer.error_code == 0
    listed = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert len(set(listed)) == len(listed)
    return set(listed)


def test_version_0_lists_client_metrics_of_which_there_are_none(world: World) -> None:
    world.create("t")
    answer = world.ask(ListConfigResourcesRequest(), 0)
    assert (answer.error_code, answer.config_resources) == (0, [])


def test_no_types_ask_for_all(world: World) -> None:
    world.create("t")
    assert resources(world) == {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")}


def test_types_choose(world: World) -> None:
    world.create("t")
    assert resources(world, TOPIC, TOPIC) == {(TOPIC, "t")}
    assert resources(world, BROKER, LOGGER) == {(BROKER, "1"), (LOGGER, "1")}
    assert resources(world, CLIENT_METRICS, GROUP) == set()


def test_a_group_is_listed_while_it_has_set_something(world: World) -> None:
    def set_session_timeout(operation: int, value: str | None) -> None:
        config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
        assert world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0

    set_session_timeout(0, "50000")
    assert resources(world, GROUP) == {(GROUP, "g")}
    set_session_timeout(1, None)
    assert resources(world, GROUP) == set()


@pytest.mark.parametrize("type_", [0, 3, 99])
def test_a_type_that_nobody_knows_is_refused(world: World, type_: int) -> None:
    answer = world.ask(ListConfigResourcesRequest(resource_types=[TOPIC, type_]))
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
