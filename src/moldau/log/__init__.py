"""A partition's log in Kafka's own files: segments, indexes, leader epochs, producer state, recovery, retention."""
