"""ExpireDelegationToken (key 40), versions 0 to 2."""

from moldau.protocol.schema import BYTES, INT16, INT32, INT64, Message, field


class ExpireDelegationTokenRequest(Message, api_key=40, versions=(0, 2), flexible=2):
    hmac: bytes = field(BYTES)
    expiry_time_period_ms: int = field(INT64)


class ExpireDelegationTokenResponse(Message, api_key=40, versions=(0, 2), flexible=2):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
