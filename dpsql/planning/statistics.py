"""The statistics that can be measured: integer vectors, each a sum over the rows of a group.

A *component* is an integer combination of the exact moments of a group. A *vector* has the components that are noised
together, the moments that can be estimated from them, and a bound on the contribution of one row, or of one unit in a
group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.analysis.release_analysis import Lattice
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.aggregates import Moment
from dpsql.privacy.accounting.events import Composed, Event, Pure, Selection
from dpsql.privacy.accounting.numerics import bound_exp, ln_down
from dpsql.privacy.mechanisms import Sensitivity

Statistic = tuple[Moment, int | None]
"""A moment and the index of its measure; None for counts of rows and units."""

ROWS: Statistic = (Moment.ROWS, None)
UNITS: Statistic = (Moment.UNITS, None)

Combination = tuple[tuple[Statistic, int], ...]


@dataclass(frozen=True, slots=True)
class Component:
    """An integer combination of exact moments, to which noise is added."""

    tag: ClassVar[str] = "Cell"

    name: str
    combination: Combination

    def compute_exact(self, moments: Mapping[Statistic, int]) -> int:
        """Return the exact value of the component, from the moments of a group in lattice steps."""
        return sum(weight * moments[statistic] for statistic, weight in self.combination)

    def compute_exact_series(self, moments: Mapping[Statistic, Sequence[int]]) -> Sequence[int]:
        """Return the exact values of the component in many groups, from the moments of each."""
        series = [
            moments[statistic] if weight == 1 else [weight * each for each in moments[statistic]]
            for statistic, weight in self.combination
        ]
        return series[0] if len(series) == 1 else list(map(sum, zip(*series, strict=True)))


@dataclass(frozen=True, slots=True)
class StatisticVector:
    """Components that are noised together.

    `estimates` has, for each statistic that the vector estimates, its weights over the components, in lattice steps for
    totals. `contribution` is the greatest l1 norm of the contribution of one row (for the vector of UNITS, of one unit
    in a group). `range` is the difference of the extreme contributions to a single component (None for several
    components). `nonnegative` says that no contribution is negative. Of a joint vector, `extents` bound the contribution
    of one row to each component of rows, and `unit_extent` that of a unit to the last component in each of its groups,
    if it counts units. `padded` is, for rows padded to a constant number per unit, the l1 norm of the contribution of a
    unit to each of its groups. `most_distinct` is, where distinct values are counted, how many of them one unit brings to a
    group at most, 0 where nothing but its rows bounds them.
    """

    tag: ClassVar[str] = "Block"

    name: str
    components: tuple[Component, ...]
    estimates: tuple[tuple[Statistic, tuple[Fraction, ...]], ...]
    contribution: int
    range: int | None
    nonnegative: bool
    extents: tuple[int, ...] = ()
    unit_extent: int = 0
    padded: int = 0
    most_distinct: int = 0

    @property
    def joint(self) -> bool:
        """Return whether its components are of several arguments."""
        return bool(self.extents)

    @property
    def counts_units(self) -> bool:
        """Return whether it counts units rather than rows."""
        return not (self.joint or self.padded) and any(
            statistic == UNITS for component in self.components for statistic, _ in component.combination
        )

    @property
    def counts_distinct_values(self) -> bool:
        """Return whether it counts or adds up distinct values, which may be in more groups than the counted rows of a unit."""
        return any(
            moment in (Moment.DISTINCT, Moment.DISTINCT_TOTAL)
            for component in self.components
            for (moment, _), _ in component.combination
        )

    def with_estimate(self, statistic: Statistic, like: Statistic) -> StatisticVector:
        """Return the same vector, which also estimates `statistic`, by the weights of `like`."""
        weights = self.find_weights(like)
        if weights is None or self.find_weights(statistic) is not None:
            return self
        return replace(self, estimates=(*self.estimates, (statistic, weights)))

    def with_finer_steps(self, by: int) -> StatisticVector:
        """Return the same vector with each lattice step divided in `by`."""
        components = tuple(
            replace(
                component,
                combination=tuple((statistic, weight * by) for statistic, weight in component.combination),
            )
            for component in self.components
        )
        estimates = tuple(
            (statistic, tuple(weight * Fraction(1, by) for weight in weights))
            for statistic, weights in self.estimates
        )
        return replace(
            self,
            components=components,
            estimates=estimates,
            contribution=self.contribution * by,
            range=None if self.range is None else self.range * by,
            extents=tuple(extent * by for extent in self.extents),
            unit_extent=self.unit_extent * by,
            padded=self.padded * by,
        )

    def with_subdivisions(self, parts: int) -> StatisticVector:
        """Return the same vector, of moments that are counted in subdivisions of a row or lattice step."""
        scaled = self.with_finer_steps(parts)
        return replace(scaled, components=self.components)

    def find_weights(self, statistic: Statistic) -> tuple[Fraction, ...] | None:
        """Return the weights that estimate a statistic from the components; None if it has none."""
        return next((weights for served, weights in self.estimates if served == statistic), None)


def build_rows_vector() -> StatisticVector:
    """Count the rows.

    Claim: one row contributes at most 1 in l1 norm.
    Why: it is counted once or not at all.
    Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
    """
    return _build_single_vector("rows", ROWS, 1, 1)


def build_units_vector() -> StatisticVector:
    """Count the distinct units of each group.

    Claim: one unit contributes at most 1 to each group it counts in.
    Why: it is one element of the set.
    Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
    """
    return _build_single_vector("units", UNITS, 1, 1)


def build_distinct_vector(measure: int, most: int) -> StatisticVector:
    """Count the values of the argument, of which one unit has `most` in a group, if that is above 0.

    Claim: one row contributes at most 1 in l1 norm.
    Why: it brings one value or none, which others may have brought already.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2.
    """
    return replace(
        _build_single_vector(f"values of x{measure}", (Moment.DISTINCT, measure), 1, 1), most_distinct=most
    )


def build_distinct_total_vector(measure: int, lattice: Lattice, most: int) -> StatisticVector:
    """Add the values of the argument up, each once, of which one unit has `most` in a group, if that is above 0.

    Claim: one row contributes at most max(|L|, |U|, 1) steps in l1 norm.
    Why: it brings one value of [L, U] or none, which others may have brought already.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2; Dwork, McSherry, Nissim, Smith 2006, Definition 3.
    """
    # Of zeros alone the total is 0, and noise needs a sensitivity above 0.
    low, high = min(0, lattice.low), max(1, lattice.high)
    statistic = (Moment.DISTINCT_TOTAL, measure)
    vector = _build_single_vector(
        f"total of values of x{measure}", statistic, max(-low, high), high - low, nonnegative=low == 0
    )
    return replace(vector, most_distinct=most)


def bound_counted_pairs(most_distinct: int, bound: ContributionBound) -> int:
    """Return how many pairs of a group and a distinct value are counted of one unit.

    That is the bound on its rows or, where a group has at most `most_distinct` of its values, this number times the
    bound on its groups, if that is less.
    """
    return min(bound.rows, most_distinct * bound.groups) if most_distinct else bound.rows


def build_count_vector(measure: int, lattice: Lattice) -> StatisticVector:
    """Count the rows whose argument is not NULL; where all values are equal that gives the total too.

    Claim: one row contributes at most 1 in l1 norm.
    Why: it is counted once or not at all.
    Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
    """
    vector = _build_single_vector(f"count of x{measure}", (Moment.COUNT, measure), 1, 1)
    if lattice.width:
        return vector
    total = ((Moment.TOTAL, measure), (Fraction(lattice.low),))
    return StatisticVector(vector.name, vector.components, (*vector.estimates, total), 1, 1, nonnegative=True)


def build_presence_vector(measure: int) -> StatisticVector:
    """Count the rows whose argument is not NULL and, in a second component, those whose argument is.

    Claim: one row contributes at most 1 in l1 norm.
    Why: it is counted in one of the two components.
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3.2 (histograms).
    """
    count = (Moment.COUNT, measure)
    components = (
        Component(f"x{measure} is there", ((count, 1),)),
        Component(f"x{measure} is NULL", ((ROWS, 1), (count, -1))),
    )
    one, none = Fraction(1), Fraction(0)
    estimates = ((count, (one, none)), (ROWS, (one, one)))
    return StatisticVector(f"presence of x{measure}", components, estimates, 1, None, nonnegative=True)


def build_total_vector(measure: int, lattice: Lattice) -> StatisticVector:
    """Add the values up.

    Claim: one row contributes at most max(|L|, |U|) steps in l1 norm.
    Why: it contributes one value of [L, U], or nothing.
    Source: Dwork, McSherry, Nissim, Smith 2006, Definition 3.
    """
    low, high = min(0, lattice.low), max(0, lattice.high)
    statistic = (Moment.TOTAL, measure)
    return _build_single_vector(
        f"total of x{measure}", statistic, max(-low, high), high - low, nonnegative=low == 0
    )


def build_complementary_vector(measure: int, lattice: Lattice, *, with_rows: bool) -> StatisticVector:
    """Return the partition of unity: Σ(x−L) and Σ(U−x), and with rows also (U−L) for each NULL.

    Claim: one row contributes exactly U−L steps in l1 norm, whatever its value.
    Why: x−L and U−x are not negative and add up to U−L; a NULL contributes U−L to the third component alone.
    Source: Kulesza, Suresh, Wang 2024, "Mean estimation in the add-remove model of differential privacy".
    """
    count, total = (Moment.COUNT, measure), (Moment.TOTAL, measure)
    width, low, high = lattice.width, lattice.low, lattice.high
    components = [
        Component(f"x{measure} above low", ((total, 1), (count, -low))),
        Component(f"x{measure} below high", ((count, high), (total, -1))),
    ]
    one = Fraction(1, width)
    weights: list[tuple[Statistic, tuple[Fraction, ...]]] = [
        (count, (one, one)),
        (total, (high * one, low * one)),
    ]
    if with_rows:
        components.append(Component(f"x{measure} is NULL", ((ROWS, width), (count, -width))))
        weights = [(statistic, (*known, Fraction(0))) for statistic, known in weights]
        weights.append((ROWS, (one, one, one)))
    return StatisticVector(
        f"partition of x{measure}", tuple(components), tuple(weights), width, None, nonnegative=True
    )


def build_padded_vector(vector: StatisticVector, rows: int) -> StatisticVector:
    """Return a vector that counts rows, padded: with a component for the rows by which each unit of a group has less than `rows`.

    Claim: the contribution of a unit to each of its groups has an l1 norm of exactly R·c, where R is the bound on rows of
    a unit and c the vector's contribution; no component is negative.
    Why: each row contributes exactly c, since all weights of the row count are 1/c; each row less than R contributes c to
    the further component.
    Source: Kulesza, Suresh, Wang 2024, section 3, with rows in place of values.
    """
    known = vector.find_weights(ROWS)
    if known is None or not vector.nonnegative or any(weight * vector.contribution != 1 for weight in known):
        raise LookupError("only a vector that counts rows by all of its components is padded")
    most, none = rows * vector.contribution, Fraction(0)
    lacking = Component("rows that units have less", ((UNITS, most), (ROWS, -vector.contribution)))
    estimates = (
        *((statistic, (*weights, none)) for statistic, weights in vector.estimates),
        (UNITS, (Fraction(1, most),) * (len(known) + 1)),
    )
    components = (*vector.components, lacking)
    return StatisticVector(
        f"{vector.name}, and units", components, estimates, most, None, nonnegative=True, padded=most
    )


def _build_single_vector(
    name: str, statistic: Statistic, contribution: int, span: int, *, nonnegative: bool = True
) -> StatisticVector:
    component = Component(name, ((statistic, 1),))
    return StatisticVector(
        name, (component,), ((statistic, (Fraction(1),)),), contribution, span, nonnegative
    )


# The sensitivity of a statistic vector to one privacy unit, by norm.


@dataclass(frozen=True, slots=True)
class UnitChange:
    """The effect of one privacy unit, as changes of single components.

    The difference of two neighbors is a sum of at most `count` changes, each of one component of one group by at most
    `size` lattice steps.
    """

    size: int
    count: int

    @classmethod
    def from_contribution(
        cls, share: int, span: int | None, bound: ContributionBound, *, grouped: bool, replace: bool
    ) -> UnitChange:
        """Return the changes if the contribution of a unit to a component is at most `share`, and its extremes differ by `span`.

        Claim: adding or removing one unit is at most G changes of one component by at most `share`, where G is the most
        groups of a unit; under `replace` there are twice as many, or without groups one by at most `span`.
        Why: a unit is in at most G groups, each of which has one such component. A replaced unit is removed and then
        added; without groups both change the same component.
        Source: Dwork, McSherry, Nissim, Smith 2006, section 3; Dwork, Roth 2014, Theorem 2.2 (moves in a row).
        """
        if replace and not grouped and span is not None:
            return cls(span, 1)
        return cls(share, bound.groups * (2 if replace else 1))


def compute_sensitivity(
    vector: StatisticVector, bound: ContributionBound, *, grouped: bool, replace: bool
) -> Sensitivity:
    """Return the sensitivities of a vector over all groups together, that of l2 squared.

    Claim: adding or removing one unit moves the vector of all components of all groups by at most
    R·c in l1 and in l2 norm, where R is the bound on rows of a unit and c the vector's contribution; the count
    of units by G in l1 and √G in l2 norm, where G is the most groups of a unit; a padded vector by its contribution per
    group times as much.
    Under `replace` the l1 norm doubles; the squared l2 norm doubles if no contribution is negative, and quadruples
    otherwise. An ungrouped single component changes by at most the range of a unit's contribution. For a joint vector
    see `_compute_joint_sensitivity`. Of a count of distinct values R is the number of pairs of a group and a value that count; if a unit has
    at most v values in a group, its squared l2 norm is largest with v in as many groups as there are, and the rest in one.
    Why: the contributions of at most R rows add up by the triangle inequality; two vectors a, b without negative
    entries have |a-b|² ≤ |a|² + |b|². The squares of entries of at most v that add up to R are convex, so they are
    largest where all entries but one are v or 0.
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3; Dwork, Roth 2014, Definitions 3.1 and 3.8.
    """
    if vector.joint:
        return _compute_joint_sensitivity(vector, bound, replace=replace)
    if vector.counts_units or vector.padded:
        each = vector.padded or 1
        l1, l2_squared, span = bound.groups * each, bound.groups * each**2, vector.range
    else:
        rows = bound_counted_pairs(vector.most_distinct, bound)
        l1 = rows * vector.contribution
        most = min(rows, vector.most_distinct or rows)
        full, rest = divmod(rows, most)
        l2_squared = (full * most**2 + rest**2) * vector.contribution**2
        span = None if vector.range is None else rows * vector.range
    if not replace:
        return Sensitivity(Fraction(l1), Fraction(l2_squared))
    if span is not None and not grouped:
        return Sensitivity(Fraction(span), Fraction(span * span))
    return Sensitivity(Fraction(2 * l1), Fraction((2 if vector.nonnegative else 4) * l2_squared))


def _compute_joint_sensitivity(
    vector: StatisticVector, bound: ContributionBound, *, replace: bool
) -> Sensitivity:
    """Return the norms of a vector that several arguments share, whose rows move component i by at most e_i.

    Claim: with D the largest e_i, a unit that counts in h groups moves the components by at most R·Σe + h·u in l1
    norm, u being what it moves the count of units by in a group; in squared l2 norm by at most
    ((R-h+1)² + h-1)·Σe² + h·u²; and the sum over groups of the largest change is at most
    (h-1)·max(u, D) + max(u, (R-h+1)·D). The largest of these is at h = 1 or h = G. For `replace` the norms
    double.
    Why: in a group with r of its rows a unit moves component i by at most r·e_i. Each of these norms is convex in
    the numbers of rows r_1, …, r_h >= 1 that add up to R, so it is largest where all but one are 1; and
    there it is convex in h.
    Source: Dwork, Roth 2014, Definitions 3.1 and 3.8; Hardt, Talwar 2010, section 4.
    """
    largest, squares, unit = max(vector.extents), sum(e * e for e in vector.extents), vector.unit_extent
    most = bound.rows
    by_groups = [(h, most - h + 1) for h in {1, bound.groups}]
    l1 = most * vector.contribution + bound.groups * unit
    l2_squared = max((r * r + h - 1) * squares + h * unit * unit for h, r in by_groups)
    linf = max((h - 1) * max(unit, largest) + max(unit, r * largest) for h, r in by_groups)
    times = 2 if replace else 1
    return Sensitivity(Fraction(times * l1), Fraction(times**2 * l2_squared), Fraction(times * linf))


def compute_unit_change(
    vector: StatisticVector, bound: ContributionBound, *, grouped: bool, replace: bool
) -> UnitChange | None:
    """Return the changes that one unit causes in a vector of one component; None for other vectors.

    The R rows of a unit contribute at most R times the vector's contribution; a unit is counted once. Distinct values
    in groups have no such bound here: each of a unit's R values may be in a different group.
    """
    if vector.joint or len(vector.components) != 1 or (vector.counts_distinct_values and grouped):
        return None
    times = 1 if vector.counts_units else bound_counted_pairs(vector.most_distinct, bound)
    span = None if vector.range is None else times * vector.range
    return UnitChange.from_contribution(
        times * vector.contribution, span, bound, grouped=grouped, replace=replace
    )


# Amplification: a release from a Poisson sample of the units has a smaller loss, so it needs less noise.


_DIGITS = 60
_PLACES = 10**30
"""A loss is rounded down to a multiple of its inverse, so that the check of it need not be exact."""


def compute_sample_loss(epsilon: Fraction, rate: Fraction) -> Fraction:
    """Return the loss on a sample that is amplified to at most `epsilon`: ln(1 + (e^ε - 1)/rate), rounded down, at least `epsilon`.

    Claim: a release that is (ε0, δ0)-DP on the sample is (ln(1 + q(e^ε0 - 1)), q·δ0)-DP on all units, where one unit is added or
    removed and each unit is in the sample with probability q, independently of the others. So it is charged ε if its noise on the
    sample has ε0 = ln(1 + (e^ε - 1)/q).
    Why: let P and Q be the laws of the answer with and without the unit, given the other units of the sample. With the unit the
    answer has the law (1-q)Q + qP, which is between Q/(1 + q(e^ε0 - 1)) and (1 + q(e^ε0 - 1))Q where P is between e^-ε0·Q and
    e^ε0·Q; the rest has probability at most δ0, and the unit is there with probability q. Mixing over the others keeps both bounds.
    The claim holds for everything that is computed from one sample together: clamps, partition selection, quantiles and sums.
    Source: Li, Qardaji, Su 2012, Theorem 1; Balle, Barthe, Gaboardi 2018, Theorem 8.

    >>> round(float(compute_sample_loss(Fraction(1), Fraction(1, 10))), 4)
    2.9005
    >>> round(float(compute_sample_loss(Fraction(10**9), Fraction(1, 10)) - 10**9), 4)
    2.3026
    """
    # ln(1 + (e^ε - 1)/q) = ε + ln(1/q - e^-ε·(1/q - 1)): no power is large.
    _, power = bound_exp(epsilon, _DIGITS)
    grown = 1 / rate - Fraction(power, 10**_DIGITS) * (1 / rate - 1)
    if grown <= 1:
        return epsilon
    return max(epsilon, Fraction(int((epsilon + ln_down(grown)) * _PLACES), _PLACES))


def compute_charged_event(epsilon: Fraction, inner: Event | None, rate: Fraction) -> Event | None:
    """Return the charge of a release from a sample: `epsilon`, and the part `rate` of the δ of `inner`, its event on the sample."""
    if inner is None:
        return None
    events = inner.events if isinstance(inner, Composed) else (inner,)
    delta = sum((part.delta for part in events if isinstance(part, Selection)), Fraction(0))
    pure = Pure(epsilon)
    return Composed((pure, Selection(rate * delta))) if delta else pure
