"""Questions about the state of transactions, to every broker of a cluster."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from moldau.core.ids import TopicPartition
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from moldau.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from moldau.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.faults.transactions.records import partition_of
from tests.faults.transactions.wire import GROUP, METADATA_VERSION, Refused, Unanswered, Wire

LIST_OFFSETS_VERSION, OFFSET_FETCH_VERSION, LIST_TRANSACTIONS_VERSION = 5, 7, 0
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"]


class Questions:
    """A client that asks brokers what they know; what nobody can answer now is said in the answer."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._wire = Wire(addresses, "questions", random.Random(0))

    def knows_brokers(self, count: int) -> bool:
        """Whether each broker knows so many."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        with suppress(Refused, Unanswered):
            return all(
                len(self._wire.ask(each, METADATA_VERSION, request, MetadataResponse).brokers) == count
                for each in self._addresses
            )
        return False

    def open_transactions(self) -> list[str]:
        """Transactional ids with their states, where a transaction is open or being ended."""
        found = []
        request = ListTransactionsRequest(state_filters=OPEN)
        for address in self._addresses:
            try:
                with suppress(Unanswered):  # the connection may be one to the broker before its restart
                    self._wire.ask(address, METADATA_VERSION, MetadataRequest(topics=[]), MetadataResponse)
                answer = self._wire.ask(address, LIST_TRANSACTIONS_VERSION, request, ListTransactionsResponse)
            except (Refused, Unanswered) as error:
                found.append(f"{address}: {error}")
                continue
            if answer.error_code:
                found.append(f"{address}: code {answer.error_code}")
            found += [f"{each.transactional_id}: {each.transaction_state}" for each in answer.transaction_states]
        return found

    def unstable(self, topics: Mapping[str, int]) -> list[str]:
        """Partitions whose last stable offset is not their high watermark."""
        found = []
        for topic, count in topics.items():
            for at in range(count):
                name = TopicPartition(topic, at)
                stable, end = self._end(name, READ_COMMITTED), self._end(name, READ_UNCOMMITTED)
                if stable != end or end is None:
                    found.append(f"{name} is stable up to {stable} of {end}")
        return found

    def _end(self, name: TopicPartition, isolation: int) -> int | None:
        part = ListOffsetsPartition(partition_index=name.partition, timestamp=LATEST)
        topic = ListOffsetsTopic(name=name.topic, partitions=[part])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])

        def ask() -> int | None:
            answer = self._wire.ask_leader(name, LIST_OFFSETS_VERSION, request, ListOffsetsResponse)
            (result,) = answer.topics[0].partitions
            if result.error_code:
                raise Refused(result.error_code, str(name))
            return result.offset

        return self._or_none(ask)

    def committed(self, group: str, sources: Sequence[int]) -> dict[int, int]:
        """Offsets that a group has committed of sources, all of one topic."""
        asked = {partition_of(each).partition: each for each in sources}
        topic = OffsetFetchRequestTopic(name=partition_of(sources[0]).topic, partition_indexes=list(asked))
        request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)

        def ask() -> dict[int, int]:
            answer = self._wire.ask_coordinator(GROUP, group, OFFSET_FETCH_VERSION, request, OffsetFetchResponse)
            for code in (answer.error_code, *(each.error_code for each in answer.topics[0].partitions)):
                if code:
                    raise Refused(code, group)
            return {asked[each.partition_index]: each.committed_offset for each in answer.topics[0].partitions}

        return self._wire.patiently(ask)

    def _or_none(self, ask: Callable[[], int | None]) -> int | None:
        try:
            return ask()
        except (Refused, Unanswered):
            self._wire.forget()
            return None
