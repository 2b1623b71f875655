"""BrokerHeartbeat (key 63), versions 0 to 2."""

from moldau.protocol.schema import BOOLEAN, INT16, INT32, INT64, UUID, Message, array, field


class BrokerHeartbeatRequest(Message, api_key=63, versions=(0, 2), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    current_metadata_offset: int = field(INT64)
    want_fence: bool = field(BOOLEAN)
    want_shut_down: bool = field(BOOLEAN)
    offline_log_dirs: list[bytes] = field(array(UUID), "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions=(0, 2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    is_caught_up: bool = field(BOOLEAN)
    is_fenced: bool = field(BOOLEAN, default=True)
    should_shut_down: bool = field(BOOLEAN)
