"""Records of the copy: where they come from, and of which transaction they are.

An input record is `in-3/17 padding`: the 17th of source 3. Its copy is `in-3/17 anna.2.5 1 4 c`: the second of the
four records that the fifth transaction of anna's second process wrote to this partition, and meant to commit.
"""

import random
from typing import NamedTuple

from moldau.core.ids import TopicPartition
from moldau.testing.invariants import label, read_label

INPUT, SHARED, OUTPUT = "in", "shared", "out"
INPUT_PARTITIONS, SHARED_PARTITIONS, OUTPUT_PARTITIONS = 8, 4, 3
SOURCES = range(INPUT_PARTITIONS + SHARED_PARTITIONS)
"""Numbers of all partitions that are copied: of the input, where each belongs to one copier, then of the topic whose
partitions the members of a group share."""
PADDING_BYTES_MAX = 60


class Copy(NamedTuple):
    """A record of the output."""

    source: int
    number: int
    transaction: str
    position: int
    of: int
    is_doomed: bool
    """Whether its copier wrote it to abort it."""

    def encoded(self) -> bytes:
        end = "a" if self.is_doomed else "c"
        return input_label(self.source, self.number) + f" {self.transaction} {self.position} {self.of} {end}".encode()


def read_copy(value: bytes) -> Copy:
    source, number = read_input(value)
    transaction, position, of, end = value.decode().split(" ")[1:]
    return Copy(source, number, transaction, int(position), int(of), end == "a")


def input_label(source: int, number: int) -> bytes:
    return label(f"{INPUT}-{source}", number)


def input_value(source: int, number: int, chance: random.Random) -> bytes:
    return input_label(source, number) + b" " + b"x" * chance.randrange(PADDING_BYTES_MAX)


def read_input(value: bytes) -> tuple[int, int]:
    """Source and number of an input record, or of a copy."""
    name, number = read_label(value)
    return int(name.rpartition("-")[2]), number


def partition_of(source: int) -> TopicPartition:
    return (
        TopicPartition(INPUT, source)
        if source < INPUT_PARTITIONS
        else TopicPartition(SHARED, source - INPUT_PARTITIONS)
    )


def target_of(source: int) -> TopicPartition:
    """Output partition of a source: several copiers write to each."""
    return TopicPartition(OUTPUT, source % OUTPUT_PARTITIONS)
