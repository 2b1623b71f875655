"""DescribeConfigs. Codes, sources and flags are those that Apache Kafka 4.3.1 gave to the same requests."""

from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.k33_alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from moldau.requests.config_resources import ResourceType
from tests.handlers.conftest import World

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
GROUP = ResourceType.GROUP


def describe(
    world: World,
    type_: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
    version: int | None = None,
) -> Any:
    resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = world.ask(request, version).results
    assert (result.resource_type, result.resource_name) == (type_, name)
    return result


def entry(world: World, type_: int, name: str, key: str, *, synonyms: bool = False) -> Any:
    (found,) = describe(world, type_, name, [key], synonyms=synonyms).configs
    return found


def chain(found: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def test_a_topics_own_value_comes_before_the_default(world: World) -> None:
    world.create("t", configs={"max.message.bytes": "1000"})
    found = entry(world, TOPIC, "t", "max.message.bytes", synonyms=True)
    assert (found.value, found.config_source, found.read_only, found.is_sensitive) == ("1000", 1, False, False)
    assert chain(found) == [("max.message.bytes", "1000", 1), ("message.max.bytes", "1048588", 5)]


@pytest.mark.moldau({"message.max.bytes": "2000"})
def test_the_brokers_value_is_a_topics_synonym(world: World) -> None:
    world.create("t")
    found = entry(world, TOPIC, "t", "max.message.bytes", synonyms=True)
    assert (found.value, found.config_source) == ("2000", 4)
    assert chain(found) == [("message.max.bytes", "2000", 4), ("message.max.bytes", "1048588", 5)]


@pytest.mark.parametrize("keys", [None, []])
def test_no_names_ask_for_all(world: World, keys: list[str] | None) -> None:
    world.create("t")
    names = {config.name for config in describe(world, TOPIC, "t", keys).configs}
    assert {"cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas"} <= names


def test_names_that_nobody_knows_are_left_out(world: World) -> None:
    world.create("t")
    configs = describe(world, TOPIC, "t", ["retention.ms", "nope", "flush.ms"]).configs
    assert {config.name for config in configs} == {"retention.ms", "flush.ms"}


def test_synonyms_and_documentation_come_on_request(world: World) -> None:
    world.create("t")
    (bare,) = describe(world, TOPIC, "t", ["max.message.bytes"]).configs
    assert (bare.synonyms, bare.documentation, bare.config_type) == ([], None, 3)
    (told,) = describe(world, TOPIC, "t", ["max.message.bytes"], synonyms=True, documentation=True).configs
    assert told.synonyms
    assert told.documentation


def test_version_0_tells_only_whether_a_value_is_the_default(world: World) -> None:
    world.create("t", configs={"flush.ms": "5"})
    configs = describe(world, TOPIC, "t", ["flush.ms", "retention.ms"], version=0).configs
    assert {config.name: config.is_default for config in configs} == {"flush.ms": False, "retention.ms": True}


@pytest.mark.parametrize("version", range(5))
def test_every_version_can_carry_everything(world: World, version: int) -> None:
    world.create("t")
    for type_, name in ((TOPIC, "t"), (BROKER, "1"), (BROKER, ""), (LOGGER, "1")):
        assert describe(world, type_, name, version=version).error_code == 0


@pytest.mark.parametrize(
    ("type_", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "7", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_there_is_told(world: World, type_: int, name: str, code: ErrorCode) -> None:
    result = describe(world, type_, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


@pytest.mark.moldau({"log.dirs": "/x", "ssl.keystore.password": "secret", "custom.property": "secret"})
def test_a_broker_tells_what_may_change_and_keeps_secrets(world: World) -> None:
    assert entry(world, BROKER, "1", "log.dirs").read_only
    assert entry(world, BROKER, "1", "log.dirs").config_source == 4
    assert not entry(world, BROKER, "1", "num.io.threads").read_only
    for name in ("ssl.keystore.password", "custom.property"):
        secret = entry(world, BROKER, "1", name, synonyms=True)
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert chain(secret) == [(name, None, 4)]


def test_dynamic_values_of_one_broker_come_before_those_of_all(world: World) -> None:
    world.run(world.metadata.set_broker_configs("", {"num.io.threads": "10"}))
    world.run(world.metadata.set_broker_configs("1", {"num.io.threads": "9"}))
    found = entry(world, BROKER, "1", "num.io.threads", synonyms=True)
    assert (found.value, found.config_source) == ("9", 2)
    assert [(value, source) for _name, value, source in chain(found)] == [("9", 2), ("10", 3), ("8", 5)]
    (default,) = describe(world, BROKER, "").configs
    assert (default.name, default.value, default.config_source) == ("num.io.threads", "10", 3)


def test_loggers_are_told_with_their_levels(world: World) -> None:
    (root,) = describe(world, LOGGER, "1", ["root"]).configs
    assert root.value in {"DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"}
    assert root.config_source == 6


def test_several_resources_are_answered_in_order(world: World) -> None:
    world.create("t")
    asked = [(TOPIC, "t"), (TOPIC, "nope"), (BROKER, "1"), (TOPIC, "t")]
    resources = [
        DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
        for type_, name in asked
    ]
    results = world.ask(DescribeConfigsRequest(resources=resources)).results
    assert [(each.resource_type, each.resource_name) for each in results] == asked
    assert [each.error_code for each in results] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]


def test_a_group_that_does_not_exist_has_the_brokers_settings(world: World) -> None:
    found = {each.name: each.value for each in describe(world, GROUP, "nobody").configs}
    assert found == {
        "consumer.assignment.interval.ms": "1000",
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
    }
    default = entry(world, GROUP, "nobody", "consumer.session.timeout.ms", synonyms=True)
    assert (default.config_source, default.read_only, default.is_sensitive) == (5, False, False)
    assert chain(default) == [("group.consumer.session.timeout.ms", "45000", 5)]


def test_a_groups_own_value_comes_before_the_brokers(world: World) -> None:
    config = AlterableConfig(name="consumer.session.timeout.ms", value="50000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
    assert world.ask(AlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
    found = entry(world, GROUP, "g", "consumer.session.timeout.ms", synonyms=True)
    assert (found.value, found.config_source) == ("50000", 8)
    assert chain(found) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


def test_all_groups_together_have_no_configuration(world: World) -> None:
    assert describe(world, GROUP, "").error_code == ErrorCode.INVALID_REQUEST
