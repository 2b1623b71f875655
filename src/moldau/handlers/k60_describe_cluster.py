"""DescribeCluster, versions 0 to 2 (KIP-700).

The brokers that are alive, at the addresses of the listener that the client came through, and the controller.

- 1+: `endpoint_type` 1 asks for brokers, 2 for KRaft controllers: MISMATCHED_ENDPOINT_TYPE here (KIP-919).
- 2+: `include_fenced_brokers` adds none: a broker of ours is registered and alive, or it is not there (KIP-1073).
- The cluster's authorized operations are told on request (KIP-430).
"""

from moldau.cluster.image import ClusterImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.requests.authorization import NOT_ASKED
from moldau.requests.context import RequestContext

BROKERS = 1
CONTROLLERS = 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="this is a broker, not a controller"
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"there are no endpoints of type {request.endpoint_type}",
        )
    image = context.services.metadata.image
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=_brokers(image, context.listener),
        cluster_authorized_operations=context.cluster_rights() if asked else NOT_ASKED,
    )


def _brokers(image: ClusterImage, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in image.brokers.values()
        if (endpoint := broker.endpoint(listener)) is not None
    ]
