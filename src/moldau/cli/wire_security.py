"""Security of a wire client's connections: TLS, and SASL with PLAIN or SCRAM. Properties have librdkafka's names."""

import base64
import hashlib
import hmac
import re
import secrets
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from moldau.cli.failures import ToolError
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.schema import Message

if TYPE_CHECKING:
    import ssl

M = TypeVar("M", bound=Message)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MAX = 1_000_000
"""A server names how often a password is hashed; a hostile one would name a number that takes hours."""


class Speaker(Protocol):
    """A connection on which one request follows the other."""

    def request(self, message: Message, answer_type: type[M], version: int | None = None) -> M: ...

    def serves(self, api_key: int, version: int = 0) -> bool: ...


class Security(NamedTuple):
    """The way in which a connection is secured."""

    protocol: str = "PLAINTEXT"
    properties: Mapping[str, str] = {}

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """The connection, behind TLS where the protocol says so; raises OSError."""
        if not self.protocol.endswith("SSL"):
            return plain
        return _context(self.properties).wrap_socket(plain, server_hostname=host)

    def authenticate(self, connection: Speaker) -> None:
        """Say who we are, where the protocol asks for it."""
        if not self.protocol.startswith("SASL"):
            return
        mechanism = _mechanism(self.properties)
        if not connection.serves(SaslHandshakeRequest.api_key):
            raise ToolError(
                "the listener takes no name and password: name one for SASL, or leave security.protocol out"
            )
        offered = connection.request(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if offered.error_code != ErrorCode.NONE:
            raise ToolError(f"the broker knows no sasl.mechanism {mechanism}: say {' or '.join(offered.mechanisms)}")
        username, password = (self.properties.get(f"sasl.{name}", "") for name in ("username", "password"))
        if mechanism == "PLAIN":
            _exchanged(connection, f"\0{username}\0{password}".encode())
        else:
            _scram(connection, mechanism.removeprefix("SCRAM-").replace("-", "").lower(), username, password)


PLAINTEXT = Security()


def reason_of(error: OSError) -> str:
    """The reason of a failure on a connection, in words."""
    words = re.sub(r"\s*\(_ssl\.c:\d+\)|^\[[^]]*\]\s*", "", error.strerror or str(error))
    is_handshake = type(error).__module__ == "ssl" and "certificate" not in words
    return f"{words}: does its listener speak TLS?" if is_handshake else words


def security_of(properties: Mapping[str, str]) -> Security:
    """The security that client properties ask for; refuses what is not spoken here."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ToolError(f"security.protocol {protocol} is not spoken here: say {', '.join(PROTOCOLS)}")
    if protocol.startswith("SASL"):
        _mechanism(properties)
    return Security(protocol, properties)


def _mechanism(properties: Mapping[str, str]) -> str:
    named = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if named.upper() not in MECHANISMS:
        raise ToolError(f"sasl.mechanism {named} is not spoken here: say {', '.join(MECHANISMS)}")
    return named.upper()


def _context(properties: Mapping[str, str]) -> "ssl.SSLContext":
    import ssl  # 15 ms that plain connections do not need

    if "ssl.keystore.location" in properties:
        raise ToolError("ssl.keystore.location is not read here: name PEM with ssl.certificate.location")
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
        certificate = properties.get("ssl.certificate.location")
        if certificate:
            context.load_cert_chain(
                certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password", "")
            )
    except OSError as error:
        raise ToolError(f"a file that ssl.* names cannot be read: {error.strerror or error}") from error
    checks_name = properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    context.check_hostname = checks_name
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _exchanged(connection: Speaker, message: bytes) -> bytes:
    answer = connection.request(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
    if answer.error_code != ErrorCode.NONE:
        reason = answer.error_message or "it does not know this name and password"
        raise ToolError(f"the broker does not let us in: {reason}")
    return answer.auth_bytes


def _scram(connection: Speaker, algorithm: str, username: str, password: str) -> None:
    """Prove that we know the password, and see proof that the broker does (RFC 5802, RFC 7677)."""
    nonce = secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    told = _exchanged(connection, f"n,,{first}".encode()).decode(errors="replace")
    fields = dict(part.partition("=")[::2] for part in told.split(","))
    try:
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise ToolError("the broker's part of SCRAM cannot be read") from error
    if not fields.get("r", "").startswith(nonce) or not 0 < iterations <= ITERATIONS_MAX:
        raise ToolError("the broker's part of SCRAM does not fit ours")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = _keyed(salted, b"Client Key", algorithm)
    without_proof = f"c=biws,r={fields['r']}"
    all_messages = f"{first},{told},{without_proof}".encode()
    signature = _keyed(hashlib.new(algorithm, client_key).digest(), all_messages, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    final = _exchanged(connection, f"{without_proof},p={proof}".encode())
    expected = _keyed(_keyed(salted, b"Server Key", algorithm), all_messages, algorithm)
    if final.rstrip() != b"v=" + base64.b64encode(expected):
        raise ToolError("the broker could not prove that it knows the password: it may be another")


def _keyed(key: bytes, message: bytes, algorithm: str) -> bytes:
    return hmac.new(key, message, algorithm).digest()
