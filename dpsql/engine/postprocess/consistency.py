"""Consistency of released totals and parts, by least squares and controlled rounding (Hay et al. 2010)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.engine.release.released_table import Components, ReleasedTable, build_released_table
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.base import EstimateSeries, to_values
from dpsql.plan.types import Type
from dpsql.planning.choose import get_statistic
from dpsql.planning.hierarchy import Axes, Hierarchy, Member, adjust_plans, list_hierarchies
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import Statistic

_AT_RANDOM, _NO_WORSE = 1 / 6, 1.02
"""The variance of rounding up or down at random; how much of the error of released numbers may be added to keep totals."""
_STRAYS, _KURTOSIS = 6.0, 5.0
"""The most standard deviations of residuals; the variance of the square of a Laplace variable of variance 1."""


def make_consistent(tables: Sequence[ReleasedTable]) -> list[ReleasedTable]:
    """Return the tables of one statement with consistent totals: each total is the sum of its parts.

    Claim: it costs no privacy loss, and tables that are not in a hierarchy are unchanged.
    Why: it is a function of released values.
    Source: as `planning.hierarchy`; Dwork, Roth 2014, Proposition 2.1 (post-processing).

    If released components differ by more than their noise explains, they are unchanged: contribution bounds then removed
    different rows of totals and of parts, as for units with more rows than the owner declared.
    """
    found = []
    components: dict[tuple[int, int], Whole] = {}
    for agreement in list_hierarchies([table.plan for table in tables]):
        columns = [_scale_components(tables[member.place], member, agreement) for member in agreement.members]
        adjusted = adjust_components(agreement, columns)
        if not _has_contradiction(agreement, columns, adjusted):
            found.append(agreement)
            components |= {
                (member.place, member.vector): column
                for member, column in zip(agreement.members, adjusted, strict=True)
            }
    plans = adjust_plans([table.plan for table in tables], found)
    after = [
        table if plan is table.plan else _build_table(table, plan, place, components)
        for place, (table, plan) in enumerate(zip(tables, plans, strict=True))
    ]
    for agreement in found:
        after = _round_tables(after, agreement)
    return after


def adjust_components(agreement: Hierarchy, columns: Sequence[Whole]) -> list[Whole]:
    """Return the adjusted components of each member; `columns` are the released ones, in common steps.

    The last axis of a column holds the components of a group, and the others the keys of the member, in order.
    """
    spread = _estimate_effects(agreement, columns)
    after = []
    for member, column in zip(agreement.members, columns, strict=True):
        total = np.zeros(column.shape, dtype=object)
        for effect, found in spread.items():
            if effect <= member.keys:
                total = total + _align_effect(found, sorted(effect), member.axes)
        after.append(total)
    return after


def _estimate_effects(agreement: Hierarchy, columns: Sequence[Whole]) -> dict[Axes, Whole]:
    """Return the estimated effect of each set of keys, n times over and in 65,536th parts; its axes are in order."""
    found: dict[Axes, Whole] = {}
    for effect, weights in agreement.weights.items():
        axes = sorted(effect)
        counted = [each for each in zip(agreement.members, columns, weights, strict=True) if each[-1]]
        total: Whole = sum(
            weight * _sum_other_keys(column, member.axes, axes) for member, column, weight in counted
        )
        for axis, key in enumerate(axes):
            total = agreement.sizes[key] * total - np.sum(total, axis=axis, keepdims=True)
        found[effect] = total
    return found


def _sum_other_keys(column: Whole, axes: Sequence[int], remaining_keys: Sequence[int]) -> Whole:
    """Return the sums over all keys except those that are kept, whose axes come in their order."""
    left = [place for place, key in enumerate(axes) if key not in remaining_keys]
    total: Whole = np.sum(column, axis=tuple(left)) if left else column
    remaining = [key for key in axes if key in remaining_keys]
    order = [remaining.index(key) for key in remaining_keys]
    return np.transpose(total, [*order, len(order)])


def _align_effect(effect: Whole, keys: Sequence[int], axes: Sequence[int]) -> Whole:
    """Return an effect with its axes in the order of a member's keys, and one for each of its other keys."""
    ordered = [key for key in axes if key in keys]
    turned = np.transpose(effect, [*(keys.index(key) for key in ordered), len(keys)])
    shape = iter(turned.shape)
    return turned.reshape([next(shape) if key in keys else 1 for key in axes] + [turned.shape[-1]])


