"""IncrementalAlterConfigs, versions 0 to 1 (KIP-339).

Sets, deletes, appends to and subtracts from single properties of topics, of this broker, of all brokers (the broker
named ""), of groups (KIP-848), of subscriptions to client metrics (KIP-714) and of this broker's loggers (KIP-412);
the others stay. Takes effect before the answer.

- Append and subtract are for lists and start from the value in force; an item is never there twice. For any other
  property INVALID_CONFIG.
- Nothing of a resource is changed if anything about it is wrong; the other resources of the request are.
- A property or a resource that comes twice, a null value where one is needed: INVALID_REQUEST. A bad value for a topic
  or a group is INVALID_CONFIG; for a broker, also a property that cannot change at run time, INVALID_REQUEST: all of
  them Kafka's codes.
- To delete what is not set is no error. `validate_only` checks and changes nothing.

Gaps: of groups, only `consumer.*`. Kafka appends to a
property's default, not to what the broker has set for it.
"""

from enum import IntEnum
from functools import partial

from moldau.core.broker_config import broker_key
from moldau.core.client_metrics_config import CLIENT_METRICS_KEYS
from moldau.core.config import ConfigError, ConfigKey, ConfigType, items_of, parse_list, render_value
from moldau.core.topic_config import TOPIC_KEYS, effective_value
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.requests import broker_loggers
from moldau.requests.authorization import ALTER_CONFIGS
from moldau.requests.config_resources import (
    Configs,
    ResourceType,
    alter,
    alter_each,
    check_config_count,
    check_logger_name,
    require,
)
from moldau.requests.context import RequestContext, Services
from moldau.requests.duplicates import repeated
from moldau.requests.pending import holds_order


class Operation(IntEnum):
    """The numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@holds_order
async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    change = partial(_alter, context=context, validate_only=request.validate_only)
    responses = await alter_each(request.resources, change, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(asked: AlterConfigsResource, context: RequestContext, validate_only: bool) -> None:
    require(ALTER_CONFIGS, asked.resource_type, asked.resource_name, context)
    _check_operations(asked)
    services = context.services
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        _alter_loggers(asked, services, validate_only)
        return
    change = partial(_changed, asked, services)
    await alter(asked.resource_type, asked.resource_name, change, services, validate_only=validate_only)


def _check_operations(asked: AlterConfigsResource) -> None:
    check_config_count(asked.configs)
    twice = repeated(config.name for config in asked.configs)
    if twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{min(twice)}: is there twice")
    for config in asked.configs:
        if config.config_operation not in set(Operation):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: no operation {config.config_operation}")
        if config.value is None and config.config_operation != Operation.DELETE:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: cannot be null")


def _changed(asked: AlterConfigsResource, services: Services, old: Configs) -> Configs:
    """A resource's own properties after the operations."""
    new = dict(old)
    for config in asked.configs:
        if config.config_operation == Operation.SET:
            new[config.name] = config.value or ""
        elif config.config_operation == Operation.DELETE:
            new.pop(config.name, None)
        else:
            new[config.name] = _changed_list(config, asked.resource_type, services, old)
    return new


def _changed_list(config: AlterableConfig, type_: int, services: Services, old: Configs) -> str:
    is_topic = type_ == ResourceType.TOPIC
    is_subscription = type_ == ResourceType.CLIENT_METRICS
    keys = CLIENT_METRICS_KEYS if is_subscription else TOPIC_KEYS
    key = keys.get(config.name) if is_topic or is_subscription else broker_key(config.name)
    if key is None or key.type is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{config.name}: is not a list that could be changed item by item")
    own = old.get(config.name)
    text = "" if is_subscription else _text_in_force(key, is_topic, services)
    items = parse_list(text if own is None else own)
    try:
        changed = items_of(config.name, config.value or "")
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if config.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys((*items, *changed)))
    dropped = frozenset(changed)
    return ",".join(item for item in items if item not in dropped)


def _text_in_force(key: ConfigKey, is_topic: bool, services: Services) -> str:
    if is_topic:
        return render_value(effective_value(services.config, {}, key.name)) or ""
    return services.config.text(key.name) or ""


def _alter_loggers(asked: AlterConfigsResource, services: Services, validate_only: bool) -> None:
    check_logger_name(asked.resource_name, services)
    for config in asked.configs:
        if config.config_operation not in (Operation.SET, Operation.DELETE):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: a logger's level is set or deleted")
        broker_loggers.check(config.name, _level(config))
    if not validate_only:
        for config in asked.configs:
            broker_loggers.set_level(config.name, _level(config))


def _level(config: AlterableConfig) -> str | None:
    return None if config.config_operation == Operation.DELETE else config.value
