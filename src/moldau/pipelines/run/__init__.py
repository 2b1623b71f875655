"""A pipeline at work: its queries, its progress, its storage."""
