"""One schedule of faults against three brokers under load, from its seed to what was wrong.

    python -m tests.faults.schedule --minutes 30            one schedule after another, each with a new seed
    python -m tests.faults.schedule --seed 7 --seconds 60   this one again
    ... --zookeeper                                         over a real ensemble
The same seed makes the same trouble at about the same time; what the brokers make of it differs from run to run.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.core.ids import TopicPartition
from moldau.testing import invariants
from moldau.testing.invariants import Kept, Sent, Wait
from moldau.testing.processes import ClusterOfProcesses
from moldau.testing.proxy import Links
from tests.faults.careful import CarefulSender
from tests.faults.trouble import STORE, Trouble, Troublemaker
from tests.faults.watching import StateWatcher, watcher_of
from tests.faults.workload import BusySender, Member, Reader, Sender
from tests.zookeeper_ensemble import Ensemble, running_ensemble

BROKERS = 3
SOLID, MOVING = "solid", "moving"
CAREFUL = "anna"
"""Name of the producer that sends by hand, and never in a new epoch a record that may be there already."""
PARTITIONS = {SOLID: 4, MOVING: 2}
SESSION_TIMEOUT_MS = 2_500
LIVENESS_BOUND_S = 20.0
RECOVERY_S = 60.0
QUIET_S_MAX = 2.0
OVERLAP = 0.25
GROUP = "group"
LOOK_S = 0.05
PROPERTIES = {
    "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "1000000",  # so that segments end and begin under the faults too
    "leader.imbalance.check.interval.seconds": "5",
    "auto.create.topics.enable": "false",
}
# A session that is lost is an error to whoever runs the broker, and here it is what was asked for.
EXPECTED_ERRORS = ("session with the metadata store is lost",)


class Schedule:
    """A cluster, its clients, and the faults they meet."""

    def __init__(self, seed: int, directory: Path, ensemble: Ensemble | None) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self._links = Links()
        zookeeper = through_links(ensemble, self._links) if ensemble is not None else None
        self._cluster = ClusterOfProcesses(directory, BROKERS, PROPERTIES, zookeeper=zookeeper, links=self._links)
        direct = None if zookeeper is None or ensemble is None else ensemble.connect + chroot_of(zookeeper[1])
        self._watcher: StateWatcher = watcher_of(self._cluster.store_path, direct, 10_000)
        self._has_ensemble = ensemble is not None
        self._waits: list[Wait] = []
        self._partitions = [
            TopicPartition(topic, index) for topic, count in PARTITIONS.items() for index in range(count)
        ]

    def run(self, seconds: float) -> list[str]:
        """Run the schedule; returns the violations."""
        with ExitStack() as stack:
            stack.callback(self._links.close)
            stack.enter_context(self._cluster)
            self._cluster.start()
            self._create_topics()
            self._watcher.start()
            stack.callback(self._watcher.stop)
            self._wait_until(self._is_whole, "the first ISRs")
            clients = self._clients()
            for client in clients:
                client.start()
            try:
                self._make_trouble(seconds, [client for client in clients if isinstance(client, Sender)])
                complaints = self._settle(clients)
            finally:
                for client in clients:
                    client.stop()
            return [*complaints, *self._stop_and_check(clients)]

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        topics = [
            NewTopic(SOLID, PARTITIONS[SOLID], 3, config={"min.insync.replicas": "2"}),
            NewTopic(MOVING, PARTITIONS[MOVING], 2, config={"min.insync.replicas": "1"}),
        ]
        self._wait_until(
            lambda: all(_known_to(broker.bootstrap) == BROKERS for broker in self._cluster.brokers.values()),
            "that every broker knows the others",
        )
        for made in admin.create_topics(topics, operation_timeout=20).values():
            made.result()

    def _clients(self) -> list[Sender | Reader | Member]:
        bootstrap = self._cluster.bootstrap
        return [
            CarefulSender(CAREFUL, bootstrap, self._partitions, self._chance.randrange(2**32)),
            BusySender("bert", bootstrap, self._partitions, self._chance.randrange(2**32)),
            Reader("reader", bootstrap, self._partitions),
            *(Member(name, bootstrap, GROUP, list(PARTITIONS), self._log_of(name)) for name in ("one", "two")),
        ]

    def _log_of(self, client: str) -> Path:
        return self._cluster.directory / f"member-{client}.log"

    # --- trouble

    def _make_trouble(self, seconds: float, senders: Sequence[Sender]) -> None:
        maker = Troublemaker(
            self._cluster,
            self._links,
            self._chance,
            leader_of=self._some_leader,
            is_whole=self._is_whole,
            wait_until=self._wait_until,
            moving=(MOVING, PARTITIONS[MOVING]),
            has_ensemble=self._has_ensemble,
        )
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            troubles = [maker.next()]
            if not troubles[0].is_alone and self._chance.random() < OVERLAP:
                troubles += [second for second in [maker.next()] if not second.is_alone]
            self._go_through(troubles)
            self._await_life("+".join(trouble.name for trouble in troubles), senders)
            time.sleep(self._chance.uniform(0, QUIET_S_MAX))

    def _go_through(self, troubles: Sequence[Trouble]) -> None:
        for trouble in troubles:
            _say(f"    {trouble.name}, {trouble.hold_s:g} s")
            trouble.begin()
            time.sleep(trouble.hold_s)
        self._links.heal_all()  # first: a broker that is cut off from the store does not start
        for trouble in troubles:
            trouble.mend()

    def _await_life(self, after: str, senders: Sequence[Sender]) -> None:
        """Wait until every partition has answered every producer for a record that it sends from now on."""
        begun = time.monotonic()
        while any(sender.acknowledged_since(begun) != set(self._partitions) for sender in senders):
            if time.monotonic() > begun + RECOVERY_S:
                dead = {name for sender in senders for name in set(self._partitions) - sender.acknowledged_since(begun)}
                self._waits.append(Wait(f"a write to {sorted(map(str, dead))} after {after}", None))
                _say(f"    NOT ALIVE: {sorted(map(str, dead))}: {[self._watcher.now().get(name) for name in dead]}")
                return
            time.sleep(LOOK_S)
        taken = time.monotonic() - begun
        self._waits.append(Wait(f"a write after {after}", taken))
        _say(f"      alive after {taken:.2f} s")

    def _some_leader(self) -> int:
        """The leader of any partition of ours that has one."""
        states = self._watcher.now()
        leaders = [states[name].leader for name in self._partitions if name in states and states[name].leader >= 0]
        return self._chance.choice(leaders or [1])

    def _is_whole(self) -> bool:
        states = self._watcher.now()
        return all(
            name in states and states[name].leader >= 0 and len(states[name].isr) == (3 if name.topic == SOLID else 2)
            for name in self._partitions
        )

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        begun = time.monotonic()
        while not condition():
            if time.monotonic() > begun + RECOVERY_S:
                self._waits.append(Wait(what, None))
                return
            time.sleep(LOOK_S)

    # --- the end

    def _settle(self, clients: Sequence[Sender | Reader | Member]) -> list[str]:
        """Let producers finish, every ISR be whole, and readers read everything; returns the violations."""
        for number in self._cluster.brokers:
            if not self._cluster[number].is_running:
                self._cluster[number].start()
        for client in clients:
            if isinstance(client, Sender):
                client.stop()
        self._wait_until(self._is_whole, f"whole ISRs in the end: {self._watcher.now()}")
        sent = _sent(clients)
        reader = next(client for client in clients if isinstance(client, Reader))
        members = [client for client in clients if isinstance(client, Member)]
        self._wait_until(lambda: not invariants.unread(sent, list(reader.seen)), "reading everything")
        self._wait_until(lambda: not invariants.unread(sent, _seen(members)), "the group's reading everything")
        if invariants.unread(sent, _seen(members)):
            _say(f"  the group now: {_described(bootstrap=self._cluster.bootstrap)}")
        return [complaint for client in clients for complaint in client.complaints]

    def _stop_and_check(self, clients: Sequence[Sender | Reader | Member]) -> list[str]:
        exits = self._cluster.stop()
        wrong = [f"broker {number} ended with {code}" for number, code in exits.items() if code != 0]
        sent, reader = _sent(clients), next(client for client in clients if isinstance(client, Reader))
        members = [client for client in clients if isinstance(client, Member)]
        _say(f"  {len(sent)} records sent, {len(reader.seen)} read, {len(self._watcher.seen)} states seen")
        wrong += invariants.slow(self._waits, LIVENESS_BOUND_S)
        wrong += invariants.several_leaders(self._watcher.seen)
        wrong += invariants.impossible_states(self._watcher.seen)
        wrong += invariants.read_out_of_order(reader.seen)
        wrong += invariants.unread(sent, reader.seen)
        wrong += invariants.unread(sent, _seen(members))
        for partition in self._partitions:
            wrong += self._check_partition(partition, sent, [*reader.seen, *_seen(members)])
        return [*wrong, *self._errors_in_logs()]

    def _check_partition(self, partition: TopicPartition, sent: Sequence[Sent], seen: Sequence[Kept]) -> list[str]:
        data = {number: broker.data for number, broker in self._cluster.brokers.items()}
        copies = {
            number: invariants.read_log(path / str(partition))
            for number, path in data.items()
            if (path / str(partition)).is_dir()
        }
        marks = [invariants.read_high_watermarks(data[number]).get(partition, 0) for number in copies]
        own_sent = [record for record in sent if record.partition == partition]
        own_seen = [record for record in seen if record.partition == partition]
        wrong = invariants.different_replicas(partition, copies, min(marks))
        if len(copies) != (3 if partition.topic == SOLID else 2):
            wrong.append(f"{partition} is on brokers {sorted(copies)}")
        for number, batches in copies.items():
            log = list(invariants.records_of(partition, batches))
            violations = [
                *invariants.lost(own_sent, log),
                *invariants.duplicated(log),
                *invariants.sent_again(record for record in log if record.producer == CAREFUL),
                *invariants.reordered(log),
                *invariants.vanished(own_seen, log),
            ]
            wrong += [f"broker {number}: {violation}" for violation in violations]
            for line in invariants.sent_again(record for record in log if record.producer != CAREFUL):
                _say(f"  broker {number}: {line}, which is librdkafka's doing")
        return wrong

    def _errors_in_logs(self) -> list[str]:
        """Errors in the brokers' logs: no fault here is a reason for an exception, or for an error that was not asked
        for."""
        return [
            f"broker {number} logged: {line}"
            for number, broker in self._cluster.brokers.items()
            for line in broker.log.splitlines()
            if (" ERROR " in line or " CRITICAL " in line or line.startswith("Traceback"))
            and not any(expected in line for expected in EXPECTED_ERRORS)
        ][:10]


def _known_to(bootstrap: str) -> int:
    """The number of brokers that this one knows. With a client of its own: one that knows others may ask those."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return len(admin.list_topics(timeout=RECOVERY_S).brokers)


