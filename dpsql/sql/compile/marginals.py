"""Emit the marginals of a count by several keys: sums of the statement's groups by some sets of its keys.

Claim: the numbers are those of the marginals of the groups of the statement, cell by cell, and the text is the same on all
neighboring databases.
Why: GROUPING SETS is the union of one GROUP BY for each set. What a statement counts is added up, and no row is read but its own.
A sum of counts of rows is at most the number of rows, so it overflows nowhere.
Source: ISO/IEC 9075-2, <grouping sets specification>, <grouping operation>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.backends.dialect import Dialect
from dpsql.planning.statistics import ROWS
from dpsql.sql.compile.dialect import get_dialect, use_dialect
from dpsql.sql.compile.statement import ReleaseStatement

LEFT_OUT = "left_out"
"""The column with a bit for each key that a set leaves out, the first key's the lowest."""


def emit_marginals(
    counted: ReleaseStatement, sets: Sequence[Sequence[int]], target: Dialect
) -> ReleaseStatement:
    """Return the statement whose rows are the groups by each set of keys, by their places, with their numbers of rows."""
    (rows,) = (name for name, statistic in counted.moments.items() if statistic == ROWS)
    bits = [f"CAST(GROUPING({key}) AS BIGINT) * {1 << place}" for place, key in enumerate(counted.keys)]
    listed = ", ".join(f"({', '.join(counted.keys[place] for place in part)})" for part in sets)
    with use_dialect(target):
        items = [*counted.keys, f"SUM({rows}) AS {rows}", f"{' + '.join(bits)} AS {LEFT_OUT}"]
        text = f"SELECT {', '.join(items)}\nFROM {get_dialect().queries.emit_derived_table(counted.sql)}\nGROUP BY GROUPING SETS ({listed})"
    target.support.require_readable_sql(text)
    return replace(counted, sql=text, moments={rows: ROWS}, left_out=LEFT_OUT)
