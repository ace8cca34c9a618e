"""Columns as private rows are read: widened, clamped to their bounds, confined to their domain.

Claim: every value that is read lies in the column's interval or domain, or is NULL, and NaN never
occurs.
Why: each form is total over the engine type; a comparison with NaN, which the engine orders above
infinity, is false where a value is kept.
Source: DuckDB's documentation, "Numeric types", on the order of NaN and infinities.
"""

from __future__ import annotations

import datetime as dt
import math

from dpsql.plan.expr import Column, Facts
from dpsql.plan.interval import timestamp_at
from dpsql.plan.types import Type
from dpsql.sql.scalar_text import constant, identifier

_FIRST, _LAST = dt.date(1, 1, 1), dt.date(9999, 12, 31)
_NARROWER = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"})
INFINITY = "CAST('Infinity' AS DOUBLE)"
NAN = "CAST('NaN' AS DOUBLE)"


def clean(column: Column) -> str:
    """The SQL that reads a column of the scanned table."""
    raw = identifier(column.name)
    facts = column.facts
    read = _widened(raw, facts)
    if facts.domain is not None:
        return f"CASE WHEN {read} IN ({', '.join(map(constant, facts.domain))}) THEN {read} END"
    match facts.type:
        case Type.INTEGER:
            return _integer(raw, read, facts)
        case Type.DOUBLE:
            return _double(read, facts)
        case Type.DATE | Type.TIMESTAMP:
            return _temporal(read, facts)
        case _:
            return read


def _widened_integer(raw: str, engine: str) -> str:
    if engine == "BIGINT":
        return raw
    return f"CAST({raw} AS BIGINT)" if engine in _NARROWER else f"TRY_CAST({raw} AS BIGINT)"


def _widened(raw: str, facts: Facts) -> str:
    if facts.type is Type.INTEGER:
        return _widened_integer(raw, facts.engine_type)
    wanted = facts.type.value
    return raw if facts.engine_type == wanted else f"TRY_CAST({raw} AS {wanted})"


def _integer(raw: str, read: str, facts: Facts) -> str:
    if not facts.interval.bounded:
        return read
    low, high = (constant(math.floor(end)) for end in facts.interval.ends)
    # Compared before it is widened: a value too large for BIGINT is clamped, not lost.
    return f"CASE WHEN {raw} BETWEEN {low} AND {high} THEN {read} WHEN {raw} < {low} THEN {low} WHEN {raw} > {high} THEN {high} END"


def _double(read: str, facts: Facts) -> str:
    if not facts.interval.bounded:
        return f"NULLIF({read}, {NAN})"
    low, high = (constant(float(end)) for end in facts.interval.ends)
    return (
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} <= {INFINITY} THEN {high} END"
    )


def _temporal(read: str, facts: Facts) -> str:
    if facts.type is Type.DATE:
        ends = [_FIRST, _LAST]
        if facts.interval.bounded:
            ends = [dt.date.fromordinal(int(end)) for end in facts.interval.ends]
    else:
        ends = [dt.datetime.combine(_FIRST, dt.time.min), dt.datetime.combine(_LAST, dt.time.max)]
        if facts.interval.bounded:
            ends = [timestamp_at(end) for end in facts.interval.ends]
    low, high = map(constant, ends)
    if not facts.interval.bounded:
        return f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} END"
    return f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"
