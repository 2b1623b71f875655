"""The command line tools, against a running broker."""
