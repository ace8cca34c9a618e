"""Lower the calls of numbers as texts that translations of other dialects write, by the types of their arguments.

Claim: each becomes an expression of the function registry that writes a number as the dialect's format says.
Why: the number is rounded, halves away from zero, and written as a DECIMAL with as many digits after the point; all else are
functions of that text, which cannot fail.
Source: the manuals of PostgreSQL 17 (9.8), Spark 4 SQL, Snowflake, GoogleSQL and .NET ("Standard numeric format strings").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.functions import build_function_call
from dpsql.plan.types import Type
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.typed_dates import ScalarLowering
from dpsql.sql.parse.number_formats import NumberFormat
from dpsql.sql.parse.typed_calls import NUMBER_TEXT, PLAIN_TEXT

_MOST_DIGITS = 38
_PADDINGS = {"repeat": 0, "lpad": 2, "rpad": 2}
"""The functions that fill a text in, each with the place of what it fills in."""
MOST_FILLED = 1_000
"""The most letters that a computed number fills in."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """Build calls on texts at one node."""

    scalars: ScalarLowering
    node: exp.Expr

    def call(self, name: str, *arguments: Expr) -> Expr:
        """Build the typed call of a function."""
        return self.scalars.build_call(self.node, name, *arguments)

    def choose(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        """Build CASE WHEN condition THEN yes ELSE no END."""
        return self.call("case", condition, yes, no)

    def join(self, *parts: Expr) -> Expr:
        """Join texts."""
        found, *rest = parts
        for part in rest:
            found = self.call("||", found, part)
        return found

    def write_whole(self, whole: Expr, form: NumberFormat) -> Expr:
        """Write the digits before the point, with zeros before them and commas between thousands."""
        if form.least_digits > 1:
            short = self.call("lt", self.call("length", whole), _number(form.least_digits))
            whole = self.choose(
                short, self.call("lpad", whole, _number(form.least_digits), _text("0")), whole
            )
        elif not form.least_digits and (form.decimals or form.omits_zero):
            whole = self.choose(self.call("eq", whole, _text("0")), _text(""), whole)
        if form.is_grouped:
            back = self.call("reverse", whole)
            marked = self.call("regexp_replace", back, _text("([0-9]{3})"), _text("\\1,"), _text("g"))
            whole = self.call("ltrim", self.call("reverse", marked), _text(","))
        return whole

    def write_fraction(self, fraction: Expr, form: NumberFormat) -> Expr:
        """Write the point and the digits after it; those at the end that are 0 are left out where the format says so."""
        if not form.drops_zeros:
            return self.join(_text("."), fraction)
        digits = self.call("rtrim", fraction, _text("0"))
        if form.keeps_point:
            return self.join(_text("."), digits)
        return self.choose(self.call("eq", digits, _text("")), _text(""), self.join(_text("."), digits))


def _number(value: int) -> Literal:
    return Literal(value, Type.INTEGER)


def _text(value: str) -> Literal:
    return Literal(value, Type.VARCHAR)


def _lower_number_text(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower a number as a text in a constant format."""
    write, form = _Writer(scalars, node), NumberFormat.parse(items[1].name)
    value = scalars.lower(items[0])
    if value.type is Type.NULL:
        return Literal(None, Type.VARCHAR)
    if value.type not in (Type.INTEGER, Type.DOUBLE) or (form.takes_whole and value.type is not Type.INTEGER):
        scalars.source.refuse(
            node,
            "type",
            f"a format of {'whole ' if form.takes_whole else ''}numbers does not take {value.type}",
            "convert with CAST(… AS …)",
        )
    scaled = write.call("*", value, _number(100)) if form.is_percent else value
    exact = write.call("cast_double", scaled)
    if form.halves_to_even:
        exact = write.call("round_even", exact, _number(form.decimals))
    digits = build_function_call(
        "cast_varchar decimal", write.call("abs", exact), _number(_MOST_DIGITS), _number(form.decimals)
    )
    if digits is None:
        raise TypeError("a DOUBLE is written as a DECIMAL")
    whole = write.call("split_part", digits, _text("."), _number(1))
    fraction = write.call("split_part", digits, _text("."), _number(2))
    found = write.write_whole(whole, form)
    if form.drops_zeros and form.keeps_point and not form.least_digits:  # 0 alone keeps its digit
        is_zero = write.call("regexp_full_match", digits, _text("[0.]*"))
        found = write.choose(is_zero, _text("0"), found)
    if form.decimals:
        found = write.join(found, write.write_fraction(fraction, form))
    if form.most_digits:
        over = write.call("gt", write.call("length", whole), _number(form.most_digits))
        is_zero = write.call("eq", whole, _text("0"))
        found = write.choose(write.call("and", over, write.call("not", is_zero)), _text(form.overflow), found)
    negative = write.call("lt", exact, Literal(0.0, Type.DOUBLE))
    if not form.signs_zero:
        zero = write.call("regexp_full_match", digits, _text("[0.]*"))
        negative = write.call("and", negative, write.call("not", zero))
    found = write.choose(negative, write.join(_text("-"), found), found)
    if form.width:
        short = write.call("lt", write.call("length", found), _number(form.width))
        name = "rpad" if form.is_left else "lpad"
        found = write.choose(short, write.call(name, found, _number(form.width), _text(" ")), found)
    return found


