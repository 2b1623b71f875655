"""Dead letters: the headers by which a record that could not be handled says whence it comes and why it is here.

Names and texts, all in UTF-8: `moldau.dlq.pipeline` (of a consumer: its group), `.source`, `.topic`, `.partition`,
`.offset`, `.timestamp` (milliseconds), `.reason`; and `.attempts`, the number of times that the record has been sent
back. Pipelines write the same, and `moldau pipeline redrive` reads them.
"""

from moldau.client.records import Headers

PREFIX = "moldau.dlq."
REASON_MAX = 1000
"""Characters of a reason: a decoder may write a long text, and people read headers."""


def letter_headers(
    headers: Headers, group: str, topic: str, partition: int, offset: int, timestamp_ms: int, reason: str
) -> Headers:
    """Headers of a dead letter: those of the record, then where it was and why it is none any more."""
    said = {
        "pipeline": group,
        "source": topic,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "reason": " ".join(reason.split())[:REASON_MAX],
    }
    return [*headers, *((PREFIX + name, str(value).encode(errors="backslashreplace")) for name, value in said.items())]
