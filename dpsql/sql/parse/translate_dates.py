"""Translate parts, lengths, formats and arithmetic of dates and moments from other dialects."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.date_formats import EXPRESSION, STYLES, translate_format
from dpsql.sql.parse.dialect import is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.equivalents import build_equivalent
from dpsql.sql.parse.translate_types import NUMERIC, parse_span, translate_convert
from dpsql.sql.parse.translate_weeks import build_week_cut, build_week_number, build_weeks, find_week_start
from dpsql.sql.parse.typed_calls import AGE, CUT, ELAPSED, MONTHS, MOVED, build_call

_LARGE = ("year", "quarter", "month", "day")
_SMALL = ("hour", "minute")
_OF_DATES = (
    exp.Year, exp.Month, exp.Day, exp.DayOfYear, exp.DateDiff, exp.TimestampDiff, exp.LastDay, exp.DayOfWeek, exp.WeekOfYear, exp.TimeToStr,
)  # fmt: skip
"""Functions whose argument some parsers wrap in a conversion."""
_ISO = {"week": "week", "doy": "doy", "isodow": "isodow", "isoyear": "isoyear"}
_SUNDAY_IS_ZERO = {**_ISO, "dow": "dow"}
_PARTS: Mapping[str, Mapping[str, str]] = {
    "postgres": {
        **_SUNDAY_IS_ZERO,
        **{name: name for name in ("century", "decade", "millennium", "epoch")},
        "microseconds": "microsecond",
    },
    "snowflake": {
        **_SUNDAY_IS_ZERO, "dayofweek": "dow", "dayofyear": "doy", "dayofweekiso": "isodow", "dayofweek_iso": "isodow",
        "weekiso": "week", "week_iso": "week", "weekofyear": "week", "yearofweekiso": "isoyear", "second": "second",
    },
    "bigquery": {"isoweek": "week", "isoyear": "isoyear", "dayofyear": "doy", "second": "second", "dayofweek": "dow + 1"},
    "spark": {
        **_ISO, "dow": "dow + 1", "dayofweek": "dow + 1", "dow_iso": "isodow", "dayofweek_iso": "isodow",
        "yearofweek": "isoyear", "dayofyear": "doy",
    },
    "tsql": {
        "dayofyear": "doy", "doy": "doy", "weekday": "dow + 1", "dayofweek": "dow + 1", "dow": "dow + 1", "weekiso": "week",
        "iso_week": "week", "second": "second", "yy": "year", "yyyy": "year", "mm": "month", "dd": "day",
    },
}  # fmt: skip
"""The part of DuckDB's for each part of a dialect, beside those that all have."""
_DATE_PARTS = ("year", "month", "day")
_CALENDAR = ("year", "month")
_CLOCK = ("epoch", "day", "hour", "minute", "second")
_CUT_WEEKS = frozenset({"bigquery", "tsql"})
"""The dialects in which other units of weeks than Monday's are known."""
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_FIRST_DAY = dt.date(1900, 1, 1)
"""The day 0 of T-SQL."""
_FORMATTED = "a format that is made of years, months, days, hours, minutes and seconds"


def get_unit(self: DialectText, node: exp.Expr, unit: exp.Expr | None, known: tuple[str, ...]) -> str:
    """Return the unit of time that a node names. Raises QueryRejected for one that differs from DuckDB's."""
    name = "day" if unit is None else normalize_name(unit.name)
    name = {"dayofyear": "doy", "mm": "month", "mon": "month", "yyyy": "year", "yy": "year", "dd": "day"}.get(
        name, name
    )
    if name not in known:
        self.refuse_in_dialect(
            node, "constant", f"the unit {name} differs from DuckDB's", f"use one of {', '.join(known)}"
        )
    return name


