"""PushTelemetry, version 0 (KIP-714).

Metrics of a client, as OpenTelemetry's protobuf message in one of the codecs. The newest figures of each client are
kept, and shown at `/clients` of `metrics.listener` and in the console. They are read off the event loop.

- After a push that says it is the last one: INVALID_REQUEST. Before the interval is over: THROTTLING_QUOTA_EXCEEDED,
  unless it is the first since the client asked, or the last one. With the id of an earlier subscription:
  UNKNOWN_SUBSCRIPTION_ID. A codec that is none: UNSUPPORTED_COMPRESSION_TYPE. More than `telemetry.max.bytes`:
  TELEMETRY_TOO_LARGE. What cannot be read: INVALID_RECORD. In this order, as in Kafka.

Gaps: histograms are passed over; of a push 1 MiB and 2,000 figures are read, of a client 200 are kept.
"""

from functools import partial

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from moldau.records.compression import decompress
from moldau.requests import otlp
from moldau.requests.context import RequestContext
from moldau.requests.otlp import NotMetrics, Point
from moldau.requests.pending import holds_order
from moldau.requests.telemetry import ENABLE, Client, Push, wish_of

OPENED_BYTES_MAX = 1024 * 1024


@holds_order
async def handle(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    services = context.services
    if not services.config.bool(ENABLE):
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    telemetry, codec, size = services.telemetry, request.compression_type, len(request.metrics)
    push = Push(request.subscription_id, request.terminating, codec, size)
    client, configs = Client.of(request.client_instance_id, context), services.metadata.image.client_metrics
    wish = await wish_of(client, context, configs)
    bytes_max, now_ms = services.config.int("telemetry.max.bytes"), services.clock.monotonic_ms()
    try:
        instance = telemetry.admit(client, push, wish, configs, bytes_max, now_ms)
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    try:
        points = await services.opener.run(partial(_read, codec, bytes(request.metrics)))
    except (ApiError, NotMetrics):
        return PushTelemetryResponse(error_code=telemetry.refuse_record(instance).code)
    telemetry.take(instance, points, size)
    return PushTelemetryResponse()


def _read(codec: int, data: bytes) -> list[Point]:
    return otlp.points(bytes(decompress(codec, data, limit=OPENED_BYTES_MAX)))
