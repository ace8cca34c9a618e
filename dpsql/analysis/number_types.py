"""Which expressions are DECIMAL, FLOAT or narrow integers in the engine, though dpsql reads DOUBLE or 64-bit integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    ReleasedColumn,
    Scalar,
    WindowCall,
    is_null,
    walk,
)
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.types import Type, parse_decimal_type

# DECIMAL expressions of the engine, which dpsql reads as DOUBLE, and their digits.


MOST_DIGITS = 38
_CONTEXT = Context(prec=MOST_DIGITS, rounding=ROUND_HALF_UP)
_MOST_SCALE = 18
_ALIKE = frozenset({"add", "subtract", "negate", "abs", "least", "greatest", "coalesce", "case"})
"""Functions whose result has as many digits after the point as the argument with the most."""
_INEXACT = frozenset({"add", "subtract", "multiply"})
"""Functions whose results differ between DOUBLE and DECIMAL."""
_WHOLE = frozenset({"round", "floor", "ceil", "trunc"})
_SHORTER = frozenset({"round_digits", "trunc_digits", "round_even"})


def to_decimal(value: float, digits: tuple[int, int]) -> Decimal:
    """Return a DOUBLE as a DECIMAL of the given digits; larger and infinite values become the largest DECIMAL.

    >>> to_decimal(0.1 + 0.2, (38, 2)), to_decimal(-float("inf"), (3, 1))
    (Decimal('0.30'), Decimal('-99.9'))
    """
    last = Decimal(1).scaleb(-digits[1])
    most = Decimal(10 ** digits[0] - 1) * last
    exact = Decimal(value)
    return max(-most, min(most, exact)).quantize(last, context=_CONTEXT)


def find_scale(expr: Expr) -> int | None:
    """Return the number of digits after the point of a DECIMAL or whole number in the engine; None for other types.

    A constant with a point counts as DECIMAL, as it is written without an exponent nearly always.

    A DECIMAL with s digits after the point is m / 10^s for a whole number m.
    """
    return _ScaleDerivation().find_scale(expr)


def find_decimal_digits(expr: Expr) -> tuple[int, int] | None:
    """Find the digits of the DECIMAL that a value is in the engine, all of them and those after the point.

    None where it is another type, and where it is DECIMAL by constants alone: `COUNT(*) * 1.5` is a DOUBLE here. A computed
    value has 38 digits, of which it may not use all.
    """
    digits = find_scale(expr) if expr.type is Type.DOUBLE else None
    if digits is None:
        return None
    match expr:
        case Column():
            return parse_decimal_type(expr.facts.engine_type) or expr.facts.decimal
        case ReleasedColumn():
            return expr.decimal
        case _:
            return (MOST_DIGITS, digits) if any(map(_is_decimal, walk(expr))) else None


def _is_decimal(part: Expr) -> bool:
    match part:
        case Column() | ReleasedColumn():
            return find_decimal_digits(part) is not None
        case Scalar():
            return find_decimal_digits(part.outer.outputs[0].expr) is not None
        case Call():
            return part.function.name == "cast_decimal"
        case _:
            return False


def is_inexact(expr: Expr) -> bool:
    """Return whether a DECIMAL with digits after the point is computed, which DOUBLE may have a few units in the last place off."""
    digits = _ScaleDerivation()
    return expr.type is Type.DOUBLE and bool(digits.find_scale(expr)) and digits.is_inexact(expr)


def find_unrounded(expr: Expr) -> Expr | None:
    """Return the value that `sql.lower.number_types` rounded to the digits of a DECIMAL; None for other expressions."""
    return _ScaleDerivation().find_unrounded(expr)


class _ScaleDerivation:
    """Find the digits of each part of an expression, each once, however often it is shared."""

    def __init__(self) -> None:
        self._found: dict[int, int | None] = {}  # by identity: facts about columns are not compared

    def find_scale(self, expr: Expr) -> int | None:
        """Return the scale, as the function of this name."""
        if expr.type in (Type.INTEGER, Type.NULL):
            return 0
        if expr.type is not Type.DOUBLE:
            return None
        if id(expr) not in self._found:
            found = self._derive_scale(expr)
            self._found[id(expr)] = found if found is not None and found <= _MOST_SCALE else None
        return self._found[id(expr)]

    def is_inexact(self, expr: Expr) -> bool:
        """Return whether arithmetic on decimals is behind a value, and has not been rounded to their digits since."""
        match expr:
            case Column():
                return expr.facts.inexact
            case Call():
                if expr.function.name == "divide" and self.find_scale(expr) is not None:
                    return False  # whole numbers are divided, which rounds once
                inexact = expr.function.name in _INEXACT and not all(
                    isinstance(part, (Call, Literal))
                    for part in walk(expr)  # the engine computes decimals before it converts
                )
                return inexact or any(map(self.is_inexact, expr.arguments))
            case _:
                return False

    def find_unrounded(self, expr: Expr) -> Expr | None:
        """Return the unrounded value, as the function of this name."""
        found = self._match_rounding(expr)
        if found is None:
            return None
        inner, own, digits = found
        return inner if own == digits else None

    def _derive_scale(self, expr: Expr) -> int | None:
        match expr:
            case Column():
                stored = parse_decimal_type(expr.facts.engine_type)
                return expr.facts.scale if stored is None else stored[1]
            case ReleasedColumn():
                return None if expr.decimal is None else expr.decimal[1]
            case Scalar():
                return find_scale(expr.outer.outputs[0].expr)
            case Literal(value=float() as value) if math.isfinite(value) and "e" not in repr(value):
                return max(-int(Decimal(repr(value)).normalize().as_tuple().exponent), 0)
            case WindowCall() if OVER[expr.function].keeps_scale:
                values = (argument for place, argument in enumerate(expr.arguments) if place != 1)
                return _combine_scales(map(self.find_scale, values))
            case Call():
                return self._derive_call_scale(expr)
            case _:
                return None

    def _derive_call_scale(self, expr: Call) -> int | None:
        name, arguments = expr.function.name, expr.arguments
        match name:
            case "cast_decimal":
                return _find_integer(arguments[2])
            case "divide":
                inner = self.find_unrounded(expr)
                return self._derive_quotient_scale(expr) if inner is None else self.find_scale(inner)
            case "nullif":
                return self.find_scale(arguments[0])
            case _ if name in _WHOLE:
                return None if self.find_scale(arguments[0]) is None else 0
            case _ if name in _SHORTER:
                own, digits = self.find_scale(arguments[0]), _find_integer(arguments[1])
                return None if own is None or digits is None else max(0, min(own, digits))
            case _ if name == "multiply" or name in _ALIKE:
                scales = [
                    self.find_scale(argument) for argument in arguments if argument.type is not Type.BOOLEAN
                ]
                return _combine_scales(scales, sum if name == "multiply" else max)
            case _:
                return None

    def _match_rounding(self, expr: Expr) -> tuple[Expr, int, int] | None:
        """Return the x of ROUND(x * 10^s) / 10^d, with s, its own digits, and d."""
        name, divided = _split_call(expr)
        if name != "divide":
            return None
        name, rounded = _split_call(divided[0])
        name, product = _split_call(rounded[0]) if name == "round" else ("", ())
        name, cast = _split_call(product[0]) if name == "multiply" else ("", ())
        if name != "cast_double":
            return None
        own, digits = _find_power_of_ten(product[1]), _find_power_of_ten(divided[1])
        if own is None or digits is None or own != self.find_scale(cast[0]):
            return None
        return cast[0], own, digits

    def _derive_quotient_scale(self, expr: Call) -> int | None:
        """Return the number of digits to which `sql.lower.number_types` rounded a quotient or remainder; None for others."""
        name, inner = _split_call(expr.arguments[0])
        digits = _find_power_of_ten(expr.arguments[1])
        if not inner or not digits:
            return None
        if name == "remainder":
            name, product = _split_call(inner[0])
            made = name == "round" and _split_call(product[0])[1][1:] == (expr.arguments[1],)
            return digits if made else None
        found = self._match_rounding(inner[0])
        return digits if found is not None and found[1] == found[2] + digits else None


def _find_power_of_ten(expr: Expr) -> int | None:
    """Find the exponent of a power of ten."""
    value = _find_integer(expr)
    digits = 0 if value is None else len(str(value)) - 1
    return digits if value == 10**digits else None


def _split_call(expr: Expr) -> tuple[str, tuple[Expr, ...]]:
    return (expr.function.name, expr.arguments) if isinstance(expr, Call) else ("", ())


def _combine_scales(
    scales: Iterable[int | None], combine: Callable[[Iterable[int]], int] = max
) -> int | None:
    """Return the largest of some numbers of digits, or their sum; None where one is not known."""
    digits = list(scales)
    known = [found for found in digits if found is not None]
    return combine(known) if known and len(known) == len(digits) else None


def _find_integer(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, Literal) and type(expr.value) is int else None


# Bits of whole numbers in DuckDB; dpsql computes with 64.


WIDE = 64
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32}
_CASTS = {f"cast_{name.lower()}": size for name, size in _BITS.items()}
_COUNTS = {"sign": 8, "bit_count": 8}
"""Functions whose result type does not depend on their arguments."""
_FIRST = frozenset(("negate", "abs", "bit_not", "nullif"))
"""Functions whose results have the type of their first argument."""
_WIDEST = frozenset(
    ("add", "subtract", "multiply", "quotient", "quotient_by", "remainder", "remainder_by", "bit_and", "bit_or", "bit_xor",
     "shift_left", "shift_right", "coalesce", "greatest", "least")
)  # fmt: skip
"""Functions whose results have the widest type of their arguments."""


def derive_bits(expr: Expr) -> int:
    """Return the number of bits of a whole number in DuckDB; 64 if fewer are not known.

    Claim: an INTEGER expression has as many bits as the type that DuckDB gives it, of signed types of up to 64 bits.
    Why: arithmetic and choices have the widest type of their arguments; an untyped constant takes the type of what it stands
    beside, where its value fits, and else INTEGER or BIGINT.
    Source: DuckDB's documentation, "Numeric types" and "Typecasting", on combination casting and integer literals.
    """
    if isinstance(expr, Column):
        return _BITS.get(expr.facts.engine_type, expr.facts.bits)
    if _find_constant(expr) is not None:
        return _combine_bits([expr])
    if not isinstance(expr, Call) or expr.type is not Type.INTEGER:
        return WIDE
    name = expr.function.name
    if name in _FIRST:
        return _combine_bits(expr.arguments[:1])
    if name in _WIDEST:
        return _combine_bits(expr.arguments)
    if name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        return _combine_bits([*(value for _, value in branches), otherwise])
    return _CASTS.get(name) or _COUNTS.get(name) or WIDE


def _combine_bits(exprs: Sequence[Expr]) -> int:
    """Return the bits of the type that several numbers are cast to; NULL has any."""
    given = [expr for expr in exprs if not is_null(expr)]
    constants = [value for expr in given if (value := _find_constant(expr)) is not None]
    least = max((derive_bits(expr) for expr in given if _find_constant(expr) is None), default=0)
    beyond = [
        value for value in constants if not least or not -(2 ** (least - 1)) <= value < 2 ** (least - 1)
    ]
    return max(least, *(32 if abs(value) < 2**31 else WIDE for value in beyond)) if beyond else least or WIDE


def _find_constant(expr: Expr) -> int | None:
    """Find the value of an untyped constant, with its sign."""
    if isinstance(expr, Call) and expr.function.name == "negate":
        value = _find_constant(expr.arguments[0])
        return None if value is None else -value
    if isinstance(expr, Literal) and expr.type is Type.INTEGER and isinstance(expr.value, int):
        return expr.value
    return None


# FLOAT expressions of the engine, with 32 bits, which dpsql reads as DOUBLE.


ROUNDED = frozenset({"add", "subtract", "multiply", "divide", "round_digits", "trunc_digits", "round_even"})
"""Functions whose FLOAT result is their DOUBLE result, rounded to FLOAT."""
_FLOAT_ALIKE = frozenset(
    {
        *("negate", "abs", "round", "floor", "ceil", "trunc", "remainder"),
        *("least", "greatest", "coalesce", "case"),
    }
)
"""Further functions that return FLOAT for FLOAT arguments, without rounding."""


def is_float(expr: Expr) -> bool:
    """Return whether the engine's value is a FLOAT, which includes results of `sql.lower.number_types`.

    Of FLOAT and whole numbers or DECIMAL the engine makes FLOAT, of FLOAT and DOUBLE it makes DOUBLE; so in comparisons.
    """
    if expr.type is not Type.DOUBLE:
        return False
    match expr:
        case Column():
            return expr.facts.float32
        case ReleasedColumn():
            return expr.float32
        case Scalar():
            return is_float(expr.outer.outputs[0].expr)
        case WindowCall():
            return OVER[expr.function].keeps_scale and expr.function != "sum" and is_float(expr.arguments[0])
        case Call():
            name = expr.function.name
            if name == "nullif":
                return is_float(expr.arguments[0])
            return name == "cast_float" or (
                name in _FLOAT_ALIKE and are_floats(list_typed_arguments(name, expr.arguments))
            )
        case _:
            return False


def list_typed_arguments(name: str, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
    """List the arguments of a call that are of one type in the engine: neither conditions nor numbers of digits."""
    if name in _SHORTER:
        return (arguments[0],)
    if name == "case":
        *cases, last = arguments
        return (*cases[1::2], last) if len(arguments) % 2 else tuple(arguments[1::2])
    return tuple(arguments)


def are_floats(arguments: Sequence[Expr]) -> bool:
    """Return whether the engine reads all of these as FLOAT where they stand together."""
    found = [is_float(argument) for argument in arguments]
    return any(found) and all(
        known or is_exact(argument) for known, argument in zip(found, arguments, strict=True)
    )


def is_exact(expr: Expr) -> bool:
    """Return whether the engine's value is a whole number, a DECIMAL or NULL, which becomes a FLOAT next to one."""
    return not _reads_double(expr) and (isinstance(expr, Literal) or find_scale(expr) is not None)


def _reads_double(expr: Expr) -> bool:
    """Return whether a constant with an exponent makes a value a DOUBLE; no constant does behind a cast to another type."""
    pending, visited = [expr], set[int]()  # parts may be shared
    while pending:
        part = pending.pop()
        if part.type is not Type.DOUBLE or id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, Literal) and not part.exact:
            return True
        if isinstance(part, WindowCall) or (isinstance(part, Call) and part.function.name != "cast_decimal"):
            pending += part.arguments
    return False


def find_nearest_float(value: float) -> float | None:
    """Return the FLOAT nearest to a number; None where that is infinite.

    >>> find_nearest_float(0.1), find_nearest_float(1e39)
    (0.10000000149011612, None)
    """
    try:
        (found,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    return float(found)
