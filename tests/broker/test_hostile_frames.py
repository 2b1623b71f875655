"""Nothing that one client sends, however made, holds up the others: the worst frames of a megabyte for every API key.

`HOSTILE_FRAMES=all` sends all of every version, and compares the other clients' latencies too: that wants a quiet
machine. Without it, smaller ones of the newest version of each key, and one of the oldest.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby, islice
from pathlib import Path

import pytest

from moldau.protocol import codec
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest
from moldau.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.requests import registry
from tests.broker.hostile_frames import (
    COMPACTED,
    DOOMED,
    FRAME_BYTES_MAX,
    KINDS,
    TOPIC,
    Hostile,
    World,
    frames,
    harmless,
    long_texts,
    served,
    with_records,
)
from tests.broker.raw import RawClient, request_frame
from tests.serving import Serving, serving

METADATA, API_VERSIONS, CREATE_TOPICS = 3, 18, 19
PARTITIONS = 4
EVERYTHING = os.environ.get("HOSTILE_FRAMES") == "all"
ANSWER_S_MAX = 120.0
RESIDENT_MB_MAX = 64
KEPT_MB_MAX = 32
"""After the frames of one key and version: what some of them make is there to stay, such as a group's offsets."""
GIVEN_BACK_S_MAX = 20.0
LATENCY_RATIO_MAX = 2
PEACE_S = 8
STALL = re.compile(r"stood still for \d+ ms, (\d+) ms at work: (.*)")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Serving]:
    chosen = (
        "auto.create.topics.enable=false",
        "client.telemetry.enable=true",
        "log.flush.policy=os",
        "loop.watchdog.interval.ms=10",
    )
    arguments = ["--port", "0", *(part for each in chosen for part in ("--override", each))]
    with serving(tmp_path / "data", *arguments) as broker:
        yield broker


def prepare(victim: Serving) -> World:
    """Make the topics that frames name."""
    compact = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topics = [
        CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1),
        CreatableTopic(name=DOOMED, num_partitions=PARTITIONS, replication_factor=1),
        CreatableTopic(name=COMPACTED, num_partitions=1, replication_factor=1, configs=compact),
    ]
    with RawClient(victim.bootstrap) as client:
        client.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        answer = client.ask(METADATA, 12, asked, MetadataResponse)
    return World(answer.topics[0].topic_id, PARTITIONS, FRAME_BYTES_MAX if EVERYTHING else FRAME_BYTES_MAX // 4)


def send(victim: Serving, hostile: Hostile) -> None:
    """Returns when the broker is through with a frame: it has answered what came behind, or closed the connection."""
    behind = request_frame(API_VERSIONS, 0, codec.encode(ApiVersionsRequest(), 0), correlation_id=99)
    with RawClient(victim.bootstrap) as attacker:
        attacker.socket.settimeout(ANSWER_S_MAX)
        try:
            attacker.send(hostile.data + behind)
            while (answer := attacker.receive()) is not None and answer[:4] != (99).to_bytes(4, "big"):
                pass
        except ConnectionError:
            return


def selection(world: World) -> Iterator[Hostile]:
    for key in registry.modules():
        versions = [version for each, version in served() if each == key]
        for version in versions if EVERYTHING else versions[-1:]:
            yield from frames(key, version, world, KINDS if EVERYTHING else ["distinct"])
            yield from long_texts(key, version, world)
        if not EVERYTHING:
            yield from islice(frames(key, versions[0], world, ["existing"]), 1)
    yield from with_records()


class Bystander:
    """A well-behaved client in a process of its own."""

    def __init__(self, victim: Serving) -> None:
        command = [sys.executable, "-m", "tests.broker.bystander", victim.bootstrap, TOPIC]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def p99_us(self) -> int:
        """End it; the latency that one request in a hundred passed."""
        output, _ = self._process.communicate(timeout=ANSWER_S_MAX)
        latencies = sorted(map(int, output.split()))
        return latencies[len(latencies) * 99 // 100]


def peaceful_p99_us(victim: Serving) -> int:
    """The bystander's latency beside two processes that keep the processors as busy as an attack, and send nothing.

    Where there are few processors, waiting for one is most of what the bystander sees of an attack.
    """
    with ExitStack() as stack:
        for _ in range(2):
            busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(1000))"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        bystander = Bystander(victim)
        with pytest.raises(subprocess.TimeoutExpired):
            bystander._process.wait(PEACE_S)
        return bystander.p99_us()


class Watch:
    """Resident memory of the broker while the frames of one key and version come: how much more, and how much stays."""

    def __init__(self, victim: Serving) -> None:
        self._victim = victim
        self._before_mb = self._most_mb = victim.resident_mb()

    def look(self) -> None:
        self._most_mb = max(self._most_mb, self._victim.resident_mb())

    def problems(self) -> list[str]:
        """What was too much. Free memory goes back to the system a second after the last such request."""
        grown_mb = self._most_mb - self._before_mb
        found = [f"grew by {grown_mb:.0f} MB"] if grown_mb > RESIDENT_MB_MAX else []
        until = time.monotonic() + GIVEN_BACK_S_MAX
        while (kept_mb := self._victim.resident_mb() - self._before_mb) > KEPT_MB_MAX:
            if time.monotonic() > until:
                return [*found, f"kept {kept_mb:.0f} MB"]
            time.sleep(0.05)
        return found


def test_no_frame_holds_the_loop_or_takes_memory_for_good(victim: Serving) -> None:
    world = prepare(victim)
    for key, version in served():
        send(victim, harmless(key, version))  # a handler and its codecs are loaded at their first use
    seen = len(victim.log)
    peaceful_us = peaceful_p99_us(victim) if EVERYTHING else 0
    bystander = Bystander(victim)
    found: list[str] = []
    for (key, version), alike in groupby(selection(world), lambda hostile: (hostile.key, hostile.version)):
        watch = Watch(victim)
        for hostile in alike:
            send(victim, hostile)
            watch.look()
            log = victim.log
            found += [f"{work_ms} ms after {hostile}: {cause}" for work_ms, cause in STALL.findall(log[seen:])]
            seen = len(log)
        found += [f"key {key} v{version}: resident memory {problem}" for problem in watch.problems()]
    attacked_us = bystander.p99_us()
    assert not found, "\n".join(found)
    if EVERYTHING:
        assert attacked_us <= LATENCY_RATIO_MAX * peaceful_us
