"""`<offset>.snapshot`: the producers of a log as they were when it ended at that offset.

Kafka keeps the last batch of each producer. We write one row for each of the last five, oldest first: Kafka lets the
later row of a producer replace the earlier one, so the file means the same to it, and after a clean restart we still
recognise every batch that may be in flight. Only the last row holds an open transaction.
"""

import contextlib
import logging
from bisect import insort
from collections.abc import Iterable
from struct import Struct

from moldau.core.file_errors import syncing
from moldau.core.files import Files
from moldau.log.producers import BATCHES_KEPT, NO_OFFSET, ProducerEntry, Producers
from moldau.records.batch import NO_SEQUENCE
from moldau.records.crc import crc32c

log = logging.getLogger(__name__)

SUFFIX = ".snapshot"

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ROW = Struct(">qhiqiqiq")
_ROWS = [Struct(">" + count * "qhiqiqiq") for count in range(BATCHES_KEPT + 1)]


class CorruptSnapshotError(Exception):
    """Error: the file is torn or not a snapshot. An older snapshot and the log itself have all that it had."""


def render_snapshot(producers: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot. Only entries that have changed since the last one are packed anew."""
    rows = b"".join([entry.rows or _packed(entry) for entry in producers])
    body = _COUNT.pack(len(rows) // _ROW.size) + rows
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def parse_snapshot(data: bytes, now_ms: int) -> list[ProducerEntry]:
    """The producers in a snapshot; each counts as seen now."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != _VERSION or crc != crc32c(body):
        raise CorruptSnapshotError(f"version {version}, checksum {crc:08x}")
    (count,) = _COUNT.unpack_from(body)
    if _COUNT.size + count * _ROW.size != len(body):
        raise CorruptSnapshotError(f"{count} rows in {len(body)} bytes")
    entries: dict[int, ProducerEntry] = {}
    for row in _ROW.iter_unpack(body[_COUNT.size :]):
        _add_row(entries, row, now_ms)
    return list(entries.values())


def write_snapshot(files: Files, path: str, producers: Iterable[ProducerEntry]) -> None:
    """Write a snapshot without a sync: a torn one is found by its checksum, and a sync of the log includes it."""
    files.remove(path)
    files.open(path, create=True).append([render_snapshot(producers)])


def _packed(entry: ProducerEntry) -> bytes:
    """The rows of one producer, packed together and kept until it changes."""
    kept = entry.kept or (NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp)
    count = len(kept) // 4
    head, tail = (entry.producer_id, entry.epoch), (entry.coordinator_epoch, NO_OFFSET)
    values: list[int] = []
    for start in range(0, len(kept), 4):
        values += (*head, *kept[start : start + 4], *tail)
    values[-1] = entry.current_txn_first_offset
    values[-3] = entry.last_timestamp
    entry.rows = rows = _ROWS[count].pack(*values)
    return rows


def _add_row(entries: dict[int, ProducerEntry], row: tuple[int, ...], now_ms: int) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = row
    entry = entries.get(producer_id)
    if entry is None or entry.epoch != epoch:
        entry = entries[producer_id] = ProducerEntry(producer_id, epoch, now_ms)
    if last_offset >= 0:
        entry.add(last_sequence, last_offset, delta, timestamp)
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.current_txn_first_offset = txn_first_offset


class Snapshots:
    """The snapshot files of one log, by offset."""

    def __init__(self, files: Files, directory: str, names: Iterable[str] = ()) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(
            int(name.removesuffix(SUFFIX))
            for name in names
            if name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdecimal()
        )

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}{SUFFIX}"

    def take(self, producers: Producers, offset: int) -> None:
        """Write a snapshot of the producers of a log that ends at `offset`."""
        write_snapshot(self._files, self.path(offset), producers)
        if not self.offsets or offset > self.offsets[-1]:
            self.offsets.append(offset)
        elif offset not in self.offsets:
            insort(self.offsets, offset)

    def restore(self, producers: Producers, up_to_offset: int, now_ms: int) -> None:
        """Load the newest good snapshot at or below an offset; broken ones are removed, none means offset 0."""
        while at_or_below := [offset for offset in self.offsets if offset <= up_to_offset]:
            offset = at_or_below[-1]
            try:
                producers.load(parse_snapshot(self._files.read(self.path(offset)), now_ms))
            except CorruptSnapshotError as error:
                log.warning("%s is broken (%s), an older one will do", self.path(offset), error)
                self.remove([offset])
                continue
            producers.map_end_offset = offset
            return
        producers.load([])
        producers.map_end_offset = 0

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in list(offsets):
            self._files.remove(self.path(offset))
            self.offsets.remove(offset)

    def remove_above(self, offset: int) -> None:
        self.remove([each for each in self.offsets if each > offset])

    def remove_below(self, offset: int) -> None:
        self.remove([each for each in self.offsets if each < offset])

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Remove all snapshots but the newest and those at the start of a segment."""
        kept = {*base_offsets, *self.offsets[-1:]}
        self.remove([each for each in self.offsets if each not in kept])

    def sync(self, offset: int) -> None:
        """Make one snapshot durable. For a thread."""
        with contextlib.suppress(FileNotFoundError):
            file = self._files.open(self.path(offset))
            with syncing():
                file.sync()
