"""The domain of a column: bounds and public values, read as the column's type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeGuard, TypeVar, get_args
from uuid import UUID

from pydantic_core import PydanticCustomError

from dpsql.policy.exact import exact, show_number
from dpsql.policy.problem import Problem, problems_in, refusal, refusals, show

ColumnType = Literal["integer", "double", "varchar", "date", "timestamp", "boolean", "time", "uuid", "blob"]
Bound = Fraction | date | datetime
Value = int | float | str | date | datetime | bool | time | UUID
D = TypeVar("D", bound=date)

COLUMN_TYPES: tuple[ColumnType, ...] = get_args(ColumnType)
_ORDERED = frozenset({"integer", "double", "date", "timestamp"})
"""The types that have bounds."""
LARGEST_INTEGER = 10**15  # sums over 10^9 rows stay far inside HUGEINT
LARGEST_DOUBLE = 10**150  # squares and products stay finite doubles
MOST_VALUES = 10_000
_ENDS = 2

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")


def bounds_of(pair: object, kind: ColumnType) -> tuple[Bound, Bound]:
    """The two bounds of a column of type `kind`: numbers as Fraction, days as date, moments as datetime.

    Raises through `refusal`: `bounds_type` for types without bounds, `bounds_shape`, `bounds_inverted`,
    and whatever is wrong with one bound.
    """
    if kind not in _ORDERED:
        hint = (
            "delete the key"
            if kind in ("boolean", "blob")
            else "list its public values instead, or delete the key"
        )
        raise refusal("bounds_type", f"a {kind} column has no bounds", hint=hint)
    if not _is_list(pair) or len(pair) != _ENDS:
        raise refusal("bounds_shape", f"must be [lower, upper], not {show(pair)}")
    problems: list[Problem] = []
    ends: list[Bound] = []
    for place, end in enumerate(pair):
        try:
            ends.append(_bound(end, kind))
        except PydanticCustomError as error:
            problems += problems_in(error, place)
    if problems:
        raise refusals(problems)
    low, high = ends
    if low > high:  # type: ignore[operator]  # both ends went through the same type
        raise refusal(
            "bounds_inverted", f"the lower bound {_show(low)} is above the upper bound {_show(high)}"
        )
    return low, high


def _bound(value: object, kind: ColumnType) -> Bound:
    if kind == "date":
        return _day(value)
    if kind == "timestamp":
        return _moment(value)
    return _number(value, kind)


def _number(value: object, kind: ColumnType) -> Fraction:
    number = exact(value)
    if kind == "integer" and number.denominator != 1:
        raise refusal(
            "not_whole", f"{show_number(number)} is not a whole number, which an integer column needs"
        )
    largest, words = (LARGEST_INTEGER, "10^15") if kind == "integer" else (LARGEST_DOUBLE, "1e150")
    if abs(number) > largest:
        raise refusal(
            "magnitude", f"{show_number(number)} is beyond ±{words}, the most for a column of type {kind}"
        )
    return number


def _show(bound: Bound) -> str:
    return show_number(bound) if isinstance(bound, Fraction) else str(bound)


def _day(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    if isinstance(value, str) and _DAY.fullmatch(value.strip()):
        return _parse(value.strip(), date)
    raise refusal("not_a_date", f"must be a date such as 2020-01-31, not {show(value)}")


def _moment(value: object) -> datetime:
    if isinstance(value, str) and _DAY.fullmatch(value.strip()):
        value = _parse(value.strip(), date)
    elif isinstance(value, str) and _MOMENT.fullmatch(value.strip()):
        value = _parse(value.strip(), datetime)
    if isinstance(value, datetime) and value.tzinfo is None:
        return datetime.combine(value.date(), value.time())
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    words = "must be a timestamp without a time zone, such as 2020-01-31 or 2020-01-31T08:30:00"
    raise refusal("not_a_timestamp", f"{words}, not {show(value)}")


def _parse(text: str, kind: type[D]) -> D:
    try:
        return kind.fromisoformat(text)
    except ValueError:
        raise refusal("not_a_date", f"{text} is not on the calendar") from None


def values_of(values: object, kind: ColumnType) -> tuple[Value, ...]:
    """The public domain of a column of type `kind`, in the order given.

    Each value has the column's type: int, float, str, date, datetime, bool, time or UUID. Raises through `refusal`,
    all wrong values at once, at their place in the list.
    """
    if kind == "blob":
        raise refusal("values_type", "a blob column has no list of values", hint="delete the key")
    if not _is_list(values):
        raise refusal("values_shape", f"must be a list of values, not {show(values)}")
    if not 1 <= len(values) <= MOST_VALUES:
        raise refusal("values_count", f"must list 1 to {MOST_VALUES:,} values, not {len(values):,}")
    problems: list[Problem] = []
    seen: dict[Value, None] = {}
    for place, entry in enumerate(values):
        try:
            value = _value(entry, kind)
        except PydanticCustomError as error:
            problems += problems_in(error, place)
            continue
        if value in seen:
            problems.append(Problem((place,), "values_repeated", f"{show(entry)} is listed twice"))
        seen[value] = None
    if problems:
        raise refusals(problems)
    return tuple(seen)


def _value(value: object, kind: ColumnType) -> Value:
    if value is None:
        raise refusal(
            "null_value",
            "NULL is not a value",
            hint="nullable says whether NULL may occur; the default is true",
        )
    if kind == "boolean":
        return _boolean(value)
    if kind == "varchar":
        return _text(value)
    if kind == "integer":
        return int(_number(value, kind))
    if kind == "double":
        return float(_number(value, kind))
    if kind == "time":
        return _time(value)
    if kind == "uuid":
        return _uuid(value)
    return _day(value) if kind == "date" else _moment(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise refusal("not_a_boolean", f"must be true or false, not {show(value)}")
    return value


def _time(value: object) -> time:
    if isinstance(value, time) and value.tzinfo is None:
        return time(value.hour, value.minute, value.second, value.microsecond)
    if isinstance(value, str) and _TIME.fullmatch(value.strip()):
        try:
            return time.fromisoformat(value.strip())
        except ValueError:
            pass
    hint = "put quotes around it" if isinstance(value, int) else None  # YAML reads 12:30 as a number
    raise refusal("not_a_time", f"must be a time of day such as '08:30:00', not {show(value)}", hint=hint)


def _uuid(value: object) -> UUID:
    if isinstance(value, UUID):
        return UUID(int=value.int)
    if isinstance(value, str) and _UUID.fullmatch(value.strip()):
        return UUID(value.strip())
    words = "must be a UUID such as 550e8400-e29b-41d4-a716-446655440000"
    raise refusal("not_a_uuid", f"{words}, not {show(value)}")


def _text(value: object) -> str:
    if isinstance(value, bool):
        read = f"is read as the truth value {str(value).lower()}, not as text"
        raise refusal(
            "not_text", f"an unquoted yes, no, on, off, true or false {read}", hint="put quotes around it"
        )
    if not isinstance(value, str):
        hint = f"put quotes around it: '{value}'" if isinstance(value, (int, float, Decimal, date)) else None
        raise refusal("not_text", f"{show(value)} is not text", hint=hint)
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise refusal("not_text", f"{show(value)} holds a character that SQL cannot")
    return value


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
