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

from dpsql.analysis.lattice import Lattice
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.aggregates import Moment

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
