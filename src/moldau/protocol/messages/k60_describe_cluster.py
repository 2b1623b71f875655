"""DescribeCluster (key 60), versions 0 to 2."""

from moldau.protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Message, Struct, array, field


class DescribeClusterRequest(Message, api_key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: bool = field(BOOLEAN)
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOLEAN, "2+")


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)
    is_fenced: bool = field(BOOLEAN, "2+")


class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-(2**31))
