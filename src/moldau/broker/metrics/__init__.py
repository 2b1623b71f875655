"""Metrics of a broker by HTTP. Only `listener.py` and `observed.py` are imported at the start, the rest with the first
question."""
