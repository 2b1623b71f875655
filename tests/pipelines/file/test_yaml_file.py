from pathlib import Path

from moldau.pipelines.file.problems import Place
from tests.pipelines.writing import problems_of, spec_of, write

VISITS = """\
    name: visits
    sources:
      visits:
        topic: page-views
        schema: organisation STRING, at TIMESTAMP
        required: [organisation, at]
        watermark: at 1 day
    views:
      counts: |
        SELECT organisation, count(*) AS visits
        FROM visits
        GROUP BY organisation
    sinks:
      visits-by-day:
        from: counts
        topic: visits-by-day
        key: organisation
    """


def test_what_is_not_written_has_its_default(tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, "visits.yaml", VISITS))
    assert (spec.bootstrap, spec.dead_letters, spec.trigger) == ("localhost:9092", "visits.dead-letters", "1 second")
    assert spec.storage == tmp_path / ".moldau" / "visits"
    assert spec.sources["visits"].options["format"] == "json"
    assert spec.sources["visits"].options["as"] == "stream"


def test_what_is_written_is_parsed_and_keeps_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "visits.yaml", VISITS)
    spec = spec_of(path)
    source, sink = spec.sources["visits"], spec.sinks["visits-by-day"]
    assert (source.kind, source.options["watermark"]) == ("topic", ("at", "1 day"))
    assert (source.place, source.places["watermark"]) == (Place(str(path), 3), Place(str(path), 7))
    assert (sink.flows, sink.options["key"], sink.places["key"].line) == (("counts",), ("organisation",), 17)


def test_a_view_reads_what_its_sql_names_and_knows_where_its_sql_begins(tmp_path: Path) -> None:
    path = write(tmp_path, "visits.yaml", VISITS)
    view = spec_of(path).views["counts"]
    assert view.inputs == ("visits",)
    assert (view.place, view.sql_place) == (Place(str(path), 9), Place(str(path), 10))


def test_a_sink_with_a_key_updates_and_one_without_appends(tmp_path: Path) -> None:
    sinks = "  raw: {from: visits, topic: copy}\n  shown: {from: counts, console: 20, mode: complete}\n"
    spec = spec_of(write(tmp_path, "visits.yaml", VISITS.replace("    sinks:\n", "    sinks:\n" + _indented(sinks))))
    assert {name: sink.options["mode"] for name, sink in spec.sinks.items()} == {
        "raw": "append",
        "shown": "complete",
        "visits-by-day": "update",
    }


def test_sql_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    sql = write(tmp_path, "counts.sql", "SELECT count(*) FROM beats")
    text = """\
        name: beats
        sources: {beats: {rate: 1}}
        views: {counts: {file: counts.sql}}
        sinks: {out: {from: counts, topic: counts}}
        """
    view = spec_of(write(tmp_path, "beats.yaml", text)).views["counts"]
    assert (view.sql, view.inputs, view.sql_place) == ("SELECT count(*) FROM beats", ("beats",), Place(str(sql), 1))


def test_a_table_is_a_view_and_a_sink_of_one_name(tmp_path: Path) -> None:
    text = """\
        name: beats
        sources: {beats: {rate: 1}}
        tables:
          even: {sql: SELECT * FROM beats WHERE value % 2 = 0, parquet: even}
        """
    spec = spec_of(write(tmp_path, "beats.yaml", text))
    assert spec.views["even"].inputs == ("beats",)
    assert (spec.sinks["even"].kind, spec.sinks["even"].flows) == ("parquet", ("even",))


def test_dead_letters_none_means_that_there_are_none(tmp_path: Path) -> None:
    assert spec_of(write(tmp_path, "visits.yaml", "    dead_letters: none\n" + VISITS)).dead_letters is None


def test_entries_may_share_options(tmp_path: Path) -> None:
    text = """\
        name: two
        x-shared: &json {format: json, schema: a INT, watermark: at 1 day}
        sources:
          one: {topic: one, <<: *json}
          two: {topic: two, <<: *json, watermark: at 2 days}
        sinks: {out: {from: [one, two], topic: both}}
        """
    sources = spec_of(write(tmp_path, "two.yaml", text)).sources
    assert [source.options["schema"] for source in sources.values()] == ["a INT", "a INT"]
    assert [source.options["watermark"] for source in sources.values()] == [("at", "1 day"), ("at", "2 days")]


def test_words_that_old_yaml_takes_for_truths_and_dates_are_texts(tmp_path: Path) -> None:
    text = """\
        name: off
        storage: 2026-11-16
        sources: {no: {rate: 1}}
        sinks: {on: {from: no, topic: yes}}
        """
    spec = spec_of(write(tmp_path, "off.yaml", text))
    assert (spec.name, spec.storage.name, spec.sinks["on"].flows) == ("off", "2026-11-16", ("no",))


def test_the_cluster_may_be_another_than_the_one_written(tmp_path: Path) -> None:
    from moldau.pipelines import load

    text = "name: beats\nsources: {beats: {rate: 1}}\nsinks: {out: {from: beats, console: 20}}\n"
    assert load(write(tmp_path, "beats.yaml", text), bootstrap="other:9092").bootstrap == "other:9092"


def test_a_file_that_is_no_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "bad.yaml", "name: x\nsources:\n  a: {b: [c}\n")) == [
        "bad.yaml:3: not YAML: while parsing a flow sequence, expected ',' or ']', but got '}'"
    ]


def test_a_file_of_another_shape_is_told(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "bad.yaml", "- name: x\n")) == [
        "bad.yaml:1: the file is no pipeline (it begins with `name:`)"
    ]
    assert problems_of(write(tmp_path, "bad.yaml", "name: x\nsources: [a]\nviews: 3\n")) == [
        "bad.yaml:2: sources must be names with values, not ['a']",
        "bad.yaml:3: views must be names with values, not 3",
    ]
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"name: \xff")
    assert problems_of(path) == ["bytes.yaml:1: not a text: invalid start byte"]


def _indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())
