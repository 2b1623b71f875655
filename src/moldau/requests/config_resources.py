"""Resources with a configuration: topics, brokers, brokers' loggers, groups and client metrics; see keys 32, 33, 44.

A change is a function from the old properties to the new ones, so that it can be tried (`validate_only`), and be made
again when somebody else changed the same resource first. All of the outcome is checked, not only what is new in it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Sized
from enum import IntEnum
from typing import Protocol, TypeVar

from moldau.cluster.config_checks import check_broker_configs, check_topic_configs
from moldau.cluster.topic_names import validate_topic_name
from moldau.core.client_metrics_config import client_metrics_entries
from moldau.core.config import ConfigEntry, ConfigError
from moldau.core.config_entries import broker_entries, default_broker_entries, group_entries, topic_entries
from moldau.core.group_config import validate_group
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.requests import broker_loggers
from moldau.requests.authorization import CLUSTER, GROUP, THE_CLUSTER, TOPIC, Operation
from moldau.requests.context import RequestContext, Services
from moldau.requests.duplicates import repeated_in_turns
from moldau.requests.telemetry import check_subscription
from moldau.requests.turns import Turns

Configs = Mapping[str, str]
Change = Callable[[Configs], Configs]

WHOLE_CLUSTER = ""
FIXED_WHILE_RUNNING = frozenset({"listeners", "listener.security.protocol.map"})
"""Kafka can open and close listeners at run time; here that would be promised and not done."""


CONFIGS_PER_RESOURCE_MAX = 1000
"""Properties in one change of a resource; a broker has about 250."""


class ResourceType(IntEnum):
    """The numbers of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


RESOURCE_TYPES = frozenset(ResourceType)


def require(operation: Operation, type_: int, name: str, context: RequestContext) -> None:
    """Raise ApiError unless the one who asks may do this with the configuration of a resource. A broker's, and that of
    client metrics, is the cluster's. That there is no such type is told to anybody."""
    if type_ not in RESOURCE_TYPES:
        raise unknown_type(type_)
    if type_ == ResourceType.TOPIC:
        context.require(operation, TOPIC, name)
    elif type_ == ResourceType.GROUP:
        context.require(operation, GROUP, name)
    else:
        context.require(operation, CLUSTER, THE_CLUSTER)


def describe(type_: int, name: str, services: Services) -> Iterator[ConfigEntry]:
    """All entries of a resource; raises ApiError if there is none of this type and name."""
    if type_ == ResourceType.TOPIC:
        return topic_entries(services.config, _topic_configs(name, services))
    if type_ == ResourceType.BROKER:
        check_broker_name(name, services)
        return default_broker_entries(services.config) if name == WHOLE_CLUSTER else broker_entries(services.config)
    if type_ == ResourceType.BROKER_LOGGER:
        check_logger_name(name, services)
        return broker_loggers.entries()
    if type_ == ResourceType.GROUP:
        return group_entries(services.config, _group_configs(name, services))
    if type_ == ResourceType.CLIENT_METRICS:
        return client_metrics_entries(_client_metrics(name, services))
    raise unknown_type(type_)


class _Named(Protocol):
    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=_Named)
A = TypeVar("A")


async def alter_each(
    resources: Sequence[R], change: Callable[[R], Awaitable[None]], answer: Callable[..., A]
) -> list[A]:
    """The answers for resources that are changed one after the other; one that is there twice is not changed."""
    turns = Turns()
    twice = await repeated_in_turns(((each.resource_type, each.resource_name) for each in resources), turns)
    answers = []
    async for each in turns.each(resources):
        code, message = ErrorCode.NONE, None
        try:
            if (each.resource_type, each.resource_name) in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is there twice")
            await change(each)
        except ApiError as error:
            code, message = error.code, error.message
        answers.append(
            answer(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return answers


async def alter(type_: int, name: str, change: Change, services: Services, *, validate_only: bool) -> None:
    """Change a topic's, broker's, group's or subscription's own properties; raises ApiError."""
    if type_ == ResourceType.TOPIC:
        await _alter_topic(name, change, services, validate_only)
    elif type_ == ResourceType.BROKER:
        await _alter_broker(name, change, services, validate_only)
    elif type_ == ResourceType.GROUP:
        await _alter_group(name, change, services, validate_only)
    elif type_ == ResourceType.CLIENT_METRICS:
        await _alter_client_metrics(name, change, services, validate_only)
    else:
        raise unknown_type(type_)


async def _alter_topic(name: str, change: Change, services: Services, validate_only: bool) -> None:
    if name == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "there is no configuration of all topics: set the broker's defaults")
    configs = _topic_configs(name, services)
    check_topic_configs(change(configs))
    if not validate_only:
        await services.metadata.alter_topic_configs(name, change)


async def _alter_broker(name: str, change: Change, services: Services, validate_only: bool) -> None:
    check_broker_name(name, services)
    old = services.metadata.image.broker_configs.get(name, {})
    new = change(old)
    _check_fixed(old, new)
    check_broker_configs(name, new)
    if not validate_only:
        await services.metadata.alter_broker_configs(name, change)


async def _alter_group(name: str, change: Change, services: Services, validate_only: bool) -> None:
    def checked(old: Configs) -> Configs:
        new = change(old)
        _check_group_configs(new, services)
        return new

    checked(_group_configs(name, services))
    if not validate_only:
        await services.metadata.alter_group_configs(name, checked)


def _check_group_configs(configs: Configs, services: Services) -> None:
    try:
        validate_group(services.config, configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _group_configs(name: str, services: Services) -> Configs:
    """A group need not exist to have a configuration."""
    if name == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "there is no configuration of all groups: set the broker's defaults")
    return services.metadata.image.group_configs.get(name, {})


async def _alter_client_metrics(name: str, change: Change, services: Services, validate_only: bool) -> None:
    def checked(old: Configs) -> Configs:
        new = change(old)
        check_subscription(name, new, services.metadata.image.client_metrics)
        return new

    checked(_client_metrics(name, services))
    if not validate_only:
        await services.metadata.alter_client_metrics(name, checked)


def _client_metrics(name: str, services: Services) -> Configs:
    """A subscription is there when something of it is set."""
    if name == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "a subscription to client metrics has a name")
    return services.metadata.image.client_metrics.get(name, {})


def _check_fixed(old: Configs, new: Configs) -> None:
    fixed = [name for name in FIXED_WHILE_RUNNING if name in new and new[name] != old.get(name)]
    if fixed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{min(fixed)}: cannot change while the broker runs")


def _topic_configs(name: str, services: Services) -> Configs:
    validate_topic_name(name)
    topic = services.metadata.image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic.configs


def check_config_count(configs: Sized) -> None:
    """Raise INVALID_REQUEST for more properties of one resource than there can be."""
    if len(configs) > CONFIGS_PER_RESOURCE_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(configs)} properties of one resource")


def check_broker_name(name: str, services: Services) -> None:
    """Raise ApiError for another broker: only this one knows its properties file. "" is all brokers of the cluster."""
    if name not in (WHOLE_CLUSTER, str(services.broker_id)):
        raise _not_here(name, services)


def check_logger_name(name: str, services: Services) -> None:
    if name != str(services.broker_id):
        raise _not_here(name, services)


def _not_here(name: str, services: Services) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {services.broker_id}, not {name[:80]!r}")


def unknown_type(type_: int) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"resources of type {type_} have no configuration here")
