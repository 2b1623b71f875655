"""The tools: one file per command, each a wire client that works on any Kafka cluster. Never imports the broker."""
