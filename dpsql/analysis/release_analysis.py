"""The analysis of a release: its contribution bound, its aggregated expressions with intervals and lattices, its group keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import ClassVar

from dpsql.analysis import domains
from dpsql.analysis.domains import Domain, bound_distinct_values
from dpsql.analysis.images import Images
from dpsql.analysis.intervals import KnownIntervals, derive_interval, derive_known_intervals, get_type_limits
from dpsql.analysis.number_types import find_decimal_digits
from dpsql.analysis.public_tables import look_up_interval, look_up_values, shares_public_rows
from dpsql.analysis.stability import ContributionBound, PublicFacts, derive_contribution_bound
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import Call, Expr, is_conditional
from dpsql.plan.interval import DAY, Interval, find_position, format_interval
from dpsql.plan.nodes import Aggregation, Relation, Release
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type

# The public lattice of a real value: integers that the engine sums exactly.


LEAST_EXPONENT = -1000
"""No step is smaller: its inverse must be a DOUBLE."""
BITS = 30
"""A value at the far bound is at most 2^BITS steps from zero."""
DECIMAL_BITS = 50
"""Below 2^50 steps of the last digit, DOUBLE distinguishes decimals and the points between them."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """Multiples of 2^exponent / 10^digits from `low` to `high` steps.

    Claim: the sum of a column's lattice points is the same whatever the order, threads or partitions.
    Why: integers of at most 2^31 add without rounding, in 64 bits for a row and 128 for a table.
    Source: Mironov 2012, "On significance of the least significant bits for differential privacy".

    >>> Lattice.from_interval(Interval(0, 110), integral=True)
    Lattice(exponent=0, low=0, high=110, digits=0)
    """

    tag: ClassVar[str] = "Lattice"

    exponent: int
    low: int
    high: int
    digits: int = 0

    @classmethod
    def from_interval(
        cls, interval: Interval, *, integral: bool, bits: int = BITS, digits: int | None = None
    ) -> Lattice:
        """Return the lattice of a bounded interval: its step follows from the bounds and the type alone.

        Whole numbers keep a step of one while they fit, and decimals with `digits` after the point one of 10^-digits: `bits`
        are what the larger end may have.

        >>> Lattice.from_interval(Interval(0, 100), integral=False, digits=2).step
        Fraction(1, 100)
        """
        if digits is not None:
            times = 10**digits
            whole = cls.from_interval(
                Interval(*(end * times for end in interval.ends)), integral=True, bits=bits
            )
            return replace(whole, digits=digits)
        magnitude = interval.magnitude
        # The least e with magnitude <= 2^e, found without floats.
        exponent = 0 if magnitude == 0 else _ceil_log2(magnitude) - bits
        exponent = max(0 if integral else LEAST_EXPONENT, exponent)
        step = Fraction(2) ** exponent
        low, high = interval.ends
        return cls(exponent, math.floor(low / step), math.ceil(high / step))

    @property
    def step(self) -> Fraction:
        """Return the distance of neighboring points, in the value's own units."""
        return Fraction(2) ** self.exponent / Fraction(10**self.digits)

    def round_to_point(self, position: Fraction) -> int:
        """Return the point of a value, as the engine rounds it: half to even, and clamped.

        >>> [Lattice(0, 0, 3).round_to_point(Fraction(half, 2)) for half in (1, 3, 5, 9)]
        [0, 2, 2, 3]
        """
        return max(self.low, min(self.high, round(position / self.step)))

    @property
    def width(self) -> int:
        """Step from the low to the high end."""
        return self.high - self.low

    @property
    def interval(self) -> Interval:
        """Return the interval between the ends, which encloses the one that the lattice was made for."""
        return Interval(self.low * self.step, self.high * self.step)


def _ceil_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** exponent < value:
        exponent += 1
    return exponent


# The analysis of a release.


