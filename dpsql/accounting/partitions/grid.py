"""The spend of each partition in a bounded number of grid cells, whatever was charged before.

Each dimension is a line that is divided into classes of places; a cell is one class of each. A charge to a box divides
the classes at the ends of its sides. Where that makes too many cells, two classes of a dimension become one, in which
each place counts as having spent the most of both.

Claim: no place is ever counted as having spent less than was charged to boxes around it.
Why: what a place is counted for only grows when classes become one.
Claim: making the grid coarser raises no place above the one that is counted for the most, so the account's total stays.
Why: a place is raised to what another is counted for.
Claim: who makes the grid coarser by charges to many boxes raises no place by more than those charges together, as long
as what others have charged would fit by itself.
Why: two classes that are apart for these charges alone differ by no more than these, and the two that differ by the
least become one.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parallel composition), of which upper bounds are taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, pairwise, product
from operator import sub
from typing import NamedTuple, TypeAlias, TypeVar

from dpsql.accounting.partitions.ranges import EVERYWHERE, Ranges, Sides, complement, divided, joined, union

MOST_CELLS = 64
"""Most cells of an account. A grid of n cells costs a charge a number of steps in proportion to n·log n."""
MOST_RANGES = 128
"""Most ranges of the classes of one dimension."""
_LEVELS = 16

Amounts: TypeAlias = tuple[int, int]
"""A loss and a delta."""
_NONE: Amounts = (0, 0)


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
    """Cells along some axes, and what was spent in each, the last axis running fastest."""

    axes: tuple[Axis, ...] = ()
    amounts: tuple[Amounts, ...] = (_NONE,)

    @classmethod
    def of(cls, cells: Mapping[Sides, Amounts]) -> Grid | None:
        """The grid whose cells these are; None where they are cells of no grid, or of too large a one."""
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
            whole = union(one for side in known for one in side)
            if sum(map(_size, known)) != _size(whole):
                return None
            rest = complement(whole)
            classes = tuple(sorted([*known, rest] if rest else known, key=_order))
            axes.append(Axis(name, classes, (False,) * len(classes)))
        if math.prod(len(axis.classes) for axis in axes) > MOST_CELLS:
            return None
        amounts = [_NONE] * math.prod(len(axis.classes) for axis in axes)
        strides = dict(zip((axis.name for axis in axes), _strides(axes), strict=True))
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
        return cls(tuple(axes), tuple(amounts))

    def cells(self) -> dict[Sides, Amounts]:
        """What was spent in each cell where anything was, by its sides."""
        places = product(*(axis.classes for axis in self.axes))
        names = [axis.name for axis in self.axes]
        return {
            tuple(zip(names, sides, strict=True)): own
            for sides, own in zip(places, self.amounts, strict=True)
            if own != _NONE
        }

    def charged(self, box: Sides, spend: Amounts) -> Grid:
        """The grid after a charge to the box with these sides."""
        grid = self
        for name, side in box:
            # Only when all is cut may classes become one: a place inside must not be raised to one outside.
            grid = grid.cut(name, side)
        inside = product(
            *(axis.inside if any(axis.inside) else [True] * len(axis.classes) for axis in grid.axes)
        )
        amounts = tuple(
            (own[0] + spend[0], own[1] + spend[1]) if all(flags) else own
            for own, flags in zip(grid.amounts, inside, strict=True)
        )
        axes = tuple(Axis(axis.name, axis.classes, (False,) * len(axis.classes)) for axis in grid.axes)
        return Grid(axes, amounts).without_twins().within(MOST_CELLS)

    def cut(self, name: str, side: Ranges) -> Grid:
        """The same with each class of a dimension divided into what is inside of these ranges and what is not."""
        grid = self
        if name not in {axis.name for axis in self.axes}:
            grid = Grid((*self.axes, Axis(name, (EVERYWHERE,), (False,))), self.amounts)
            if self.axes and name < self.axes[-1].name:
                grid = grid.in_order()
        place = next(place for place, axis in enumerate(grid.axes) if axis.name == name)
        found = [
            (part, flag, number)
            for number, parts in enumerate(divided(grid.axes[place].classes, side))
            for part, flag in zip(parts, (True, False), strict=True)
            if part
        ]
        slabs = grid.slabs(place)
        axis = Axis(name, tuple(part for part, _, _ in found), tuple(flag for _, flag, _ in found))
        return grid.with_axis(place, axis, [slabs[number] for _, _, number in found])

    def in_order(self) -> Grid:
        """The grid with the last axis, of one class, in the order of names."""
        return Grid(tuple(sorted(self.axes, key=lambda axis: axis.name)), self.amounts)

    def slabs(self, place: int) -> list[tuple[Amounts, ...]]:
        """What was spent in the cells of each class of an axis, in one order for all."""
        return _slabs(self.amounts, _strides(self.axes)[place], len(self.axes[place].classes))

    def with_axis(self, place: int, axis: Axis, slabs: Sequence[Sequence[Amounts]]) -> Grid:
        """The grid with another axis at this place, whose classes have these slabs."""
        axes = (*self.axes[:place], axis, *self.axes[place + 1 :])
        stride = _strides(self.axes)[place]
        amounts = (
            slab[start : start + stride] for start in range(0, len(slabs[0]), stride) for slab in slabs
        )
        return Grid(axes, tuple(chain.from_iterable(zip(*slabs, strict=True) if stride == 1 else amounts)))

    def without_twins(self) -> Grid:
        """The grid with classes of equal amounts joined, and without axes of one class."""
        grid = self
        for place in reversed(range(len(self.axes))):
            slabs, twins = grid.slabs(place), dict[tuple[Amounts, ...], list[int]]()
            for number, slab in enumerate(slabs):
                twins.setdefault(slab, []).append(number)
            if len(twins) < len(slabs):
                grid = grid.joined(place, list(twins.values()), slabs)
        return grid.without_whole_axes()

    def without_whole_axes(self) -> Grid:
        """The grid without axes of one class."""
        return Grid(tuple(axis for axis in self.axes if len(axis.classes) > 1), self.amounts)

    def within(self, most: int) -> Grid:
        """The grid with at most `most` cells and `MOST_RANGES` ranges: the classes that differ least are joined."""
        grid = self
        while True:
            size = len(grid.amounts)
            long = [place for place, axis in enumerate(grid.axes) if axis.ranges > MOST_RANGES]
            if size <= most and not long:
                return grid.without_whole_axes()
            columns = _columns(grid.amounts)
            costs = {
                place: found
                for place in (long or range(len(grid.axes)))
                if (found := grid.pairs(place, columns))
            }
            if not costs:
                return grid
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
            grid = grid.joined(place, sorted(lone + pairs), grid.slabs(place))

    def pairs(self, place: int, columns: _Columns | None = None) -> list[tuple[Amounts, int, int]]:
        """Pairs of classes that may become one, with how much more some place would count for, the cheapest first.

        Only neighbours in the order of their slabs are looked at, coarsely first, so that small amounts hide no great ones.
        """
        axis, stride = self.axes[place], _strides(self.axes)[place]
        columns = _columns(self.amounts) if columns is None else columns
        levels, losses = (_slabs(column, stride, len(axis.classes)) for column in columns[:2])
        slabs: Sequence[Sequence[int | Amounts]] = losses
        deltas: Sequence[Sequence[int]] = [()] * len(losses)
        if columns.deltas:
            slabs, deltas = self.slabs(place), _slabs(columns.deltas, stride, len(axis.classes))
        order = sorted(
            range(len(slabs)), key=lambda number: (axis.inside[number], levels[number], slabs[number], number)
        )
        found = [
            (
                (_apart(losses[one], losses[other]), _apart(deltas[one], deltas[other])),
                min(one, other),
                max(one, other),
            )
            for one, other in pairwise(order)
            if axis.inside[one] == axis.inside[other]
        ]
        return sorted(found)

    def joined(
        self, place: int, groups: Sequence[Sequence[int]], slabs: Sequence[tuple[Amounts, ...]]
    ) -> Grid:
        """The grid with the classes of each group joined, where each place has the largest amount of them."""
        axis = self.axes[place]
        classes = tuple(
            axis.classes[group[0]] if len(group) == 1 else joined(axis.classes[number] for number in group)
            for group in groups
        )
        merged = [reduce(_most, (slabs[number] for number in group)) for group in groups]
        inside = tuple(axis.inside[group[0]] for group in groups)
        return self.with_axis(place, Axis(axis.name, classes, inside), merged)


class _Columns(NamedTuple):
    """What was spent in each cell, in columns.

    The levels are the losses in steps of a sixteenth of the largest; the deltas are left out where all are zero.
    """

    levels: tuple[int, ...]
    losses: tuple[int, ...]
    deltas: tuple[int, ...]


def _columns(amounts: Sequence[Amounts]) -> _Columns:
    losses, deltas = zip(*amounts, strict=True)
    most = max(losses) or 1
    return _Columns(tuple([own * _LEVELS // most for own in losses]), losses, deltas if any(deltas) else ())


_Value = TypeVar("_Value")


def _slabs(values: tuple[_Value, ...], stride: int, size: int) -> list[tuple[_Value, ...]]:
    """The values of each of `size` classes of the axis with that stride."""
    if stride == 1:
        return [values[number::size] for number in range(size)]
    block = stride * size
    return [
        tuple(
            chain.from_iterable(
                [values[start : start + stride] for start in range(number * stride, len(values), block)]
            )
        )
        for number in range(size)
    ]


def _most(some: tuple[Amounts, ...], others: tuple[Amounts, ...]) -> tuple[Amounts, ...]:
    """The larger losses and the larger deltas of two slabs."""
    if some == others:
        return some
    return tuple(
        [
            (max(loss, other_loss), max(delta, other_delta))
            for (loss, delta), (other_loss, other_delta) in zip(some, others, strict=True)
        ]
    )


def _apart(some: Sequence[int], others: Sequence[int]) -> int:
    """By how much the amounts of two slabs differ at most."""
    return 0 if some == others else max(map(abs, map(sub, some, others)))


def _strides(axes: Sequence[Axis]) -> list[int]:
    found, stride = list[int](), 1
    for axis in reversed(axes):
        found.append(stride)
        stride *= len(axis.classes)
    return found[::-1]


_BEYOND = 2**200  # more numbers than lie between any ends: both ends of the line are as one number there


def _size(ranges: Ranges) -> int:
    """How many numbers ranges hold, such that sizes of disjoint ranges add up and of others do not."""
    return sum(
        (_BEYOND if high is None else high) - (-_BEYOND if low is None else low) + 1 for low, high in ranges
    )


def _order(ranges: Ranges) -> tuple[int, int, Ranges]:
    low, high = ranges[0]
    return (-_BEYOND if low is None else low), (_BEYOND if high is None else high), ()
