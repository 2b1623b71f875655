import pytest

from moldau.pipelines.sql_names import tables

READS: dict[str, list[str]] = {
    "SELECT a FROM b": ["b"],
    "SELECT count(*) AS visits FROM visits v GROUP BY a, b UNION ALL SELECT 1 FROM x ORDER BY c, d": ["visits", "x"],
    "SELECT * FROM (a JOIN `b c` ON x = y, d) e, f WHERE g IN (SELECT 1 FROM h)": ["a", "b c", "d", "f", "h"],
    "SELECT * FROM a LEFT JOIN b USING (id, x), c": ["a", "b", "c"],
    "SELECT if(a, b, c), (SELECT max(d) FROM e) FROM f": ["e", "f"],
    "SELECT * FROM a WHERE EXISTS (FROM b)": ["a", "b"],
    "FROM a |> WHERE x > 1 |> JOIN c USING (d, e)": ["a", "c"],
    "SELECT * FROM stream(a), STREAM b": ["a", "b"],
    "SELECT * FROM a JOIN LATERAL (SELECT * FROM b)": ["a", "b"],
    "TABLE a": ["a"],
}
READS_NOTHING_MORE: dict[str, list[str]] = {
    "SELECT extract(DAY FROM at), trim(BOTH 'x' FROM page), substring(a FROM 2 FOR 3) FROM v": ["v"],
    "SELECT * FROM v WHERE a IS DISTINCT FROM b": ["v"],
    "SELECT 'FROM x', \"FROM x\" -- FROM y\n /* FROM z\n */ FROM v": ["v"],
    "SELECT * FROM range(10) r, t LATERAL VIEW explode(x) y AS a, b": ["t"],
    "SELECT * FROM catalogue.schema.t, parquet.`/files`, v TABLESAMPLE (10 PERCENT)": ["v"],
    "SELECT * FROM v PIVOT (sum(a) FOR b IN ('x', 'y'))": ["v"],
    "SELECT * FROM (VALUES (1, 2), (3, 4)) AS t(a, b)": [],
}


@pytest.mark.parametrize(("sql", "expected"), [*READS.items(), *READS_NOTHING_MORE.items()])
def test_finds_the_tables_that_a_query_reads(sql: str, expected: list[str]) -> None:
    assert [table.name for table in tables(sql)] == expected


def test_a_name_that_the_query_defines_is_marked_as_its_own() -> None:
    sql = "WITH q AS (SELECT * FROM a), r AS (SELECT 1 FROM q) SELECT * FROM r, z"
    assert {table.name: table.own for table in tables(sql)} == {"a": False, "q": True, "r": True, "z": False}


def test_each_name_has_its_line() -> None:
    assert [(table.name, table.line) for table in tables("SELECT *\nFROM a\n  JOIN -- and\n  b")] == [
        ("a", 1),
        ("b", 3),
    ]
