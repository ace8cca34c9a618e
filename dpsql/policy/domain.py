"""The domain of a column: bounds and public values, read as the column's type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Rational
from typing import Literal, TypeGuard, TypeVar, get_args
from uuid import UUID

from pydantic_core import PydanticCustomError

from dpsql.policy.problem import Problem, format_value, list_problems, make_problem_error, make_problems_error

# Exact numbers of a policy: 0.1 is 1/10, not the nearest double.


NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_RATIO = re.compile(r"([-+]?[0-9]+)/([0-9]+)")
_SPECIAL = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
LONGEST = 400  # digits, and powers of ten: 1e999999999 would be gigabytes as a fraction
_LARGEST = 10**LONGEST


def parse_number(value: object) -> Fraction:
    """Return the number that `value` is written as.

    Takes int, Fraction, Decimal, float (by its shortest decimal text) and the text of a decimal or a
    ratio such as `1/3`. Refuses truth values, NaN, infinities (`non_finite`), other text
    (`not_a_number`) and numbers beyond 400 digits (`number_size`).

    >>> parse_number(0.1), parse_number("1e-7"), parse_number("1/3")
    (Fraction(1, 10), Fraction(1, 10000000), Fraction(1, 3))
    """
    if isinstance(value, bool):
        raise make_problem_error(
            "not_a_number", f"must be a number, not the truth value {str(value).lower()}"
        )
    if isinstance(value, Rational):
        number = Fraction(int(value.numerator), int(value.denominator))
        if abs(number) > _LARGEST:
            raise _make_size_error()
        return number
    if isinstance(value, float):
        return _to_fraction(Decimal(float.__repr__(value)))
    if isinstance(value, Decimal):
        return _to_fraction(value)
    if isinstance(value, str):
        return _parse_text(value.strip())
    raise make_problem_error("not_a_number", f"must be a number, not {format_value(value)}")


def _parse_text(text: str) -> Fraction:
    if len(text) > LONGEST:
        raise _make_size_error()
    if ratio := _RATIO.fullmatch(text):
        if not int(ratio[2]):
            raise make_problem_error("non_finite", f"must be a finite number, not {text}")
        return Fraction(int(ratio[1]), int(ratio[2]))
    if _SPECIAL.fullmatch(text):
        raise make_problem_error("non_finite", f"must be a finite number, not {text}")
    if not NUMBER.fullmatch(text):
        raise make_problem_error("not_a_number", f"must be a number, not {format_value(text)}")
    return parse_decimal_text(text)


def parse_decimal_text(text: str) -> Fraction:
    """Return the value of a text that matches `NUMBER`; refuse more than 400 digits."""
    try:
        return _to_fraction(Decimal(text))
    except ArithmeticError:  # an exponent past what decimal can hold
        raise _make_size_error() from None


def _to_fraction(number: Decimal) -> Fraction:
    if not number.is_finite():
        raise make_problem_error("non_finite", f"must be a finite number, not {number}")
    if number.is_zero():
        return Fraction(0)
    if abs(number.adjusted()) > LONGEST or len(number.as_tuple().digits) > LONGEST:
        raise _make_size_error()
    return Fraction(number)


def _make_size_error() -> PydanticCustomError:
    return make_problem_error("number_size", f"must be a number with at most {LONGEST} digits")


def format_number(number: Fraction) -> str:
    """Return the number as an owner would write it: `10000`, `0.1`, and `1/3` where decimals do not end.

    >>> [format_number(Fraction(n)) for n in ("10000", "1/10", "1/3")]
    ['10000', '0.1', '1/3']
    """
    if number.denominator == 1:
        return format_value(str(number.numerator)).strip("'")
    near = float(number) if abs(number) < 10**300 else 0.0
    return repr(near) if isfinite(near) and Fraction(repr(near)) == number else str(number)


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


def parse_bounds(pair: object, kind: ColumnType) -> tuple[Bound, Bound]:
    """Return the two bounds of a column of type `kind`: numbers as Fraction, days as date, moments as datetime.

    Raises through `make_problem_error`: `bounds_type` for types without bounds, `bounds_shape`, `bounds_inverted`,
    and whatever is wrong with one bound.
    """
    if kind not in _ORDERED:
        hint = (
            "delete the key"
            if kind in ("boolean", "blob")
            else "list its public values instead, or delete the key"
        )
        raise make_problem_error("bounds_type", f"a {kind} column cannot have bounds", hint=hint)
    if not _is_list(pair) or len(pair) != _ENDS:
        raise make_problem_error("bounds_shape", f"must be [lower, upper], not {format_value(pair)}")
    problems: list[Problem] = []
    ends: list[Bound] = []
    for place, end in enumerate(pair):
        try:
            ends.append(_parse_bound(end, kind))
        except PydanticCustomError as error:
            problems += list_problems(error, place)
    if problems:
        raise make_problems_error(problems)
    low, high = ends
    if low > high:  # type: ignore[operator]  # both ends went through the same type
        raise make_problem_error(
            "bounds_inverted",
            f"the lower bound {_format_bound(low)} is above the upper bound {_format_bound(high)}",
        )
    return low, high


def _parse_bound(value: object, kind: ColumnType) -> Bound:
    if kind == "date":
        return _parse_date(value)
    if kind == "timestamp":
        return _parse_timestamp(value)
    return _parse_number(value, kind)


def _parse_number(value: object, kind: ColumnType) -> Fraction:
    number = parse_number(value)
    if kind == "integer" and number.denominator != 1:
        raise make_problem_error(
            "not_whole", f"must be a whole number in an integer column, not {format_number(number)}"
        )
    largest, words = (LARGEST_INTEGER, "10^15") if kind == "integer" else (LARGEST_DOUBLE, "1e150")
    if abs(number) > largest:
        raise make_problem_error(
            "magnitude", f"must lie within ±{words} in a column of type {kind}, not {format_number(number)}"
        )
    return number


def _format_bound(bound: Bound) -> str:
    return format_number(bound) if isinstance(bound, Fraction) else str(bound)


def _parse_date(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    if isinstance(value, str) and _DAY.fullmatch(value.strip()):
        return _parse_iso_text(value.strip(), date)
    raise make_problem_error("not_a_date", f"must be a date such as 2020-01-31, not {format_value(value)}")


def _parse_timestamp(value: object) -> datetime:
    if isinstance(value, str) and _DAY.fullmatch(value.strip()):
        value = _parse_iso_text(value.strip(), date)
    elif isinstance(value, str) and _MOMENT.fullmatch(value.strip()):
        value = _parse_iso_text(value.strip(), datetime)
    if isinstance(value, datetime) and value.tzinfo is None:
        return datetime.combine(value.date(), value.time())
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    words = "must be a timestamp without a time zone, such as 2020-01-31 or 2020-01-31T08:30:00"
    raise make_problem_error("not_a_timestamp", f"{words}, not {format_value(value)}")


def _parse_iso_text(text: str, kind: type[D]) -> D:
    try:
        return kind.fromisoformat(text)
    except ValueError:
        raise make_problem_error("not_a_date", f"{text} does not exist in the calendar") from None


def parse_values(values: object, kind: ColumnType) -> tuple[Value, ...]:
    """Return the public domain of a column of type `kind`, in the order given.

    Each value has the column's type: int, float, str, date, datetime, bool, time or UUID. Raises through `make_problem_error`,
    all wrong values at once, at their place in the list.
    """
    if kind == "blob":
        raise make_problem_error("values_type", "a blob column cannot have values", hint="delete the key")
    if not _is_list(values):
        raise make_problem_error("values_shape", f"must be a list of values, not {format_value(values)}")
    if not 1 <= len(values) <= MOST_VALUES:
        raise make_problem_error(
            "values_count", f"must list 1 to {MOST_VALUES:,} values, not {len(values):,}"
        )
    problems: list[Problem] = []
    seen: dict[Value, None] = {}
    for place, entry in enumerate(values):
        try:
            value = _parse_value(entry, kind)
        except PydanticCustomError as error:
            problems += list_problems(error, place)
            continue
        if value in seen:
            problems.append(Problem((place,), "values_repeated", f"{format_value(entry)} is listed twice"))
        seen[value] = None
    if problems:
        raise make_problems_error(problems)
    return tuple(seen)


def _parse_value(value: object, kind: ColumnType) -> Value:
    if value is None:
        raise make_problem_error(
            "null_value",
            "NULL cannot be listed as a value",
            hint="delete it; `nullable: true`, the default, says that NULL may occur",
        )
    if kind == "boolean":
        return _require_boolean(value)
    if kind == "varchar":
        return _require_text(value)
    if kind == "integer":
        return int(_parse_number(value, kind))
    if kind == "double":
        return float(_parse_number(value, kind))
    if kind == "time":
        return _parse_time(value)
    if kind == "uuid":
        return _parse_uuid(value)
    return _parse_date(value) if kind == "date" else _parse_timestamp(value)


def _require_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise make_problem_error("not_a_boolean", f"must be true or false, not {format_value(value)}")
    return value


def _parse_time(value: object) -> time:
    if isinstance(value, time) and value.tzinfo is None:
        return time(value.hour, value.minute, value.second, value.microsecond)
    if isinstance(value, str) and _TIME.fullmatch(value.strip()):
        try:
            return time.fromisoformat(value.strip())
        except ValueError:
            pass
    hint = "put quotes around it" if isinstance(value, int) else None  # YAML reads 12:30 as a number
    raise make_problem_error(
        "not_a_time", f"must be a time of day such as '08:30:00', not {format_value(value)}", hint=hint
    )


def _parse_uuid(value: object) -> UUID:
    if isinstance(value, UUID):
        return UUID(int=value.int)
    if isinstance(value, str) and _UUID.fullmatch(value.strip()):
        return UUID(value.strip())
    words = "must be a UUID such as 550e8400-e29b-41d4-a716-446655440000"
    raise make_problem_error("not_a_uuid", f"{words}, not {format_value(value)}")


def _require_text(value: object) -> str:
    if isinstance(value, bool):
        read = f"is read as the truth value {str(value).lower()}, not as text"
        raise make_problem_error(
            "not_text", f"an unquoted yes, no, on, off, true or false {read}", hint="put quotes around it"
        )
    if not isinstance(value, str):
        hint = f"put quotes around it: '{value}'" if isinstance(value, (int, float, Decimal, date)) else None
        raise make_problem_error("not_text", f"must be text, not {format_value(value)}", hint=hint)
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        words = f"{format_value(value)} holds a NUL or surrogate character, which SQL does not allow"
        raise make_problem_error("not_text", words)
    return value


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
