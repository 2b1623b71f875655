"""Sinks, which rows go to: one file per kind (`kinds.SinkKind`)."""
