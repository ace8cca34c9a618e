"""Read text constants next to numbers and truth values as constants of those types, as SQL does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.number_types import find_scale
from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.constants import parse_number
from dpsql.sql.parse.rejection import QueryText

_NUMBER = re.compile(r"\s*([+-]?)((\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*", re.ASCII)
_TRUTHS: Mapping[str, bool] = MappingProxyType(
    {**dict.fromkeys(("true", "t", "1", "yes", "y"), True), **dict.fromkeys(("false", "f", "0", "no", "n"), False)}
)  # fmt: skip
_MOST_WHOLE = 10**18
"""Whole numbers up to here have an integer type in every engine."""
READS_QUOTED = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "in", "is_distinct", "is_not_distinct", "coalesce", "nullif"}
)
"""The functions in which a text constant has the type of the values next to it."""


def read_quoted_constants(
    source: QueryText, node: exp.Expr | None, name: str, arguments: Sequence[Expr], *, whole: bool
) -> tuple[Expr, ...] | None:
    """Return the arguments with text constants read as numbers or truth values; None if that does not apply.

    `whole` says that the other arguments are whole numbers in the engine.

    Claim: where it is answered, the constant is the value that DuckDB and PostgreSQL read, at the type of the values next to it.
    Why: both cast a text constant to that type. A number that the type does not hold would be rounded by one engine and refused by
    another, so that it is refused here before any charge, like a text that is not a number.
    Source: the manual of PostgreSQL, "Typing of constants" (literals of unknown type take the type of the other operand).
    """
    if name not in READS_QUOTED:
        return None
    quoted = [isinstance(argument, Literal) and isinstance(argument.value, str) for argument in arguments]
    others = [argument for argument, text in zip(arguments, quoted, strict=True) if not text]
    kinds = {argument.type for argument in others} - {Type.NULL}
    if (
        not any(quoted)
        or (name == "nullif" and quoted[0])
        or all(isinstance(each, Literal) for each in others)
    ):
        return None
    if kinds == {Type.BOOLEAN}:
        return tuple(
            _read_truth(source, node, str(argument.value))
            if isinstance(argument, Literal) and text
            else argument
            for argument, text in zip(arguments, quoted, strict=True)
        )
    if not kinds or kinds - {Type.INTEGER, Type.DOUBLE}:
        return None
    digits = 0 if whole else _find_digits(others)
    return tuple(
        _read_number(source, node, str(argument.value), digits)
        if isinstance(argument, Literal) and text
        else argument
        for argument, text in zip(arguments, quoted, strict=True)
    )


def _find_digits(others: Sequence[Expr]) -> int | None:
    """Return how many digits after the point the values have, None for numbers with an exponent."""
    scales = [find_scale(other) for other in others]
    return None if None in scales else max(found or 0 for found in scales)


def _read_truth(source: QueryText, node: exp.Expr | None, text: str) -> Literal:
    value = _TRUTHS.get(text.lower())
    if value is None:
        _refuse(source, node, f"{text!r} is not a truth value", "write TRUE or FALSE")
    return Literal(value, Type.BOOLEAN)


def _read_number(source: QueryText, node: exp.Expr | None, text: str, digits: int | None) -> Literal:
    """Return the number that a text writes, with at most `digits` digits after the point."""
    written = _NUMBER.fullmatch(text)
    if written is None:
        _refuse(
            source,
            node,
            f"{text!r} is not a number, and the values it is used with are numbers",
            "write a number without quotes, as 40; or compare texts: CAST(x AS VARCHAR) = 'text'",
        )
    value = Decimal(written[2]) * (-1 if written[1] == "-" else 1)
    if value == value.to_integral_value() and abs(value) < _MOST_WHOLE:
        return Literal(int(value), Type.INTEGER)
    if digits is None:
        return replace(parse_number(source, node or exp.Null(), text.strip().lstrip("+")), exact=True)
    digits_text = format(value.normalize(), "f") if abs(value.adjusted()) < 40 else written[2]
    if value.scaleb(digits) != value.scaleb(digits).to_integral_value() or abs(value) >= _MOST_WHOLE:
        _refuse(
            source,
            node,
            f"the values that {text!r} is used with are whole numbers"
            if digits == 0
            else f"the values that {text!r} is used with have {digits} digits after the point",
            f"write the number without quotes: {digits_text}",
        )
    return Literal(float(value), Type.DOUBLE)


def _refuse(source: QueryText, node: exp.Expr | None, reason: str, hint: str) -> NoReturn:
    source.refuse(node, "constant", reason, hint)
