"""Which names a topic can have, as Kafka answers."""

import pytest

from moldau.cluster.topic_names import colliding_topic, validate_topic_name
from moldau.protocol.errors import ApiError, ErrorCode


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "a" * 249, "__consumer_offsets"])
def test_legal_names_pass(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "ä", "a" * 250, "x" * 1_000_000])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ApiError) as error:
        validate_topic_name(name)
    assert error.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(str(error.value)) < 400


def test_names_collide_when_only_dots_and_underscores_differ() -> None:
    assert colliding_topic("a_b", ["x", "a.b"]) == "a.b"
    assert colliding_topic("a.b", ["a.b"]) is None
    assert colliding_topic("ab", ["a.b", "a_b"]) is None
