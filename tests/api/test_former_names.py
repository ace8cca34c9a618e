"""Names of an earlier version answer as the names that replaced them, and warn."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
import dpsql.accounting
import dpsql.ledger
from dpsql.accounting import _LEDGER

POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}
COUNT = "SELECT COUNT(*) FROM people"


def test_best_is_combine() -> None:
    """`best` warns, and answers what `combine` answers."""
    database = duckdb.connect()
    database.execute("CREATE TABLE people AS SELECT range AS age FROM range(50)")
    with dpsql.connect(database, policy=POLICY, ledger=":memory:") as con:
        for _ in range(2):
            con.query(COUNT, epsilon=1, replay=False)
        with pytest.warns(DeprecationWarning, match="combine"):
            former = con.best(COUNT)
        combined = con.combine(COUNT)
        assert former.rows == combined.rows
        assert len(former.receipt.replayed) == 2


@pytest.mark.parametrize("name", sorted(_LEDGER))
def test_names_of_the_ledger(name: str) -> None:
    """`dpsql.accounting` still has them, with a warning that names the new place."""
    with pytest.warns(DeprecationWarning, match=rf"dpsql\.ledger\.{name}"):
        assert getattr(dpsql.accounting, name) is getattr(dpsql.ledger, name)


@pytest.mark.parametrize("kind", [dpsql.ledger.Entry, dpsql.ledger.Quote])
def test_slice_is_reservation(kind: type) -> None:
    """The number of a reservation has its former name too, with a warning."""
    made = object.__new__(kind)
    object.__setattr__(made, "reservation", 7)
    with pytest.warns(DeprecationWarning, match="reservation"):
        assert made.slice == 7


def test_other_names_are_unknown() -> None:
    """A name that never was there is an AttributeError without a warning."""
    with pytest.raises(AttributeError, match="Nothing"):
        dpsql.accounting.Nothing  # noqa: B018
