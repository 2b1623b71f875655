"""Records: reading a bounded part of a topic, decoding, filtering, and writing."""
