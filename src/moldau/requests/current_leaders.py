"""Leader of a partition that this broker does not lead, for answers that name it (KIP-951)."""

from typing import NamedTuple

from moldau.cluster.image import NO_LEADER
from moldau.protocol.errors import ErrorCode
from moldau.requests.context import RequestContext

WRONG_LEADER = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
NO_EPOCH = -1


class LeaderEndpoint(NamedTuple):
    """Address of a leader, on the listener on which the client came."""

    id: int
    host: str
    port: int
    rack: str | None


def leader_of(context: RequestContext, topic: str | bytes, index: int) -> tuple[int, int]:
    """Id and epoch of the leader, as far as is known here."""
    image = context.services.metadata.image
    known = image.topic_by_id(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    if known is None or index >= len(known.partitions):
        return NO_LEADER, NO_EPOCH
    state = known.partitions[index]
    return state.leader, state.leader_epoch


def leader_endpoint(context: RequestContext, leader_id: int) -> LeaderEndpoint | None:
    broker = context.services.metadata.image.brokers.get(leader_id)
    endpoint = None if broker is None else broker.endpoint(context.listener)
    if broker is None or endpoint is None:
        return None
    return LeaderEndpoint(leader_id, endpoint.host, endpoint.port, broker.rack)
