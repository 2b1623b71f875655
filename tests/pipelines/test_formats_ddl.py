import pytest

from moldau.pipelines.formats.ddl import fields


def test_names_are_found_whatever_their_types() -> None:
    schema = (
        "a STRING, `b c` DECIMAL(10, 2) NOT NULL COMMENT 'x, y', c: ARRAY<MAP<STRING, STRUCT<x: INT, y: DATE>>>, "
        "d timestamp_ntz, e INTERVAL DAY TO SECOND, f VARCHAR(10), g STRUCT<>"
    )
    assert [field.name for field in fields(schema)] == ["a", "b c", "c", "d", "e", "f", "g"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("a STRNG", "STRNG is no type: did you mean 'string'?"),
        ("a", "the field a has no type"),
        ("a, b INT", "the field a has no type"),
        ("a INT,", "no field after ','"),
        ("a ARRAY<INT", "'>' is missing"),
        ("a MAP<STRING>", "',' is missing before '>'"),
        ("a INT b INT", "'b' is too much"),
        ("a INT; b INT", "';' does not belong there"),
        ("", "no field after ','"),
    ],
)
def test_a_fault_is_named(schema: str, words: str) -> None:
    with pytest.raises(ValueError, match="a schema such as") as raised:
        fields(schema)
    assert words in str(raised.value)
