"""Hypothesis without a deadline (a busy machine is no failure) and with the line that reproduces a failure."""

from hypothesis import settings

settings.register_profile("records", deadline=None, print_blob=True)
settings.load_profile("records")
