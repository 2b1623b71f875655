"""An object store on loopback that speaks as much of S3 as delta-rs and pyiceberg ask for, with no passwords."""

import hashlib
import io
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape


class Store(ThreadingHTTPServer):
    """Objects by their keys, `bucket/path`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()

    def keys(self, prefix: str) -> list[str]:
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix))


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store that runs in a process of its own: delta-rs keeps Python's lock while it waits for an answer."""

    address: str

    def keys(self, bucket: str, prefix: str) -> list[str]:
        with urlopen(f"{self.address}/{bucket}?list-type=2&prefix={prefix}") as answer:
            return re.findall(r"<Key>(.*?)</Key>", answer.read().decode())


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    command = [sys.executable, "-m", "tests.pipelines.object_store"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield ObjectStore(process.stdout.readline().strip())
        finally:
            process.terminate()


def _without_chunks(sent: io.BufferedIOBase) -> bytes:
    """The content of chunks, each of which has its length before it; after the last one there may be more headers."""
    content = b""
    while size := int(sent.readline().partition(b";")[0], 16):
        content += sent.read(size)
        sent.readline()
    while sent.readline().strip():
        pass
    return content


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    @property
    def _query(self) -> dict[str, str]:
        return {name: found[-1] for name, found in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _body(self) -> bytes:
        """What was sent; a client may send it in chunks of HTTP's, and within these in chunks of S3's own."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            sent = _without_chunks(self.rfile)
        else:
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        return _without_chunks(io.BytesIO(sent)) if "x-amz-decoded-content-length" in self.headers else sent

    # --- reading

    def do_GET(self) -> None:
        query = self._query
        if "list-type" in query:
            self._list(query)
            return
        content = self.server.objects.get(self._key)
        if content is None:
            self._refuse(404, "NoSuchKey")
            return
        told = {"ETag": _etag(content), "Last_Modified": "Mon, 16 Nov 2026 08:00:00 GMT", "Accept_Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if self.command == "HEAD":
            self._answer(200, b"", Content_Length=str(len(content)), **told)
        elif asked is None:
            self._answer(200, content, **told)
        else:
            begin, end = asked[1], asked[2]
            first = int(begin) if begin else len(content) - int(end)
            last = min(int(end), len(content) - 1) if begin and end else len(content) - 1
            told["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
            self._answer(206, content[first : last + 1], **told)

    do_HEAD = do_GET

    def _list(self, query: dict[str, str]) -> None:
        bucket, prefix, delimiter = self._key, query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("start-after", "")
        rows: list[str] = []
        for whole in self.server.keys(f"{bucket}/{prefix}"):
            key = whole.removeprefix(f"{bucket}/")
            below = key.removeprefix(prefix)
            if delimiter and delimiter in below:
                common = escape(prefix + below.partition(delimiter)[0] + delimiter)
                row = f"<CommonPrefixes><Prefix>{common}</Prefix></CommonPrefixes>"
            elif key <= after:
                continue
            else:
                content = self.server.objects[whole]
                row = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size><ETag>{escape(_etag(content))}</ETag>"
                    "<LastModified>2026-11-16T08:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
                )
            if row not in rows:
                rows.append(row)
        head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(rows)}</KeyCount>"
        head += "<MaxKeys>1000000</MaxKeys><IsTruncated>false</IsTruncated>"
        self._answer(200, f"<ListBucketResult>{head}{''.join(rows)}</ListBucketResult>".encode())

    # --- writing

    def do_PUT(self) -> None:
        content, query = self._body(), self._query
        if "partNumber" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = content
            self._answer(200, ETag=_etag(content))
            return
        with self.server.lock:
            there = self.server.objects.get(self._key)
            wanted = self.headers.get("If-Match")
            refused = self.headers.get("If-None-Match") == "*" and there is not None
            if refused or (wanted is not None and (there is None or _etag(there) != wanted)):
                self._refuse(412, "PreconditionFailed")
                return
            self.server.objects[self._key] = content
        self._answer(200, ETag=_etag(content))

    def do_POST(self) -> None:
        content, query = self._body(), self._query
        if "uploads" in query:
            upload = str(len(self.server.parts))
            self.server.parts[upload] = {}
            bucket, _, key = self._key.partition("/")
            told = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>".encode())
        elif "uploadId" in query:
            parts = self.server.parts.pop(query["uploadId"])
            whole = b"".join(parts[number] for number in sorted(parts))
            with self.server.lock:
                self.server.objects[self._key] = whole
            told = f"<ETag>{escape(_etag(whole))}</ETag>"
            self._answer(200, f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>".encode())
        elif "delete" in query:
            for key in re.findall(rb"<Key>(.*?)</Key>", content):
                self.server.objects.pop(f"{self._key}/{key.decode()}", None)
            self._answer(200, b"<DeleteResult></DeleteResult>")
        else:
            self._refuse(501, "NotImplemented")

    def do_DELETE(self) -> None:
        with self.server.lock:
            self.server.objects.pop(self._key, None)
        self._answer(204)


if __name__ == "__main__":
    store = Store()
    sys.stdout.write(f"http://127.0.0.1:{store.server_port}\n")
    sys.stdout.flush()
    store.serve_forever()
