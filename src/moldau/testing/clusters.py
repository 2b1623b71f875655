"""A cluster that lives in the process of a test: brokers in threads, each with a loop of its own, over one store."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from moldau.cluster.image import ClusterImage
from moldau.core.files import Files
from moldau.testing.brokers import BrokerInThread, directory_for

STORE_FILE = "metadata.sqlite"
WAIT_S = 30.0


class ClusterInThread:
    """Brokers with the ids 1, 2, 3 ...; methods take these numbers."""

    def __init__(
        self,
        data: str | Path,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        files: Files | None = None,
    ) -> None:
        root = Path(data)
        root.mkdir(parents=True, exist_ok=True)
        shared = {
            "metadata.store.path": str(root / STORE_FILE),
            "offsets.topic.replication.factor": str(min(3, brokers)),
            **(properties or {}),
        }
        self.brokers = {
            number: BrokerInThread(root / f"broker-{number}", {**shared, "broker.id": str(number)}, files=files)
            for number in range(1, brokers + 1)
        }

    @property
    def running(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.is_running]

    @property
    def bootstrap(self) -> str:
        """The addresses of all running brokers, for a client's `bootstrap.servers`."""
        return ",".join(self.brokers[number].bootstrap for number in self.running)

    def start(self, number: int) -> None:
        """Start a broker at the address that it had before."""
        self.brokers[number].start()

    def stop(self, number: int) -> None:
        """Stop a broker cleanly."""
        self.brokers[number].stop()

    def kill(self, number: int) -> None:
        """End a broker as `kill -9` would: nothing is handed over, nothing is written."""
        self.brokers[number].kill()

    def wait(self, condition: Callable[[ClusterImage], bool], timeout_s: float = WAIT_S) -> ClusterImage:
        """Wait until `condition` holds for the image of every running broker; returns the image of the first."""
        changed = threading.Event()
        deadline = time.monotonic() + timeout_s
        with ExitStack() as watching:
            for number in self.running:
                watching.callback(self.brokers[number].on_image(lambda _: changed.set()))
            while True:
                changed.clear()
                images = [self.brokers[number].image for number in self.running]
                if images and all(map(condition, images)):
                    return images[0]
                if not changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"the cluster did not get there in {timeout_s:g} s: {images}")

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """The leader's number, once every running broker knows it."""

        def is_led(image: ClusterImage) -> bool:
            return topic in image.topics and image.topics[topic].partitions[partition].leader not in (-1, other_than)

        return self.wait(is_led).topics[topic].partitions[partition].leader

    def wait_for_isr(self, topic: str, isr: set[int], partition: int = 0, timeout_s: float = WAIT_S) -> ClusterImage:
        return self.wait(
            lambda image: topic in image.topics and set(image.topics[topic].partitions[partition].isr) == isr, timeout_s
        )


@contextmanager
def cluster(
    brokers: int = 3, properties: Mapping[str, str] | None = None, data: str | Path | None = None
) -> Iterator[ClusterInThread]:
    """A running cluster; its data is removed afterwards unless `data` says where to keep it."""
    with directory_for(data) as directory, ExitStack() as stack:
        made = ClusterInThread(directory, brokers, properties)
        for number, broker in made.brokers.items():
            made.start(number)
            stack.callback(broker.stop)
        made.wait(lambda image: len(image.brokers) == brokers and image.controller_id != -1)
        yield made
