"""Sanitized columns of Spark's tables: widened, clamped to declared bounds, NULL outside a declared domain.

Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is
of the years 1 to 9999; each text is UTF-8, and has, as each blob, at most `MOST_STORED`. No stored value makes the reading
fail, wherever Spark evaluates it.
Why: all that is written is defined for every value of the engine type: TRY_CAST and TRY_VALIDATE_UTF8 give NULL where a cast
would fail, and comparisons of one type always compare, NaN being greater than all numbers.
Source: Spark 4.0 documentation, "ANSI compliance" and "NaN semantics"; Unicode 15, section 3.9 (UTF-8).
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.backends.clamps import Clamps
from dpsql.backends.dialect import CALENDAR
from dpsql.backends.quoting import identifier
from dpsql.backends.spark.values import INFINITY, NAN, constant, type_name
from dpsql.plan.expr import Column
from dpsql.plan.text_size import MOST_STORED
from dpsql.plan.types import Type
from dpsql.policy.engine_types import element, fields

_CLAMPS = Clamps(constant, NAN, INFINITY)


def clean(column: Column) -> str:
    """The SQL that reads a column of the scanned table."""
    raw, facts = stored(column), column.facts
    # A text that is one of the domain's is UTF-8, and not too long.
    listed = facts.domain is not None and facts.engine_type in ("VARCHAR", "CHAR")
    read = _by_bytes(raw, facts.engine_type) if listed else widened(column)
    return _CLAMPS.clean(raw, read, facts)


def widened(column: Column) -> str:
    """The SQL that reads a column in the engine type of its plan type, whatever its value."""
    raw, facts = stored(column), column.facts
    match facts.type:
        case Type.VARCHAR if facts.engine_type in ("VARCHAR", "CHAR"):
            return text(raw, facts.engine_type)
        case Type.VARCHAR:
            return f"CAST({raw} AS STRING)"
        case Type.BLOB:
            return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN {raw} END"
        case kind:
            return f"TRY_CAST({raw} AS {type_name(kind)})"


def text(stored: str, engine: str) -> str:
    """A text by its bytes, whatever its collation, and without the blanks that pad it to a fixed length.

    It is NULL where it is not UTF-8 or too long.
    """
    raw = _by_bytes(stored, engine)
    return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN TRY_VALIDATE_UTF8({raw}) END"


def _by_bytes(stored: str, engine: str) -> str:
    raw = f"({stored} COLLATE UTF8_BINARY)"
    return f"RTRIM({raw})" if engine == "CHAR" else raw


def copied(column: str, kind: str) -> str:
    """A column of a public table as Python can hold it: days and moments of the calendar alone."""
    return _copied(identifier(column), kind)


def _copied(read: str, kind: str, depth: int = 0) -> str:
    of, inner = element(kind), fields(kind)
    if of is not None:
        each = f"x{depth}"
        return f"TRANSFORM({read}, {each} -> {_copied(each, of, depth + 1)})"
    if inner is not None:
        parts = (
            f"{constant(name)}, {_copied(f'{read}[{constant(name)}]', of, depth)}"
            for name, of in inner.items()
        )
        return f"CASE WHEN {read} IS NOT NULL THEN NAMED_STRUCT({', '.join(parts)}) END"
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        at = read if kind == "DATE" else f"TRY_CAST({read} AS TIMESTAMP_NTZ)"
        low, high = map(constant, CALENDAR[Type.DATE if kind == "DATE" else Type.TIMESTAMP])
        return f"CASE WHEN {at} BETWEEN {low} AND {high} THEN {at} END"
    return text(read, kind) if kind in ("VARCHAR", "CHAR") else read


def stored(column: Column) -> str:
    """A column as it is stored, or a field of a struct."""
    return path(column.facts.path) if len(column.facts.path) > 1 else identifier(column.name)


def path(names: Sequence[str]) -> str:
    """A column of a table, or a field of one that is a struct, which is NULL where that is.

    A field after a dot could be a column of a table of the struct's name.
    """
    return identifier(names[0]) + "".join(f"[{constant(name)}]" for name in names[1:])
