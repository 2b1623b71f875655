"""Kafka's own Java client, any version, driven through `tests/java/ClientDriver.java`: one JVM, many commands."""

import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from tests.clients.interface import ALL_CODECS, Acks, AtTimestamp, ClientError, Codec, Record, Start

TOOLS = Path(__file__).parents[2] / ".tools"
COMMAND_TIMEOUT_S = 90.0
NEWEST, OLDEST = "4.3.1", "0.10.2.0"
TV1_LAST = "3.9.1"
"""The last version that knows transaction version 1 only (KIP-890)."""
JARS = {NEWEST: TOOLS / f"kafka-{NEWEST}"} | {each: TOOLS / f"kafka-clients-{each}" for each in (OLDEST, TV1_LAST)}
ARCHIVE = TOOLS / f"kafka-{NEWEST}.jsa"
"""Of the classes of JARS[NEWEST], for a JVM whose classpath begins with them: see `tests.tools.class_archive`."""

# Most JVMs here live for seconds: the quick compiler and the simple collector halve what their start costs.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
SHARED = (*QUICK, f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:disable")  # an archive that does not fit is no news


def classpath_of(jars: str, program: str) -> str:
    """The jars of this directory of .tools and the program of ours that is compiled against them, for `java -cp`."""
    driver = TOOLS / f"driver-{NEWEST}"
    if not all(path.exists() for path in (TOOLS / jars / ".fetched", driver / f"{program}.class")):
        raise FileNotFoundError(f"{jars} is not in .tools: run `make tools` once (it needs Java 17 and Maven)")
    return f"{TOOLS / jars}/*:{driver}"


class JavaDriver:
    """A JVM with one version of kafka-clients in it; starts with the first command."""

    def __init__(self, version: str, classpath: str, main_class: str = "ClientDriver") -> None:
        self.version = version
        self._main_class = main_class
        self._options = SHARED if version == NEWEST else QUICK
        self._classpath = f"{classpath}:{TOOLS / f'driver-{version}'}"
        self._process: subprocess.Popen[str] | None = None

    def command(self, *words: object, lines: Sequence[str] = ()) -> list[list[str]]:
        """Send a command with its `lines`; the lines of the answer, split into words."""
        process = self._running()
        if process.stdin is None:
            raise ClientError("the JVM has no stdin")
        # Some calls of the old consumer know no time limit.
        watchdog = threading.Timer(COMMAND_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            process.stdin.write("".join(f"{line}\n" for line in ("\t".join(map(str, words)), *lines)))
            process.stdin.flush()
            return self._answer(process)
        finally:
            watchdog.cancel()

    def _answer(self, process: subprocess.Popen[str]) -> list[list[str]]:
        answer: list[list[str]] = []
        for line in process.stdout or ():
            words = line.rstrip("\n").split("\t")
            if words == ["ok"]:
                return answer
            if words[0] == "error":
                raise ClientError(": ".join(words[1:]))
            answer.append(words)
        self._process = None
        raise ClientError(f"kafka-clients {self.version} gave no answer; its JVM ended with {process.wait()}")

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = ["java", "-Xmx256m", *self._options, "-cp", self._classpath, self._main_class]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        return self._process

    def close_producers(self) -> None:
        """Close the producers; the JVM goes on for the next client."""
        if self._process is not None:
            self.command("close")

    def close(self) -> None:
        """End the JVM; it closes its producers first."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


class JavaClient:
    """The Java producer and consumer against the cluster at `bootstrap`."""

    def __init__(self, driver: JavaDriver, bootstrap: str) -> None:
        self.name = f"java-{driver.version}"
        old = driver.version == OLDEST
        self.codecs: tuple[Codec, ...] = ALL_CODECS[:4] if old else ALL_CODECS  # zstd is of 2.1 (KIP-110)
        self.has_idempotence = self.has_headers = not old  # both of 0.11 (KIP-98, KIP-82)
        self._driver = driver
        self._bootstrap = f"bootstrap.servers={bootstrap}"

    def produce(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        properties: Sequence[str] = (),
    ) -> list[int]:
        """As the interface says; without a partition the client's partitioner chooses. `properties`: name=value."""
        settings = [f"compression.type={codec}", f"acks={acks}", *self._idempotence(idempotent), *properties]
        lines = [_to_line(record) for record in records]
        command = (
            "produce",
            topic,
            "-" if partition is None else partition,
            len(lines),
            self._bootstrap,
            *settings,
        )
        return [int(offset) for offset, _ in self._driver.command(*command, lines=lines)]

    def _idempotence(self, wanted: bool) -> list[str]:
        if wanted and not self.has_idempotence:
            raise ClientError(f"{self.name} has no idempotent producer")
        return [f"enable.idempotence={str(wanted).lower()}"] if self.has_idempotence else []

    def read(
        self,
        topic: str,
        partition: int,
        start: Start,
        count: int,
        *,
        timeout_s: float = 20.0,
        properties: Sequence[str] = (),
    ) -> list[Record]:
        position = f"@{start.timestamp_ms}" if isinstance(start, AtTimestamp) else start
        command = ("read", topic, partition, position, count, int(timeout_s * 1000), self._bootstrap)
        # Closing the consumer waits for the fetch that is under way: keep its long poll short.
        settings = ("auto.offset.reset=none", "fetch.max.wait.ms=50", *properties)
        return [_from_line(words) for words in self._driver.command(*command, *settings)]

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The partition's first offset and the one after its last."""
        [[beginning, end]] = self._driver.command("offsets", topic, partition, self._bootstrap)
        return int(beginning), int(end)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record not older than `timestamp_ms`."""
        [[offset, found_ms]] = self._driver.command("offset-at", topic, partition, timestamp_ms, self._bootstrap)
        return None if offset == "-" else (int(offset), int(found_ms))

    def close(self) -> None:
        self._driver.close_producers()


def _to_line(record: Record) -> str:
    timestamp = "-" if record.timestamp_ms is None else str(record.timestamp_ms)
    headers = (f"{name}:{_encode(value)}" for name, value in record.headers)
    return "\t".join((_encode(record.key), _encode(record.value), timestamp, *headers))


def _from_line(words: list[str]) -> Record:
    offset, timestamp, key, value, *headers = words
    pairs = (header.rsplit(":", 1) for header in headers)
    return Record(
        value=_decode(value),
        key=_decode(key),
        timestamp_ms=int(timestamp),
        headers=tuple((name, _decode(data)) for name, data in pairs),
        offset=int(offset),
    )


def _encode(data: bytes | None) -> str:
    return "-" if data is None else b64encode(data).decode()


def _decode(word: str) -> bytes | None:
    return None if word == "-" else b64decode(word)
