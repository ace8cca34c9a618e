"""The aggregates: one file for each idea, and one line in `AGGREGATES`.

An aggregate states which moments of the rows it needs, and how it is computed from estimates of them. `planning.choose`
decides how the moments are measured, and with which noise.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.plan.aggregates.base import (
    AVG,
    COUNT,
    COUNT_DISTINCT,
    COUNT_ROWS,
    COUNT_UNITS,
    ORDER_STATISTICS,
    SUM,
    SUM_DISTINCT,
    Aggregate,
    Moment,
)

_ENTRIES = (COUNT_ROWS, COUNT, COUNT_UNITS, COUNT_DISTINCT, SUM, AVG, SUM_DISTINCT, *ORDER_STATISTICS)
AGGREGATES = MappingProxyType({entry.name: entry for entry in _ENTRIES})

__all__ = ["AGGREGATES", "Aggregate", "Moment"]
