"""The statements of a client's text: where each ends, its command unless it is a query, its numbered parameters.

A text is read once, in time linear in its length; the event loop reads only short texts.

Words are split as in PostgreSQL (chapter 4.1, "Lexical Structure"). Only the ends of statements depend on that: each
statement is then parsed by the engine's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(
    r"""
      (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*+(?:'|\Z))
    | (?P<string>'(?:[^']|'')*+(?:'|\Z))
    | (?P<name>"(?:[^"]|"")*+(?:"|\Z))
    | (?P<parameter>\$[0-9]+)
    | (?P<dollar>\$(?P<label>[^\W\d]\w*)?\$)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<end>;)
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTROL = {
    "begin": "begin",
    "start transaction": "begin",
    "commit": "commit",
    "end": "commit",
    "rollback": "rollback",
    "abort": "rollback",
}
MOST_CHARACTERS = 100_000
"""The largest number of characters of a text; a list of ten thousand numbers has fewer."""
MOST_PARAMETERS = 1_000
MOST_STATEMENTS = 1_000
"""The largest number of statements of one text."""
_FIRST_WORDS, _LONGEST_WORD = 3, 128
"""The number of first words that are kept of a statement, and of characters of each."""


def _iterate_words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, start and end of each word; comments are spaces."""
    at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:  # every character is some word
            return
        kind, end = str(match.lastgroup if match.lastgroup != "label" else "dollar"), match.end()
        if kind == "block":
            kind, end = "space", _find_block_end(text, end)
        elif kind == "dollar":
            found = text.find(match.group("dollar"), end)
            kind, end = "string", len(text) if found < 0 else found + len(match.group("dollar"))
        elif kind == "comment":
            kind = "space"
        yield kind, at, end
        at = end


def _find_block_end(text: str, at: int) -> int:
    """Return the end of a comment, within which others may nest."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text: its start, the number of its parameters, and its first words, in lower case unless quoted."""

    text: str
    start: int = 0
    parameters: int = 0
    words: tuple[str, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> Statement:
        """Read a text of one statement; one without words is empty."""
        return next(iter(parse_statements(text)), cls(""))

    @property
    def command(self) -> str | None:
        """Return the transaction command: begin, commit, rollback, rollback to, savepoint or release; None for other statements.

        >>> [Statement.from_text(text).command for text in ("Start Transaction READ ONLY", "ROLLBACK TO a", "SELECT 1")]
        ['begin', 'rollback to', None]
        """
        words = self.words
        if not words:
            return None
        if words[0] in ("savepoint", "release"):
            return words[0]
        if words[0] == "rollback" and (
            "to" in words[1:2] or words[1:] in (("transaction", "to"), ("work", "to"))
        ):
            return "rollback to"
        return _CONTROL.get(words[0]) or _CONTROL.get(" ".join(words[:2]))

    @property
    def is_explain(self) -> bool:
        """Return whether the statement is EXPLAIN."""
        return self.words[:1] == ("explain",)


def parse_statements(text: str) -> tuple[Statement, ...]:
    r"""Read the statements of a text in one pass; comments alone are none. Raises ValueError for too many.

    >>> [(each.text, each.start) for each in parse_statements("SELECT ';' ; -- no\n; select 2")]
    [("SELECT ';' ", 0), (' select 2', 20)]
    """
    found = list[Statement]()
    start, parameters, words = 0, 0, list[str]()

    def add_statement(end: int) -> None:
        if len(found) == MOST_STATEMENTS:
            raise ValueError
        found.append(Statement(text[start:end], start, parameters, tuple(words)))

    for kind, at, end in _iterate_words(text):
        if kind == "end":
            if words:
                add_statement(at)
            start, parameters, words = end, 0, []
        elif kind != "space":
            if kind == "parameter":
                parameters = max(parameters, _parse_parameter_number(text[at + 1 : end]))
            if len(words) < _FIRST_WORDS:
                word = text[at : min(end, at + _LONGEST_WORD)]
                words.append(word if kind == "name" else word.lower())
    if words:
        add_statement(len(text))
    return tuple(found)


def remove_comments(text: str) -> str:
    """Return a statement with a space for each comment and each run of spaces.

    >>> remove_comments("/* by a tool */ SET  a = '--b' -- c")
    "SET a = '--b'"
    """
    return "".join(" " if kind == "space" else text[at:end] for kind, at, end in _iterate_words(text)).strip()


def count_parameters(text: str) -> int:
    """Return the highest number of a parameter in a statement."""
    return max(
        (
            _parse_parameter_number(text[at + 1 : end])
            for kind, at, end in _iterate_words(text)
            if kind == "parameter"
        ),
        default=0,
    )


def _parse_parameter_number(digits: str) -> int:
    return min(int(digits[:6]), MOST_PARAMETERS)


def to_named_parameters(text: str) -> tuple[str, list[int]]:
    """Return the statement with `:p1` for `$1`, and the places of the letters p in the new text.

    A cast to text or to an array directly after a parameter is replaced by spaces, since the parameter's value has its type.

    >>> to_named_parameters("SELECT $1, '$1', $12::VARCHAR")
    ("SELECT :p1, '$1', :p12         ", [8, 19])
    """
    parts, places, length = list[str](), list[int](), 0
    words = list(_iterate_words(text))
    blank = -1
    for index, (kind, at, end) in enumerate(words):
        part = text[at:end]
        if kind == "parameter":
            part = f":p{part[1:]}"
            places.append(length + 1)
            blank = index + _count_cast_words([text[a:b].upper() for _, a, b in words[index + 1 : index + 6]])
        elif index <= blank:
            part = " " * len(part)
        parts.append(part)
        length += len(part)
    return "".join(parts), places


def _count_cast_words(words: list[str]) -> int:
    """Return the number of first words that are a cast to text of any length, or to an array."""
    if words[:2] != [":", ":"]:
        return 0
    if words[3:5] == ["[", "]"]:
        return 5
    return 3 if words[2:3] in (["VARCHAR"], ["TEXT"]) and words[3:4] not in (["("], ["["]) else 0
