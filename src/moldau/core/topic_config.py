"""A topic's configuration: Kafka's topic properties, their rules, and the broker properties they fall back to."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moldau.core.broker_config import FLUSH_MS, RETENTION_MS, ROLL_JITTER_MS, ROLL_MS, BrokerConfig
from moldau.core.config import LONG_MAX, ConfigError, ConfigKey, Value, parse_value, read_table, shown

log = logging.getLogger(__name__)

_REPLICA = re.compile(r"[0-9]+:[0-9]+")

_DIFFERENCE, _BEFORE, _AFTER = (f"message.timestamp.{side}.max.ms" for side in ("difference", "before", "after"))
SEGMENT_BYTES_FOR_TESTS = "internal.segment.bytes"  # Kafka's way around its lower limit of segment.bytes (KIP-1030)

# The fourth column is the broker property that holds where the topic says nothing.
# segment.bytes has the lower limit of Kafka 3, not the 1 MiB of Kafka 4 (KIP-1030): small ones are good for tests.
_TABLE = """
cleanup.policy LIST delete log.cleanup.policy [compact/delete] | Delete old records, compact them by key, or both.
compression.gzip.level INT -1 compression.gzip.level -1..9 | Level when the broker compresses with gzip.
compression.lz4.level INT 9 compression.lz4.level 1..17 | Level when the broker compresses with lz4.
compression.type STRING producer compression.type uncompressed/zstd/lz4/snappy/gzip/producer \
| Codec on disk; `producer` keeps the sender's.
compression.zstd.level INT 3 compression.zstd.level -131072..22 | Level when the broker compresses with zstd.
delete.retention.ms LONG 86400000 log.cleaner.delete.retention.ms 0.. | How long a tombstone stays after compaction.
file.delete.delay.ms LONG 60000 log.segment.delete.delay.ms 0.. | How long a deleted segment's files stay on disk.
flush.messages LONG 9223372036854775807 log.flush.interval.messages 1.. | Records after which the log is flushed.
flush.ms LONG 9223372036854775807 log.flush.interval.ms 0.. | Time after which the log is flushed.
follower.replication.throttled.replicas LIST "" - * | Replicas whose fetching is throttled: partition:broker, or *.
index.interval.bytes INT 4096 log.index.interval.bytes 0.. | Bytes of log between two index entries.
leader.replication.throttled.replicas LIST "" - * | Replicas to which sending is throttled: partition:broker, or *.
local.retention.bytes LONG -2 log.local.retention.bytes -2.. | Of tiered storage: accepted, as Kafka does without it.
local.retention.ms LONG -2 log.local.retention.ms -2.. | Of tiered storage: accepted, as Kafka does without it.
max.compaction.lag.ms LONG 9223372036854775807 log.cleaner.max.compaction.lag.ms 1.. | Age that makes cleaning due.
max.message.bytes INT 1048588 message.max.bytes 0.. | Largest record batch that is taken.
message.downconversion.enable BOOLEAN true log.message.downconversion.enable * | Whether old consumers are served.
message.format.version STRING 3.0 log.message.format.version * | Accepted for compatibility: format 2 is stored.
message.timestamp.after.max.ms LONG 3600000 log.message.timestamp.after.max.ms 0.. | How new a timestamp may be.
message.timestamp.before.max.ms LONG 9223372036854775807 log.message.timestamp.before.max.ms 0.. \
| How old a timestamp may be.
message.timestamp.difference.max.ms LONG 9223372036854775807 log.message.timestamp.difference.max.ms 0.. \
| Both limits at once, as before Kafka 3.6.
message.timestamp.type STRING CreateTime log.message.timestamp.type CreateTime/LogAppendTime \
| Whose clock a record's timestamp is from.
min.cleanable.dirty.ratio DOUBLE 0.5 log.cleaner.min.cleanable.ratio 0..1 | Share of new bytes that makes it due.
min.compaction.lag.ms LONG 0 log.cleaner.min.compaction.lag.ms 0.. | Age below which records are not compacted.
min.insync.replicas INT 1 min.insync.replicas 1.. | In-sync replicas without which an acks=all write is refused.
preallocate BOOLEAN false log.preallocate * | Whether the space of a new segment is reserved at once.
remote.log.copy.disable BOOLEAN false - * | Of tiered storage: accepted, as Kafka does without it.
remote.log.delete.on.disable BOOLEAN false - * | Of tiered storage: accepted, as Kafka does without it.
remote.storage.enable BOOLEAN false - * | Tiered storage, which is not served here: only false is taken.
retention.bytes LONG -1 log.retention.bytes * | Size of a partition past which old segments go; -1 is no limit.
retention.ms LONG 604800000 log.retention.ms -1.. | How long records are kept; -1 is for ever.
segment.bytes INT 1073741824 log.segment.bytes 14.. | Size at which a segment is closed and the next begun.
segment.index.bytes INT 10485760 log.index.size.max.bytes 4.. | Largest offset index; full, it closes the segment.
segment.jitter.ms LONG 0 log.roll.jitter.ms 0.. | Largest random part taken off segment.ms.
segment.ms LONG 604800000 log.roll.ms 1.. | Age at which a segment is closed.
unclean.leader.election.enable BOOLEAN false unclean.leader.election.enable * | Whether any replica may lead.
internal.segment.bytes INT ~ - 14.. | segment.bytes under the name that Kafka's own tests use.
"""

_ROWS = tuple(read_table(_TABLE))
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key, _synonym in _ROWS}
BROKER_SYNONYM: dict[str, str] = {key.name: synonym for key, synonym in _ROWS if synonym != "-"}
"""The broker property that a topic property falls back to."""

_SEVERAL_UNITS = {
    "flush.ms": FLUSH_MS,
    "retention.ms": RETENTION_MS,
    "segment.jitter.ms": ROLL_JITTER_MS,
    "segment.ms": ROLL_MS,
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic. Sizes in bytes, times in milliseconds, -1 where Kafka means "no limit"."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def of(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> "TopicConfig":
        """The settings of a topic with these `overrides` on a broker with this configuration."""
        values = {name: effective_value(broker, overrides, name) for name in _FIELD_KEYS}
        _apply_timestamp_difference(values, broker, overrides)
        fields: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
        fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
        if SEGMENT_BYTES_FOR_TESTS in overrides:
            fields["segment_bytes"] = int(overrides[SEGMENT_BYTES_FOR_TESTS])
        return cls(**fields)


_FIELD_KEYS = tuple(name for name in TOPIC_KEYS if name.replace(".", "_") in TopicConfig.__slots__)


@lru_cache(1000)
def _warn_once(error: str) -> None:
    log.warning("a topic's setting is ignored: %s", error)


def effective_value(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value | None:
    """The value of topic property `name` that holds: the topic's, else the broker's, else the default."""
    key = TOPIC_KEYS[name]
    if name in overrides:
        try:
            return parse_value(key, overrides[name])
        except ConfigError as error:  # a tool that writes to the store checks nothing, or not by our rules
            _warn_once(str(error))
    if name in _SEVERAL_UNITS:
        return broker.first_ms(_SEVERAL_UNITS[name])
    if name in BROKER_SYNONYM:
        return broker.value(BROKER_SYNONYM[name])
    return None if key.default is None else parse_value(key, key.default)


def _apply_timestamp_difference(
    values: dict[str, Value | None], broker: BrokerConfig, overrides: Mapping[str, str]
) -> None:
    """Let the one limit from before Kafka 3.6 stand for both, where only it is set."""
    if _DIFFERENCE not in overrides and not broker.is_explicit("log." + _DIFFERENCE):
        return
    for name in (_BEFORE, _AFTER):
        if name not in overrides and not broker.is_explicit("log." + name):
            values[name] = effective_value(broker, overrides, _DIFFERENCE)


def validate_overrides(overrides: Mapping[str, str]) -> None:
    """Refuse unknown names, bad values and contradictions with a ConfigError."""
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise ConfigError(name, "there is no such topic property")
        values[name] = parse_value(key, text)
        problem = _problem(name, values[name])
        if problem:
            raise ConfigError(name, f"{shown(text)} {problem}")
    _check_compaction_lag(values)


def _problem(name: str, value: Value) -> str | None:
    if name == "remote.storage.enable" and value is True:
        return "asks for tiered storage, which is not served here"
    if name.endswith(".throttled.replicas") and isinstance(value, tuple) and value != ("*",):
        return None if all(map(_REPLICA.fullmatch, value)) else "must be * or a list of partition:broker"
    return None


def _check_compaction_lag(values: Mapping[str, Any]) -> None:
    low, high = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", LONG_MAX)
    if low > high:
        raise ConfigError("min.compaction.lag.ms", f"{low} is more than max.compaction.lag.ms {high}")
