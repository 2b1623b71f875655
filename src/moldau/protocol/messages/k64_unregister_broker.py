"""UnregisterBroker (key 64), version 0."""

from moldau.protocol.schema import INT16, INT32, STRING, Message, field


class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible=0):
    broker_id: int = field(INT32)


class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
