"""Sources, which rows come from: one file per kind (`kinds.SourceKind`)."""
