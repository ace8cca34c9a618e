"""Sets of integers as disjoint closed ranges in ascending order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, TypeAlias

End: TypeAlias = int | None
Ranges: TypeAlias = tuple[tuple[End, End], ...]
"""Disjoint closed ranges of integers in ascending order. None is an infinite end; NULL lies below all numbers."""

Sides: TypeAlias = tuple[tuple[str, Ranges], ...]
"""The ranges of a box by the names of the dimensions that restrict it."""

EVERYWHERE: Final[Ranges] = ((None, None),)


def merge_ranges(ranges: Iterable[tuple[End, End]]) -> Ranges:
    """Return the same numbers as ranges in ascending order, with at least one number between any two.

    >>> merge_ranges([(5, 9), (1, 2), (3, 3), (None, -4)])
    ((None, -4), (1, 3), (5, 9))
    """
    given = list(ranges)
    if any(type(end) is not int and end is not None for pair in given for end in pair):
        raise TypeError("the ends of a range must be whole numbers")
    if any(low is not None and high is not None and low > high for low, high in given):
        raise ValueError("the lower end of a range must not be above its upper end")
    found: list[tuple[End, End]] = []
    for low, high in sorted(given, key=_get_sort_key):
        if not found:
            found.append((low, high))
            continue
        first, last = found[-1]
        if last is None:
            break
        if low is not None and low > last + 1:
            found.append((low, high))
        elif high is None or high > last:
            found[-1] = (first, high)
    return tuple(found)


def join_disjoint_ranges(sets: Iterable[Ranges]) -> Ranges:
    """Return the union of sets of ranges of which no two share a number.

    >>> join_disjoint_ranges([((0, 4), (9, None)), ((None, -3),), ((5, 5),)])
    ((None, -3), (0, 5), (9, None))
    """
    parts = [part for ranges in sets for part in ranges]
    found = [part for part in parts if part[0] is None]
    # Only one low end is infinite and no two are the same, so that pairs are in the order of these.
    for low, high in sorted((low, high) for low, high in parts if low is not None):
        if found and found[-1][1] == low - 1:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(found)


def intersect_ranges(some: Ranges, others: Ranges) -> Ranges:
    """Return the numbers in both, in a number of steps in proportion to the ranges.

    >>> intersect_ranges(((0, 4), (6, 9)), ((None, 1), (3, 7)))
    ((0, 1), (3, 4), (6, 7))
    """
    found: list[tuple[End, End]] = []
    one = other = 0
    while one < len(some) and other < len(others):
        (a, b), (c, d) = some[one], others[other]
        low = c if a is None or (c is not None and c > a) else a
        if b is None or (d is not None and d < b):
            high, other = d, other + 1
        else:
            high, one = b, one + 1
        if low is None or high is None or low <= high:
            found.append((low, high))
    return tuple(found)


def has_overlap(some: Ranges, others: Ranges) -> bool:
    """Return whether any number, or NULL, is in both.

    >>> has_overlap(((0, 4), (6, 9)), ((5, 5),)), has_overlap(((0, 4), (6, None)), ((5, 6),))
    (False, True)
    """
    one = other = 0
    while one < len(some) and other < len(others):
        (a, b), (c, d) = some[one], others[other]
        if b is not None and c is not None and b < c:
            one += 1
        elif d is not None and a is not None and d < a:
            other += 1
        else:
            return True
    return False


def split_ranges(sets: Iterable[Ranges], others: Ranges) -> list[tuple[Ranges, Ranges]]:
    """Split each set of ranges into its part within the other and its part outside of it.

    Its steps are in proportion to the ranges of the sets, each times the logarithm of the others, and to those found.

    >>> split_ranges([((0, 4), (6, 9)), ((None, -1), (5, 5))], ((3, 7),))
    [(((3, 4), (6, 7)), ((0, 2), (8, 9))), (((5, 5),), ((None, -1),))]
    """
    ends = [high for _, high in others if high is not None]
    return [_split_one(some, others, ends) for some in sets]


def _split_one(some: Ranges, others: Ranges, ends: list[int]) -> tuple[Ranges, Ranges]:
    inside: list[tuple[End, End]] = []
    outside: list[tuple[End, End]] = []
    place = 0
    for low, high in some:
        place = 0 if low is None else bisect_left(ends, low, place)
        rest, at = low, place
        while True:
            first, last = others[at] if at < len(others) else (high, high)
            if at == len(others) or (first is not None and high is not None and first > high):
                outside.append((rest, high))
                break
            if first is not None and (rest is None or rest < first):
                outside.append((rest, first - 1))
                rest = first
            if last is None or (high is not None and high <= last):
                inside.append((rest, high))
                break
            inside.append((rest, last))
            rest, at = last + 1, at + 1
    return tuple(inside), tuple(outside)


def compute_complement(ranges: Ranges) -> Ranges:
    """Return all other numbers, and NULL if it is not among them.

    >>> compute_complement(((0, 4), (6, 6)))
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


def fill_gaps(ranges: Ranges, most: int) -> Ranges:
    """Return at most `most` ranges that contain these, by closing the smallest gaps between them.

    >>> fill_gaps(((0, 1), (3, 4), (9, 9)), 2)
    ((0, 4), (9, 9))
    """
    if len(ranges) <= most:
        return ranges
    gaps = [
        (_to_low_float(low) - _to_high_float(high), number)
        for number, ((_, high), (low, _)) in enumerate(pairwise(ranges))
    ]
    open_ones = {number for _, number in sorted(gaps)[len(gaps) + 1 - most :]}
    found: list[tuple[End, End]] = [ranges[0]]
    for number, (low, high) in enumerate(ranges[1:]):
        if number in open_ones:
            found.append((low, high))
        else:
            found[-1] = (found[-1][0], high)
    return tuple(found)


def _get_sort_key(one: tuple[End, End]) -> float:
    low = one[0]
    return -math.inf if low is None else low


def _to_low_float(end: End) -> float:
    return -math.inf if end is None else end


def _to_high_float(end: End) -> float:
    return math.inf if end is None else end
