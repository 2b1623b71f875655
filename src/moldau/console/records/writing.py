"""Writing records: one that somebody types, and copies of others with headers that say where they came from."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from moldau.client.message_headers import NO_UTF8, read_headers
from moldau.console.cluster.clients import REQUEST_S, Clients
from moldau.console.failures import ConsoleError

PROVENANCE = "moldau.replay."
REPLAYED_MAX = 500


class Draft(NamedTuple):
    """A record that is to be written."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None = None


def write(clients: Clients, topic: str, drafts: Sequence[Draft]) -> list[tuple[int, int]]:
    """Write all; returns partition and offset of each that was acknowledged. Raises ConsoleError for the rest."""
    written: list[tuple[int, int]] = []
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error.str())
        else:
            written.append((message.partition() or 0, message.offset() or 0))

    for draft in drafts:
        options: dict[str, Any] = {} if draft.partition is None else {"partition": draft.partition}
        clients.producer.produce(
            topic,
            draft.value,
            draft.key,
            on_delivery=delivered,
            headers=list(draft.headers),
            **options,
        )
    deadline = time.monotonic() + REQUEST_S + 2
    while len(written) + len(refused) < len(drafts) and time.monotonic() < deadline:
        clients.producer.poll(0.1)
    if len(written) < len(drafts):
        why = refused[0] if refused else "no answer came in time"
        raise ConsoleError(f"{len(written)} of {len(drafts)} records were written to {topic}: {why}", 409)
    return written


def copy_of(message: Message, topic: str, user: str) -> Draft:
    """A copy with its provenance; a copy of a copy keeps the headers of the first and says where it was now."""
    _, timestamp = message.timestamp()
    headers = read_headers(message)
    if headers is None:
        place = f"{topic}-{message.partition()} offset {message.offset()}"
        raise ConsoleError(f"{place} is not copied: {NO_UTF8}", 409)
    said = {
        "topic": topic,
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "by": user or "console",
    }
    headers.extend((PROVENANCE + name, str(value).encode()) for name, value in said.items())
    return Draft(message.key(), message.value(), headers)
