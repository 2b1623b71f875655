"""Names of the tables that a Spark SQL query reads, found without Spark, so that a check answers at once.

This is no parser: it follows FROM, JOIN and the commas of a FROM list, and leaves everything else to Spark's analysis.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
BEFORE_A_TABLE = frozenset({"LATERAL", "STREAM", "TABLE"})
BEGINS_A_QUERY = frozenset({"SELECT", "WITH", "VALUES"})
ENDS_THE_TABLES = frozenset(
    {"WHERE", "GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "HAVING", "LIMIT", "WINDOW", "QUALIFY"}
    | {"UNION", "EXCEPT", "MINUS", "INTERSECT", "VIEW", "|"}
)


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    name: str
    """The identifier without its quotes; empty for anything else."""
    offset: int

    @property
    def word(self) -> str:
        """The token in capitals, to compare with SQL's words; a quoted identifier is none of them."""
        return self.text.upper()


@dataclass(frozen=True, slots=True)
class TableName:
    name: str
    line: int
    """Line of the name, counted from 0."""
    own: bool
    """Whether the query defines the name itself (WITH), though it may still mean another of that name inside."""


@dataclass(slots=True)
class _Level:
    """State between two brackets. `awaits`: a table's name comes next; `lists`: a comma brings one more."""

    awaits: bool = False
    lists: bool = False
    query: bool = False
    begun: bool = False


@dataclass(slots=True)
class _Reader:
    levels: list[_Level] = field(default_factory=lambda: [_Level(query=True)])

    def reads(self, before: Token, token: Token, after: Token) -> bool:
        """Whether the token is the name of a table."""
        level = self.levels[-1]
        fresh, level.begun = not level.begun, True
        word = token.word
        if word == "(":
            self.levels.append(_Level(awaits=level.awaits, lists=level.awaits))
            level.awaits = False
        elif word == ")":
            if len(self.levels) > 1:
                self.levels.pop()
        elif word == "FROM":
            # not in extract(day FROM at), trim(BOTH ' ' FROM page), a IS DISTINCT FROM b
            if (level.query or fresh) and before.word != "DISTINCT":
                level.awaits = level.lists = level.query = True
        elif word == "JOIN" or (word == "TABLE" and fresh):
            level.awaits = True
        elif word == ",":
            level.awaits = level.lists
        elif word in BEGINS_A_QUERY or word in ENDS_THE_TABLES:
            level.query = level.query or word in BEGINS_A_QUERY
            level.awaits = level.lists = False
        elif level.awaits and word not in BEFORE_A_TABLE:
            level.awaits = False
            return bool(token.name) and after.text not in (".", "(")
        return False


def tables(sql: str) -> list[TableName]:
    """The names without a dot that the query reads."""
    tokens = [*_tokens(sql), Token("", "", len(sql)), Token("", "", len(sql))]
    reader, before = _Reader(), tokens[-1]
    found, own = [], set()
    for token, after, then in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.name and after.word == "AS" and then.text == "(":
            own.add(token.name.lower())
        if reader.reads(before, token, after) and before.text != ".":
            found.append(token)
        before = token
    return [TableName(table.name, sql.count("\n", 0, table.offset), table.name.lower() in own) for table in found]


def _tokens(sql: str) -> Iterator[Token]:
    for match in TOKEN.finditer(sql):
        if match.lastgroup == "skip":
            continue
        text = match.group()
        name = {"word": text, "quoted": text[1:-1].replace("``", "`")}.get(match.lastgroup or "", "")
        yield Token(text, name, match.start())
