"""Failures of Spark in one line: the cause, without the stacks of two languages around it."""

import linecache
import re
from pathlib import Path

import moldau
from moldau.pipelines.file.problems import Place

LENGTH_MAX = 600
"""Characters of a line: Spark's messages may carry a whole plan."""
TRACEBACK = "Traceback (most recent call last):\n"
NOISE = re.compile(r"(=== Streaming Query ===|JVM stacktrace:|Driver stacktrace:|\n\tat |\n== SQL|;\n).*", re.DOTALL)
TASK = re.compile(r"^Job aborted due to stage failure:.*?\(TID \d+\) \([^)]*\): ", re.DOTALL)
CONDITION = re.compile(r"^(?:[\w$.]+:\s*)?\[[A-Z0-9_.]+\]\s*")
STATE = re.compile(r"\s*SQLSTATE: \w+")
JAVA_CLASS = re.compile(r"^(?:[a-z][\w$]*\.)+([A-Z][\w$]*)(?::\s*|$)")
OUR_CLASS = re.compile(r"^moldau(?:\.\w+)+:\s*")
SAYS_NOTHING = ("", "null", "None")
OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|Java heap space|spark\.driver\.maxResultSize")
MORE_MEMORY = "make batches smaller by `max_per_batch`, or give Spark more by `spark: {spark.driver.memory: 4g}`"
IN_WORKER = "thrown from the Python worker"
FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+).*\n(?:    (?P<text>.*))?', re.MULTILINE)
LIBRARY = re.compile(
    rf"^<|/site-packages/|/lib/python\d[.\d]*/|/pyspark\.zip/|/moldau\.zip/|^{Path(moldau.__file__).parent}/"
)
"""Files that a user did not write: of Python, of packages, of ours on this machine and as sent to workers."""


def explain(error: BaseException) -> str:
    """The root cause in words; the class of the error where it has none. With the line of the user's file, if it was
    raised in a function that Spark called for rows."""
    texts = (_words(_text(link)) for link in reversed(chain(error)))
    words = next((text for text in texts if text not in SAYS_NOTHING), type(error).__name__)
    if OUT_OF_MEMORY.search(words):
        return f"{words} ({MORE_MEMORY})"
    found = line_of_user(error)
    return f"{words} ({found[0]}: {found[1]})" if found else words


def chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the root cause last."""
    found = [error]
    while (cause := getattr(found[-1], "_cause", None)) is not None:
        found.append(cause)
    return found


def line_of_user(error: BaseException) -> tuple[Place, str] | None:
    """The last line of a file of the user's before the error, and its text; None if no such code raised it in one of
    Spark's workers."""
    for link in reversed(chain(error)):
        said = str(link)
        if IN_WORKER in said and TRACEBACK in said:
            frames = [
                each for each in FRAME.finditer(said.rpartition(TRACEBACK)[2]) if not LIBRARY.search(each["file"])
            ]
            return _place(frames[-1]) if frames else None
    return None


def _place(frame: re.Match[str]) -> tuple[Place, str]:
    place = Place(frame["file"], int(frame["line"]))
    text = (frame["text"] or "").strip() or linecache.getline(place.file, place.line).strip()
    return place, text or "its source is not here"


def _text(error: BaseException) -> str:
    words = getattr(error, "_desc", None) or str(error)
    origin = getattr(error, "_origin", None)
    if words in SAYS_NOTHING and origin is not None:
        return str(origin.toString())
    if hasattr(error, "_desc") or CONDITION.match(words):
        return str(words)
    return f"{type(error).__name__}: {words}" if _tells_by_class(error) else words


def _tells_by_class(error: BaseException) -> bool:
    """Whether the class must be shown: Python's own errors are short of words, such as `KeyError: 'at'`."""
    return type(error).__module__ == "builtins" and not isinstance(error, OSError | RuntimeError | ValueError)


def _words(text: str) -> str:
    if TRACEBACK in text:
        text = _last_of_traceback(text)
    text = NOISE.sub("", TASK.sub("", text.strip()))
    text = STATE.sub("", CONDITION.sub("", text.strip()))
    line = " ".join(_short_class(OUR_CLASS.sub("", text)).split())
    return line if len(line) <= LENGTH_MAX else line[: LENGTH_MAX - 3] + "..."


def _short_class(text: str) -> str:
    """The text with a short class name: `UnknownHostException: nowhere` for `java.net.UnknownHostException:
    nowhere`."""
    return JAVA_CLASS.sub(lambda found: f"{found[1]}: ", text).removesuffix(": ")


def _last_of_traceback(text: str) -> str:
    """The text that Python printed after the last frame, message and all, up to Spark's own words."""
    after = text.rpartition(TRACEBACK)[2].splitlines()
    begin = next((number for number, line in enumerate(after) if line and not line.startswith(" ")), len(after) - 1)
    return "\n".join(after[begin:])
