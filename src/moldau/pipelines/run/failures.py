"""Failures of Spark in one line: the cause, without the stacks of two languages around it."""

import re

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


def explain(error: BaseException) -> str:
    """The root cause in words; the class of the error where it has none."""
    chain = [error]
    while (cause := getattr(chain[-1], "_cause", None)) is not None:
        chain.append(cause)
    texts = (_words(_text(link)) for link in reversed(chain))
    return next((text for text in texts if text not in SAYS_NOTHING), type(error).__name__)


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
