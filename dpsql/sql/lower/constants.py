"""Lower constants: numbers, date and timestamp literals, and values of parameters."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, Inexact
from types import MappingProxyType

from sqlglot import exp

from dpsql.analysis.number_types import is_exact
from dpsql.backends import scratch_database
from dpsql.plan.expressions import Call, Expr, Literal, walk
from dpsql.plan.types import Type, Value, get_value_type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER, MAX_INTEGER
from dpsql.sql.parse.rejection import QueryText

_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?", re.ASCII)
_ZONED = re.compile(rf"{_MOMENT.pattern} ?(Z|UTC|[+-]\d{{2}}(:?\d{{2}})?)", re.ASCII)
_TIME = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_BYTES = re.compile(r"(\\x[0-9a-f]{2}|[\x01-\x5b\x5d-\x7f])*", re.ASCII | re.IGNORECASE)
_BYTE = re.compile(r"\\x([0-9a-f]{2})|(.)", re.ASCII | re.IGNORECASE | re.DOTALL)
_WRITTEN = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
_QUOTED = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_DIGITS = Context(prec=38, traps=[Inexact])
"""The numbers that DuckDB adds, subtracts and multiplies exactly."""
_EXACT: Mapping[type[exp.Expr], Callable[[Decimal, Decimal], Decimal]] = {
    exp.Add: _DIGITS.add,
    exp.Sub: _DIGITS.subtract,
    exp.Mul: _DIGITS.multiply,
}


def to_literal(source: QueryText, node: exp.Expr, value: Value, *, exact: bool = False) -> Literal:
    """Return a value within the range of its type; `exact` as that of a `Literal`."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INTEGER:
        source.refuse(node, "constant", "an integer must fit into 64 bits", "write it as 1e30")
    if isinstance(value, float) and not math.isfinite(value):
        source.refuse(node, "constant", "a constant must be finite")
    return Literal(value, get_value_type(value), exact=exact)


def parse_number(source: QueryText, node: exp.Expr, text: str) -> Literal:
    """Return the number that a text writes."""
    try:
        return to_literal(source, node, int(text))
    except ValueError:
        pass
    try:
        return to_literal(source, node, float(text), exact=_WRITTEN.fullmatch(text) is not None)
    except ValueError:
        source.refuse(node, "syntax", f"{text} is not a number")


def parse_quoted_number(source: QueryText, node: exp.Expr | None, target: Type, text: str) -> Literal:
    """Return the number that a text constant writes beside numbers; beside whole numbers it must be a whole number."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    is_whole = digits.isascii() and digits.isdigit()
    if not is_whole and not (target is Type.DOUBLE and _QUOTED.fullmatch(digits)):
        kind = "a whole number" if target is Type.INTEGER else "a number"
        source.refuse(
            node, "constant", f"{text!r} is not {kind}, and stands beside numbers", "write 40 or '40'"
        )
    found = parse_number(source, node or exp.Null(), digits)
    return replace(found, value=sign * found.value)  # type: ignore[operator]


def fold_decimals(node: exp.Expr, arguments: tuple[Expr, ...]) -> Literal | None:
    """Compute arithmetic on decimal constants exactly, and convert only the result to DOUBLE, as DuckDB does.

    So 0.06 + 0.01 is 0.07. Return None for anything else, and for more digits than DuckDB allows.
    """
    if type(node) not in _EXACT or not all(isinstance(argument, Literal) for argument in arguments):
        return None
    try:
        value = _evaluate_decimal(node)
    except Inexact:
        return None
    return None if value is None or value.as_tuple().exponent == 0 else Literal(float(value), Type.DOUBLE)


def _evaluate_decimal(node: exp.Expr) -> Decimal | None:
    match node:
        case exp.Literal() if not node.is_string and _WRITTEN.fullmatch(str(node.this)):
            return Decimal(str(node.this))
        case exp.Paren():
            return _evaluate_decimal(node.this)
        case exp.Neg():
            value = _evaluate_decimal(node.this)
            return None if value is None else value.copy_negate()
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = _evaluate_decimal(node.this), _evaluate_decimal(node.expression)
            return None if left is None or right is None else _EXACT[type(node)](left, right)
        case _:
            return None


def parse_constant(
    source: QueryText, node: exp.Expr | None, target: Type, text: str, *, zoned: bool = False
) -> Literal:
    """Return the constant of a type that a text holds; `zoned` is for timestamps, as in `parse_moment`."""
    if target.temporal:
        return parse_moment(source, node, target, text, zoned=zoned)
    read, example = _READ[target]
    value = read(text)
    if value is None:
        source.refuse(node, "constant", f"{text!r} is not a {target}", f"write it as {example}")
    return Literal(value, target)


def parse_moment(
    source: QueryText, node: exp.Expr | None, target: Type, text: str, *, zoned: bool = False
) -> Literal:
    """Return the date or timestamp that a text writes; for a DATE, a time of day is left out as in DuckDB.

    A literal that is `zoned`, or compared with one that is, may state its distance from UTC, and is converted to UTC.
    Elsewhere DuckDB would ignore that distance.
    """
    at, offset = None, _ZONED.fullmatch(text)
    try:
        if offset is not None and zoned:
            at = dt.datetime.fromisoformat(_normalize_zone(text))
            at = at.astimezone(dt.UTC).replace(tzinfo=None)
        elif offset is None and _MOMENT.fullmatch(text):
            at = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        at = None
    if at is None:
        source.refuse(
            node,
            "constant",
            f"{text!r} is not a {target}",
            "write TIMESTAMPTZ before it, which converts it to UTC"
            if offset is not None and not zoned
            else "write it as '2026-01-31' or '2026-01-31 12:00:00'",
        )
    return Literal(at.date(), Type.DATE) if target is Type.DATE else Literal(at, Type.TIMESTAMP)


def _normalize_zone(text: str) -> str:
    """Return a moment whose zone follows at once, as Python reads it."""
    return re.sub(r" ?UTC$", "Z", re.sub(r" ?([+-]\d{2}(:?\d{2})?|Z)$", r"\1", text))


def _parse_time(text: str) -> dt.time | None:
    try:
        return dt.time.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        return None


def _parse_uuid(text: str) -> uuid.UUID | None:
    return uuid.UUID(text) if _UUID.fullmatch(text) else None


def _parse_bytes(text: str) -> bytes | None:
    """Return the bytes that a text means next to a BLOB, as in DuckDB."""
    if not _BYTES.fullmatch(text):
        return None
    return b"".join(
        bytes.fromhex(found[1]) if found[1] else found[2].encode() for found in _BYTE.finditer(text)
    )


_READ: Mapping[Type, tuple[Callable[[str], Value], str]] = {
    Type.TIME: (_parse_time, "'08:30:00'"),
    Type.UUID: (_parse_uuid, "'550e8400-e29b-41d4-a716-446655440000'"),
    Type.BLOB: (_parse_bytes, "'\\xAB\\xCD'"),
}
READ_FROM_TEXT = frozenset(_READ) | {Type.DATE, Type.TIMESTAMP}
"""The types in which a text constant is read next to their values."""


# The day and the time of a statement: `current_date` and `now()` are constants in it.


_DAYS = ("current_date", "today")
_MOMENTS = (
    "now", "current_timestamp", "get_current_timestamp", "transaction_timestamp", "localtimestamp",
    "current_localtimestamp",
)  # fmt: skip
TIME_CALLS: Mapping[str, Type] = MappingProxyType(
    {**dict.fromkeys(_DAYS, Type.DATE), **dict.fromkeys(_MOMENTS, Type.TIMESTAMP)}
)
"""The functions without arguments that return the day or the time of the statement."""
TIME_NODES: Mapping[type[exp.Expr], str] = MappingProxyType(
    {
        exp.CurrentDate: "current_date",
        exp.CurrentTimestamp: "current_timestamp",
        exp.Localtimestamp: "localtimestamp",
    }
)
"""The parser's nodes for those that are written without parentheses."""


