"""Clamp stored values to the column's interval or domain, or NULL, in the same way on every engine.

Claim: what is written is in the interval or domain of the column, or NULL, and never NaN, for every value of the types.
Why: a CASE without ELSE keeps what a comparison holds of, and the comparisons hold of no NaN, which is greater than infinity on
each of the engines here.
Source: DuckDB's documentation, "Numeric types"; PostgreSQL 15 manual, section 8.1.3; Spark 4.0 documentation, "NaN semantics".
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass

from dpsql.backends.dialect import CALENDAR
from dpsql.plan.expressions import ColumnInfo
from dpsql.plan.interval import get_date_at, get_timestamp_at
from dpsql.plan.types import Type, Value


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Clamps in the SQL of an engine, which writes constants so, and these two of DOUBLE."""

    emit_constant: Callable[[Value], str]
    nan: str
    infinity: str

    def emit_bounded_column(self, raw: str, read: str, facts: ColumnInfo) -> str:
        """A column, from the SQL of what is stored, and of that in the engine type of the plan type."""
        if facts.domain is not None:
            return f"CASE WHEN {read} IN ({', '.join(map(self.emit_constant, facts.domain or ()))}) THEN {read} END"
        match facts.type:
            case Type.INTEGER:
                return self._emit_bounded_integer(raw, read, facts)
            case Type.DOUBLE:
                return self._emit_bounded_double(read, facts)
            case Type.DATE | Type.TIMESTAMP | Type.TIME:
                return self._emit_bounded_temporal(read, facts)
            case _:
                return read

    def _emit_bounded_integer(self, raw: str, read: str, facts: ColumnInfo) -> str:
        if not facts.interval.is_bounded:
            return read
        low, high = (self.emit_constant(math.floor(end)) for end in facts.interval.ends)
        # Compared before it is read as 64 bits: a value too large for them is clamped, not lost.
        return f"CASE WHEN {raw} BETWEEN {low} AND {high} THEN {read} WHEN {raw} < {low} THEN {low} WHEN {raw} > {high} THEN {high} END"

    def _emit_bounded_double(self, read: str, facts: ColumnInfo) -> str:
        if not facts.interval.is_bounded:
            return f"NULLIF({read}, {self.nan})"
        low, high = (self.emit_constant(float(end)) for end in facts.interval.ends)
        return (
            f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
            f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.infinity} THEN {high} END"
        )

    def _emit_bounded_temporal(self, read: str, facts: ColumnInfo) -> str:
        ends: tuple[dt.date | dt.time, ...] = CALENDAR[facts.type]
        if facts.interval.is_bounded:
            at = get_timestamp_at if facts.type is Type.TIMESTAMP else get_date_at
            ends = tuple(map(at, facts.interval.ends))
        low, high = map(self.emit_constant, ends)
        within = f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read}"
        if not facts.interval.is_bounded:
            return f"{within} END"
        return f"{within} WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"
