"""Read the statements of a client's text: what each commands besides queries, and its numbered parameters.

A text is scanned once, in a time that grows with its length alone; the loop that serves all connections reads short ones only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.sql.parse.scanner import PieceKind, iterate_pieces, iterate_statements

_CAST = re.compile(r'::(?:(?:[\w$]+|"[^"]*")\[\]|(?:VARCHAR|TEXT)(?![\w$(\[]))', re.IGNORECASE)
"""A cast to an array, or to text of any length."""
_NUMBER_CAST = re.compile(
    r"::(?:FLOAT\((?:2[5-9]|[34]\d|5[0-3])\)|NUMERIC|DECIMAL)(?![\w$(\[])", re.IGNORECASE
)
"""A cast to a number with a fraction as SQLAlchemy writes it; the parameter's value is a double."""
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
"""Statements of one text."""


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
    for span in iterate_statements(text):
        if not span.first_words:
            continue
        if len(found) == MOST_STATEMENTS:
            raise ValueError
        parameters = min(span.highest_parameter, MOST_PARAMETERS)
        found.append(Statement(text[span.start : span.end], span.start, parameters, span.first_words))
    return tuple(found)


def count_parameters(text: str) -> int:
    """Return the highest number of a parameter in a statement."""
    return max((min(span.highest_parameter, MOST_PARAMETERS) for span in iterate_statements(text)), default=0)


def to_named_parameters(text: str) -> tuple[str, list[int]]:
    """Return the statement with `:p1` for `$1`, and the places of the letters p in the new text.

    A cast to text or to an array directly after a parameter is replaced by spaces, since the parameter's value has its type, and
    one to a number with a fraction by a cast to a double.

    >>> to_named_parameters("SELECT $1, '$1', $12::VARCHAR")
    ("SELECT :p1, '$1', :p12         ", [8, 19])
    >>> to_named_parameters("SELECT $1::FLOAT(53) > 2")
    ('SELECT :p1::FLOAT8    > 2', [8])
    """
    parts, places, length = list[str](), list[int](), 0
    start, cover = 0, ""
    for piece in iterate_pieces(text):
        part = text[piece.start : piece.end]
        if piece.kind is PieceKind.PARAMETER:
            part = f":p{part[1:]}"
            places.append(length + 1)
            start, cover = piece.end, _cover_cast(text, piece.end)
        elif piece.end <= start + len(cover):
            part = cover[piece.start - start : piece.end - start]
        parts.append(part)
        length += len(part)
    return "".join(parts), places


def _cover_cast(text: str, start: int) -> str:
    """Return the text that replaces the cast of a parameter that ends at `start`, of the same length."""
    if (cast := _CAST.match(text, start)) is not None:
        return " " * (cast.end() - start)
    if (cast := _NUMBER_CAST.match(text, start)) is not None:
        return "::FLOAT8".ljust(cast.end() - start)
    return ""
