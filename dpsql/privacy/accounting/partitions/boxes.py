"""Partitions of a table as boxes in the space of its partition columns, and the charges of each.

Claim: what all releases together spend on one privacy unit is at most the largest spend over the places of
the space, under every accountant here, however the analyst's boxes depend on earlier answers.
Why: a unit lies at one place, and a release that is charged to a box reads no unit outside of it (the engine
sees to both, `sql.compile.scan_conditions`), so on neighbors that differ in this unit its answer has the same law. Charge such
a release nothing: the rest is a sequence of releases that is chosen adaptively, of which each is admitted
only if the sum of all before it and itself is within the limit, at this place as at every other. That is the
filter of the accountant itself, for which boxes are one more choice of the analyst's.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parallel composition); Rogers, Roth, Ullman,
Vadhan 2016, Section 3 (filters of adaptively chosen losses); Feldman, Zrnic 2021, "Individual privacy
accounting via a Rényi filter", Section 3 (a filter for each unit, whose loss is 0 where it is not read).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from dpsql.errors import IntegrityError
from dpsql.privacy.accounting.events import NOTHING, Charge
from dpsql.privacy.accounting.partitions.grid import (
    EVERYWHERE,
    MOST_CELLS,
    Grid,
    Ranges,
    Sides,
    fill_gaps,
    has_overlap,
    intersect_ranges,
    merge_ranges,
)

MOST_SIDES = 4
"""Most dimensions in which a charge is confined; in the others it is one to all places."""
MOST_SIDE_RANGES = 48
"""The maximum number of ranges of a side of a charged box; with more, the gaps between the nearest are charged too."""


@dataclass(frozen=True, slots=True)
class Box:
    """The places whose coordinate in each named dimension is in its ranges, and any in all other dimensions.

    A dimension's name holds its declaration, so that one which is declared anew is another dimension.
    Raises ValueError unless the ranges are those that `merge_ranges` gives, with at least one in each dimension.

    >>> Box((("day", ((1, 31),)),)).intersect_box(Box((("day", ((15, 45),)), ("region", ((0, 0),)))))
    Box(sides=(('day', ((15, 31),)), ('region', ((0, 0),))))
    """

    sides: Sides = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.sides]
        if names != sorted(set(names)):
            raise ValueError("the dimensions of a box must be sorted, without repetition")
        if any(
            not ranges or ranges == EVERYWHERE or ranges != merge_ranges(ranges) for _, ranges in self.sides
        ):
            raise ValueError("a side of a box must be a set of disjoint ranges in ascending order")

    @classmethod
    def from_sides(cls, sides: Mapping[str, Ranges]) -> Box:
        """Return the box with these sides, without those that cover everything."""
        return cls(
            tuple(sorted((name, merge_ranges(side)) for name, side in sides.items() if side != EVERYWHERE))
        )

    @classmethod
    def from_ordered_sides(cls, sides: Sides) -> Box:
        """Return the box with these sides, which are in order and of ranges in order, and not looked at again."""
        box = object.__new__(cls)
        object.__setattr__(box, "sides", sides)
        return box

    def intersect_box(self, other: Box) -> Box | None:
        """Return the places in both boxes; None if there are none."""
        found = dict(self.sides)
        for name, ranges in other.sides:
            shared = intersect_ranges(found.get(name, EVERYWHERE), ranges)
            if not shared:
                return None
            found[name] = shared
        return Box.from_sides(found)

    def compute_hull(self, other: Box) -> Box:
        """Return the least box around both."""
        theirs = dict(other.sides)
        return Box.from_sides(
            {name: merge_ranges((*own, *theirs[name])) for name, own in self.sides if name in theirs}
        )

    def __str__(self) -> str:
        """Return the box as canonical JSON text: equal boxes have equal texts."""
        return "{" + ",".join([_encode_side(name, side) for name, side in self.sides]) + "}"

    @classmethod
    def parse(cls, text: str) -> Box:
        """Return the box that was written as `text`; IntegrityError for any other text."""
        try:
            read = json.loads(text)
            sides = [(name, tuple((low, high) for low, high in side)) for name, side in read.items()]
            box = cls(tuple(sorted(sides)))
        except (ValueError, TypeError, AttributeError, RecursionError):
            box = None
        if box is None or str(box) != text:
            raise IntegrityError("the text is not a box, as dpsql writes it", code="ledger_corrupt")
        return box


def _encode_side(name: str, side: Ranges) -> str:
    return json.dumps(name, ensure_ascii=False) + ":" + json.dumps(side, separators=(",", ":"))


WHOLE = Box()


@dataclass(frozen=True, slots=True)
class PartitionCharges:
    """The spend of an account at each place: `base` everywhere, plus the amount of the cell that holds the place.

    The `cells` are disjoint.

    >>> january, february = (Box((("day", (days,)),)) for days in ((1, 31), (32, 59)))
    >>> spent = PartitionCharges().with_charge(january, Charge(2, 0)).with_charge(february, Charge(3, 0)).with_charge(WHOLE, Charge(1, 0))
    >>> spent.compute_largest_charge(), spent.compute_largest_charge(january)
    (Charge(loss=4, delta=0), Charge(loss=3, delta=0))
    """

    base: Charge = NOTHING
    cells: Mapping[Box, Charge] = field(default_factory=dict)
    _by_text: dict[str, Charge] = field(default_factory=dict, init=False, repr=False, compare=False)
    _known_grid: Grid | None = field(default=None, repr=False, compare=False)

    def compute_largest_charge(self, box: Box = WHOLE) -> Charge:
        """Return the largest loss and the largest delta that were charged at any place of a box."""
        wanted = dict(self.compute_charged_box(box).sides)
        met: dict[tuple[str, int], bool] = {}
        losses, deltas = 0, 0
        for cell, own in self.cells.items():
            for name, side in cell.sides if wanted else ():
                # Cells share their sides, and comparing the identity of one takes less time than comparing its ranges.
                if (known := met.get((name, id(side)))) is None:
                    known = met[name, id(side)] = name not in wanted or has_overlap(side, wanted[name])
                if not known:
                    break
            else:
                losses, deltas = max(losses, own.loss), max(deltas, own.delta)
        return self.base + Charge(losses, deltas)

    def compute_charges_by_text(self) -> Mapping[str, Charge]:
        """Return the spend of each cell by the text of its box, worked out once."""
        if len(self._by_text) < len(self.cells):
            texts: dict[tuple[str, int], str] = {}
            for cell, own in self.cells.items():
                for name, side in cell.sides:
                    if (name, id(side)) not in texts:
                        texts[name, id(side)] = _encode_side(name, side)
                sides = ",".join([texts[name, id(side)] for name, side in cell.sides])
                self._by_text["{" + sides + "}"] = own
        return self._by_text

    def with_charge(self, box: Box, spend: Charge) -> PartitionCharges:
        """Return the charges after one more charge to a box; `Grid` explains which places its cells distinguish."""
        booked = self.compute_charged_box(box)
        if booked == WHOLE and len(self.cells) <= MOST_CELLS:
            return PartitionCharges(self.base + spend, self.cells, _known_grid=self._known_grid)
        for before, same, amount, after in tuple(_LATEST):
            if before is self and (same, amount) == (booked, spend):
                return after
        grid = self._to_grid().with_charge(booked.sides, (spend.loss, spend.delta))
        cells = {Box.from_ordered_sides(sides): Charge(*own) for sides, own in grid.to_cells().items()}
        found = PartitionCharges(
            self.base + cells.pop(WHOLE, NOTHING), cells, _known_grid=grid.sort_classes() if cells else None
        )
        _LATEST.append((self, booked, spend, found))
        return found

    def compute_charged_box(self, box: Box) -> Box:
        """Return the box that is charged for a box: itself, or a larger one with fewer sides and ranges."""
        sides = box.sides[:MOST_SIDES]
        if len(sides) == len(box.sides) and all(len(side) <= MOST_SIDE_RANGES for _, side in sides):
            return box
        return Box(tuple((name, fill_gaps(side, MOST_SIDE_RANGES)) for name, side in sides))

    def _to_grid(self) -> Grid:
        """Return the cells as a grid; IntegrityError for cells that dpsql does not write."""
        if self._known_grid is not None:
            return self._known_grid
        found = Grid.from_cells({cell.sides: (own.loss, own.delta) for cell, own in self.cells.items()})
        if found is None:
            raise IntegrityError(
                "the charges of partitions are not the cells of a grid, as dpsql writes them",
                code="ledger_corrupt",
            )
        return found


# A charge is quoted, and then followed as an entry: the same sum twice.
_LATEST: deque[tuple[PartitionCharges, Box, Charge, PartitionCharges]] = deque(maxlen=8)
