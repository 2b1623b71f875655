"""Compaction against a model: any history comes to the same map."""

from collections.abc import Iterable, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.verification import TRANSACTION_BUMPS_EPOCH
from moldau.records.batch import (
    Record,
    iter_records,
)
from tests.log.compaction.cleaning import CONFIG, RETENTION_MS, Pair, compact, due, new_log, pairs, put
from tests.log.helpers import (
    NOW_MS,
    batches,
    marker,
    open_log,
)
from tests.selection import examples

KEYS = st.sampled_from([b"a", b"b", b"c", b"d" * 40, None])
VALUES = st.one_of(st.none(), st.binary(max_size=12))
BATCH = st.tuples(
    st.just("batch"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.sampled_from([0, 1, 4])
)
PRODUCERS = (7, 8, 9)
OF_PRODUCER = st.tuples(
    st.just("write"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.sampled_from(PRODUCERS)
)
END: st.SearchStrategy[tuple[str, list[Pair], int]] = st.tuples(
    st.sampled_from(["commit", "abort"]), st.just([]), st.sampled_from(PRODUCERS)
)
STEP = st.one_of(
    BATCH,
    OF_PRODUCER,
    OF_PRODUCER,
    END,
    END,
    st.tuples(st.just("roll"), st.just([]), st.just(0)),
    st.tuples(st.just("compact"), st.just([]), st.sampled_from([1, 2, 1000])),
    st.tuples(st.just("later"), st.just([]), st.sampled_from([RETENTION_MS // 2, RETENTION_MS])),
    st.tuples(st.just("reopen"), st.just([]), st.booleans()),
)


class Producer:
    """One transactional producer. As of transaction version 2 each end brings it a new epoch and its sequence to 0."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.open: list[int] = []
        """Offsets of the transaction that is open."""


class Model:
    """What a reader of committed records knows, whatever was compacted."""

    def __init__(self) -> None:
        self.files, self.log = new_log()
        self.now_ms = NOW_MS
        self.written: dict[int, Record] = {}
        self.aborted: set[int] = set()
        self.producers = {each: Producer(each) for each in PRODUCERS}

    def apply(self, kind: str, rows: Sequence[Pair], argument: int) -> None:
        if kind == "batch":
            self._wrote(put(self.log, *rows, codec=argument, timestamp=self.now_ms), rows)
        elif kind == "write":
            self._write(self.producers[argument], rows)
        elif kind in ("commit", "abort"):
            self._end(self.producers[argument], committed=kind == "commit")
        elif kind == "roll":
            self.log.roll(self.now_ms)
        elif kind == "later":
            self.now_ms += argument
        elif kind == "reopen":
            self._reopen(clean=bool(argument))
        elif self.log.last_stable_offset > self.log.clean_offset:
            compact(self.files, self.log, self.now_ms, keys_max=argument)
        self.check()

    def end_all(self) -> None:
        for each in self.producers.values():
            self._end(each, committed=True)

    def _write(self, producer: Producer, rows: Sequence[Pair]) -> None:
        who = (producer.producer_id, producer.sequence)
        first = put(self.log, *rows, producer=who, epoch=producer.epoch, timestamp=self.now_ms)
        producer.sequence += len(rows)
        producer.open += range(first, first + len(rows))
        self._wrote(first, rows)

    def _end(self, producer: Producer, *, committed: bool) -> None:
        producer.epoch += 1
        end = marker(committed=committed, producer_id=producer.producer_id, epoch=producer.epoch)
        self.log.append_as_leader(end, 0, NOW_MS, None, TRANSACTION_BUMPS_EPOCH)
        if not committed:
            self.aborted.update(producer.open)
        producer.open, producer.sequence = [], 0

    def _wrote(self, first: int, rows: Sequence[Pair]) -> None:
        for number, (key, value) in enumerate(rows):
            self.written[first + number] = Record(first + number, self.now_ms + number, key, value)

    def _reopen(self, *, clean: bool) -> None:
        clean_offset = self.log.clean_offset
        if clean:
            self.log.close()
        self.log = open_log(self.files, CONFIG, clean=clean)
        self.log.clean_offset = clean_offset

    def check(self) -> None:
        stable = self.log.last_stable_offset
        assert stable == min((each.open[0] for each in self.producers.values() if each.open), default=self._end_offset)
        expected = [each for offset, each in sorted(self.written.items()) if offset < stable]
        assert self._seen(stable) == _last_values(each for each in expected if each.offset not in self.aborted)
        left = [record.offset for header, data in batches(self.log) if not header.is_control
                for record in iter_records(data) if record.offset >= stable]  # fmt: skip
        assert left == [offset for offset in self.written if offset >= stable], "nothing unstable is compacted"
        for each in self.producers.values():
            entry = self.log.producers.get(each.producer_id)
            found = (entry.epoch, entry.last_sequence) if entry else (0, -1)
            assert found == (each.epoch, each.sequence - 1)

    @property
    def _end_offset(self) -> int:
        return self.log.log_end_offset

    def _seen(self, stable: int) -> dict[bytes, bytes]:
        """The values that a reader of committed records finds."""
        aborted = self.log.aborted_transactions(0, stable)
        seen: list[Record] = []
        for header, data in batches(self.log):
            if header.is_control or header.base_offset >= stable:
                continue
            hidden = any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
                for each in aborted
            )
            for record in iter_records(data):
                assert record == self.written[record.offset]
                if not hidden:
                    seen.append(record)
        return _last_values(seen)


def _last_values(records: Iterable[Record]) -> dict[bytes, bytes]:
    state = {each.key: each.value for each in records if each.key is not None}
    return {key: value for key, value in state.items() if value is not None}


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=25))
def test_any_history_comes_to_the_same_map(steps: list[tuple[str, list[Pair], int]]) -> None:
    model = Model()
    for kind, rows, argument in steps:
        model.apply(kind, rows, argument)
    model.end_all()
    end = model.log.log_end_offset
    model.log.roll(model.now_ms)
    while due(model.log, model.now_ms).dirty_bytes:
        compact(model.files, model.log, model.now_ms)
        model.check()
    keys = [key for _, key, _ in pairs(model.log)]
    assert len(keys) == len(set(keys))
    assert model.log.log_end_offset == end


def test_a_long_random_history(seeded: Random) -> None:
    chance = seeded
    model = Model()
    for _ in range(400):
        kinds = ["batch", "write", "commit", "abort", "roll", "compact", "later", "reopen"]
        kind = chance.choices(kinds, [40, 20, 10, 10, 10, 6, 6, 2])[0]
        rows: list[Pair] = [
            (b"%d" % chance.randrange(30), chance.choice([None, chance.randbytes(5)]))
            for _ in range(chance.randint(1, 5))
        ]
        argument = {"compact": chance.choice([3, 1000]), "later": RETENTION_MS // 3}.get(kind, chance.randrange(2))
        if kind in ("write", "commit", "abort"):
            argument = chance.choice(PRODUCERS)
        model.apply(kind, rows, argument)
