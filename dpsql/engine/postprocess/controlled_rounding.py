"""Controlled rounding: integers close to the estimates, such that each total is the sum of its parts.

Claim: each integer along a chain of nested key sets, from the smallest set on, differs from its estimate by less than one,
and each total is the sum of its parts. Totals by other keys, as in a cube, are sums of the same parts, and differ by at
most a few. Key sets that overlap agree on the sums by the keys that they share.
Why: the estimates add up, so the integer of a total, which is the floor or ceiling of its estimate, is between the sums
of the floors and of the ceilings of its parts; as many parts as needed are rounded up. Parts with the largest fractions
are rounded up first, corrected by the rounding errors of earlier parts in totals by other keys, so that these do not
accumulate. Totals by shared keys are rounded before their parts, whether or not they are released: parts that were rounded
one by one would pile up a rounding error that grows with their number, and the parts by other keys would have to take it. A
set that shares two sets of keys with those before it is split along one of them; then units move between parts within
its totals, from where the other set has too many to where it has too few, which leaves the first as it is.
Source: Cox 1987, "A constructive procedure for unbiased controlled rounding" (that such numbers exist).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.planning.hierarchy import Axes, Hierarchy

Whole = NDArray[np.object_]
"""Whole numbers of any size, with an axis for each key in the order of their numbers."""
Estimates = dict[Axes, tuple[Whole, int]]
"""Estimates by each set of keys that is released: whole numbers, and what they are divided by."""


def round_consistently(agreement: Hierarchy, estimates: Estimates) -> dict[Axes, Whole]:
    """Return whole numbers that add up by each set of keys of an agreement; its `estimates` add up exactly.

    `agreement.rounds` says whether they are constructed.
    """
    known = {keys: _get_estimates(keys, estimates) for keys in agreement.closure}
    found: dict[Axes, Whole] = {}
    for number, top in enumerate(agreement.largest_key_sets):
        within = [keys for keys in agreement.closure if keys <= top]
        fixed = {keys: _get_totals(found, keys) for keys in agreement.list_shared_keys(number)}
        current = next(iter(fixed), within[0])
        values = fixed[current] if fixed else _round_array(*known[current])
        while current != top:
            finer = next(keys for keys in within if current < keys)
            crossing = {keys: known[keys] for keys in within if keys < finer and not keys <= current}
            values = _split_totals(values, current, known[finer], finer, crossing=crossing, fixed=fixed)
            current = finer
        first, *others = fixed or [frozenset[int]()]
        for keys in others:
            move_units(values, known[top], top, held=first, keys=keys, totals=fixed[keys])
        found[top] = values
    return {keys: _get_totals(found, keys) for keys in estimates}


def round_to_nearest(estimates: Estimates) -> dict[Axes, Whole]:
    """Return the nearest whole number to each estimate, which need not add up."""
    return {keys: _round_array(*estimate) for keys, estimate in estimates.items()}


def _round_array(numerators: Whole, divisor: int) -> Whole:
    return np.asarray((2 * numerators + divisor) // (2 * divisor), dtype=object)


def _sum_to_keys(values: Whole, keys: Axes, remaining: Axes) -> Whole:
    left = tuple(axis for axis, key in enumerate(sorted(keys)) if key not in remaining)
    return np.asarray(np.sum(values, axis=left), dtype=object) if left else values


def _get_estimates(keys: Axes, estimates: Estimates) -> tuple[Whole, int]:
    """Return the estimates by some keys: those of any finer set, which agree, added up."""
    if keys in estimates:
        return estimates[keys]
    finer = min((each for each in estimates if keys <= each), key=lambda each: estimates[each][0].size)
    numerators, divisor = estimates[finer]
    return _sum_to_keys(numerators, finer, keys), divisor


def _get_totals(found: Mapping[Axes, Whole], keys: Axes) -> Whole:
    """Return the whole totals by some keys, of the first set of parts that holds these."""
    finer = next(each for each in found if keys <= each)
    return _sum_to_keys(found[finer], finer, keys)


@dataclass(slots=True)
class _Residuals:
    """The residuals so far, estimates less whole numbers, of totals by some of the keys, at these places."""

    places: Sequence[int]
    sums: dict[tuple[int, ...], float] = field(default_factory=dict)

    def get_residual(self, cell: tuple[int, ...]) -> float:
        return self.sums.get(self._get_total_cell(cell), 0.0)

    def add_residual(self, cell: tuple[int, ...], rest: float) -> None:
        self.sums[self._get_total_cell(cell)] = self.get_residual(cell) + rest

    def _get_total_cell(self, cell: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(cell[place] for place in self.places)


def _compute_residual(estimate: tuple[Whole, int], whole: Whole, cell: tuple[int, ...]) -> float:
    """Return an estimate less a whole number."""
    numerators, divisor = estimate
    rest: Any = numerators[cell] - whole[cell] * divisor
    return float(rest / divisor)


def _split_totals(
    totals: Whole,
    keys: Axes,
    estimate: tuple[Whole, int],
    finer: Axes,
    *,
    crossing: Mapping[Axes, tuple[Whole, int]],
    fixed: Mapping[Axes, Whole],
) -> Whole:
    """Return whole parts, by `finer` keys, of whole totals by `keys`.

    Totals by the keys of `crossing` are considered too: they come near their estimates, or near `fixed` numbers.
    """
    numerators, divisor = estimate
    floors = np.asarray(numerators // divisor, dtype=object)
    order = sorted(finer)
    left = []
    for other, whole in crossing.items():
        before = (
            {cell: -_compute_residual(whole, fixed[other], cell) for cell in np.ndindex(fixed[other].shape)}
            if other in fixed
            else {}
        )
        left.append(_Residuals([order.index(key) for key in sorted(other)], before))
    coarse = [place for place, key in enumerate(order) if key in keys]
    for total in itertools.product(*(range(numerators.shape[place]) for place in coarse)):
        cells = list(_iterate_cells(numerators.shape, dict(zip(coarse, total, strict=True))))
        rests = [_compute_residual((numerators, divisor), floors, cell) for cell in cells]
        more: Any = totals[total] - sum(floors[cell] for cell in cells)
        each, up = divmod(int(more), len(cells)) if not 0 <= more <= len(cells) else (0, int(more))
        wanted = [
            rest + sum(part.get_residual(cell) for part in left)
            for cell, rest in zip(cells, rests, strict=True)
        ]
        # Equal parts take turns, so that the first of them is not always the one that is moved.
        turn = int(totals[total]) % len(cells)
        ranked = sorted([*range(turn, len(cells)), *range(turn)], key=wanted.__getitem__, reverse=True)
        for place, at in enumerate(ranked):
            add = each + (place < up)
            floors[cells[at]] += add
            for part in left:
                part.add_residual(cells[at], rests[at] - add)
    return floors


def _iterate_cells(shape: Sequence[int], fixed: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
    """Yield the cells of a table that have these indices at these places."""
    return itertools.product(
        *([fixed[place]] if place in fixed else range(size) for place, size in enumerate(shape))
    )


def move_units(
    values: Whole, estimate: tuple[Whole, int], top: Axes, *, held: Axes, keys: Axes, totals: Whole
) -> None:
    """Move units between parts until their sums by `keys` are these totals; sums by `held` keys stay.

    Each unit goes to the place where that brings the parts nearest to their estimates.
    """
    order = sorted(top)
    numerators, divisor = estimate
    scale = float(divisor)
    rests = ((numerators - values * divisor) / scale).astype(np.float64)
    missing = totals - _sum_to_keys(values, top, keys)
    ours = sorted(keys)
    shared = [ours.index(key) for key in sorted(held & keys)]
    groups: dict[tuple[int, ...], tuple[list[Any], list[Any]]] = {}
    for cell in np.ndindex(missing.shape):
        few, many = groups.setdefault(tuple(cell[place] for place in shared), ([], []))
        few += [cell] * max(0, int(missing[cell]))
        many += [cell] * max(0, -int(missing[cell]))
    for few, many in groups.values():
        for to, source in zip(few, many, strict=True):
            places = [
                tuple(_make_slice(cell[ours.index(key)]) if key in keys else slice(None) for key in order)
                for cell in (to, source)
            ]
            gain = rests[places[0]] - rests[places[1]]
            best = np.unravel_index(int(np.argmax(gain)), gain.shape)
            for cell, sign in ((to, 1), (source, -1)):
                at = tuple(
                    cell[ours.index(key)] if key in keys else int(best[place])
                    for place, key in enumerate(order)
                )
                values[at] += sign
                rests[at] -= sign


def _make_slice(place: int) -> slice:
    """Return one place of an axis, which stays an axis."""
    return slice(place, place + 1)
