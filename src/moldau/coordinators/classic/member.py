"""The members of a classic group: who they are, what they support, and whether they wait for an answer."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from moldau.coordinators.classic.subscription_bytes import parse_subscription
from moldau.coordinators.promise import Promise
from moldau.core.invariants import invariant
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.protocol.messages.k11_join_group import JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k14_sync_group import SyncGroupResponse


class ClassicMember:
    """One member. A parked JoinGroup or SyncGroup is the promise that it holds."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Sequence[JoinGroupRequestProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """True until its first join is answered; so long it cannot send heartbeats."""
        self.awaiting_join: Promise[JoinGroupResponse] | None = None
        self.awaiting_sync: Promise[SyncGroupResponse] | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether the member waits for an answer of ours: it cannot send heartbeats then, and its silence is not its
        fault."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Metadata that the member gave for a protocol; empty if it does not know the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The candidate it likes best: members list their protocols in order of preference."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def matches(self, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether it says the same of itself as before."""
        return list(self.protocols) == list(protocols)

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Release a parked join; without one there is nothing to do."""
        promise, self.awaiting_join = self.awaiting_join, None
        if promise is not None:
            promise.complete(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Release a parked sync. False: there was none."""
        promise, self.awaiting_sync = self.awaiting_sync, None
        if promise is not None:
            promise.complete(response)
        return promise is not None

    def refuse(self, code: ErrorCode, member_id: str) -> None:
        """Answer whatever is parked with an error: this member is no longer one."""
        self.answer_join(refusal(code, member_id))
        self.answer_sync(SyncGroupResponse(error_code=code))


class ClassicMembers:
    """All members of a group in the order of their coming, with the leader among them."""

    def __init__(self) -> None:
        self.leader_id: str | None = None
        self._members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def static_id(self, instance_id: str | None) -> str | None:
        """The member id that an instance has now."""
        return None if instance_id is None else self._static.get(instance_id)

    def validate(self, member_id: str, instance_id: str | None) -> None:
        """Raise unless this is a member. An instance that has another member id by now is fenced (KIP-345)."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member of instance {instance_id}")
            if current != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} is another member now")
        if member_id not in self._members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id}")

    def add(self, member: ClassicMember) -> None:
        """The first to come leads."""
        invariant(member.member_id not in self._members, f"member {member.member_id} is there already")
        self._members[member.member_id] = member
        self._supporters.update(_names(member.protocols))
        if member.instance_id is not None:
            invariant(member.instance_id not in self._static, f"instance {member.instance_id} is there already")
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicMember | None:
        """Forget a member; if it led, the longest standing one leads."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._withdraw_support(member)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> ClassicMember:
        """An instance came back under a new member id: whoever waits under the old one is fenced."""
        old_id = self._static[instance_id]
        member = self._members.pop(old_id)
        member.refuse(ErrorCode.FENCED_INSTANCE_ID, old_id)
        member.member_id = self._static[instance_id] = new_id
        self._members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def update_protocols(self, member: ClassicMember, protocols: Sequence[JoinGroupRequestProtocol]) -> None:
        """A member joins again, maybe with another subscription."""
        self._withdraw_support(member)
        member.protocols = protocols
        self._supporters.update(_names(protocols))

    def _withdraw_support(self, member: ClassicMember) -> None:
        self._supporters.subtract(_names(member.protocols))
        self._supporters = +self._supporters  # names come from clients: none may stay behind with a count of zero

    def candidates(self) -> set[str]:
        """The protocols that every member supports."""
        return {name for name, count in self._supporters.items() if count == len(self._members)}

    def select_protocol(self) -> str:
        """Every member votes for its favourite among the candidates; of several winners the first in name."""
        candidates = self.candidates()
        invariant(bool(candidates), "members without a protocol in common")
        votes = Counter(member.vote(candidates) for member in self._members.values())
        return min(votes, key=lambda name: (-votes[name], name))

    def awaiting_join(self) -> list[ClassicMember]:
        return [member for member in self._members.values() if member.awaiting_join is not None]

    def not_rejoined(self) -> list[ClassicMember]:
        return [member for member in self._members.values() if member.awaiting_join is None]

    def elect_joined_leader(self) -> bool:
        """The leader must be one that has joined: it is to compute the assignment. False: nobody has."""
        if self.leader_id is None:
            return False
        if self._members[self.leader_id].awaiting_join is None:
            joined = self.awaiting_join()
            if not joined:
                return False
            self.leader_id = joined[0].member_id
        return True

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """The topics that consumers read; None if their metadata cannot be understood."""
        if self._members and protocol_name is None:
            return None
        try:
            parsed = [parse_subscription(member.metadata(protocol_name)) for member in self._members.values()]
        except ProtocolError:
            return None
        return frozenset(topic for subscription in parsed for topic in subscription.topics)

    def rebalance_timeout_ms(self) -> int:
        """The most patient member decides how long all wait."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)


def refusal(code: int, member_id: str) -> JoinGroupResponse:
    """The answer to a join that failed: there is no protocol to name (before version 7 null becomes empty)."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def _names(protocols: Iterable[JoinGroupRequestProtocol]) -> set[str]:
    return {protocol.name for protocol in protocols}
