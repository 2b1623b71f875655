"""A pipeline as it is written: read, checked, and made into a spec."""
