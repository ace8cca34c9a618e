"""Round DECIMAL and FLOAT values as the engine does, and compare numbers with ids that are texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval
from dpsql.analysis.number_types import (
    ROUNDED,
    are_floats,
    find_decimal_digits,
    find_nearest_float,
    find_scale,
    is_float,
    is_inexact,
    list_typed_arguments,
)
from dpsql.plan.expressions import Call, Column, Expr, Literal
from dpsql.plan.functions import build_function_call, build_typed_call
from dpsql.plan.types import Type
from dpsql.policy.request.parameters import Parameter
from dpsql.sql.parse.rejection import QueryText

# Round DECIMAL values as the engine does: exactly, where they are read as DOUBLE.


_COMPARES = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct", "lt", "le", "gt", "ge"})
_WHOLE_CASTS = frozenset(
    f"cast_{sign}{size}"
    for sign in ("", "u")
    for size in ("tinyint", "smallint", "integer", "bigint", "hugeint")
)
_TO_WHOLE = frozenset({"round", "floor", "ceil", "trunc"})
_TO_DIGITS = {"round_digits": "round", "trunc_digits": "trunc", "round_even": "round_even"}


def round_decimal_call(built: Call) -> Call:
    """Return an equal call in which ROUND, TRUNC, FLOOR, CEIL and % of a DECIMAL are exact.

    A DECIMAL with s digits after the point is m / 10^s for a whole number m, and is read as the nearest DOUBLE; sums and products
    of such values differ from m / 10^s by a few units in the last place.

    Claim: the result is the DOUBLE nearest to the engine's value, if m is below 2^50.
    Why: x · 10^s is then within a half of m, so that ROUND gives m. Division is rounded correctly, and m / 10^k is at least 1/m of
    itself away from a half or a whole number, unless it is one: so exactly the halves are recognized as halves.
    """
    name, value = built.function.name, built.arguments[0] if built.arguments else None
    if name == "remainder":
        return _build_remainder(built)
    if value is None or value.type is not Type.DOUBLE:
        return built
    computed = not isinstance(value, Column)
    digits = 0
    if name in _TO_DIGITS:
        said = built.arguments[1]
        digits = said.value if isinstance(said, Literal) and type(said.value) is int else 0
        name = _TO_DIGITS[name]
        computed = computed or digits > 0
    elif name not in _TO_WHOLE:
        return built
    own = find_scale(value)
    # DOUBLE represents whole numbers and halves of stored values exactly.
    if own is None or not computed or (name != "trunc" and digits >= own):
        return built
    return _round_at_digits(value, own, min(digits, own), name)


def build_decimal_text(value: Expr) -> Call | None:
    """Build the text of a DECIMAL with all its digits after the point; None of other values."""
    digits = find_decimal_digits(value)
    if digits is None:
        return None
    return _build_call("cast_varchar decimal", value, *(Literal(each, Type.INTEGER) for each in digits))


def round_before_cast(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the arguments of a call, with a DECIMAL rounded before it is cast to a whole number or to fewer digits."""
    if name in _WHOLE_CASTS:
        return (round_to_digits(arguments[0], 0), *arguments[1:])
    said = arguments[-1].value if name == "cast_decimal" and isinstance(arguments[-1], Literal) else None
    if isinstance(said, int) and said >= 0:
        return (round_to_digits(arguments[0], said), *arguments[1:])
    return arguments


