"""Lower AT TIME ZONE of a named zone to the local time, by the zone's offsets from UTC.

Claim: the result is the local time in the zone, as DuckDB and PostgreSQL compute it from the same release of the zone data.
Why: between two transitions a zone has one offset from UTC, in whole seconds, and local time is UTC plus that offset. Of an instant
there is one local time, also where clocks are set back or forward. The offsets are constants of the plan: no engine's zone data
and no setting of a session is read.
Source: IANA time zone database, "Theory and pragmatics of the tz code and data"; RFC 8536.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval
from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns
from dpsql.plan.functions.dates import find_end_timestamp
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.parse.rejection import QueryText

_FIRST, _LAST = dt.datetime(1900, 1, 1), dt.datetime(2100, 12, 31)  # noqa: DTZ001  (SQL timestamps have no zone)
"""Outside of these years a zone has the offset of the nearer end."""
_UTC = frozenset({"UTC", "GMT", "Z", "ETC/UTC"})
_DAY, _SECOND = dt.timedelta(days=1), dt.timedelta(seconds=1)
BuildCall = Callable[..., Expr]


def lower_time_zone(
    source: QueryText, node: exp.Expr, operand: exp.Expr, value: Expr, zone: Expr, *, build_call: BuildCall
) -> Expr:
    """Return a moment at a time zone: unchanged for UTC, the local time for another zone. Raises QueryRejected."""
    name = zone.value if isinstance(zone, Literal) and isinstance(zone.value, str) else None
    if name is not None and name.upper() in _UTC:
        return build_call(node, "cast_timestamp", value)
    known = None if name is None else _find_zone(name)
    if name is None or known is None:
        source.refuse(
            node,
            "constant",
            "AT TIME ZONE takes the constant name of a time zone",
            "write AT TIME ZONE 'Europe/Berlin', or 'UTC'",
        )
    if not is_instant(operand, value):
        _refuse_local_time(source, node, operand, value)
    moment = build_call(node, "cast_timestamp", value)
    return build_call(node, "plus_second", moment, _build_offset(node, moment, known, build_call))


def is_instant(operand: exp.Expr, value: Expr) -> bool | None:
    """Return whether an operand is an instant, not a local time or one in UTC without a zone; None if that is not known."""
    while type(operand) is exp.Paren:
        operand = operand.this
    match operand:
        case exp.AtTimeZone():
            inner = is_instant(operand.this, _get_converted_value(value))
            return None if inner is None else not inner
        case exp.Anonymous(expressions=[_, moment]) if normalize_name(str(operand.this)) == "timezone":
            inner = is_instant(moment, _get_converted_value(value))
            return None if inner is None else not inner
        case exp.Cast() | exp.TryCast() if operand.args["to"].this is exp.DType.TIMESTAMPTZ:
            return True
        case exp.CurrentTimestamp():
            return True
        case exp.Column():
            return _holds_instants(value)
        case exp.Anonymous() if normalize_name(str(operand.this)) in _NOW:
            return True
    return False if all(_holds_instants(column) is False for column in iterate_columns(value)) else None


_NOW = frozenset({"now", "get_current_timestamp", "transaction_timestamp"})


def _get_converted_value(value: Expr) -> Expr:
    """Return the value that a time zone was applied to."""
    for name in ("plus_second", "cast_timestamp"):
        if isinstance(value, Call) and value.function.name == name:
            value = value.arguments[0]
    return value


def _holds_instants(value: Expr) -> bool | None:
    if not isinstance(value, Column) or not value.facts.is_stored:
        return None
    return value.facts.has_time_zone


def _refuse_local_time(source: QueryText, node: exp.Expr, operand: exp.Expr, value: Expr) -> NoReturn:
    if is_instant(operand, value) is None:
        source.refuse(
            node,
            "constant",
            "it is not known whether this value has a time zone: a derived table or a function returns it",
            "apply AT TIME ZONE to the column of the table itself",
        )
    source.refuse(
        node,
        "constant",
        "AT TIME ZONE of a local time is not supported: where clocks are set back, it means two instants",
        "if it is in UTC, write t AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'",
    )


def _build_offset(node: exp.Expr, moment: Expr, zone: zoneinfo.ZoneInfo, build_call: BuildCall) -> Expr:
    """Build the zone's offset from UTC at a moment, in seconds, for the years that the moment can be in."""
    around = derive_interval(moment)
    low, high = (find_end_timestamp(Type.TIMESTAMP, end) for end in (around.low, around.high))
    first = _FIRST if low is None else min(max(low, _FIRST), _LAST)
    last = _LAST if high is None else min(high, _LAST)
    years = range(first.year, last.year + 1)
    changes = [change for year in years for change in list_transitions(zone.key, year)]
    start = _compute_offset(zone, first)
    branches: list[Expr] = []
    for at, offset in (change for change in changes if first < change[0] <= last):
        branches += [
            build_call(node, "lt", moment, Literal(at, Type.TIMESTAMP)),
            Literal(start, Type.INTEGER),
        ]
        start = offset
    otherwise = Literal(start, Type.INTEGER)
    return build_call(node, "case", *branches, otherwise) if branches else otherwise


def _find_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the zone of a name, in any case; None if there is none."""
    key = {known.lower(): known for known in _list_zones()}.get(name.lower())
    return None if key is None else zoneinfo.ZoneInfo(key)


@lru_cache(maxsize=1)
def _list_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


@lru_cache(maxsize=4_096)
def list_transitions(key: str, year: int) -> tuple[tuple[dt.datetime, int], ...]:
    """List the moments of a year, in UTC, from which on a zone has another offset, each with that offset in seconds.

    >>> [(str(at), offset) for at, offset in list_transitions("Europe/Berlin", 2024)]
    [('2024-03-31 01:00:00', 7200), ('2024-10-27 01:00:00', 3600)]
    """
    zone, found = zoneinfo.ZoneInfo(key), list[tuple[dt.datetime, int]]()
    at, end = dt.datetime(year, 1, 1), dt.datetime(year + 1, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)
    before = _compute_offset(zone, at)
    while at < end:
        after = min(at + _DAY, end)
        offset = _compute_offset(zone, after)
        if offset != before:
            found.append((_find_change(zone, at, after), offset))
        at, before = after, offset
    return tuple(found)


def _find_change(zone: zoneinfo.ZoneInfo, low: dt.datetime, high: dt.datetime) -> dt.datetime:
    """Return the first second of a day from which on a zone has another offset."""
    before = _compute_offset(zone, low)
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0) if middle.replace(microsecond=0) > low else low + _SECOND
        low, high = (middle, high) if _compute_offset(zone, middle) == before else (low, middle)
    return high


def _compute_offset(zone: zoneinfo.ZoneInfo, at: dt.datetime) -> int:
    """Return the offset of a zone at a moment in UTC, in seconds."""
    local = at.replace(tzinfo=dt.UTC).astimezone(zone)
    return round((local.utcoffset() or dt.timedelta()).total_seconds())
