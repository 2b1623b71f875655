"""Pipeline files: read, checked, and made into a spec."""
