"""Choice of the replica that a consumer should read from (KIP-392): by `replica.selector.class` one in its own rack.

Only the selector that Kafka itself has is known, by either of its names.
"""

from moldau.cluster.image import ClusterImage
from moldau.replication.partition import Partition

RACK_AWARE = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "org.apache.kafka.server.replica.RackAwareReplicaSelector",
)
THE_LEADER = -1


def preferred_read_replica(
    partition: Partition, fetch_offset: int, rack_id: str, image: ClusterImage, selector: str | None
) -> int:
    """The broker that a consumer in `rack_id` should fetch from; -1: the leader serves it.

    Among the in-sync followers of that rack that have the offset it is the one that is furthest.
    """
    if selector not in RACK_AWARE or not rack_id:
        return THE_LEADER
    best, best_end = THE_LEADER, -1
    for replica_id in partition.in_sync_replicas:
        broker = image.brokers.get(replica_id)
        if broker is None or broker.rack != rack_id:
            continue
        follower = partition.followers.get(replica_id)
        if follower is None:
            return THE_LEADER  # the leader is in the rack itself
        if follower.log_start_offset <= fetch_offset <= follower.log_end_offset and follower.log_end_offset > best_end:
            best, best_end = replica_id, follower.log_end_offset
    return best
