"""Ids, clock, files, invariants, limits and config definitions: what every other layer may use. Imports nothing of ours."""
