"""Layouts by hand are of exact versions: a version that a table gains is served by its table until somebody looks."""

import pytest

from moldau.fastpath.repeats import VERSIONS
from moldau.protocol.apis import FETCH, PRODUCE, find
from moldau.protocol.follower_fetch import FETCH_VERSION
from moldau.protocol.layouts import CONSUMER_FETCH_VERSIONS, FOLLOWER_FETCH_VERSIONS, PRODUCE_VERSIONS


@pytest.mark.parametrize(("key", "versions"), [(PRODUCE, PRODUCE_VERSIONS), (FETCH, CONSUMER_FETCH_VERSIONS)])
def test_the_newest_version_of_the_table_was_looked_at(key: int, versions: range) -> None:
    api = find(key)
    assert api is not None
    assert versions[-1] == api.max_version, "if it is laid out as the one before, and only then, take it into the range"
    assert versions[0] >= api.flexible_from


def test_what_our_followers_send_is_what_leaders_read_by_hand() -> None:
    assert list(FOLLOWER_FETCH_VERSIONS) == [FETCH_VERSION]


def test_a_fast_path_serves_the_versions_of_its_layouts_and_no_others() -> None:
    followers_and_consumers = {*CONSUMER_FETCH_VERSIONS, *FOLLOWER_FETCH_VERSIONS}
    assert {PRODUCE: frozenset(PRODUCE_VERSIONS), FETCH: followers_and_consumers} == VERSIONS
