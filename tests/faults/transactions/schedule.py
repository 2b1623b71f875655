"""Transactional copiers on three brokers that are hurt, from a seed to what was wrong.

    python -m tests.faults.transactions.schedule --minutes 30            one schedule after another, each of a new seed
    python -m tests.faults.transactions.schedule --seed 7 --seconds 60   this one again
    ... --epochs 4                                                       a producer's epochs end after the fourth
    ... --zookeeper                                                      over a real ensemble
    ... --mistake NAME                                                   with brokers that do it wrong: see `mistakes`

Copiers of both transaction versions move records from a topic to another with their offsets in the transactions, while
brokers and copiers are killed, stopped and replaced, links are cut, and requests are repeated and delayed. Readers of
committed records must see each record once, in order, in whole transactions; and at the end nothing hangs.
The same seed makes the same trouble at about the same time; what the brokers make of it differs from run to run.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from moldau.testing import invariants
from moldau.testing.invariants import Batch, Wait
from moldau.testing.ports import HOST
from moldau.testing.processes import ClusterOfProcesses
from moldau.testing.proxy import Links
from tests.faults.schedule import EXPECTED_ERRORS, PROPERTIES, chroot_of, through_links
from tests.faults.transactions.copier import TRANSACTION_TIMEOUT_MS
from tests.faults.transactions.copiers import BY_HAND, RDKAFKA, RDKAFKA_MEMBER, Copier, java_member
from tests.faults.transactions.feeder import Feeder
from tests.faults.transactions.meddler import Meddler
from tests.faults.transactions.mistakes import MISTAKES
from tests.faults.transactions.questions import Questions
from tests.faults.transactions.reading import HandReader, Ledger, RdkafkaReader
from tests.faults.transactions.records import (
    INPUT,
    INPUT_PARTITIONS,
    OUTPUT,
    OUTPUT_PARTITIONS,
    SHARED,
    SHARED_PARTITIONS,
    SOURCES,
)
from tests.faults.trouble import Trouble, Troublemaker
from tests.faults.watching import StateWatcher, watcher_of
from tests.zookeeper_ensemble import Ensemble, running_ensemble

BROKERS = 3
COORDINATED_PARTITIONS = 4
LIVENESS_BOUND_S = 40.0
RECOVERY_S = 90.0
QUIET_S_MAX = 1.0
LOOK_S = 0.05
COPIER_TROUBLE, BOTH = 0.4, 0.3
COPIERS = {"anna": (BY_HAND, 2), "bert": (BY_HAND, 1), "carl": (RDKAFKA, 1), "dora": (BY_HAND, 2)}
"""Names of the copiers, which are their transactional ids and groups, with their transaction versions."""
MEMBERS = {"emil": (RDKAFKA_MEMBER, 1), "fred": (java_member(), 2)}
"""Names of the copiers that share the partitions of a topic as members of one group (KIP-447)."""
GROUP = "members"
TXN_PROPERTIES = {
    **PROPERTIES,
    "transaction.state.log.num.partitions": str(COORDINATED_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.segment.bytes": "300000",
}
REPLICAS = {INPUT: 3, SHARED: 3, OUTPUT: 2}
WRITTEN = {OUTPUT: OUTPUT_PARTITIONS, OFFSETS_TOPIC: int(PROPERTIES["offsets.topic.num.partitions"])}
"""Topics that transactions write to, with the number of their partitions."""


class CopySchedule:
    """A cluster, its copiers, its readers, and the faults they meet."""

    def __init__(
        self, seed: int, directory: Path, program: tuple[str, ...] | None = None, ensemble: Ensemble | None = None
    ) -> None:
        """`program`: what Python runs as a broker, if not Moldau as it is."""
        self._chance = random.Random(seed)
        self._links = Links()
        self._meddler = Meddler(self._chance.randrange(2**32))
        zookeeper = None if ensemble is None else through_links(ensemble, self._links)
        direct = None if zookeeper is None or ensemble is None else ensemble.connect + chroot_of(zookeeper[1])
        self._has_ensemble = ensemble is not None
        self._cluster = ClusterOfProcesses(directory, BROKERS, TXN_PROPERTIES, zookeeper=zookeeper, links=self._links)
        for broker in self._cluster.brokers.values():
            _meddle(broker.properties, self._meddler)
            broker.program = program or broker.program
        self._watcher: StateWatcher = watcher_of(self._cluster.store_path, direct, 10_000)
        self._waits: list[Wait] = []
        self._partitions = [TopicPartition(topic, at) for topic, count in _topics().items() for at in range(count)]
        addresses = [_advertised(broker.properties) for broker in self._cluster.brokers.values()]
        bootstrap = ",".join(addresses)
        self._questions = Questions(addresses)
        self._reader = HandReader(addresses, self._number())
        self._other_reader = RdkafkaReader(bootstrap)
        self._feeder = Feeder(addresses, self._number(), self._reader.ledger.next.__getitem__)
        self._copiers = [
            Copier(name, command, version, share, self._number(), bootstrap, directory)
            for name, (command, version), share in _copiers()
        ]

    def _number(self) -> int:
        return self._chance.randrange(2**32)

    @property
    def _ledgers(self) -> tuple[Ledger, Ledger]:
        return self._reader.ledger, self._other_reader.ledger

    def run(self, seconds: float) -> list[str]:
        """Run the schedule; returns the violations."""
        with ExitStack() as stack:
            stack.callback(self._meddler.close)
            stack.callback(self._links.close)
            stack.enter_context(self._cluster)
            self._cluster.start()
            self._watcher.start()
            stack.callback(self._watcher.stop)
            self._create_topics()
            self._wait_until(self._is_whole, "the first ISRs")
            for client in (self._reader, self._other_reader, self._feeder, *self._copiers):
                stack.callback(client.stop)
                client.start()
            self._await_life("the start", is_bounded=False)
            self._make_trouble(seconds)
            wrong = self._settle()
            for client in (self._reader, self._other_reader, *self._copiers):
                client.stop()
            return [*wrong, *self._stop_and_check()]

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        self._wait_until(lambda: self._questions.knows_brokers(BROKERS), "that every broker knows the others")
        topics = [
            NewTopic(INPUT, INPUT_PARTITIONS, REPLICAS[INPUT], config={"min.insync.replicas": "2"}),
            NewTopic(SHARED, SHARED_PARTITIONS, REPLICAS[SHARED], config={"min.insync.replicas": "2"}),
            NewTopic(OUTPUT, OUTPUT_PARTITIONS, REPLICAS[OUTPUT], config={"min.insync.replicas": "1"}),
        ]
        for made in admin.create_topics(topics, operation_timeout=20).values():
            made.result()

    # --- trouble

    def _make_trouble(self, seconds: float) -> None:
        maker = Troublemaker(
            self._cluster,
            self._links,
            self._chance,
            leader_of=self._some_leader,
            is_whole=self._is_whole,
            wait_until=self._wait_until,
            moving=(OUTPUT, OUTPUT_PARTITIONS),
            has_ensemble=self._has_ensemble,
        )
        self._meddler.is_active = True
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            of_copiers = self._chance.random() < COPIER_TROUBLE
            troubles = [self._copier_trouble() if of_copiers else maker.next()]
            if not troubles[0].is_alone and self._chance.random() < BOTH:
                second = maker.next() if of_copiers else self._copier_trouble()
                troubles += [second] if not second.is_alone else []
            for trouble in troubles:
                _say(f"    {trouble.name}, {trouble.hold_s:g} s")
                trouble.begin()
                time.sleep(trouble.hold_s)
            self._links.heal_all()  # first: a broker that is cut off from the others may not start
            for trouble in troubles:
                trouble.mend()
            self._await_life("+".join(trouble.name for trouble in troubles))
            time.sleep(self._chance.uniform(0, QUIET_S_MAX))
        self._meddler.is_active = False

    def _copier_trouble(self) -> Trouble:
        copier = self._chance.choice(self._copiers)
        kind = self._chance.choice(("kill", "kill", "hang", "replace"))
        if kind == "kill":
            longest_s = self._chance.choice((0.5, 1.5 * TRANSACTION_TIMEOUT_MS / 1000))
            return Trouble(f"kill -9 {copier.name}", copier.kill, self._some_s(longest_s), copier.revive)
        if kind == "hang":
            return Trouble(f"SIGSTOP {copier.name}", copier.hang, self._some_s(8), copier.wake)

        def replace() -> None:
            copier.hang()
            copier.replace()

        return Trouble(f"replace {copier.name}, which hangs", replace, self._some_s(6), copier.wake)

    def _some_s(self, most: float) -> float:
        return round(self._chance.uniform(0.05, most), 2)

    def _await_life(self, after: str, *, is_bounded: bool = True) -> None:
        """Wait until a record of every input partition that was fed from now on has been copied and read."""
        begun = time.monotonic()
        goals = dict(self._feeder.fed)
        read = self._reader.ledger.next
        while dead := [source for source, goal in goals.items() if read[source] <= goal]:
            if time.monotonic() > begun + RECOVERY_S:
                self._waits.append(Wait(f"copies of {dead} after {after}", None))
                _say(f"    NOT ALIVE: {dead}: {self._questions.open_transactions()}")
                return
            time.sleep(LOOK_S)
        taken = time.monotonic() - begun
        if is_bounded:
            self._waits.append(Wait(f"copies after {after}", taken))
        _say(f"      alive after {taken:.2f} s, {self._reader.ledger.read} records read")

    def _some_leader(self) -> int:
        """A broker that coordinates transactions or groups, or leads a partition of ours."""
        states = self._watcher.now()
        topics = self._chance.choice(((TRANSACTIONS_TOPIC,), (OFFSETS_TOPIC,), (INPUT, OUTPUT)))
        leaders = [state.leader for name, state in sorted(states.items()) if name.topic in topics and state.leader >= 0]
        return self._chance.choice(leaders or [1])

    def _is_whole(self) -> bool:
        states = self._watcher.now()
        return all(name in states for name in self._partitions) and all(
            state.leader >= 0 and len(state.isr) == REPLICAS.get(name.topic, BROKERS) for name, state in states.items()
        )

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        begun = time.monotonic()
        while not condition():
            if time.monotonic() > begun + RECOVERY_S:
                self._waits.append(Wait(what, None))
                return
            time.sleep(LOOK_S)

    # --- the end

    def _settle(self) -> list[str]:
        """Leave transactions open and see them end; then let everything be copied and read. Returns the violations."""
        for broker in self._cluster.brokers.values():
            if not broker.is_running:
                broker.start()
        self._wait_until(self._is_whole, "whole ISRs in the end")
        for copier in self._copiers:
            copier.kill()
        self._await_stable("the death of all copiers")
        for copier in self._copiers:
            copier.revive()
        self._feeder.stop()
        goals = dict(self._feeder.fed)
        for ledger in self._ledgers:
            self._wait_until(lambda: ledger.next == goals, f"{ledger.name}: all copies")  # noqa: B023  # called at once
        for copier in self._copiers:
            copier.kill()
        self._await_stable("the last copy")
        wrong = [f"{name}: {offsets} are committed, of {goals}" for name, offsets in self._wrong_offsets(goals).items()]
        for each in (self._reader, self._other_reader, self._feeder, *self._copiers):
            wrong += each.complaints
        for ledger in self._ledgers:
            wrong += [*ledger.complaints, *ledger.torn()]
            if ledger.next != goals:
                wrong.append(f"{ledger.name}: read {ledger.next} of {goals}")
        return wrong

    def _await_stable(self, after: str) -> None:
        """Wait until every last stable offset is the high watermark, and no transaction is open."""
        begun = time.monotonic()
        self._wait_until(
            lambda: not self._questions.unstable(WRITTEN) and not self._questions.open_transactions(),
            f"last stable offsets at the high watermarks after {after}",
        )
        taken = time.monotonic() - begun
        if taken > RECOVERY_S:
            _say(f"    HANGS: {self._questions.unstable(WRITTEN)} {self._questions.open_transactions()}")
        self._waits.append(Wait(f"last stable offsets after {after}", taken))
        _say(f"  stable {taken:.2f} s after {after}")

    def _wrong_offsets(self, goals: Mapping[int, int]) -> dict[str, dict[int, int]]:
        """Committed offsets by copier, where they are not at the end of the input."""
        found = {name: self._questions.committed(name, _share(at)) for at, name in enumerate(COPIERS)}
        found[GROUP] = self._questions.committed(GROUP, SOURCES[INPUT_PARTITIONS:])
        return {
            name: offsets
            for name, offsets in found.items()
            if any(offset != goals[source] for source, offset in offsets.items())
        }

    def _stop_and_check(self) -> list[str]:
        exits = self._cluster.stop()
        wrong = [f"broker {number} ended with {code}" for number, code in exits.items() if code != 0]
        commits = {copier.name: (copier.commits, copier.fences) for copier in self._copiers}
        _say(f"  {self._reader.ledger.read} records read in {self._reader.ledger.transactions} parts of transactions")
        _say(f"  commits and fences: {commits}; meddled: {dict(sorted(self._meddler.done.items()))}")
        wrong += invariants.slow(self._waits, LIVENESS_BOUND_S)
        wrong += invariants.several_leaders(self._watcher.seen)
        wrong += invariants.impossible_states(self._watcher.seen)
        for partition in sorted(self._watcher.now()):
            wrong += self._check_partition(partition)
        return [*wrong, *self._errors_in_logs()]

    def _check_partition(self, partition: TopicPartition) -> list[str]:
        data = {number: broker.data for number, broker in self._cluster.brokers.items()}
        copies = {
            number: invariants.read_log(path / str(partition))
            for number, path in data.items()
            if (path / str(partition)).is_dir()
        }
        marks = [invariants.read_high_watermarks(data[number]).get(partition, 0) for number in copies]
        wrong = invariants.different_replicas(partition, copies, min(marks))
        if partition.topic in REPLICAS and len(copies) != REPLICAS[partition.topic]:
            wrong.append(f"{partition} is on brokers {sorted(copies)}")
        if partition.topic == OUTPUT:
            for number, batches in copies.items():
                wrong += [f"broker {number}: {line}" for line in self._check_output(partition, batches)]
        return wrong

    def _check_output(self, partition: TopicPartition, batches: Sequence[Batch]) -> list[str]:
        """Violations of a log of the output, as its markers tell what was committed."""
        resolved = invariants.resolve(batches)
        ledger = Ledger(str(partition))
        for kept in resolved.committed:
            ledger.take(partition.partition, kept.offset, kept.value)
        expected = {
            source: self._feeder.fed[source] if source % OUTPUT_PARTITIONS == partition.partition else 0
            for source in SOURCES
        }
        wrong = [*ledger.complaints, *ledger.torn()]
        wrong += [f"{partition}: transactions of {sorted(resolved.open)} have no end"] if resolved.open else []
        return wrong if ledger.next == expected else [*wrong, f"{partition} has {ledger.next} of {expected}"]

    def _errors_in_logs(self) -> list[str]:
        return [
            f"broker {number} logged: {line}"
            for number, broker in self._cluster.brokers.items()
            for line in broker.log.splitlines()
            if (" ERROR " in line or " CRITICAL " in line or line.startswith("Traceback"))
            and not any(expected in line for expected in EXPECTED_ERRORS)
        ][:10]


def _topics() -> dict[str, int]:
    return {INPUT: INPUT_PARTITIONS, SHARED: SHARED_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}


def _copiers() -> list[tuple[str, tuple[Sequence[str], int], str]]:
    """Names, commands with versions, and shares of all copiers."""
    owners = [(name, how, ",".join(map(str, _share(at)))) for at, (name, how) in enumerate(COPIERS.items())]
    return [*owners, *((name, how, GROUP) for name, how in MEMBERS.items())]


def _share(at: int) -> list[int]:
    """Input partitions of a copier: neighbours, whose copies go to different output partitions."""
    each = INPUT_PARTITIONS // len(COPIERS)
    return list(range(at * each, (at + 1) * each))


def _meddle(properties: dict[str, str], meddler: Meddler) -> None:
    """Let clients reach the broker of these properties through the meddler."""
    address = properties["listeners"].partition(",")[0]
    port = meddler.open(int(address.rpartition(":")[2]))
    _, _, internal = properties["advertised.listeners"].partition(",")
    properties["advertised.listeners"] = f"PLAINTEXT://{HOST}:{port},{internal}"


def _advertised(properties: Mapping[str, str]) -> str:
    return properties["advertised.listeners"].partition(",")[0].rpartition("/")[2]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_schedule(
    seed: int,
    seconds: float,
    *,
    epochs: int | None = None,
    mistake: str | None = None,
    ensemble: Ensemble | None = None,
    keep: Path | None = None,
) -> list[str]:
    """Print the seed and run; returns the violations. The files of a run that went wrong are kept in `keep`."""
    again, program = f"--seed {seed} --seconds {seconds:g}{'' if ensemble is None else ' --zookeeper'}", None
    if mistake is not None:
        again, program = f"{again} --mistake {mistake}", ("-m", "tests.faults.transactions.mistakes", mistake)
    elif epochs is not None:
        again, program = f"{again} --epochs {epochs}", ("-m", "tests.faults.transactions.short_epochs", str(epochs))
    _say(f"seed {seed}: python -m tests.faults.transactions.schedule {again}")
    directory = Path(tempfile.mkdtemp(prefix=f"moldau-copies-{seed}-"))
    wrong = ["it did not come to its end"]
    try:
        wrong = CopySchedule(seed, directory, program, ensemble).run(seconds)
        return wrong
    finally:
        if wrong and keep is not None:
            shutil.copytree(
                directory, keep / f"copies-{seed}", ignore=shutil.ignore_patterns("*.socket"), dirs_exist_ok=True
            )
        shutil.rmtree(directory, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.transactions.schedule", description=__doc__)
    parser.add_argument("--seed", type=int, help="this schedule only")
    parser.add_argument("--seconds", type=float, default=60.0, help="of trouble in one schedule")
    parser.add_argument("--minutes", type=float, default=30.0, help="of trouble in all")
    parser.add_argument(
        "--epochs", type=int, help="epochs that a producer id has; every third schedule has 4 unless given"
    )
    parser.add_argument("--mistake", choices=MISTAKES, help="made by the brokers, for the schedule to find")
    parser.add_argument("--zookeeper", action="store_true")
    parser.add_argument("--keep", type=Path, help="where to leave the files of runs that went wrong")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leave no brokers behind
    count = 1 if options.seed is not None else max(1, round(options.minutes * 60 / options.seconds))
    failed = 0
    with running_ensemble() if options.zookeeper else nullcontext() as ensemble:
        for at in range(count):
            seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
            epochs = options.epochs if options.epochs is not None or at % 3 != 2 else 4
            wrong = run_schedule(
                seed, options.seconds, epochs=epochs, mistake=options.mistake, ensemble=ensemble, keep=options.keep
            )
            failed += bool(wrong)
            _say("\n".join([f"  WRONG: {line}" for line in wrong]) or "  nothing wrong")
    _say(f"{count} schedules, {failed} of them went wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
