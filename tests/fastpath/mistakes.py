"""Mistakes that are planted into the fast paths, each by another text in place of one that the source has."""

import inspect
import sys
import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple

import pytest

from moldau.broker.dispatch import Dispatcher
from moldau.fastpath import produce
from moldau.fastpath.consumer_fetch import ConsumerFetch, ConsumerRepeats
from moldau.fastpath.replica_fetch import ReplicaRepeats
from moldau.log import plain_append
from moldau.replication import lane
from moldau.replication.lane import Lane


class Mistake(NamedTuple):
    """Each right text stands in the source of `method` once, or the mistake must be planted elsewhere."""

    owner: type | ModuleType
    method: str
    changes: Mapping[str, str]
    """What is right, and what is wrong in its place."""

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        source = textwrap.dedent(inspect.getsource(getattr(self.owner, self.method)))
        for right, wrong in self.changes.items():
            assert source.count(right) == 1, f"{right!r} is not in {self.owner.__name__}.{self.method} any more"
            source = source.replace(right, wrong)
        home = self.owner if isinstance(self.owner, ModuleType) else sys.modules[self.owner.__module__]
        scope = {**vars(home), **vars(plain_append)}
        exec(source, scope)
        monkeypatch.setattr(self.owner, self.method, scope[self.method])


MISTAKES = {
    "the epoch of a producer is not checked": Mistake(
        lane, "append_plain", {"entry is None or entry.epoch != producer_epoch": "entry is None"}
    ),
    "the epoch of a consumer's leader is not checked": Mistake(
        ConsumerRepeats, "_readable", {"not _has_epochs(partition, leader_epoch, last_epoch)": "False"}
    ),
    "the size limit is not checked": Mistake(
        Lane, "append", {"BATCH_HEADER_BYTES <= size <= self._bytes_max": "self._bytes_max > 0"}
    ),
    "the sequence is not checked": Mistake(lane, "append_plain", {"kept[LAST_SEQUENCE] + 1 != sequence": "False"}),
    "a transaction that is not open is not verified": Mistake(
        produce, "_is_open_in", {"if not lane.log.producers.is_open(producer_id, epoch):": "if False:"}
    ),
    "a transaction may have two producers": Mistake(produce, "_is_open_in", {"len(producers) == 1": "True"}),
    "a plain batch may stand inside of a transaction": Mistake(
        lane, "append_plain", {"(entry.current_txn_first_offset != NO_OFFSET) is not is_transactional": "False"}
    ),
    "a batch is taken after a change of leadership": Mistake(
        Lane, "close", {"self.is_open = False": "pass", "self._bytes_max = -1": "pass"}
    ),
    "a waiting consumer is served after a change of leadership": Mistake(
        ConsumerFetch, "_answer_now", {"if not is_same or": "if not is_same and"}
    ),
    "the gate is not asked": Mistake(Dispatcher, "dispatch", {"known.gate_version != self._gate.version": "False"}),
    "the session of a follower is not checked": Mistake(
        ReplicaRepeats, "serve", {"(session.id, session.epoch, session.broker_epoch) != (": "() == ("}
    ),
}
