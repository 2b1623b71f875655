"""The order of the house: sizes, names, and the world as a parameter.

Clock, timers, randomness, files, tasks and threads come into the layers below `broker/` as arguments; what calls them
itself is named here with its reason. An exception that no code needs any more fails too, so that the lists only shrink.
"""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.protocol.apis import find
from moldau.requests import registry

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "moldau"
Function = ast.FunctionDef | ast.AsyncFunctionDef
BELOW_BROKER = (
    "handlers",
    "fastpath",
    "requests",
    "coordinators",
    "cluster",
    "replication",
    "log",
    "records",
    "protocol",
    "core",
)

FUNCTION_LINES_MAX = 65
"""A docstring is not counted."""
FILE_LINES_MAX = 660
LARGER_FILES: dict[str, int] = {}
"""May shrink, and then leave."""

WALL = {
    "core/clock": "the clock itself",
    "requests/turns": "how long a turn of the loop has lasted is measured where it is spent",
    "cluster/embedded": "waits for a lease to run out where there is no loop to wait in",
    "cluster/zookeeper": "kazoo's sockets and sessions live in real time",
    "log/compaction/process": "a process of its own, which holds itself to a rate",
}
FILES = {
    "core/real_files": "the real twin of `Files`",
    "cluster/embedded": "SQLite's file and the lock files beside it, which `Files` does not know",
}
TASKS = {
    "cluster/embedded": "looks for changes of other processes, and keeps the lease from a thread",
    "cluster/zookeeper": "kazoo's client is stopped in a thread, as it may take its time",
    "handlers/k00_produce": "an append whose records are opened in a thread goes on when its client is gone",
    "requests/pending": "the one place where a handler's coroutine becomes a task, which its connection cancels",
    "fastpath/produce": "the same for the fast path",
}
LOOPS = {
    "cluster/embedded": "signs of life, leases and retries live in real time",
    "cluster/zookeeper": "kazoo's sockets and sessions live in real time",
    "cluster/loader": "gives way between the parts of a large image",
    "cluster/metadata": "gives way between the parts of a large image",
    "requests/turns": "shares the running loop out, whichever it is",
    "requests/pending": "a coroutine awaits a pending answer in its own loop",
    "requests/groups_access": "a coroutine awaits a promise in its own loop",
    "replication/durability": "a coroutine awaits a sync in its own loop",
}
RANDOM: Mapping[str, str] = {}
BANNED: Mapping[str, tuple[re.Pattern[str], Mapping[str, str]]] = {
    "clock": (re.compile(r"time\.(time|monotonic|perf_counter|process_time|sleep)(_ns)?"), WALL),
    "randomness": (re.compile(r"(random\.\w+|Random|uuid\.uuid\d|uuid4|os\.urandom|urandom|secrets\.\w+)"), RANDOM),
    "file": (re.compile(r"(open|io\.open|os\.open|path\.open|Path\.open|\.open)"), FILES),
    "loop or timer": (
        re.compile(
            r"(.*\.)?(get_running_loop|get_event_loop|new_event_loop)|(.*\.)?_?loop\.\w+"
            r"|asyncio\.(sleep|wait_for|timeout|timeout_at)|(?!(.*\.)?_?scheduler\.).*\.call_(later|at|soon\w*)"
        ),
        LOOPS,
    ),
    "task or thread": (re.compile(r"(.*\.)?(create_task|ensure_future|Thread|run_in_executor|to_thread)"), TASKS),
}


OPENINGS = (
    *("Those", "These", "That", "This", "It", "Its", "They", "Their", "There", "Here", "Such", "Same", "All that"),
    *("What", "Whatever", "Which", "Who", "Whoever", "Whose", "How", "When", "Whenever", "Where", "Wherever", "Why"),
    *("As", "At", "After", "Before", "Behind", "Between", "By", "For", "From", "In", "Inside", "Of", "On", "Out of"),
    *("To", "Under", "Until", "Up to", "While", "With", "Without", "Within", "Once", "Only", "Since", "So", "Than"),
    *("And", "But", "If", "Nor", "Not", "Nothing", "One that", "Or", "Otherwise", "Then", "Though"),
    *("Because", "Also", "Neither", "Either of", "Never", "Unless", "Now", "Told", "May"),
)
"""First words that are neither the noun that is returned nor the verb that is done (CONTRIBUTING, rule 9)."""
BAD_OPENING = re.compile(rf"({'|'.join(OPENINGS)})\b(?!-)")
ONE_HOME = {
    "ACKS_ALL": "replication/durability.py",
    "CONTROL_FLAG": "records/batch.py",
    "EPOCH_MAX": "protocol/fetch_values.py",
    "FETCH_BY_TOPIC_ID": "protocol/fetch_values.py",
    "FIRST_EPOCH": "protocol/fetch_values.py",
    "INTERNAL_TOPICS": "core/internal_topics.py",
    "LOG_OVERHEAD": "records/batch.py",
    "NO_SESSION": "protocol/fetch_values.py",
    "NO_TIMESTAMP": "records/batch.py",
    "OFFSETS_TOPIC": "core/internal_topics.py",
    "READ_COMMITTED": "protocol/fetch_values.py",
    "SEQUENCE_MASK": "records/batch.py",
    "SIZE_BYTES": "protocol/framing.py",
    "TRANSACTIONAL_FLAG": "records/batch.py",
    "UNKNOWN": "protocol/fetch_values.py",
    "WITHOUT_SESSION": "protocol/fetch_values.py",
}
"""Numbers and names of the protocol, and the one file that says what each is. An underscore makes no other name."""


