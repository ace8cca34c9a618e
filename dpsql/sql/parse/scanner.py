r"""Scan SQL text that nobody has parsed yet: pieces with their places, and where statements end.

Every part of the package that reads such text uses this module: the shell, the servers, the word EXPLAIN before a query. The
parser itself uses the tokenizer of its library, which cannot do this: it returns nothing for a text with an open quote or
comment, as the shell has at each key; it does not keep the places of comments; it skips `{# … #}`, which is not a comment in
DuckDB; it does not know names in backticks; and it takes five to ten times as long.

Claim: a statement ends where DuckDB ends it, and a scan takes time that is linear in the text.
Why: the pieces are those of DuckDB's lexer, which is PostgreSQL's: a backslash is an escape in `E'…'` only, a doubled quote
does not end a text, names may stand in backticks, comments in `/* … */` nest, `--` ends with the line, `$$` and `$tag$` do
not begin within a name, and `U&'…'`, `X'…'` and `B'…'` end like texts. No piece is read twice. The guarantee does not depend
on it: each statement is parsed and lowered afterwards, and is refused there.
Source: PostgreSQL's documentation, chapter 4.1, "Lexical Structure".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

_NO_LETTER = r"\[-\^`{-\x7f\s\u200b-\u200f\u2060\ufeff"
_FIRST = rf"[^\x00-@{_NO_LETTER}]"
"""The first letter of a name: an ASCII letter, _, or any sign beyond ASCII, except spaces."""
_LABEL = rf"{_FIRST}[^\x00-/:-@{_NO_LETTER}]*+"
_WORD = rf"{_FIRST}[^\x00-#%-/:-@{_NO_LETTER}]*+"
_PIECE = re.compile(
    rf"""
      (?P<space>\s++)
    | (?P<escaped>[eE]'(?:[^'\\]++|\\.|'')*+(?P<escaped_end>')?)
    | (?P<word>{_WORD})
    | (?P<string>'(?:[^']++|'')*+(?P<string_end>')?)
    | (?P<name>"(?:[^"]++|"")*+(?P<name_end>")?)
    | (?P<ticked>`(?:[^`]++|``)*+(?P<ticked_end>`)?)
    | (?P<comment>--[^\r\n]*+)
    | (?P<block>/\*)
    | (?P<parameter>\$[0-9]++)
    | (?P<dollar>\$(?:{_LABEL})?\$)
    | (?P<semicolon>;)
    | (?P<other>[^a-zA-Z_\x80-\U0010ffff\s'"`$;/\-:\[\]]++|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_MARK = re.compile(r"/\*|\*/")
_FIRST_WORDS, _LONGEST_WORD = 3, 128
"""How many words of a statement are kept, which tell what it commands, and how many letters of each."""


class PieceKind(Enum):
    """The kind of a piece of SQL text."""

    SPACE = auto()
    LINE_COMMENT = auto()
    """`-- …` to the end of the line."""
    BLOCK_COMMENT = auto()
    """`/* … */`."""
    STRING = auto()
    NAME = auto()
    """A name in double quotes or backticks."""
    WORD = auto()
    PARAMETER = auto()
    """`$1`."""
    SEMICOLON = auto()
    OTHER = auto()
    """Numbers and symbols."""


class Piece(NamedTuple):
    """A piece of SQL text, text[start:end]; `is_open` if its end is missing, as that of a line comment at the end of the text."""

    kind: PieceKind
    start: int
    end: int
    is_open: bool = False


class StatementSpan(NamedTuple):
    """A statement, text[start:end], without the semicolon that ends it.

    `has_end` says whether there is one. A statement `is_blank` that has only spaces and closed comments. `first_words` are its
    first pieces, at most three, in small letters except for quoted names. `highest_parameter` is the highest number of a `$1`
    in it, by its first six digits.
    """

    start: int
    end: int
    has_end: bool
    is_blank: bool
    first_words: tuple[str, ...]
    highest_parameter: int


_KINDS = {
    "space": PieceKind.SPACE,
    "escaped": PieceKind.STRING,
    "word": PieceKind.WORD,
    "string": PieceKind.STRING,
    "name": PieceKind.NAME,
    "ticked": PieceKind.NAME,
    "comment": PieceKind.LINE_COMMENT,
    "block": PieceKind.BLOCK_COMMENT,
    "parameter": PieceKind.PARAMETER,
    "dollar": PieceKind.STRING,
    "semicolon": PieceKind.SEMICOLON,
    "other": PieceKind.OTHER,
}
_COMMENTS = (PieceKind.LINE_COMMENT, PieceKind.BLOCK_COMMENT)


