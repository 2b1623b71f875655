"""The certificates that this machine trusts, as a file that Java reads.

A Java that comes in a wheel knows only the authorities it was built with. Where a network has an authority of its own,
as many companies' networks have, Python and curl know it and that Java does not.
"""

import hashlib
import os
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # Java's own default: it guards nothing, the digest only tells a damaged file


def write_trust_store(path: Path) -> Path | None:
    """A key store in Java's old format (JKS) with all of them; None if the machine has no list of authorities."""
    bundle = _bundle()
    if bundle is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(bundle)
    path.write_bytes(_key_store(context.get_ca_certs(binary_form=True)))
    return path


def _bundle() -> Path | None:
    known = ssl.get_default_verify_paths()
    named = (os.environ.get("SSL_CERT_FILE"), known.cafile, known.openssl_cafile)
    kept_by_debian = Path(known.openssl_capath) / "ca-certificates.crt"
    return next((path for path in (*map(Path, filter(None, named)), kept_by_debian) if path.is_file()), None)


def _key_store(certificates: Sequence[bytes]) -> bytes:
    """A key store in the layout of sun.security.provider.JavaKeyStore, version 2."""
    content = struct.pack(">III", _MAGIC, _VERSION, len(certificates)) + b"".join(
        struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(str(number)) + bytes(8) + _text("X.509") + _sized(certificate)
        for number, certificate in enumerate(certificates)
    )
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()
    return content + digest


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def _sized(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value
