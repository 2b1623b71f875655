"""Requests that look like the one before, served from bytes to bytes."""
