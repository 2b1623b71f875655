"""What a connection needs of the world around it, without a socket."""

from moldau.broker.connection import Connection


class Transport:
    """Takes all at once."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, chunks: list[bytes]) -> None:
        self.writes.append(b"".join(chunks))

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_extra_info(self, _: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Owner:
    def opened(self, _: Connection) -> bool:
        return True

    def closed(self, _: Connection) -> None: ...
