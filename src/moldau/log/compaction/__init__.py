"""Compaction: the policy that says what is worth cleaning, and the cleaner that works from file to file."""
