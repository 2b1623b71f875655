"""State of a cluster as the console sees it from outside: what is read, how often, and how long it is kept."""
