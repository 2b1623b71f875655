"""SaslHandshake (key 17), versions 0 to 1."""

from moldau.protocol.schema import INT16, STRING, Message, array, field


class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1)):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
