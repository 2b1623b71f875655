"""The request that elects leaders of partitions."""

from collections.abc import Iterable

from moldau.cli.cluster_queries import describe_cluster
from moldau.cli.partition_queries import Partition, by_topic
from moldau.cli.refusals import check
from moldau.cli.wire import WireCluster
from moldau.protocol.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

KINDS = {"preferred": 0, "unclean": 1}


def elect_leaders(
    cluster: WireCluster, partitions: Iterable[Partition], kind: str
) -> dict[Partition, tuple[int, str | None]]:
    """Error code and message of each election."""
    request = ElectLeadersRequest(
        election_type=KINDS[kind],
        topic_partitions=[
            TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ],
    )
    controller = describe_cluster(cluster).controller
    connection = cluster.any() if controller < 0 else cluster.broker(controller)
    answer = connection.request(request, ElectLeadersResponse)
    check("leaders are not elected", answer.error_code)
    return {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
