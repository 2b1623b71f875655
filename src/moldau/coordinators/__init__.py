"""State machines without I/O: consumer groups of both protocols, and the offsets they commit."""
