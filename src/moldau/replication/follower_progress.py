"""Progress of one other replica as the leader of a partition knows it: how far it is, and since when it is behind.

A follower is behind from the moment at which the leader has more than it; a fetch that reaches the leader's end ends
that. One that keeps reaching what the end was at its last fetch is as far behind as that fetch is old: a busy
partition has no moment at which a follower is at the very end (Kafka's `lastCaughtUpTimeMs`).
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import UNKNOWN


class FollowerProgress:
    """One follower. `now_ms` is monotonic."""

    __slots__ = (
        "behind_since_ms",
        "broker_epoch",
        "is_given_up",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
        "replica_id",
    )

    def __init__(self, replica_id: int, now_ms: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = UNKNOWN
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.behind_since_ms: int | None = now_ms
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = UNKNOWN
        self.is_given_up = False  # behind for too long, and not heard of since

    def __repr__(self) -> str:
        return f"FollowerProgress({self.replica_id}, end {self.log_end_offset}, behind since {self.behind_since_ms})"

    def fetched(self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: int) -> bool:
        """Note that the follower asks for `offset`, so that it has all before it. Whether its end moved."""
        if broker_epoch != self.broker_epoch:
            self._take_broker_epoch(broker_epoch, now_ms)
        if offset >= leader_end:
            self.behind_since_ms = None
        elif self.behind_since_ms is not None and offset >= self.leader_end_at_last_fetch > UNKNOWN:
            self.behind_since_ms = max(self.behind_since_ms, self.last_fetch_ms)
        self.last_fetch_ms = now_ms
        self.is_given_up = False
        self.leader_end_at_last_fetch = leader_end
        self.log_start_offset = log_start
        moved = offset != self.log_end_offset
        self.log_end_offset = offset
        return moved

    def _take_broker_epoch(self, broker_epoch: int, now_ms: int) -> None:
        """Another start of the broker: what the one before had may be lost. A request of an earlier one is refused."""
        if broker_epoch < self.broker_epoch:
            reason = f"broker {self.replica_id} is at epoch {self.broker_epoch} by now"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        if self.broker_epoch != UNKNOWN:
            self.log_end_offset = self.log_start_offset = self.leader_end_at_last_fetch = UNKNOWN
            self.behind_since_ms = now_ms
        self.broker_epoch = broker_epoch

    def leader_appended(self, now_ms: int) -> None:
        """Note that a follower that was at the end until now is behind from now on."""
        if self.behind_since_ms is None:
            self.behind_since_ms = now_ms

    def is_behind(self, now_ms: int, lag_ms: int) -> bool:
        """Whether it has been behind for longer than it may."""
        return self.behind_since_ms is not None and now_ms - self.behind_since_ms > lag_ms
