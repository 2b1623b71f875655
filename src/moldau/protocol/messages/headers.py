"""Headers in front of a request and of a response; `framing` reads and writes them by hand."""

from moldau.protocol.schema import INT16, INT32, STRING, Message, field


class RequestHeader(Message, versions=(0, 2), flexible=2):
    request_api_key: int = field(INT16)
    request_api_version: int = field(INT16)
    correlation_id: int = field(INT32)
    client_id: str | None = field(STRING, "1+", nullable="1+", compact=False)


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    correlation_id: int = field(INT32)
