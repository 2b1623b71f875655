"""Ids, clock, files, invariants, limits and config definitions for every layer. Imports nothing of ours."""
