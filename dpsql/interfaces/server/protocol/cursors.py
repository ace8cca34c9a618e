"""Cursors: DECLARE runs a query once and keeps its rows, which FETCH and MOVE read.

Claim: reading a cursor charges nothing and reads no data.
Why: its query is run, and charged, by DECLARE, like every other query; FETCH and MOVE take rows of the answer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.interfaces.server.protocol.errors import StatementError
from dpsql.interfaces.server.protocol.tasks import Answer
from dpsql.interfaces.server.protocol.values import Column
from dpsql.interfaces.server.statements import Statement
from dpsql.sql.parse.scanner import Piece, PieceKind, collapse_space, iterate_pieces

_LONGEST_NAME = 63
_MOST_OPTIONS = 12
_LONGEST_FETCH = 1_000
_QUERIES = ("select", "with", "values", "from", "(", "table")
_IGNORED = ("insensitive", "asensitive")
_SPACE = (PieceKind.SPACE, PieceKind.LINE_COMMENT, PieceKind.BLOCK_COMMENT)
_FETCH = re.compile(
    r"(?P<what>FETCH|MOVE)\b"
    r"(?:\s*(?P<end>NEXT|PRIOR|FIRST|LAST|ALL)\b(?=\s+\S)"
    r"|\s*(?P<way>ABSOLUTE|RELATIVE|FORWARD|BACKWARD)\b(?:\s*(?P<steps>[+-]?\s?\d{1,9})\b|\s+(?P<all>ALL)\b)?(?=\s+\S)"
    r"|\s*(?P<count>[+-]?\s?\d{1,9})\b)?"
    r"\s*(?:\b(?:FROM|IN)\b)?\s*(?P<name>\"(?:[^\"]|\"\")+\"|[^\W\d][\w$]*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """DECLARE of a cursor: its name, its query, and its options."""

    name: str
    query: Statement
    is_binary: bool = False
    is_holdable: bool = False
    can_scroll: bool = True


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH or MOVE of a cursor.

    `steps` is the number of rows, or None for all of them, and negative for rows before the place; with `is_absolute` it is a
    place, and with `is_relative` a distance, of one row.
    """

    name: str
    steps: int | None
    is_backward: bool = False
    is_absolute: bool = False
    is_relative: bool = False
    is_move: bool = False


@dataclass(slots=True)
class Cursor:
    """The rows of a cursor, and its place: 0 before the first row, and one more than the rows after the last."""

    columns: tuple[Column, ...] | None
    rows: Sequence[tuple[Any, ...]]
    size: int
    can_scroll: bool
    is_holdable: bool
    is_binary: bool = False
    is_held: bool = False
    place: int = 0

    @classmethod
    def from_answer(cls, declaration: Declaration, found: Answer, *, is_held: bool) -> Cursor:
        """Return the cursor of an answer; `is_held` says whether it is open beyond the transaction already."""
        return cls(
            found.columns,
            found.rows,
            found.size,
            declaration.can_scroll,
            declaration.is_holdable,
            declaration.is_binary,
            is_held and declaration.is_holdable,
        )

    def estimate_size(self, count: int) -> int:
        """Return the approximate size of a number of rows, in bytes."""
        return self.size * count // max(len(self.rows), 1)

    def fetch_rows(self, fetch: Fetch) -> Sequence[tuple[Any, ...]]:
        """Move the place, and return the rows that it passes. Raises StatementError if it may not move backward."""
        last = len(self.rows) + 1
        if fetch.is_absolute or fetch.is_relative:
            steps = fetch.steps or 0
            base = self.place if fetch.is_relative else last if steps < 0 else 0
            return self._take_row(min(max(base + steps, 0), last))
        if fetch.steps == 0:
            return self._take_row(self.place)
        steps = last if fetch.steps is None else fetch.steps
        if fetch.is_backward:
            steps = -steps
        self._require_forward(self.place + steps)
        before, self.place = self.place, min(max(self.place + steps, 0), last)
        if steps > 0:
            return self.rows[before : min(self.place, last - 1)]
        return self.rows[max(self.place - 1, 0) : max(before - 1, 0)][::-1]

    def _take_row(self, place: int) -> Sequence[tuple[Any, ...]]:
        self._require_forward(place)
        self.place = place
        return self.rows[place - 1 : place] if place else ()

    def _require_forward(self, place: int) -> None:
        if place < self.place and not self.can_scroll:
            raise StatementError(
                "55000", "cursor can only scan forward", "declare it with SCROLL to enable backward scan"
            )


