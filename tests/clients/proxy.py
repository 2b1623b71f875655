"""A proxy in front of a broker that can lose answers: the request was carried out, and its client never learns it."""

import socket
import struct
import threading
from types import TracebackType
from typing import Self

PRODUCE = 0


class AnswerLosingProxy:
    """Forwards frames; cuts the connection in place of each of the next `lose` answers to a Produce."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ""
        self.lost = 0
        self._to_lose = 0
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, count: int) -> None:
        with self._lock:
            self._to_lose = count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                host, _, port = self.target.rpartition(":")
                broker = socket.create_connection((host, int(port)))
            except OSError:
                return
            self._sockets += [client, broker]
            produces: set[int] = set()
            for run in (self._requests, self._answers):
                threading.Thread(target=run, args=(client, broker, produces), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, produces: set[int]) -> None:
        try:
            while frame := _frame(client):
                key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                if key == PRODUCE:
                    produces.add(correlation_id)
                broker.sendall(frame)
        except OSError:
            pass
        _cut(client, broker)

    def _answers(self, client: socket.socket, broker: socket.socket, produces: set[int]) -> None:
        try:
            while frame := _frame(broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                if correlation_id in produces and self._is_lost():
                    break
                client.sendall(frame)
        except OSError:
            pass
        _cut(client, broker)

    def _is_lost(self) -> bool:
        with self._lock:
            if self._to_lose == 0:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True


def _frame(source: socket.socket) -> bytes:
    """The next frame with its size; empty at the end of the connection."""
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack(">i", head)[0]) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = source.recv(count - len(received))
        if not piece:
            return b""
        received += piece
    return received


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            end.close()
