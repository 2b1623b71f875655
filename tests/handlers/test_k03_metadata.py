import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.schema import ZERO_UUID
from tests.handlers.conftest import World

UNKNOWN = b"?" * 16


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(("name", "topic_id"), [(None, UNKNOWN), ("t", UNKNOWN), (None, ZERO_UUID)])
def test_versions_that_cannot_answer_by_id_refuse_ids(
    world: World, version: int, name: str | None, topic_id: bytes
) -> None:
    world.create("t")
    asked = [MetadataRequestTopic(name=name, topic_id=topic_id), MetadataRequestTopic(name="t")]
    told = world.ask(MetadataRequest(topics=asked), version).topics
    assert [(each.name, each.error_code) for each in told] == [
        (name or "", ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("version", [12, 13])
def test_an_id_that_no_topic_has_is_told_without_a_name(world: World, version: int) -> None:
    (told,) = world.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=UNKNOWN)]), version).topics
    assert (told.name, told.topic_id, told.error_code) == (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID)
