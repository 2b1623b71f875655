"""The web console: a wire client of any Kafka cluster, in a process of its own."""
