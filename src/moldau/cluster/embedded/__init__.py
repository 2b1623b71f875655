"""The metadata store of one machine: a SQLite file that any number of broker processes share."""
