"""IncrementalAlterConfigs. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

import logging
from collections.abc import Callable, Iterator

import pytest

from moldau.core.config import LIST_ITEMS_MAX, parse_list
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.requests.config_resources import ResourceType
from tests.handlers.conftest import World

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
GROUP, CLIENT_METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = range(4)
Operations = list[tuple[str, int, str | None]]


def resource(type_: int, name: str, operations: Operations) -> AlterConfigsResource:
    given = [AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in operations]
    return AlterConfigsResource(resource_type=type_, resource_name=name, configs=given)


def alter(
    world: World, *resources: AlterConfigsResource, validate_only: bool = False, version: int | None = None
) -> list[int]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = world.ask(request, version).responses
    assert [(each.resource_type, each.resource_name) for each in responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    assert all((each.error_message is None) == (each.error_code == 0) for each in responses)
    return [each.error_code for each in responses]


@pytest.mark.parametrize("version", range(2))
def test_what_is_not_named_stays(world: World, version: int) -> None:
    world.create("t", configs={"retention.ms": "1000"})
    assert alter(world, resource(TOPIC, "t", [("max.message.bytes", SET, "77")]), version=version) == [0]
    config = world.log_of("t").config
    assert (config.max_message_bytes, config.retention_ms) == (77, 1000)


def test_delete_goes_back_to_the_default(world: World) -> None:
    world.create("t", configs={"retention.ms": "1000"})
    operations: Operations = [("retention.ms", DELETE, None), ("flush.ms", DELETE, "5"), ("nope", DELETE, None)]
    assert alter(world, resource(TOPIC, "t", operations)) == [0]
    assert world.image.topics["t"].configs == {}
    assert world.log_of("t").config.retention_ms == 604_800_000


def test_append_and_subtract_change_a_list_item_by_item(world: World) -> None:
    world.create("t")

    def after(operation: int, value: str) -> str:
        assert alter(world, resource(TOPIC, "t", [("cleanup.policy", operation, value)])) == [0]
        return world.image.topics["t"].configs["cleanup.policy"]

    assert after(APPEND, "compact") == "delete,compact"
    assert after(APPEND, "compact") == "delete,compact"
    assert world.log_of("t").config.is_compacted
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "compact") == ""
    assert not world.log_of("t").config.is_compacted


@pytest.mark.moldau({"log.cleanup.policy": "compact"})
def test_append_starts_from_the_value_in_force(world: World) -> None:
    world.create("t")
    assert alter(world, resource(TOPIC, "t", [("cleanup.policy", APPEND, "delete")])) == [0]
    assert world.image.topics["t"].configs == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("name", "operations", "code"),
    [
        ("t", [("flush.ms", APPEND, "7")], ErrorCode.INVALID_CONFIG),
        ("t", [("flush.ms", SUBTRACT, "7")], ErrorCode.INVALID_CONFIG),
        ("t", [("nope", APPEND, "7")], ErrorCode.INVALID_CONFIG),
        ("t", [("cleanup.policy", APPEND, "foo")], ErrorCode.INVALID_CONFIG),
        ("t", [("nope", SET, "1")], ErrorCode.INVALID_CONFIG),
        ("t", [("flush.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ("t", [("flush.ms", SET, "5"), ("segment.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ("t", [("flush.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ("t", [("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ("t", [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ("t", [("flush.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ("nope", [("flush.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", [("flush.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        ("a/b", [("flush.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing_of_the_topic(
    world: World, name: str, operations: Operations, code: ErrorCode
) -> None:
    world.create("t", configs={"retention.ms": "1000"})
    assert alter(world, resource(TOPIC, name, operations)) == [code]
    assert world.image.topics["t"].configs == {"retention.ms": "1000"}


@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (TOPIC, "cleanup.policy"),
        (TOPIC, "leader.replication.throttled.replicas"),
        (CLIENT_METRICS, "metrics"),
        (CLIENT_METRICS, "match"),
    ],
)
def test_a_megabyte_of_items_is_refused_before_anybody_looks_at_them(
    world: World, type_: int, name: str, operation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They held the event loop for up to four seconds."""
    world.create("t")
    monkeypatch.setattr("moldau.core.config.parse_list", one_that_has_few(parse_list))
    assert alter(world, resource(type_, "t", [(name, operation, "1:1," * 250_000)])) == [ErrorCode.INVALID_CONFIG]


