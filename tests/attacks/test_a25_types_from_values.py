"""A25, the type channel: types, plans and failures do not follow the values of a frame."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import pytest
from worlds import NOON, connected, observed, spent

import dpsql
from dpsql.api.connection import Connection

SQL = "SELECT COUNT(x) FROM people"


def framed(values: list[Any], kind: str, dtype: Any = object) -> Connection:
    """A connection to a pandas frame of one column."""
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
    policy = {
        "budget": {"epsilon": 9},
        "tables": {"people": {"unit": "row", "columns": {"x": {"type": kind}}}},
    }
    return connected({"people": frame}, policy)


def session(values: list[Any], kind: str, dtype: Any = object) -> list[Any]:
    """All that is observed of opening a frame and asking for a count, but for the count."""
    try:
        connection = framed(values, kind, dtype)
    except dpsql.Error as error:
        return [type(error).__name__, error.code, str(error)]
    outcome, _ = observed(connection, SQL)
    explained = str(connection.explain(SQL))
    entries = [(entry.details, entry.digest) for entry in connection.engine.ledger.list_entries()]
    return [outcome, explained, entries, spent(connection)]


NEIGHBOURS: dict[str, tuple[str, list[Any], Any]] = {
    # name: policy type, the values of many, the value of one more
    "a wide decimal": ("double", [Decimal("1.5")] * 9, Decimal("123456.789")),
    "a long integer": ("integer", [1] * 9, 2**40),
    "a huge integer": ("integer", [1] * 9, 2**80),
    "text among integers": ("integer", [1] * 9, "secret"),
    "text among many integers": ("integer", [1] * 4_999, "secret"),
    "text among reals": ("double", [1.5] * 4_999, "secret"),
    "an integer among text": ("varchar", ["a"] * 4_999, 5),
    "a list among text": ("varchar", ["a"] * 4_999, [1]),
    "a lone surrogate": ("varchar", ["a"] * 9, "\ud800"),
    "nothing among nothing": ("varchar", [None] * 9, "a"),
    "a moment with a zone": ("timestamp", [NOON.replace(tzinfo=None)] * 9, NOON),
}


@pytest.mark.parametrize(
    "case", ["a wide decimal", "a long integer", "a huge integer", "text among integers"]
)
def test_type_guess_of_the_engine_follows_one_value(case: str) -> None:
    """The attack works on the engine as it comes: the type of a column of objects tells that one more is there."""
    _, many, one = NEIGHBOURS[case]

    def guessed(values: list[Any]) -> str:
        engine = duckdb.connect()
        engine.register("people", pd.DataFrame({"x": pd.Series(values, dtype=object)}))
        return str(engine.execute("SELECT x FROM people LIMIT 0").description)

    assert guessed(many) != guessed([*many, one])


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_one_value_does_not_change_a_type(case: str) -> None:
    """A frame of Python objects with one more row: the same plan, digest, statement, error and charge."""
    kind, many, one = NEIGHBOURS[case]
    ours = session(many, kind)
    for neighbour in ([one, *many], [*many, one]):
        theirs = session(neighbour, kind)
        assert [str(part) for part in ours] == [str(part) for part in theirs]


def test_categories_of_a_frame_are_not_observable() -> None:
    """A category that one row brings is in no plan, digest or error."""
    ours, theirs = (
        session(["a", "b"], "varchar", "category"),
        session(["a", "b", "secret"], "varchar", "category"),
    )
    assert [str(part) for part in ours] == [str(part) for part in theirs]
    assert "secret" not in str(session(["a", "secret"], "integer", "category"))


@pytest.mark.parametrize(
    ("kind", "dtype", "values"),
    [
        ("integer", "Int64", [1, None, 3]),
        ("double", "float64", [1.0, None, 3.0]),
        ("varchar", "string", ["a", None, "c"]),
    ],
)
def test_typed_frames_keep_their_types(kind: str, dtype: str, values: list[Any]) -> None:
    """Columns with a type of their own need no look at their values."""
    assert len(framed(values, kind, dtype).query(SQL)) == 1
