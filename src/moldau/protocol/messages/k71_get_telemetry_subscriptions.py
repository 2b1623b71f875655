"""GetTelemetrySubscriptions (key 71), version 0."""

from moldau.protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, UUID, Message, array, field


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions=(0, 0), flexible=0):
    client_instance_id: bytes = field(UUID)


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOLEAN)
    requested_metrics: list[str] = field(array(STRING))