@dataclass(frozen=True, slots=True)
class StatementTime:
    """The time of a statement, in UTC without a zone; `used_constants` holds the constants that it reads, by name.

    Claim: a statement that reads its day or time means the same as the statement with that constant written out.
    Why: both are read once, before any data; the plan holds the constant, so that its fingerprint, by which stored releases are
    found, contains that day, and the emitted SQL reads no clock.
    Source: ISO/IEC 9075-2, <datetime value function>: all of one statement are effectively evaluated at once.
    """

    at: dt.datetime
    used_constants: dict[str, str] = field(default_factory=dict)

    def build_constant(self, name: str) -> Literal:
        """Build the constant that a call of the name is in this statement."""
        kind = TIME_CALLS[name]
        found = self.at.date() if kind is Type.DATE else self.at
        self.used_constants[name] = f"{found} UTC" if kind is Type.TIMESTAMP else str(found)
        return Literal(found, kind)


# Fold expressions of constants to one constant.


_GIVES_NULL = frozenset({"nullif", "case"})
"""Functions that may return NULL for constants that are not NULL, on purpose."""


def is_constant(expr: Expr) -> bool:
    """Return whether an expression is built of constants alone."""
    return all(isinstance(part, (Call, Literal)) for part in walk(expr))


def fold_constant(source: QueryText, node: exp.Expr | None, expr: Expr) -> Expr:
    """Fold an expression of constants; return any other expression, or one without a place in the text, unchanged.

    Claim: the constant is the engine's value of the expression as it would be emitted; no data is read.
    Why: the expression names no column and no released value, and an engine without data evaluates it. If a conversion or a
    division fails, which gives NULL on rows, the statement is refused before any charge.
    Source: the manual of DuckDB, "Expressions": an expression of constants has one value in a statement.

    Raises QueryRejected where such an expression has no value.
    """
    if node is None or isinstance(expr, Literal) or not is_constant(expr) or expr.type is Type.LIST:
        return expr
    text = (
        DUCKDB_COMPILER.emit_cast(DUCKDB_COMPILER.emit_expression(expr), expr.type)
        if expr.type is not Type.NULL
        else DUCKDB_COMPILER.emit_expression(expr)
    )
    failure = scratch_database.find_evaluation_error(text)
    found = None if failure is not None else scratch_database.evaluate_constant(text)
    if failure is not None or (found is None and not _may_be_null(expr)):
        source.refuse(
            node,
            "constant",
            "this constant expression cannot be computed: a conversion, a division or an overflow fails",
            "write the value itself, or NULL if none is meant",
        )
    return replace(to_literal(source, node, found), type=expr.type, exact=is_exact(expr))


def _may_be_null(expr: Expr) -> bool:
    """Return whether the constants mean NULL, rather than a computation that fails."""
    return any(
        (isinstance(part, Literal) and part.value is None)
        or (isinstance(part, Call) and part.function.name in _GIVES_NULL)
        for part in walk(expr)
    )