def _scale_components(table: ReleasedTable, member: Member, agreement: Hierarchy) -> Whole:
    """Return the released components of a vector, in common steps."""
    finer = agreement.common_subdivisions // member.noise.subdivisions
    rows = [[finer * component for component in components[member.vector]] for components in table.components]
    made = np.array(rows, dtype=object)
    return made.reshape([*(agreement.sizes[axis] for axis in member.axes), -1])


def _has_contradiction(agreement: Hierarchy, before: Sequence[Whole], after: Sequence[Whole]) -> bool:
    """Return whether some released component differs from the adjusted one by more than the noise explains.

    The squared residuals over their variances sum on average to the residual degrees of freedom. The test rejects
    consistent data with probability about 1/300 for one degree of freedom of Laplace noise, and less for more.
    """
    groups = sum(agreement.count_groups(member.keys) for member in agreement.members)
    free = sum(math.prod(agreement.sizes[key] - 1 for key in effect) for effect in agreement.effects)
    squares: Any = 0.0
    for member, old, new in zip(agreement.members, before, after, strict=True):
        whole = agreement.compute_subdivisions(member) // agreement.common_subdivisions
        residual = (
            np.asarray(old * whole - new, dtype=object) / (whole * agreement.common_subdivisions)
        ).astype(np.float64)
        squares = squares + (residual**2).reshape(-1, residual.shape[-1]).sum(
            axis=0
        ) / agreement.compute_variance(member)
    left = groups - free
    return bool(np.max(squares) > left + _STRAYS * math.sqrt(_KURTOSIS * left))


def _build_table(
    table: ReleasedTable, plan: MeasurementPlan, place: int, adjusted: dict[tuple[int, int], Whole]
) -> ReleasedTable:
    """Return the table with adjusted components, and the aggregates that follow from them."""
    columns = [list(column) for column in zip(*table.components, strict=True)]
    for vector in range(len(plan.vectors)):
        if (place, vector) in adjusted:
            components = adjusted[place, vector]
            columns[vector] = [tuple(map(int, row)) for row in components.reshape(-1, components.shape[-1])]
    cells_: list[Components] = list(zip(*columns, strict=True))
    keys = [row[: len(plan.analysis.release.keys)] for row in table.rows]
    return build_released_table(plan, keys, cells_)


def _round_tables(tables: Sequence[ReleasedTable], agreement: Hierarchy) -> list[ReleasedTable]:
    """Return the tables with consistently rounded integers in place of independently rounded ones."""
    after = list(tables)
    statistics = {
        found: None
        for member in agreement.members
        for _, found in _iterate_integer_items(tables[member.place].plan, member)
    }
    for statistic in statistics:
        estimates = {
            member.keys: _compute_estimates(tables[member.place], member, statistic, agreement)
            for member in agreement.members
        }
        adds_up = agreement.can_round and _can_round_accurately(after, agreement, statistic)
        whole = round_consistently(agreement, estimates) if adds_up else round_to_nearest(estimates)
        for member in agreement.members:
            places = [
                place
                for place, found in _iterate_integer_items(tables[member.place].plan, member)
                if found == statistic
            ]
            if places:
                values = np.transpose(whole[member.keys], _invert_axes(member.axes)).ravel().tolist()
                after[member.place] = _with_values(after[member.place], places, values)
    return after


def _can_round_accurately(
    tables: Sequence[ReleasedTable], agreement: Hierarchy, statistic: Statistic
) -> bool:
    """Return whether whole numbers that add up are as accurate, by any keys, as the released ones.

    Claim: the answer depends on the laws of the noise alone. If it is True, the mean squared error is at most a fiftieth above
    that of the released numbers. If it is False, each number is the nearest to its estimate, and totals differ from their parts
    by the rounding.
    Why: estimates are moved from whole numbers by s, the root of the variance that least squares removes. A value between two
    whole numbers is rounded to the farther one as often as the sum requires. This adds the mean of |s z| of a normal z if s is
    small, and at most 1/6, the variance of rounding at random, if s is large.
    """
    for member in agreement.members:
        plan = tables[member.place].plan
        _, weights = plan.get_estimator(statistic)
        std = plan.vectors[member.vector].compute_std(weights) * float(_get_step(plan, statistic))
        law = agreement.derive_noise(member)
        ratio = law.compute_variance() / law.whole**2 / agreement.compute_variance(member)
        before = std**2 / ratio if ratio else 0.0
        moved = math.sqrt(max(0.0, before - std**2))
        if std**2 + min(_AT_RANDOM, math.sqrt(2 / math.pi) * moved) > before * _NO_WORSE:
            return False
    return True


