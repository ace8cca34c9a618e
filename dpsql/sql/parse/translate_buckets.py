"""Translate functions that put numbers and moments into buckets, and that relate spans of time, from other dialects."""

from __future__ import annotations

import datetime as dt

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.dialect import find_number, is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.equivalents import MOST_COPIED, build_equivalent
from dpsql.sql.parse.translate_types import parse_span
from dpsql.sql.parse.translate_weeks import build_week_cut, find_week_start
from dpsql.sql.parse.typed_calls import BINNED, MONTHS_BETWEEN, MOVED, OVERLAPPING, build_call

MOST_THRESHOLDS = 50
_FIXED = {"week": 7 * 86_400, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_ORIGIN = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)
_TSQL_ORIGIN = dt.datetime(1900, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)
_TSQL_UNITS = {"dd": "day", "d": "day", "wk": "week", "ww": "week", "mm": "month", "m": "month", "qq": "quarter", "q": "quarter",
               "yy": "year", "yyyy": "year", "hh": "hour", "mi": "minute", "n": "minute", "ss": "second", "s": "second"}  # fmt: skip
_DAYS = ("mo", "tu", "we", "th", "fr", "sa", "su")
_ENDS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


def _translate_thresholds(
    self: DialectText, node: exp.Expr, value: exp.Expr, listed: exp.Expr | None
) -> exp.Expr:
    """Return the number of ascending thresholds that a value reaches."""
    items = listed.expressions if isinstance(listed, exp.Array) else []
    ends = [find_number(item) for item in items]
    numbers = [end for end in ends if end is not None]
    if not items or len(numbers) < len(ends) or numbers != sorted(numbers) or len(items) > MOST_THRESHOLDS:
        self.refuse_in_dialect(
            node,
            "constant",
            f"the thresholds must be a list of up to {MOST_THRESHOLDS} constant numbers that ascend",
            "write CASE WHEN x < 18 THEN 0 WHEN x < 65 THEN 1 ELSE 2 END",
        )
    if sum(1 for _ in value.walk()) > MOST_COPIED:
        self.refuse_in_dialect(
            node, "too_long", "an expression this long cannot be translated: each threshold copies it"
        )
    copies = [exp.Paren(this=value.copy()) for _ in range(len(items) + 1)]
    ifs = [
        exp.If(this=exp.LT(this=copy, expression=item.copy()), true=exp.Literal.number(place))
        for place, (copy, item) in enumerate(zip(copies, items, strict=False))
    ]
    ifs.append(
        exp.If(
            this=exp.GTE(this=copies[-1], expression=items[-1].copy()), true=exp.Literal.number(len(items))
        )
    )
    return exp.Case(ifs=ifs)


