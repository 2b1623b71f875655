"""`pytest --own`, by which `make check` chooses its tests, lets nothing slip in."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests import conftest, selection

TESTS = Path(__file__).parent


def own(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\nmarkers =\n    foreign\n    alone")
    pytester.makepyfile(source)
    return pytester.runpytest_inprocess("-p", "tests.selection", "-p", "no:cacheprovider", "--own")


def test_what_is_left_out_by_its_path_is_there() -> None:
    assert [path for path in selection.LEFT_OUT if not (TESTS / path).exists()] == []


@pytest.mark.foreign  # it does start one
def test_a_test_that_starts_a_program_of_others_fails_though_the_program_is_there(pytester: pytest.Pytester) -> None:
    ended = own(pytester, "import subprocess\ndef test_it(): subprocess.run(['sh', '-c', 'true'], check=True)")
    ended.assert_outcomes(passed=1, errors=1)
    ended.stdout.fnmatch_lines(["*it started sh: mark it with pytest.mark.foreign*"])


def test_a_test_may_start_python(pytester: pytest.Pytester) -> None:
    source = "import subprocess, sys\ndef test_it(): subprocess.run([sys.executable, '-c', ''], check=True)"
    own(pytester, source).assert_outcomes(passed=1)


@pytest.mark.parametrize("name", sorted(selection.FOREIGN_FIXTURES))
def test_a_test_whose_fixtures_start_programs_of_others_is_left_out(pytester: pytest.Pytester, name: str) -> None:
    source = f"""
        import pytest

        @pytest.fixture
        def {name}(): raise SystemError("started")

        @pytest.fixture
        def behind_it({name}): pass

        def test_directly({name}): pass
        def test_indirectly(behind_it): pass
        def test_not_at_all(): pass
    """
    own(pytester, source).assert_outcomes(passed=1, deselected=2)


def test_a_marked_test_is_left_out(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.foreign
        def test_foreign(): pass

        @pytest.mark.alone
        def test_alone(): pass

        @pytest.mark.parametrize("store", ["own", pytest.param("other", marks=pytest.mark.foreign)])
        def test_one_of_its_cases(store): assert store == "own"
    """
    own(pytester, source).assert_outcomes(passed=1, deselected=3)


def test_of_what_is_drawn_by_chance_a_part_is_tried(pytester: pytest.Pytester) -> None:
    source = f"""
        from hypothesis import given, settings, strategies as st
        from tests.selection import examples

        drawn = {{"any": 0, "twice as many": 0}}

        @given(st.integers())
        def test_any(number): drawn["any"] += 1

        @settings(max_examples=examples({2 * selection.EXAMPLES}))
        @given(st.integers())
        def test_twice_as_many(number): drawn["twice as many"] += 1

        def test_how_many():
            assert drawn == {{"any": {selection.QUICK_EXAMPLES}, "twice as many": {2 * selection.QUICK_EXAMPLES}}}
    """
    own(pytester, source).assert_outcomes(passed=3)


def test_of_what_is_drawn_by_chance_all_is_tried_otherwise(pytester: pytest.Pytester) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile("moldau")
    try:
        own(pytester, "def test_it(): pass")
        assert settings().max_examples == selection.EXAMPLES
        assert selection.examples(7) == 7
    finally:
        settings.load_profile(before)


def test_the_fixtures_that_start_programs_of_others_are_those_of_the_tests() -> None:
    assert [name for name in selection.FOREIGN_FIXTURES if not hasattr(conftest, name)] == []
