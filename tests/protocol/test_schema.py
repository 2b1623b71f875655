"""How messages behave as values."""

import pytest

from moldau.protocol.codec import decode, encode
from moldau.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.messages.k01_fetch import PartitionData
from moldau.protocol.messages.k18_api_versions import ApiVersion
from moldau.protocol.schema import version_range


@pytest.mark.parametrize(
    ("text", "expected"), [("0+", (0, 32767)), ("3-12", (3, 12)), ("7", (7, 7)), ("none", (1, 0)), ("11-13", (11, 13))]
)
def test_version_ranges(text: str, expected: tuple[int, int]) -> None:
    assert version_range(text) == expected


def test_fields_are_optional_and_go_by_name_or_position() -> None:
    response = ProduceResponse(responses=[TopicProduceResponse(name="t")], throttle_time_ms=3)
    assert response.responses[0].name == "t"
    assert response.responses[0].partition_responses == []
    assert response.node_endpoints == []
    assert PartitionProduceResponse(index=4).log_append_time_ms == -1


def test_every_message_has_lists_of_its_own() -> None:
    first, second = ProduceResponse(), ProduceResponse()
    first.responses.append(TopicProduceResponse())
    assert second.responses == []
    assert decode(ProduceResponse, 13, encode(ProduceResponse(), 13)).responses is not second.responses


def test_default_structs_are_shared() -> None:
    assert PartitionData().current_leader is PartitionData().current_leader


def test_messages_are_equal_by_value_whether_built_or_read() -> None:
    built = ProduceResponse(throttle_time_ms=3)
    assert built == ProduceResponse(throttle_time_ms=3)
    assert built != ProduceResponse(throttle_time_ms=4)
    assert decode(ProduceResponse, 9, encode(built, 9)) == built
    assert built != TopicProduceResponse()


def test_a_read_message_is_an_instance_of_its_table_and_can_be_written() -> None:
    read = decode(ProduceResponse, 9, encode(ProduceResponse(throttle_time_ms=3), 9))
    assert isinstance(read, ProduceResponse)
    assert encode(read, 13) == encode(ProduceResponse(throttle_time_ms=3), 13)
    assert (read.api_key, read.versions, read.flexible) == (0, ProduceResponse.versions, ProduceResponse.flexible)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(ApiVersion(api_key=3, max_version=9)) == "ApiVersion(api_key=3, max_version=9)"
    read = decode(ProduceResponse, 1, encode(ProduceResponse(throttle_time_ms=3), 1))
    assert repr(read) == "ProduceResponse(throttle_time_ms=3)"


def test_messages_have_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        ProduceResponse().nonsense = 1  # type: ignore[attr-defined]  # that is the point
    with pytest.raises(TypeError):
        ProduceResponse(nonsense=1)  # type: ignore[call-arg]  # that is the point
