"""Find the place in the user's text for a place in its translation, so that errors show what the user wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token

from dpsql.errors import Position, QueryRejected
from dpsql.sql.parse.dialect import DIALECT
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.tokens import read_tokens

_MOST_PAIRS = 50_000
"""The pairs of equal words up to which places are looked for: the search may look at all of them for each piece that it aligns."""


def find_original_position(
    translated: str, position: Position, original: str, dialect: Dialect
) -> Position | None:
    """Return the place of the same word in the user's text, or of the last one before it that both texts have.

    The words of both texts are aligned; return None where they are too many or have nothing in common.
    """
    try:
        theirs, ours = read_tokens(translated, DIALECT), read_tokens(original, dialect)
    except QueryRejected:
        return None
    if _count_pairs(_list_words(theirs), _list_words(ours)) > _MOST_PAIRS:
        return None
    offset = _find_offset(translated, position)
    place = max((index for index, token in enumerate(theirs) if token.start <= offset), default=0)
    matcher = SequenceMatcher(None, _list_words(theirs), _list_words(ours), autojunk=False)
    before = [block for block in matcher.get_matching_blocks() if block.size and block.a <= place]
    if not before:
        return None
    last = before[-1]
    index = last.b + min(place - last.a, last.size - 1)
    return QueryText(original).locate_offset(ours[index].start)


def _find_offset(text: str, position: Position) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: position.line - 1]) + position.column - 1


def _count_pairs(theirs: Sequence[str], ours: Sequence[str]) -> int:
    """Count the pairs of an occurrence in one text and one of the same word in the other."""
    numbers = Counter(ours)
    return sum(numbers[word] for word in theirs)


def _list_words(tokens: Sequence[Token]) -> list[str]:
    return [token.text.upper() for token in tokens]
