"""Controlled shutdown: before a broker stops, others take over what it leads.

It says that it is going, and the controller elects others. Nobody is waited for who cannot help: a partition without
another replica in sync stays as it is, and a controller that does not answer costs a bounded time.
"""

import asyncio
import logging

from moldau.broker.registration import Registration
from moldau.cluster.image import ClusterImage
from moldau.cluster.metadata import Metadata
from moldau.core.ids import TopicPartition

log = logging.getLogger(__name__)


async def hand_over(
    metadata: Metadata, broker_id: int, registration: Registration, timeout_ms: int
) -> list[TopicPartition]:
    """Returns what this broker still leads although another could."""
    changed = asyncio.Event()
    if len(metadata.image.brokers) <= 1:
        return []
    end = metadata.subscribe(lambda _old, _new: changed.set())
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await registration.mark_shutting_down()
            while registration.is_connected and _could_move(metadata.image, broker_id):
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pass
    finally:
        end()
    left = _could_move(metadata.image, broker_id)
    if left:
        log.warning("%d partitions are still led here, %s among them", len(left), left[0])
    return left


def _could_move(image: ClusterImage, broker_id: int) -> list[TopicPartition]:
    """Partitions that the broker leads and another in-sync replica could lead."""
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if state.leader == broker_id
        and any(other != broker_id and image.may_lead(other, topic.name, index) for other in state.isr)
    ]
