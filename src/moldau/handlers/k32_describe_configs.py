"""DescribeConfigs, versions 0 to 4 (KIP-133).

Properties of topics, of this broker, of all brokers (the broker named ""), of groups (KIP-848, whether they exist or
not), of subscriptions to client metrics (KIP-714, likewise), and of this broker's loggers (KIP-412), with where each
value comes from. `configuration_keys` null or empty asks for all. Secrets are never told.

- 0: only whether a value is the default. 1+: its source, and synonyms on request (KIP-226).
- 3+: type, and documentation on request (KIP-569).

Gaps: of groups, only `consumer.*`.
"""

from collections.abc import Iterator

from moldau.core.config import ConfigEntry, ConfigSource
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from moldau.requests.authorization import DESCRIBE_CONFIGS
from moldau.requests.config_resources import describe, require
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

ONLY_TELLS_DEFAULTS = 0


def _what(asked: DescribeConfigsResource) -> tuple[int, str, tuple[str, ...]]:
    return asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ())


PIECES = Pieces("resources", "results", elements_max=10, distinct=_what)


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_resource(each, request, context) for each in request.resources])


def _resource(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    type_, name = asked.resource_type, asked.resource_name
    try:
        require(DESCRIBE_CONFIGS, type_, name, context)
        entries = describe(type_, name, context.services)
    except ApiError as error:
        return DescribeConfigsResult(
            error_code=error.code, error_message=error.message, resource_type=type_, resource_name=name
        )
    return DescribeConfigsResult(
        resource_type=type_,
        resource_name=name,
        configs=[_entry(entry, request, context) for entry in _only(asked.configuration_keys, entries)],
    )


def _only(names: list[str] | None, entries: Iterator[ConfigEntry]) -> Iterator[ConfigEntry]:
    wanted = set(names or ())
    return (entry for entry in entries if not wanted or entry.name in wanted)


def _entry(
    entry: ConfigEntry, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_default=context.api_version == ONLY_TELLS_DEFAULTS and entry.source is ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