def is_fetch(statement: Statement) -> bool:
    """Return whether a statement is FETCH or MOVE."""
    return statement.words[:1] in (("fetch",), ("move",))


def parse_declaration(statement: Statement) -> Declaration | None:
    """Return the cursor that DECLARE declares, or None for another statement. Raises StatementError for wrong syntax."""
    if statement.words[:1] != ("declare",):
        return None
    text, pieces = statement.text, _iterate_words(statement.text)
    next(pieces)
    name = _read_name(text, next(pieces, None))
    options = list[str]()
    for piece in itertools.islice(pieces, _MOST_OPTIONS):
        word = text[piece.start : piece.end].lower()
        if word == "for":
            break
        options.append(word)
    first = next(pieces, None)
    at = options.index("cursor") if "cursor" in options else None
    known = [word for word in options[:at] if word not in _IGNORED]
    scroll, after = [word for word in known if word != "binary"], options[at + 1 :] if at is not None else []
    if (
        at is None
        or first is None
        or known.count("binary") > 1
        or scroll not in ([], ["scroll"], ["no", "scroll"])
        or after not in ([], ["with", "hold"], ["without", "hold"])
    ):
        raise StatementError(
            "42601", "DECLARE takes a name and a query", "for example: DECLARE c CURSOR FOR SELECT …"
        )
    words = (text[first.start : first.end].lower(),)
    if words[0] not in _QUERIES:
        raise StatementError("42601", "DECLARE CURSOR must specify SELECT or VALUES")
    query = Statement(text[first.start :], statement.start + first.start, statement.parameters, words)
    return Declaration(name, query, "binary" in known, after[:1] == ["with"], scroll != ["no", "scroll"])


def parse_fetch(statement: Statement) -> Fetch:
    """Return what FETCH or MOVE reads. Raises StatementError for wrong syntax."""
    text = statement.text
    match = _FETCH.fullmatch(collapse_space(text)) if len(text) <= _LONGEST_FETCH else None
    if match is None:
        raise StatementError(
            "42601",
            f"{statement.words[0].upper()} takes a direction and the name of a cursor",
            "for example: FETCH FORWARD 100 FROM c",
        )
    name = match["name"]
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
    is_move = match["what"].upper() == "MOVE"
    end, way = (match["end"] or "").upper(), (match["way"] or "").upper()
    if end in ("FIRST", "LAST"):
        return Fetch(name, 1 if end == "FIRST" else -1, is_absolute=True, is_move=is_move)
    steps: int | None = 1
    if end == "ALL" or match["all"]:
        steps = None
    elif match["steps"] or match["count"]:
        steps = int((match["steps"] or match["count"]).replace(" ", ""))
    if way in ("ABSOLUTE", "RELATIVE"):
        return Fetch(
            name, steps, is_absolute=way == "ABSOLUTE", is_relative=way == "RELATIVE", is_move=is_move
        )
    return Fetch(name, steps, is_backward=end == "PRIOR" or way == "BACKWARD", is_move=is_move)


def _iterate_words(text: str) -> Iterator[Piece]:
    return (piece for piece in iterate_pieces(text) if piece.kind not in _SPACE)


def _read_name(text: str, piece: Piece | None) -> str:
    """Return the name of a cursor. Raises StatementError if there is none."""
    word = "" if piece is None else text[piece.start : piece.end]
    if piece is None or piece.kind not in (PieceKind.WORD, PieceKind.NAME) or word.startswith("`"):
        raise StatementError("42601", "DECLARE takes the name of a cursor")
    name = word[1:-1].replace('""', '"') if piece.kind is PieceKind.NAME else word.lower()
    if not name or len(name) > _LONGEST_NAME:
        raise StatementError("42622", f"the name of a cursor has 1 to {_LONGEST_NAME} characters")
    return name
