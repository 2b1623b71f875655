"""`make demo`: a broker, visits of a website flowing through it, and what is left on disk. Ends by itself."""

import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOLDAU = str(Path(sys.executable).parent / "moldau")
TOPIC = "page-views"
EVENTS = 40
PAUSE_S = 0.1
WAIT_S = 30

VISITORS = ("ada", "grace", "edsger", "barbara", "donald")
PAGES = ("/", "/docs", "/pricing", "/blog", "/download")


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as directory, _broker(Path(directory)) as bootstrap:
        _run("topics", "create", TOPIC, "--partitions", "3", "--bootstrap-server", bootstrap)
        _stream(bootstrap)
        _run("topics", "describe", TOPIC, "--bootstrap-server", bootstrap)
        _show_files(Path(directory))
    _say("\nThe broker has shut down. Next: `.venv/bin/moldau serve`, and any Kafka client on localhost:9092.")
    return 0


@contextmanager
def _broker(directory: Path) -> Iterator[str]:
    """A broker on a free port; its address."""
    begun = time.monotonic()
    process = _start("serve", "--port", "0", "--data", str(directory), stdout=subprocess.PIPE)
    try:
        ready = process.stdout.readline() if process.stdout else ""
        address = re.search(r"\S+:\d+", ready.replace("PLAINTEXT://", ""))
        if address is None:
            raise SystemExit("the broker did not start: what it said is above")
        _say(f"{ready.strip()}   (after {time.monotonic() - begun:.2f} s)")
        yield address[0].rstrip(",")
    finally:
        process.terminate()
        process.wait(WAIT_S)


def _stream(bootstrap: str) -> None:
    """Events in at one end, and out at the other while they come."""
    show = ("print.timestamp=true", "print.partition=true", "print.offset=true", "print.key=true")
    shown = [word for name in show for word in ("--property", name)]
    reading = ("consume", "--topic", TOPIC, "--from-beginning", "--max-messages", str(EVENTS), "--timeout-ms", "20000")
    consumer = _start(*reading, *shown, "--bootstrap-server", bootstrap)
    sending = ("produce", "--topic", TOPIC, "--property", "parse.key=true")
    producer = _start(*sending, "--bootstrap-server", bootstrap, stdin=subprocess.PIPE)
    for line in _events(random.Random(7)):
        if producer.stdin is not None:
            producer.stdin.write(line)
            producer.stdin.flush()
        time.sleep(PAUSE_S)
    producer.communicate(timeout=WAIT_S)
    if producer.returncode or consumer.wait(WAIT_S):
        raise SystemExit("the stream broke off: the reason is above")


def _events(chance: random.Random) -> Iterator[str]:
    for _ in range(EVENTS):
        yield f'{chance.choice(VISITORS)}\t{{"page": "{chance.choice(PAGES)}", "ms": {chance.randint(5, 300)}}}\n'


def _show_files(directory: Path) -> None:
    _say("\nOn disk, in Kafka's own format:")
    for path in sorted(directory.glob(f"{TOPIC}-*/*.log")):
        _say(f"  {path.stat().st_size:8,} bytes  {path.relative_to(directory)}")


def _run(*arguments: str) -> None:
    if _start(*arguments).wait(WAIT_S):
        raise SystemExit("that failed: the reason is above")


def _start(*arguments: str, stdin: int | None = subprocess.DEVNULL, stdout: int | None = None) -> subprocess.Popen[str]:
    _say(f"\n$ moldau {shlex.join(arguments)}")
    return subprocess.Popen([MOLDAU, *arguments], stdin=stdin, stdout=stdout, text=True, env=os.environ)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