def one_that_has_few(parse: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    def checked(text: str) -> tuple[str, ...]:
        assert text.count(",") < LIST_ITEMS_MAX
        return parse(text)

    return checked


def test_a_long_list_is_taken(world: World) -> None:
    world.create("t")
    name = "leader.replication.throttled.replicas"
    replicas = ",".join(f"{index}:1" for index in range(LIST_ITEMS_MAX))
    assert alter(world, resource(TOPIC, "t", [(name, SET, replicas)])) == [0]
    assert alter(world, resource(TOPIC, "t", [(name, SUBTRACT, replicas)])) == [0]
    assert world.image.topics["t"].configs[name] == ""


@pytest.mark.parametrize(
    ("type_", "name", "key"),
    [
        (TOPIC, "t", "cleanup.policy"),
        (TOPIC, "t", "k" * 32_767),
        (TOPIC, "t" * 32_767, "k"),
        (GROUP, "g", "k" * 32_767),
    ],
)
def test_an_error_that_repeats_the_longest_of_texts_fits_into_an_old_answer(
    world: World, type_: int, name: str, key: str
) -> None:
    world.create("t")
    request = IncrementalAlterConfigsRequest(resources=[resource(type_, name, [(key, SET, "v" * 32_767)])])
    (response,) = world.ask(request, 0).responses
    assert response.error_code != 0
    assert len(response.error_message) < 1_100


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        ("1", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST),
        ("", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST),
        ("", ("ssl.keystore.location", SET, "/x"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.io.threads", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.io.threads", SET, "0"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.retention.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.io.threads", APPEND, "9"), ErrorCode.INVALID_CONFIG),
        ("1", ("listeners", SET, "PLAINTEXT://:1"), ErrorCode.INVALID_REQUEST),
        ("1", ("listeners", APPEND, "X://:1"), ErrorCode.INVALID_REQUEST),
        ("7", ("num.io.threads", SET, "9"), ErrorCode.INVALID_REQUEST),
        ("x", ("num.io.threads", SET, "9"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.dirs", DELETE, None), ErrorCode.NONE),
    ],
)
def test_a_broker_refuses_what_cannot_change_while_it_runs(
    world: World, name: str, operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = world.services.config.static
    assert alter(world, resource(BROKER, name, [operation])) == [code]
    assert not world.image.broker_configs
    assert world.services.config.static == before


def test_a_brokers_own_value_wins_over_that_of_all_brokers(world: World) -> None:
    world.create("t")
    for name, value in (("", "7000"), ("1", "8000")):
        assert alter(world, resource(BROKER, name, [("message.max.bytes", SET, value)])) == [0]
        assert world.log_of("t").config.max_message_bytes == int(value)
    assert alter(world, resource(BROKER, "1", [("message.max.bytes", DELETE, None)])) == [0]
    assert world.log_of("t").config.max_message_bytes == 7000


def test_resources_succeed_and_fail_each_for_itself(world: World) -> None:
    world.create("t")
    codes = alter(
        world,
        resource(TOPIC, "nope", [("flush.ms", SET, "1")]),
        resource(TOPIC, "t", [("flush.ms", SET, "1")]),
        resource(99, "t", [("flush.ms", SET, "1")]),
    )
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.INVALID_REQUEST]
    assert world.image.topics["t"].configs == {"flush.ms": "1"}


def test_a_resource_that_comes_twice_is_refused(world: World) -> None:
    world.create("t")
    twice = [resource(TOPIC, "t", [("flush.ms", SET, "1")]), resource(TOPIC, "t", [("segment.ms", SET, "2")])]
    assert alter(world, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert world.image.topics["t"].configs == {}


def test_validate_only_changes_nothing(world: World) -> None:
    world.create("t")
    asked = [
        resource(TOPIC, "t", [("flush.ms", SET, "5")]),
        resource(BROKER, "1", [("num.io.threads", SET, "5")]),
        resource(LOGGER, "1", [("root", SET, "LOUD")]),
    ]
    assert alter(world, *asked, validate_only=True) == [0, 0, ErrorCode.INVALID_CONFIG]
    assert world.image.topics["t"].configs == {}
    assert not world.image.broker_configs


@pytest.fixture
def own_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("moldau.test_loggers")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_a_loggers_level_is_set_and_given_back(world: World, own_logger: logging.Logger) -> None:
    assert alter(world, resource(LOGGER, "1", [(own_logger.name, SET, "WARN")])) == [0]
    assert own_logger.level == logging.WARNING
    assert alter(world, resource(LOGGER, "1", [(own_logger.name, SET, "TRACE")]), validate_only=True) == [0]
    assert own_logger.level == logging.WARNING
    assert alter(world, resource(LOGGER, "1", [(own_logger.name, DELETE, None)])) == [0]
    assert own_logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        ("1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("nope", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("7", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_logger_cannot_be_is_refused(
    world: World, name: str, operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    level = logging.root.level
    assert alter(world, resource(LOGGER, name, [operation])) == [code]
    assert logging.root.level == level


@pytest.mark.parametrize("group", ["g", "a/b c", "..", "%2E", "\u010d"])
def test_a_group_of_any_name_is_configured_whether_it_exists_or_not(world: World, group: str) -> None:
    first: Operations = [("consumer.session.timeout.ms", SET, "50000"), ("nope", DELETE, None)]
    assert alter(world, resource(GROUP, group, first)) == [0]
    assert alter(world, resource(GROUP, group, [("consumer.heartbeat.interval.ms", SET, "15000")])) == [0]
    assert world.image.group_configs == {
        group: {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "15000"}
    }


@pytest.mark.parametrize(
    ("name", "operation", "value"),
    [
        ("consumer.session.timeout.ms", SET, "1000"),
        ("consumer.heartbeat.interval.ms", APPEND, "1"),
        ("retention.ms", SET, "1"),
    ],
)
def test_a_wrong_property_of_a_group_is_an_invalid_config(world: World, name: str, operation: int, value: str) -> None:
    assert alter(world, resource(GROUP, "g", [(name, operation, value)])) == [ErrorCode.INVALID_CONFIG]
    assert world.image.group_configs == {}


def test_there_is_no_configuration_of_all_groups(world: World) -> None:
    operations: Operations = [("consumer.session.timeout.ms", SET, "50000")]
    assert alter(world, resource(GROUP, "", operations)) == [ErrorCode.INVALID_REQUEST]


def test_validate_only_leaves_a_group_as_it_is(world: World) -> None:
    operations: Operations = [("consumer.session.timeout.ms", SET, "50000")]
    assert alter(world, resource(GROUP, "g", operations), validate_only=True) == [0]
    assert world.image.group_configs == {}
