"""Positions of a replay: how far each partition, or the file, has been sent, kept where a new start finds them.

The law of the position file: what it says has been sent is acknowledged, or is in the target file and synced, before
the position file is written. It is written beside its place, synced and renamed: a start finds the old or the new one.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from moldau.cli.common import REQUEST_TIMEOUT_S
from moldau.cli.failures import ToolError
from moldau.cli.reading import Place

VERSION = 1

Positions = dict[Place, int]
"""The offset that comes next, of each partition; of a file, the byte."""


class PositionFile:
    """Keeper of positions in a file. `identity`: what is replayed where; the file of another replay is refused."""

    def __init__(self, path: str, identity: Mapping[str, str]) -> None:
        self._path = Path(path)
        self._identity = dict(identity)
        self.target_bytes: int | None = None
        """The length of the target file when the positions were written."""

    def load(self, _: Sequence[Place]) -> Positions:
        """The positions; none where there is no file yet."""
        try:
            content = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ToolError(f"cannot read {self._path}: {error.strerror}") from error
        except ValueError as error:
            raise ToolError(f"{self._path} is not a position file: {error}") from error
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ToolError(f"{self._path} is not a position file of version {VERSION}")
        if content.get("replay") != self._identity:
            other = ", ".join(f"{name} {value}" for name, value in (content.get("replay") or {}).items())
            raise ToolError(f"{self._path} belongs to another replay ({other}): name another file, or delete it")
        self.target_bytes = content.get("targetBytes")
        return {(each["source"], each["partition"]): each["next"] for each in content["positions"]}

    def save(self, positions: Positions, target_bytes: int | None = None) -> None:
        """Write the positions so that they are there after a crash."""
        listed = [{"source": name, "partition": number, "next": next_} for (name, number), next_ in positions.items()]
        content: dict[str, Any] = {"version": VERSION, "replay": self._identity, "positions": listed}
        if target_bytes is not None:
            content["targetBytes"] = target_bytes
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            with beside.open("w") as file:
                json.dump(content, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            sync_directory(self._path.parent)
        except OSError as error:
            raise ToolError(f"cannot write {self._path}: {error.strerror}") from error


class GroupOffsets:
    """Keeper of positions as the committed offsets of a group, on the cluster that is read."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def load(self, places: Sequence[Place]) -> Positions:
        """The committed offsets of these partitions."""
        return committed(self._consumer, places)

    def save(self, positions: Positions, _: int | None = None) -> None:
        """Commit."""
        offsets = [TopicPartition(*place, next_) for place, next_ in positions.items()]
        for each in self._consumer.commit(offsets=offsets, asynchronous=False) or []:
            if each.error is not None:
                raise KafkaException(each.error)


class NoPositions:
    """Keeper that keeps nothing: a new start begins anew."""

    def load(self, _: Sequence[Place]) -> Positions:
        """No positions."""
        return {}

    def save(self, _: Positions, __: int | None = None) -> None:
        """Do nothing."""


Keeper = PositionFile | GroupOffsets | NoPositions


def committed(consumer: Consumer, places: Sequence[Place]) -> Positions:
    """The committed offsets of the consumer's group, of the partitions that have one."""
    found = consumer.committed([TopicPartition(*place) for place in places], timeout=REQUEST_TIMEOUT_S)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def sync_directory(directory: Path) -> None:
    """Let a new name in a directory be there after a crash."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
