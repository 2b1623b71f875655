"""Images made by hand and by chance, for tests of decisions."""

from collections.abc import Iterable
from random import Random

from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage, PartitionImage, TopicImage

TOPIC_ID = bytes(15) + b"\x01"


def image_of(
    *partitions: PartitionImage, alive: Iterable[int] = (1, 2, 3), leaving: Iterable[int] = (), name: str = "t"
) -> ClusterImage:
    """A topic with these partitions; `leaving` brokers are alive and shut down."""
    brokers = {id_: BrokerInfo(id_, None, (), id_, id_ in leaving) for id_ in (*alive, *leaving)}
    return ClusterImage(brokers=brokers).with_topic(TopicImage(name, TOPIC_ID, partitions, {}))


def with_offline(image: ClusterImage, broker: int, partition: int = 0, topic: str = "t") -> ClusterImage:
    """The image with a failed log directory on one broker."""
    return image.with_broker(image.brokers[broker]._replace(offline={topic: (partition,)}))


def random_image(random: Random) -> ClusterImage:
    """An image of a few topics, each partition as some legal past left it, and any brokers alive."""
    everybody = range(1, random.randint(2, 6) + 1)
    brokers = {id_: _random_broker(random, id_) for id_ in everybody if random.random() < 0.7}
    topics = [
        TopicImage(
            f"t{number}",
            number.to_bytes(16),
            tuple(_random_partition(random, everybody) for _ in range(random.randint(1, 4))),
            {},
            random.randint(0, 9),
        )
        for number in range(1, random.randint(1, 3) + 1)
    ]
    return ClusterImage(brokers=brokers).with_topics(topics)


def _random_broker(random: Random, id_: int) -> BrokerInfo:
    offline = {"t1": (random.randint(0, 3),)} if random.random() < 0.2 else {}
    return BrokerInfo(id_, None, (), random.randint(1, 99), random.random() < 0.2, offline)


def _random_partition(random: Random, everybody: range) -> PartitionImage:
    replicas = tuple(random.sample(everybody, random.randint(1, len(everybody))))
    if random.random() < 0.1:
        return PartitionImage(NO_LEADER, -1, (), replicas, -1)
    adding, removing = _random_move(random, replicas)
    isr = tuple(random.sample(replicas, random.randint(1, len(replicas))))
    leader = random.choice((*isr, NO_LEADER))
    return PartitionImage(leader, random.randint(0, 9), isr, replicas, random.randint(0, 9), adding, removing)


def _random_move(random: Random, replicas: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Replicas of a random move: some are being added, some removed, and some were there before."""
    if len(replicas) < 2 or random.random() < 0.6:
        return (), ()
    adding = replicas[: random.randint(0, len(replicas) - 1)]
    rest = replicas[len(adding) :]
    last = len(rest) if adding else len(rest) - 1
    return adding, rest[len(rest) - random.randint(0, last) :] if last else ()
