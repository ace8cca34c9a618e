"""A ledger that connections share: their charges are committed together, and held against each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.ledger.entry_writer import EntryWriter
from dpsql.ledger.workers import PendingCharge

THREADS, FITTING, HANGS = 8, 5, 60
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": FITTING},
    "analysts": {"ana": {"epsilon": FITTING}, "bob": {"epsilon": 1}},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}
COUNT = "SELECT COUNT(*) AS n FROM people"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A database in a file, which any number of connections open."""
    with duckdb.connect(tmp_path / "people.duckdb") as made:
        made.execute("CREATE TABLE people AS SELECT CAST(range AS INTEGER) AS age FROM range(100)")
    return tmp_path / "people.duckdb"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[dpsql.SharedLedger]:
    """A new ledger in a file."""
    with dpsql.SharedLedger(tmp_path / "a.ledger", policy=POLICY) as opened:
        yield opened


def connect(data: Path, ledger: Any, analyst: str = "ana", **options: Any) -> dpsql.Connection:
    """A connection that asks for new noise each time."""
    return dpsql.connect(
        data, **{"policy": POLICY} | options, ledger=ledger, analyst=analyst, epsilon=1, replay=False
    )


def spent(con: dpsql.Connection) -> float:
    """What all have spent of the table's budget."""
    return float(con.budget()["people"].spent.loss_fraction)


def test_threads_spend_exactly_the_budget(data: Path, ledger: dpsql.SharedLedger) -> None:
    """Of more threads than the budget pays for, as many as fit are answered, and the others are refused."""

    def ask(_: int) -> bool:
        with connect(data, ledger) as con:
            try:
                return len(con.query(COUNT).rows) == 1
            except dpsql.BudgetExhausted:
                return False

    with ThreadPoolExecutor(THREADS) as threads:
        answered = list(threads.map(ask, range(THREADS)))
    assert answered.count(True) == FITTING
    with connect(data, ledger) as con:
        assert spent(con) == FITTING
        con.engine.ledger.verify()


def test_waiting_charges_are_committed_together(
    data: Path, ledger: dpsql.SharedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charges that wait during a commit form the next group."""
    groups: list[int] = []
    commit = EntryWriter._commit_group

    def waiting(writer: EntryWriter, group: Sequence[PendingCharge]) -> None:
        deadline = time.monotonic() + HANGS
        while not groups and len(group) + len(writer._group._waiting) < FITTING:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        groups.append(len(group))
        commit(writer, group)

    monkeypatch.setattr(EntryWriter, "_commit_group", waiting)
    connections = [connect(data, ledger) for _ in range(FITTING)]
    threads = [threading.Thread(target=con.query, args=[COUNT]) for con in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
        assert not thread.is_alive()
    assert sum(groups) == FITTING
    assert len(groups) <= 2
    assert spent(connections[0]) == FITTING


def test_closing_a_connection_keeps_the_shared_ledger_open(data: Path, ledger: dpsql.SharedLedger) -> None:
    """Closing a connection leaves the ledger open; closing the ledger closes it for all connections."""
    first, second = connect(data, ledger), connect(data, ledger)
    first.close()
    assert len(second.query(COUNT)) == 1
    ledger.close()
    with pytest.raises(dpsql.InterfaceError) as refused:
        second.query(COUNT)
    assert refused.value.code == "ledger_closed"
    with pytest.raises(dpsql.InterfaceError):
        connect(data, ledger)


def test_analysts_of_a_shared_ledger_have_separate_budgets(data: Path, ledger: dpsql.SharedLedger) -> None:
    """Each analyst is charged to the table's account and to its own, and sees both."""
    ana, bob = connect(data, ledger, "ana"), connect(data, ledger, "bob")
    bob.query(COUNT)
    ana.query(COUNT)
    with pytest.raises(dpsql.BudgetExhausted):
        bob.query(COUNT)
    assert set(ana.budget()) == {"people", "people for ana"}
    assert set(bob.budget()) == {"people", "people for bob"}
    assert spent(ana) == spent(bob) == 2


def test_an_analyst_without_an_opened_budget_is_refused(data: Path, tmp_path: Path) -> None:
    """A policy that gives each analyst a budget needs their names when the ledger is opened."""
    policy = {name: value for name, value in POLICY.items() if name != "analysts"} | {
        "per_analyst": {"epsilon": 1}
    }
    with dpsql.SharedLedger(tmp_path / "b.ledger", policy=policy, analysts=["ana"]) as ledger:
        connect(data, ledger, "ana", policy=policy).query(COUNT)
        with pytest.raises(dpsql.ProgrammingError) as refused:
            connect(data, ledger, "eve", policy=policy)
    assert refused.value.code == "shared_ledger"


def test_another_policy_is_refused(data: Path, ledger: dpsql.SharedLedger) -> None:
    """Budgets are those of one policy: a connection with a larger one would not have it."""
    with pytest.raises(dpsql.ProgrammingError) as refused:
        connect(data, ledger, policy=POLICY | {"budget": {"epsilon": 2 * FITTING}})
    assert refused.value.code == "shared_ledger"


def test_another_database_is_refused(data: Path, ledger: dpsql.SharedLedger) -> None:
    """As by a ledger that a connection opens itself."""
    connect(data, ledger).close()
    other = data.with_name("other.duckdb")
    with duckdb.connect(other) as made:
        made.execute("CREATE TABLE people AS SELECT CAST(range AS INTEGER) AS age FROM range(100)")
    with pytest.raises(dpsql.PolicyError) as refused:
        connect(other, ledger)
    assert refused.value.code == "another_database"


@pytest.mark.parametrize("option", [{"anchor": "a.anchor"}, {"ledger_key": b"x" * 32}], ids=str)
def test_anchor_and_key_with_a_shared_ledger_are_refused(
    data: Path, ledger: dpsql.SharedLedger, option: dict[str, Any]
) -> None:
    """An anchor or a key of a connection would have no effect."""
    with pytest.raises(dpsql.ProgrammingError) as refused:
        connect(data, ledger, **option)
    assert refused.value.code == "shared_ledger"


def test_a_shared_ledger_takes_anchor_and_key(data: Path, tmp_path: Path) -> None:
    """It has the arguments of `connect`, and its file can be opened without sharing."""
    with dpsql.SharedLedger(
        tmp_path / "c.ledger", policy=POLICY, anchor=tmp_path / "c.anchor", ledger_key=b"k" * 32
    ) as ledger:
        connect(data, ledger).query(COUNT)
    with connect(data, tmp_path / "c.ledger", anchor=tmp_path / "c.anchor", ledger_key=b"k" * 32) as con:
        assert spent(con) == 1
    with pytest.raises(dpsql.OperationalError) as refused:
        connect(data, tmp_path / "c.ledger")
    assert refused.value.code == "ledger_key"
