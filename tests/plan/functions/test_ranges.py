"""What an entry says of its results holds whatever the engine computes within the arguments' intervals.

No clamp stands between here, and no rounding is forgiven: an interval that is too narrow by one unit in the
last place shows.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import uuid
from collections.abc import Iterator, Sequence
from fractions import Fraction

import duckdb
import pytest
from plan.functions.pools import Signature, build, calls, column, place, read_by, signatures

from dpsql.analysis.domains import derive_domain
from dpsql.analysis.intervals import derive_interval
from dpsql.plan.expressions import Call, Function, Literal
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.interval import Interval, find_position
from dpsql.plan.types import Type, Value
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

Box = tuple[Value, ...]
"""The values that an argument is given; the least and the largest of them are its interval's ends."""

_EVERY_DAY = tuple(dt.date(2024, 2, 27) + dt.timedelta(days=day) for day in range(5))
BOXES: dict[Type, tuple[Box, ...]] = {
    Type.INTEGER: (
        (0, 1, 2, 7, 31, 64, 110),
        (-7, -3, -2, -1, 0, 1, 5, 12),
        (-12, -5, -1),
        (3,),
        (1, 2, 59, 2024, 9999),
        (-(2**62), -(2**53) - 1, 0, 2**53 + 1, 2**62),
    ),
    Type.DOUBLE: (
        (0.0, -0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0),
        (-1.0, -0.999, -0.1, -0.0, 0.1, 1.5, 2.5, 3.7, 4.0),
        (-7.25, -2.5, -1.5, -0.5),
        (0.1, 0.2, 0.3),
        (1.0, 1.0000000000000002, 2.0, 59.9, 1e6),
        (1e-300, 1e-9, 1.0, 1e9, 1e300),
        (-1e308, 0.0, 1e308),
        (709.0, 709.7, 710.0),
    ),
    Type.DATE: (
        _EVERY_DAY,
        (dt.date(1999, 12, 31), dt.date(2000, 1, 1), dt.date(2000, 1, 3), dt.date(2001, 1, 1)),
        (dt.date(1, 1, 1), dt.date(1, 1, 7), dt.date(1582, 10, 10), dt.date(9999, 12, 31)),
        (dt.date(1960, 5, 5),),
    ),
    Type.TIMESTAMP: (
        tuple(
            dt.datetime(2024, 2, 28, 23, 59, 59, 999999) + dt.timedelta(minutes=7 * step) for step in range(9)
        ),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 5, 3)),
        (dt.datetime(1, 1, 1), dt.datetime(1900, 1, 1, 5, 6), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ),
    Type.BOOLEAN: ((False, True), (True,)),
    Type.VARCHAR: (("", "a", "abc", "é", "12", "2024-02-29"),),
    Type.TIME: ((dt.time(0), dt.time(0, 0, 0, 1), dt.time(12, 34, 56), dt.time.max),),
    Type.UUID: ((uuid.UUID(int=0), uuid.UUID(int=2**127), uuid.UUID(int=2**128 - 1)),),
    Type.BLOB: ((b"", b"a", b"\xff\x00"),),
}
MOST_BOXES = 8
"""Most combinations of boxes that are tried of a signature."""


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def around(box: Box) -> Interval:
    """The interval of the values of a box."""
    places = [at for value in box if (at := find_position(value)) is not None]
    return Interval(min(places), max(places)) if places else Interval()


def inside(function: Function, types: Signature) -> Iterator[tuple[Call, dict[str, Box]]]:
    """Calls over columns with intervals, each with the values of its columns."""
    boxes = list(itertools.product(*(BOXES[kind] for kind in types)))
    random.Random(function.name).shuffle(boxes)
    for chosen in boxes[:MOST_BOXES]:
        for call in calls(function, types, [around(box) for box in chosen], most=2):
            yield call, {f"t{at}": _dense(box) for at, box in enumerate(chosen)}


def _dense(box: Box) -> Box:
    """A box with further values within it, where that is easy."""
    if len(box) > 1 and all(isinstance(value, float) for value in box):
        low, high = float(box[0]), float(box[-1])  # type: ignore[arg-type]
        chance = random.Random(str(box))
        return (
            *box,
            *(
                min(high, max(low, low + (high - low) * chance.random()))
                for _ in range(6)
                if math.isfinite(high - low)
            ),
        )
    return box


