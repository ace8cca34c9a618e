"""The columns of the analyst's schema: the type each is read as, its interval and domain, and whether its values stay distinct."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql import policy as policies
from dpsql.analysis.number_types import find_nearest_float
from dpsql.backends.duckdb.sources import UNCHECKED, UNTYPED
from dpsql.errors import PolicyError
from dpsql.plan.expressions import ColumnInfo
from dpsql.plan.interval import Interval, find_position
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.policy.engine_types import (
    UNLIMITED,
    can_declare_type,
    describe_unread_type,
    infer_column_type,
    parse_struct_fields,
)

_WIDE = ("UBIGINT", "HUGEINT", "UHUGEINT")
"""Whole numbers beyond BIGINT, as which they are read; ids of these types are read as texts."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER")
MOST_DIGITS = 15
"""Decimal digits that a DOUBLE always distinguishes."""
_BIGINT_DIGITS = 18
"""Decimal digits that a BIGINT always holds."""
_LOOSE = (UNTYPED, UNCHECKED)
_OF_OBJECTS = (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.DATE, Type.TIMESTAMP, Type.BOOLEAN)
"""The types as which the texts of a frame's objects may be read."""
FLOAT = "FLOAT"
_BEYOND_FLOAT = 2**128
_TEXTS = ("UHUGEINT", "BIT", "BIGNUM")
"""Types of ids that are read as texts only; different ids have different texts."""


def is_read_exactly(facts: ColumnInfo) -> bool:
    """Return whether different stored values of a column are read as different values.

    >>> is_read_exactly(ColumnInfo(Type.DOUBLE, "DECIMAL(15,2)")), is_read_exactly(ColumnInfo(Type.DOUBLE, "DECIMAL(38,0)"))
    (True, False)
    >>> is_read_exactly(ColumnInfo(Type.INTEGER, "BIGINT")), is_read_exactly(ColumnInfo(Type.INTEGER, "UBIGINT"))
    (True, False)
    """
    engine, digits = facts.engine_type, _find_decimal_digits(facts.engine_type)
    match facts.type:
        case Type.VARCHAR:
            return True
        case Type.INTEGER:
            return engine not in _WIDE and (digits or 0) <= _BIGINT_DIGITS
        case Type.DOUBLE:
            whole = _find_read_type(engine) is Type.INTEGER and engine.removeprefix("U") not in _SMALL
            return engine not in (UNTYPED, UNLIMITED) and not whole and (digits or 0) <= MOST_DIGITS
        case _:
            return engine not in (UNTYPED, "TIMESTAMP_NS", "TIMESTAMPTZ_NS", "TIME_NS")


def _find_decimal_digits(engine: str) -> int | None:
    """Return the decimal digits of an engine type, or None if it is not a DECIMAL."""
    found = re.match(r"DECIMAL\((\d+)", engine)
    return None if found is None else int(found[1])


def _reads_every_value(facts: ColumnInfo) -> bool:
    """Return whether no value of a column is read as NULL: unlisted values, NaN, and values beyond 64 bits or the calendar are.

    >>> [_reads_every_value(ColumnInfo(Type.INTEGER, kind)) for kind in ("BIGINT", "HUGEINT")]
    [True, False]
    """
    if facts.domain is not None or facts.engine_type in _LOOSE:
        return False
    match facts.type:
        case Type.INTEGER:
            return facts.interval.is_bounded or is_read_exactly(facts)
        case Type.DATE | Type.TIMESTAMP:
            return facts.interval.is_bounded
        case kind:
            return kind not in (Type.DOUBLE, Type.TIME)


def suggest_id_type(facts: ColumnInfo) -> str:
    """Return the hint for reading a column of ids exactly."""
    if facts.engine_type in _WIDE or facts.engine_type == UNTYPED or _find_decimal_digits(facts.engine_type):
        return "declare it varchar, which keeps every digit"
    if _find_read_type(facts.engine_type) is Type.INTEGER:
        return "declare it integer"
    return "cast it to VARCHAR in a view"


def _find_read_type(name: str) -> Type | None:
    """Return the type as which a column of an engine type is read."""
    found = infer_column_type(name)
    return None if found is None else Type[found.upper()]


def find_undeclared_type(policy: policies.Policy, kind: str) -> Type | None:
    """Return the type as which an undeclared column is read, or None if it cannot be.

    A UUID is text to a policy that declares none.
    """
    found = Type.VARCHAR if kind in _LOOSE else _find_read_type(kind)
    if found is not Type.UUID:
        return found
    declared = {column.type for table in policy.tables.values() for column in table.columns.values()}
    return found if "uuid" in declared else Type.VARCHAR


