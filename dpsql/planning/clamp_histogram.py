"""What units have by the grids of clamps, group by group: read from a statement, and what is chosen and counted by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dpsql.aggregates import Moment
from dpsql.mechanisms import Entropy
from dpsql.planning.clamping import Amount, Clamp
from dpsql.planning.statistics import ROWS, UNITS, Statistic


@dataclass(frozen=True, slots=True)
class ClampTarget:
    """What a group's units have, by the grid of a clamp: the rows of a measure, a side of its total, or their groups."""

    clamp: int
    measure: int | None
    side: int


def clamp_targets(clamps: Sequence[Clamp]) -> tuple[ClampTarget, ...]:
    """All ladders, in order. The penalties of a clamp are read from its first, or of a total from each side."""
    return tuple(
        ClampTarget(place, measure, sign)
        for place, clamp in enumerate(clamps)
        for measure in clamp.measures
        for sign in clamp.sides
    )


@dataclass(frozen=True, slots=True)
class ClampHistogram:
    """Of a group, for each interval of a grid: how many units have an amount there, and totals over these.

    An interval is told by its upper point. The totals are of the parts that a unit has in this group of what the
    clamp looks at, all where that is what it has here; of the amount; of rows that belong to a measure also of its
    values, and of as many parts of the unit's mean value; and the last is the number of units. Where a unit's groups are
    told as one, the interval is that of all its groups together, and units are those whose first group this is. Of
    groups, the amount is the place that a unit's group has among its groups, and the last is of places that begin an
    interval.
    """

    intervals: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return "Rungs(…)"  # what is exact shows nowhere

    @classmethod
    def of(cls, packed: Iterable[Iterable[int | None]] | None) -> ClampHistogram:
        """From the list that the statement gives."""
        return cls(
            tuple(tuple(0 if value is None else int(value) for value in rung) for rung in packed or ())
        )

    def total_up_to(self, chosen: int, which: int) -> int:
        """A total over units that have no more than a point."""
        return sum(rung[which] for rung in self.intervals if rung[0] <= chosen)

    def total_beyond(self, chosen: int, which: int) -> int:
        """A total over units that have more; their parts are the first."""
        return sum(rung[which] for rung in self.intervals if rung[0] > chosen)


def choose_clamps(
    clamps: Sequence[Clamp], groups: Sequence[Sequence[ClampHistogram]], entropy: Entropy
) -> tuple[Clamp, ...]:
    """Chooses the points of all clamps, from the rungs of all groups that there are.

    Groups that will not be shown take part: which these are may hang on a single unit.
    """
    read = clamp_targets(clamps)
    found = []
    for place, clamp in enumerate(clamps):
        sides = [index for index, target in enumerate(read) if target.clamp == place][: len(clamp.sides)]
        above = [penalties(clamp, [group[side] for group in groups]) for side in sides]
        found.append(clamp.choose(above, entropy))
    return tuple(found)


def penalties(clamp: Clamp, parts: Iterable[ClampHistogram]) -> list[int]:
    """For each point of a side of a clamp, how many have more: pairs of a unit and a group, or units."""
    if clamp.amount is Amount.GROUPS:
        return _exceeding_units(len(clamp.grid), parts)
    return _exceeding_pairs(len(clamp.grid), parts)


def _exceeding_pairs(size: int, parts: Iterable[ClampHistogram]) -> list[int]:
    """For each of that many points, how many have more."""
    at = [0] * (size + 1)
    for part in parts:
        for place, *_, units in part.intervals:
            at[place] += units
    return list(accumulate(reversed(at[1:])))[::-1]


def _exceeding_units(size: int, parts: Iterable[ClampHistogram]) -> list[int]:
    """For each of that many points, how many units have more groups: each has one group in the place after it."""
    at = [0] * (size + 1)
    for part in parts:
        for place, _, first in part.intervals:
            at[place] += first
    return at[1:]


def clamped_moments(clamps: Sequence[Clamp], rungs: Sequence[ClampHistogram]) -> dict[Statistic, int]:
    """The moments of a group in which each unit counts up to the chosen points, in the parts of their clamps.

    Of more rows than count, those that count have the unit's mean value.
    """
    found: dict[Statistic, int] = {}
    for target, part in zip(clamp_targets(clamps), rungs, strict=True):
        clamp = clamps[target.clamp]
        side = clamp.sides.index(target.side)
        index, point = clamp.chosen[side], clamp.points[side]
        if clamp.amount is Amount.GROUPS:
            found[UNITS] = part.total_up_to(index, 1)
            continue
        amount = clamp.subdivisions * part.total_up_to(index, 2) + point * part.total_beyond(index, 1)
        if clamp.total is not None:
            statistic = (Moment.TOTAL, clamp.total)
            found[statistic] = found.get(statistic, 0) + target.side * amount
        elif target.measure is None:
            found[ROWS] = amount
        else:
            found[Moment.COUNT, target.measure] = amount
            values = clamp.subdivisions * part.total_up_to(index, 3) + point * part.total_beyond(index, 4)
            found[Moment.TOTAL, target.measure] = values
    return found
