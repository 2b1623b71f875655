"""Compaction: what is worth cleaning, and how a log is cleaned file to file."""
