"""Traffic of a log since it was opened: numbers that a scrape reads."""


class Traffic:
    """Counts of a partition's leader and of its readers. Whoever appends or reads adds to them, and one addition is a
    two-hundredth of what a small request costs: what can be told from the log itself is not counted here."""

    __slots__ = ("appends", "bytes_out", "failed_appends", "failed_reads", "lane_appends", "reads")

    def __init__(self) -> None:
        self.lane_appends = 0
        """Batches that went the short way (`replication/lane.py`)."""
        self.appends = 0
        """Batches that went the long way."""
        self.failed_appends = 0
        """Batches that were refused for a reason that Kafka counts as a failure."""
        self.reads = 0
        """Reads for consumers that found something."""
        self.failed_reads = 0
        """Reads that failed for a reason that nobody expects."""
        self.bytes_out = 0

    def numbers(self) -> tuple[int, ...]:
        """All of them, in the order of the names."""
        return (
            self.appends,
            self.bytes_out,
            self.failed_appends,
            self.failed_reads,
            self.lane_appends,
            self.reads,
        )
