"""AlterConfigs, versions 0 to 2 (KIP-133).

Replaces the whole of a resource's own properties by those of the request: what is not named goes back to its default.
Takes effect before the answer. Superseded by IncrementalAlterConfigs, which is the safer one to use.

- A null value, a property or a resource that comes twice: INVALID_REQUEST. A bad value for a topic or a group is
  INVALID_CONFIG; for a broker, also a property that cannot change at run time, INVALID_REQUEST: Kafka's codes both.
- `validate_only` checks and changes nothing.

Gaps: loggers are altered by key 44 only, as in Kafka; client metrics have no configuration yet; of groups,
only `consumer.*`.
"""

from functools import partial

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from moldau.requests.authorization import ALTER_CONFIGS
from moldau.requests.config_resources import ResourceType, alter, alter_each, check_config_count, require, unknown_type
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order


@holds_order
async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    replace = partial(_replace, context=context, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=await alter_each(request.resources, replace, AlterConfigsResourceResponse))


async def _replace(asked: AlterConfigsResource, context: RequestContext, validate_only: bool) -> None:
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        raise unknown_type(asked.resource_type)  # whoever asks
    require(ALTER_CONFIGS, asked.resource_type, asked.resource_name, context)
    new = _configs(asked)
    await alter(
        asked.resource_type, asked.resource_name, lambda _old: new, context.services, validate_only=validate_only
    )


def _configs(asked: AlterConfigsResource) -> dict[str, str]:
    check_config_count(asked.configs)
    new: dict[str, str] = {}
    for config in asked.configs:
        if config.name in new:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: is there twice")
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: cannot be null")
        new[config.name] = config.value
    return new
