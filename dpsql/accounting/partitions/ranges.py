"""Sets of integers as disjoint closed ranges in ascending order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, TypeAlias

End: TypeAlias = int | None
Ranges: TypeAlias = tuple[tuple[End, End], ...]
"""Disjoint closed ranges of integers in ascending order. None is an infinite end; NULL lies below all numbers."""

Sides: TypeAlias = tuple[tuple[str, Ranges], ...]
"""The ranges of a box by the names of the dimensions that restrict it."""

EVERYWHERE: Final[Ranges] = ((None, None),)


def union(ranges: Iterable[tuple[End, End]]) -> Ranges:
    """The same numbers as ranges in ascending order, with at least one number between any two.

    >>> union([(5, 9), (1, 2), (3, 3), (None, -4)])
    ((None, -4), (1, 3), (5, 9))
    """
    found: list[tuple[End, End]] = []
    for low, high in sorted(ranges, key=lambda pair: (_low(pair[0]), _high(pair[1]))):
        if type(low) not in (int, type(None)) or type(high) not in (int, type(None)):
            raise TypeError("ranges are of whole numbers")
        if _low(low) > _high(high):
            raise ValueError("a range's low end is above its high end")
        if found and _low(low) <= _high(found[-1][1]) + 1:
            first, last = found.pop()
            found.append((first, last if _high(last) >= _high(high) else high))
        else:
            found.append((low, high))
    return tuple(found)


def intersection(some: Ranges, others: Ranges) -> Ranges:
    """The numbers in both, in a number of steps in proportion to the ranges.

    >>> intersection(((0, 4), (6, 9)), ((None, 1), (3, 7)))
    ((0, 1), (3, 4), (6, 7))
    """
    found: list[tuple[End, End]] = []
    one = other = 0
    while one < len(some) and other < len(others):
        (a, b), (c, d) = some[one], others[other]
        low, high = max(a, c, key=_low), min(b, d, key=_high)
        if _low(low) <= _high(high):
            found.append((low, high))
        if _high(b) <= _high(d):
            one += 1
        else:
            other += 1
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """All other numbers, and NULL if it is not among them.

    >>> complement(((0, 4), (6, 6)))
    ((None, -1), (5, 5), (7, None))
    """
    if not ranges:
        return EVERYWHERE
    (first, _), (_, last) = ranges[0], ranges[-1]
    below: Ranges = () if first is None else ((None, first - 1),)
    above: Ranges = () if last is None else ((last + 1, None),)
    # Between two ranges that are in order and apart both ends are numbers.
    gaps = ((high + 1, low - 1) for (_, high), (low, _) in pairwise(ranges) if None not in (high, low))  # type: ignore[operator]
    return (*below, *gaps, *above)


def filled(ranges: Ranges, most: int) -> Ranges:
    """At most `most` ranges that contain these: the smallest gaps between them are closed.

    >>> filled(((0, 1), (3, 4), (9, 9)), 2)
    ((0, 4), (9, 9))
    """
    if len(ranges) <= most:
        return ranges
    gaps = [
        (_low(low) - _high(high), number) for number, ((_, high), (low, _)) in enumerate(pairwise(ranges))
    ]
    open_ones = {number for _, number in sorted(gaps)[len(gaps) + 1 - most :]}
    found: list[tuple[End, End]] = [ranges[0]]
    for number, (low, high) in enumerate(ranges[1:]):
        if number in open_ones:
            found.append((low, high))
        else:
            found[-1] = (found[-1][0], high)
    return tuple(found)


def _low(end: End) -> float:
    return -math.inf if end is None else end


def _high(end: End) -> float:
    return math.inf if end is None else end
