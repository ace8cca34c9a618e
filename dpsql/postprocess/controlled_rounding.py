"""Controlled rounding: integers close to the estimates, such that each total is the sum of its parts.

Claim: each integer along a chain of nested key sets, from the smallest set on, differs from its estimate by less than one,
and each total is the sum of its parts. Totals by other keys, as in a cube, are sums of the same parts, and differ by at
most one or two.
Why: the estimates add up, so the integer of a total, which is the floor or ceiling of its estimate, is between the sums
of the floors and of the ceilings of its parts; as many parts as needed are rounded up. Parts with the largest fractions
are rounded up first, corrected by the rounding errors of earlier parts in totals by other keys, so that these do not
accumulate.
Source: Cox 1987, "A constructive procedure for unbiased controlled rounding" (that such numbers exist).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.planning.hierarchy import Axes, Hierarchy

Whole = NDArray[np.object_]
"""Whole numbers of any size, with an axis for each key in the order of their numbers."""
Estimates = dict[Axes, tuple[Whole, int]]
"""Estimates by each set of keys that is released: whole numbers, and what they are divided by."""


def rounded(agreement: Hierarchy, estimates: Estimates) -> dict[Axes, Whole]:
    """The whole numbers by each set of keys of an agreement; its `estimates` add up exactly."""
    found: dict[Axes, Whole] = {}
    for number, top in enumerate(agreement.largest()):
        within = sorted((keys for keys in estimates if keys <= top), key=len)
        shared = agreement.known(number) if number else None
        if shared is None:
            current = within[0]
            values = _nearest(*estimates[current])
        else:
            current = shared
            source = next(keys for keys in agreement.largest()[:number] if shared <= keys)
            values = _sums(found[source], source, shared)
        while current != top:
            finer = next(keys for keys in within if current < keys)
            crossing = [keys for keys in within if keys < finer and not keys <= current and keys != current]
            values = _split(values, current, estimates[finer], finer, crossing)
            current = finer
        found |= {keys: _sums(values, top, keys) for keys in within}
    return found


def _nearest(numerators: Whole, divisor: int) -> Whole:
    return np.asarray((2 * numerators + divisor) // (2 * divisor), dtype=object)


def _sums(values: Whole, keys: Axes, remaining: Axes) -> Whole:
    left = tuple(axis for axis, key in enumerate(sorted(keys)) if key not in remaining)
    return np.asarray(np.sum(values, axis=left), dtype=object) if left else values


@dataclass(slots=True)
class _Left:
    """What is left over so far, estimates less whole numbers, for totals by some of the keys, at these places."""

    places: Sequence[int]
    sums: dict[tuple[int, ...], float] = field(default_factory=dict)

    def of(self, cell: tuple[int, ...]) -> float:
        return self.sums.get(self._total(cell), 0.0)

    def add(self, cell: tuple[int, ...], rest: float) -> None:
        self.sums[self._total(cell)] = self.of(cell) + rest

    def _total(self, cell: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(cell[place] for place in self.places)


def _split(
    totals: Whole, keys: Axes, estimates: tuple[Whole, int], finer: Axes, crossing: Sequence[Axes]
) -> Whole:
    """Whole parts, by `finer` keys, of whole totals; `crossing` are keys whose totals are looked after besides."""
    numerators, divisor = estimates
    floors = np.asarray(numerators // divisor, dtype=object)
    order = sorted(finer)
    left = [_Left([order.index(key) for key in sorted(other)]) for other in crossing]
    coarse = [place for place, key in enumerate(order) if key in keys]
    for total in itertools.product(*(range(numerators.shape[place]) for place in coarse)):
        fixed = dict(zip(coarse, total, strict=True))
        spans = [
            [fixed[place]] if place in fixed else range(size) for place, size in enumerate(numerators.shape)
        ]
        cells = list(itertools.product(*spans))
        rests = [float((numerators[cell] - floors[cell] * divisor) / divisor) for cell in cells]
        more: Any = totals[total] - sum(floors[cell] for cell in cells)
        each, up = divmod(int(more), len(cells)) if not 0 <= more <= len(cells) else (0, int(more))
        wanted = [rest + sum(part.of(cell) for part in left) for cell, rest in zip(cells, rests, strict=True)]
        ranked = sorted(range(len(cells)), key=wanted.__getitem__, reverse=True)
        for place, at in enumerate(ranked):
            add = each + (place < up)
            floors[cells[at]] += add
            for part in left:
                part.add(cells[at], rests[at] - add)
    return floors
