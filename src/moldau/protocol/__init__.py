"""Bytes to values and back: message tables, generated codecs, framing, error codes. Knows nothing of a broker."""
