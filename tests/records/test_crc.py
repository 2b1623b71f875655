import subprocess
import sys

import crc32c as package

from moldau.records.crc import crc32c


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert crc32c(memoryview(b"456789"), crc32c(b"123")) == 0xE3069283


def test_the_package_may_be_imported_besides() -> None:
    assert package.crc32c(b"moldau") == crc32c(b"moldau")


def test_the_package_itself_is_not_imported() -> None:
    script = "import sys, moldau.records.validate; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
