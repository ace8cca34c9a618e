"""Sanitized columns: widened to a common type, clamped to declared bounds, NULL outside a declared domain.

Claim: every value that is read is in the column's interval or domain, or is NULL; it is never NaN, and every text is UTF-8;
each text or blob has at most `MOST_STORED` bytes.
Why: each expression is total over the engine type; the condition that keeps a value is false for NaN, which the engine
orders above infinity.
Source: DuckDB's documentation, "Numeric types", on the order of NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.backends.column_bounds import ColumnBounds
from dpsql.backends.duckdb.frames import UNCHECKED, UNTYPED
from dpsql.backends.duckdb.values import NAN, emit_constant
from dpsql.backends.quoting import quote_identifier
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.text_size import MOST_STORED
from dpsql.plan.types import Type

_NARROWER = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"})
INFINITY = "CAST('Infinity' AS DOUBLE)"
_COLUMN_BOUNDS = ColumnBounds(emit_constant, NAN, INFINITY)


def emit_bounded_column(column: Column) -> str:
    """The SQL that reads a column of the scanned table."""
    facts, read = column.facts, emit_widened_column(column)
    if facts.domain is None and facts.type in (Type.VARCHAR, Type.BLOB):
        return _emit_length_limit(read, facts.type)
    return _COLUMN_BOUNDS.emit_bounded_column(_emit_raw_column(column), read, facts)


def _emit_length_limit(read: str, kind: Type) -> str:
    """A text or blob that is not too long: within the expression, where no optimizer moves it away."""
    length = "STRLEN" if kind is Type.VARCHAR else "OCTET_LENGTH"
    return f"CASE WHEN {length}({read}) <= {MOST_STORED} THEN {read} END"


def emit_widened_column(column: Column) -> str:
    """The SQL that reads a column in the engine type of its plan type, whatever its value."""
    return _emit_widened_value(_emit_raw_column(column), column.facts)


def emit_unit_id(unit: Column) -> str:
    """A unit's id, of a type that two tables' ids can be compared in without any failing to convert."""
    whole = unit.type is Type.INTEGER and unit.facts.engine_type != UNTYPED
    return emit_stored_column(unit) if whole else emit_widened_column(unit)


def emit_stored_column(column: Column) -> str:
    """A column as it is stored, or a field of a STRUCT."""
    return emit_column_path(column.facts.path or (column.name,))


def emit_column_path(names: Sequence[str]) -> str:
    """A column of a table, or a field of one that is a STRUCT, which is NULL where that is."""
    read = quote_identifier(names[0])
    for name in names[1:]:
        read = f"struct_extract({read}, {emit_constant(name)})"
    return read


def _emit_raw_column(column: Column) -> str:
    raw = emit_stored_column(column)
    if column.facts.engine_type == UNCHECKED:
        # The engine's functions of text fail on bytes that are not UTF-8, and end every later query too.
        return f"TRY(decode(encode({raw})))"
    untyped = column.facts.engine_type == UNTYPED and column.facts.type is Type.INTEGER
    if untyped and column.facts.identity is not None:
        # '1' and '01' are two ids: only one of them is how a number is written.
        number = f"TRY_CAST({raw} AS BIGINT)"
        return f"CASE WHEN CAST({number} AS VARCHAR) = {raw} THEN {number} END"
    return f"TRY_CAST({raw} AS HUGEINT)" if untyped else raw


def _emit_widened_integer(raw: str, engine: str) -> str:
    if engine == "BIGINT":
        return raw
    return f"CAST({raw} AS BIGINT)" if engine in _NARROWER else f"TRY_CAST({raw} AS BIGINT)"


def _emit_widened_value(raw: str, facts: ColumnInfo) -> str:
    if facts.type is Type.INTEGER:
        return _emit_widened_integer(raw, facts.engine_type)
    wanted = facts.type.value
    if facts.has_time_zone and facts.type is Type.TIMESTAMP:
        # A cast would go by the session's time zone. TRY, because the engine does not say that the conversion fails on no bits.
        raw = f"TRY({raw} AT TIME ZONE 'UTC')"
        return raw if facts.engine_type == "TIMESTAMP WITH TIME ZONE" else f"TRY_CAST({raw} AS TIMESTAMP)"
    read = raw if facts.engine_type in (wanted, UNCHECKED) else f"TRY_CAST({raw} AS {wanted})"
    # Under a collation, which of two equal texts stands for a group would depend on one row.
    return f'({read} COLLATE "binary")' if facts.type is Type.VARCHAR else read
