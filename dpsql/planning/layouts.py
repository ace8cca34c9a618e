"""Layouts: the ways to measure the statistics of a release by vectors, separate or joint."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.analysis.domains import is_nullable
from dpsql.analysis.release_analysis import Analysis, Lattice
from dpsql.plan.aggregates import Moment
from dpsql.plan.expressions import Call, Expr, Literal
from dpsql.plan.functions.operators import split_case_branches
from dpsql.planning.build_clamps import LEAST_ADDED
from dpsql.planning.clamping import EXPECTED_VALUE, Clamp, compute_clamped_unit_change, compute_expected_mean
from dpsql.planning.statistics import (
    ROWS,
    UNITS,
    Combination,
    Component,
    Statistic,
    StatisticVector,
    build_complementary_vector,
    build_count_vector,
    build_distinct_total_vector,
    build_distinct_vector,
    build_padded_vector,
    build_presence_vector,
    build_rows_vector,
    build_total_vector,
    build_units_vector,
)
from dpsql.privacy.mechanisms import Mechanism, Staircase
from dpsql.privacy.mechanisms.cube import MOST_DIMENSIONS

# Joint vectors: statistics of several arguments noised together, which share the row count and the whole loss.


_FINE = 2**20
"""The fewest steps by which a row moves a component: noise on so many steps is as good as continuous."""
_RATIO = 2**10
"""The common length is this times the largest addition of a row: whole multiples of any other fill it up to a thousandth."""


def iterate_joint_vectors(analysis: Analysis, wanted: Container[Statistic]) -> Iterator[StatisticVector]:
    """Yield vectors that each measure all requested statistics, except for counts of values.

    Sums are taken about the middle of what a row may add, which takes a count of the rows, or as they
    are; units are counted within the vector, or else not at all.

    A component is a count, or a centered sum: one of values less the middle of their interval, whose sensitivity is half that of
    the sum. Each component is multiplied by an integer, so that all have nearly the same sensitivity, and one mechanism for the l∞
    norm adds noise to all of them.
    """
    units = [False, True] if UNITS in wanted and analysis.bound.rows > 1 else [False]
    found = [_build_joint_vector(analysis, wanted, centered=c, units=u) for c in (True, False) for u in units]
    yield from dict.fromkeys(vector for vector in found if 1 <= len(vector.components) <= MOST_DIMENSIONS)


def derive_null_causes(expr: Expr) -> frozenset[Expr]:
    """Return the expressions of which at least one is NULL wherever `expr` is, and of which none is elsewhere."""
    if not is_nullable(expr):
        return frozenset()
    if isinstance(expr, Call) and expr.function.strict:
        return frozenset[Expr]().union(*map(derive_null_causes, expr.arguments))
    if isinstance(expr, Call) and expr.function.name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        tests = [condition for condition, _ in branches if isinstance(condition, Call)]
        if len(tests) == len(branches) and all(
            test.function.name == "is_null" and value == Literal(None, value.type)
            for test, (_, value) in zip(tests, branches, strict=True)
        ):
            return derive_null_causes(otherwise).union(
                *(derive_null_causes(test.arguments[0]) for test in tests)
            )
    return frozenset({expr})


def is_always_present(analysis: Analysis, measure: int) -> bool:
    """Return whether each row has a value of a measure, as far as is declared: then its count is that of the rows."""
    return not is_nullable(analysis.measures[measure].expr)


@dataclass(slots=True)
class _JointBuilder:
    """A joint vector under construction: its components, how far a row moves each, and what they estimate.

    An estimate is a list of a component's number and the factor of its exact value.
    """

    names: list[str] = field(default_factory=list)
    combinations: list[Combination] = field(default_factory=list)
    extents: list[int] = field(default_factory=list)
    estimates: dict[Statistic, tuple[tuple[int, Fraction], ...]] = field(default_factory=dict)
    counts: dict[frozenset[Expr] | Statistic, int] = field(default_factory=dict)

    def add_component(self, name: str, combination: Combination, extent: int) -> int:
        """Add a component and return its number."""
        self.names.append(name)
        self.combinations.append(tuple((statistic, weight) for statistic, weight in combination if weight))
        self.extents.append(extent)
        return len(self.names) - 1

    def ensure_row_count(self) -> int:
        """Return the component that counts the rows."""
        return self.ensure_count(frozenset(), "rows", ROWS)

    def ensure_count(self, absent: frozenset[Expr], name: str, statistic: Statistic) -> int:
        """Return the component that counts the rows in which none of these is NULL: one for all measures that share them."""
        if absent not in self.counts:
            self.counts[absent] = self.add_component(name, ((statistic, 1),), 1)
        return self.counts[absent]

    def add_measure(
        self, analysis: Analysis, index: int, wanted: Container[Statistic], *, centered: bool
    ) -> None:
        """Add the requested statistics of a measure."""
        measure = analysis.measures[index]
        count, total, lattice = (Moment.COUNT, index), (Moment.TOTAL, index), measure.lattice
        if count in wanted or (lattice is not None and lattice.width == 0):
            absent = derive_null_causes(measure.expr)
            present = (
                self.ensure_count(absent, f"count of x{index}", count) if absent else self.ensure_row_count()
            )
            self.estimates[count] = ((present, Fraction(1)),)
            if lattice is not None:
                self._add_centered_total(index, lattice, present)
        elif lattice is not None:
            low, high = min(0, lattice.low), max(0, lattice.high)
            if centered and low + high:
                rows = self.ensure_row_count()
                component = self.add_component(
                    f"x{index} beside rows", ((total, 2), (ROWS, -low - high)), high - low
                )
                self.estimates[total] = ((component, Fraction(1, 2)), (rows, Fraction(low + high, 2)))
            else:
                component = self.add_component(f"total of x{index}", ((total, 1),), max(-low, high))
                self.estimates[total] = ((component, Fraction(1)),)

    def _add_centered_total(self, index: int, lattice: Lattice, present: int) -> None:
        """Add a total about the middle of its lattice, doubled so that it is a whole number."""
        count, total = (Moment.COUNT, index), (Moment.TOTAL, index)
        ends = lattice.low + lattice.high
        estimate: tuple[tuple[int, Fraction], ...] = ((present, Fraction(ends, 2)),)
        if lattice.width:
            component = self.add_component(
                f"x{index} about its middle", ((total, 2), (count, -ends)), lattice.width
            )
            estimate = ((component, Fraction(1, 2)), *estimate)
        self.estimates[total] = estimate


def _build_joint_vector(
    analysis: Analysis, wanted: Container[Statistic], *, centered: bool, units: bool
) -> StatisticVector:
    """Return one vector with all requested statistics.

    Claim: one row moves no component by more than its extent, each of which is at most the vector's largest.
    Why: a row adds x to a total, or nothing; about the middle of [L, U], 2x - (L+U) lies within U-L of
    zero, and where a NULL counts as zero the ends are those of the hull of [L, U] and zero. A count
    moves by one. A multiple of a component moves by as many times its extent.
    Source: Kulesza, Suresh, Wang 2024, "Mean estimation in the add-remove model of differential privacy",
    section 3, for sums about the middle; Hardt, Talwar 2010, section 4, for the norm.
    """
    made = _JointBuilder()
    if ROWS in wanted or (UNITS in wanted and analysis.bound.rows == 1):
        made.ensure_row_count()
    for index, measure in enumerate(analysis.measures):
        if measure.counts_rows:
            made.add_measure(analysis, index, wanted, centered=centered)
    if frozenset() in made.counts:
        made.estimates[ROWS] = ((made.ensure_row_count(), Fraction(1)),)
        if analysis.bound.rows == 1:
            made.estimates[UNITS] = made.estimates[ROWS]
    largest = max(made.extents, default=1)
    alone = len(made.extents) + units == 1
    length = largest if alone else largest * max(_RATIO, -(-_FINE // largest))
    times = [length // extent for extent in made.extents]
    unit_extent = 0
    if units:
        made.estimates[UNITS] = ((made.add_component("units", ((UNITS, 1),), 1), Fraction(1)),)
        # In one group alone it takes a unit's rows together to move another component as far as it may move.
        unit_extent = length * (analysis.bound.rows if analysis.bound.groups == 1 else 1)
        times.append(unit_extent)
    return _build_vector(made, times, unit_extent)


def _build_vector(made: _JointBuilder, times: list[int], unit_extent: int) -> StatisticVector:
    extents = tuple(m * extent for m, extent in zip(times, made.extents, strict=True))
    components = tuple(
        Component(name, tuple((statistic, weight * m) for statistic, weight in combination))
        for name, combination, m in zip(made.names, made.combinations, times, strict=True)
    )
    estimates = []
    for statistic, parts in made.estimates.items():
        weights = [Fraction(0)] * len(components)
        for at, factor in parts:
            weights[at] += factor / times[at]
        estimates.append((statistic, tuple(weights)))
    by_row = extents[:-1] if unit_extent else extents
    return StatisticVector(
        f"joint: {', '.join(made.names)}",
        components,
        tuple(estimates),
        contribution=sum(by_row),
        range=None,
        nonnegative=False,
        extents=by_row,
        unit_extent=unit_extent,
    )


# Staircase noise in place of geometric noise, for vectors of one component for which it has a smaller variance.


WORTH = 0.99
"""The staircase is used if its standard deviation is less than this part of the geometric one."""
LEAST_LOSS = Fraction(3, 5)
"""Up to this loss of a change no staircase is worth it: the ratio of the standard deviations is above 0.992 for each width."""
_MOST = 12
"""The greatest loss per step of the staircase: at more, the noise would vanish in the rounding to the lattice."""


def calibrate_staircases(
    analysis: Analysis,
    noises: Sequence[Mechanism],
    shares: Sequence[tuple[StatisticVector, Clamp | None, Fraction]],
) -> list[Mechanism] | None:
    """Return the noise of each vector, a staircase where its standard deviation is smaller; None if no vector has one.

    `noises` are the alternatives; `shares` has each vector with its clamp and its loss.

    Claim: the loss of a vector with a staircase is at most its share, as with the alternative.
    Why: one unit causes a number of changes of single components, none larger than the width of a step of the staircase,
    and each costs its part of the share. Vectors of several components have none: the l1 norm bounds their joint change,
    but each component's part of it could cost a whole step.
    Units of several groups have none either: their bound is on the l1 norm of all groups together, which helps geometric
    noise only; a share for the largest change of each group would pay for losses above 12 only. (The count of partition
    selection changes by one lattice step, for which a staircase is geometric noise, so its law is log-concave.)
    Source: Geng, Viswanath 2016, "The optimal noise-adding mechanism in differential privacy", section V.
    """
    if analysis.bound.groups > 1:
        return None
    found = [_choose_staircase(analysis, noise, *share) for noise, share in zip(noises, shares, strict=True)]
    return found if any(isinstance(noise, Staircase) for noise in found) else None


def _choose_staircase(
    analysis: Analysis, noise: Mechanism, vector: StatisticVector, clamp: Clamp | None, epsilon: Fraction
) -> Mechanism:
    change = compute_clamped_unit_change(vector, clamp, analysis)
    if change is None or epsilon <= LEAST_LOSS * change.count:
        return noise
    found = Staircase.calibrate(change.size, change.count, min(epsilon, Fraction(_MOST * change.count)))
    return found if found.std < WORTH * noise.std else noise


# Layouts: all considered ways to estimate the needed statistics by statistic vectors.


FEW_VALUES = 100
"""So few whole numbers are expected to be as large as their bounds allow."""


def iterate_layouts(
    analysis: Analysis, wanted: Mapping[Statistic, None], *, separate_totals: bool = False
) -> Iterator[tuple[StatisticVector, ...]]:
    """Yield every way to serve the needed statistics: vector by vector, or joint.

    COUNT(*) is measured alone, or carried by one of the measures. Where one row of a unit counts, units
    are rows; otherwise they are measured alone, or fill up what counts the rows. With `separate_totals`, there are also layouts in
    which the total and the count of a measure are vectors of their own, where `favors_separate_totals` says so.
    """
    if UNITS in wanted and analysis.bound.rows == 1:
        wanted = {**wanted, ROWS: None}
    distinct = [
        build_distinct_vector(index, measure.most_distinct)
        for index, measure in enumerate(analysis.measures)
        if measure.counts_distinct
    ]
    distinct += [
        build_distinct_total_vector(index, measure.lattice, measure.most_distinct)
        for index, measure in enumerate(analysis.measures)
        if measure.sums_distinct and measure.lattice is not None
    ]
    units = [build_units_vector()] if UNITS in wanted and analysis.bound.rows > 1 else []
    fewest = len(analysis.measures) + 1
    for vectors in _iterate_separate_vectors(analysis, wanted):
        fewest = min(fewest, len(vectors))
        yield tuple(_with_units(analysis, (*vectors, *distinct, *units)))
    for split in _iterate_separated_measures(analysis, wanted) if separate_totals else ():
        for vectors in _iterate_separate_vectors(analysis, wanted, split):
            yield tuple(_with_units(analysis, (*vectors, *distinct, *units)))
    of_rows = {Moment.ROWS, Moment.COUNT, Moment.TOTAL}.intersection(moment for moment, _ in wanted)
    for vectors in _iterate_separate_vectors(analysis, {**wanted, ROWS: None}) if units and of_rows else ():
        most = analysis.bound.rows
        filled = (
            vector if vector.find_weights(ROWS) is None else build_padded_vector(vector, most)
            for vector in vectors
        )
        yield (*filled, *distinct)
    for vector in iterate_joint_vectors(analysis, wanted):
        if fewest + bool(vector.unit_extent) > 1:
            yield (vector, *distinct, *([] if vector.unit_extent else units))


def favors_separate_totals(lattice: Lattice) -> bool:
    """Return whether the total and the count of values of this lattice are measured apart, if each has a privately chosen clamp.

    Claim: let units have n rows in norm, and values of mean m and magnitude a. Measured apart, each at half of the loss, the
    error of the mean times the number of rows is √(2(a² + m²)) n times Gaussian noise for a sensitivity of one; as a
    partition of the width w it is w√(y² + (1-y)²) n, with y the place of the mean in the interval. They are measured apart
    if the former, for the expected values, is less than the least of the latter, w/√2.
    Why: the chosen clamp of a total follows the magnitude of the values, however wide their bounds are. From zero on, apart
    is worse by a factor of at most 2 (values near a far bound), and better without limit (values far below their
    bounds, or of both signs). Few whole numbers, as grades and months, are expected to be as large as their bounds.
    """
    magnitude = Fraction(max(abs(lattice.low), abs(lattice.high)), EXPECTED_VALUE)
    wide = lattice.step != 1 or lattice.width >= FEW_VALUES
    return wide and 4 * (magnitude**2 + compute_expected_mean(lattice) ** 2) < lattice.width**2


def _iterate_separated_measures(
    analysis: Analysis, wanted: Mapping[Statistic, None]
) -> Iterator[frozenset[int]]:
    """Yield the measures whose total and count are measured apart: those that have clamps, and lattices that favor it."""
    if not analysis.bound.per_unit or analysis.bound.rows < LEAST_ADDED:
        return
    subtracted = _list_variance_measures(analysis)
    found = [
        index
        for index, measure in enumerate(analysis.measures)
        if {(Moment.TOTAL, index), (Moment.COUNT, index)} <= wanted.keys()
        and measure.lattice is not None
        and index not in subtracted
        and favors_separate_totals(measure.lattice)
    ]
    if found:
        yield frozenset(found)


def _list_variance_measures(analysis: Analysis) -> frozenset[int]:
    """Return the measures of a variance or covariance: products of measures, and their factors.

    These are means of which one is subtracted from the other. What two clamps cut off of a total and of its count changes
    their quotient by a part of itself, and the difference of two such quotients by many times that part of the difference.
    A partition has one clamp, which leaves a unit's mean as it is.
    """
    places: dict[Expr, list[int]] = {}
    for index, measure in enumerate(analysis.measures):
        places.setdefault(_strip_null_check(measure.expr), []).append(index)
    found = set[int]()
    for expr, indexes in places.items():
        factors = expr.arguments if isinstance(expr, Call) and expr.function.name == "multiply" else ()
        if factors and all(factor in places for factor in factors):
            found.update(indexes, *(places[factor] for factor in factors))
    return frozenset(found)


def _strip_null_check(expr: Expr) -> Expr:
    """Return a measure as it is if the other column of a pair is not NULL."""
    if isinstance(expr, Call) and expr.function.name == "case" and len(expr.arguments) == 3:
        return expr.arguments[-1]
    return expr


def _iterate_separate_vectors(
    analysis: Analysis, wanted: Mapping[Statistic, None], separated: Container[int] = ()
) -> Iterator[list[StatisticVector]]:
    """Yield a vector for each measure, two for those `separated`, and one for COUNT(*) or a measure that carries it."""
    carriers: list[int | None] = [None]
    if ROWS in wanted:
        able = [index for index in range(len(analysis.measures)) if _can_carry_rows(analysis, index)]
        functions = _list_functions(analysis)
        alike = {
            _compute_carrier_key(analysis, wanted, index, separated, functions[index]): index
            for index in reversed(able)
        }
        carriers += sorted(alike.values())
    for carrier in carriers:
        vectors: list[StatisticVector] = []
        for index, measure in enumerate(analysis.measures):
            if measure.counts_rows and measure.lattice is not None and index in separated:
                vectors += _build_count_and_total(
                    analysis, index, measure.lattice, with_rows=index == carrier
                )
            elif measure.counts_rows:
                vectors.append(_build_measure_vector(analysis, index, wanted, with_rows=index == carrier))
        yield vectors + [build_rows_vector()] * (ROWS in wanted and carrier is None)


def _build_count_and_total(
    analysis: Analysis, index: int, lattice: Lattice, *, with_rows: bool
) -> list[StatisticVector]:
    """Return a vector that counts the values of a measure, and with rows also its NULLs, and one of their total."""
    count = build_count_vector(index, lattice)
    if with_rows and is_always_present(analysis, index):
        count = count.with_estimate(ROWS, (Moment.COUNT, index))
    elif with_rows:
        count = build_presence_vector(index)
    return [count, build_total_vector(index, lattice)]


def _with_units(analysis: Analysis, vectors: Sequence[StatisticVector]) -> Iterator[StatisticVector]:
    """Yield the vectors, with an estimate of the units where one row of a unit counts, so that there are as many units as rows."""
    for vector in vectors:
        yield vector.with_estimate(UNITS, ROWS) if analysis.bound.rows == 1 else vector


def _can_carry_rows(analysis: Analysis, index: int) -> bool:
    measure = analysis.measures[index]
    there = is_always_present(analysis, index)
    return measure.counts_rows and (measure.lattice is None or measure.lattice.width > 0 or there)


def _compute_carrier_key(
    analysis: Analysis,
    wanted: Mapping[Statistic, None],
    index: int,
    separated: Container[int],
    functions: tuple[str, ...],
) -> tuple[object, ...]:
    """Return a key for how well a measure carries COUNT(*); among measures with the same key, the first is tried.

    Claim: layouts whose carriers are alike have the same score, except for the rounding of lattices.
    Why: the same statistics are measured for the same aggregates, over values that differ by a scale; the score is the mean
    log of the errors, and a scale moves all of these by the same amount in either layout.
    """
    lattice = analysis.measures[index].lattice
    interval = () if lattice is None or not lattice.width else (Fraction(lattice.low, lattice.width),)
    counted = (Moment.COUNT, index) in wanted
    return (
        functions,
        is_always_present(analysis, index),
        lattice is None,
        counted,
        index in separated,
        *interval,
    )


def _list_functions(analysis: Analysis) -> list[tuple[str, ...]]:
    """Return the aggregate functions of each measure, in order."""
    found: list[list[str]] = [[] for _ in analysis.measures]
    for item in analysis.release.aggregations:
        place = analysis.find_measure_index(item)
        if place is not None:
            found[place].append(item.function)
    return [tuple(sorted(each)) for each in found]


def _build_measure_vector(
    analysis: Analysis, index: int, wanted: Mapping[Statistic, None], *, with_rows: bool
) -> StatisticVector:
    lattice, count = analysis.measures[index].lattice, (Moment.COUNT, index)
    if with_rows and is_always_present(analysis, index):
        return _build_measure_vector(analysis, index, {**wanted, count: None}, with_rows=False).with_estimate(
            ROWS, count
        )
    if lattice is None:
        return build_presence_vector(index) if with_rows else build_count_vector(index, Lattice(0, 0, 1))
    if lattice.width == 0:
        return build_count_vector(index, lattice)
    if with_rows or count in wanted:
        return build_complementary_vector(index, lattice, with_rows=with_rows)
    return build_total_vector(index, lattice)
