"""Access to the console: users, sessions, what a request may do, and the log of changes."""
