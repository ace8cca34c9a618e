"""The PEP 249 face, as the specification asks for it."""

from __future__ import annotations

import datetime as dt
import inspect

import clinic
import pytest

import dpsql
from dpsql import errors

GROUPED = "SELECT plan, COUNT(*) AS visits, AVG(cost) AS mean FROM visits GROUP BY plan"


def test_module_attributes() -> None:
    """The globals and exceptions of the specification are there, and the exceptions form its tree."""
    assert (dpsql.apilevel, dpsql.threadsafety, dpsql.paramstyle) == ("2.0", 1, "qmark")
    assert issubclass(dpsql.InterfaceError, dpsql.Error)
    for name in (
        "DataError",
        "OperationalError",
        "IntegrityError",
        "InternalError",
        "ProgrammingError",
        "NotSupportedError",
    ):
        assert issubclass(getattr(dpsql, name), dpsql.DatabaseError)
        assert getattr(dpsql.Connection, name) is getattr(dpsql, name)


def test_every_error_descends_from_the_root() -> None:
    """Whatever dpsql raises is a dpsql.Error with a code."""
    classes = [
        value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, Exception)
    ]
    roots = [value for value in classes if not issubclass(value, errors.Error)]
    assert roots == [errors.Warning]
    assert all(value.code for value in classes if issubclass(value, errors.Error))


def test_cursor_fetches_as_specified(con: dpsql.Connection) -> None:
    """fetchone, fetchmany and fetchall walk the rows once, in order."""
    cursor = con.cursor()
    assert cursor.description is None
    assert cursor.rowcount == -1
    assert cursor.execute(GROUPED, epsilon=1) is cursor
    assert [column[:2] for column in cursor.description or ()] == [
        ("plan", "VARCHAR"),
        ("visits", "BIGINT"),
        ("mean", "DOUBLE"),
    ]
    assert all(len(column) == 7 for column in cursor.description or ())
    assert (cursor.description or ())[0][1] == dpsql.STRING
    assert (cursor.description or ())[1][1] == dpsql.NUMBER
    assert (cursor.description or ())[1][1] != dpsql.DATETIME
    assert cursor.rowcount == 2
    first = cursor.fetchone()
    assert first is not None
    assert first[0] == "A"
    assert [row[0] for row in cursor.fetchmany(size=5)] == ["B"]
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


def test_cursor_iterates(con: dpsql.Connection) -> None:
    """A cursor is an iterator over what is left, and a context manager."""
    with con.execute(GROUPED, epsilon=1) as cursor:
        assert [row[0] for row in cursor] == ["A", "B"]
    with pytest.raises(dpsql.InterfaceError):
        cursor.fetchall()


def test_executemany_is_refused_clearly(con: dpsql.Connection) -> None:
    """executemany says why it is refused and what to do."""
    with pytest.raises(dpsql.NotSupportedError, match="each query is charged"):
        con.cursor().executemany(GROUPED, [])


def test_closed_connection_and_cursor(con: dpsql.Connection) -> None:
    """A closed connection refuses everything but another close."""
    cursor = con.cursor()
    con.close()
    con.close()
    for use in (
        con.cursor,
        con.budget,
        con.commit,
        lambda: cursor.execute(GROUPED, epsilon=1),
        lambda: con.query("SELECT 1"),
    ):
        with pytest.raises(dpsql.InterfaceError):
            use()


@pytest.mark.parametrize(
    ("where", "parameters", "expected"),
    [
        ("plan = ?", ["A"], 400),
        ("cost >= ? AND cost < ?", [100, 200.5], None),
        ("day > ?", [dt.date(2024, 4, 1)], 400),
        ("day IN (?, ?)", [dt.date(2024, 1, 1), dt.date(2024, 3, 1)], 400),
        ("plan = ? OR ? = 1", ["A' OR 1=1 --", 0], 0),
        ("ward IS NULL OR ?", [True], 800),
    ],
)
def test_parameters_are_bound_as_literals(
    con: dpsql.Connection, where: str, parameters: list[object], expected: int | None
) -> None:
    """Each ? takes one value, in the order of the text, and never becomes SQL."""
    row = con.execute(f"SELECT COUNT(*) FROM visits WHERE {where}", parameters, epsilon=2).fetchone()
    assert row is not None
    if expected is not None:
        assert abs(row[0] - expected) < 60  # type: ignore[operator]


@pytest.mark.parametrize(
    "parameters", [[], [1, 2], "A", {"a": 1}, [b"bytes"], [float("nan")], [2**70], ["\0"]]
)
def test_wrong_parameters_are_refused(con: dpsql.Connection, parameters: object) -> None:
    """Too few, too many, of the wrong kind: an error of dpsql, and no charge."""
    with pytest.raises(dpsql.Error):
        con.execute("SELECT COUNT(*) FROM visits WHERE cost = ?", parameters, epsilon=1)  # type: ignore[arg-type]
    assert con.budget()["visits"].queries == 0


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much", True, None])
def test_a_loss_must_be_a_positive_number(con: dpsql.Connection, epsilon: object) -> None:
    """NaN, infinities, zero, negatives and words are refused as ValueErrors; no loss at all is asked for."""
    with pytest.raises(dpsql.ProgrammingError) as caught:
        con.query(GROUPED, epsilon=epsilon)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError) or epsilon is None
    assert con.budget()["visits"].queries == 0


def test_frames(con: dpsql.Connection) -> None:
    """An answer comes as pandas, polars and Arrow with the same values and fixed types."""
    cursor = con.execute(GROUPED, epsilon=1)
    rows = cursor.fetchall()
    assert [tuple(row) for row in cursor.df().itertuples(index=False)] == rows
    assert cursor.pl().rows() == rows
    assert [str(kind) for kind in cursor.to_arrow_table().schema.types] == ["string", "int64", "double"]


def test_pandas_read_sql(con: dpsql.Connection) -> None:
    """pandas reads through the connection as through any other."""
    import pandas as pd

    class Default:
        """A connection whose cursor names the loss, as read_sql cannot."""

        def cursor(self) -> object:
            return dpsql.Connection(con.engine, epsilon=1).cursor()

        def rollback(self) -> None:
            """Nothing to roll back."""

    with pytest.warns(UserWarning, match="pandas only supports SQLAlchemy"):
        frame = pd.read_sql(GROUPED, Default())  # type: ignore[call-overload]
    assert list(frame["plan"]) == ["A", "B"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_as_databases(kind: str) -> None:
    """A dict of frames is a database."""
    table = clinic.database().sql("SELECT * FROM visits").to_arrow_table()
    frame = {
        "pandas": table.to_pandas,
        "arrow": lambda: table,
        "polars": lambda: __import__("polars").from_arrow(table),
    }[kind]()
    policy = {**clinic.POLICY, "tables": {"visits": clinic.POLICY["tables"]["visits"]}}
    with dpsql.connect({"visits": frame}, policy=policy, ledger=":memory:", epsilon=2) as con:
        ((count,),) = con.execute("SELECT COUNT(*) FROM visits").fetchall()
        assert abs(count - 800) < 60  # type: ignore[operator]
