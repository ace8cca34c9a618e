"""Sanitized columns of PostgreSQL's tables: widened, clamped to declared bounds, NULL outside a declared domain.

Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is
of the years 1 to 9999, and each text or blob has at most `MOST_STORED`. No stored value makes the reading fail.
Why: what can fail stands in a branch of a CASE whose condition excludes the values for which it does, and PostgreSQL
evaluates a branch for rows that take it alone, where it reads a column. What is written of these columns rests on these
bounds, not on conditions of the query.
Source: PostgreSQL 15 manual, section 4.2.14 (evaluation order of CASE) and chapter 8 (data types).
"""

from __future__ import annotations

from decimal import Decimal

from dpsql.backends.dialect import CALENDAR, ColumnBounds
from dpsql.backends.postgres.values import INFINITY, NAN, REAL, TYPES, emit_constant
from dpsql.backends.quoting import quote_identifier
from dpsql.plan.expressions import Column
from dpsql.plan.text_size import MOST_STORED
from dpsql.plan.types import Type
from dpsql.policy.engine_types import UNLIMITED, parse_element_type

_DATED = {
    "DATE": Type.DATE,
    "TIMESTAMP": Type.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": Type.TIMESTAMP,
    "TIME": Type.TIME,
}
_WHOLE = frozenset({"SMALLINT", "INTEGER", "BIGINT"})
_NUMERIC = ("DECIMAL", UNLIMITED)
_FAR = 10**300
"""NUMERIC values beyond are infinite as DOUBLE, and digits after the point beyond its digits are rounded off."""
_COLUMN_BOUNDS = ColumnBounds(emit_constant, NAN, INFINITY)


def emit_bounded_column(column: Column) -> str:
    """The SQL that reads a column of the scanned table."""
    facts = column.facts
    if facts.type is Type.DOUBLE and facts.interval.is_bounded and facts.engine_type.startswith(_NUMERIC):
        return _emit_bounded_numeric(column)
    # A text that is one of the domain's is not too long.
    listed = facts.domain is not None and facts.type is Type.VARCHAR
    read = (
        f'(CAST({emit_stored_column(column)} AS TEXT) COLLATE "C")' if listed else emit_widened_column(column)
    )
    return _COLUMN_BOUNDS.emit_bounded_column(emit_stored_column(column), read, facts)


def _emit_bounded_numeric(column: Column) -> str:
    """A NUMERIC column within its bounds, which are compared as NUMERIC: a cast to DOUBLE is slow, and so is made once.

    Claim: it is what `ColumnBounds` makes of the column as DOUBLE.
    Why: the bounds are DOUBLE, and rounding to DOUBLE is monotone, so that a value between them stays there, and one beyond
    is rounded to the bound or beyond it, or is the bound here. NaN is greater than infinity.
    """
    stored = quote_identifier(column.name)
    rounded = f"ROUND({stored}, 300)" if column.facts.engine_type == UNLIMITED else stored
    low, high = map(float, column.facts.interval.ends)
    return (
        f"CASE WHEN {stored} BETWEEN {Decimal(low):f} AND {Decimal(high):f} THEN CAST({rounded} AS {REAL}) "
        f"WHEN {stored} < {Decimal(low):f} THEN {emit_constant(low)} WHEN {stored} < 'NaN' THEN {emit_constant(high)} END"
    )


def emit_widened_column(column: Column) -> str:
    """The SQL that reads a column in the engine type of its plan type, whatever its value."""
    raw, facts = emit_stored_column(column), column.facts
    wanted, engine = TYPES[facts.type], facts.engine_type
    match facts.type:
        case Type.INTEGER if engine not in _WHOLE:
            return f"CASE WHEN {raw} BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({raw} AS BIGINT) END"
        case Type.DOUBLE if engine == UNLIMITED:
            return (
                f"CASE WHEN {raw} BETWEEN -{_FAR} AND {_FAR} THEN CAST(ROUND({raw}, 300) AS {REAL}) "
                f"WHEN {raw} < 0 THEN -{INFINITY} WHEN {raw} > 0 THEN {INFINITY} END"
            )
        case Type.VARCHAR:
            text = f"CAST({raw} AS TEXT)"
            return f'(CASE WHEN OCTET_LENGTH({text}) <= {MOST_STORED} THEN {text} END COLLATE "C")'
        case Type.BLOB:
            return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN {raw} END"
        case Type.TIMESTAMP if facts.has_time_zone:
            return f"({raw} AT TIME ZONE 'UTC')"
        case _:
            return f"CAST({raw} AS {wanted})"


def emit_stored_column(column: Column) -> str:
    """A column as it is stored; NUMERIC has a NaN, which is greater than all numbers."""
    stored = quote_identifier(column.name)
    return f"NULLIF({stored}, 'NaN')" if column.facts.engine_type.startswith(_NUMERIC) else stored


def emit_copied_column(column: str, kind: str) -> str:
    """A column of a public table as Python can hold it: days and moments of the calendar alone, and arrays of one dimension."""
    read, of = quote_identifier(column), parse_element_type(kind)
    if of is not None:
        each = f"SELECT {emit_copied_column('v', of)} FROM UNNEST({read}) WITH ORDINALITY AS e (v, place) ORDER BY place"
        return f"CASE WHEN {read} IS NOT NULL THEN ARRAY({each}) END"
    if kind == UNLIMITED:
        return f"CASE WHEN {read} BETWEEN -1e300 AND 1e300 THEN CAST(ROUND({read}, 300) AS {REAL}) END"
    if kind.startswith("DECIMAL"):
        return f"NULLIF({read}, 'NaN')"
    if kind in _DATED:
        at = f"({read} AT TIME ZONE 'UTC')" if kind.endswith("ZONE") else read
        low, high = map(emit_constant, CALENDAR[_DATED[kind]])
        return f"CASE WHEN {at} BETWEEN {low} AND {high} THEN {at} END"
    return f"CAST({read} AS TEXT)" if kind == "VARCHAR" or kind.startswith("ENUM") else read
