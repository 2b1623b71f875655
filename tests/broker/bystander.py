"""A client that works while others attack: a produce, a fetch and a heartbeat, over and over, each timed.

A process of its own, so that nothing in the test's process counts. Prints the latencies in microseconds when its input
ends.
"""

import sys
import threading
import time

from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.records.batch import Record, build_batch
from tests.broker.raw import RawClient

PRODUCE, API_VERSIONS = 0, 18
PAUSE_S = 0.002


def main(bootstrap: str, topic: str) -> None:
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    batch = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v", headers=())])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    produce = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    latencies = []
    with RawClient(bootstrap) as client:
        while not ended.wait(PAUSE_S):
            began = time.perf_counter()
            client.ask(PRODUCE, 9, produce, ProduceResponse)
            client.ask(API_VERSIONS, 3, ApiVersionsRequest(), ApiVersionsResponse)
            latencies.append(int(1e6 * (time.perf_counter() - began)))
    print(*latencies)  # noqa: T201  # for the test that started it


if __name__ == "__main__":
    main(*sys.argv[1:])
