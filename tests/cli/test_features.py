"""`moldau features`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Ended, Tool
from tests.transaction_servers import until

NAME = "transaction.version"


@pytest.fixture
def tool(either_tool: Tool) -> Tool:
    return either_tool


def levels(tool: Tool) -> dict[str, Any]:
    """The features by name, without the epoch: that of Apache Kafka is the end of its metadata, which grows by
    itself."""
    found = json.loads(tool.ok("features", "describe", "--json"))
    assert all(each.pop("epoch") >= 0 for each in found)
    return {each["feature"]: each for each in found}


def until_level(tool: Tool, level: int) -> None:
    """Wait until the broker goes by a level: one of Kafka hears of it after the answer."""
    until(lambda: bool(levels(tool)[NAME]["finalizedVersionLevel"] == level))


def test_levels_are_described_lowered_and_raised(tool: Tool) -> None:
    before = levels(tool)[NAME]
    assert (before["supportedMaxVersion"], before["finalizedVersionLevel"]) == (2, 2)
    (line,) = [line for line in tool.ok("features", "describe").splitlines() if f"Feature: {NAME}\t" in line]
    assert "\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\tFinalizedVersionLevel: 2\tEpoch: " in line
    assert tool.ok("features", "downgrade", f"{NAME}=1", "--dry-run") == f"{NAME} can be downgraded to 1.\n"
    assert levels(tool)[NAME] == before
    assert tool.ok("features", "downgrade", "--feature", f"{NAME}=1") == f"{NAME} was downgraded to 1.\n"
    until_level(tool, 1)
    assert tool.ok("features", "upgrade", f"{NAME}=2") == f"{NAME} was upgraded to 2.\n"
    until_level(tool, 2)


def test_a_feature_is_taken_back(tool: Tool) -> None:
    assert tool.ok("features", "disable", "--feature", NAME) == f"{NAME} was disabled.\n"
    until_level(tool, 0)
    tool.ok("features", "upgrade", f"{NAME}=2")
    until_level(tool, 2)


def test_what_cannot_be_is_refused_with_a_reason(tool: Tool) -> None:
    assert NAME in tool.error("features", "upgrade", f"{NAME}=9")
    assert "nope" in tool.error("features", "upgrade", "nope=1")
    assert "NAME=LEVEL" in tool.error("features", "upgrade", NAME)
    assert "say which feature" in tool.error("features", "upgrade")
    assert "names only" in tool.error("features", "disable", f"{NAME}=1")
    assert "--feature NAME=LEVEL" in tool.error("features", "upgrade", "--release-version", "4.3")
    assert "no broker 77" in tool.error("features", "describe", "--node-id", "77")


@pytest.mark.parametrize("arguments", [[], ["raise"], ["describe", "--jsn"]])
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["features", *arguments], b"")
    assert ended.value.code == 2
