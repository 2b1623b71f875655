"""Contradictions between an index and its log that a dump comes across, told at its end in the words of Kafka's."""

from collections.abc import Iterator


class Faults:
    """Faults of all dumped files, by the path of the file."""

    def __init__(self) -> None:
        self.index_mismatches: dict[str, dict[int, int]] = {}
        self.time_mismatches: dict[str, list[tuple[int, int]]] = {}
        self.times_out_of_order: dict[str, list[tuple[int, int]]] = {}
        self.offsets_not_found: dict[str, list[tuple[int, int]]] = {}
        self.gaps: dict[str, dict[int, int]] = {}
        self.errors: list[str] = []
        """Lines about files that cannot be read, or not to their end."""

    @property
    def are_serious(self) -> bool:
        """Whether something is wrong. Gaps alone are not: compacted logs have them, and every later segment begins
        with one."""
        wrong = (self.index_mismatches, self.time_mismatches, self.times_out_of_order, self.offsets_not_found)
        return any(wrong) or bool(self.errors)

    def lines(self) -> Iterator[str]:
        """Lines for standard error. What cannot be read was told at once."""
        for path, mismatches in self.index_mismatches.items():
            yield f"Mismatches in :{path}"
            for offset in sorted(mismatches, reverse=True):
                yield f"  Index offset: {offset}, log offset: {mismatches[offset]}"
        for path, pairs in self.time_mismatches.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {index}, log timestamp: {log}" for index, log in pairs)
        for path, pairs in self.times_out_of_order.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (f"  Index timestamp: {index}, Previously indexed timestamp: {last}" for index, last in pairs)
        for pairs in self.offsets_not_found.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {index}, found log offset: {log}" for index, log in pairs)
        for path, followers in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {last} is followed by {offset}" for last, offset in sorted(followers.items()))
