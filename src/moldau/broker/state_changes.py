"""The state-change log: a line for every partition that the controller changes, or whose role changes here.

Law: every line has a time and names its partition as `[topic,partition]`, so that `kafka.tools.StateChangeLogMerger`
finds and sorts the lines of many brokers. It is a logger of Kafka's name, apart from all others, and silent until
somebody wants its lines (`moldau serve --state-change-log FILE`): a failover makes thousands.
"""

import logging
from collections.abc import Callable, Iterable

from moldau.cluster.changes import Change, StateChange
from moldau.core.ids import TopicPartition

NAME = "state.change.logger"

_log = logging.getLogger(NAME)
_log.propagate = False
_log.disabled = True


def write_to(path: str) -> Callable[[], None]:
    """Append the lines to a file from now on, in the form of Kafka's log4j pattern. Returns what ends it."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.disabled = False

    def end() -> None:
        _log.disabled = True
        _log.removeHandler(handler)
        handler.close()

    return end


def decided(controller: int, controller_epoch: int, changes: Iterable[Change]) -> None:
    """Log the states that the controller has written."""
    if _log.disabled:
        return
    for change in changes:
        if isinstance(change, StateChange):
            state = change.state
            _log.info(
                "Controller %d epoch %d changed partition [%s,%d]: leader %d, leader epoch %d, ISR %s",
                *(controller, controller_epoch, change.topic, change.index, state.leader, state.leader_epoch),
                ",".join(map(str, state.isr)),
            )


def leads(broker: int, partition: TopicPartition, leader_epoch: int) -> None:
    """Log that this broker leads a partition from now on."""
    if not _log.disabled:
        _log.info("Broker %d became leader for partition [%s,%d] in leader epoch %d", broker, *partition, leader_epoch)


def follows(broker: int, partition: TopicPartition, leader: int, leader_epoch: int) -> None:
    """Log that this broker follows a leader from now on."""
    if not _log.disabled:
        _log.info(
            "Broker %d became follower of broker %d for partition [%s,%d] in leader epoch %d",
            *(broker, leader, *partition, leader_epoch),
        )