def translate_range_bucket(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate RANGE_BUCKET of BigQuery."""
    return _translate_thresholds(self, node, node.this, node.expression)


def translate_threshold_bucket(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate WIDTH_BUCKET(x, ARRAY[…]) of PostgreSQL, which is RANGE_BUCKET."""
    return _translate_thresholds(self, node, node.this, node.args["threshold"])


# Moments in bins of equal length.


def _build_bin(unit: str, count: int, moment: exp.Expr, origin: dt.datetime, *, keeps_date: bool) -> exp.Expr:
    parts = (
        exp.Literal.string(unit),
        exp.Literal.number(count),
        moment,
        exp.Literal.string(origin.isoformat()),
    )
    return build_call(BINNED, *parts, exp.Boolean(this=keeps_date))


def _read_origin(self: DialectText, node: exp.Expr, origin: exp.Expr) -> dt.datetime:
    """Return the constant moment from which bins are counted."""
    inner = origin.this if isinstance(origin, exp.Cast) else origin
    try:
        return dt.datetime.fromisoformat(inner.name).replace(tzinfo=None)
    except ValueError:
        self.refuse_in_dialect(
            node,
            "constant",
            "the origin of bins must be a constant date or moment",
            "write TIMESTAMP '2024-01-01'",
        )


def translate_date_bin(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate DATE_BIN of PostgreSQL: a moment's bin of a fixed length, counted from an origin."""
    if len(node.expressions) not in (2, 3):
        return None
    stride, moment, *rest = node.expressions
    span = stride if isinstance(stride, exp.Interval) else parse_span(self, node, stride)
    unit = normalize_name(span.args["unit"].name).removesuffix("s")
    unit = {"hr": "hour", "min": "minute", "sec": "second"}.get(unit, unit)
    if unit not in _FIXED or not span.this.name.isdigit() or not int(span.this.name):
        self.refuse_in_dialect(
            node,
            "constant",
            "DATE_BIN takes a constant length above 0, in days or shorter units",
            "write DATE_BIN('7 days', t, TIMESTAMP '2024-01-01'), or DATE_TRUNC('month', t)",
        )
    origin = _read_origin(self, node, rest[0]) if rest else _ORIGIN
    return _build_bin(unit, int(span.this.name), moment, origin, keeps_date=False)


def translate_time_slice(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate TIME_SLICE of Snowflake, counted from 1970-01-01; weeks are refused."""
    unit = normalize_name(node.args["unit"].name).removesuffix("s")
    kind = node.args.get("kind")
    end = "start" if kind is None else normalize_name(kind.name)
    if (
        unit not in {*_FIXED, *_MONTHS} - {"week"}
        or not is_whole_number(node.expression)
        or end not in ("start", "end")
    ):
        self.refuse_in_dialect(
            node,
            "constant",
            "TIME_SLICE takes a constant number of years, quarters, months, days, hours, minutes or seconds",
            "write TIME_SLICE(t, 7, 'DAY'), or DATE_TRUNC('week', t)",
        )
    count = int(node.expression.name)
    found = _build_bin(unit, max(count, 1), node.this, _ORIGIN, keeps_date=True)
    if end == "start":
        return found
    return build_call(MOVED, exp.Literal.string(unit), found, exp.Literal.number(count))


def translate_date_bucket(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate DATE_BUCKET of T-SQL, counted from 1900-01-01 or a given origin."""
    items = node.expressions
    if len(items) not in (3, 4):
        return None
    named, count, moment, *rest = items
    word = normalize_name(named.name)
    unit = _TSQL_UNITS.get(word, word)
    if unit not in {*_FIXED, *_MONTHS} or not is_whole_number(count) or not int(count.name):
        self.refuse_in_dialect(
            node,
            "constant",
            "DATE_BUCKET takes a unit and a constant number above 0",
            "write DATE_BUCKET(week, 1, t)",
        )
    origin = _read_origin(self, node, rest[0]) if rest else _TSQL_ORIGIN
    return _build_bin(unit, int(count.name), moment, origin, keeps_date=True)


# Spans of time.


def translate_months_between(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate MONTHS_BETWEEN: Spark counts the time of the day and rounds to 8 digits, Snowflake does neither."""
    rounding = node.args.get("roundoff")
    if rounding is not None and not isinstance(rounding, exp.Boolean):
        self.refuse_in_dialect(node, "constant", "the third argument must be TRUE or FALSE")
    x, y = node.this, node.expression
    if self.dialect == "snowflake":
        x, y = (exp.Cast(this=side, to=exp.DataType(this=exp.DType.DATE, nested=False)) for side in (x, y))
    is_rounded = self.dialect == "spark" and (rounding is None or bool(rounding.this))
    return build_call(MONTHS_BETWEEN, exp.Boolean(this=is_rounded), x, y)


def translate_overlaps(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate (a, b) OVERLAPS (c, d), in which b and d may be lengths of time."""
    ends: list[exp.Expr] = []
    for side in (node.this, node.expression):
        pair = side.expressions if isinstance(side, exp.Tuple) else []
        if self.dialect != "postgres" or len(pair) != 2:
            self.refuse_unknown(node)
        start, end = pair
        is_span = isinstance(end, exp.Interval)
        ends += [start, exp.Add(this=exp.Paren(this=start.copy()), expression=end) if is_span else end]
    return build_call(OVERLAPPING, *ends)


def translate_last_day(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate LAST_DAY, of a month or of another unit."""
    unit = node.args.get("unit")
    if unit is None:
        return build_call("last_day", node.this)
    start = find_week_start(self, unit)
    if start is not None:
        cut = exp.Cast(
            this=build_week_cut(start, node.this), to=exp.DataType(this=exp.DType.DATE, nested=False)
        )
        return exp.Paren(this=exp.Add(this=cut, expression=exp.Literal.number(6)))
    name = unit.name.upper()
    if name not in _ENDS:
        self.refuse_in_dialect(
            node, "constant", f"LAST_DAY has no unit {unit.name}", "write LAST_DAY(d, MONTH)"
        )
    cut_text = f"DATE_TRUNC('{name.lower()}', _1)"
    return build_equivalent(
        self, node, f"CAST({cut_text} + INTERVAL 1 {name} - INTERVAL 1 DAY AS DATE)", node.this
    )


def translate_next_day(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate NEXT_DAY(d, 'Monday'), the first such day of the week after a day."""
    if len(node.expressions) != 2:
        return None
    day, named = node.expressions
    word = normalize_name(named.name)[:2] if isinstance(named, exp.Literal) and named.is_string else ""
    if word not in _DAYS:
        self.refuse_in_dialect(
            node,
            "constant",
            "NEXT_DAY takes the constant name of a day of the week",
            "write NEXT_DAY(d, 'Monday')",
        )
    number = _DAYS.index(word) + 1
    return build_equivalent(self, node, f"CAST(_1 AS DATE) + (({number} - ISODOW(_1) + 6) % 7 + 1)", day)
