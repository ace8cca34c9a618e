"""Bounds on the bytes of a text of one row, relative to its stored texts and absolute.

Claim: a text within a `TextSize` has at most `share` times the bytes of the longest stored text of its row and `added` bytes
more, and at most `most` bytes, whatever the row holds.
Why: every engine reads a stored text of more than `MOST_STORED` bytes as NULL, constants have their lengths, and each
function says by a rule of these bounds how long its text can be.
Source: the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

MOST_STORED = 2**20
"""Stored texts and blobs of more bytes are read as NULL, so that no row decides whether what is made of it fails."""


@dataclass(frozen=True, slots=True)
class TextSize:
    """A bound on the bytes of a text.

    >>> STORED.times(3) + constant_size(10)
    TextSize(share=Fraction(3, 1), added=10, most=3145738)
    >>> STORED.cut(400).most
    400
    """

    share: Fraction
    added: int
    most: int

    def __add__(self, other: TextSize) -> TextSize:
        """Bound two texts that are put together."""
        return TextSize(self.share + other.share, self.added + other.added, self.most + other.most)

    def __or__(self, other: TextSize) -> TextSize:
        """Bound either of two texts."""
        return TextSize(
            max(self.share, other.share), max(self.added, other.added), max(self.most, other.most)
        )

    def times(self, factor: Fraction | int) -> TextSize:
        """Bound a text that is at most `factor` times as long."""
        return TextSize(
            self.share * factor, _rounded_up(self.added * factor), _rounded_up(self.most * factor)
        )

    def cut(self, size: int) -> TextSize:
        """Bound the text after it is cut to `size` bytes."""
        return TextSize(self.share, self.added, min(self.most, size))


def constant_size(size: int) -> TextSize:
    """Bound a text that has at most `size` bytes on every row."""
    return TextSize(Fraction(0), size, size)


def _rounded_up(size: Fraction | int) -> int:
    return -int(-size // 1)


NO_TEXT = constant_size(0)
STORED = TextSize(Fraction(1), 0, MOST_STORED)
