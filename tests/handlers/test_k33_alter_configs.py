"""AlterConfigs. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k33_alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from moldau.requests.config_resources import ResourceType
from tests.handlers.conftest import World

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
Configs = list[tuple[str, str | None]]


def resource(type_: int, name: str, configs: Configs) -> AlterConfigsResource:
    given = [AlterableConfig(name=key, value=value) for key, value in configs]
    return AlterConfigsResource(resource_type=type_, resource_name=name, configs=given)


def alter(world: World, *resources: AlterConfigsResource, validate_only: bool = False) -> list[int]:
    responses = world.ask(AlterConfigsRequest(resources=list(resources), validate_only=validate_only)).responses
    assert [(each.resource_type, each.resource_name) for each in responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    assert all((each.error_message is None) == (each.error_code == 0) for each in responses)
    return [each.error_code for each in responses]


@pytest.mark.parametrize("version", range(3))
def test_what_is_not_named_goes_back_to_its_default(world: World, version: int) -> None:
    world.create("t", configs={"retention.ms": "1000"})
    request = AlterConfigsRequest(resources=[resource(TOPIC, "t", [("flush.messages", "77")])])
    assert world.ask(request, version).responses[0].error_code == 0
    assert world.image.topics["t"].configs == {"flush.messages": "77"}
    config = world.log_of("t").config
    assert (config.flush_messages, config.retention_ms) == (77, 604_800_000)


def test_no_properties_clear_them_all(world: World) -> None:
    world.create("t", configs={"retention.ms": "1000"})
    assert alter(world, resource(TOPIC, "t", [])) == [0]
    assert world.image.topics["t"].configs == {}


@pytest.mark.parametrize(
    ("type_", "name", "configs", "code"),
    [
        (TOPIC, "nope", [("flush.ms", "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", [], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("nope", "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("flush.ms", "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("flush.ms", None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("flush.ms", "1"), ("flush.ms", "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("log.dirs", "/x")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("log.dirs", "/x")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("num.io.threads", "x")], ErrorCode.INVALID_REQUEST),
        (BROKER, "7", [("num.io.threads", "9")], ErrorCode.INVALID_REQUEST),
        (BROKER, "x", [("num.io.threads", "9")], ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", [("root", "INFO")], ErrorCode.INVALID_REQUEST),
        (0, "x", [], ErrorCode.INVALID_REQUEST),
        (99, "x", [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    world: World, type_: int, name: str, configs: Configs, code: ErrorCode
) -> None:
    world.create("t", configs={"retention.ms": "1000"})
    assert alter(world, resource(type_, name, configs)) == [code]
    assert world.image.topics["t"].configs == {"retention.ms": "1000"}
    assert not world.image.broker_configs


def test_a_resource_that_comes_twice_is_refused(world: World) -> None:
    world.create("t")
    twice = [resource(TOPIC, "t", [("flush.ms", "1")]), resource(TOPIC, "t", [("flush.ms", "2")])]
    assert alter(world, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert world.image.topics["t"].configs == {}


def test_validate_only_changes_nothing(world: World) -> None:
    world.create("t")
    asked = [
        resource(TOPIC, "t", [("flush.ms", "5")]),
        resource(BROKER, "1", [("message.max.bytes", "5")]),
        resource(BROKER, "", [("message.max.bytes", "x")]),
    ]
    assert alter(world, *asked, validate_only=True) == [0, 0, ErrorCode.INVALID_REQUEST]
    assert world.image.topics["t"].configs == {}
    assert not world.image.broker_configs


def test_a_brokers_dynamic_properties_reach_open_logs(world: World) -> None:
    world.create("t")
    assert alter(world, resource(BROKER, "1", [("message.max.bytes", "5000"), ("unknown.plugin.key", "v")])) == [0]
    assert world.services.config.int("message.max.bytes") == 5000
    assert world.log_of("t").config.max_message_bytes == 5000
    assert alter(world, resource(BROKER, "1", [])) == [0]
    assert world.log_of("t").config.max_message_bytes == 1_048_588