def _described(bootstrap: str) -> str:
    [asked] = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).describe_consumer_groups([GROUP]).values()
    try:
        group = asked.result(RECOVERY_S)
    except KafkaException as error:
        return str(error)
    members = [(each.client_id, each.member_id, str(each.assignment)) for each in group.members]
    return f"{group.state}, coordinated by {group.coordinator.id}, {members}"


def _sent(clients: Sequence[object]) -> list[Sent]:
    return [record for client in clients if isinstance(client, Sender) for record in list(client.sent)]


def _seen(members: Sequence[Member]) -> list[Kept]:
    return [record for member in members for record in list(member.seen)]


def through_links(ensemble: Ensemble, links: Links) -> dict[int, str]:
    """`zookeeper.connect` of each broker, over proxies of its own."""
    chroot = f"/faults-{uuid4().hex[:8]}"
    links.point(STORE, ensemble.members[0].port)
    return {number: f"127.0.0.1:{links.open(STORE, source=str(number))}{chroot}" for number in range(1, BROKERS + 1)}


def chroot_of(connect: str) -> str:
    """Path of our nodes in the ensemble."""
    return connect[connect.index("/") :]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_schedule(seed: int, seconds: float, ensemble: Ensemble | None = None, keep: Path | None = None) -> list[str]:
    """Print the seed and run; returns the violations. The files of a run that went wrong are kept in `keep`."""
    again = f"--seed {seed} --seconds {seconds:g}{' --zookeeper' if ensemble is not None else ''}"
    _say(f"seed {seed}: python -m tests.faults.schedule {again}")
    directory = Path(tempfile.mkdtemp(prefix=f"moldau-faults-{seed}-"))
    wrong = ["it did not come to its end"]
    try:
        wrong = Schedule(seed, directory, ensemble).run(seconds)
        return wrong
    finally:
        if wrong and keep is not None:
            shutil.copytree(directory, keep / str(seed), ignore=shutil.ignore_patterns("*.socket"), dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.schedule", description=__doc__)
    parser.add_argument("--seed", type=int, help="this schedule only")
    parser.add_argument("--seconds", type=float, default=60.0, help="of trouble in one schedule")
    parser.add_argument("--minutes", type=float, default=30.0, help="of trouble in all")
    parser.add_argument("--zookeeper", action="store_true")
    parser.add_argument("--keep", type=Path, help="where to leave the files of runs that went wrong")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leave no brokers behind
    count = 1 if options.seed is not None else max(1, round(options.minutes * 60 / options.seconds))
    failed = 0
    with running_ensemble() if options.zookeeper else nullcontext() as ensemble:
        for _ in range(count):
            seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
            wrong = run_schedule(seed, options.seconds, ensemble, options.keep)
            failed += bool(wrong)
            _say("\n".join([f"  WRONG: {line}" for line in wrong]) or "  nothing wrong")
    _say(f"{count} schedules, {failed} of them went wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
