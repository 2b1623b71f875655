"""Looking at data directories: reads files of brokers, Moldau's or Apache Kafka's, running or not; changes nothing."""
