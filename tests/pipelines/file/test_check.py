"""Ways to write a bad pipeline file, each with what is said of it: the line, the fault, and a remedy if any."""

from pathlib import Path

import pytest

from moldau.pipelines import PipelineError, load
from moldau.pipelines.file.check import check
from tests.pipelines.clusters import Cluster
from tests.pipelines.writing import problems_of, write

BAD_FILES = {
    "a pipeline that would read what it writes": (
        """\
        name: bad
        dead_letters: page-views
        sources:
          visits: {topic: page-views, schema: a INT}
          others: {pattern: "page-.*", schema: a INT}
          beats: {rate: 1}
        sinks:
          out: {from: visits, topic: page-views}
          elsewhere: {from: visits, topic: page-views, bootstrap: "other:9092"}
          more: {from: others, topic: page-copies}
          fine: {from: beats, topic: page-views}
        """,
        [
            "bad.yaml:4: source 'visits' reads 'page-views', the pipeline's own dead letters: what cannot be read would"
            " go round without end (another topic)",
            "bad.yaml:5: source 'others' reads 'page-views', the pipeline's own dead letters: what cannot be read would"
            " go round without end (another topic)",
            "bad.yaml:8: sink 'out' writes to 'page-views', which its source 'visits' reads: it would go round without"
            " end (another topic)",
            "bad.yaml:10: sink 'more' writes to 'page-copies', which its source 'others' reads: it would go round"
            " without end (another topic)",
        ],
    ),
    "two sinks in one directory": (
        """\
        name: bad
        sources: {a: {rate: 1}, b: {rate: 1}}
        sinks:
          one: {from: a, parquet: out}
          two: {from: b, parquet: ./out}
        """,
        [
            "bad.yaml:5: sink 'two' writes to the directory of 'one': rows of one of them would be lost"
            " (one sink with `from: [a, b]`)"
        ],
    ),
    "values of another shape": (
        """\
        name: bad
        storage: s3a://bucket/state
        spark: {spark: {driver: {memory: 4g}}}
        client: {acks: }
        sources: {a: {rate: 1, watermark: timestamp 10 minuts}, b: {rate: 1, watermark: timestamp -1 day}}
        sinks: {out: {from: [a, a], console: 1}}
        """,
        [
            "bad.yaml:2: the pipeline: 'storage' must be a directory, on this machine or mounted, and no address, not"
            " 's3a://bucket/state'",
            "bad.yaml:3: the pipeline: 'spark' must be names with one value each, and 'spark' has several, not"
            " {'spark': {'driver': {'memory': '4g'}}}",
            "bad.yaml:4: the pipeline: 'client' must be names with one value each, and 'acks' has none, not"
            " {'acks': None}",
            "bad.yaml:5: source 'a': 'watermark' must be a column and a time, such as `at 1 day`, not"
            " 'timestamp 10 minuts'",
            "bad.yaml:5: source 'b': 'watermark' must be a column and a time, such as `at 1 day`, not"
            " 'timestamp -1 day'",
            "bad.yaml:6: sink 'out': 'from' must be names, each once, not ['a', 'a']",
        ],
    ),
    "a name that is too long for a file": (
        f"""\
        name: {"n" * 121}
        sources: {{a: {{rate: 1}}}}
        sinks: {{out: {{from: a, console: 1}}}}
        """,
        [f"bad.yaml:1: the pipeline: 'name' must be a name of 120 letters at most, not '{'n' * 121}'"],
    ),
    "a setting that Spark would pass over": (
        """\
        name: bad
        spark: {driver.memory: 4g}
        sources: {a: {rate: 1}}
        sinks: {out: {from: a, console: 1}}
        """,
        [
            "bad.yaml:2: the pipeline: 'spark' must be settings whose names begin with `spark.`, and 'driver.memory'"
            " does not, not {'driver.memory': '4g'}"
        ],
    ),
    "an option misspelled": (
        """\
        name: bad
        sources:
          visits:
            topic: page-views
            watermrk: at 1 day
        sinks: {out: {from: visits, topic: copy}}
        """,
        ["bad.yaml:5: source 'visits' has no option 'watermrk' (did you mean 'watermark'?)"],
    ),
    "a kind misspelled": (
        """\
        name: bad
        sources: {visits: {topc: page-views}}
        sinks: {out: {from: visits, sqlight: file.db, table: visits}}
        """,
        [
            "bad.yaml:2: source 'visits' does not say what kind it is (did you mean 'topic'?)",
            "bad.yaml:3: sink 'out' does not say what kind it is (did you mean 'sqlite'?)",
        ],
    ),
    "no kind at all": (
        """\
        name: bad
        sources: {visits: {schema: a INT}}
        sinks: {out: {from: visits, topic: copy}}
        """,
        ["bad.yaml:2: source 'visits' does not say what kind it is (one of: files, pattern, postgres, rate, topic)"],
    ),
    "two kinds in one entry": (
        """\
        name: bad
        sources:
          visits:
            topic: page-views
            rate: 5
        sinks: {out: {from: visits, topic: copy}}
        """,
        ["bad.yaml:3: source 'visits' is of several kinds: topic, rate (it can have one)"],
    ),
    "a format that there is not": (
        """\
        name: bad
        sources:
          visits:
            topic: page-views
            format: jsn
            schema: a INT
        sinks: {out: {from: visits, topic: copy}}
        """,
        ["bad.yaml:5: source 'visits': there is no format 'jsn' (did you mean 'json'?)"],
    ),
    "a mode that there is not": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        sinks:
          out: {from: beats, topic: copy, mode: updat}
        """,
        [
            "bad.yaml:4: sink 'out': 'mode' must be one of append, update, complete, not 'updat'"
            " (did you mean 'update'?)"
        ],
    ),
    "a mode that the sink cannot": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        sinks:
          files: {from: beats, parquet: beats, mode: update}
          table: {from: beats, sqlite: beats.db, table: beats, mode: update}
        """,
        [
            "bad.yaml:4: sink 'files': mode 'update' does not go: parquet can only append",
            "bad.yaml:5: sink 'table': mode 'update' does not go: sqlite needs a 'key' for it",
        ],
    ),
    "a value of the wrong sort": (
        """\
        name: bad
        trigger: often
        sources:
          beats:
            rate: fast
            watermark: timestamp
        sinks: {out: {from: beats, topic: copy, key: }}
        """,
        [
            "bad.yaml:2: the pipeline: 'trigger' must be a time such as `1 second` or `500 milliseconds`, not 'often'",
            "bad.yaml:5: source 'beats': 'rate' must be a whole number, 0 or more, not 'fast'",
            "bad.yaml:6: source 'beats': 'watermark' must be a column and a time, such as `at 1 day`, not 'timestamp'",
            "bad.yaml:7: sink 'out': 'key' must be a name or a list of names, not empty",
        ],
    ),
    "an option that is needed and missing": (
        """\
        sources: {beats: {rate: 1}}
        sinks:
          out:
            topic: copy
        """,
        [
            "bad.yaml:1: the pipeline needs 'name': the pipeline's name; consumer groups begin with it",
            "bad.yaml:3: sink 'out' needs 'from': the views or sources whose rows it takes",
        ],
    ),
    "a sink that takes rows from nothing": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        sinks:
          out:
            topic: copy
            from: [beats, beets]
        """,
        ["bad.yaml:6: sink 'out' takes rows from 'beets', which is no source or view (did you mean 'beats'?)"],
    ),
    "a view of what is not there": (
        """\
        name: bad
        sources: {visits: {topic: page-views, schema: a INT}}
        views:
          counts: |
            SELECT count(*)

            FROM visit
        sinks: {out: {from: counts, topic: copy}}
        """,
        ["bad.yaml:7: view 'counts' reads 'visit', which is no source or view (did you mean 'visits'?)"],
    ),
    "views that read each other": (
        """\
        name: bad
        views:
          first: SELECT * FROM third
          second: SELECT * FROM first
          third: SELECT * FROM second
        sinks: {out: {from: first, topic: copy}}
        """,
        ["bad.yaml:3: view 'first' reads itself: first -> third -> second -> first"],
    ),
    "no sinks": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        """,
        ["bad.yaml:1: the pipeline writes nothing: it has no sinks"],
    ),
    "a name written twice": (
        """\
        name: bad
        sources:
          beats: {rate: 1}
          beats: {rate: 2}
        sinks: {out: {from: beats, topic: copy}}
        """,
        ["bad.yaml:4: 'beats' is written twice, first in line 3"],
    ),
    "a view with the name of a source": (
        """\
        name: bad
        sources: {visits: {rate: 1}}
        views: {Visits: SELECT 1}
        sinks: {out: {from: visits, topic: copy}}
        """,
        ["bad.yaml:3: view 'Visits': the name is taken, in line 2"],
    ),
    "names that will not do": (
        """\
        name: my pipeline
        sources: {page-views: {rate: 1}}
        sinks: {a/b: {from: page-views, topic: copy}}
        """,
        [
            "bad.yaml:1: the pipeline: 'name' must be a name of letters, digits, '.', '_' and '-', not 'my pipeline'",
            "bad.yaml:2: source 'page-views': a name that SQL can use has letters, digits and '_' only"
            " (such as 'page_views')",
            "bad.yaml:3: sink 'a/b': its name may have letters, digits, '.', '_' and '-' only",
        ],
    ),
    "a section misspelled": (
        """\
        name: bad
        source: {beats: {rate: 1}}
        sinks: {}
        """,
        ["bad.yaml:2: the pipeline has no option 'source' (did you mean 'sources'?)"],
    ),
    "sql that is not there": (
        """\
        name: bad
        views:
          one: {file: one.sql}
          two: {sqll: SELECT 1}
          three:
        sinks: {out: {from: [one, two, three], topic: copy}}
        """,
        [
            "bad.yaml:3: view 'one': there is no file one.sql",
            "bad.yaml:4: view 'two' has no option 'sqll' (did you mean 'sql'?)",
            "bad.yaml:4: view 'two' needs its SQL: one of 'sql' and 'file'",
            "bad.yaml:5: view 'three' has no SQL",
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_told_what_is_wrong_and_where(name: str, tmp_path: Path) -> None:
    text, expected = BAD_FILES[name]
    assert problems_of(write(tmp_path, "bad.yaml", text)) == expected


def test_what_follows_from_another_problem_is_not_told(tmp_path: Path) -> None:
    text = """\
        name: bad
        sources: {visits: {topic: page-views, formt: json}}
        views: {counts: SELECT count(*) FROM visits}
        sinks:
          out: {from: counts, topic: copy}
          raw: {from: visits, topic: copy}
        """
    assert problems_of(write(tmp_path, "bad.yaml", text)) == [
        "bad.yaml:2: source 'visits' has no option 'formt' (did you mean 'format'?)"
    ]


def test_a_table_of_sparks_own_catalogue_is_left_to_spark(tmp_path: Path) -> None:
    text = """\
        name: good
        spark: {spark.sql.defaultCatalog: lake}
        sources: {beats: {rate: 1}}
        views: {named: SELECT * FROM beats JOIN names USING (value)}
        sinks: {out: {from: named, topic: copy}}
        """
    assert problems_of(write(tmp_path, "good.yaml", text)) == []


def test_loading_a_bad_file_raises_all_its_problems(tmp_path: Path) -> None:
    text = "name: bad\nsources: {beats: {rate: 1, raet: 2}}\nsinks: {out: {from: beets, console: 20}}\n"
    path = write(tmp_path, "bad.yaml", text)
    with pytest.raises(PipelineError) as caught:
        load(path)
    assert [problem.place.line for problem in caught.value.problems] == [2, 3]


def test_a_topic_that_is_not_there_is_told_together_with_the_rest(tmp_path: Path, moldau_cluster_only: Cluster) -> None:
    topic = moldau_cluster_only.new_topic()
    text = f"""\
        name: bad
        sources:
          visits: {{topic: {topic}, schema: a INT}}
          missing: {{topic: {topic}-not, schema: a INT}}
        sinks: {{out: {{from: [visits, missng], topic: {topic}-out, create: {{partitions: 1}}}}}}
        """
    bootstrap = moldau_cluster_only.bootstrap
    path = write(tmp_path, "bad.yaml", text)
    absent = f"{path}:4: source 'missing': there is no topic '{topic}-not' at {bootstrap} (did you mean {topic!r}?)"
    unread = "takes rows from 'missng', which is no source or view (did you mean 'missing'?)"
    assert [str(problem) for problem in check(load(path, bootstrap))] == [absent, f"{path}:5: sink 'out' {unread}"]

    path.write_text(path.read_text().replace("name: bad", "name: bad\ntrigger: often"))
    with pytest.raises(PipelineError) as caught:
        load(path, bootstrap, ask=True)
    assert [problem.place.line for problem in caught.value.problems] == [2, 5, 6]


def test_only_files_of_the_two_sorts_are_pipelines(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "none.yaml") == ["none.yaml:1: there is no such file"]
    assert problems_of(tmp_path / "visits.toml") == ["visits.toml:1: a pipeline is a .yaml or a .py file"]
