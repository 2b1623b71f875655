"""Who is told of the cluster's image, in which order, and until when."""

import asyncio
from pathlib import Path

import pytest

from moldau.broker.cluster_member import ClusterMember
from moldau.broker.isr_changes import IsrProposals
from moldau.cluster.image import ClusterImage
from moldau.testing.brokers import BrokerInLoop

ORDER = [
    "RecentBrokers.note",
    "ReplicaSessions.image_changed",
    "Roles.image_changed",
    "Comeback.image_changed",
    "IsrProposals.image_changed",
    "Fetchers.image_changed",
    "ClusterMember._tell_coordinators",
    "Controller.image_changed",
]


def test_the_roles_are_applied_before_the_isr_logic_sees_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int | None]] = []
    image_changed = IsrProposals.image_changed

    def noted(self: IsrProposals, old: ClusterImage, new: ClusterImage) -> None:
        """The leader epochs that the image gives this broker, each with the one that it leads in."""
        for topic in new.topics.values():
            for index, state in enumerate(topic.partitions):
                led = self._parts.replicas.find(topic.name, index)
                seen.append((state.leader_epoch, None if led is None else led.leader_epoch))
        image_changed(self, old, new)

    async def test() -> None:
        kafka = BrokerInLoop(tmp_path)
        await kafka.start()
        me = kafka.broker.broker_id
        await kafka.broker.parts.metadata.create_topic("t", [[me], [me]])
        await kafka.stop()
        await kafka.start()  # with an image that has everything
        await kafka.stop()

    monkeypatch.setattr(IsrProposals, "image_changed", noted)
    asyncio.run(test())
    assert len(seen) >= 4
    assert all(told == led for told, led in seen if told >= 0), seen


def test_listeners_are_told_in_this_order_and_after_the_stop_nobody_is(tmp_path: Path) -> None:
    async def test() -> None:
        kafka = BrokerInLoop(tmp_path)
        await kafka.start()
        member, metadata = _member(kafka), kafka.broker.parts.metadata
        subscribed = [each._listener for each in metadata._listeners._subscriptions]
        assert [each.__qualname__ for each in subscribed] == ORDER
        assert subscribed == list(member.listeners())
        await kafka.stop()
        assert metadata._listeners._subscriptions == []

    asyncio.run(test())


def _member(kafka: BrokerInLoop) -> ClusterMember:
    return kafka.broker._running.member
