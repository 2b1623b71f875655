"""Pipelines that the console was told of: their files, how they are, and their runs."""
