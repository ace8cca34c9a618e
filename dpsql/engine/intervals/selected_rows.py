"""The confidence of intervals of rows that a query keeps by their noisy values, as ORDER BY with LIMIT, HAVING and QUALIFY do.

Claim: where m of N released rows are kept, intervals at 1 - (1 - c)·m/N miss, on average over answers, at most 1 - c of the
values of the kept rows. It costs no privacy loss. Where no noisy value of a column decides which rows are kept, its
intervals at c do.
Why: a kept value is more likely to be one whose noise let it be kept. The value of one row is kept and missed with a
probability of at most (1 - c)·m/N, m being the number that is kept with it; over N rows, in parts of m, that is 1 - c.
Noise that nothing looked at has its own law in whatever rows are kept.
Source: Benjamini, Yekutieli 2005, "False discovery rate-adjusted multiple confidence intervals for selected parameters",
Theorem 1; Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.engine.released_table import ReleasedTable
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.dependencies import list_releases
from dpsql.plan.expressions import Expr, ReleasedColumn, Scalar, walk
from dpsql.plan.nodes import Aggregation
from dpsql.plan.provenance import Provenance
from dpsql.planning.choose import get_statistic
from dpsql.planning.measurement import MeasurementPlan

Noises = frozenset[object]
"""The noises of a released row that an expression reads: indices of vectors, and quantiles."""
_OF_OTHERS = "of other rows or releases"


def compute_kept_row_confidence(confidence: float, rows: int, released: int) -> float:
    """Return the confidence of the intervals of so many kept rows of those released.

    >>> compute_kept_row_confidence(0.95, 5, 200), compute_kept_row_confidence(0.95, 200, 200), compute_kept_row_confidence(0.95, 0, 0)
    (0.99875, 0.95, 0.95)
    """
    return 1 - (1 - confidence) * rows / released if 0 < rows < released else confidence


@dataclass(frozen=True, slots=True)
class RowChoice:
    """A branch of a query with its released table, and the `ends` of intervals whose noise decides which rows are kept."""

    table: ReleasedTable
    ends: tuple[ReleasedColumn, ...]

    @classmethod
    def from_ends(cls, table: ReleasedTable, trace: Provenance, ends: Sequence[ReleasedColumn]) -> RowChoice:
        """Make the choice from all ends of intervals that the query reads of the release."""
        deciding = collect_deciding_noises(table.plan, trace)
        return cls(
            table,
            tuple(
                end
                for end in ends
                if deciding and has_shared_noise(deciding, collect_noises(table.plan, [end]))
            ),
        )


def collect_deciding_noises(plan: MeasurementPlan, trace: Provenance) -> Noises:
    """Return the noises that decide which rows of a branch are kept."""
    return collect_noises(plan, trace.filters)


def collect_noises(plan: MeasurementPlan, exprs: Iterable[Expr]) -> Noises:
    """Return the noises that expressions over a release read."""
    items = {item.name: item for item in plan.analysis.release.aggregations}
    found = set[object]()
    for part in {part for expr in exprs for part in walk(expr)}:
        if isinstance(part, ReleasedColumn) and part.end_of is not None:
            found |= collect_noises(plan, [part.end_of[0]])
        elif isinstance(part, ReleasedColumn) and part.name in items:
            found.update(_list_aggregate_noises(plan, items[part.name]))
        elif isinstance(part, Scalar) and list_releases(part.outer):
            found.add(_OF_OTHERS)
    return frozenset(found)


def has_shared_noise(one: Noises, other: Noises) -> bool:
    """Return whether two sets of noises have one in common; what reads other rows or releases shares any."""
    if _OF_OTHERS in one | other:
        return bool(one and other)
    return not one.isdisjoint(other)


def _list_aggregate_noises(plan: MeasurementPlan, item: Aggregation) -> Iterable[object]:
    if item.rank is not None:
        return [replace(item, name="", interval_end=0)]
    return {
        plan.get_estimator(get_statistic(plan.analysis, item, moment))[0]
        for moment in AGGREGATES[item.function].moments
    }