def build_undeclared_id(policy: policies.Policy, table: str, column: str, kind: str) -> ColumnInfo:
    """Return the facts of an undeclared column of ids, whose different ids are read as different values.

    Ids that no type holds exactly are read as texts. Raises PolicyError for types whose texts may be equal.
    """
    found = find_undeclared_type(policy, kind)
    facts = build_column_info(found or Type.VARCHAR, kind)
    if found is None and kind not in _TEXTS:
        raise PolicyError(
            f"tables.{table}: {column} identifies the unit, but ids of type {kind} cannot be compared exactly",
            code="unit_type",
            hint="cast it in a view",
        )
    as_text = (
        found in (Type.INTEGER, Type.DOUBLE)
        and not is_read_exactly(facts)
        and can_declare_type("varchar", kind)
    )
    return ColumnInfo(Type.VARCHAR, kind) if as_text else facts


def find_stored_column(
    wanted: str, engine: Mapping[str, tuple[str, str]]
) -> tuple[str, str, tuple[str, ...]] | None:
    """Find a column, or a field of a STRUCT by its dotted name: its spelling, engine type and path.

    The path is empty for a column. Returns None if neither exists.
    """
    return (
        (*engine[normalize_name(wanted)], ())
        if normalize_name(wanted) in engine
        else find_struct_field(wanted, engine)
    )


def find_struct_field(
    wanted: str, engine: Mapping[str, tuple[str, str]]
) -> tuple[str, str, tuple[str, ...]] | None:
    """Find a field of a STRUCT by its dotted name, as `find_stored_column` gives it."""
    first, *rest = wanted.split(".")
    if normalize_name(first) not in engine or not rest:
        return None
    spelt, kind = engine[normalize_name(first)]
    path = [spelt]
    for name in rest:
        inner = {
            normalize_name(field): (field, of) for field, of in (parse_struct_fields(kind) or {}).items()
        }
        if normalize_name(name) not in inner:
            return None
        spelt, kind = inner[normalize_name(name)]
        path.append(spelt)
    return ".".join(path), kind, tuple(path)


def build_declared_column(
    table: str,
    declared: str,
    column: policies.Column,
    engine: Mapping[str, tuple[str, str]],
    required: frozenset[str],
) -> tuple[str, ColumnInfo]:
    """Build a column as the policy declares it; the schema decides on NULL unless the policy does."""
    where = f"tables.{table}.columns.{declared}"
    stored = find_stored_column(declared, engine)
    if stored is None:
        raise PolicyError(
            f"{where}: the table {table} of the database has no such column",
            code="column_missing",
            hint=f"its columns are {', '.join(name for name, _ in engine.values())}",
        )
    spelt, kind, path = stored
    wanted, found = Type[column.type.upper()], _find_read_type(kind)
    loose = {UNTYPED: _OF_OBJECTS, UNCHECKED: (Type.VARCHAR,)}.get(kind, ())
    if not (wanted in loose or can_declare_type(column.type, kind)):
        raise PolicyError(
            f"{where}: the type is {column.type} in the policy, but {kind} in the database",
            code="column_type",
            hint="declare the database's type, or remove the column"
            if found is not None or loose
            else f"{kind} is not supported: {describe_unread_type(kind)}",
        )
    facts = replace(
        build_column_info(wanted, kind),
        interval=_build_interval(column),
        domain=_build_domain(wanted, column.values),
        nullable=column.nullable,
        path=path,
    )
    if facts.float32:
        facts = _round_to_float32(facts)
    decided = not column.declares_nullability and spelt in required and _reads_every_value(facts)
    return spelt, replace(facts, nullable=False) if decided else facts


def build_column_info(read_as: Type, kind: str) -> ColumnInfo:
    """Return the facts of a column of an engine type, read as a type."""
    return ColumnInfo(read_as, kind, float32=kind == FLOAT and read_as is Type.DOUBLE)


def _round_to_float32(facts: ColumnInfo) -> ColumnInfo:
    """Round the declared bounds and values of a FLOAT column to FLOAT, as the stored values are."""
    low, high = (
        None if end is None else _round_end(end) for end in (facts.interval.low, facts.interval.high)
    )
    domain = facts.domain and tuple(
        value if value is None else float(_round_end(Fraction(value)))  # type: ignore[arg-type]
        for value in facts.domain
    )
    return replace(facts, interval=Interval(low, high), domain=domain)


def _round_end(value: Fraction) -> Fraction:
    nearest = find_nearest_float(float(value)) if abs(value) < _BEYOND_FLOAT else None
    return value if nearest is None else Fraction(nearest)


def _build_domain(kind: Type, values: Sequence[Value] | None) -> tuple[Value, ...] | None:
    if values is None:
        return None
    return tuple(float(value) if kind is Type.DOUBLE else value for value in values)  # type: ignore[arg-type]


def _build_interval(column: policies.Column) -> Interval:
    if column.bounds is None:
        if column.values and column.type in ("integer", "double"):
            numbers = [Fraction(value) for value in column.values]  # type: ignore[arg-type]
            return Interval(min(numbers), max(numbers))
        return Interval(0, 1) if column.type == "boolean" else Interval()
    low, high = (end if isinstance(end, Fraction) else find_position(end) for end in column.bounds)
    return Interval(low, high)
