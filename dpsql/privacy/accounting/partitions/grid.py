"""Grids of cells over ranges: the spend of each partition, in a bounded number of cells."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, pairwise, product
from operator import sub
from typing import Final, TypeAlias

# Sets of integers as disjoint closed ranges in ascending order.


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


# The spend of each partition in a bounded number of grid cells, whatever was charged before.


MOST_CELLS = 64
"""Most cells of an account. A grid of n cells costs a charge a number of steps in proportion to n·log n."""
MOST_RANGES = 128
"""Most ranges of the classes of one dimension."""
_LEVELS = 16

Amounts: TypeAlias = tuple[int, int]
"""A loss and a delta."""
_NONE: Amounts = (0, 0)
_Values: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension, and the classes that its line is divided into; `inside` are those of the box that is charged now."""

    name: str
    classes: tuple[Ranges, ...]
    inside: tuple[bool, ...]

    @property
    def ranges(self) -> int:
        """Of how many ranges the classes are made."""
        return sum(map(len, self.classes))


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells along some axes, with the charges of each, in columns; the last axis runs fastest.

    `deltas` is empty where all of them are zero. `levels` are the losses in steps of a sixteenth of the largest while
    classes are joined, and empty else.

    Each dimension is a line that is divided into classes of places; a cell is one class of each. A charge to a box divides the
    classes at the ends of its sides. Where that makes too many cells, two classes of a dimension become one, in which each place
    counts as having spent the most of both.

    Claim: no place is ever counted as having spent less than was charged to boxes around it.
    Why: what a place is counted for only grows when classes become one.
    Claim: making the grid coarser raises no place above the one that is counted for the most, so the account's total stays.
    Why: a place is raised to what another is counted for.
    Claim: who makes the grid coarser by charges to many boxes raises no place by more than those charges together, as long as what
    others have charged would fit by itself.
    Why: two classes that are apart for these charges alone differ by no more than these, and the two that differ by the least
    become one.
    Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parallel composition), of which upper bounds are taken.
    """

    axes: tuple[Axis, ...] = ()
    losses: _Values = (0,)
    deltas: _Values = ()
    levels: _Values = ()

    @classmethod
    def from_cells(cls, cells: Mapping[Sides, Amounts]) -> Grid | None:
        """Return the grid with these cells; None if they do not form a grid, or too large a one."""
        sides: dict[str, set[Ranges]] = {}
        met: dict[tuple[str, int], Ranges] = {}
        for cell in cells:
            for name, side in cell:
                # Cells share their sides, and finding the identity of one takes less time than finding its ranges.
                if (name, id(side)) not in met:
                    met[name, id(side)] = side
                    sides.setdefault(name, set()).add(side)
        axes = []
        for name, known in sorted(sides.items()):
            whole = merge_ranges(one for side in known for one in side)
            if sum(map(_count_numbers, known)) != _count_numbers(whole):
                return None
            rest = compute_complement(whole)
            classes = tuple(sorted([*known, rest] if rest else known, key=_get_class_sort_key))
            axes.append(Axis(name, classes, (False,) * len(classes)))
        if math.prod(len(axis.classes) for axis in axes) > MOST_CELLS:
            return None
        amounts = [_NONE] * math.prod(len(axis.classes) for axis in axes)
        strides = dict(zip((axis.name for axis in axes), _compute_strides(axes), strict=True))
        places = {
            axis.name: {side: place * strides[axis.name] for place, side in enumerate(axis.classes)}
            for axis in axes
        }
        offsets = {(name, known): places[name][side] for (name, known), side in met.items()}
        for cell, own in cells.items():
            start = sum([offsets[name, id(side)] for name, side in cell])
            free = [places[name].values() for name in sides.keys() - {name for name, _ in cell}]
            for others in product(*free):
                amounts[start + sum(others)] = own
        losses, deltas = zip(*amounts, strict=True)
        return cls(tuple(axes), losses, deltas if any(deltas) else ())

    def to_cells(self) -> dict[Sides, Amounts]:
        """Return the charge of each cell that has one, by its sides."""
        places = product(*([(axis.name, side) for side in axis.classes] for axis in self.axes))
        amounts = zip(self.losses, self.deltas or [0] * len(self.losses), strict=True)
        return {sides: own for sides, own in zip(places, amounts, strict=True) if own != _NONE}

    def with_charge(self, box: Sides, spend: Amounts) -> Grid:
        """Return the grid after a charge to the box with these sides."""
        grid = self
        for name, side in box:
            # Classes are merged only after all cuts: a place inside must not be raised to one outside.
            grid = grid.split_axis(name, side)
        inside = [True]
        for axis in grid.axes:
            flags = axis.inside if any(axis.inside) else [True] * len(axis.classes)
            inside = [so_far and flag for so_far in inside for flag in flags]
        loss, delta = spend
        losses = _add_inside(grid.losses, inside, loss)
        deltas = _add_inside(grid.deltas or (0,) * len(losses), inside, delta) if grid.deltas or delta else ()
        axes = tuple(Axis(axis.name, axis.classes, (False,) * len(axis.classes)) for axis in grid.axes)
        return Grid(axes, losses, deltas).merge_equal_classes().limit_cells(MOST_CELLS)

    def split_axis(self, name: str, side: Ranges) -> Grid:
        """Return the grid with each class of a dimension split into the part inside of these ranges and the part outside."""
        grid = self
        if name not in {axis.name for axis in self.axes}:
            # An axis of one class makes no more cells, wherever it stands.
            axes = [*self.axes, Axis(name, (EVERYWHERE,), (False,))]
            grid = replace(self, axes=tuple(sorted(axes, key=lambda axis: axis.name)))
        place = next(place for place, axis in enumerate(grid.axes) if axis.name == name)
        found = [
            (part, flag, number)
            for number, parts in enumerate(split_ranges(grid.axes[place].classes, side))
            for part, flag in zip(parts, (True, False), strict=True)
            if part
        ]
        axis = Axis(name, tuple(part for part, _, _ in found), tuple(flag for _, flag, _ in found))
        return grid.with_axis(place, axis, [[number] for _, _, number in found])

    def with_axis(self, place: int, axis: Axis, groups: Sequence[Sequence[int]]) -> Grid:
        """Return the grid with another axis at this place; each of its classes has the largest amounts of some of the former."""
        axes = (*self.axes[:place], axis, *self.axes[place + 1 :])
        stride = _compute_strides(self.axes)[place]

        def merge_groups(column: _Values) -> _Values:
            if not column:
                return ()
            slabs = _list_slabs(column, stride, len(self.axes[place].classes))
            merged = [
                slabs[group[0]]
                if len(group) == 1
                else reduce(_compute_maxima, [slabs[number] for number in group])
                for group in groups
            ]
            if stride == 1:
                return tuple(chain.from_iterable(zip(*merged, strict=True)))
            starts = range(0, len(merged[0]), stride)
            return tuple(chain.from_iterable([slab[at : at + stride] for at in starts for slab in merged]))

        return Grid(axes, merge_groups(self.losses), merge_groups(self.deltas), merge_groups(self.levels))

    def list_slabs(self, place: int, column: _Values) -> list[_Values]:
        """Return the values of a column in the cells of each class of an axis, in one order for all; nothing of an empty one."""
        classes = len(self.axes[place].classes)
        return _list_slabs(column, _compute_strides(self.axes)[place], classes) if column else [()] * classes

    def merge_equal_classes(self) -> Grid:
        """Return the grid with classes of equal amounts joined, and without axes of one class."""
        grid = self
        for place in reversed(range(len(self.axes))):
            twins: dict[tuple[_Values, _Values], list[int]] = {}
            both = zip(grid.list_slabs(place, grid.losses), grid.list_slabs(place, grid.deltas), strict=True)
            for number, slab in enumerate(both):
                twins.setdefault(slab, []).append(number)
            if len(twins) < len(grid.axes[place].classes):
                grid = grid.merge_classes(place, list(twins.values()))
        return grid.drop_undivided_axes()

    def drop_undivided_axes(self) -> Grid:
        """Return the grid without axes of one class."""
        return replace(self, axes=tuple(axis for axis in self.axes if len(axis.classes) > 1))

    def sort_classes(self) -> Grid:
        """Return the grid as `from_cells` makes it of its cells: the classes of each axis in the order of their lowest numbers."""
        grid = self
        for place, axis in enumerate(self.axes):
            order = sorted(
                range(len(axis.classes)), key=lambda number: _get_class_sort_key(axis.classes[number])
            )
            if order == list(range(len(order))):
                continue
            classes = tuple(axis.classes[number] for number in order)
            grid = grid.with_axis(place, replace(axis, classes=classes), [[number] for number in order])
        return grid

    def limit_cells(self, most: int) -> Grid:
        """Return the grid with at most `most` cells and `MOST_RANGES` ranges: the classes that differ least are joined."""
        largest = max(self.losses) or 1
        # Joining keeps the largest of several values, and so the levels are those of what is joined.
        grid = replace(self, levels=tuple([own * _LEVELS // largest for own in self.losses]))
        while True:
            size = len(grid.losses)
            long = [place for place, axis in enumerate(grid.axes) if axis.ranges > MOST_RANGES]
            places = long or range(len(grid.axes) if size > most else 0)
            costs = {place: found for place in places if (found := grid.list_mergeable_pairs(place))}
            if not costs:
                return replace(grid, levels=()).drop_undivided_axes()
            place = min(costs, key=lambda place: costs[place][0][0])
            others = [found[0][0] for other, found in costs.items() if other != place]
            bound = max([costs[place][0][0], min(others)]) if others else None
            classes = len(grid.axes[place].classes)
            wanted = classes - max(most * classes // size, 1)
            at_once = max(min(wanted, classes // 4), classes // 8 if long else 1, 1)
            paired: dict[int, int] = {}
            for cost, one, other in costs[place]:
                if (
                    len(paired) // 2 < at_once
                    and one not in paired
                    and other not in paired
                    and (bound is None or cost <= bound)
                ):
                    paired[one], paired[other] = other, one
            lone = [[number] for number in range(classes) if number not in paired]
            pairs = [[one, other] for one, other in paired.items() if one < other]
            grid = grid.merge_classes(place, sorted(lone + pairs))

    def list_mergeable_pairs(self, place: int) -> list[tuple[Amounts, int, int]]:
        """Return the pairs of classes that may be merged, with how much a place would be overcharged, the cheapest first.

        Only neighbors in the order of their slabs are looked at, coarsely first, so that small amounts hide no great ones.
        """
        inside = self.axes[place].inside
        levels, losses, deltas = (
            self.list_slabs(place, column) for column in (self.levels, self.losses, self.deltas)
        )
        slabs: Sequence[tuple[object, ...]] = losses
        if self.deltas:
            slabs = [tuple(zip(*both, strict=True)) for both in zip(losses, deltas, strict=True)]
        order = sorted(
            range(len(slabs)), key=lambda number: (inside[number], levels[number], slabs[number], number)
        )
        found = [
            (
                (
                    _compute_largest_difference(losses[one], losses[other]),
                    _compute_largest_difference(deltas[one], deltas[other]),
                ),
                min(one, other),
                max(one, other),
            )
            for one, other in pairwise(order)
            if inside[one] == inside[other]
        ]
        return sorted(found)

    def merge_classes(self, place: int, groups: Sequence[Sequence[int]]) -> Grid:
        """Return the grid with the classes of each group merged, where each place has the largest of their amounts."""
        axis = self.axes[place]
        classes = tuple(
            axis.classes[group[0]]
            if len(group) == 1
            else join_disjoint_ranges(axis.classes[number] for number in group)
            for group in groups
        )
        inside = tuple(axis.inside[group[0]] for group in groups)
        return self.with_axis(place, Axis(axis.name, classes, inside), groups)


def _list_slabs(values: _Values, stride: int, size: int) -> list[_Values]:
    """Return the values of each of `size` classes of the axis with that stride."""
    if stride == 1:
        return [values[number::size] for number in range(size)]
    block = stride * size
    starts = range(0, len(values), block)
    if len(starts) == 1:
        return [values[start : start + stride] for start in range(0, block, stride)]
    return [
        tuple(chain.from_iterable([values[start + at : start + at + stride] for start in starts]))
        for at in range(0, block, stride)
    ]


def _add_inside(values: _Values, inside: Sequence[bool], amount: int) -> _Values:
    """Return the values, increased by this amount inside of a box."""
    return tuple([own + amount if flag else own for own, flag in zip(values, inside, strict=True)])


def _compute_maxima(some: _Values, others: _Values) -> _Values:
    """Return the larger values of two slabs."""
    return some if some == others else tuple(map(max, some, others))


def _compute_largest_difference(some: _Values, others: _Values) -> int:
    """Return the largest difference between the amounts of two slabs."""
    if some == others:
        return 0
    differences: list[int] = list(map(sub, some, others))
    most, least = max(differences), min(differences)
    return max(most, -least)


def _compute_strides(axes: Sequence[Axis]) -> list[int]:
    found, stride = list[int](), 1
    for axis in reversed(axes):
        found.append(stride)
        stride *= len(axis.classes)
    return found[::-1]


_BEYOND = 2**200  # more numbers than lie between any ends: both ends of the line are as one number there


def _count_numbers(ranges: Ranges) -> int:
    """Return how many numbers ranges hold, such that sizes of disjoint ranges add up and of others do not."""
    return sum(
        (_BEYOND if high is None else high) - (-_BEYOND if low is None else low) + 1 for low, high in ranges
    )


def _get_class_sort_key(ranges: Ranges) -> tuple[int, int, Ranges]:
    low, high = ranges[0]
    return (-_BEYOND if low is None else low), (_BEYOND if high is None else high), ()
