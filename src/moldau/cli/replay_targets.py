"""Targets of `moldau replay`: a topic, a topic in transactions, or a file."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from moldau.cli.common import REQUEST_TIMEOUT_S, describe
from moldau.cli.failures import ToolError
from moldau.cli.reading import Place
from moldau.cli.record_json import InputRecord, encoded_line
from moldau.cli.replay_positions import Keeper, NoPositions, PositionFile, Positions, committed, sync_directory
from moldau.cli.replay_sources import Item
from moldau.cli.sender import Sender

HEADERS = "moldau.replay."
"""Prefix of the headers that say where a record was: `topic`, `partition`, `offset`, `timestamp` (milliseconds)."""
TRANSACTION_TIMEOUT_S = 60.0

Choose = Callable[[InputRecord], int]


def with_provenance(item: Item) -> InputRecord:
    """The record with headers that say where it was read. Those of an earlier replay stay before them."""
    if item.origin is None:
        return item.record
    told = {name: value for name, value in item.origin._asdict().items() if value is not None}
    names = {"timestamp_ms": "timestamp"}
    added = [(HEADERS + names.get(name, name), str(value).encode()) for name, value in told.items()]
    return item.record._replace(headers=[*item.record.headers, *added])


class TopicTarget:
    """A topic. Records after the last checkpoint are sent again when a killed replay is started again."""

    def __init__(self, sender: Sender, choose: Choose, keeper: Keeper) -> None:
        self._sender = sender
        self._choose = choose
        self._keeper = keeper

    def resume(self, places: Sequence[Place]) -> Positions:
        """The positions to go on from."""
        return self._keeper.load(places)

    def send(self, item: Item) -> None:
        """Hand a record over."""
        self._sender.send(item.record, self._choose(item.record))

    def rest(self, seconds: float) -> None:
        """Wait, and send meanwhile."""
        self._sender.producer.poll(seconds)

    def checkpoint(self, positions: Positions) -> None:
        """Let all be acknowledged, then keep the positions."""
        self._sender.flush()
        if self._sender.failures:
            raise ToolError(f"{self._sender.failures} records were not taken; those before are kept in the positions")
        self._keeper.save(positions)

    def give_up(self) -> None:
        """Send what was handed over; it is not in the positions."""
        self._sender.give_up()


class TransactionTarget:
    """A topic that gets records and positions in one transaction: each record once, for readers of committed records.

    The positions are the offsets of a group on the target's cluster: of the source's partitions where it is the same
    cluster, else the metadata of the target's first partition.
    """

    def __init__(self, sender: Sender, choose: Choose, consumer: Consumer, topic: str, is_same_cluster: bool) -> None:
        self._sender = sender
        self._choose = choose
        self._consumer = consumer
        self._note_place = None if is_same_cluster else (topic, 0)
        self._is_open = False

    def resume(self, places: Sequence[Place]) -> Positions:
        """The positions to go on from, once an earlier replay of the same group can write no more."""
        self._sender.producer.init_transactions(TRANSACTION_TIMEOUT_S)
        if self._note_place is None:
            return committed(self._consumer, places)
        (found,) = self._consumer.committed([TopicPartition(*self._note_place)], timeout=REQUEST_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return _read_note(found.metadata)

    def send(self, item: Item) -> None:
        """Hand a record over, in a transaction."""
        if not self._is_open:
            self._sender.producer.begin_transaction()
            self._is_open = True
        self._sender.send(item.record, self._choose(item.record))

    def rest(self, seconds: float) -> None:
        """Wait, and send meanwhile."""
        self._sender.producer.poll(seconds)

    def checkpoint(self, positions: Positions) -> None:
        """Commit the records and the positions after them."""
        if not self._is_open:
            return
        producer = self._sender.producer
        try:
            producer.send_offsets_to_transaction(
                self._offsets(positions), self._consumer.consumer_group_metadata(), TRANSACTION_TIMEOUT_S
            )
            producer.commit_transaction(TRANSACTION_TIMEOUT_S)
        except KafkaException as error:
            reason = describe(error.args[0])
            self.give_up()
            raise ToolError(f"the transaction was not committed ({reason}): start again to go on") from error
        self._is_open = False

    def _offsets(self, positions: Positions) -> list[TopicPartition]:
        if self._note_place is None:
            return [TopicPartition(*place, next_) for place, next_ in positions.items()]
        note: dict[str, dict[str, int]] = {}
        for (name, number), next_ in positions.items():
            note.setdefault(name, {})[str(number)] = next_
        return [TopicPartition(*self._note_place, 0, json.dumps(note, separators=(",", ":")))]

    def give_up(self) -> None:
        """Take back what was not committed."""
        if self._is_open:
            self._is_open = False
            try:
                self._sender.producer.abort_transaction(TRANSACTION_TIMEOUT_S)
            except KafkaException as error:
                sys.stderr.write(f"warning: the last transaction is open until it expires: {describe(error.args[0])}\n")


def _read_note(text: str | None) -> Positions:
    """The positions of a note in a group's metadata."""
    if not text:
        return {}
    try:
        note: Mapping[str, Mapping[str, int]] = json.loads(text)
        return {(name, int(number)): note[name][number] for name in note for number in note[name]}
    except (ValueError, TypeError, AttributeError) as error:
        raise ToolError(f"the group's offsets are of another program, not of a replay ({text!r:.40})") from error


class FileTarget:
    """A file of lines of JSON. With a position file each record is in it once, whenever the replay is killed."""

    def __init__(self, path: str, keeper: PositionFile | NoPositions) -> None:
        self._path = Path(path)
        self._keeper = keeper
        self._file: Any = None

    def resume(self, places: Sequence[Place]) -> Positions:
        """The positions to go on from. What was written after them is cut off, as it will be written again."""
        found = self._keeper.load(places)
        begun = self._keeper.target_bytes if isinstance(self._keeper, PositionFile) else None
        try:
            if begun is None:
                self._file = self._path.open("xb" if not self._is_left_over() else "wb")
                sync_directory(self._path.parent)
            else:
                self._file = self._path.open("r+b")
                if os.fstat(self._file.fileno()).st_size < begun:
                    raise ToolError(f"{self._path} is shorter than the position file says: it was changed")
                self._file.truncate(begun)
                self._file.seek(begun)
        except FileExistsError as error:
            raise ToolError(f"{self._path} exists already: name another file, or delete it") from error
        except OSError as error:
            raise ToolError(f"cannot write {self._path}: {error.strerror}") from error
        self._save(found)
        return found

    def _is_left_over(self) -> bool:
        """Whether there is an empty file, which an interrupted start has left."""
        return self._path.is_file() and self._path.stat().st_size == 0

    def send(self, item: Item) -> None:
        """Write a line."""
        self._file.write(encoded_line(item.record, item.origin))

    def rest(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def checkpoint(self, positions: Positions) -> None:
        """Let the lines be on the disk, then keep the positions."""
        self._save(positions)

    def _save(self, positions: Positions) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ToolError(f"cannot write {self._path}: {error.strerror}") from error
        self._keeper.save(positions, self._file.tell())

    def give_up(self) -> None:
        """Do nothing: lines after the last checkpoint are cut off when the replay goes on."""


Target = TopicTarget | TransactionTarget | FileTarget
