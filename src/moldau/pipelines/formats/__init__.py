"""Formats: how the value of a record becomes columns and back, one file per format (`kinds.FormatKind`)."""
