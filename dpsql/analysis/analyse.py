"""The analysis of a release: its contribution bound, its aggregated expressions with their intervals, and its group keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar

from dpsql.aggregates import AGGREGATES, Moment
from dpsql.analysis import domains
from dpsql.analysis.decimals import decimal_digits
from dpsql.analysis.distinct_values import most_distinct
from dpsql.analysis.domains import Domain
from dpsql.analysis.images import Images
from dpsql.analysis.intervals import Known, conditions, interval, limits
from dpsql.analysis.lattice import BITS, DECIMAL_BITS, Lattice
from dpsql.analysis.public_tables import looked_up_interval, looked_up_values, tied
from dpsql.analysis.stability import ContributionBound, PublicFacts, contribution_bound
from dpsql.errors import QueryRejected
from dpsql.plan.expr import Call, Expr, is_conditional
from dpsql.plan.interval import DAY, Interval, position, span
from dpsql.plan.nodes import Aggregation, Relation, Release
from dpsql.plan.render import phrase
from dpsql.plan.tags import later
from dpsql.plan.types import Type

MOST_CANDIDATES = 10_000
"""Of public values, up to this many are the candidates of a quantile."""


@dataclass(frozen=True, slots=True)
class Measurand:
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
    most_distinct: int = later(0, "most_distinct")
    candidates: tuple[int, ...] | None = later(None, "candidates")
    sums_distinct: bool = later(default=False, tag="sums_distinct")


@dataclass(frozen=True)
class Analysis:
    """The facts about a release that are known before any private row is read.

    `domains` has the public values of each key, or is None if some key has none. `replace` says that neighbors differ
    by replacing a unit, not by adding or removing one. It was not computed for which
    public values of the keys the `undecided` conditions on them are true.
    """

    tag: ClassVar[str] = "Analysis"

    release: Release
    bound: ContributionBound
    measures: tuple[Measurand, ...]
    domains: tuple[Domain, ...] | None
    replace: bool
    undecided: tuple[Expr, ...] = field(default=(), compare=False)

    @property
    def grouped(self) -> bool:
        """Whether the release has group keys."""
        return bool(self.release.keys)

    @property
    def selects(self) -> bool:
        """Whether keys are released by partition selection, which is charged."""
        return self.grouped and (self.domains is None or self.bound.min_frequency > 1)

    @property
    def free(self) -> bool:
        """Whether nothing is measured: only keys are released, and all of them are public."""
        return not self.selects and not self.release.aggregations and self.release.top is None

    def measure(self, aggregation: Aggregation) -> int | None:
        """The index of the measure of an aggregation; None for counts of rows and units."""
        return None if aggregation.argument is None else self._places.get(aggregation.argument)

    @cached_property
    def _places(self) -> dict[Expr, int]:
        return {measure.expr: index for index, measure in enumerate(self.measures)}


def analyse(release: Release, facts: PublicFacts, *, replace: bool, apart: bool = False) -> Analysis:
    """Derives the analysis. Raises QueryRejected if an aggregated expression has no bounds.

    With `apart`, no combination of all keys is listed or released, so that there may be any number of them.
    """
    known = conditions(release.input)
    # Rows that are not joined to anybody fulfil no condition of the join, and have groups.
    images = None if release.all_public_rows else Images(facts, release.input)
    each, every = _domains(release, known, facts, images, apart=apart)
    sizes = [None if values is None else len(values) for values in each]
    wanted: dict[Expr, set[Moment]] = {}
    for item in release.aggregations:
        if item.argument is not None:
            wanted.setdefault(item.argument, set()).update(AGGREGATES[item.function].moments)
    contribution = contribution_bound(release, sizes, facts, public=every is not None)
    if contribution.min_frequency > 1:
        for argument in filter(is_conditional, wanted):
            wanted[argument].add(Moment.COUNT)
    measures = tuple(_measure(expr, release.input, known, facts, moments) for expr, moments in wanted.items())
    undecided = () if images is None or every is None else tuple(dict.fromkeys(images.undecided))
    return Analysis(release, contribution, measures, every, replace, undecided)


def _domains(
    release: Release, known: Known, facts: PublicFacts, images: Images | None, *, apart: bool
) -> tuple[list[Domain | None], tuple[Domain, ...] | None]:
    """The public values of each key, or None; and the domains of all keys, if every combination of values is released."""
    listed, most = domains.listed(release.input), domains.MAX_GROUPS
    found: list[Domain | None] = []
    every: tuple[Domain, ...] | None = ()
    for index, key in enumerate(release.keys):
        values = domains.domain(key.expr, known, listed, images)
        if values is None and every is not None and not tied(release, index):
            values = looked_up_values(key.expr, release.input, facts, all_rows=release.all_public_rows)
            most = domains.MAX_DERIVED
        found.append(values)
        if values is None or every is None or (not apart and prod(map(len, every)) * len(values) > most):
            every = None
        else:
            every = (*every, values)
    return found, every


def _measure(
    expr: Expr, relation: Relation, known: Known, facts: PublicFacts, moments: set[Moment]
) -> Measurand:
    around = DAY if expr.type is Type.TIME and Moment.RANKED in moments else interval(expr, known)
    distinct, summed = Moment.DISTINCT in moments, Moment.DISTINCT_TOTAL in moments
    rows = bool(moments - {Moment.DISTINCT, Moment.DISTINCT_TOTAL, Moment.RANKED})
    added, ranked = summed or Moment.TOTAL in moments, Moment.RANKED in moments
    most = (most_distinct(expr, relation, known) or 0) if distinct or summed else 0
    if not added and not ranked:
        return Measurand(expr, around, None, distinct, rows, most_distinct=most)
    if not around.bounded:
        around = looked_up_interval(expr, relation, facts)
    if not around.bounded or around.meet(limits(expr.type)) != around:
        raise QueryRejected(
            f"{phrase(expr)} has no bounds: it may be anything in {span(around, expr.type)}, "
            + (
                "so one unit could change its sum without limit"
                if added
                else "so its quantile has no finite set of candidates"
            ),
            code="unbounded",
            hint="clamp it, as in SUM(LEAST(GREATEST(x, 0), 100)), or declare bounds in the policy",
        )
    whole = expr.type is Type.INTEGER or (isinstance(expr, Call) and expr.function.integral)
    decimal = decimal_digits(expr)
    digits = None if decimal is None else decimal[1]
    lattice = Lattice.of(around, integral=whole, digits=digits) if added else None
    exact = expr.type is not Type.DOUBLE
    bits = 62 if exact else BITS if digits is None else DECIMAL_BITS
    ordered = Lattice.of(around, integral=exact, bits=bits, digits=digits) if ranked else None
    public = None if ordered is None else _candidates(expr, relation, facts, ordered)
    return Measurand(expr, around, lattice, distinct, rows, ordered, most, public, summed)


def _candidates(
    expr: Expr, relation: Relation, facts: PublicFacts, lattice: Lattice
) -> tuple[int, ...] | None:
    """The points of an expression over public columns; None where it is over others, or has too many or no values."""
    values = looked_up_values(expr, relation, facts, most=MOST_CANDIDATES)
    positions = [position(value) for value in values or () if value is not None]
    if not positions or None in positions:
        return None
    return tuple(sorted({lattice.point(place) for place in positions if place is not None}))
