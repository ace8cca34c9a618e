"""The parts of its table that a scan is confined to, in engine SQL.

Claim: a scan with these conditions reads no row outside of its ranges, and no row of a unit whose rows in the
table do not all have one and the same value in each column that confines it. So a unit lies at one place, or
is not read.
Why: the ranges are compared with the value as it is read everywhere, clamped or NULL; a unit's values are
counted over all of its rows in the table, before any condition of the query, so that which rows it asks for
does not decide. Both depend on rows of the unit alone.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parts are disjoint sets of units).
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.plan.tables import Confined, Scan, UnitKind
from dpsql.sql.clean import clean
from dpsql.sql.scalar_text import constant


def within(scan: Scan, unit: str, source: str) -> Iterator[str]:
    """The conditions on the rows of a scan, whose ids are in `unit` of the FROM text `source`."""
    for side in scan.confined:
        yield _inside(side)
    if scan.confined and scan.unit.kind is UnitKind.COLUMN:
        constancy = " AND ".join(map(_constant, scan.confined))
        yield f"{unit} IN (SELECT {unit} FROM {source} GROUP BY {unit} HAVING {constancy})"


def _inside(side: Confined) -> str:
    read = clean(side.column)
    ranges = " OR ".join(f"{read} BETWEEN {constant(low)} AND {constant(high)}" for low, high in side.ranges)
    return f"({ranges})"


def _constant(side: Confined) -> str:
    """All rows of a unit have one value, which is not NULL."""
    read = clean(side.column)
    return f"COUNT(DISTINCT {read}) = 1 AND COUNT({read}) = COUNT(*)"
