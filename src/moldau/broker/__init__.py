"""The shell: listeners, connections, background tasks, wiring. The only layer that constructs things."""
