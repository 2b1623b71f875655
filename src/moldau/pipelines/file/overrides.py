"""Options given on the command line in place of those in the file: `trigger=5 seconds`, `sinks.table.postgres=URL`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from moldau.pipelines.file.draft import PIPELINE_OPTIONS, Draft, Entry
from moldau.pipelines.file.options import Given
from moldau.pipelines.file.problems import PipelineError, Place, Problem, suggestion

PLACE = Place("command line", 1)


def override(draft: Draft, settings: Mapping[str, str]) -> Draft:
    """The draft with the settings in it. Raises PipelineError for a name that nothing has."""
    for name, text in settings.items():
        draft = _set(draft, name, Given(_value(text), PLACE))
    return draft


def _value(text: str) -> object:
    """The value of a text, read as in a file: a number, a list or a text."""
    import yaml

    from moldau.pipelines.file.yaml_file import Loader

    try:
        return yaml.load(text, Loader=Loader)
    except yaml.YAMLError:
        return text


def _set(draft: Draft, name: str, value: Given) -> Draft:
    known = [option.name for option in PIPELINE_OPTIONS]
    if name in known:
        return replace(draft, given={**draft.given, name: value})
    section, _, rest = name.partition(".")
    if section == "sources":
        return replace(draft, sources=_in_entry(draft.sources, name, rest, value))
    if section == "sinks":
        return replace(draft, sinks=_in_entry(draft.sinks, name, rest, value))
    raise PipelineError(
        [Problem(PLACE, f"--set: there is no {name!r}", suggestion(name, [*known, "sources", "sinks"]))]
    )


def _in_entry(entries: Iterable[Entry], name: str, rest: str, value: Given) -> list[Entry]:
    """The entries with one option replaced. Names of sinks may have dots: the longest one counts."""
    entries = list(entries)
    named = [entry for entry in entries if rest.startswith(f"{entry.name}.")]
    if not named:
        known = [entry.name for entry in entries]
        raise PipelineError(
            [Problem(PLACE, f"--set: {name!r} names nothing", suggestion(rest.partition(".")[0], known))]
        )
    found = max(named, key=lambda entry: len(entry.name))
    changed = replace(found, given={**found.given, rest.removeprefix(f"{found.name}."): value})
    return [changed if entry is found else entry for entry in entries]
