"""Emits the query that evaluates expressions over simulated released rows."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.plan.expr import Expr, Released
from dpsql.sql.emit.scalars import cast, identifier, write

DRAWN, KEYS = "#drawn", "#keys"
PLACE, ROW = "#place", "#row"
"""The columns with the order of a simulated row, and with the released row that it simulates."""


def emit_simulated(exprs: Sequence[Expr], aggregates: Sequence[Released], keys: Sequence[Released]) -> str:
    """Each expression as DOUBLE, over the aggregates in `DRAWN`, NaN being NULL there, and the keys in `KEYS`."""
    drawn = [f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END" for name in _names(aggregates)]
    items = [
        f"{cast(text, item.type)} AS {identifier(item.name)}"
        for text, item in zip(drawn, aggregates, strict=True)
    ]
    rows = f"(SELECT {', '.join([*items, identifier(PLACE), identifier(ROW)])} FROM {identifier(DRAWN)})"
    values = [f"TRY_CAST({write(expr)} AS DOUBLE) AS v{place}" for place, expr in enumerate(exprs)]
    joined = f" JOIN {identifier(KEYS)} USING ({identifier(ROW)})" if keys else ""
    return f"SELECT {', '.join(values)} FROM {rows}{joined} ORDER BY {identifier(PLACE)}"


def _names(columns: Sequence[Released]) -> list[str]:
    return [identifier(column.name) for column in columns]
