"""GetTelemetrySubscriptions, version 0 (KIP-714).

Metrics that a client is to push, and how often: of all subscriptions that fit it, the metrics together and the shortest
interval. A client without an id gets one. Sums are pushed as differences.

- The key is told by ApiVersions, and served, only with `client.telemetry.enable`: without, clients push nothing.
- One that asks again before its interval is over: THROTTLING_QUOTA_EXCEEDED, unless its last push was refused because
  of its subscription or codec.
- Nobody needs a right for it, as in Kafka.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order
from moldau.requests.telemetry import ACCEPTED_CODECS, ENABLE, Client, wish_of


@holds_order
async def handle(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    services = context.services
    if not services.config.bool(ENABLE):
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    client, configs = Client.of(request.client_instance_id, context), services.metadata.image.client_metrics
    wish = await wish_of(client, context, configs)
    try:
        found = services.telemetry.subscribe(client, wish, configs, services.clock.monotonic_ms())
    except ApiError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code, client_instance_id=request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=services.config.int("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=list(found.metrics),
    )
