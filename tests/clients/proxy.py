"""Proxies in front of a broker that lose answers, so that a client never learns that its request was carried out, or
that hold them back."""

import socket
import struct
import threading
from types import TracebackType
from typing import Self

PRODUCE, LIST_OFFSETS = 0, 2


class Proxy:
    """Forwards frames, from the broker if they pass."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ""
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def passes(self, api_key: int) -> bool:
        """Whether the answer to a request of this kind is forwarded; the connection is cut if not."""
        raise NotImplementedError

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
            asked: dict[int, int] = {}
            for run in (self._requests, self._answers):
                threading.Thread(target=run, args=(client, broker, asked), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        try:
            while frame := _frame(client):
                key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                asked[correlation_id] = key
                broker.sendall(frame)
        except OSError:
            pass
        _cut(client, broker)

    def _answers(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        try:
            while frame := _frame(broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                if not self.passes(asked.pop(correlation_id)):
                    break
                client.sendall(frame)
        except OSError:
            pass
        _cut(client, broker)


class AnswerLosingProxy(Proxy):
    """Cuts the connection in place of each of the next `lose` answers to a Produce."""

    def __init__(self) -> None:
        self.lost = 0
        self._to_lose = 0
        self._lock = threading.Lock()
        super().__init__()

    def lose(self, count: int) -> None:
        with self._lock:
            self._to_lose = count

    def passes(self, api_key: int) -> bool:
        with self._lock:
            if api_key != PRODUCE or self._to_lose == 0:
                return True
            self._to_lose -= 1
            self.lost += 1
            return False


class AnswerHoldingProxy(Proxy):
    """Holds answers to ListOffsets, and all behind them on their connection, until `let_go`; `holds` says that it has
    one."""

    def __init__(self) -> None:
        self.holds = threading.Event()
        self._may_go = threading.Event()
        super().__init__()

    def let_go(self) -> None:
        self._may_go.set()

    def passes(self, api_key: int) -> bool:
        if api_key == LIST_OFFSETS:
            self.holds.set()
            self._may_go.wait()
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
        super().__exit__(kind, error, trace)


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
