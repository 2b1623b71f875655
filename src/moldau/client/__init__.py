"""Parts of what programs import, on any Kafka cluster: lines of a log and their way to a topic (`moldau.logging`)."""
