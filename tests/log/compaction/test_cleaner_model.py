"""Compaction against a model: any history comes to the same map."""

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.records.batch import (
    Record,
    iter_records,
)
from tests.log.compaction.cleaning import CONFIG, RETENTION_MS, Pair, compact, due, new_log, pairs, put
from tests.log.helpers import (
    NOW_MS,
    append,
    batches,
    marker,
    open_log,
)

KEYS = st.sampled_from([b"a", b"b", b"c", b"d" * 40, None])
VALUES = st.one_of(st.none(), st.binary(max_size=12))
BATCH = st.tuples(
    st.just("batch"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.sampled_from([0, 1, 4])
)
TRANSACTION = st.tuples(
    st.just("transaction"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.booleans()
)
STEP = st.one_of(
    BATCH,
    BATCH,
    TRANSACTION,
    st.tuples(st.just("roll"), st.just([]), st.just(0)),
    st.tuples(st.just("compact"), st.just([]), st.sampled_from([1, 2, 1000])),
    st.tuples(st.just("later"), st.just([]), st.sampled_from([RETENTION_MS // 2, RETENTION_MS])),
    st.tuples(st.just("reopen"), st.just([]), st.booleans()),
)


class Model:
    """What a reader of committed records knows, whatever was compacted."""

    def __init__(self) -> None:
        self.files, self.log = new_log()
        self.now_ms = NOW_MS
        self.state: dict[bytes, bytes | None] = {}
        self.written: dict[int, Record] = {}
        self.sequence = 0

    def apply(self, kind: str, rows: Sequence[Pair], argument: int) -> None:
        if kind == "batch":
            self._wrote(put(self.log, *rows, codec=argument, timestamp=self.now_ms), rows, committed=True)
        elif kind == "transaction":
            first = put(self.log, *rows, producer=(7, self.sequence), timestamp=self.now_ms)
            self.sequence += len(rows)
            append(self.log, marker(committed=bool(argument)))
            self._wrote(first, rows, committed=bool(argument))
        elif kind == "roll":
            self.log.roll(self.now_ms)
        elif kind == "later":
            self.now_ms += argument
        elif kind == "reopen":
            self._reopen(clean=bool(argument))
        elif self.log.log_end_offset > self.log.clean_offset:
            compact(self.files, self.log, self.now_ms, keys_max=argument)
        self.check()

    def _wrote(self, first: int, rows: Sequence[Pair], *, committed: bool) -> None:
        for number, (key, value) in enumerate(rows):
            self.written[first + number] = Record(first + number, self.now_ms + number, key, value)
            if committed and key is not None:
                self.state[key] = value

    def _reopen(self, *, clean: bool) -> None:
        clean_offset = self.log.clean_offset
        if clean:
            self.log.close()
        self.log = open_log(self.files, CONFIG, clean=clean)
        self.log.clean_offset = clean_offset

    def check(self) -> None:
        aborted = self.log.aborted_transactions(0, self.log.log_end_offset)
        seen: dict[bytes, bytes | None] = {}
        for header, data in batches(self.log):
            if header.is_control:
                continue
            hidden = any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
                for each in aborted
            )
            for record in iter_records(data):
                assert record == self.written[record.offset]
                if not hidden and record.key is not None:
                    seen[record.key] = record.value
        assert {key: value for key, value in seen.items() if value is not None} == {
            key: value for key, value in self.state.items() if value is not None
        }
        entry = self.log.producers.get(7)
        assert (entry.last_sequence if entry else -1) == self.sequence - 1


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_any_history_comes_to_the_same_map(steps: list[tuple[str, list[Pair], int]]) -> None:
    model = Model()
    for kind, rows, argument in steps:
        model.apply(kind, rows, argument)
    end = model.log.log_end_offset
    model.log.roll(model.now_ms)
    while due(model.log, model.now_ms).dirty_bytes:
        compact(model.files, model.log, model.now_ms)
        model.check()
    keys = [key for _, key, _ in pairs(model.log)]
    assert len(keys) == len(set(keys))
    assert model.log.log_end_offset == end


def test_a_long_random_history() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    chance = random.Random(seed)
    model = Model()
    for _ in range(400):
        kind = chance.choices(["batch", "transaction", "roll", "compact", "later", "reopen"], [50, 15, 10, 6, 6, 2])[0]
        rows: list[Pair] = [
            (b"%d" % chance.randrange(30), chance.choice([None, chance.randbytes(5)]))
            for _ in range(chance.randint(1, 5))
        ]
        argument = {"compact": chance.choice([3, 1000]), "later": RETENTION_MS // 3}.get(kind, chance.randrange(2))
        model.apply(kind, rows, argument)
