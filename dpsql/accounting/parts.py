"""Parts of a table, and what was spent on each: boxes in the space of its partition columns.

Claim: what all releases together spend on one privacy unit is at most the largest spend over the places of
the space, under every accountant here, however the analyst's boxes depend on earlier answers.
Why: a unit lies at one place, and a release that is charged to a box reads no unit outside of it (the engine
sees to both, `sql.rows`), so on neighbours that differ in this unit its answer has the same law. Charge such
a release nothing: the rest is a sequence of releases that is chosen adaptively, of which each is admitted
only if the sum of all before it and itself is within the limit, at this place as at every other. That is the
filter of the accountant itself, for which boxes are one more choice of the analyst's.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parallel composition); Rogers, Roth, Ullman,
Vadhan 2016, Section 3 (filters of adaptively chosen losses); Feldman, Zrnic 2021, "Individual privacy
accounting via a Rényi filter", Section 3 (a filter for each unit, whose loss is 0 where it is not read).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from dpsql.accounting.spend import NOTHING, Spend
from dpsql.errors import IntegrityError

End: TypeAlias = int | None
Ranges: TypeAlias = tuple[tuple[End, End], ...]
"""Closed ranges of whole numbers, in order and apart. None reaches beyond all numbers; below them lies NULL."""

MOST_CELLS = 4_096
"""Most disjoint boxes of an account: a charge that would make more is one to the whole table."""
_FEW_CELLS = 64
"""So many cells are not cut into too many by one charge."""
_EVERYWHERE: Ranges = ((None, None),)


@dataclass(frozen=True, slots=True)
class Box:
    """The places whose coordinate in each named dimension is in its ranges; in others it may be any.

    A dimension's name holds its declaration, so that one which is declared anew is another dimension.
    Raises ValueError unless the ranges are those that `union` gives, with at least one in each dimension.

    >>> Box((("day", ((1, 31),)),)).meet(Box((("day", ((15, 45),)), ("region", ((0, 0),)))))
    Box(sides=(('day', ((15, 31),)), ('region', ((0, 0),))))
    """

    sides: tuple[tuple[str, Ranges], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.sides]
        if names != sorted(set(names)):
            raise ValueError("the dimensions of a box are in order, each once")
        if any(not ranges or ranges == _EVERYWHERE or ranges != union(ranges) for _, ranges in self.sides):
            raise ValueError("a side of a box is some ranges, in order and apart")

    @classmethod
    def of(cls, sides: Mapping[str, Ranges]) -> Box:
        """The box with these sides; those that reach everywhere are left out."""
        return cls(tuple(sorted((name, union(side)) for name, side in sides.items() if side != _EVERYWHERE)))

    def side(self, name: str) -> Ranges:
        """The ranges in a dimension."""
        return dict(self.sides).get(name, _EVERYWHERE)

    def _with(self, name: str, ranges: Ranges) -> Box:
        return Box.of({**dict(self.sides), name: ranges})

    def meet(self, other: Box) -> Box | None:
        """The places in both boxes; None if there are none."""
        found = dict(self.sides)
        for name, ranges in other.sides:
            shared = intersection(found.get(name, _EVERYWHERE), ranges)
            if not shared:
                return None
            found[name] = shared
        return Box.of(found)

    def minus(self, other: Box) -> Iterator[Box]:
        """Disjoint boxes that hold the places of this one which are not in the other."""
        if self.meet(other) is None:
            yield self
            return
        rest = self
        for name, ranges in other.sides:
            own = rest.side(name)
            outside = intersection(own, complement(ranges))
            if outside:
                yield rest._with(name, outside)
            rest = rest._with(name, intersection(own, ranges))

    def hull(self, other: Box) -> Box:
        """The least box around both."""
        theirs = dict(other.sides)
        return Box.of({name: union((*own, *theirs[name])) for name, own in self.sides if name in theirs})

    def __str__(self) -> str:
        """The box as canonical JSON text: equal boxes have equal texts."""
        return json.dumps(dict(self.sides), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> Box:
        """The box that was written as `text`; IntegrityError for any other text."""
        try:
            read = json.loads(text)
            sides = [(name, tuple((low, high) for low, high in side)) for name, side in read.items()]
            box = cls(tuple(sorted(sides)))
        except (ValueError, TypeError, AttributeError, RecursionError):
            box = None
        if box is None or str(box) != text:
            raise IntegrityError("the text is not a box that dpsql wrote", code="ledger_corrupt")
        return box


WHOLE = Box()


def union(ranges: Iterable[tuple[End, End]]) -> Ranges:
    """The same numbers as ranges in order, apart from each other by at least one number.

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
    """The numbers in both."""
    pairs = (
        (max(a, c, key=_low), min(b, d, key=_high))
        for a, b in some
        for c, d in others
        if _low(a) <= _high(d) and _low(c) <= _high(b)
    )
    return union(pairs)


def complement(ranges: Ranges) -> Ranges:
    """All other numbers, and NULL if it is not among them.

    >>> complement(((0, 4), (6, 6)))
    ((None, -1), (5, 5), (7, None))
    """
    if not ranges:
        return _EVERYWHERE
    (first, _), (_, last) = ranges[0], ranges[-1]
    below: Ranges = () if first is None else ((None, first - 1),)
    above: Ranges = () if last is None else ((last + 1, None),)
    # Between two ranges that are in order and apart both ends are numbers.
    gaps = ((high + 1, low - 1) for (_, high), (low, _) in pairwise(ranges) if None not in (high, low))  # type: ignore[operator]
    return (*below, *gaps, *above)


@dataclass(frozen=True, slots=True)
class Parts:
    """What an account has spent at each place: `base` everywhere, and in each of the disjoint `cells` that besides.

    >>> january, february = (Box((("day", (days,)),)) for days in ((1, 31), (32, 59)))
    >>> spent = Parts().charged(january, Spend(2, 0)).charged(february, Spend(3, 0)).charged(WHOLE, Spend(1, 0))
    >>> spent.most(), spent.most(january)
    (Spend(loss=4, delta=0), Spend(loss=3, delta=0))
    """

    base: Spend = NOTHING
    cells: Mapping[Box, Spend] = field(default_factory=dict)

    def most(self, box: Box = WHOLE) -> Spend:
        """The largest loss, and the largest delta, that was spent at any place of a box."""
        booked = self._booked(box)
        spent = [own for cell, own in self.cells.items() if booked.meet(cell) is not None]
        return self.base + Spend(
            max((own.loss for own in spent), default=0), max((own.delta for own in spent), default=0)
        )

    def charged(self, box: Box, spend: Spend) -> Parts:
        """The same after a charge to a box."""
        if self._booked(box) == WHOLE:
            return Parts(self.base + spend, self.cells)
        return Parts(self.base, self._cells(box, spend))

    def _booked(self, box: Box) -> Box:
        """The box, or the whole where its charge would make too many cells."""
        few = len(self.cells) < _FEW_CELLS or len(self._cells(box, NOTHING)) <= MOST_CELLS
        return box if few else WHOLE

    def _cells(self, box: Box, spend: Spend) -> dict[Box, Spend]:
        found: dict[Box, Spend] = {}
        rest = [box]
        for cell, own in self.cells.items():
            shared = cell.meet(box)
            if shared is None:
                found[cell] = own
                continue
            found[shared] = own + spend
            found |= dict.fromkeys(cell.minus(box), own)
            rest = [piece for part in rest for piece in part.minus(cell)]
        return found | dict.fromkeys(rest, spend)


def _low(end: End) -> float:
    return -math.inf if end is None else end


def _high(end: End) -> float:
    return math.inf if end is None else end
