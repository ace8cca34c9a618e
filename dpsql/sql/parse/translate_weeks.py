"""Translate units of weeks from other dialects: the day on which a week begins, and the number of a week in its year."""

from __future__ import annotations

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.typed_calls import WEEK_CUT, WEEK_NUMBER, WEEKS, build_call

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONDAY, _SUNDAY = 0, 6
_STARTS = {"postgres": _MONDAY, "spark": _MONDAY, "snowflake": _MONDAY, "bigquery": _SUNDAY, "tsql": _SUNDAY}
"""The day on which a week begins; in T-SQL by the default of DATEFIRST, and always in DATEDIFF."""
_WEEKS = frozenset({"week", "weeks", "wk", "ww"})
_ISO_WEEKS = {"bigquery": "isoweek", "tsql": "iso_week"}
_FIRST_WEEKS = {"bigquery": 6, "tsql": 12}
"""What is added to the day of the year of a week's first day before it is divided by 7, which gives the number of the week.

In BigQuery week 1 begins on the first such day of the year, and what is before it is week 0. In T-SQL January 1 is in week 1.
"""


def find_week_start(self: DialectText, unit: exp.Expr | None) -> int | None:
    """Return the day on which a week begins, 0 for Monday; None for other units."""
    if isinstance(unit, exp.WeekStart):
        name = normalize_name(unit.this.name)
        return _DAYS.index(name) if name in _DAYS else None
    name = "" if unit is None else normalize_name(unit.name)
    if name == _ISO_WEEKS.get(self.dialect):
        return _MONDAY
    return _STARTS[self.dialect] if name in _WEEKS else None


def _build_start(start: int) -> exp.Expr:
    return exp.Literal.number(start)


def build_week_cut(start: int, moment: exp.Expr) -> exp.Expr:
    """Build the first day of the week of a moment."""
    return build_call(WEEK_CUT, _build_start(start), moment)


def build_weeks(start: int, later: exp.Expr, earlier: exp.Expr) -> exp.Expr:
    """Build the number of beginnings of weeks between two moments."""
    return build_call(WEEKS, _build_start(start), later, earlier)


def build_week_number(self: DialectText, unit: exp.Expr, moment: exp.Expr) -> exp.Expr | None:
    """Build the number of a week in its year; None for units that are not counted from January 1."""
    start = find_week_start(self, unit)
    added = _FIRST_WEEKS.get(self.dialect)
    if start is None or added is None or normalize_name(unit.name) == _ISO_WEEKS[self.dialect]:
        return None
    return build_call(WEEK_NUMBER, _build_start(start), exp.Literal.number(added), moment)
