"""Ballast: a file without meaning that keeps room on the disk of a data directory for the day when the disk is full.

When the disk is full the file is removed. Then there is room to delete topics (the metadata store is usually on the
same disk), to write checkpoints, and to stop cleanly. Until the file can be made again nothing is appended for
producers, or they would take that room as well. Coordinators may use half of it: their records are small, and without
them no group could change.
"""

import logging

from moldau.core.file_errors import is_full
from moldau.core.files import Files

log = logging.getLogger(__name__)

BALLAST_FILE = ".moldau-ballast"
BALLAST_BYTES_MAX = 16 * 1024 * 1024
SHARE_OF_DISK = 32
"""The part of a small disk that the ballast takes."""


ROOM_BYTES_MIN = 1024 * 1024
"""Free bytes below which a disk counts as full, whatever the size of its ballast."""


class Ballast:
    """The ballast of one data directory, and whether its disk is full."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{BALLAST_FILE}"
        self.bytes_max = BALLAST_BYTES_MAX
        self.is_full = False
        self.is_low = False
        """Whether the disk is so full that coordinators may not append either."""

    def look_first(self) -> None:
        """Make room if there is none: at a start, before anything is written."""
        size, free = self._sizes()
        if free < (size // 8 if self._files.exists(self._path) else 2 * size):
            self.give_up()

    def give_up(self) -> bool:
        """Make room, as the disk is full. False if that is known already."""
        if self.is_full:
            return False
        self.is_full = True
        self._files.remove(self._path)
        log.warning("%s is full: appends are refused until there is room", self._directory)
        return True

    def look(self) -> None:
        """Notice that the disk is full, or has room again."""
        size, free = self._sizes()
        if not self.is_full:
            if free < size // 8:
                self.give_up()
            elif not self._files.exists(self._path):
                self._make(size, free)
        elif self._make(size, free):
            self.is_full = False
            log.info("%s has room again: appends are accepted", self._directory)
        self.is_low = self.is_full and free < size // 2

    def _make(self, size: int, free: int) -> bool:
        """Make the ballast; whether as much room as it takes is left beside it."""
        if free < max(2 * size, ROOM_BYTES_MIN):
            return False
        if not size:
            return True
        try:
            self._files.allocate(self._path, size)
        except OSError as error:
            self._files.remove(self._path)
            return not is_full(error)  # a file system on which nobody can take room in advance
        return True

    def _sizes(self) -> tuple[int, int]:
        """The size that the ballast should have, and the number of free bytes."""
        total, free = self._files.room(self._directory)
        return min(self.bytes_max, total // SHARE_OF_DISK), free