def _get_step(plan: MeasurementPlan, statistic: Statistic) -> Fraction:
    """Return the step of a statistic in the value's own units."""
    moment, measure = statistic
    lattice = None if measure is None else plan.analysis.measures[measure].lattice
    return lattice.step if lattice is not None and moment.is_sum_of_values else Fraction(1)


def _iterate_integer_items(plan: MeasurementPlan, member: Member) -> Iterator[tuple[int, Statistic]]:
    """Yield the integer columns that are sums of a member's components, and their statistics."""
    release = plan.analysis.release
    for place, item in enumerate(release.aggregations, len(release.keys)):
        moment, *more = AGGREGATES[item.function].moments
        if item.type is Type.INTEGER and not more and item.rank is None:
            statistic = get_statistic(plan.analysis, item, moment)
            if plan.get_estimator(statistic)[0] == member.vector:
                yield place, statistic


def _compute_estimates(
    table: ReleasedTable, member: Member, statistic: Statistic, agreement: Hierarchy
) -> tuple[Whole, int]:
    """Return the estimates of a statistic by a member's keys, in their order: whole numbers over one divisor."""
    _, weights = table.plan.get_estimator(statistic)
    step = _get_step(table.plan, statistic)
    scaled = [weight * step for weight in weights]
    divisor = math.lcm(*(weight.denominator for weight in scaled))
    factors = [int(weight * divisor) for weight in scaled]
    sums = [
        sum(factor * component for factor, component in zip(factors, components[member.vector], strict=True))
        for components in table.components
    ]
    made = np.array(sums, dtype=object).reshape([agreement.sizes[axis] for axis in member.axes])
    return np.transpose(made, np.argsort(member.axes)) if member.axes else made, divisor


def _invert_axes(axes: Sequence[int]) -> list[int]:
    """Return the place of each axis in their order."""
    return [sorted(axes).index(axis) for axis in axes]


def _with_values(table: ReleasedTable, places: Sequence[int], values: Sequence[int]) -> ReleasedTable:
    """Return the table with these values, kept within 64 bits, in some columns."""
    within = to_values([EstimateSeries(values, 1)], None, Type.INTEGER)
    rows = tuple(
        tuple(value if place in places else old for place, old in enumerate(row))
        for row, value in zip(table.rows, within, strict=True)
    )
    return replace(table, rows=rows)


# Controlled rounding: integers close to the estimates, such that each total is the sum of its parts.


Whole = NDArray[np.object_]
"""Whole numbers of any size, with an axis for each key in the order of their numbers."""
Estimates = dict[Axes, tuple[Whole, int]]
"""Estimates by each set of keys that is released: whole numbers, and what they are divided by."""


def round_consistently(agreement: Hierarchy, estimates: Estimates) -> dict[Axes, Whole]:
    """Return whole numbers that add up by each set of keys of an agreement; its `estimates` add up exactly.

    `agreement.rounds` tells whether whole numbers are constructed.

    Claim: each integer along a chain of nested key sets, from the smallest set on, differs from its estimate by less than one, and
    each total is the sum of its parts. Totals by other keys, as in a cube, are sums of the same parts, and differ by at most a few.
    Key sets that overlap agree on the sums by the keys that they share.
    Why: the estimates add up, so the integer of a total, which is the floor or ceiling of its estimate, is between the sums of the
    floors and of the ceilings of its parts; as many parts as needed are rounded up. Parts with the largest fractions are rounded up
    first, corrected by the rounding errors of earlier parts in totals by other keys, so that these do not accumulate. Totals by
    shared keys are rounded before their parts, whether or not they are released: parts that were rounded one by one would pile up a
    rounding error that grows with their number, and the parts by other keys would have to take it. A set that shares two sets of
    keys with those before it is split along one of them; then units move between parts within its totals, from where the other set
    has too many to where it has too few, which leaves the first as it is.
    Source: Cox 1987, "A constructive procedure for unbiased controlled rounding" (that such numbers exist).
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
