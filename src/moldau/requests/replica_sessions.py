"""Fetch sessions of followers (KIP-227): what each follows here, and what of it there is to send.

A leader has hundreds of partitions that a follower follows, and few that grow. So nothing here walks over a session.
Each of its partitions is in one of three states:

- dirty: there may be something to send;
- watched: the follower has all of it; the next append makes it dirty, once;
- told: something was sent, and the follower is about to say where it is now. That makes it dirty or watched.

A partition that had an error to tell leaves the session until the follower names it again.
"""

from random import Random
from typing import Protocol

from moldau.cluster.image import ClusterImage
from moldau.core.scheduler import Cancellable, Scheduler
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import EPOCH_MAX, NO_SESSION, next_session_epoch
from moldau.replication.partition import Partition

NO_BROKER_EPOCH = -1

TIMER_TOLERANCE_S = 0.001
"""Timers have milliseconds: one that fires early by a fraction is on time."""

Key = tuple[str | bytes, int]


class Waiting(Protocol):
    """A fetch that waits for its session to have something to send."""

    def attempt(self, time_is_up: bool) -> bool:
        """Answer if there is enough, or in any case if the time is up; whether it did."""
        ...


class Followed:
    """One partition of a session."""

    __slots__ = (
        "_session",
        "fetch_offset",
        "key",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
    )

    def __init__(self, session: "ReplicaSession", key: Key, partition: Partition) -> None:
        self._session = session
        self.key = key
        self.partition = partition
        self.fetch_offset = 0
        self.max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        if session.tells_high_watermarks:
            partition.waiters[self] = None

    @property
    def is_news(self) -> bool:
        """Whether the follower does not know where the log starts or how far it is committed."""
        partition = self.partition
        return (
            self.sent_high_watermark != partition.high_watermark
            or self.sent_log_start != partition.log.log_start_offset
        )

    def is_at(self, offset: int) -> None:
        """Dirty or watched: the follower has all below `offset`."""
        self.fetch_offset = offset
        partition = self.partition
        if offset < partition.log.log_end_offset:
            partition.replica_waiters.pop(self, None)
            self._session.dirty[self] = None
        else:
            self.watch()
        if self.is_news:
            self._session.untold[self] = None

    def watch(self) -> None:
        """Wait until the partition grows: there is nothing to send."""
        self._session.dirty.pop(self, None)
        self.partition.replica_waiters[self] = None

    def told(self) -> None:
        """The follower is about to say where it is."""
        self._session.dirty.pop(self, None)
        self.partition.replica_waiters.pop(self, None)

    def note_sent(self) -> None:
        """The follower is being told how far the log is committed and where it starts."""
        partition, log = self.partition, self.partition.log
        self.sent_high_watermark = partition.high_watermark
        self.sent_log_start = log.log_start_offset
        if partition.high_watermark < log.log_end_offset:
            self._session.untold[self] = None
        else:
            self._session.untold.pop(self, None)

    def grown(self, partition: Partition) -> None:
        partition.replica_waiters.pop(self, None)
        self._session.dirty[self] = None
        self._session.wake()

    def advanced(self, _: int) -> None:
        """The high watermark moved, and consumers may be reading from the follower (KIP-392)."""
        self._session.untold[self] = None
        self._session.news_is_due = True
        self._session.wake()

    def leave(self) -> None:
        session = self._session
        session.dirty.pop(self, None)
        session.untold.pop(self, None)
        self.partition.replica_waiters.pop(self, None)
        self.partition.waiters.pop(self, None)
        session.partitions.pop(self.key, None)