def computed(engine: duckdb.DuckDBPyConnection, call: Call, boxes: dict[str, Box], item: str) -> list[Value]:
    """What the engine computes on all combinations of the values."""
    tables = ", ".join(
        f"(VALUES {', '.join(f'({DUCKDB_COMPILER.emit_constant(value)})' for value in boxes[read.source])}) AS {read.source}(c)"
        for read in read_by(call)
    )
    many = math.prod(len(boxes[read.source]) for read in read_by(call))
    # Of very many only every so manyth, by a hash of the row.
    every = many // 1000 + 1
    keys = ", ".join(f"{read.source}.c" for read in read_by(call))
    chosen = f" WHERE HASH({keys}) % {every} = 0" if every > 1 else ""
    return [
        value
        for (value,) in engine.execute(f"SELECT {item} FROM {tables or '(SELECT 1)'}{chosen}").fetchall()
    ]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_values_lie_in_the_interval(engine: duckdb.DuckDBPyConnection, function: Function) -> None:
    """No value leaves the interval that is derived from the arguments' intervals; NaN counts as NULL."""
    for types in signatures(function):
        for call, boxes in inside(function, types):
            known = derive_interval(call)
            for value in computed(engine, call, boxes, place(call)):
                if not isinstance(value, (int, float)) or math.isnan(value):
                    continue  # what is no number has no interval
                if isinstance(value, float) and math.isinf(value):
                    assert (known.high if value > 0 else known.low) is None, (
                        DUCKDB_COMPILER.emit_expression(call),
                        boxes,
                        known,
                    )
                else:
                    assert known.contains(Fraction(value)), (
                        DUCKDB_COMPILER.emit_expression(call),
                        boxes,
                        str(known),
                        value,
                    )  # type: ignore[arg-type]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_values_lie_in_the_domain(engine: duckdb.DuckDBPyConnection, function: Function) -> None:
    """Every computed value is in a domain that is derived from the arguments' intervals."""
    for types in signatures(function):
        for call, boxes in inside(function, types):
            known = derive_domain(call, {})
            if known is not None:
                found = set(computed(engine, call, boxes, DUCKDB_COMPILER.emit_expression(call)))
                assert {value for value in found if value is not None} <= set(known), (
                    DUCKDB_COMPILER.emit_expression(call)
                )
                assert None not in found or None in known, DUCKDB_COMPILER.emit_expression(call)


def test_domains_are_derived() -> None:
    """Parts, names and truncations of bounded days have a domain, and none is longer than it must be."""
    day = column(0, Type.DATE, around(_EVERY_DAY))
    sizes = {
        "dayname": 7,
        "monthname": 12,
        "dow": 7,
        "date_trunc_month": 2,
        "date_trunc_year": 1,
        "last_day": 2,
        "days_in_month": 4,
        "date_trunc_day": 5,
    }
    for name, size in sizes.items():
        call = build(FUNCTIONS[name], (day,))
        assert call is not None
        assert len([value for value in derive_domain(call, {}) or () if value is not None]) == size, name


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [(1e20, 1e20, None), (-1e308, -1e308, None), (3.0, 4.0, 2)],
)
def test_domain_of_whole_numbers_has_64_bits(low: float, high: float, size: int | None) -> None:
    """Whole numbers beyond are NULL in the engine, and so no keys of groups."""
    cast = build(FUNCTIONS["cast_hugeint"], (column(0, Type.DOUBLE, around((low, high))),))
    assert cast is not None
    found = derive_domain(cast, {})
    assert (None if found is None else len([value for value in found if value is not None])) == size


@pytest.mark.parametrize(
    ("name", "types", "boxes", "expected"),
    [
        ("sqrt", (Type.INTEGER,), ((0, 100),), Interval(0, 10)),
        ("remainder_by", (Type.INTEGER, Type.INTEGER), ((0, 110), (7,)), Interval(0, 6)),
        ("quotient_by", (Type.INTEGER, Type.INTEGER), ((0, 110), (10,)), Interval(0, 11)),
        ("sign", (Type.INTEGER,), ((0, 110),), Interval(0, 1)),
        ("bit_and", (Type.INTEGER, Type.INTEGER), ((0, 110), (0, 7)), Interval(0, 7)),
        ("date_diff_day", (Type.DATE, Type.DATE), (_EVERY_DAY, _EVERY_DAY), Interval(-4, 4)),
        ("date_diff_month", (Type.DATE, Type.DATE), (_EVERY_DAY, _EVERY_DAY), Interval(-1, 1)),
        ("hour", (Type.DATE,), (_EVERY_DAY,), Interval(0, 23)),
        ("decade", (Type.DATE,), (_EVERY_DAY,), Interval(202, 202)),
        ("power", (Type.DOUBLE, Type.INTEGER), ((0.0, 1.0), (-1, 2)), Interval()),  # of negative zero -inf
    ],
)
def test_intervals_are_narrow(name: str, types: Signature, boxes: Sequence[Box], expected: Interval) -> None:
    """An exactly known interval is exact."""
    arguments = [
        Literal(box[0], kind) if len(box) == 1 else column(at, kind, around(box))
        for at, (kind, box) in enumerate(zip(types, boxes, strict=True))
    ]
    call = build(FUNCTIONS[name], arguments)
    assert call is not None
    assert derive_interval(call) == expected