MOST_CANDIDATES = 10_000
"""The most public values that are the candidates of a quantile."""


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregated expression with its interval, and the statistics that are needed of it.

    `lattice` is None if it is not summed, and `quantile_lattice` is None if no quantile is needed. `counts_distinct` says
    that its distinct values are counted, and `counts_rows` that its non-NULL rows are. `most_distinct` bounds the distinct
    values that are counted of one unit in a group; 0 where nothing but its rows bounds them. `candidates` are the points of
    all values that a quantile can have, in order, if these are public; else None. `sums_distinct` says that its distinct values
    are added up.
    """

    tag: ClassVar[str] = "Measure"

    expr: Expr
    interval: Interval
    lattice: Lattice | None
    counts_distinct: bool
    counts_rows: bool
    quantile_lattice: Lattice | None = None
    most_distinct: int = 0
    candidates: tuple[int, ...] | None = None
    sums_distinct: bool = False


@dataclass(frozen=True)
class Analysis:
    """The facts about a release that are known before any private row is read.

    `domains` has the public values of each key, or is None if some key has none. `replace` says that neighbors differ
    by replacing a unit, not by adding or removing one. It was not computed for which
    public values of the keys the `undecided_conditions` conditions on them are true.
    """

    tag: ClassVar[str] = "Analysis"

    release: Release
    bound: ContributionBound
    measures: tuple[Measure, ...]
    domains: tuple[Domain, ...] | None
    replace: bool
    undecided_conditions: tuple[Expr, ...] = field(default=(), compare=False)

    @property
    def is_grouped(self) -> bool:
        """Return whether the release has group keys."""
        return bool(self.release.keys)

    @property
    def selects_keys(self) -> bool:
        """Return whether keys are released by partition selection, which is charged."""
        return self.is_grouped and (self.domains is None or self.bound.min_frequency > 1)

    @property
    def is_free(self) -> bool:
        """Return whether nothing is measured: only keys are released, and all of them are public."""
        return not self.selects_keys and not self.release.aggregations and self.release.top is None

    def find_measure_index(self, aggregation: Aggregation) -> int | None:
        """Return the index of the measure of an aggregation; None for counts of rows and units."""
        return None if aggregation.argument is None else self._measure_indices.get(aggregation.argument)

    @cached_property
    def _measure_indices(self) -> dict[Expr, int]:
        return {measure.expr: index for index, measure in enumerate(self.measures)}


def analyze_release(
    release: Release, facts: PublicFacts, *, replace: bool, separate_keys: bool = False
) -> Analysis:
    """Derive the analysis. Raises QueryRejected if an aggregated expression has no bounds.

    With `separate_keys`, no combination of all keys is listed or released, so that there may be any number of them.
    """
    known = derive_known_intervals(release.input)
    # Unmatched rows of an outer join fulfill none of its conditions, but have groups.
    images = None if release.all_public_rows else Images(facts, release.input)
    each, every = _derive_domains(release, known, facts, images, separate_keys=separate_keys)
    sizes = [None if values is None else len(values) for values in each]
    wanted: dict[Expr, set[Moment]] = {}
    for item in release.aggregations:
        if item.argument is not None:
            wanted.setdefault(item.argument, set()).update(AGGREGATES[item.function].moments)
    contribution = derive_contribution_bound(release, sizes, facts, public=every is not None)
    if contribution.min_frequency > 1:
        for argument in filter(is_conditional, wanted):
            wanted[argument].add(Moment.COUNT)
    measures = tuple(
        _derive_measure(expr, release.input, known, facts, moments) for expr, moments in wanted.items()
    )
    undecided = () if images is None or every is None else tuple(dict.fromkeys(images.undecided_conditions))
    return Analysis(release, contribution, measures, every, replace, undecided)


def _derive_domains(
    release: Release, known: KnownIntervals, facts: PublicFacts, images: Images | None, *, separate_keys: bool
) -> tuple[list[Domain | None], tuple[Domain, ...] | None]:
    """Derive the public values of each key, or None; and the domains of all keys, if every combination of values is released."""
    listed, most = domains.derive_listed_values(release.input), domains.MAX_GROUPS
    found: list[Domain | None] = []
    every: tuple[Domain, ...] | None = ()
    for index, key in enumerate(release.keys):
        values = domains.derive_domain(key.expr, known, listed, images)
        if values is None and every is not None and not shares_public_rows(release, index):
            values = look_up_values(key.expr, release.input, facts, all_rows=release.all_public_rows)
            most = domains.MAX_DERIVED
        found.append(values)
        if (
            values is None
            or every is None
            or (not separate_keys and prod(map(len, every)) * len(values) > most)
        ):
            every = None
        else:
            every = (*every, values)
    return found, every


def _is_within_limits(around: Interval, kind: Type) -> bool:
    """Return whether values have bounds with which they can be measured.

    Days and moments must lie within the calendar. Bounds of numbers may not cross the limits. Both may lie beyond a limit on one
    side, as of `x + 1e308`: the sum counts steps from the lower bound, and is infinite where no DOUBLE holds it.
    """
    limits = get_type_limits(kind)
    if kind.temporal:
        return around.is_part_of(limits)
    return around.is_bounded and around.narrow_to(limits) == around


def _derive_measure(
    expr: Expr, relation: Relation, known: KnownIntervals, facts: PublicFacts, moments: set[Moment]
) -> Measure:
    around = (
        DAY if expr.type is Type.TIME and Moment.ORDER_STATISTIC in moments else derive_interval(expr, known)
    )
    distinct, summed = Moment.DISTINCT in moments, Moment.DISTINCT_TOTAL in moments
    rows = bool(moments - {Moment.DISTINCT, Moment.DISTINCT_TOTAL, Moment.ORDER_STATISTIC})
    added, ranked = summed or Moment.TOTAL in moments, Moment.ORDER_STATISTIC in moments
    most = (bound_distinct_values(expr, relation, known) or 0) if distinct or summed else 0
    if not added and not ranked:
        return Measure(expr, around, None, distinct, rows, most_distinct=most)
    if not around.is_bounded:
        around = look_up_interval(expr, relation, facts)
    if not _is_within_limits(around, expr.type):
        raise QueryRejected(
            f"{format_expression(expr)} has no bounds: it may be anything in {format_interval(around, expr.type)}, "
            + (
                "so one privacy unit could change its sum without limit"
                if added
                else "so its quantile has no finite set of candidates"
            ),
            code="unbounded",
            hint="clamp it, as in SUM(LEAST(GREATEST(x, 0), 100)), or declare bounds in the policy",
        )
    whole = expr.type is Type.INTEGER or (isinstance(expr, Call) and expr.function.integral)
    decimal = find_decimal_digits(expr)
    digits = None if decimal is None else decimal[1]
    lattice = Lattice.from_interval(around, integral=whole, digits=digits) if added else None
    exact = expr.type is not Type.DOUBLE
    bits = 62 if exact else BITS if digits is None else DECIMAL_BITS
    ordered = Lattice.from_interval(around, integral=exact, bits=bits, digits=digits) if ranked else None
    public = None if ordered is None else _list_candidates(expr, relation, facts, ordered)
    return Measure(expr, around, lattice, distinct, rows, ordered, most, public, summed)


def _list_candidates(
    expr: Expr, relation: Relation, facts: PublicFacts, lattice: Lattice
) -> tuple[int, ...] | None:
    """List the points of an expression over public columns; None if it reads others, or has no values or too many."""
    values = look_up_values(expr, relation, facts, most=MOST_CANDIDATES)
    positions = [find_position(value) for value in values or () if value is not None]
    if not positions or None in positions:
        return None
    return tuple(sorted({lattice.round_to_point(place) for place in positions if place is not None}))
