from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from moldau.pipelines.file.problems import Place
from tests.pipelines.writing import problems_of, spec_of, write

YAML = """\
    name: visits
    bootstrap: localhost:9092
    client: {security.protocol: SSL}
    sources:
      visits:
        topic: [page-views, more-views]
        format: json
        schema: organisation STRING, at TIMESTAMP
        required: [organisation]
        watermark: at 1 day
      organisations: {topic: organisations, schema: name STRING, as: table}
    views:
      counts: SELECT organisation, count(*) AS visits FROM visits GROUP BY organisation
    sinks:
      visits-by-day: {from: counts, topic: visits-by-day, key: [organisation]}
      copy: {from: [visits, organisations], parquet: copy}
    """
PYTHON = """\
    from moldau.pipelines import Pipeline

    pipeline = Pipeline("visits", bootstrap="localhost:9092", client={"security.protocol": "SSL"})
    pipeline.source(
        "visits",
        topic=["page-views", "more-views"],
        format="json",
        schema="organisation STRING, at TIMESTAMP",
        required=["organisation"],
        watermark="at 1 day",
    )
    pipeline.source("organisations", topic="organisations", schema="name STRING", as_="table")
    pipeline.view("counts", sql="SELECT organisation, count(*) AS visits FROM visits GROUP BY organisation")
    pipeline.sink("visits-by-day", from_="counts", topic="visits-by-day", key=["organisation"])
    pipeline.sink("copy", from_=["visits", "organisations"], parquet="copy", mode=None)
    """
BEGIN = """\
    from moldau.pipelines import Pipeline

    pipeline = Pipeline("beats")
    pipeline.source("beats", rate=1)
    """


def test_the_same_pipeline_in_python_and_in_yaml_is_the_same_spec(tmp_path: Path) -> None:
    in_yaml = spec_of(write(tmp_path, "visits.yaml", YAML))
    in_python = spec_of(write(tmp_path, "visits.py", PYTHON))
    assert _without_places(in_python) == _without_places(in_yaml)


def test_every_option_has_the_line_it_stands_in(tmp_path: Path) -> None:
    path = write(tmp_path, "visits.py", PYTHON)
    spec = spec_of(path)
    source = spec.sources["visits"]
    assert (spec.place.line, source.place.line, source.places["topic"].line) == (3, 4, 6)
    assert source.places["watermark"] == Place(str(path), 10)


def test_a_function_is_a_view_of_what_its_parameters_name(tmp_path: Path) -> None:
    text = """
    @pipeline.view
    def even(beats):
        return beats.where("value % 2 = 0")

    @pipeline.view("largest")
    def of_two(even, beats, limit=10):
        return even.union(beats).limit(limit)

    pipeline.sink("out", from_=["even", "largest"], console=20)
    """
    spec = spec_of(write(tmp_path, "beats.py", BEGIN + text))
    assert {name: view.inputs for name, view in spec.views.items()} == {
        "even": ("beats",),
        "largest": ("even", "beats"),
    }
    assert {name: view.place.line for name, view in spec.views.items()} == {"even": 6, "largest": 10}


def test_a_table_is_a_view_with_its_sink_and_a_flow_is_one_more_view_for_a_sink(tmp_path: Path) -> None:
    text = """
    @pipeline.table(parquet="even")
    def even(beats):
        return beats

    pipeline.sink("all", from_="even", console=20)
    pipeline.sink("flows only", console=20)

    @pipeline.flow(into="all")
    def odd(beats):
        return beats

    @pipeline.flow(into="flows only")
    def every(beats):
        return beats
    """
    spec = spec_of(write(tmp_path, "beats.py", BEGIN + text.replace("flows only", "flows-only")))
    assert {name: sink.flows for name, sink in spec.sinks.items()} == {
        "even": ("even",),
        "all": ("even", "odd"),
        "flows-only": ("every",),
    }


def test_functions_and_options_may_come_from_a_module_beside_the_file(tmp_path: Path) -> None:
    write(tmp_path, "beside_the_pipeline.py", "RATE = 7\n")
    text = """\
        from beside_the_pipeline import RATE
        from moldau.pipelines import Pipeline
        pipeline = Pipeline("beats", dead_letters=None)
        pipeline.source("beats", rate=RATE)
        pipeline.sink("out", from_="beats", console=20)
        """
    spec = spec_of(write(tmp_path, "beats.py", text))
    assert (spec.sources["beats"].options["rate"], spec.dead_letters) == (7, None)


def test_what_the_file_raises_is_told_with_its_line(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "bad.py", "import json\n\njson.loads('{')\n")) == [
        "bad.py:3: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    ]
    assert problems_of(write(tmp_path, "bad.py", "x = 1\ndef x(:\n")) == ["bad.py:2: SyntaxError: invalid syntax"]


def test_a_file_makes_one_pipeline(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "bad.py", "x = 1\n")) == [
        "bad.py:1: the file makes no Pipeline (pipeline = Pipeline('name'))"
    ]
    two = "from moldau.pipelines import Pipeline\na = Pipeline('a')\nsame = a\nb = Pipeline('b')\n"
    assert problems_of(write(tmp_path, "bad.py", two)) == [
        "bad.py:4: the file makes several Pipelines (one file, one pipeline)"
    ]


def test_problems_of_calls_over_several_lines_have_the_line_of_the_option(tmp_path: Path) -> None:
    text = """
    pipeline.view(
        "even",
        sql=\"\"\"
            SELECT *
            FROM beets
        \"\"\",
    )
    pipeline.sink(
        "out",
        from_="evn",
        console=20,
        moed="append",
    )

    @pipeline.flow(into="oot")
    def odd(*beats):
        return beats
    """
    assert problems_of(write(tmp_path, "bad.py", BEGIN + text)) == [
        "bad.py:10: view 'even' reads 'beets', which is no source or view (did you mean 'beats'?)",
        "bad.py:17: sink 'out' has no option 'moed' (did you mean 'mode'?)",
        "bad.py:20: view 'odd': its parameters must be names of sources and views, without '*'",
        "bad.py:20: view 'odd' flows into 'oot', which is no sink (did you mean 'out'?)",
    ]


def _without_places(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kept = [item.name for item in fields(value) if "place" not in item.name]
        return {name: _without_places(getattr(value, name)) for name in kept}
    return {key: _without_places(item) for key, item in value.items()} if isinstance(value, dict) else value