def _lower_plain_text(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower a value of %s: a text, a whole number or a day, which every dialect writes alike."""
    value, allowed = scalars.lower(items[0]), items[1].name
    kinds = (
        {Type.VARCHAR, Type.NULL} if allowed == "text" else {Type.VARCHAR, Type.NULL, Type.INTEGER, Type.DATE}
    )
    if value.type not in kinds:
        scalars.source.refuse(
            node,
            "type",
            f"%s does not take {value.type} here",
            "write %d or %.2f for numbers, or CAST(x AS VARCHAR)",
        )
    return (
        value if value.type in (Type.VARCHAR, Type.NULL) else scalars.build_call(node, "cast_varchar", value)
    )


# Texts that are filled up to a computed number of letters.


def lower_padding(scalars: ScalarLowering, node: exp.Expr, name: str, given: list[Expr]) -> Expr | None:
    """Lower REPEAT, LPAD and RPAD of a computed number; None for constants and for other arguments.

    Claim: the text is DuckDB's where the text that is filled in is a constant and at most `MOST_FILLED` letters of it are needed;
    beyond, it is NULL.
    Why: a part of a constant of that length cannot fail, and has a bound.
    """
    if name not in _PADDINGS or len(given) != max(_PADDINGS[name] + 1, 2):
        return None
    write, arguments = _Writer(scalars, node), [fold_constant(scalars.source, node, each) for each in given]
    if isinstance(arguments[1], Literal):
        return None
    filling = arguments[_PADDINGS[name]]
    unit = filling.value if isinstance(filling, Literal) else None
    if not isinstance(unit, str) or not unit or arguments[1].type is not Type.INTEGER:
        return None
    letters = _text(
        (unit * MOST_FILLED)[: MOST_FILLED // len(unit) * len(unit) if name == "repeat" else MOST_FILLED]
    )
    if name == "repeat":
        wanted, limit = write.call("*", arguments[1], _number(len(unit))), _number(len(str(letters.value)))
        return write.call(
            "case",
            write.call("lt", arguments[1], _number(0)), _text(""),
            write.call("le", wanted, limit), write.call("left", letters, wanted),
            Literal(None, Type.NULL),
        )  # fmt: skip
    text, length = arguments[:2]
    if text.type is not Type.VARCHAR:
        return None
    missing = write.call("-", length, write.call("length", text))
    filled = write.call("left", letters, missing)
    return write.call(
        "case",
        write.call("lt", length, _number(0)), _text(""),
        write.call("le", missing, _number(0)), write.call("left", text, length),
        write.call("le", missing, _number(MOST_FILLED)), write.join(*((filled, text) if name == "lpad" else (text, filled))),
        Literal(None, Type.NULL),
    )  # fmt: skip


TEXT_LOWERINGS: Mapping[str, Callable[[ScalarLowering, exp.Expr, list[exp.Expr]], Expr]] = {
    NUMBER_TEXT: _lower_number_text,
    PLAIN_TEXT: _lower_plain_text,
}