def round_before_comparison(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the arguments of a comparison, with computed decimals rounded to the engine's DECIMAL.

    So a + b equals 0.3 where a is 0.1 and b is 0.2.
    """
    return tuple(map(round_to_decimal, arguments)) if name in _COMPARES else arguments


def round_to_decimal(value: Expr) -> Expr:
    """Round a computed value to the DOUBLE nearest to the engine's DECIMAL.

    Equal decimals are then equal: as group keys, distinct values, and in comparisons.
    """
    if not is_inexact(value):
        return value
    power = _build_power_of_ten(find_scale(value) or 0)
    return _build_call(
        "divide",
        _build_call("round", _build_call("multiply", _build_call("cast_double", value), power)),
        power,
    )


def _build_remainder(built: Call) -> Call:
    """Build x % y over whole numbers of the last digit of either."""
    scales = [find_scale(argument) for argument in built.arguments]
    known = [found for found in scales if found is not None]
    if len(known) < len(scales) or not any(known):
        return built
    power = _build_power_of_ten(max(known))
    wholes = (
        _build_call("round", _build_call("multiply", _build_call("cast_double", argument), power))
        for argument in built.arguments
    )
    return _build_call("divide", _build_call("remainder", *wholes), power)


def round_to_digits(value: Expr, digits: int) -> Expr:
    """Return the argument of a cast to a DECIMAL with `digits` digits after the point (0: to a whole number), rounded as one.

    The cast of a DOUBLE rounds halves to even; the cast of a DECIMAL rounds them away from zero, as ROUND does.
    """
    own = find_scale(value) if value.type is Type.DOUBLE else None
    if own is None or own < digits:
        return value
    if digits == 0 and isinstance(value, Column):
        return build_function_call("round", value) or value
    return value if own == digits else _round_at_digits(value, own, digits, "round")


def _round_at_digits(value: Expr, own: int, digits: int, name: str) -> Call:
    """Return a value of `own` digits after the point, rounded to `digits` of them."""
    whole = _build_call(
        "round", _build_call("multiply", _build_call("cast_double", value), _build_power_of_ten(own))
    )
    part = _build_call("divide", whole, _build_power_of_ten(own - digits))
    found = (
        _build_call(name, part, Literal(0, Type.INTEGER)) if name == "round_even" else _build_call(name, part)
    )
    return (
        _build_call("multiply" if digits < 0 else "divide", found, _build_power_of_ten(abs(digits)))
        if digits
        else found
    )


def _build_power_of_ten(digits: int) -> Literal:
    return Literal(10**digits, Type.INTEGER)


def _build_call(name: str, *arguments: Expr) -> Call:
    found = build_function_call(name, *arguments)
    if found is None:
        raise TypeError(f"{name} takes other arguments")
    return found


# Round FLOAT values, of 32 bits, as the engine does, where they are read as DOUBLE.


_FLOAT_COMPARISONS = frozenset(
    {"eq", "ne", "in", "is_distinct", "is_not_distinct", "lt", "le", "gt", "ge", "nullif"}
)
_COMPUTES = ROUNDED | {"remainder", "least", "greatest", "coalesce", "case"}
_EXACT_WHOLE = 2**24
"""FLOAT represents every whole number up to here."""


def round_float_call(built: Call) -> Call:
    """Return a call whose arguments and result are rounded to FLOAT where the engine has FLOAT.

    Claim: comparisons, texts and results of FLOAT columns and constants are those of the engine, up to the largest FLOAT; beyond it
    a result is NULL.
    Why: every FLOAT is a DOUBLE. An operation on two FLOATs in DOUBLE, rounded to the nearest FLOAT, gives the result of the same
    operation in FLOAT, as 53 >= 2 * 24 + 2 digits. A constant in an operation with a FLOAT is a FLOAT.
    Source: Figueroa 1995, "When is double rounding innocuous?", for +, -, * and /.
    """
    name = built.function.name
    if (
        name == "cast_float"
        and isinstance(built.arguments[0], Call)
        and built.arguments[0].function is built.function
    ):
        return built.arguments[0]  # rounding once more changes nothing
    if name not in _FLOAT_COMPARISONS | _COMPUTES:
        return built
    values = list_typed_arguments(name, built.arguments)
    if not are_floats(values):
        return built
    if name == "nullif" and not is_float(values[0]):
        equal = build_function_call(
            "eq", _to_float(values[0]), values[1]
        )  # comparisons in FLOAT need no rounding
        return (equal and build_function_call("case", equal, Literal(None, Type.NULL), values[0])) or built
    read = {id(argument): _to_float(argument) for argument in values}
    arguments = tuple(read.get(id(argument), argument) for argument in built.arguments)
    built = built if arguments == built.arguments else build_typed_call(built.function, arguments) or built
    return (build_function_call("cast_float", built) or built) if name in ROUNDED else built


def unify_float_width(*values: Expr) -> tuple[Expr, ...]:
    """Return values that the engine reads as one type, as IN and BETWEEN do: all as FLOAT, or a FLOAT as a DOUBLE."""
    if not any(map(is_float, values)):
        return values
    if are_floats(values):
        return tuple(map(_to_float, values))
    return tuple(
        (build_function_call("cast_double", value) or value) if is_float(value) else value for value in values
    )


def build_float_text(value: Expr) -> Call | None:
    """Return the text of a FLOAT, which has the digits that tell it from other FLOATs; None for other values."""
    return build_function_call("cast_varchar float", value) if is_float(value) else None


def _to_float(argument: Expr) -> Expr:
    if is_float(argument) or argument.type is Type.NULL:
        return argument
    if isinstance(argument, Literal) and isinstance(argument.value, (int, float)):
        nearest = find_nearest_float(argument.value)
        return argument if nearest is None or nearest == argument.value else Literal(nearest, Type.DOUBLE)
    exact = argument.type is Type.INTEGER and derive_interval(argument).is_within(_EXACT_WHOLE)
    return argument if exact else _round_to_float(argument)


def _round_to_float(value: Expr) -> Expr:
    """Round a number to FLOAT; other values are left to the function that reads them to refuse."""
    return build_function_call("cast_float", value) or value


# Numbers that are compared with numeric columns read as text, written as the engine writes them.


_STORED_WHOLE = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT"})
_STORED_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.ASCII)
_LONG = Context(prec=400, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class StoredNumberFormat:
    """The engine's format for the numbers of a type: `digits` after the point, and whether a `zero` comes before it."""

    digits: int
    zero: bool = True

    def format_number(self, number: str) -> str | None:
        """Return a number as the engine writes it; None if it has more digits, or is no number.

        >>> StoredNumberFormat(2).format_number("-0.5"), StoredNumberFormat(2, zero=False).format_number("-0.5"), StoredNumberFormat(0).format_number("0.5")
        ('-0.50', '-.50', None)
        """
        try:
            value = _LONG.quantize(Decimal(number), Decimal(1).scaleb(-self.digits))
        except ArithmeticError:
            return None
        found = format(_LONG.add(value, 0), "f")  # -0 is 0
        return found if self.zero else re.sub(r"^(-?)0\.", r"\1.", found)


def find_number_format(expr: Expr) -> StoredNumberFormat | None:
    """Return how the numbers are written that a column of texts holds; None for other expressions.

    If all digits of a DECIMAL are after the point, the engine writes no digit before it.
    """
    if not isinstance(expr, Column) or expr.type is not Type.VARCHAR:
        return None
    stored = _STORED_DECIMAL.fullmatch(expr.facts.engine_type)
    if stored is not None:
        return StoredNumberFormat(int(stored[2]), zero=stored[1] != stored[2])
    return StoredNumberFormat(0) if expr.facts.engine_type in _STORED_WHOLE else None


def is_number(node: exp.Expr) -> bool:
    """Return whether a node may be a number of any size: a literal, its negative, or a parameter."""
    inner = node.this if type(node) is exp.Neg else node
    return (type(inner) is exp.Literal and not inner.is_string) or type(node) is exp.Placeholder


def find_id_constants(
    source: QueryText, node: exp.Expr, column: Expr, given: Callable[[exp.Expr], Parameter]
) -> list[Literal] | None:
    """Return the texts of a number or list of numbers beside a numeric id that is read as text, or None.

    Claim: the texts are equal if and only if the numbers are, however large they are.
    Why: the engine writes each number of one type in one way.
    """
    form = find_number_format(column)
    if form is None or not is_number(node):
        return None
    if type(node) is exp.Placeholder:
        value = given(node)
        numbers = value if isinstance(value, tuple) else (value,)
        texts = [str(number) if type(number) is int else None for number in numbers]
    else:
        inner = source.take_arguments(node, "this")[0] if type(node) is exp.Neg else node
        text, _ = source.take_arguments(inner, "this", "is_string")
        texts = [f"-{text}" if inner is not node else str(text)]
    found = [None if text is None else form.format_number(text) for text in texts]
    return None if None in found else [Literal(text, Type.VARCHAR) for text in found]
