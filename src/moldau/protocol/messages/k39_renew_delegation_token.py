"""RenewDelegationToken (key 39), versions 0 to 2."""

from moldau.protocol.schema import BYTES, INT16, INT32, INT64, Message, field


class RenewDelegationTokenRequest(Message, api_key=39, versions=(0, 2), flexible=2):
    hmac: bytes = field(BYTES)
    renew_period_ms: int = field(INT64)


class RenewDelegationTokenResponse(Message, api_key=39, versions=(0, 2), flexible=2):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
