"""Split a text into statements at each `;` outside quotes and comments.

The scan decides only when the shell stops reading. The parser decides what a statement means and whether it is refused, so a
text split in the wrong place is refused there.
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
    """The kind of a piece between the plain words of a text."""

    SEMICOLON = auto()
    COMMENT = auto()
    STRING = auto()
    NAME = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """A semicolon, comment, string or quoted name at text[start:end]; `open` if its end is missing.

    A `--` comment at the end of the text is open too.
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
    """Yield the pieces of a text that are not plain words, in order."""
    at = 0
    while (found := _SPECIAL.search(text, at)) is not None:
        at = found.end()
        if found["word"] is None:
            piece = _read_piece(text, found)
            at = piece.end
            yield piece


def split_statements(text: str) -> SplitText:
    r"""Split a text at its semicolons; statements of only comments and space are left out.

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
    r"""Find the first command of a text, which ends with its line; None if no backslash is outside quotes.

    Accepted SQL has no backslash outside quotes.

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
    """Return whether a text holds only space and closed comments.

    >>> is_blank("  /* nothing */ -- at all"), is_blank("/* open"), is_blank("1")
    (True, False, False)
    """
    return not remove_comments(text).strip()


def remove_comments(text: str) -> str:
    """Replace each closed comment of a text with one space."""
    parts, start = [], 0
    for piece in iterate_pieces(text):
        is_line = text.startswith("--", piece.start)
        if piece.kind is PieceKind.COMMENT and (is_line or not piece.open):
            parts += [text[start : piece.start], " "]
            start = piece.end
    return "".join((*parts, text[start:]))


def find_open_kind(text: str) -> PieceKind | None:
    """Return the kind of the open piece at the end of a text: a string, a quoted name, a comment, or None."""
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
    """Return the place after the end of a comment, which may be nested; None if it has no end."""
    depth = 1
    while depth and (found := _COMMENT_END.search(text, at)) is not None:
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return None if depth else at


def _is_escape_string(text: str, quote: int) -> bool:
    """Return whether the quote opens an E'…' string, in which a backslash escapes."""
    return re.search(r"(?<![\w$])[eE]$", text[max(0, quote - 2) : quote]) is not None


def _find_escaped_string_end(text: str, at: int) -> int | None:
    while (found := _ESCAPED_STRING_END.search(text, at)) is not None:
        at = found.end()
        if found.group() == "'":
            return at
    return None