class Source(NamedTuple):
    """The facts of one file of the package."""

    lines: int
    constants: frozenset[str]
    """The names that the module itself assigns, without an underscore in front."""
    functions: Sequence[tuple[str, int]]
    """The names of functions, and their lengths."""
    calls: Sequence[tuple[str, int]]
    """The names of called functions, as they are written, and their lines."""
    docstrings: Sequence[tuple[str, int]]
    """Docstrings, also of constants and attributes, and their lines."""


@cache
def sources() -> dict[str, Source]:
    """The files of the package, by path."""
    return {path.relative_to(SOURCE).as_posix(): source(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def source(text: str) -> Source:
    module = ast.parse(text)
    nodes = list(ast.walk(module))
    functions = [(node.name, length(node)) for node in nodes if isinstance(node, Function)]
    calls = [(dotted(node.func), node.lineno) for node in nodes if isinstance(node, ast.Call)]
    return Source(text.count("\n"), frozenset(assigned(module)), functions, calls, list(docstrings(nodes)))


def assigned(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            yield from (each.id.lstrip("_") for each in names)


def docstrings(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Each string that is a statement by itself, without the blanks around it, and its line."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value.strip(), node.lineno


def dotted(node: ast.expr) -> str:
    """The dotted name `a.b.c` of an expression; parts that are no names are left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def length(function: Function) -> int:
    """The lines of a function without its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or 0) - docstring.lineno + 1)


def test_a_function_is_read_without_scrolling() -> None:
    long = {
        f"{Path(path).stem}.{name}": lines
        for path, found in sources().items()
        for name, lines in found.functions
        if lines > FUNCTION_LINES_MAX
    }
    assert long == {}, "cut it in two"


def test_a_file_holds_one_noun() -> None:
    lines = {path: found.lines for path, found in sources().items()}
    large = {path: count for path, count in lines.items() if count > LARGER_FILES.get(path, FILE_LINES_MAX)}
    assert large == {}, "split it"
    done = [path for path in LARGER_FILES if lines.get(path, 0) <= FILE_LINES_MAX]
    assert done == [], "no longer an exception: take it off the list"


@pytest.mark.parametrize("world", BANNED)
def test_the_world_is_a_parameter_below_the_broker(world: str) -> None:
    pattern, rooms = BANNED[world]
    found = [
        (path, f"{path}:{line} {called}()")
        for path, one in sources().items()
        if path.startswith(tuple(f"{layer}/" for layer in BELOW_BROKER))
        for called, line in one.calls
        if pattern.fullmatch(called)
    ]
    assert [text for path, text in found if not path.startswith(tuple(rooms))] == [], "take it as an argument"
    unused = [room for room in rooms if not any(path.startswith(room) for path, _ in found)]
    assert unused == [], "no longer an exception: take it off the list"


@pytest.mark.parametrize("name", ONE_HOME)
def test_a_constant_of_the_protocol_has_one_home(name: str) -> None:
    assert [path for path, found in sources().items() if name in found.constants] == [ONE_HOME[name]]


@pytest.mark.parametrize("path", sorted((SOURCE / "handlers").glob("k[0-9]*.py")), ids=lambda path: path.stem)
def test_a_handlers_file_is_named_after_its_key_and_registered(path: Path) -> None:
    key = int(path.stem[1:].split("_")[0])
    api = find(key)
    assert api is not None
    assert path.stem == f"k{key:02}_{re.sub(r'(?<!^)(?=[A-Z])', '_', api.name).lower()}"
    assert registry.modules()[key] == path.stem
    assert callable(registry.handler(key))
    assert importlib.import_module(f"moldau.handlers.{path.stem}").__doc__, "the docstring is the contract"


def test_a_docstring_begins_with_a_noun_or_a_verb() -> None:
    found = [
        f"{path}:{line} {text.splitlines()[0]}"
        for path, each in sources().items()
        for text, line in each.docstrings
        if BAD_OPENING.match(text)
    ]
    assert found == [], "say the noun or the verb"


@pytest.mark.parametrize("opening", ["Those of one connection.", "As above.", "What there is.", "In one go; more."])
def test_a_docstring_that_begins_with_a_pronoun_is_found(opening: str) -> None:
    assert BAD_OPENING.match(opening)
    assert not BAD_OPENING.match("Asynchronous answers.")


def test_only_commands_print() -> None:
    commands = ("cli/", "broker/main.py")  # `moldau serve` is a command, too
    printing = [path for path, found in sources().items() if any(called == "print" for called, _ in found.calls)]
    assert [path for path in printing if not path.startswith(commands)] == []


SUBSCRIBERS = {"broker/cluster_member.py", "broker/shutdown.py", "testing/brokers.py"}
"""The list of listeners; and who waits for a moment, and ends that by itself."""


def test_listeners_of_the_image_are_one_list_in_one_place() -> None:
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    assert {name for name, text in files.items() if re.search(r"metadata\.subscribe\(", text)} == SUBSCRIBERS


def test_nothing_is_left_to_do() -> None:
    word = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for directory in ("src", "tests", "bench", "examples")
        for path in sorted((ROOT / directory).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
    ]
    assert found == [], "do it, or write it where work is kept"


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    assert [name for name in re.findall(r"`make ([a-z-]+)", text) if name not in targets] == []


def test_every_file_that_the_map_names_is_there() -> None:
    named = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+\.py)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert len(named) > 60
    rooms = (SOURCE, SOURCE / "pipelines", ROOT)
    assert [name for name in sorted(named) if not any((room / name).exists() for room in rooms)] == []


def test_every_example_is_run_by_a_test() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.py")} - {
        "__init__",
        "demo",
    }  # `make demo` takes a minute
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*/test_*.py") if path != Path(__file__))
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", tests)] == []
