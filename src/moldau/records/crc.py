"""CRC-32C, in hardware.

`import crc32c` costs about 40 ms, nearly all of it for the version and the command line of that package: a fifth of
what a broker may take to start. So its extension module is loaded by itself, and the package only if that fails.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol

from moldau.core.files import Buffer


class Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0) -> int:
        """The checksum of `data`, going on from `value`."""
        ...


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    found = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not found or found.loader is None:
        from crc32c import crc32c as slowly_imported

        return slowly_imported
    module = module_from_spec(found)
    found.loader.exec_module(module)
    checksum: Checksum = module.crc32c
    return checksum


crc32c = _load()
