"""State machines without I/O: groups, offsets, transactions. Empty until consumer groups come."""
