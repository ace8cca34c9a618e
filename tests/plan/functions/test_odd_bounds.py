"""Every entry's rule gives an interval, and every value lies in it, for arguments that no policy declares.

Claim: whatever is known of the arguments, nothing, one end, a place beyond 64 bits or beyond every float, the rule
derives an interval and raises nothing, and what the engine computes at the extremes of each type lies in it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction

import duckdb
import pytest
from plan.functions.pools import Signature, calls, place, read_by, signatures

from dpsql.analysis.intervals import derive_interval
from dpsql.plan.expressions import Call, Function
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.interval import Interval, find_position
from dpsql.plan.types import Type, Value
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

_POSITIVE = (
    *(Fraction(1, 10**400), Fraction(1, 3), 1, 33, 34, 63, 64, 171, 710, 2**53 + 1, 2**62, 2**63 - 1),
    *(2**63, 2**64, 2 * 10**308, 10**400),
)
ENDS: tuple[Fraction | int | None, ...] = (None, 0, *_POSITIVE, *(-end for end in _POSITIVE))
EXTREMES: dict[Type, tuple[Value, ...]] = {
    Type.INTEGER: (-(2**63), -(2**62), -34, -1, 0, 1, 33, 34, 2**62, 2**63 - 1),
    Type.DOUBLE: (-1.7e308, -(2.0**63), -1.0, -5e-324, 0.0, 5e-324, 0.5, 1.0, 2.0**63, 1.7e308),
    Type.BOOLEAN: (False, True),
}
SAMPLE = 8
"""Most combinations of intervals of a signature that are tried."""


def odd(count: int, chance: random.Random) -> Iterator[tuple[Interval, ...]]:
    """Combinations of intervals: first each pair of one end, then others by chance."""
    known = [
        Interval(low, high)
        for low, high in itertools.product(ENDS, ENDS)
        if low is None or high is None or low <= high
    ]
    for _ in range(SAMPLE):
        yield tuple(chance.choice(known) for _ in range(count))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """An engine to compute with."""
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_rules_derive_an_interval_of_anything(function: Function) -> None:
    """No rule raises, and what it derives can be shown."""
    chance = random.Random(function.name)
    for types in list(signatures(function))[:4]:
        for known in odd(len(types), chance):
            for call in calls(function, types, list(known), most=1):
                assert str(derive_interval(call))


@pytest.mark.parametrize(
    "end", [end for end in ENDS if end is not None], ids=lambda end: str(end) if len(str(end)) < 30 else None
)
def test_factorials_of_one_end_have_an_interval(end: Fraction) -> None:
    """GREATEST(x, 9223372036854775807), for example, has no high end."""
    for known in (Interval(end), Interval(None, end), Interval(end, end)):
        for call in calls(FUNCTIONS["factorial"], (Type.INTEGER,), [known], most=1):
            assert derive_interval(call).is_within(9 * 10**36)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_extremes_lie_in_the_interval(engine: duckdb.DuckDBPyConnection, function: Function) -> None:
    """The engine's values are in the interval whose argument ends at an end of its type."""
    for types in list(signatures(function))[:4]:
        if not types or not all(kind in EXTREMES for kind in types):
            continue
        chosen = [list(itertools.combinations_with_replacement(EXTREMES[kind], 2)) for kind in types]
        pairs = list(itertools.product(*chosen)) if len(types) < 3 else []
        random.Random(function.name).shuffle(pairs)
        for ends in pairs[: SAMPLE if len(types) > 1 else None]:
            _holds(engine, function, types, ends)


def _holds(
    engine: duckdb.DuckDBPyConnection,
    function: Function,
    types: Signature,
    ends: tuple[tuple[Value, ...], ...],
) -> None:
    known = [
        Interval(*sorted(at for value in pair if (at := find_position(value)) is not None)) for pair in ends
    ]
    for call in calls(function, types, known, most=1):
        found = derive_interval(call)
        for value in _computed(engine, call, ends):
            if isinstance(value, float) and math.isinf(value):
                assert (found.high if value > 0 else found.low) is None, (
                    DUCKDB_COMPILER.emit_expression(call),
                    ends,
                    str(found),
                )
            elif isinstance(value, (int, float)) and not math.isnan(value):
                assert found.contains(Fraction(value)), (
                    DUCKDB_COMPILER.emit_expression(call),
                    ends,
                    str(found),
                    value,
                )


def _computed(
    engine: duckdb.DuckDBPyConnection, call: Call, ends: tuple[tuple[Value, ...], ...]
) -> list[Value]:
    tables = [
        f"(VALUES {', '.join(f'({DUCKDB_COMPILER.emit_constant(value)})' for value in ends[int(read.source[1:])])}) AS {read.source}(c)"
        for read in read_by(call)
    ]
    query = f"SELECT {place(call)} FROM {', '.join(tables) or '(SELECT 1)'}"
    return [value for (value,) in engine.execute(query).fetchall()]
