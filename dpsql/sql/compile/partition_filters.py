"""Emit partition filters: the conditions that limit a scan to the partitions that are charged.

Claim: a scan with these conditions reads no row outside its ranges, and no row of a unit whose rows in the table differ in
a partition column. So each unit is in one partition, or is not read. The same holds for a partition column of another
table: a unit without rows there, or with several values, is not read.
Why: the ranges are compared with the sanitized value that all expressions read. The values of a unit are counted over all
its rows in the column's table, before any condition of the query. Both depend on rows of the unit only, whose identifiers
are the same in all tables.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parts are disjoint sets of units).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpsql.plan.tables import PartitionFilter, Scan, UnitKind
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.scalars import emit_constant


def emit_partition_conditions(scan: Scan, unit: str, source: str) -> Iterator[str]:
    """Yield the conditions on the rows of a scan, whose ids are in `unit` of the FROM text `source`."""
    own = [item for item in scan.partition_filters if item.source is None]
    for item in own:
        yield _emit_range_condition(item)
    if own and scan.unit.kind is UnitKind.COLUMN:
        yield f"{unit} IN ({_emit_unit_query(unit, source, map(_emit_single_value_condition, own))})"
    for partition_source in dict.fromkeys(
        item.source for item in scan.partition_filters if item.source is not None
    ):
        filters = [item for item in scan.partition_filters if item.source == partition_source]
        conditions = (
            text
            for item in filters
            for text in (_emit_single_value_condition(item), f"BOOL_AND({_emit_range_condition(item)})")
        )
        yield f"{unit} IN ({_emit_unit_query(get_dialect().emit_unit_id(partition_source.unit), get_dialect().quote_table_name(partition_source.table), conditions)})"


def _emit_unit_query(unit: str, source: str, conditions: Iterable[str]) -> str:
    """Return the units for which all conditions are true."""
    return f"SELECT {unit} FROM {source} GROUP BY {unit} HAVING {' AND '.join(conditions)}"


def _emit_range_condition(item: PartitionFilter) -> str:
    read = get_dialect().emit_bounded_column(item.column)
    ranges = " OR ".join(
        f"{read} BETWEEN {emit_constant(low)} AND {emit_constant(high)}" for low, high in item.ranges
    )
    return f"({ranges})"


def _emit_single_value_condition(item: PartitionFilter) -> str:
    """Return all rows of a unit have one value, which is not NULL."""
    read = get_dialect().emit_bounded_column(item.column)
    return f"COUNT(DISTINCT {read}) = 1 AND COUNT({read}) = COUNT(*)"
