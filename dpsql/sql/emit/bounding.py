"""Emits the enforcement of contribution bounds.

Claim: of each unit at most as many rows and groups count as its bound allows; which ones depends on its own rows only.
Why: the groups of a unit are sorted by a hash of its identifier and the keys, and the first ones count.
Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.analysis.analyse import Analysis
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.nodes import private_scans
from dpsql.plan.tables import UnitKind
from dpsql.sql.emit.dialect import dialect

# Names that no table of the policy has: a common table expression would hide a table of its name.
CONTRIBUTION, EXCESS, RANKED = '"#contribution"', '"#excess"', '"#ranked"'


def ranking(analysis: Analysis, bound: ContributionBound, keys: Sequence[str], source: str) -> list[str]:
    """The units of `source`, their contributions, that exceed a bound, and their groups in the order in which they count."""
    return [
        f"{EXCESS} AS (\n  {_excess(bound, source)}\n)",
        f"{RANKED} AS (\n  {_ranked(analysis, keys, source)}\n)",
    ]


def _excess(bound: ContributionBound, source: str) -> str:
    """The units that exceed a bound. Only they are ranked; with well-chosen bounds they are few."""
    passed = [f"SUM(n) > {bound.rows}", *([f"COUNT(*) > {bound.groups}"] if bound.limits_groups else [])]
    return f"SELECT u FROM {source} GROUP BY u HAVING {' OR '.join(passed)}"


def _ranked(analysis: Analysis, keys: Sequence[str], source: str) -> str:
    """The groups of these units, in an order that depends on the unit's own rows only."""
    return (
        f"SELECT *, ROW_NUMBER() OVER w AS place, SUM(n) OVER w AS upto FROM {dialect().semi_join(source, EXCESS)}\n"
        f"  WINDOW w AS ({group_order(analysis, keys)} ROWS UNBOUNDED PRECEDING)"
    )


def group_order(analysis: Analysis, keys: Sequence[str]) -> str:
    """The window over the groups of a unit, in the order in which they count."""
    by_column = private_scans(analysis.release.input)[0].unit.kind is UnitKind.COLUMN
    # The number of a row is not used: removing a row changes the numbers of others. A hash of its values is stable.
    seed = ["u" if by_column else dialect().row_hash("u"), *keys]
    return f"PARTITION BY u ORDER BY {dialect().shuffled(seed)}, {', '.join(keys)}"


def bounded(bound: ContributionBound, columns: str, source: str) -> str:
    """All groups of `source` with the number of counted rows, m: the rows of the first groups, up to the bound."""
    allowed = dialect().narrow(f"LEAST(n, GREATEST(0, {bound.rows} - (upto - n)))", 0, bound.rows)
    ranked = f"SELECT {columns}, {allowed} AS m FROM {RANKED}"
    if bound.limits_groups:
        ranked += f" WHERE place <= {bound.groups}"
    return f"SELECT {columns}, n AS m FROM {dialect().semi_join(source, EXCESS, anti=True)}\n  UNION ALL {ranked}"
