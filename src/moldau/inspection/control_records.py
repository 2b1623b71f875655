"""Control records: the ends of transactions, and what the controllers of KRaft note in their log, in Kafka's words."""

from struct import Struct as Layout

from moldau.inspection.kafka_json import as_json, compact
from moldau.protocol.codec import decode
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import INT16, INT32, INT64, STRING, UINT16, UUID, Message, Struct, array, field
from moldau.records.record import Record

_TYPE = Layout(">hh")
_MARKER = Layout(">hi")
_MARKERS = ("ABORT", "COMMIT")


class Voter(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID, "1+")


class LeaderChange(Message, versions=(0, 1), flexible=0):
    version: int = field(INT16)
    leader_id: int = field(INT32)
    voters: list[Voter] = field(array(Voter))
    granting_voters: list[Voter] = field(array(Voter))


class SnapshotHeader(Message, versions=(0, 0), flexible=0):
    version: int = field(INT16)
    last_contained_log_timestamp: int = field(INT64)


class SnapshotFooter(Message, versions=(0, 0), flexible=0):
    version: int = field(INT16)


class KRaftVersion(Message, versions=(0, 0), flexible=0):
    version: int = field(INT16)
    k_raft_version: int = field(INT16)


class Endpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class VersionRange(Struct):
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class VoterState(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)
    endpoints: list[Endpoint] = field(array(Endpoint))
    k_raft_version_feature: VersionRange = field(VersionRange)


class KRaftVoters(Message, versions=(0, 0), flexible=0):
    version: int = field(INT16)
    voters: list[VoterState] = field(array(VoterState))


_TABLES: dict[int, tuple[str, type[Message]]] = {
    2: ("LeaderChange:", LeaderChange),
    3: ("SnapshotHeader", SnapshotHeader),
    4: ("SnapshotFooter", SnapshotFooter),
    5: ("KRaftVersion", KRaftVersion),
    6: ("KRaftVoters", KRaftVoters),
}
"""Words before the value and its table, by the type in the record's key."""


class Control:
    """A control record, in words and for programs."""

    __slots__ = ("text", "value")

    def __init__(self, record: Record) -> None:
        kind = _TYPE.unpack_from(record.key)[1] if record.key is not None and len(record.key) >= _TYPE.size else -1
        self.text = f"controlType: UNKNOWN({kind})"
        self.value: dict[str, object] = {"controlType": kind}
        data = record.value or b""
        if kind in (0, 1) and len(data) >= _MARKER.size:
            epoch = _MARKER.unpack_from(data)[1]
            self.text = f"endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {epoch}"
            self.value = {"endTxnMarker": _MARKERS[kind], "coordinatorEpoch": epoch}
        elif kind in _TABLES:
            name, table = _TABLES[kind]
            version = int.from_bytes(data[:2], "big", signed=True)
            try:
                told = as_json(decode(table, version, data), version)
            except (ProtocolError, ValueError):
                return  # a version of the future
            self.text, self.value = f"{name} {compact(told)}", {name.rstrip(":"): told}
