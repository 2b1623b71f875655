"""kill -9 of the broker in the middle of commits: every commit that was acknowledged is there afterwards."""

import threading
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.pipelines.topics import when_ready
from moldau.testing.ports import free_ports
from tests.serving import Serving

KILLS = 8
COMMITTERS = 6
ACKNOWLEDGED_PER_ROUND = 300
WAIT_S = 30.0
TOPIC = "ledger"


class Committer:
    """Commits 1, 2, 3 ... in the name of its group, one after the other, whatever happens to the broker."""

    def __init__(self, bootstrap: str, number: int, progress: threading.Condition) -> None:
        self.group = f"group-{number}"
        self.acknowledged = 0
        self.sent = 0
        self._progress = progress
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.sent += 1
            try:
                self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.sent)], asynchronous=False)
            except KafkaException:
                continue  # not acknowledged: it may be there or not
            with self._progress:
                self.acknowledged = self.sent
                self._progress.notify_all()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        self._consumer.close()


def committed(bootstrap: str, group: str) -> int:
    """As the broker says, once it has read its log."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def ask() -> list[TopicPartition]:
        [found] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return found.result(WAIT_S).topic_partitions or []

    return max((each.offset for each in when_ready(ask)), default=0)


def wait_for_more(committers: Sequence[Committer], progress: threading.Condition) -> None:
    def acknowledged() -> int:
        return sum(each.acknowledged for each in committers)

    goal = acknowledged() + ACKNOWLEDGED_PER_ROUND
    with progress:
        assert progress.wait_for(lambda: acknowledged() >= goal, WAIT_S)


def test_acknowledged_commits_survive_kill_9(tmp_path: Path) -> None:
    (port,) = free_ports(1)  # no other test is given it between a kill and the next start
    serving = Serving(tmp_path / "data", "--port", str(port))
    progress = threading.Condition()
    committers: list[Committer] = []
    try:
        admin = AdminClient({"bootstrap.servers": serving.bootstrap, "log_level": 0})
        [created] = admin.create_topics([NewTopic(TOPIC, 1, 1)]).values()
        created.result(WAIT_S)
        committers += [Committer(serving.bootstrap, number, progress) for number in range(COMMITTERS)]
        for _ in range(KILLS):
            wait_for_more(committers, progress)
            serving.kill()
            acknowledged = {each.group: each.acknowledged for each in committers}
            serving = Serving(tmp_path / "data", "--port", str(port))
            for group, offset in acknowledged.items():
                found = committed(serving.bootstrap, group)
                assert found >= offset, f"{group}: {offset} was acknowledged, {found} is there"
        for each in committers:
            each.stop()
        for each in committers:
            assert each.acknowledged <= committed(serving.bootstrap, each.group) <= each.sent
    finally:
        for each in committers:
            each.stop()
        serving.kill()
