"""Ids, clock, files, invariants, limits and config definitions: what every layer may use. Imports nothing of ours."""
