"""A45: paid then, released now.

What was paid for in one period of a budget, and is drawn in the next, comes on top of what that period promises: a stream
that was opened before a reset, a reservation, a refinement.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from worlds import NOON, person, world

from dpsql.api.connection import Connection
from dpsql.errors import OperationalError
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.protocol import NewRelease
from dpsql.ledger.sql_ledger import SqlLedger
from dpsql.privacy.accounting import Pure
from dpsql.results.synthetic_table import Stream

Anew = Callable[[], object]
SQL = "SELECT city, member FROM people"


def renewing(how: str) -> tuple[Connection, Anew]:
    """A world whose one budget is spent, and what begins it anew: a reset, or the next month; for an analyst's own as well."""
    connection = world(*[person(number, city="Bonn" if number % 2 else "Kiel") for number in range(60)])
    clock = SimpleNamespace(now=NOON)
    renewal = "monthly" if how == "renew" else None
    ledger = open_ledger(
        ":memory:",
        {"people": Budget("pure", Fraction(1), Fraction(0), renewal=renewal)},
        clock=lambda: clock.now,
    )
    engine = connection.engine
    object.__setattr__(engine, "ledger", ledger)
    object.__setattr__(engine, "_accounts", {"people": next(iter(ledger._book.accounts.values()))})  # type: ignore[attr-defined]

    def anew() -> None:
        if how == "renew":
            clock.now += timedelta(days=31)
        else:
            ledger.reset("people", by="olga", reason="a new study")

    return connection, anew


def opened(connection: Connection) -> Stream:
    """A stream that takes the whole budget of its period."""
    return connection.stream(SQL, epsilon=1, workload="marginals(1)", updates=2, queries=4)


def released(stream: Stream) -> int:
    """How many answers it gives, of all kinds."""
    asks: tuple[Callable[[], object], ...] = (
        lambda: stream.count("city = 'Bonn' AND member"),
        lambda: stream.count("city = 'Kiel' AND NOT member"),
        stream.count,
        stream.table,
    )
    return sum(is_answered(ask) for ask in asks)


def is_answered(ask: Callable[[], object]) -> bool:
    """Whether a stream still answers."""
    try:
        ask()
    except OperationalError as error:
        if error.code != "stream_ended":
            raise
        return False
    return True


@pytest.mark.parametrize("how", ["reset", "renew"])
def test_stream_ends_with_the_budget_that_paid(how: str) -> None:
    """All of its kinds of answers: those of before are what the period before has promised."""
    connection, anew = renewing(how)
    stream = opened(connection)
    assert released(stream) >= 3
    anew()
    assert connection.query("SELECT COUNT(*) FROM people", epsilon=1).rows
    assert released(stream) == 0
    anew()
    assert released(stream) == 0
    assert released(opened(connection)) >= 3


@pytest.mark.parametrize("how", ["reset", "renew"])
def test_careless_stream_goes_on(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack works where nobody looks: two budgets' worth of answers in one period."""
    connection, anew = renewing(how)
    stream = opened(connection)
    anew()
    connection.query("SELECT COUNT(*) FROM people", epsilon=1)
    monkeypatch.setattr(SqlLedger, "is_current", lambda *_: True)
    assert released(stream) >= 3


BUDGETS = {
    "people": Budget("pure", Fraction(10), Fraction(0), renewal="weekly"),
    "visits": Budget("pure", Fraction(10), Fraction(0)),
    "others": Budget("pure", Fraction(10), Fraction(0), renewal="daily"),
}


@pytest.mark.parametrize(
    ("days", "table", "ends"),
    [(0, "", False), (1, "", False), (8, "", True), (0, "visits", True), (0, "others", False)],
)
def test_payment_is_looked_up_in_one_place(tmp_path: Path, days: int, table: str, ends: bool) -> None:
    """A charge of two tables is found by either table only; refinements read the same place."""
    clock = SimpleNamespace(now=NOON)
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS, clock=lambda: clock.now)) as ledger:
        both: dict[str, Any] = {"people": Pure(Fraction(1)), "visits": Pure(Fraction(1))}
        entries = ledger.charge(both, analyst="ana", query="q")
        ledger.store_releases([NewRelease("s", "m", "{}")], entries[0])
        ledger.charge({"others": Pure(Fraction(1))}, analyst="ana", query="q")
        clock.now += timedelta(days=days)
        if table:
            ledger.reset(table, by="olga", reason="a new study")
        assert [ledger.is_current(entry) for entry in entries] == [not ends] * 2
        head = ledger.read_head()
        if ends:
            with pytest.raises(OperationalError) as refused:
                ledger.charge(both, analyst="ana", query="q", refines=[1])
            assert refused.value.code == "release_refined"
            assert ledger.read_head() == head
        else:
            ledger.charge(both, analyst="ana", query="q", refines=[1])


def test_charge_of_many_parts_is_checked_whole(tmp_path: Path) -> None:
    """All entries of the charge are checked, however many they are."""
    names = [f"t{number:02}" for number in range(40)]
    budgets = {name: Budget("pure", Fraction(10), Fraction(0)) for name in names}
    with closing(open_ledger(tmp_path / "a.ledger", budgets)) as ledger:
        for _ in range(2):
            entries = ledger.charge(dict.fromkeys(names, Pure(Fraction(1))), analyst="ana", query="q")
        assert ledger.is_current(entries[0])
        ledger.reset("t39", by="olga", reason="a new study")
        assert not ledger.is_current(entries[0])
