"""Emit the query that evaluates expressions over simulated released rows."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.plan.expressions import Expr, ReleasedColumn
from dpsql.sql.compile.scalars import emit_cast, emit_expression, quote_identifier

DRAWN, KEYS = "#drawn", "#keys"
PLACE, ROW = "#place", "#row"
"""The columns with the order of a simulated row, and with the released row that it simulates."""


def emit_simulated(
    exprs: Sequence[Expr], aggregates: Sequence[ReleasedColumn], keys: Sequence[ReleasedColumn]
) -> str:
    """Return each expression as DOUBLE over the aggregates in `DRAWN`, with NaN as NULL, and the keys in `KEYS`."""
    drawn = [f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END" for name in _quote_column_names(aggregates)]
    items = [
        f"{emit_cast(text, item.type)} AS {quote_identifier(item.name)}"
        for text, item in zip(drawn, aggregates, strict=True)
    ]
    rows = f"(SELECT {', '.join([*items, quote_identifier(PLACE), quote_identifier(ROW)])} FROM {quote_identifier(DRAWN)})"
    values = [f"TRY_CAST({emit_expression(expr)} AS DOUBLE) AS v{place}" for place, expr in enumerate(exprs)]
    joined = f" JOIN {quote_identifier(KEYS)} USING ({quote_identifier(ROW)})" if keys else ""
    return f"SELECT {', '.join(values)} FROM {rows}{joined} ORDER BY {quote_identifier(PLACE)}"


def _quote_column_names(columns: Sequence[ReleasedColumn]) -> list[str]:
    return [quote_identifier(column.name) for column in columns]