def translate_extract(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate EXTRACT and DATE_PART, with the dialect's numbers for days of the week."""
    unit, operand = normalize_name(node.this.name), node.expression
    week = build_week_number(self, node.this, operand)
    if week is not None:
        return week
    made = _translate_length_part(self, node, unit, operand)
    if made is None:
        made = _translate_part(self, node, unit, operand)
    if self.dialect == "postgres":
        made.meta[NUMERIC] = True
    return made


def _translate_part(self: DialectText, node: exp.Expr, unit: str, operand: exp.Expr) -> exp.Expr:
    if self.dialect == "postgres" and unit in ("second", "milliseconds"):
        factor = exp.Literal.number(1_000_000 if unit == "second" else 1_000)
        return exp.Paren(this=exp.Div(this=build_part("microsecond", operand), expression=factor))
    if self.dialect == "bigquery" and unit == "date":
        return exp.Cast(this=operand, to=exp.DataType(this=exp.DType.DATE, nested=False))
    known = {**dict.fromkeys((*_LARGE, *_SMALL), ""), **_PARTS[self.dialect]}
    if unit not in known:
        self.refuse_in_dialect(
            node, "constant", f"the part {unit} differs from DuckDB's", f"use one of {', '.join(known)}"
        )
    part, _, shift = (known[unit] or unit).partition(" + ")
    found = build_part(part, operand)
    return exp.Paren(this=exp.Add(this=found, expression=exp.Literal.number(int(shift)))) if shift else found


def build_part(part: str, operand: exp.Expr) -> exp.Expr:
    """Build a part of a date or moment, as DuckDB's function of that name where it has one."""
    if part in ("isodow", "dow", "doy"):
        return build_call({"dow": "dayofweek", "doy": "dayofyear"}.get(part, part), operand)
    return build_call(part, operand)


def _translate_length_part(
    self: DialectText, node: exp.Expr, unit: str, operand: exp.Expr
) -> exp.Expr | None:
    """Translate a part of t - u and of AGE(t, u) in PostgreSQL; None for other operands."""
    if self.dialect != "postgres":
        return None
    inner = operand.unnest() if isinstance(operand, exp.Paren) else operand
    if isinstance(inner, exp.Sub) and not isinstance(inner.expression, exp.Interval) and unit in _CLOCK:
        return build_call(ELAPSED, exp.Literal.string(unit), inner.this, inner.expression)
    if isinstance(inner, exp.Anonymous) and inner.this.lower() == "age":
        if unit not in _CALENDAR:
            self.refuse_in_dialect(
                node,
                "constant",
                f"the part {unit} of AGE is not supported",
                "write EXTRACT(YEAR FROM AGE(t, u)) for years, t::date - u::date for days",
            )
        return build_call(AGE, exp.Literal.string(unit), *inner.expressions)
    return None


def translate_age(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Keep AGE(t, u) where a part of it is extracted; AGE(u) counts to the present day."""
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    items = node.expressions
    if not isinstance(around, exp.Extract) or len(items) not in (1, 2):
        self.refuse_in_dialect(
            node,
            "function",
            "AGE is a length of time of years, months and days",
            "write EXTRACT(YEAR FROM AGE(t, u)) for years, t::date - u::date for days",
        )
    return build_call("age", *(items if len(items) == 2 else [exp.CurrentDate(), items[0]]))


def translate_date_truncation(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DATE_TRUNC; a week begins on the dialect's day."""
    unit = node.args.get("unit")
    start = find_week_start(self, unit)
    if start is not None and (start or self.dialect in _CUT_WEEKS):
        return build_week_cut(start, node.this)
    name = "week" if start is not None else get_unit(self, node, unit, (*_LARGE, *_SMALL))
    if self.dialect == "spark" and isinstance(node, exp.DateTrunc):
        return cast_to_date(build_call("date_trunc", exp.Literal.string(name), node.this))
    is_kept = self.dialect in ("tsql", "snowflake", "bigquery")
    return build_call(CUT if is_kept else "date_trunc", exp.Literal.string(name), node.this)


def translate_date_difference(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DATEDIFF, the number of boundaries of a unit between two moments; in Spark with a unit, of whole units."""
    unit = node.args.get("unit")
    if self.dialect == "spark" and unit is not None:
        return translate_whole_units(self, node)
    later, earlier = (read_moment(self, side) for side in (node.this, node.expression))
    start = find_week_start(self, unit)
    if start is not None:
        return build_weeks(start, *map(_read_constant_moment, (later, earlier)))
    known = (
        (*_LARGE, *_SMALL, "second")
        if self.dialect in ("tsql", "snowflake", "bigquery")
        else (*_LARGE, *_SMALL)
    )
    name = get_unit(self, node, unit, known)
    return build_call("date_diff", exp.Literal.string(name), earlier, later)


def translate_whole_units(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate TIMESTAMP_DIFF of BigQuery and TIMESTAMPDIFF of Spark, the number of whole units between two moments."""
    is_spark = self.dialect == "spark"
    known = (*_MONTHS, "week", "day", *_SMALL, "second") if is_spark else ("day", *_SMALL, "second")
    unit = get_unit(self, node, node.args.get("unit"), known)
    if unit in _MONTHS:
        return build_call(MONTHS, exp.Literal.number(_MONTHS[unit]), node.this, node.expression)
    found = build_call(
        "date_sub", exp.Literal.string("day" if unit == "week" else unit), node.expression, node.this
    )
    if unit != "week":
        return found
    return exp.Paren(this=exp.IntDiv(this=found, expression=exp.Literal.number(7)))


def _read_constant_moment(node: exp.Expr) -> exp.Expr:
    """Return a constant text as the moment that it is."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        return node
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.TIMESTAMP, nested=False))


def read_moment(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Return a moment; in T-SQL a whole number counts days since 1900-01-01."""
    sign, inner = 1, node
    while isinstance(inner, (exp.Paren, exp.Neg)):
        sign, inner = (-sign if isinstance(inner, exp.Neg) else sign), inner.this
    if self.dialect != "tsql" or not is_whole_number(inner):
        return node
    try:
        day = _FIRST_DAY + dt.timedelta(days=sign * int(inner.name))
    except OverflowError:
        self.refuse_in_dialect(node, "constant", "there is no such day", "write CAST('2026-01-31' AS DATE)")
    return exp.Cast(
        this=exp.Literal.string(day.isoformat()), to=exp.DataType(this=exp.DType.TIMESTAMP, nested=False)
    )


def translate_date_addition(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DATEADD and its like to the sum of a moment and an INTERVAL."""
    unit = get_unit(self, node, node.args.get("unit"), (*_LARGE, "week", *_SMALL, "second"))
    count, back = node.expression, isinstance(node, (exp.DateSub, exp.DatetimeSub, exp.TimestampSub))
    # The parser writes Spark's DATE_SUB(d, n) as the sum of d and n * -1.
    if (
        isinstance(node, exp.TsOrDsAdd)
        and isinstance(count, exp.Mul)
        and isinstance(count.expression, exp.Neg)
    ):
        count, back = count.this, True
    if isinstance(count, exp.Literal) and is_whole_number(exp.Literal.number(count.name)):
        count = exp.Literal.number(count.name)
    moment = cast_to_date(node.this) if isinstance(node, exp.TsOrDsAdd) else read_moment(self, node.this)
    if self.dialect == "tsql" and (cut := _find_cut(unit, moment, count)) is not None:
        return cut
    return build_call(
        MOVED, exp.Literal.string(unit), moment, exp.Neg(this=exp.Paren(this=count)) if back else count
    )


def _find_cut(unit: str, moment: exp.Expr, count: exp.Expr) -> exp.Expr | None:
    """Return DATEADD(u, DATEDIFF(u, 0, x), 0) of T-SQL as the beginning of the unit that it is; None for other sums.

    Why: a unit that begins at midnight of 1900-01-01 is moved by whole units from there.
    """
    inner = count.unnest()
    if not isinstance(inner, exp.Anonymous) or inner.this != "date_diff" or unit not in (*_LARGE, *_SMALL):
        return None
    named, origin, later = inner.expressions
    first = _FIRST_DAY.isoformat()
    days = [each.this if isinstance(each, exp.Cast) else each for each in (origin, moment)]
    if named.name != unit or not all(isinstance(each, exp.Literal) and each.name == first for each in days):
        return None
    return exp.Cast(
        this=build_call("date_trunc", named, later), to=exp.DataType(this=exp.DType.TIMESTAMP, nested=False)
    )


def translate_time_zone(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate AT TIME ZONE: of an instant the local time; BigQuery's takes an instant always."""
    if self.dialect == "bigquery":
        instant = exp.Cast(this=node.this, to=exp.DataType(this=exp.DType.TIMESTAMPTZ, nested=False))
        return build_call("timezone", node.args["zone"], instant)
    if self.dialect not in ("postgres", "tsql"):
        self.refuse_unknown(node)
    return node


def translate_add_months(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ADD_MONTHS of Spark, a date; Snowflake's keeps the end of a month, and is refused."""
    if self.dialect != "spark":
        self.refuse_in_dialect(
            node, "function", "ADD_MONTHS keeps the last day of a month", "write DATEADD(month, n, d)"
        )
    span = exp.Interval(this=exp.Paren(this=node.expression), unit=exp.Var(this="MONTH"))
    moved = exp.Add(this=exp.Paren(this=node.this), expression=span)
    return exp.Cast(this=exp.Paren(this=moved), to=exp.DataType(this=exp.DType.DATE, nested=False))


def translate_to_date(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Return a conversion that the parser puts around a date, and TO_DATE without a format."""
    inner: exp.Expr = node.this
    if isinstance(node.parent, exp.DateAdd) and self.dialect == "tsql":  # of EOMONTH(d, n)
        return inner
    if isinstance(node.parent, (*_OF_DATES, exp.Anonymous)) and self.dialect in ("spark", "tsql", "bigquery"):
        return inner
    if self.dialect not in ("spark", "snowflake") or isinstance(node, exp.TimeStrToTime):
        self.refuse_in_dialect(
            node,
            "function",
            "a conversion to a date reads other formats than DuckDB",
            "write CAST(x AS DATE)",
        )
    if self.dialect == "snowflake" and not isinstance(inner, exp.Column):
        self.refuse_in_dialect(
            node, "function", "TO_DATE guesses the format of a text", "write TO_DATE(x, 'YYYY-MM-DD')"
        )
    if self.dialect == "snowflake":
        self.refuse_in_dialect(node, "function", "TO_DATE guesses the format of a text", "write x::DATE")
    return cast_to_date(inner)


def cast_to_date(node: exp.Expr) -> exp.Cast:
    """Build the cast of a moment, or of a text such as 2026-01-31, to a date."""
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.DATE, nested=False))


def translate_date(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DATE(t), the day of a moment, and DATE(y, m, d)."""
    zone = node.args.get("zone")
    if zone is None:
        return cast_to_date(node.this)
    return build_equivalent(
        self, node, "CAST(TIMEZONE(_2, CAST(_1 AS TIMESTAMPTZ)) AS DATE)", node.this, zone
    )


def translate_name(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DAYNAME and MONTHNAME, three letters in Snowflake."""
    if self.dialect != "snowflake":
        self.refuse_in_dialect(node, "function", f"{node.key.upper()} depends on the session's language")
    return build_call(
        "strftime", node.this, exp.Literal.string("%a" if isinstance(node, exp.Dayname) else "%b")
    )


def translate_day_of_week(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DAYOFWEEK, in which Sunday is 0 in Snowflake and 1 in Spark."""
    found = build_call("dayofweek", node.this)
    if self.dialect == "snowflake":
        return found
    return exp.Paren(this=exp.Add(this=found, expression=exp.Literal.number(1)))


def translate_date_from_parts(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DATEFROMPARTS."""
    return build_date(self, node, [node.args[name] for name in _DATE_PARTS])


def build_date(self: DialectText, node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Build the date of a year, a month and a day; of constants the constant, which narrows keys as other constants do."""
    if len(parts) != len(_DATE_PARTS) or not all(map(is_whole_number, parts)):
        return build_call("make_date", *parts)
    try:
        day = dt.date(*(int(part.name) for part in parts))
    except (ValueError, OverflowError):
        self.refuse_in_dialect(node, "constant", "there is no such day", "write DATE '2026-01-31'")
    return cast_to_date(exp.Literal.string(day.isoformat()))


def translate_interval(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate INTERVAL '30 days' of PostgreSQL, whose unit is in the text."""
    if node.args.get("unit") is not None or not isinstance(node.this, exp.Literal):
        return node
    return parse_span(self, node, node.this)


def translate_make_interval(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate MAKE_INTERVAL of one unit by name."""
    given = [value for value in node.args.values() if value is not None]
    named = given[0] if len(given) == 1 else None
    units = {
        "years": "year",
        "months": "month",
        "weeks": "week",
        "days": "day",
        "hours": "hour",
        "mins": "minute",
        "secs": "second",
    }
    unit = units.get(normalize_name(named.this.name)) if isinstance(named, exp.Kwarg) else None
    if unit is None or named is None:
        self.refuse_in_dialect(
            node, "constant", "MAKE_INTERVAL takes one unit by its name", "write MAKE_INTERVAL(days => 30)"
        )
    count = named.expression
    count = count if isinstance(count, exp.Literal) else exp.Paren(this=count)
    return exp.Interval(this=count, unit=exp.Var(this=unit.upper()))


# Dates as texts, and texts as dates.


def _refuse_format(self: DialectText, node: exp.Expr, name: str) -> NoReturn:
    self.refuse_in_dialect(
        node,
        "constant",
        f"{name} needs a constant format of parts that are the same in DuckDB",
        f"write {_FORMATTED}, or EXTRACT(YEAR FROM x)",
    )


def translate_formatted(
    self: DialectText, node: exp.Expr, name: str, value: exp.Expr, text: exp.Expr
) -> exp.Expr:
    """Return a date as a text, in a constant format."""
    pieces = (
        translate_format(text.name, self.dialect)
        if isinstance(text, exp.Literal) and text.is_string
        else None
    )
    if pieces is None:
        _refuse_format(self, node, name)
    made = [
        build_equivalent(self, node, piece.removeprefix(EXPRESSION), value)
        if piece.startswith(EXPRESSION)
        else build_call("strftime", value.copy(), exp.Literal.string(piece))
        for piece in pieces
    ]
    found: exp.Expr = made[0]
    for part in made[1:]:
        found = exp.DPipe(this=found, expression=part, safe=True)
    return exp.Paren(this=found) if len(made) > 1 else found


def translate_parsed(
    self: DialectText, node: exp.Expr, name: str, value: exp.Expr, text: exp.Expr, *, date: bool
) -> exp.Expr:
    """Return a text as a date or moment, in a constant format; NULL where the text is formatted otherwise."""
    pieces = (
        translate_format(text.name, self.dialect)
        if isinstance(text, exp.Literal) and text.is_string
        else None
    )
    if pieces is None or len(pieces) != 1 or pieces[0].startswith(EXPRESSION):
        _refuse_format(self, node, name)
    if "%y" in pieces[0] and self.dialect != "bigquery":
        self.refuse_in_dialect(
            node,
            "constant",
            f"{name} reads a year of two digits in another century than DuckDB",
            "use a format and texts with years of four digits",
        )
    if isinstance(value, exp.Literal) and value.is_string:
        return _parse_constant(self, node, value, pieces[0], date=date)
    found = build_call("try_strptime", value, exp.Literal.string(pieces[0]))
    return cast_to_date(found) if date else found


def _parse_constant(self: DialectText, node: exp.Expr, value: exp.Expr, text: str, *, date: bool) -> exp.Expr:
    """Return the constant date or moment that a constant text means, which narrows keys as other constants do."""
    try:
        at = dt.datetime.strptime(value.name, text.replace("%-", "%"))  # noqa: DTZ007  (SQL timestamps have no zone)
    except ValueError:
        self.refuse_in_dialect(
            node, "constant", f"{value.name!r} has not the given format", "write DATE '2026-01-31'"
        )
    if date:
        return cast_to_date(exp.Literal.string(at.date().isoformat()))
    constant = exp.Literal.string(at.isoformat(sep=" "))
    return exp.Cast(this=constant, to=exp.DataType(this=exp.DType.TIMESTAMP, nested=False))


def translate_styled(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate CONVERT of T-SQL; a style is a format of a date as a text."""
    style, target = node.args.get("style"), node.this
    if style is None:
        return translate_convert(self, node)
    number = int(style.name) if is_whole_number(style) else -1
    if target.this not in (exp.DType.VARCHAR, exp.DType.NVARCHAR) or number not in STYLES:
        self.refuse_in_dialect(
            node,
            "constant",
            "CONVERT with this style is not supported",
            f"the styles of texts are {', '.join(map(str, sorted(STYLES)))}; else write CAST(x AS DATE)",
        )
    text = build_call("strftime", node.expression, exp.Literal.string(STYLES[number]))
    lengths = target.expressions
    return build_call("left", text, lengths[0].this) if lengths and is_whole_number(lengths[0].this) else text
