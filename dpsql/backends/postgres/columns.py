"""Sanitized columns of PostgreSQL's tables: widened, clamped to declared bounds, NULL outside a declared domain.

Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is
of the years 1 to 9999, and each text or blob has at most `MOST_STORED`. No stored value makes the reading fail.
Why: what can fail stands in a branch of a CASE whose condition excludes the values for which it does, and PostgreSQL
evaluates a branch for rows that take it alone, where it reads a column. What is written of these columns rests on these
bounds, not on conditions of the query.
Source: PostgreSQL 15 manual, section 4.2.14 (evaluation order of CASE) and chapter 8 (data types).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from dpsql.backends.dialect import CALENDAR, ColumnSyntax
from dpsql.backends.postgres.values import INFINITY, REAL, VALUES, emit_constant
from dpsql.plan.expressions import Column
from dpsql.plan.text_size import MOST_STORED
from dpsql.plan.types import Type
from dpsql.policy.engine_types import UNLIMITED, parse_element_type
from dpsql.policy.names import quote_identifier

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


@dataclass(frozen=True)
class PostgresColumns(ColumnSyntax):
    """Columns of PostgreSQL's tables. Fields of composite types are not read."""

    def emit_bounded_column(self, column: Column) -> str:
        """Clamp the column; the bounds of NUMERIC are compared as NUMERIC, and a text of the domain is not too long."""
        facts = column.facts
        if facts.type is Type.DOUBLE and facts.interval.is_bounded and facts.engine_type.startswith(_NUMERIC):
            return _emit_bounded_numeric(column)
        stored = self.emit_stored_column(column)
        listed = facts.domain is not None and facts.type is Type.VARCHAR
        read = (
            self.values.emit_binary_collation(f"CAST({stored} AS TEXT)")
            if listed
            else self.emit_widened_column(column)
        )
        return self.emit_clamped_value(stored, read, facts)

    def emit_widened_column(self, column: Column) -> str:
        """Cast within the range of the type, and limit texts and blobs in their length."""
        raw, facts = self.emit_stored_column(column), column.facts
        match facts.type:
            case Type.INTEGER if facts.engine_type not in _WHOLE:
                return f"CASE WHEN {raw} BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({raw} AS BIGINT) END"
            case Type.DOUBLE if facts.engine_type == UNLIMITED:
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
            case kind:
                return f"CAST({raw} AS {self.values.get_type_name(kind)})"

    def emit_stored_column(self, column: Column) -> str:
        """Read NaN of NUMERIC, which is greater than all numbers, as NULL."""
        stored = quote_identifier(column.name)
        return f"NULLIF({stored}, 'NaN')" if column.facts.engine_type.startswith(_NUMERIC) else stored


COLUMNS = PostgresColumns(VALUES)


def _emit_bounded_numeric(column: Column) -> str:
    """Emit a NUMERIC column within its bounds, which are compared as NUMERIC: a cast to DOUBLE is slow, and so is made once.

    Claim: it is the clamped DOUBLE of `ColumnSyntax`.
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


def emit_copied_column(column: str, kind: str) -> str:
    """Emit a column of a public table as Python can hold it: days and moments of the calendar alone, and arrays of one dimension."""
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