def iterate_pieces(text: str) -> Iterator[Piece]:
    """Yield the pieces of a text in order; together they are the text.

    >>> [(piece.kind.name, "SELECT 'a"[piece.start : piece.end], piece.is_open) for piece in iterate_pieces("SELECT 'a")]
    [('WORD', 'SELECT', False), ('SPACE', ' ', False), ('STRING', "'a", True)]
    """
    at, length = 0, len(text)
    while at < length and (found := _PIECE.match(text, at)) is not None:
        form, end, is_open = str(found.lastgroup), found.end(), False
        if form == "block":
            end, is_open = _find_block_end(text, end)
        elif form == "dollar":
            closing = text.find(found.group(), end)
            end, is_open = (length, True) if closing < 0 else (closing + len(found.group()), False)
        elif form == "comment":
            is_open = end == length
        elif form in ("escaped", "string", "name", "ticked"):
            is_open = found[f"{form}_end"] is None
        yield Piece(_KINDS[form], at, end, is_open)
        at = end


def iterate_statements(text: str) -> Iterator[StatementSpan]:
    r"""Yield the statements of a text in order: each up to its semicolon, and the rest after the last one, which may be empty.

    >>> [(text[span.start : span.end], span.is_blank) for text in ["SELECT ';' ; -- no\n; b"] for span in iterate_statements(text)]
    [("SELECT ';' ", False), (' -- no\n', True), (' b', False)]
    """
    start, parameter, blank, words = 0, 0, True, list[str]()
    for piece in iterate_pieces(text):
        kind = piece.kind
        if kind is PieceKind.SEMICOLON:
            yield StatementSpan(start, piece.start, True, blank, tuple(words), parameter)
            start, parameter, blank, words = piece.end, 0, True, []
        elif not _is_space(piece):
            blank = False
            if kind is PieceKind.PARAMETER:
                parameter = max(parameter, int(text[piece.start + 1 : min(piece.start + 7, piece.end)]))
            if len(words) < _FIRST_WORDS and kind is not PieceKind.BLOCK_COMMENT:
                word = text[piece.start : min(piece.end, piece.start + _LONGEST_WORD)]
                words.append(word if kind is PieceKind.NAME else word.lower())
    yield StatementSpan(start, len(text), False, blank, tuple(words), parameter)


def is_blank(text: str) -> bool:
    """Return whether a text holds only spaces and closed comments.

    >>> is_blank("  /* nothing */ -- at all"), is_blank("/* open"), is_blank("1")
    (True, False, False)
    """
    return all(map(_is_space, iterate_pieces(text)))


def remove_comments(text: str) -> str:
    r"""Replace each closed comment of a text with one space.

    >>> remove_comments("a/* b */c -- d\n'-- e'")
    "a c  \n'-- e'"
    """
    return "".join(
        " " if piece.kind in _COMMENTS and _is_space(piece) else text[piece.start : piece.end]
        for piece in iterate_pieces(text)
    )


def collapse_space(text: str) -> str:
    """Replace each run of spaces and each comment of a text with one space, and leave it out at both ends.

    >>> collapse_space("/* from a tool */ SET  a = '--b' -- c")
    "SET a = '--b'"
    """
    parts = list[str]()
    for piece in iterate_pieces(text):
        if piece.kind is not PieceKind.SPACE and piece.kind not in _COMMENTS:
            parts.append(text[piece.start : piece.end])
        elif parts and parts[-1] != " ":
            parts.append(" ")
    return "".join(parts).rstrip(" ")


def mask_literals(text: str) -> str:
    """Replace the letters of texts and comments with spaces, so that all other places stay the same.

    >>> mask_literals("a 'b' /* c */ d")
    'a             d'
    """
    return "".join(
        " " * (piece.end - piece.start)
        if piece.kind is PieceKind.STRING or piece.kind in _COMMENTS
        else text[piece.start : piece.end]
        for piece in iterate_pieces(text)
    )


def find_open_kind(text: str) -> PieceKind | None:
    """Return the kind of the open piece at the end of a text: a text, a quoted name or a comment.

    None if it has none.
    """
    last = None
    for piece in iterate_pieces(text):
        last = piece
    return last.kind if last is not None and last.is_open else None


def find_explain_end(text: str) -> int | None:
    """Return the place behind the word EXPLAIN where a text begins with it, after spaces and comments; else None.

    >>> find_explain_end("/* a */ explain SELECT 1"), find_explain_end("SELECT 1")
    (15, None)
    """
    first = next((piece for piece in iterate_pieces(text) if not _is_space(piece)), None)
    if first is None or text[first.start : first.end].upper() != "EXPLAIN":
        return None
    return first.end


def _is_space(piece: Piece) -> bool:
    """Return whether a piece only separates others: spaces, or a comment that ends."""
    if piece.kind is PieceKind.BLOCK_COMMENT:
        return not piece.is_open
    return piece.kind in (PieceKind.SPACE, PieceKind.LINE_COMMENT)


def _find_block_end(text: str, at: int) -> tuple[int, bool]:
    """Return the place behind a comment, in which others may be, and whether its end is missing."""
    depth = 1
    for mark in _BLOCK_MARK.finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end(), False
    return len(text), True
