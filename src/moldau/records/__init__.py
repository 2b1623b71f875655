"""Record batches v2, the message sets of old clients, compression, and a leader's checks before an append."""
