"""AlterConfigs, versions 0 to 2 (KIP-133).

Replaces the whole of a resource's own properties by those of the request: what is not named goes back to its default.
Takes effect before the answer. Superseded by IncrementalAlterConfigs, which is the safer one to use.

- A null value, a property or a resource that comes twice: INVALID_REQUEST. A bad value for a topic or a group is
  INVALID_CONFIG; for a broker, also a property that cannot change at run time, INVALID_REQUEST: Kafka's codes both.
- `validate_only` checks and changes nothing.

Gaps: loggers are altered by key 44 only, as in Kafka; client metrics have no configuration yet; of groups,
only `consumer.*`.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from moldau.requests.authorization import ALTER_CONFIGS
from moldau.requests.config_resources import ResourceType, alter, check_config_count, require, unknown_type
from moldau.requests.context import RequestContext
from moldau.requests.duplicates import repeated_in_turns
from moldau.requests.pending import holds_order
from moldau.requests.turns import Turns


@holds_order
async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    turns = Turns()
    named = ((each.resource_type, each.resource_name) for each in request.resources)
    twice = await repeated_in_turns(named, turns)
    responses = []
    async for each in turns.each(request.resources):
        code, message = ErrorCode.NONE, None
        try:
            if (each.resource_type, each.resource_name) in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is there twice")
            if each.resource_type == ResourceType.BROKER_LOGGER:
                raise unknown_type(each.resource_type)  # whoever asks
            require(ALTER_CONFIGS, each.resource_type, each.resource_name, context)
            await _replace(each, context, request.validate_only)
        except ApiError as error:
            code, message = error.code, error.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


async def _replace(asked: AlterConfigsResource, context: RequestContext, validate_only: bool) -> None:
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
