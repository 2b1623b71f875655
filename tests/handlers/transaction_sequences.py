"""Sequences of transactional requests, sane and insane: each is a function that tells by the step what a broker said.

In `SEQUENCES` they are in the order in which they are written down. Producers have ids that nobody else uses; the
topic `T` is shared, as a partition keeps its producers apart.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnTopic
from tests.handlers.raw_transactions import Connection, Producer, code_of

T, MISSING, OFFSETS, TRANSACTIONS = "t", "nowhere", "__consumer_offsets", "__transaction_state"
PARTITIONS = 4
HUGE, FOREIGN = (1 << 63) - 1, 987_654_321
LONG_MAX, INT_MAX = HUGE, (1 << 31) - 1
TIMEOUT_MAX_MS = 900_000

INIT, ADD, ADD_BY_BROKERS, ADD_OFFSETS, END, COMMIT = range(6), range(4), (4, 5), range(5), range(6), range(6)
PRODUCE = (9, 10, 11, 12)
"""Versions. Produce verifies partitions in errors that old clients know up to 10, and adds them from 12 on."""

Told = dict[str, str]
Step = Callable[[Producer, int], str]


SEQUENCES: list[Callable[[Connection], Told]] = []


def sequence(function: Callable[[Connection], Told]) -> Callable[[Connection], Told]:
    SEQUENCES.append(function)
    return function


def _producer(connection: Connection, *, is_begun: bool = True) -> Producer:
    producer = Producer(connection, f"id-{uuid.uuid4().hex[:8]}")
    if is_begun:
        producer.begin()
    return producer


# InitProducerId


@sequence
def timeouts(connection: Connection) -> Told:
    return {
        f"version {version}, {timeout_ms} ms": _producer(connection).init(version, timeout_ms=timeout_ms)
        for version in INIT
        for timeout_ms in (0, -1, -INT_MAX - 1, 1, TIMEOUT_MAX_MS, TIMEOUT_MAX_MS + 1, INT_MAX)
    }


@sequence
def odd_ids(connection: Connection) -> Told:
    some = uuid.uuid4().hex
    names = {"empty": "", "long": some * 1000, "nul": f"a\0{some}", "wide": f"🦆{some}", "blank": f" {some}"}
    told = {}
    for label, name in names.items():
        if name:
            Producer(connection, name).begin()
        for version in INIT:
            told[f"{label}, version {version}"] = Producer(connection, name).init(version)
    told["described"] = connection.described("", "never seen", *list(names.values())[1:], "")
    return told


@sequence
def without_an_id(connection: Connection) -> Told:
    told = {}
    for version in INIT:
        for timeout_ms in (60_000, 0, -1, INT_MAX):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
            told[f"version {version}, {timeout_ms} ms"] = code_of(connection.ask(request, version))
    for version in (3, 4, 5):
        for who in ((5, 3), (5, -1), (-1, 5), (-2, -2), (HUGE, 32767), (5, -2), (-5, 0)):
            request = InitProducerIdRequest(transactional_id=None, producer_id=who[0], producer_epoch=who[1])
            told[f"version {version}, {who}"] = code_of(connection.ask(request, version))
    return told


@sequence
def init_as_somebody(connection: Connection) -> Told:
    told = {}
    for version in (3, 4, 5):
        for who in ((FOREIGN, 0), (FOREIGN, -1), (-1, 0), (HUGE, 32767), (-2, 0), (-7, -7), (0, 0), (FOREIGN, -2)):
            unknown, known = _producer(connection, is_begun=False), _producer(connection)
            told[f"{version}: unknown, {who}"] = unknown.init(version, producer_id=who[0], epoch=who[1])
            told[f"{version}: known, {who}"] = known.init(version, producer_id=who[0], epoch=who[1])
        for epoch in (-1, 0, 1, 2, 32766, 32767, -2, -32768):
            producer = _producer(connection)
            producer.init(version)
            told[f"{version}: epoch {epoch}"] = producer.init(version, producer_id=producer.producer_id, epoch=epoch)
        producer = _producer(connection)
        told[f"{version}: goes on"] = producer.init(version, as_is=True)
        for label in ("repeated", "repeated again"):
            told[f"{version}: {label}"] = producer.init(version, producer_id=producer.producer_id, epoch=0)
        told[f"{version}: goes on again"] = producer.init(version, as_is=True)
        told[f"{version}: zombie"] = producer.init(version, producer_id=producer.producer_id, epoch=0)
    return told


@sequence
def init_while_open(connection: Connection) -> Told:
    told = {}
    for version in INIT:
        producer = _producer(connection)
        told[f"{version}: add"] = producer.add({T: [0]})
        told[f"{version}: init"] = producer.init(version)
        producer.wait_for("CompleteAbort")
        told[f"{version}: init again"] = producer.init(version)
        told[f"{version}: described"] = connection.described(producer.id)
    for version in (3, 4, 5):
        producer = _producer(connection)
        producer.add({T: [0]})
        told[f"{version}: as it is"] = producer.init(version, as_is=True)
        producer.wait_for("CompleteAbort")
        told[f"{version}: as it was"] = producer.init(version, as_is=True)
        producer.init()
        producer.add({T: [0]})
        producer.epoch -= 1
        told[f"{version}: zombie"] = producer.init(version, as_is=True)
        producer = _producer(connection)
        producer.add({T: [0]})
        told[f"{version}: foreign"] = producer.init(version, producer_id=FOREIGN, epoch=0)
        told[f"{version}: foreign, described"] = connection.described(producer.id)
    return told


# Everybody, in every state


def _strangers(producer_id: int, epoch: int) -> dict[str, tuple[int, int]]:
    return {
        "itself": (producer_id, epoch),
        "stale": (producer_id, epoch - 1),
        "of the future": (producer_id, epoch + 1),
        "epoch -1": (producer_id, -1),
        "epoch -2": (producer_id, -2),
        "epoch 32767": (producer_id, 32767),
        "epoch -32768": (producer_id, -32768),
        "foreign": (FOREIGN, epoch),
        "foreign, epoch -1": (FOREIGN, -1),
        "negative": (-1, epoch),
        "nobody": (-1, -1),
        "very negative": (-LONG_MAX - 1, epoch),
        "huge": (HUGE, epoch),
    }


def _ended(producer: Producer, version: int, *, committed: bool) -> None:
    producer.add({T: [0]}, version)
    producer.end_and_wait(4 if version in ADD else 5, committed=committed)


STATES: dict[str, Callable[[Producer], object]] = {
    "Empty": lambda producer: producer,
    "Ongoing": lambda producer: producer.add({T: [0]}, 3),
    "Ongoing 2": lambda producer: producer.add({T: [0]}, 5),
    "CompleteCommit": lambda producer: _ended(producer, 3, committed=True),
    "CompleteAbort": lambda producer: _ended(producer, 3, committed=False),
    "CompleteCommit 2": lambda producer: _ended(producer, 5, committed=True),
    "CompleteAbort 2": lambda producer: _ended(producer, 5, committed=False),
}
"""How a transaction comes to a state; 2: by transaction version 2."""


def _by_anybody(connection: Connection, versions: Sequence[int], step: Step) -> Told:
    """What the step is told in each state and version, by each kind of producer."""
    told = {}
    for state, reach in STATES.items():
        for label in _strangers(0, 0):
            for version in versions:
                producer = _producer(connection)
                producer.init()
                reach(producer)
                producer.producer_id, producer.epoch = _strangers(producer.producer_id, producer.epoch)[label]
                told[f"{state}, {label}, version {version}"] = step(producer, version)
    for who in ((3, 0), (-1, -1), (HUGE, 32767)):
        for version in versions:
            producer = _producer(connection, is_begun=False)
            producer.producer_id, producer.epoch = who
            told[f"unknown id, producer {who}, version {version}"] = step(producer, version)
    return told


@sequence
def added_by_anybody(connection: Connection) -> Told:
    return _by_anybody(connection, ADD, lambda producer, version: producer.add({T: [0, 1]}, version))


@sequence
def added_by_brokers(connection: Connection) -> Told:
    return _by_anybody(connection, ADD_BY_BROKERS, lambda producer, version: producer.add({T: [0, 1]}, version))


@sequence
def verified_by_brokers(connection: Connection) -> Told:
    return _by_anybody(
        connection, ADD_BY_BROKERS, lambda producer, version: producer.add({T: [0, 1]}, version, verify=True)
    )


@sequence
def offsets_added_by_anybody(connection: Connection) -> Told:
    return _by_anybody(connection, ADD_OFFSETS, lambda producer, version: producer.add_offsets("g", version))


@sequence
def commits_by_anybody(connection: Connection) -> Told:
    return _by_anybody(connection, END, lambda producer, version: producer.end(version))


@sequence
def aborts_by_anybody(connection: Connection) -> Told:
    return _by_anybody(connection, END, lambda producer, version: producer.end(version, committed=False))


@sequence
def offsets_by_anybody(connection: Connection) -> Told:
    return _by_anybody(connection, COMMIT, lambda producer, version: producer.commit("g", {T: [0, 1]}, version))


@sequence
def batches_by_anybody(connection: Connection) -> Told:
    return _by_anybody(connection, PRODUCE, lambda producer, version: producer.produce(T, 0, version))


# Odd names, and names twice


@sequence
def odd_partitions(connection: Connection) -> Told:
    told = {}
    odd: dict[str, dict[str, list[int]]] = {
        "missing topic": {MISSING: [0]},
        "missing partition": {T: [PARTITIONS]},
        "negative partition": {T: [-1]},
        "some missing": {T: [0, PARTITIONS], MISSING: [0, 1]},
        "offsets": {OFFSETS: [0]},
        "transactions": {TRANSACTIONS: [0]},
        "cluster metadata": {"__cluster_metadata": [0]},
        "internal and good": {OFFSETS: [0], T: [0]},
        "internal and missing": {OFFSETS: [0], MISSING: [0], T: [0]},
        "internal and beyond": {OFFSETS: [99]},
        "empty name": {"": [0]},
        "bad name": {"a b/..": [0]},
        "long name": {"n" * 3000: [0]},
        "no topics": {},
        "no partitions": {T: []},
        "no partitions of a missing one": {MISSING: []},
    }
    for version in (*ADD, *ADD_BY_BROKERS):
        for label, topics in odd.items():
            producer = _producer(connection)
            told[f"{label}, version {version}"] = producer.add(topics, version)
            told[f"{label}, version {version}, described"] = connection.described(producer.id)
        twice = [[[0, 0, 1], [1, 2]], [[0, 0, 99], [99, 2]]]
        for label, numbers in zip(("twice", "twice and missing"), twice, strict=True):
            producer = _producer(connection)
            named = [AddPartitionsToTxnTopic(name=T, partitions=each) for each in numbers]
            told[f"{label}, version {version}"] = producer.add_topics(named, version)
            told[f"{label}, version {version}, described"] = connection.described(producer.id)
        empty = Producer(connection, "")
        told[f"empty id, version {version}"] = empty.add({T: [0, 1]}, version)
        told[f"empty id and missing, version {version}"] = empty.add({T: [0, 1], MISSING: [0]}, version)
    return told


@sequence
def empty_ids(connection: Connection) -> Told:
    told = {}
    empty = Producer(connection, "")
    empty.producer_id, empty.epoch = 3, 0
    for version in ADD_OFFSETS:
        told[f"offsets, version {version}"] = empty.add_offsets("g", version)
    for version in END:
        told[f"commit, version {version}"] = empty.end(version)
        told[f"abort, version {version}"] = empty.end(version, committed=False)
    for version in COMMIT:
        told[f"offset commit, version {version}"] = empty.commit("g", {T: [0]}, version)
    for version in PRODUCE:
        told[f"produce, version {version}"] = empty.produce(T, 0, version)
        told[f"produce without an id, version {version}"] = empty.produce(T, 0, version, transactional_id=None)
    return told


@sequence
def odd_groups(connection: Connection) -> Told:
    told = {}
    for label, group in {"empty": "", "long": "g" * 5000, "nul": "a\0b"}.items():
        for version in ADD_OFFSETS:
            told[f"{label}, version {version}"] = _producer(connection).add_offsets(group, version)
        for version in COMMIT:
            producer = _producer(connection)
            producer.add_offsets(group)
            told[f"{label}, offset commit, version {version}"] = producer.commit(group, {T: [0]}, version)
    return told


@sequence
def odd_offsets(connection: Connection) -> Told:
    told = {}
    odd: dict[str, dict[str, list[int]]] = {
        "missing topic": {MISSING: [0]},
        "missing partition": {T: [PARTITIONS, 0]},
        "negative partition": {T: [-1, 0]},
        "some missing": {T: [0], MISSING: [0, 1]},
        "internal": {OFFSETS: [0]},
        "empty name": {"": [0]},
        "twice": {T: [0, 0]},
        "no topics": {},
        "no partitions": {T: []},
    }
    members: dict[str, dict[str, Any]] = {
        "generation": {"generation_id": 3},
        "generation -2": {"generation_id": -2},
        "member": {"member_id": "m"},
        "instance": {"group_instance_id": "i"},
        "all": {"generation_id": 3, "member_id": "m", "group_instance_id": "i"},
    }
    for version in COMMIT:
        for label, topics in odd.items():
            producer = _with_offsets(connection)
            told[f"{label}, version {version}"] = producer.commit("g", topics, version)
        for offset in (-1, -2, LONG_MAX):
            producer = _with_offsets(connection)
            told[f"offset {offset}, version {version}"] = producer.commit("g", {T: [0]}, version, offset=offset)
    for version in (3, 4, 5):
        for label, member in members.items():
            producer = _with_offsets(connection)
            told[f"{label}, version {version}"] = producer.commit("g", {T: [0]}, version, **member)
    return told


def _with_offsets(connection: Connection) -> Producer:
    producer = _producer(connection)
    producer.add_offsets("g")
    return producer


# Steps in a row


@sequence
def ends_in_a_row(connection: Connection) -> Told:
    told = {}
    for version in END:
        for first, second in ((True, True), (True, False), (False, True), (False, False)):
            producer = _producer(connection)
            producer.add({T: [0]}, 5 if version == 5 else 3)
            before = producer.producer_id, producer.epoch
            label = f"version {version}, {first} and {second}"
            told[f"{label}: first"] = producer.end_and_wait(version, committed=first)
            after = producer.producer_id, producer.epoch
            producer.producer_id, producer.epoch = before
            told[f"{label}: repeated"] = producer.end(version, committed=second)
            producer.producer_id, producer.epoch = after
            told[f"{label}: nothing to end"] = producer.end(version, committed=second)
    return told


@sequence
def mixed_versions(connection: Connection) -> Told:
    told = {}
    for first, second, ending in ((3, 3, 5), (3, 5, 4), (3, 5, 5), (5, 3, 4), (5, 3, 5), (5, 5, 4)):
        producer = _producer(connection)
        label = f"{first}, {second}, {ending}"
        told[f"{label}: first"] = producer.add({T: [0]}, first)
        told[f"{label}: second"] = producer.add({T: [1]}, second)
        told[f"{label}: end"] = producer.end_and_wait(ending)
        told[f"{label}: described"] = connection.described(producer.id)
        told[f"{label}: init"] = producer.init(as_is=True)
    return told


@sequence
def timed_out(connection: Connection) -> Told:
    told = {}
    for version in (4, 5):
        for committed in (True, False):
            producer = _producer(connection)
            producer.init(timeout_ms=1)
            producer.add({T: [0]}, 5 if version == 5 else 3)
            producer.wait_for("CompleteAbort")
            label = f"version {version}, {committed}"
            told[f"{label}: produce"] = producer.produce(T, 0, 12 if version == 5 else 11)
            told[f"{label}: end"] = producer.end(version, committed=committed)
            producer.wait_for("CompleteAbort")
            told[f"{label}: init as it is"] = producer.init(as_is=True)
            told[f"{label}: init"] = producer.init()
    return told


@sequence
def odd_batches(connection: Connection) -> Told:
    told = {}
    for version in (3, 8, *PRODUCE):
        is_new, label = version == PRODUCE[-1], f"version {version}"
        told[f"{label}: not transactional"] = _producer(connection).produce(T, 0, version, is_transactional=False)
        told[f"{label}: without an id"] = _producer(connection).produce(T, 0, version, transactional_id=None)
        producer = _producer(connection)
        told[f"{label}: begins with 5"] = producer.produce(T, 0, version, sequence=5)
        producer.add({T: [0]})
        told[f"{label}: begins with 5, added"] = producer.produce(T, 0, version, sequence=5)
        producer = _producer(connection)
        producer.add({T: [0]}, 5 if is_new else 3)
        for sequence_number in (0, 0, 2):
            step = f"{label}: {len(told)}. sequence {sequence_number}"
            told[step] = producer.produce(T, 0, version, sequence=sequence_number)
        told[f"{label}: outside"] = producer.produce(T, 0, version, sequence=1, is_transactional=False)
        told[f"{label}: another partition"] = producer.produce(T, 1, version)
        told[f"{label}: missing"] = producer.produce(MISSING, 1, version)
        told[f"{label}: missing partition"] = producer.produce(T, 99, version)
        told[f"{label}: of another id"] = producer.produce(T, 3, version, transactional_id="somebody")
        told[f"{label}: end"] = producer.end_and_wait(5 if is_new else 4)
        told[f"{label}: after the end"] = producer.produce(T, 0, version, sequence=0 if is_new else 1)
        for change, when in ((-1, "stale"), (2, "of the future")):
            producer.epoch += change
            told[f"{label}: {when}"] = producer.produce(T, 0, version, sequence=0)
    return told


@sequence
def after_a_marker_of_a_later_epoch(connection: Connection) -> Told:
    told = {}
    for version in PRODUCE:
        producer = _producer(connection)
        producer.add({T: [0]})
        producer.epoch = 5
        told[f"version {version}: marker"] = producer.write_markers({T: [0]})
        producer.epoch = 0
        told[f"version {version}: produce"] = producer.produce(T, 0, version)
        told[f"version {version}: elsewhere"] = producer.produce(T, 1, version)
        told[f"version {version}: of another id"] = producer.produce(T, 0, version, transactional_id="somebody")
        told[f"version {version}: outside"] = producer.produce(T, 0, version, is_transactional=False)
    for version in COMMIT:
        producer = _with_offsets(connection)
        producer.epoch = 5
        told[f"version {version}: marker of offsets"] = producer.write_markers({OFFSETS: [0, 1, 2]})
        producer.epoch = 0
        told[f"version {version}: offset commit"] = producer.commit("g", {T: [0]}, version)
        producer.id = "somebody"
        told[f"version {version}: offset commit of another id"] = producer.commit("g", {T: [0]}, version)
    return told


# Markers


MARKER_VERSIONS = ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (2, -1), (2, 127))
"""Versions of the request and of the transaction."""


@sequence
def odd_markers(connection: Connection) -> Told:
    told = {}
    odd: dict[str, dict[str, list[int]]] = {
        "missing topic": {MISSING: [0]},
        "missing partition": {T: [PARTITIONS, -1]},
        "good": {T: [1]},
        "offsets": {OFFSETS: [0]},
        "offsets beyond": {OFFSETS: [99, -1]},
        "transactions": {TRANSACTIONS: [0]},
        "no topics": {},
        "no partitions": {T: []},
        "empty name": {"": [0]},
        "bad name": {"a b/..": [0]},
    }
    for version, of in MARKER_VERSIONS:
        label = f"version {version} of {of}"
        for name, topics in odd.items():
            told[f"{label}, {name}"] = _producer(connection).write_markers(topics, version, transaction_version=of)
        for epoch in (-1, -2, 32767):
            for where in (T, OFFSETS):
                producer = _producer(connection)
                producer.epoch = epoch
                marker = producer.write_markers({where: [1]}, version, transaction_version=of)
                told[f"{label}, {where}: epoch {epoch}"] = marker
        for coordinator_epoch in (-1, -2, INT_MAX):
            producer = _producer(connection)
            for each in (coordinator_epoch, 0, -1):
                step = f"{label}, coordinator epoch {coordinator_epoch}: {each}"
                told[step] = producer.write_markers({T: [1]}, version, coordinator_epoch=each, transaction_version=of)
        for change in (-1, 0, 1, 2):
            told |= _ended_with(_producer(connection), version, of, change)
    return told


def _ended_with(producer: Producer, version: int, of: int, change: int) -> Told:
    """A transaction that is ended with another epoch than its own, and again, and by a coordinator that is deposed."""
    label = f"version {version} of {of}, ended with {change}"
    producer.init()
    told = {f"{label}: batch": producer.produce(T, 2)}
    producer.epoch += change
    ends = {"marker": (False, 5), "again": (False, 5), "the other end": (True, 5), "deposed": (False, 4)}
    for step, (committed, coordinator_epoch) in ends.items():
        told[f"{label}: {step}"] = producer.write_markers(
            {T: [2]},
            version,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=of,
        )
    for sequence_number in (0, 1):
        told[f"{label}: sequence {sequence_number}"] = producer.produce(T, 2, sequence=sequence_number)
    return told


@sequence
def markers_of_offsets(connection: Connection) -> Told:
    told = {}
    for version, of in MARKER_VERSIONS[:4]:
        for change in (-1, 0, 1):
            label = f"version {version} of {of}, epoch {change}"
            producer = _producer(connection)
            producer.init()
            told[f"{label}: offset"] = producer.commit("g", {T: [0]}, 5)
            described = connection.described(producer.id)
            where = {OFFSETS: [number for number in range(3) if f"[{number}]" in described]}
            producer.epoch += change
            for step, coordinator_epoch in (("marker", 5), ("again", 5), ("deposed", 4)):
                told[f"{label}: {step}"] = producer.write_markers(
                    where, version, coordinator_epoch=coordinator_epoch, transaction_version=of
                )
    return told


# Questions


@sequence
def listings(connection: Connection) -> Told:
    empty, open_one = _producer(connection), _producer(connection)
    open_one.add({T: [0]})
    names, ids = {"empty": empty.id, "open": open_one.id}, [empty.producer_id, open_one.producer_id]
    told = {}
    for version in range(3):
        for states in (
            [],
            ["Ongoing"],
            ["Empty", "Empty"],
            ["ongoing"],
            ["nonsense", "Empty", "nonsense"],
            [""],
            ["Dead", "PrepareEpochFence", "ONGOING"],
            ["CompleteCommit", "CompleteAbort", "PrepareCommit", "PrepareAbort", "Unknown"],
        ):
            told[f"{states}, version {version}"] = connection.listed(
                names, version, state_filters=states, producer_id_filters=ids
            )
        for label, asked in {"-1": [-1], "huge": [HUGE], "one": [-5, ids[0], ids[0]]}.items():
            told[f"producer {label}, version {version}"] = connection.listed(names, version, producer_id_filters=asked)
    for version in (1, 2):
        for duration in (-1, -2, -LONG_MAX, 60_000, LONG_MAX):
            told[f"{duration} ms, version {version}"] = connection.listed(names, version, duration_filter=duration)
    for pattern in PATTERNS:
        told[f"pattern {pattern!r:.20}"] = connection.listed(names, transactional_id_pattern=pattern)
    return told


PATTERNS = (
    *(None, "", ".*", "id-.*", "id", "(?i)ID-.*", "^id-.*$", "id-.{8}", "(?:id|xy)-.*", "[[:alpha:]]+-.*"),
    *("\\Qid\\E.*", "(?P<n>id).*", "(?<n>id).*", "\\pL.*", "🦆", "\n", "\\d", "(a+)+$", "a{1001}", "a{,3}", "x{2,1}"),
    *("[", "(", "*", "a|*", "a**", "(" * 30, "(?=x)", "\\1", "\\C*", "x" * 5000),
)


@sequence
def producers_described(connection: Connection) -> Told:
    odd: dict[str, dict[str, list[int]]] = {
        "missing": {MISSING: [0]},
        "partitions": {T: [0, PARTITIONS, -1]},
        "internal": {OFFSETS: [0, 99], TRANSACTIONS: [0]},
        "cluster metadata": {"__cluster_metadata": [0]},
        "bad name": {"a b/..": [0]},
        "dots": {"..": [0]},
        "empty name": {"": [0]},
        "long name": {"n" * 300: [0]},
        "no topics": {},
        "no partitions": {T: []},
        "twice": {T: [0, 0]},
    }
    return {label: connection.producers(topics) for label, topics in odd.items()}
