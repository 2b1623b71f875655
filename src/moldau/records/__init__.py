"""Record batches v2, the message sets of old clients, compression, and what a leader checks before an append."""
