"""One request while it is served: who asks, what it may, what it waits for, and what several handlers share."""
