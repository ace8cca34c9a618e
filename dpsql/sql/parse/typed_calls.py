"""Calls that the translation of another dialect writes, whose meaning depends on the types of their arguments.

A tree has no types, so a translation cannot decide whether `/` divides whole numbers. It writes a call with a reserved name, which
`dpsql.sql.lower.typed_calls` turns into functions of the registry when the arguments are lowered.
"""

from __future__ import annotations

from sqlglot import exp

PREFIX = "dpsql_as_"
"""How the reserved names begin; a query that calls such a function itself is refused."""

QUOTIENT = f"{PREFIX}quotient"
"""x / y, which is a whole number if both are."""
MEAN = f"{PREFIX}mean"
"""AVG(x), which is a whole number if x is."""
POWER = f"{PREFIX}power"
"""POWER(x, y), which is a whole number if x is."""
SUM_OR_TEXT = f"{PREFIX}sum_or_text"
"""x + y, which joins texts."""
FIRST_TYPE = f"{PREFIX}first_type"
"""ISNULL(x, y), which has the type of x."""
TRUNCATED = f"{PREFIX}truncated"
"""A number before a cast to a whole number that discards the digits after the point."""
ROUNDED = f"{PREFIX}rounded"
"""A number before a cast to a whole number that rounds halves away from zero."""
HALF_EVEN = f"{PREFIX}half_even"
"""ROUND(x), which rounds halves of binary numbers to even."""
TEXT = f"{PREFIX}text"
"""A value as a text, as a dialect writes it; the second argument is the dialect."""
PART = f"{PREFIX}part"
"""A value as a part of a joined text in PostgreSQL; of CONCAT if the second argument is true."""
MOVED = f"{PREFIX}moved"
"""A date or moment some units later, which stays a date; the first argument is the unit, the last the number of units."""
CUT = f"{PREFIX}cut"
"""The first day of a unit, which is a date of a date; the first argument is the unit."""
ELAPSED = f"{PREFIX}elapsed"
"""A part of the length of time x - y; the first argument is the part."""
AGE = f"{PREFIX}age"
"""A part of AGE(x, y), which counts whole years, months and days; the first argument is the part."""
WEEK_CUT = f"{PREFIX}week_cut"
"""The first day of a week, which is a date of a date; the first argument is the day on which weeks begin, 0 for Monday."""
WEEKS = f"{PREFIX}weeks"
"""The number of beginnings of weeks between x and y; the first argument is the day on which weeks begin."""
WEEK_NUMBER = f"{PREFIX}week_number"
"""The number of a week in its year; the arguments are the day on which weeks begin, what is added before 7 divides, the moment."""
MONTHS = f"{PREFIX}months"
"""The number of whole spans of n months between x and y, toward zero; the first argument is n."""
BINNED = f"{PREFIX}binned"
"""The beginning of a moment's bin; the arguments are the unit, the number of units, the moment, the origin, and whether a date stays one."""
MONTHS_BETWEEN = f"{PREFIX}months_between"
"""The months between x and y with a fraction of 31 days; the first argument is whether the number is rounded to 8 digits."""
OVERLAPPING = f"{PREFIX}overlapping"
"""Whether two spans of time overlap, each given by its ends in any order."""
NUMBER_TEXT = f"{PREFIX}number_text"
"""A number as a text in a format; see `dpsql.sql.parse.number_formats`."""
PLAIN_TEXT = f"{PREFIX}plain_text"
"""A value of %s as a text; the second argument says which types are allowed."""
NAMES = frozenset(
    {
        QUOTIENT, MEAN, POWER, SUM_OR_TEXT, FIRST_TYPE, TRUNCATED, ROUNDED, HALF_EVEN, TEXT, PART, MOVED, CUT, ELAPSED, AGE,
        WEEK_CUT, WEEKS, WEEK_NUMBER, MONTHS, BINNED, MONTHS_BETWEEN, OVERLAPPING,
        NUMBER_TEXT, PLAIN_TEXT,
    }
)  # fmt: skip


def build_call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Build a call with its name as it is written."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def is_typed_call(node: exp.Expr, name: str = "") -> bool:
    """Return whether a node is a call that only a translation writes, of this name or of any."""
    called = node.args.get("this") if type(node) is exp.Anonymous else None
    return isinstance(called, str) and (called == name if name else called in NAMES)
