"""The table of keys agrees with the message tables, with the files, and with Apache Kafka."""

from pathlib import Path

import pytest

from moldau.protocol import apis, messages
from moldau.protocol.schema import Message

# Facts of Apache Kafka 4.3.1 without unstable versions, as its `ApiKeys` prints them: key:version.
KAFKA_OLDEST = (  # all others: 0
    "0:3 1:4 2:1 8:2 9:1 19:2 20:1 23:2 27:1 29:1 30:1 31:1 32:1 34:1 35:1 38:1 39:1 40:1 41:1 56:2 76:1 77:1 78:1 79:1"
)
KAFKA_NEWEST = (
    "0:13 1:18 2:11 3:13 8:10 9:10 10:6 11:9 12:4 13:5 14:5 15:6 16:5 17:1 18:4 19:7 20:6 21:2 22:5 23:4 24:5 25:4 "
    "26:5 27:2 28:5 29:3 30:3 31:3 32:4 33:2 34:2 35:5 36:2 37:3 38:3 39:2 40:2 41:3 42:2 43:2 44:1 45:1 46:0 47:0 "
    "48:1 49:1 50:0 51:0 52:2 53:1 54:1 55:2 56:3 57:2 58:0 59:1 60:2 61:0 62:4 63:2 64:0 65:0 66:2 67:0 68:1 69:1 "
    "70:0 71:0 72:0 73:0 74:1 75:0 76:1 77:1 78:2 79:2 80:1 81:0 82:0 83:0 84:0 85:1 86:0 87:1 88:0 89:0 90:1 91:0 "
    "92:0"
)


def by_key(facts: str) -> dict[int, int]:
    return {int(key): int(version) for key, version in (pair.split(":") for pair in facts.split())}


def test_the_newest_versions_are_those_kafka_serves() -> None:
    ours = {api.key: api.max_version for api in apis.APIS if api.listener != apis.ZOOKEEPER}
    assert ours == by_key(KAFKA_NEWEST)


def test_every_key_begins_no_later_than_in_kafka() -> None:
    begins = {api.key: api.min_version for api in apis.APIS}
    assert {key for key, first in begins.items() if first > 0} == {76, 77, 78, 79}
    assert all(begins[key] <= first for key, first in by_key(KAFKA_OLDEST).items())


def test_keys_are_complete_and_in_order() -> None:
    assert [api.key for api in apis.APIS] == list(range(93))


def test_each_key_has_its_file() -> None:
    folder = Path(messages.__file__).parent
    assert {path.stem for path in folder.glob("k*.py")} == {api.module for api in apis.APIS}
    assert all(api.module.startswith(f"k{api.key:02d}_") for api in apis.APIS)


@pytest.mark.parametrize("api", apis.APIS, ids=lambda api: api.name)
def test_the_message_tables_say_the_same(api: apis.Api) -> None:
    for kind, table in (("Request", apis.request_type(api.key)), ("Response", apis.response_type(api.key))):
        assert issubclass(table, Message)
        assert table.__name__ == api.name + kind
        assert table.api_key == api.key
        assert table.flexible == api.flexible
        first, last = table.versions
        assert first <= api.min_version <= api.max_version <= last


def test_an_unknown_key_has_no_tables() -> None:
    assert apis.find(999) is None
    with pytest.raises(LookupError):
        apis.request_type(999)
