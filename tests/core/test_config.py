"""Text to values, and properties files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.config import (
    LIST_ITEMS_MAX,
    ConfigError,
    ConfigKey,
    ConfigType,
    parse_properties,
    parse_value,
    render_value,
)


def key(type_: ConfigType) -> ConfigKey:
    return ConfigKey("some.name", type_, None, "")


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.INT, " 5 ", 5),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, " false", False),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.PASSWORD, " secret ", " secret "),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, "a , b", ("a", "b")),
    ],
)
def test_text_becomes_a_value_of_its_type(type_: ConfigType, text: str, value: object) -> None:
    assert parse_value(key(type_), text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "five"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "\u0661"),
        (ConfigType.LONG, "9" * 1_000_000),
        (ConfigType.SHORT, "40000"),
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.DOUBLE, "much"),
        (ConfigType.DOUBLE, "x" * 1_000_000),
        (ConfigType.BOOLEAN, "x" * 1_000_000),
        (ConfigType.LIST, "," * 1_000_000),
        (ConfigType.LIST, "," * LIST_ITEMS_MAX),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_the_property(type_: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^some\.name: ") as error:
        parse_value(key(type_), text)
    assert error.value.name == "some.name"
    assert len(str(error.value)) < 200


def test_values_are_rendered_as_kafka_prints_them() -> None:
    assert [render_value(value) for value in (True, 7, ("a", "b"), "x", None)] == ["true", "7", "a,b", "x", None]


SERVER_PROPERTIES = r"""
# a comment
! another
   broker.id=1
listeners = PLAINTEXT://:9092,\
            SSL://:9093
log.dirs: /tmp/a\ b
num.partitions 3
empty=
flag
key\:with\=escapes=\u0041\tb
last=one
last=two
"""


def test_properties_files_are_read_as_java_reads_them() -> None:
    assert parse_properties(SERVER_PROPERTIES) == {
        "broker.id": "1",
        "listeners": "PLAINTEXT://:9092,SSL://:9093",
        "log.dirs": "/tmp/a b",
        "num.partitions": "3",
        "empty": "",
        "flag": "",
        "key:with=escapes": "A\tb",
        "last": "two",
    }


def test_an_even_number_of_backslashes_does_not_continue_a_line() -> None:
    assert parse_properties("path=C:\\\\\r\nnext=1") == {"path": "C:\\", "next": "1"}


def test_a_comment_cannot_be_continued_but_a_continued_line_can_look_like_a_comment() -> None:
    assert parse_properties("# not\\\na=1\nb=2,\\\n#3") == {"a": "1", "b": "2,#3"}


@given(st.dictionaries(st.text("ab.#=: \\\n\t", min_size=1), st.text("ab.#=: \\\n\t")))
def test_escaped_properties_come_back(properties: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join(f"\\u{ord(char):04x}" for char in text)

    text = "\n".join(f"{escape(name)}={escape(value)}" for name, value in properties.items())
    assert parse_properties(text) == properties


@given(st.text())
def test_any_text_is_some_properties(text: str) -> None:
    parse_properties(text)