class ReplicaSession:
    """Partitions that one follower fetches from this broker."""

    __slots__ = (
        "_deadline",
        "_is_woken",
        "_scheduler",
        "_timer",
        "_waiting",
        "broker_epoch",
        "dirty",
        "epoch",
        "id",
        "news_is_due",
        "news_told_ms",
        "partitions",
        "tells_high_watermarks",
        "untold",
        "uses_topic_ids",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        session_id: int,
        broker_epoch: int,
        *,
        uses_topic_ids: bool,
        tells_high_watermarks: bool,
    ) -> None:
        self.id = session_id
        self.broker_epoch = broker_epoch
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.tells_high_watermarks = tells_high_watermarks
        """True if the follower is told of high watermarks at once, and not with the next records."""
        self.partitions: dict[Key, Followed] = {}
        self.dirty: dict[Followed, None] = {}
        self.untold: dict[Followed, None] = {}
        """Partitions whose high watermark was below the log's end when it was told: there will be news of them."""
        self.news_is_due = False
        self.news_told_ms = 0
        self._scheduler = scheduler
        self._waiting: Waiting | None = None
        self._is_woken = False
        self._deadline = 0.0
        self._timer: Cancellable | None = None

    @classmethod
    def without_memory(cls, scheduler: Scheduler, *, uses_topic_ids: bool) -> "ReplicaSession":
        """Make a session for one request, after which it is gone."""
        return cls(scheduler, NO_SESSION, NO_BROKER_EPOCH, uses_topic_ids=uses_topic_ids, tells_high_watermarks=False)

    def answered(self) -> None:
        """A request has its answer, or does not want it any more."""
        if self.id == NO_SESSION:
            self.close()

    def next_epoch(self) -> None:
        """A request has come that continues the session. Answers go out in order, so what waits is answered first."""
        self.epoch = next_session_epoch(self.epoch)
        if self._waiting is not None:
            self.interrupt()

    def follow(self, key: Key, partition: Partition) -> Followed:
        """The partition as it is followed; a leader of another epoch is another partition."""
        followed = self.partitions.get(key)
        if followed is not None:
            if followed.partition is partition:
                return followed
            followed.leave()
        followed = self.partitions[key] = Followed(self, key, partition)
        return followed

    def wait(self, waiting: Waiting, max_wait_ms: int) -> None:
        """Let it try whenever something grew, until it has answered or the time is up."""
        self._waiting = waiting
        self._deadline = self._scheduler.time() + max_wait_ms / 1000
        if self._timer is None:
            self._timer = self._scheduler.call_at(self._deadline, self._check_time)

    def stop_waiting(self, waiting: Waiting) -> None:
        """The follower's connection is gone."""
        if self._waiting is waiting:
            self._waiting = None

    def wake(self) -> None:
        """Look again at the end of the loop's turn, so that several appends of one wake-up go into one answer."""
        if self._waiting is not None and not self._is_woken:
            self._is_woken = True
            self._scheduler.call_soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.attempt(False):
            self._waiting = waiting

    def _check_time(self) -> None:
        """One timer for all requests: it is set anew only when it fires."""
        self._timer = None
        if self._waiting is None:
            return
        if self._deadline > self._scheduler.time() + TIMER_TOLERANCE_S:
            self._timer = self._scheduler.call_at(self._deadline, self._check_time)
        else:
            self.interrupt()

    def interrupt(self) -> None:
        """Answer the request that waits: the time is up, or the follower asks anew."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.attempt(True)

    def close(self) -> None:
        self.interrupt()
        if self._timer is not None:
            self._timer.cancel()
        for followed in tuple(self.partitions.values()):
            followed.leave()


class ReplicaSessions:
    """One session for each broker that is registered: it is begun for no other, and ends with the registration."""

    def __init__(self, random: Random, scheduler: Scheduler) -> None:
        self._random = random
        self._scheduler = scheduler
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """An image listener: a broker that left, or was started anew, has no session any more."""
        if old.brokers is new.brokers:
            return
        for replica_id, session in tuple(self._sessions.items()):
            broker = new.brokers.get(replica_id)
            if broker is None or broker.epoch != session.broker_epoch:
                del self._sessions[replica_id]
                session.close()

    def of(self, replica_id: int) -> ReplicaSession | None:
        return self._sessions.get(replica_id)

    def begin(
        self, replica_id: int, broker_epoch: int, *, uses_topic_ids: bool, tells_high_watermarks: bool
    ) -> ReplicaSession:
        """A new session of a registered broker, in place of the one before."""
        before = self._sessions.pop(replica_id, None)
        if before is not None:
            before.close()
        session = ReplicaSession(
            self._scheduler,
            self._random.randrange(1, EPOCH_MAX),
            broker_epoch,
            uses_topic_ids=uses_topic_ids,
            tells_high_watermarks=tells_high_watermarks,
        )
        self._sessions[replica_id] = session
        return session

    def go_on(self, replica_id: int, session_id: int, epoch: int, *, uses_topic_ids: bool) -> ReplicaSession:
        """The session that a request belongs to; raises ApiError for the session errors of KIP-227."""
        session = self._sessions.get(replica_id)
        if session is None or session.id != session_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {session_id}")
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session is by topic name or by id, not both")
        if session.epoch != epoch:
            reason = f"fetch session {session.id} is at epoch {session.epoch}, not {epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, reason)
        session.next_epoch()
        return session
