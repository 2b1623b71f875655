"""EndTxn (key 26), versions 0 to 5."""

from moldau.protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, field


class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOLEAN)


class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)
