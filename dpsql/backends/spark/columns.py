"""Sanitized columns of Spark's tables: widened, clamped to declared bounds, NULL outside a declared domain.

Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is
of the years 1 to 9999; each text is UTF-8, and has, as each blob, at most `MOST_STORED`. No stored value makes the reading
fail, wherever Spark evaluates it.
Why: all that is written is defined for every value of the engine type: TRY_CAST and TRY_VALIDATE_UTF8 give NULL where a cast
would fail, and comparisons of one type always compare, NaN being greater than all numbers.
Source: Spark 4.0 documentation, "ANSI compliance" and "NaN semantics"; Unicode 15, section 3.9 (UTF-8).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.backends.dialect import CALENDAR, ColumnSyntax
from dpsql.backends.spark.values import VALUES, emit_constant
from dpsql.plan.expressions import Column
from dpsql.plan.text_size import MOST_STORED
from dpsql.plan.types import Type
from dpsql.policy.engine_types import parse_element_type, parse_struct_fields
from dpsql.policy.names import quote_identifier


@dataclass(frozen=True)
class SparkColumns(ColumnSyntax):
    """Columns of Spark's tables. A field of a struct is read in brackets: after a dot it could be a column of a table of that name."""

    def emit_bounded_column(self, column: Column) -> str:
        """Clamp the column; a text that is in the domain is UTF-8, and not too long."""
        raw, facts = self.emit_stored_column(column), column.facts
        listed = facts.domain is not None and facts.engine_type in ("VARCHAR", "CHAR")
        read = _emit_binary_collation(raw, facts.engine_type) if listed else self.emit_widened_column(column)
        return self.emit_clamped_value(raw, read, facts)

    def emit_widened_column(self, column: Column) -> str:
        """Cast with TRY_CAST, and check the bytes and the length of texts."""
        raw, facts = self.emit_stored_column(column), column.facts
        match facts.type:
            case Type.VARCHAR if facts.engine_type in ("VARCHAR", "CHAR"):
                return emit_text(raw, facts.engine_type)
            case Type.VARCHAR:
                return f"CAST({raw} AS STRING)"
            case Type.BLOB:
                return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN {raw} END"
            case kind:
                return f"TRY_CAST({raw} AS {self.values.get_type_name(kind)})"


COLUMNS = SparkColumns(VALUES)


def emit_text(stored: str, engine: str) -> str:
    """Emit a text by its bytes, whatever its collation, and without the blanks that pad it to a fixed length.

    It is NULL where it is not UTF-8 or too long.
    """
    raw = _emit_binary_collation(stored, engine)
    return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN TRY_VALIDATE_UTF8({raw}) END"


def _emit_binary_collation(stored: str, engine: str) -> str:
    raw = f"({stored} COLLATE UTF8_BINARY)"
    return f"RTRIM({raw})" if engine == "CHAR" else raw


def emit_copied_column(column: str, kind: str) -> str:
    """Emit a column of a public table as Python can hold it: days and moments of the calendar alone."""
    return _emit_copied_value(quote_identifier(column), kind)


def _emit_copied_value(read: str, kind: str, depth: int = 0) -> str:
    of, inner = parse_element_type(kind), parse_struct_fields(kind)
    if of is not None:
        each = f"x{depth}"
        return f"TRANSFORM({read}, {each} -> {_emit_copied_value(each, of, depth + 1)})"
    if inner is not None:
        parts = (
            f"{emit_constant(name)}, {_emit_copied_value(f'{read}[{emit_constant(name)}]', of, depth)}"
            for name, of in inner.items()
        )
        return f"CASE WHEN {read} IS NOT NULL THEN NAMED_STRUCT({', '.join(parts)}) END"
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        at = read if kind == "DATE" else f"TRY_CAST({read} AS TIMESTAMP_NTZ)"
        low, high = map(emit_constant, CALENDAR[Type.DATE if kind == "DATE" else Type.TIMESTAMP])
        return f"CASE WHEN {at} BETWEEN {low} AND {high} THEN {at} END"
    return emit_text(read, kind) if kind in ("VARCHAR", "CHAR") else read
