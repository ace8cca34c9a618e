"""Emit the enforcement of contribution bounds.

Claim: of each unit at most as many rows and groups count as its bound allows; which ones depends on its own rows only.
Why: the groups of a unit are sorted by a hash of its identifier and the keys, and the first ones count.
Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.analysis.release_analysis import Analysis
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.nodes import list_private_scans
from dpsql.plan.tables import UnitKind
from dpsql.sql.compile.dialect import emit_cte, emit_shared_cte, get_dialect

# Names that no table of the policy has: a common table expression would hide a table of its name.
CONTRIBUTION, EXCESS, RANKED, LIMITED = '"#contribution"', '"#excess"', '"#ranked"', '"#limited"'


def emit_bounded_groups(
    analysis: Analysis,
    bound: ContributionBound,
    keys: Sequence[str],
    columns: str,
    contribution: str,
    *,
    often: bool = False,
) -> tuple[list[str], str]:
    """Return the common table expressions and the query of the groups of `contribution` with their numbers of counted rows, m.

    `often` says that the statement reads these more than once. What is read more than once is held where the engine would
    compute it anew, of rows that may be others by then.
    """
    if get_dialect().capabilities.ranks_all_groups:
        ctes, source = emit_cte(CONTRIBUTION, contribution)
        counted = _emit_all_ranked_groups(analysis, bound, keys, columns, source)
        if not often:
            return ctes, counted
        ctes, source = emit_shared_cte(LIMITED, f"WITH {', '.join(ctes)}\n  {counted}")
        return ctes, f"SELECT * FROM {source}"
    ctes, source = emit_shared_cte(CONTRIBUTION, contribution)
    return [*ctes, *_emit_ranking_ctes(analysis, bound, keys, source)], _emit_all_counted_groups(
        bound, columns, source
    )


def _emit_all_ranked_groups(
    analysis: Analysis, bound: ContributionBound, keys: Sequence[str], columns: str, source: str
) -> str:
    """Return the groups of all units, each in its place.

    Claim: they are those that `_emit_all_counted_groups` has.
    Why: of a unit within its bound, no group is beyond it, and the rows up to a group are no more than the bound: so all count.
    """
    ranked = get_dialect().queries.emit_derived_table(_emit_ordered_groups(analysis, keys, source), RANKED)
    return _emit_counted_ranked_groups(bound, columns, ranked)


def _emit_ranking_ctes(
    analysis: Analysis, bound: ContributionBound, keys: Sequence[str], source: str
) -> list[str]:
    """Return the units of `source`, their contributions, that exceed a bound, and their groups in the order in which they count."""
    return [
        f"{EXCESS} AS (\n  {_emit_excess_units(bound, source)}\n)",
        f"{RANKED} AS (\n  {_emit_ranked_groups(analysis, keys, source)}\n)",
    ]


def _emit_excess_units(bound: ContributionBound, source: str) -> str:
    """Return the units that exceed a bound. Only they are ranked; with well-chosen bounds they are few."""
    passed = [f"SUM(n) > {bound.rows}", *([f"COUNT(*) > {bound.groups}"] if bound.limits_groups else [])]
    return f"SELECT u FROM {source} GROUP BY u HAVING {' OR '.join(passed)}"


def _emit_ranked_groups(analysis: Analysis, keys: Sequence[str], source: str) -> str:
    """Return the groups of these units, in an order that depends on the unit's own rows only."""
    return _emit_ordered_groups(analysis, keys, get_dialect().queries.emit_semi_join(source, EXCESS))


def _emit_ordered_groups(analysis: Analysis, keys: Sequence[str], source: str) -> str:
    """Return the groups with their places among those of the unit, and the rows up to each."""
    return (
        f"SELECT *, ROW_NUMBER() OVER w AS place, SUM(n) OVER w AS upto FROM {source}\n"
        f"  WINDOW w AS ({emit_group_order(analysis, keys)} ROWS UNBOUNDED PRECEDING)"
    )


def emit_group_order(analysis: Analysis, keys: Sequence[str]) -> str:
    """Return the window over the groups of a unit, in the order in which they count."""
    by_column = list_private_scans(analysis.release.input)[0].unit.kind is UnitKind.COLUMN
    # The number of a row is not used: removing a row changes the numbers of others. A hash of its values is stable.
    seed = ["u" if by_column else get_dialect().hashes.emit_row_hash("u"), *keys]
    return f"PARTITION BY u ORDER BY {get_dialect().hashes.emit_shuffle_key(seed)}, {', '.join(keys)}"


def _emit_all_counted_groups(bound: ContributionBound, columns: str, source: str) -> str:
    """Return all groups of `source` with the number of counted rows, m: the rows of the first groups, up to the bound."""
    ranked = _emit_counted_ranked_groups(bound, columns, RANKED)
    return f"SELECT {columns}, n AS m FROM {get_dialect().queries.emit_semi_join(source, EXCESS, anti=True)}\n  UNION ALL {ranked}"


def _emit_counted_ranked_groups(bound: ContributionBound, columns: str, ranked: str) -> str:
    """Return the ranked groups within the bound, with their numbers of counted rows."""
    allowed = get_dialect().integers.to_narrow_int(
        f"LEAST(n, GREATEST(0, {bound.rows} - (upto - n)))", 0, bound.rows
    )
    counted = f"SELECT {columns}, {allowed} AS m FROM {ranked}"
    return counted + f" WHERE place <= {bound.groups}" * bound.limits_groups
