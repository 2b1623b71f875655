"""Kafka's small text files: offsets per partition, a partition's topic id, the owner of a data directory.

A checkpoint is a version, a count, and as many lines. A file that does not parse counts as missing: each checkpoint
only saves work, or its content is known elsewhere too, and the caller decides how far back to go.
"""

import base64
import binascii
import logging
from collections.abc import Mapping

from moldau.core.files import Files
from moldau.core.ids import TopicPartition

log = logging.getLogger(__name__)

_VERSION = "0"


class CheckpointError(ValueError):
    """Error: a checkpoint file does not have the form that it should have."""


def render_lines(lines: list[str]) -> bytes:
    """A checkpoint file of `lines`."""
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def parse_lines(data: bytes) -> list[list[str]]:
    """The fields of each line of a checkpoint file."""
    lines = data.decode(errors="replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdigit():
        raise CheckpointError("no version and count at the start")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        raise CheckpointError(f"{len(rows)} lines where {lines[1]} are announced")
    return rows


class OffsetCheckpoint:
    """An offset per partition: `recovery-point-offset-checkpoint` and its sisters."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._written: dict[TopicPartition, int] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """The offsets in the file; none if it is missing or broken."""
        data = self._files.read(self._path) if self._files.exists(self._path) else b""
        if not data:  # Kafka makes them empty before it has something to say
            self._written = {}
            return {}
        try:
            rows = parse_lines(data)
            found = {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}
            self._written = dict(found)
            return found
        except ValueError as error:
            log.warning("%s is ignored: %s", self._path, error)
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, unless it has these offsets already."""
        if self._written == offsets:
            return
        lines = [f"{name.topic} {name.partition} {offset}" for name, offset in offsets.items()]
        self._files.write_atomically(self._path, render_lines(lines))
        self._written = dict(offsets)


def read_topic_id(files: Files, path: str) -> bytes | None:
    """The topic id in `partition.metadata` (KIP-516)."""
    if not files.exists(path):
        return None
    pairs = (line.split(":", 1) for line in files.read(path).decode(errors="replace").splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in pairs}
    try:
        topic_id = base64.urlsafe_b64decode(fields["topic_id"] + "==")
    except (KeyError, binascii.Error, ValueError) as error:
        raise CheckpointError(f"{path} names no topic id") from error
    if len(topic_id) != 16:
        raise CheckpointError(f"{path} names a topic id of {len(topic_id)} bytes")
    return topic_id


def write_topic_id(files: Files, path: str, topic_id: bytes) -> None:
    """Write `partition.metadata`, all of it or nothing where only the process ends. It is not synced here: a thousand
    partitions may be made at once."""
    temporary = path + ".tmp"
    files.remove(temporary)
    files.open(temporary, create=True).append([f"version: 0\ntopic_id: {render_uuid(topic_id)}".encode()])
    files.rename(temporary, path)


def render_uuid(value: bytes) -> str:
    """The text that Kafka writes for 16 bytes: base64 for URLs without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
