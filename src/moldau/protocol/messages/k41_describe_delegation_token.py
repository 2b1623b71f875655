"""DescribeDelegationToken (key 41), versions 0 to 3."""

from moldau.protocol.schema import BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, field


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribeDelegationTokenRequest(Message, api_key=41, versions=(0, 3), flexible=2):
    owners: list[DescribeDelegationTokenOwner] | None = field(array(DescribeDelegationTokenOwner), nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribedDelegationToken(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = field(array(DescribedDelegationTokenRenewer))


class DescribeDelegationTokenResponse(Message, api_key=41, versions=(0, 3), flexible=2):
    error_code: int = field(INT16)
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32)
