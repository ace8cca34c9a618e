"""Split an entry into statements at each `;` outside quotes and comments, and find the commands within it.

The split decides only when the shell stops reading. The parser decides what a statement means and whether it is refused, so a
text split in the wrong place is refused there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.sql.parse.scanner import PieceKind, iterate_pieces, iterate_statements

_NEWLINE = re.compile(r"[\r\n]")


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


def split_statements(text: str) -> SplitText:
    r"""Split a text at its semicolons; statements of only comments and space are left out.

    >>> split_statements("SELECT ';' FROM t; -- done; really\nSELECT 2")
    SplitText(statements=("SELECT ';' FROM t",), rest=' -- done; really\nSELECT 2')
    """
    *ended, last = iterate_statements(text)
    statements = (text[span.start : span.end].strip() for span in ended if not span.is_blank)
    return SplitText(tuple(statements), text[last.start :])


def find_command(text: str) -> EmbeddedCommand | None:
    r"""Find the first command of a text, which ends with its line; None if no backslash is outside quotes.

    Accepted SQL has no backslash outside quotes.

    >>> find_command("SELECT 1\n\\d t\nFROM t")
    EmbeddedCommand(before='SELECT 1\n', command='\\d t', after='\nFROM t')
    """
    for piece in iterate_pieces(text):
        at = text.find("\\", piece.start, piece.end) if piece.kind is PieceKind.OTHER else -1
        if at >= 0:
            newline = _NEWLINE.search(text, at)
            stop = len(text) if newline is None else newline.start()
            return EmbeddedCommand(text[:at], text[at:stop].rstrip(), text[stop:])
    return None
