"""Roll policy: whether the last segment takes more, or a new one is due, by its size, indexes, offsets and age."""

from moldau.core.topic_config import TopicConfig
from moldau.log.segment import NO_ROOM, RELATIVE_OFFSET_MAX, UNSETTLED_MAX, Room, Segment


def fits(segment: Segment, config: TopicConfig, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
    """Whether `size` bytes that end with `last_offset` and `timestamp` may still go into `segment`."""
    return (
        segment.size + size <= config.segment_bytes
        and last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
        and (segment.size == 0 or (segment.index_entries_left > 0 and not is_old(segment, config, timestamp, now_ms)))
    )


def is_old(segment: Segment, config: TopicConfig, timestamp: int, now_ms: int) -> bool:
    """Whether a segment is old, by the time of its records where they have one, as Kafka counts it."""
    first = segment.first_timestamp
    age_ms = timestamp - first if first >= 0 else now_ms - segment.created_ms
    return age_ms > _age_ms_max(segment, config)


def room_in(segment: Segment, config: TopicConfig) -> Room:
    """The bounds below which `fits` need not be asked, for a segment whose age its records show."""
    if segment.size == 0 or segment.first_timestamp < 0 or segment.index_entries_left <= UNSETTLED_MAX:
        return NO_ROOM
    return Room(
        config,
        config.segment_bytes,
        segment.base_offset + RELATIVE_OFFSET_MAX,
        segment.first_timestamp + _age_ms_max(segment, config),
    )


def _age_ms_max(segment: Segment, config: TopicConfig) -> int:
    age_ms_max = config.segment_ms
    if config.max_compaction_lag_ms < age_ms_max and config.is_compacted:
        age_ms_max = config.max_compaction_lag_ms  # only what is not in the active segment can be compacted
    return age_ms_max - segment.jitter_ms(config.segment_jitter_ms)
