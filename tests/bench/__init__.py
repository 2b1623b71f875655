"""The report of the benchmark: a wrong verdict there would go unseen."""
