"""Records of CSV files, without Spark."""

import pytest

from moldau.pipelines.formats.csv_records import CsvRecords

NAMES = ("first", "last")


def found(content: str | bytes, header: bool = False, **changes: object) -> list[tuple[str, str | None]]:
    made = CsvRecords(NAMES, **{"needed": NAMES, "header": header, **changes})  # type: ignore[arg-type]  # by name
    given = content.encode() if isinstance(content, str) else content
    return [(value.decode(), reason) for value, reason in made.find(given)]


def lines(content: str, header: bool = False, **changes: object) -> list[str]:
    return [line for line, _ in found(content, header, **changes)]


def test_the_header_says_where_each_column_is() -> None:
    assert found("last,first\nNovak,Jan\n", header=True) == [("Jan,Novak", None)]
    assert found('\ufeff Last ,age,"First"\r\nNovak,7,Jan\r\n\r\n', header=True) == [("Jan,Novak", None)]
    assert found("", header=True) == found("last,first", header=True) == []


def test_a_header_that_lacks_a_column_or_has_it_twice_makes_the_records_bad() -> None:
    told = "the header of its file does not name 'first': last,fist"
    assert found("last,fist\nNovak,Jan\n", header=True) == [("Novak,Jan", told)]
    [(_, reason)] = found("last,first\nb,a".encode("utf-16"), header=True)
    assert reason is not None
    assert reason.encode().startswith(b"the header of its file does not name 'first': ??l\0a\0")
    told = "the header of its file names 'first' twice: first,last,FIRST"
    assert found("first,last,FIRST\na,b,c\n", header=True) == [("a,b,c", told)]
    assert found("last\nNovak\n", header=True, needed=("last",)) == [(",Novak", None)]
    assert found("last\nNovak\n", header=True, needed=("last",), null="-") == [("-,Novak", None)]


def test_a_record_of_another_width_than_the_header_is_bad() -> None:
    told = [("Novak,Jan", "2 fields under a header of 3"), ("Jan,Novak", None)]
    assert found("last,age,first\nNovak,Jan\nNovak,7,Jan\n", header=True) == told


def test_a_line_break_in_quotes_does_not_end_a_record() -> None:
    assert lines('a,"x\ny"\r\n"b\r\n,""c""","d"\n') == ['a,"x\ny"', '"b\r\n,""c""","d"']
    assert lines('last,first\n"No\nvak",Jan\n', header=True) == ['Jan,"No\nvak"']


def test_a_quote_that_is_not_closed_spoils_its_own_line_only() -> None:
    assert lines('a,"x\nb,y\n"c"d,z\ne,"f"\n') == ['a,"x', "b,y", '"c"d,z', 'e,"f"']
    assert lines('a,b "x"\nc,d') == ['a,b "x"', "c,d"]


def test_signs_and_encodings_are_as_told() -> None:
    assert lines("last|first\n'No|\\'vak'|Jan", header=True, separator="|", quote="'", escape="\\") == [
        "Jan|'No|\\'vak'"
    ]
    assert found("Müller,Jörg\n".encode("utf-16"), encoding="utf-16") == [("Müller,Jörg", None)]
    assert found("Müller,Jörg\n".encode("cp1252"), encoding="cp1252") == [("Müller,Jörg", None)]
    [(value, _), (other, _)] = CsvRecords(NAMES, NAMES).find(b"M\xfcller,a\nb,c\n")
    assert (value, other) == (b"M\xfcller,a", b"b,c")
    torn = CsvRecords(NAMES, NAMES, encoding="utf-16").find("a,b\nc,d".encode("utf-16") + b"x")
    assert [value for value, _ in torn] == [b"a,b", b"c,d\xff"]


@pytest.mark.parametrize("sign", ['"', "\\"])
def test_very_many_quotes_and_fields_are_no_burden(sign: str) -> None:
    field = f'"{(sign + chr(34)) * 100_000}"'
    assert lines(f"{field},{field}\n", escape=sign) == [f"{field},{field}"]
    wide = ",".join(["x"] * 100_000)
    assert lines(f"{wide}\n") == [wide]
