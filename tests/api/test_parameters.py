"""Parameters: by place and by name, single values and lists, Python's own and NumPy's."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from worlds import engine_of, person, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.policy.request.parameters import bind_parameters

ALIKE = {
    np.int64(3): 3,
    np.uint8(3): 3,
    np.float32(0.5): 0.5,
    np.bool_(True): True,
    np.str_("a"): "a",
    np.datetime64("2024-02-29"): dt.date(2024, 2, 29),
    np.datetime64("2024-02-29T01:02:03.123456789"): dt.datetime(2024, 2, 29, 1, 2, 3, 123456),
}
UNLIKE = [
    np.timedelta64(5, "ns"),
    np.timedelta64(5, "D"),
    np.datetime64("12024-01-01"),
    np.datetime64("12024-01-01T00:00:00.000"),
    np.complex64(1),
    np.array(3),
    np.array([[1]]),
    object(),
    bytearray(b"a"),
    dt.time(10, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    Decimal("NaN"),
    Decimal("1e999"),
    [],
]


@pytest.fixture(scope="module")
def people() -> Connection:
    """People of two cities and of none, with next to no noise."""
    rows = [person(who, city=("Bonn", "Kiel", None)[who % 3], age=who % 7) for who in range(60)]
    return world(*rows, budget={"epsilon": 10**9, "delta": 1e-6})


def _name(value: object) -> str:
    """A name of a case that is the same in each process."""
    return "an object" if type(value) is object else repr(value)


@pytest.mark.parametrize(("given", "meant"), ALIKE.items(), ids=_name)
def test_numpy_scalars_are_python_values(given: Any, meant: Any) -> None:
    """A NumPy scalar is converted to the Python type of its value."""
    (value,) = bind_parameters([given]).values
    assert (type(value), value) == (type(meant), meant)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (Decimal("1.10"), 1.1),
        (Decimal(7), 7),
        (Decimal("1e3"), 1000),
        (dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))), dt.datetime(2025, 12, 31, 22)),
        (dt.time(8, 30), dt.time(8, 30)),
        (uuid.UUID(int=5), uuid.UUID(int=5)),
        (b"a", b"a"),
    ],
    ids=repr,
)
def test_values_of_the_engine_s_types_are_parameters(given: Any, meant: Any) -> None:
    """A decimal is the number that its text writes, a moment with a zone is in UTC."""
    (value,) = bind_parameters([given]).values
    assert (type(value), value) == (type(meant), meant)


@pytest.mark.parametrize("given", UNLIKE, ids=_name)
def test_parameters_without_an_sql_value_are_refused(given: Any) -> None:
    """Durations and dates beyond the calendar are refused, not converted."""
    with pytest.raises(dpsql.DataError) as caught:
        bind_parameters([given])
    assert caught.value.code == "parameter"


@pytest.mark.parametrize(
    ("sql", "parameters", "written"),
    [
        ("age = ?::INTEGER", ["5"], "age = 5"),
        ("age IN ?", [[1, 2, 5]], "age IN (1, 2, 5)"),
        ("age NOT IN ?", [np.array([1, 2])], "age NOT IN (1, 2)"),
        ("city IN ?", [("Bonn", None)], "city IN ('Bonn', NULL)"),
        ("age > :low AND age < :high", {"low": 1, "high": np.int64(5)}, "age > 1 AND age < 5"),
        ("age IN :ages OR age = :one", {"ages": [1, 2], "one": 3}, "age IN (1, 2) OR age = 3"),
        ("age = $age", {"age": 4}, "age = 4"),
    ],
)
def test_parameters_equal_their_constants(
    people: Connection, sql: str, parameters: Any, written: str
) -> None:
    """The answer is DuckDB's to the text in which they are written out."""
    ours = people.query(f"SELECT COUNT(*) FROM people WHERE {sql}", parameters, epsilon=10**5).rows
    assert [*ours] == engine_of(people).execute(f"SELECT COUNT(*) FROM people WHERE {written}").fetchall()


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("age = ?", []),
        ("age = ?", [1, 2]),
        ("age = :age", [1]),
        ("age = :age", {"old": 1}),
        ("age = :age", {"age": 1, "old": 2}),
        ("age = 1", {"age": 1}),
        ("age = ?", {"age": 1}),
        ("age = ?", [[1, 2]]),
    ],
)
def test_parameters_that_do_not_fit_are_refused(people: Connection, sql: str, parameters: Any) -> None:
    """Before anything is charged."""
    before = len(people.engine.ledger.list_entries())
    with pytest.raises(dpsql.Error) as caught:
        people.query(f"SELECT COUNT(*) FROM people WHERE {sql}", parameters)
    assert caught.value.code == "parameter"
    assert len(people.engine.ledger.list_entries()) == before
