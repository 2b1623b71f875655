"""A leader whose answers a test decides: it reads requests off a socket and hands them to the test one by one."""

import asyncio
from typing import Any

from moldau.protocol import codec
from moldau.protocol.apis import request_type
from moldau.protocol.framing import parse_request_header, responder
from moldau.protocol.messages.k01_fetch import FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData
from moldau.protocol.schema import Message

PATIENCE_S = 20


class Asked:
    """One request, and the way to answer it."""

    def __init__(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        self.header = parse_request_header(frame)
        self.message: Any = codec.decode(
            request_type(self.header.api_key), self.header.api_version, frame, self.header.body_position
        )
        self._writer = writer

    def answer(self, message: Message) -> None:
        respond = responder(self.header.api_key, self.header.api_version)
        for chunk in respond(self.header.correlation_id, message):
            assert isinstance(chunk, bytes)
            self._writer.write(chunk)

    def answer_fetch(self, topic_id: bytes, *partitions: PartitionData, session_id: int = 77) -> None:
        topics = [FetchableTopicResponse(topic_id=topic_id, partitions=list(partitions))] if partitions else []
        self.answer(FetchResponse(session_id=session_id, responses=topics))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def hang_up(self) -> None:
        self._writer.transport.abort()

    @property
    def named(self) -> dict[int, FetchPartition]:
        """The partitions that a Fetch names, of all its topics."""
        return {each.partition: each for topic in self.message.topics for each in topic.partitions}

    @property
    def forgotten(self) -> list[int]:
        return [index for topic in self.message.forgotten_topics_data for index in topic.partitions]


class FakeLeader:
    """Listens on a free port."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                self._asked.put_nowait(Asked(await reader.readexactly(size), writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            self._writers.discard(writer)

    async def asked(self) -> Asked:
        """The next request."""
        return await asyncio.wait_for(self._asked.get(), PATIENCE_S)

    @property
    def is_quiet(self) -> bool:
        return self._asked.empty()

    async def stop(self) -> None:
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)
