"""Metrics of a broker."""
