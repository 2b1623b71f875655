"""Apache Kafka 4.3.1's FeatureCommand against three brokers of ours, over either metadata store."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cluster.features import transaction_version
from moldau.testing import ClusterInThread, cluster
from tests.tools.java_tools import JavaTools
from tests.zookeeper_ensemble import Ensemble

COMMAND = "FeatureCommand"
TV = "transaction.version"


@pytest.fixture(params=["embedded", "zookeeper"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterInThread]:
    properties = {}
    if request.param == "zookeeper":
        ensemble: Ensemble = request.getfixturevalue("zookeeper")
        properties["zookeeper.connect"] = f"{ensemble.connect}/features-{tmp_path.name}"
    with cluster(3, properties) as started:
        yield started


def described(tools: JavaTools) -> dict[str, tuple[str, ...]]:
    """Lowest and highest supported level, finalized level and epoch, by feature."""
    line = r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)\s+"
    found = re.findall(line + r"Epoch: (\S+)", tools.tool(COMMAND, "describe"))
    return {name: tuple(numbers) for name, *numbers in found}


def test_levels_are_described_lowered_and_raised_on_every_broker(
    kafka_classpath: str, running: ClusterInThread
) -> None:
    tools = JavaTools(kafka_classpath, running.bootstrap)
    assert described(tools) == {"group.version": ("1", "1", "1", "0"), TV: ("0", "2", "2", "0")}

    tried = tools.tool(COMMAND, "downgrade", "--feature", f"{TV}=1", "--dry-run")
    assert f"{TV} can be downgraded to 1." in tried
    assert f"{TV} was downgraded to 1." in tools.tool(COMMAND, "downgrade", "--feature", f"{TV}=1")
    running.wait(lambda image: transaction_version(image) == 1)
    assert described(tools)[TV] == ("0", "2", "1", "1")

    assert f"{TV} was disabled." in tools.tool(COMMAND, "disable", "--feature", TV, "--unsafe")
    running.wait(lambda image: transaction_version(image) == 0)
    assert described(tools)[TV][2] == "0"

    assert f"{TV} was upgraded to 2." in tools.tool(COMMAND, "upgrade", "--feature", f"{TV}=2")
    running.wait(lambda image: transaction_version(image) == 2)
    assert described(tools)[TV] == ("0", "2", "2", "3")


def test_what_cannot_be_is_refused_with_a_reason(kafka_classpath: str) -> None:
    with cluster(1) as running:
        tools = JavaTools(kafka_classpath, running.bootstrap)
        assert "only levels 0 to 2 are supported" in tools.refused(COMMAND, "upgrade", "--feature", f"{TV}=9")
        assert "there is no such feature" in tools.refused(COMMAND, "upgrade", "--feature", "nope=1")
        assert "ask for a downgrade" in tools.refused(COMMAND, "upgrade", "--feature", f"{TV}=1")
        assert described(tools)[TV] == ("0", "2", "2", "0")
