"""A session reserves a slice of its budgets: what it asks is charged to that, and the rest is given back."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.errors import BudgetExhausted, LossError, OperationalError, ProgrammingError, QueryRejected
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt

COUNT = "SELECT COUNT(DISTINCT patient_id) AS n FROM visits"
KEYS = "SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY ward"


def session(path: Path | str, budget: dict[str, Any] | None = None, **keys: Any) -> dpsql.Connection:
    """A connection of ana's to the clinic, with new noise in each answer."""
    policy = POLICY | {"budget": budget or {"epsilon": 1, "delta": 1e-6, "accountant": "pure"}}
    return dpsql.connect(
        database(), policy=policy, ledger=path, **{"analyst": "ana", "replay": False, **keys}
    )


def left(con: dpsql.Connection) -> Fraction:
    """The ε that the table has left."""
    return con.budget()["visits"].remaining_epsilon


def test_queries_spend_from_the_reservation_and_the_rest_is_returned(tmp_path: Path) -> None:
    """Within the `with` block only the reservation is charged; its end returns the rest to the table."""
    path = tmp_path / "a.ledger"
    with session(path) as con, session(path, analyst="bob") as bob:
        with con.reserve(epsilon=0.5) as held:
            result = con.query(COUNT, epsilon=0.125)
            assert (left(con), held.left()) == (Fraction(1, 2), {"visits": Fraction(3, 8)})
            assert "left ε = 0.375" in str(con.explain(COUNT, epsilon=0.25))
            with pytest.raises(BudgetExhausted, match=r"needs epsilon 0\.5 of reservation 1 of table visits"):
                con.query(COUNT, epsilon=0.5)
            with pytest.raises(BudgetExhausted, match=r"0\.5 is left for one query \(budget: epsilon 1\)"):
                bob.query(COUNT, epsilon=0.75)
            for code, ask in (
                ("slice_held", lambda: con.reserve(epsilon=0.125)),
                ("slice_forecast", lambda: con.budget(COUNT, epsilon=0.1)),
            ):
                with pytest.raises(ProgrammingError) as refused:
                    ask()
                assert refused.value.code == code
        assert (left(con), held.left()) == (Fraction(7, 8), {})
        held.close()
        con.query(COUNT, epsilon=0.125)
        assert left(con) == Fraction(3, 4)
        receipt = json.loads(result.receipt.to_json())
    assert receipt["entries"][0]["slice"] == 1
    history = LedgerReader.open(path)
    assert [entry.kind for entry in check_receipt(receipt, history).entries] == ["draw"]
    history.close()


@pytest.mark.parametrize("accountant", ["pure", "basic", "zcdp", "gdp"])
def test_a_reservation_fits_one_query_of_its_epsilon(accountant: str) -> None:
    """It includes the share of δ for unknown keys; two queries of half its ε fit as well, under each accountant."""
    with session(":memory:", {"epsilon": 10, "delta": 1e-4, "accountant": accountant}) as con:
        for queries in (1, 2):
            with con.reserve(epsilon=0.5):
                for _ in range(queries):
                    con.query(KEYS, epsilon=Fraction(1, 2 * queries))
        bare = con.reserve(epsilon=0.5, delta="1e-9")
        with pytest.raises(BudgetExhausted, match="delta"):
            con.query(KEYS, epsilon=0.5)
        bare.close()


def test_replays_are_free_within_a_reservation() -> None:
    """Releases within a reservation are replayed outside it, and the other way round."""
    with session(":memory:", replay=True) as con:
        before = con.query(COUNT, epsilon=0.25).rows
        with con.reserve(epsilon=0.5) as held:
            assert con.query(COUNT, epsilon=0.25).rows == before
            within = con.query("SELECT SUM(days) FROM visits", epsilon=0.25).rows
            assert held.left() == {"visits": Fraction(1, 4)}
        assert con.query("SELECT SUM(days) FROM visits", epsilon=0.25).rows == within
        assert left(con) == Fraction(1, 2)


def test_closing_returns_a_reservation_and_a_crash_does_not(tmp_path: Path) -> None:
    """Only the same analyst can resume a reservation that a crash left open, by its number."""
    path = tmp_path / "a.ledger"
    with session(path, reserve=0.5) as con:
        con.query(COUNT, epsilon=0.25)
    with session(path) as con:
        assert left(con) == Fraction(3, 4)
        number = con.reserve(epsilon=0.5).number
        con.engine.ledger.close()  # as a process that is killed
        con._engine._reservation = None
    with (
        session(path, analyst="bob") as bob,
        pytest.raises(ProgrammingError, match=r"'bob' holds no open reservation"),
    ):
        bob.resume(number)
    with session(path) as con:
        assert left(con) == Fraction(1, 4)
        with con.resume(number):
            con.query(COUNT, epsilon=0.25)
        assert left(con) == Fraction(1, 2)
        with pytest.raises(ProgrammingError, match="it has ended"):
            con.resume(number)


def test_a_returned_reservation_pays_nothing(tmp_path: Path) -> None:
    """Queries are refused, and are not charged to the table, until the session closes the reservation."""
    path = tmp_path / "a.ledger"
    with session(path) as con, session(path) as other:
        held = con.reserve(epsilon=0.5)
        other.engine.ledger.close_reservation(held.number, by="olga")
        with pytest.raises(OperationalError, match="reservation 1 is not open for 'ana' on table visits"):
            con.query(COUNT, epsilon=0.125)
        assert left(con) == 1
        held.close()
        con.query(COUNT, epsilon=0.125)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"epsilon": 2}, BudgetExhausted),
        ({"epsilon": 0}, LossError),
        ({"epsilon": 0.5, "delta": 2}, LossError),
        ({"epsilon": 0.5, "delta": 1e-5}, BudgetExhausted),
        ({"epsilon": 0.5, "tables": ["wards"]}, ProgrammingError),
        ({"epsilon": 0.5, "tables": ["secrets"]}, ProgrammingError),
        ({"epsilon": 0.5, "tables": []}, ProgrammingError),
    ],
)
def test_an_invalid_reservation_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    """Nothing is reserved, and the session stays usable."""
    with session(":memory:") as con:
        with pytest.raises(error):
            con.reserve(**options)
        assert left(con) == 1
        with con.reserve(epsilon=1, tables=["VISITS"]):
            con.query(COUNT, epsilon=1)


def test_the_cap_of_a_query_holds_within_a_reservation() -> None:
    """A reservation may be larger than the cap of one query."""
    with session(":memory:", {"epsilon": 10}) as con, con.reserve(epsilon=4):
        with pytest.raises(QueryRejected, match="above the policy's cap"):
            con.query(COUNT, epsilon=3)
        con.query(COUNT, epsilon=2)
