"""The state-change log has a line with time and partition for every change of a leader, and is silent unless wanted."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker import state_changes
from moldau.broker.main import main
from moldau.cluster.changes import StateChange
from moldau.cluster.image import PartitionImage
from moldau.core.ids import TopicPartition

# Both as `kafka.tools.StateChangeLogMerger` has them.
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}"
PARTITION = r"\[([a-zA-Z0-9\._\-]+),( )*([0-9]+)\]"
CHANGE = StateChange("visits.by-day", bytes(16), 7, PartitionImage(2, 3, (2, 1), (1, 2)))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    end = state_changes.write_to(str(tmp_path / "state-change.log"))
    yield tmp_path / "state-change.log"
    end()


def test_every_line_has_a_time_and_a_partition(path: Path) -> None:
    state_changes.decided(1, 5, [CHANGE])
    state_changes.leads(2, TopicPartition("visits.by-day", 7), 3)
    state_changes.follows(1, TopicPartition("visits.by-day", 7), 2, 3)
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        assert re.search(TIME, line)
        found = re.search(PARTITION, line)
        assert found is not None
        assert (found[1], found[3]) == ("visits.by-day", "7")
    assert "leader 2, leader epoch 3, ISR 2,1" in lines[0]
    assert "Broker 2 became leader for partition" in lines[1]
    assert "Broker 1 became follower of broker 2 for partition" in lines[2]


def test_nothing_is_written_unless_it_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    state_changes.decided(1, 5, [CHANGE])
    state_changes.leads(2, TopicPartition("visits", 7), 3)
    assert caplog.text == ""


def test_several_brokers_do_not_share_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--brokers", "2", "--data", str(tmp_path / "data"), "--state-change-log", str(tmp_path / "log")]
    assert main(options) == 2
    assert "--state-change-log" in capsys.readouterr().err
