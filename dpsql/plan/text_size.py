"""Bounds on the bytes of a text of one row, relative to its stored texts and absolute.

Claim: a text within a `TextSize` has at most `share` times the bytes of the longest stored text of its row and `extra_bytes` bytes
more, and at most `max_bytes` bytes, whatever the row holds.
Why: every engine reads a stored text of more than `MOST_STORED` bytes as NULL, constants have their lengths, and each
function says by a rule of these bounds how long its text can be.
Source: the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

MOST_STORED = 2**20
"""Longer stored texts and blobs are read as NULL, so that no row can make a computation fail."""


@dataclass(frozen=True, slots=True)
class TextSize:
    """A bound on the bytes of a text.

    >>> STORED.multiply_by(3) + make_constant_size(10)
    TextSize(share=Fraction(3, 1), extra_bytes=10, max_bytes=3145738)
    >>> STORED.truncate_to(400).max_bytes
    400
    """

    share: Fraction
    extra_bytes: int
    max_bytes: int

    def __add__(self, other: TextSize) -> TextSize:
        """Bound the concatenation of two texts."""
        return TextSize(
            self.share + other.share, self.extra_bytes + other.extra_bytes, self.max_bytes + other.max_bytes
        )

    def __or__(self, other: TextSize) -> TextSize:
        """Bound either of two texts."""
        return TextSize(
            max(self.share, other.share),
            max(self.extra_bytes, other.extra_bytes),
            max(self.max_bytes, other.max_bytes),
        )

    def multiply_by(self, factor: Fraction | int) -> TextSize:
        """Bound a text that is at most `factor` times as long."""
        return TextSize(
            self.share * factor, _round_up(self.extra_bytes * factor), _round_up(self.max_bytes * factor)
        )

    def truncate_to(self, size: int) -> TextSize:
        """Bound the text after a cut to `size` bytes."""
        return TextSize(self.share, self.extra_bytes, min(self.max_bytes, size))


def make_constant_size(size: int) -> TextSize:
    """Bound a text that has at most `size` bytes on every row."""
    return TextSize(Fraction(0), size, size)


def _round_up(size: Fraction | int) -> int:
    return -int(-size // 1)


NO_TEXT = make_constant_size(0)
STORED = TextSize(Fraction(1), 0, MOST_STORED)
