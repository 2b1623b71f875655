"""Members of consumer groups, whatever their client: processes that tell what they are given, read and commit.

Each is started by `Members.join` and watched through `Member`; nothing here sleeps: `wait_until` is woken by every
event that any member tells.
"""

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.clients.java_client import NEWEST, OLDEST, QUICK, SHARED, TOOLS

WAIT_S = 30.0
SESSION_TIMEOUT_MS = 3_000
"""Short, for those that die; a process on a busy machine may still be silent for a second."""
HEARTBEAT_INTERVAL_MS = 300
METADATA_AGE_MS = 400
RETRY_MS = 50

BROKER = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
"""A broker that lets members die quickly."""

_JVM = ("java", "-Xmx256m")
_COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


class Joining(NamedTuple):
    """What a member is started with."""

    bootstrap: str
    group: str
    topic: str
    instance: str | None
    session_timeout_ms: int
    """In the classic protocol; in the other one the broker decides."""
    directory: Path
    classpaths: Mapping[str, str]


class Command(NamedTuple):
    """A process and what it is told on stdin."""

    words: list[str]
    stdin: str = ""


def _java_properties(settings: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def _java_settings() -> dict[str, object]:
    return {
        "metadata.max.age.ms": METADATA_AGE_MS,
        "fetch.max.wait.ms": 100,
        "reconnect.backoff.ms": RETRY_MS,
        "retry.backoff.ms": RETRY_MS,
    }


def _verifiable(joining: Joining, *arguments: str, **more: object) -> Command:
    """Kafka's own VerifiableConsumer."""
    settings = joining.directory / f"{joining.group}.properties"
    extra = {name.replace("_", "."): value for name, value in more.items()}
    settings.write_text("\n".join(_java_properties({**_java_settings(), **extra})))
    where = ("--bootstrap-server", joining.bootstrap, "--topic", joining.topic, "--group-id", joining.group)
    static = () if joining.instance is None else ("--group-instance-id", joining.instance)
    command = ("org.apache.kafka.tools.VerifiableConsumer", *where, "--command-config", str(settings), *static)
    return Command([*_JVM, *SHARED, "-cp", joining.classpaths[NEWEST], *command, *arguments])


def _java_classic(joining: Joining) -> Command:
    timeout = ("--session-timeout", str(joining.session_timeout_ms))
    return _verifiable(joining, *timeout, heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS)


def _java_cooperative(joining: Joining) -> Command:
    timeout = ("--session-timeout", str(joining.session_timeout_ms))
    strategy = ("--assignment-strategy", _COOPERATIVE)
    return _verifiable(joining, *timeout, *strategy, heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS)


def _java_consumer(joining: Joining) -> Command:
    return _verifiable(joining, "--group-protocol", "consumer")


def _java_old(joining: Joining) -> Command:
    settings = {
        **_java_settings(),
        "bootstrap.servers": joining.bootstrap,
        "group.id": joining.group,
        "session.timeout.ms": joining.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "auto.offset.reset": "earliest",
    }
    classpath = f"{TOOLS / f'driver-{OLDEST}'}:{joining.classpaths[OLDEST]}"
    stdin = "\t".join(["group", joining.topic, *_java_properties(settings)]) + "\n"
    return Command([*_JVM, *QUICK, "-cp", classpath, "ClientDriver"], stdin)


def _python(client: str, joining: Joining, settings: Mapping[str, object]) -> Command:
    module = ("-m", "tests.clients.group_member")
    return Command([sys.executable, *module, client, joining.topic, json.dumps(settings)])


def _confluent_settings(joining: Joining) -> dict[str, object]:
    static = {} if joining.instance is None else {"group.instance.id": joining.instance}
    return {
        "bootstrap.servers": joining.bootstrap,
        "group.id": joining.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.ms": RETRY_MS,
        "reconnect.backoff.max.ms": 4 * RETRY_MS,
        **static,
    }


def _confluent_classic(joining: Joining, strategy: str = "range") -> Command:
    classic = {
        "session.timeout.ms": joining.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "partition.assignment.strategy": strategy,
    }
    return _python("confluent-kafka", joining, {**_confluent_settings(joining), **classic})


def _confluent_cooperative(joining: Joining) -> Command:
    return _confluent_classic(joining, "cooperative-sticky")


def _confluent_consumer(joining: Joining) -> Command:
    return _python("confluent-kafka", joining, {**_confluent_settings(joining), "group.protocol": "consumer"})


def _python_settings(joining: Joining) -> dict[str, object]:
    """Names that kafka-python and aiokafka share."""
    static = {} if joining.instance is None else {"group_instance_id": joining.instance}
    return {
        "bootstrap_servers": joining.bootstrap,
        "group_id": joining.group,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": joining.session_timeout_ms,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "metadata_max_age_ms": METADATA_AGE_MS,
        "fetch_max_wait_ms": 100,
        "retry_backoff_ms": RETRY_MS,
        **static,
    }


def _aiokafka(joining: Joining) -> Command:
    return _python("aiokafka", joining, _python_settings(joining))


def _kafka_python(joining: Joining) -> Command:
    reconnect = {"reconnect_backoff_ms": RETRY_MS, "reconnect_backoff_max_ms": 4 * RETRY_MS}
    return _python("kafka-python", joining, {**_python_settings(joining), **reconnect})


KINDS: dict[str, Callable[[Joining], Command]] = {
    "java-4.3.1 classic": _java_classic,
    "java-4.3.1 cooperative": _java_cooperative,
    "java-4.3.1 consumer": _java_consumer,
    "java-0.10.2.0": _java_old,
    "confluent-kafka classic": _confluent_classic,
    "confluent-kafka cooperative": _confluent_cooperative,
    "confluent-kafka consumer": _confluent_consumer,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
}
"""Every client, with every protocol it speaks."""


class Member:
    """A running member, and what it told so far."""

    def __init__(self, kind: str, command: Command, log: Path, changed: threading.Condition) -> None:
        self.kind = kind
        self.owned: set[int] = set()
        self.read: dict[int, list[int]] = defaultdict(list)
        """Offsets by partition, in the order in which they came."""
        self.committed: dict[int, int] = {}
        self.events: list[dict[str, Any]] = []
        self._log = log
        self._changed = changed
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        if command.stdin and self._process.stdin is not None:
            self._process.stdin.write(command.stdin)
            self._process.stdin.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def rebalances(self) -> int:
        """How often it was given partitions."""
        return sum(event["name"] == "partitions_assigned" for event in self.events)

    @property
    def refused_commits(self) -> int:
        return sum(event["name"] == "offsets_committed" and not event["success"] for event in self.events)

    def leave(self) -> None:
        """SIGTERM: it leaves the group and ends."""
        self._process.send_signal(signal.SIGTERM)
        self._end()
        names = [event["name"] for event in self.events]
        assert "shutdown_complete" in names, f"{self} did not leave: {self.said()}"

    def kill(self) -> None:
        """kill -9: the group is told nothing."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(WAIT_S)
        self._listener.join(WAIT_S)
        with self._changed:
            self.owned = set()

    def end(self) -> None:
        """At the end of a test, whatever happened."""
        if self._process.poll() is None:
            self.kill()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            if line.startswith("{"):
                with self._changed:
                    self._note(json.loads(line))
                    self._changed.notify_all()

    def _note(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        partitions = event.get("partitions", ())
        numbers = {each["partition"] for each in partitions}
        if event["name"] == "partitions_assigned":
            self.owned |= numbers
        elif event["name"] == "partitions_revoked":
            self.owned -= numbers
        elif event["name"] == "records_consumed":
            for each in partitions:
                self.read[each["partition"]] += range(each["minOffset"], each["maxOffset"] + 1)
        elif event["name"] == "offsets_committed" and event["success"]:
            self.committed |= {each["partition"]: each["offset"] for each in event["offsets"]}

    def said(self) -> str:
        """For messages of failed tests."""
        return f"{self.events[-12:]}\n{self._log.read_text()[-1500:]}"

    def __str__(self) -> str:
        return f"{self.kind} owns {sorted(self.owned)}, committed {self.committed}"


def are_committed(offsets: Mapping[int, int], *owners: Member) -> bool:
    """Whether these are the highest offsets that the owners have committed."""
    highest: dict[int, int] = {}
    for owner in owners:
        for partition, offset in owner.committed.items():
            highest[partition] = max(offset, highest.get(partition, -1))
    return highest == dict(offsets)


class Members:
    """The members of one test."""

    def __init__(self, classpaths: Mapping[str, str], directory: Path) -> None:
        self._classpaths = classpaths
        self._directory = directory
        self._changed = threading.Condition()
        self._members: list[Member] = []

    def join(
        self,
        kind: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> Member:
        """Start a member of the kind (see `KINDS`)."""
        joining = Joining(bootstrap, group, topic, instance, session_timeout_ms, self._directory, self._classpaths)
        log = self._directory / f"member-{len(self._members)}.log"
        member = Member(kind, KINDS[kind](joining), log, self._changed)
        self._members.append(member)
        return member

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again whenever a member tells something."""
        with self._changed:
            if not self._changed.wait_for(condition, WAIT_S):
                told = "\n".join(f"{member}\n{member.said()}" for member in self._members)
                raise AssertionError(f"not in {WAIT_S:.0f} s: {what}\n{told}")

    def wait_until_shared(self, partitions: Iterable[int], *owners: Member) -> None:
        """Each of the partitions has one owner, and each owner has some."""
        wanted = sorted(partitions)

        def is_shared() -> bool:
            owned = sorted(number for owner in owners for number in owner.owned)
            return owned == wanted and all(owner.owned for owner in owners)

        self.wait_until(is_shared, f"{len(owners)} owners share {wanted}")

    def wait_until_committed(self, offsets: Mapping[int, int], *owners: Member) -> None:
        """Every offset was committed, by whichever owner."""
        self.wait_until(lambda: are_committed(offsets, *owners), f"committed {dict(offsets)}")

    def end(self) -> None:
        """Nobody outlives the test."""
        for member in self._members:
            member.end()
