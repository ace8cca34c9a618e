"""Where a statement ends: a scan for `;` outside quotes and comments.

It decides only when the shell stops reading. What a statement means, and whether it is refused, is the
parser's business: a text cut in the wrong place is refused there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

_SPECIAL = re.compile(r"--|/\*|[;'\"]|\$(?:[^\W\d]\w*)?\$|(?P<word>[^\W\d][\w$]*)")
_NEWLINE = re.compile(r"[\r\n]")
_COMMENT_END = re.compile(r"/\*|\*/")
_ESCAPED_STRING_END = re.compile(r"\\.|'", re.DOTALL)


class PieceKind(Enum):
    """What stands between the plain words of a text."""

    SEMICOLON = auto()
    COMMENT = auto()
    STRING = auto()
    NAME = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """A semicolon, comment, string or quoted name at text[start:end]; `open` if its end is missing.

    A `--` comment that the text ends in is open too.
    """

    kind: PieceKind
    start: int
    end: int
    open: bool = False


@dataclass(frozen=True, slots=True)
class SplitText:
    """The statements of a text that end in `;` (without it), and the rest after the last."""

    statements: tuple[str, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class EmbeddedCommand:
    """A backslash command within an entry: the text before it, the command, and the lines after it."""

    before: str
    command: str
    after: str


def iterate_pieces(text: str) -> Iterator[Piece]:
    """Everything in the text that is not plain words, in order."""
    at = 0
    while (found := _SPECIAL.search(text, at)) is not None:
        at = found.end()
        if found["word"] is None:
            piece = _read_piece(text, found)
            at = piece.end
            yield piece


def split_statements(text: str) -> SplitText:
    r"""Cuts a text at its semicolons; statements of comments and space alone are left out.

    >>> split_statements("SELECT ';' FROM t; -- done; really\nSELECT 2")
    SplitText(statements=("SELECT ';' FROM t",), rest=' -- done; really\nSELECT 2')
    """
    statements, start = [], 0
    for piece in iterate_pieces(text):
        if piece.kind is PieceKind.SEMICOLON:
            statements.append(text[start : piece.start])
            start = piece.end
    return SplitText(
        tuple(statement.strip() for statement in statements if not is_blank(statement)), text[start:]
    )


def find_command(text: str) -> EmbeddedCommand | None:
    r"""The first command of a text, which ends with its line; None where no backslash stands outside of quotes.

    No SQL that is read here has a backslash there.

    >>> find_command("SELECT 1\n\\d t\nFROM t")
    EmbeddedCommand(before='SELECT 1\n', command='\\d t', after='\nFROM t')
    """
    start = 0
    for piece in (*iterate_pieces(text), None):
        end = len(text) if piece is None else piece.start
        at = text.find("\\", start, end)
        if at >= 0:
            newline = _NEWLINE.search(text, at)
            stop = len(text) if newline is None else newline.start()
            return EmbeddedCommand(text[:at], text[at:stop].rstrip(), text[stop:])
        start = end if piece is None else piece.end
    return None


def is_blank(text: str) -> bool:
    """Whether the text holds nothing but space and closed comments.

    >>> is_blank("  /* nothing */ -- at all"), is_blank("/* open"), is_blank("1")
    (True, False, False)
    """
    return not remove_comments(text).strip()


def remove_comments(text: str) -> str:
    """The text with each closed comment replaced by one space."""
    parts, start = [], 0
    for piece in iterate_pieces(text):
        is_line = text.startswith("--", piece.start)
        if piece.kind is PieceKind.COMMENT and (is_line or not piece.open):
            parts += [text[start : piece.start], " "]
            start = piece.end
    return "".join((*parts, text[start:]))


def find_open_kind(text: str) -> PieceKind | None:
    """In what the text ends: a string, a quoted name, a comment, or None for plain words."""
    last = None
    for piece in iterate_pieces(text):
        last = piece
    return last.kind if last is not None and last.open else None


def _read_piece(text: str, found: re.Match[str]) -> Piece:
    mark, start = found.group(), found.start()
    if mark == ";":
        return Piece(PieceKind.SEMICOLON, start, found.end())
    if mark == "--":
        newline = _NEWLINE.search(text, start)
        return _make_piece(PieceKind.COMMENT, text, start, newline and newline.start())
    if mark == "/*":
        return _make_piece(PieceKind.COMMENT, text, start, _find_comment_end(text, found.end()))
    if mark == "'" and _is_escape_string(text, start):
        return _make_piece(PieceKind.STRING, text, start, _find_escaped_string_end(text, found.end()))
    end = text.find(mark, found.end())
    kind = PieceKind.NAME if mark == '"' else PieceKind.STRING
    return _make_piece(kind, text, start, None if end < 0 else end + len(mark))


def _make_piece(kind: PieceKind, text: str, start: int, end: int | None) -> Piece:
    return Piece(kind, start, len(text) if end is None else end, end is None)


def _find_comment_end(text: str, at: int) -> int | None:
    """The place after the end of a comment, in which others may lie; None if it has no end."""
    depth = 1
    while depth and (found := _COMMENT_END.search(text, at)) is not None:
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return None if depth else at


def _is_escape_string(text: str, quote: int) -> bool:
    """Whether the quote opens an E'…' string, in which a backslash escapes."""
    return re.search(r"(?<![\w$])[eE]$", text[max(0, quote - 2) : quote]) is not None


def _find_escaped_string_end(text: str, at: int) -> int | None:
    while (found := _ESCAPED_STRING_END.search(text, at)) is not None:
        at = found.end()
        if found.group() == "'":
            return at
    return None
