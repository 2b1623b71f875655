"""Requests made by hand over a plain socket: for what no client library would send."""

import socket
import struct
from typing import TypeVar

from moldau.protocol import codec
from moldau.protocol.apis import API_VERSIONS, find
from moldau.protocol.schema import Message

R = TypeVar("R", bound=Message)

TIMEOUT_S = 10.0


class RawClient:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next frame without its size, None if the broker closed the connection."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def _exactly(self, count: int) -> bytes | None:
        received = b""
        while len(received) < count:
            try:
                piece = self.socket.recv(count - len(received))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        return received

    def ask(self, key: int, version: int, request: Message, answer: type[R], correlation_id: int = 7) -> R:
        """Send a request and read its answer."""
        self.send(request_frame(key, version, codec.encode(request, version), correlation_id))
        return self.answer(key, version, answer, correlation_id)

    def answer(self, key: int, version: int, answer: type[R], correlation_id: int = 7) -> R:
        frame = self.receive()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        (got,) = struct.unpack_from(">i", frame)
        if got != correlation_id:
            raise ValueError(f"answer to {got}, not to {correlation_id}")
        flexible = _is_flexible(key, version) and key != API_VERSIONS
        return codec.decode(answer, version, frame, 5 if flexible else 4)

    def is_closed_by_the_broker(self) -> bool:
        return self.receive() is None


def request_frame(key: int, version: int, body: bytes, correlation_id: int = 7, client_id: bytes = b"raw") -> bytes:
    """Size, header and body of a request."""
    header = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
    if _is_flexible(key, version):
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def _is_flexible(key: int, version: int) -> bool:
    api = find(key)
    return api is not None and version >= api.flexible_from
