"""The pages of `metrics.listener` for a broker that runs. Imported with the first question: no start needs them."""

import asyncio

from moldau.broker.metrics.client_telemetry import client_page, telemetry_families
from moldau.broker.metrics.cluster import ClusterMemory
from moldau.broker.metrics.exposition import Family, Format, preferred, rendered
from moldau.broker.metrics.groups import GroupMemory
from moldau.broker.metrics.listener import Page, Question
from moldau.broker.metrics.observed import Observed
from moldau.broker.metrics.partitions import partition_families
from moldau.broker.metrics.process import process_families
from moldau.broker.metrics.topology import TopologyMemory
from moldau.broker.metrics.traffic import TrafficMemory
from moldau.cluster.store import SessionState
from moldau.protocol.codec import Steps
from moldau.requests.turns import Turns


class Pages:
    """Scrapes and readiness of one broker."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._cluster = ClusterMemory()
        self._traffic = TrafficMemory()
        self._groups = GroupMemory()
        self._topology = TopologyMemory()
        self._scrapes: dict[Format, asyncio.Task[bytes]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, question: Question) -> Page:
        if question.path == "/readyz":
            missing = await Turns().run(not_ready(self._observed))
            return Page(503, f"{missing}\n".encode()) if missing else Page(200, b"ready\n")
        if question.path == "/clients":
            return Page(200, await Turns().run(client_page(self._observed)), "application/json")
        form = preferred(question.accept)
        return Page(200, await self._scrape(form), form.content_type)

    async def _scrape(self, form: Format) -> bytes:
        """The text, made in turns with requests. Whoever asks while it is made shares it."""
        task = self._scrapes.get(form)
        if task is None:
            task = self._scrapes[form] = asyncio.ensure_future(self._made(form))
            task.add_done_callback(lambda _: self._scrapes.pop(form))
        return await asyncio.shield(task)  # one who goes away does not take it from the others

    async def _made(self, form: Format) -> bytes:
        """One text after the other: two that look side by side at how far counters have grown would add it up twice."""
        async with self._one_at_a_time:
            return await Turns().run(self._text(form))

    def _text(self, form: Format) -> Steps[bytes]:
        families: list[Family] = []
        families += yield from self._cluster.families(self._observed)
        families += yield from partition_families(self._observed)
        families += yield from self._traffic.families(self._observed)
        families += yield from self._groups.families(self._observed)
        families += yield from self._topology.families(self._observed)
        families += process_families(self._observed)
        families += telemetry_families(self._observed)
        yield
        return (yield from rendered(families, form))


def not_ready(observed: Observed) -> Steps[str]:
    """Reason why clients should not be sent here yet; empty: there is none."""
    parts, image = observed.parts, observed.parts.metadata.image
    if observed.store.session_state is not SessionState.CONNECTED:
        return "the metadata store is not connected"
    me = image.brokers.get(parts.broker_id)
    if me is None:
        return "the broker is not registered"
    if me.shutting_down:
        return "the broker is shutting down"
    if image.controller_id < 0:
        return "the cluster has no controller"
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            is_here = parts.broker_id not in state.replicas or parts.replicas.replica(topic.name, index) is not None
            if not is_here and image.is_usable(parts.broker_id, topic.name, index):
                return f"the log of {topic.name}-{index} is not open yet"
        yield
    return ""
