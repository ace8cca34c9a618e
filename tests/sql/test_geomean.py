"""GEOMEAN is arithmetic over the release of a mean: as private as that, and within the interval of its argument."""

from __future__ import annotations

import math

import pytest

import dpsql
from tests.sql.study import prepare, study

_ARGUMENTS = ("age", "GREATEST(cost, 1)", "LEAST(GREATEST(weight, 0.5), 60)", "cost * cost + 1")


@pytest.mark.parametrize("argument", _ARGUMENTS)
@pytest.mark.parametrize("end", ["", " GROUP BY plan", " WHERE age BETWEEN 30 AND 40"])
def test_geomean_is_the_release_of_its_rewrite(argument: str, end: str) -> None:
    """It is released by the measurements of EXP(AVG(LN(x)))."""
    with study() as connection:
        ours, theirs = (
            prepare(connection, f"SELECT {call.format(argument)} FROM visits{end}").releases
            for call in ("GEOMEAN({})", "EXP(AVG(LN({})))")
        )
        assert [part.release for part in ours] == [part.release for part in theirs]
        assert [part.plan for part in ours] == [part.plan for part in theirs]


def test_geomean_stays_within_the_interval_of_its_argument() -> None:
    """The exponential of a rounded logarithm may not: of a constant it is that constant, to the last digit."""
    constants = [*range(2, 40), 0.1, 1e-9, 12345.678]
    outside = [value for value in constants if math.exp(math.log(value)) != value]
    assert len(outside) > 5
    calls = ", ".join(f"GEOMEAN({value!r})" for value in constants)
    with study() as connection:
        (row,) = connection.query(f"SELECT {calls} FROM visits").rows
    assert row == tuple(map(float, constants))


def test_geomean_of_no_rows_is_null() -> None:
    """It is NULL as a mean is: the least value of its interval would imply rows."""
    with study() as connection:
        assert connection.query("SELECT GEOMEAN(age) FROM visits WHERE FALSE").rows == ((None,),)


def test_refusal_of_geomean_says_what_to_write() -> None:
    """GEOMEAN of values that may be zero is refused."""
    with study() as connection, pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, "SELECT GEOMEAN(cost) FROM visits")
    assert "GREATEST(x, 1)" in (caught.value.hint or "")
