"""Charges that wait for the same ledger are committed together, each as if it had been alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from dying import heard_from
from sqlalchemy import Connection, Engine, event

from dpsql.errors import BudgetExhausted, Error, OperationalError
from dpsql.ledger import Budget, Entry, open_ledger
from dpsql.ledger.sql_ledger import SqlLedger
from dpsql.ledger.stores.base import UNKNOWN
from dpsql.ledger.workers import PendingCharge
from dpsql.privacy.accounting import Pure

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}
CROWD, HANGS = 8, 60


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    """A new ledger in a file."""
    found = open_ledger(tmp_path / "a.ledger", BUDGETS)
    assert isinstance(found, SqlLedger)
    with closing(found):
        yield found


def charge(ledger: SqlLedger, epsilon: Fraction) -> tuple[Entry, ...]:
    """Charges once."""
    return ledger.charge({"visits": Pure(epsilon)}, analyst="ana", query="SELECT 1")


def together(ledger: SqlLedger, ask: Callable[[], Any]) -> list[Any]:
    """What so many threads get, or are told, who all wait before the first of them is served."""
    found: list[Any] = []

    def asks() -> None:
        try:
            found.append(ask())
        except (Error, MemoryError) as error:
            found.append(error)

    crowd = [threading.Thread(target=asks) for _ in range(CROWD)]
    deadline = time.monotonic() + HANGS
    with ledger._journal.store.lock():
        for thread in crowd:
            thread.start()
        while len(ledger._writer._group._waiting) < CROWD:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    for thread in crowd:
        thread.join(HANGS)
        assert not thread.is_alive()
    return found


@contextmanager
def at_commits(heard: Callable[[], None]) -> Iterator[None]:
    """Calls `heard` just before each commit."""

    def listener(_connection: Connection) -> None:
        heard()

    event.listen(Engine, "commit", listener)
    try:
        yield
    finally:
        event.remove(Engine, "commit", listener)


def test_waiting_charges_share_one_commit(ledger: SqlLedger) -> None:
    """A caller who heard an outcome before the commit could answer, and a crash would undo the charge."""
    gone_on: list[int] = []
    seen: list[int] = []

    def listener() -> None:
        time.sleep(0.05)
        seen.append(len(gone_on))

    def ask() -> int:
        (entry,) = charge(ledger, Fraction(1, 64))
        gone_on.append(entry.id)
        return entry.id

    with at_commits(listener):
        found = together(ledger, ask)
    assert seen == [0]
    assert sorted(found) == list(range(1, CROWD + 1))
    assert ledger.verify().entries == CROWD


def test_charge_in_a_group_is_checked_against_earlier_ones(ledger: SqlLedger) -> None:
    """Of eight charges of a quarter each, four pass."""
    found = together(ledger, lambda: charge(ledger, Fraction(1, 4)))
    assert sum(isinstance(each, BudgetExhausted) for each in found) == CROWD - 4
    assert ledger.get_state("visits").spent == ledger.get_state("visits").limit
    assert ledger.verify().entries == 4


def failing_once(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, lost: BaseException, *, landed: bool
) -> None:
    """The next write transaction ends with an error, before its commit or after it."""
    whole, failed = ledger._journal.store.open_transaction, list[bool]()

    @contextmanager
    def transaction(*, write: bool) -> Iterator[Connection]:
        fails = write and not failed
        failed.append(fails)
        with whole(write=write) as connection:
            yield connection
            if fails and not landed:
                raise lost
        if fails:
            raise lost

    monkeypatch.setattr(ledger._journal.store, "open_transaction", transaction)


def test_a_failure_is_of_one_and_the_others_try_for_themselves(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the failed transaction is there, and nobody is charged twice."""
    failing_once(ledger, monkeypatch, OperationalError("lost", code="ledger_busy"), landed=False)
    found = together(ledger, lambda: charge(ledger, Fraction(1, 64)))
    assert [each.code for each in found if isinstance(each, OperationalError)] == ["ledger_busy"]
    assert sorted(each[0].id for each in found if isinstance(each, tuple)) == list(range(1, CROWD))
    assert ledger.verify().entries == CROWD - 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_up_for_all(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, *, landed: bool
) -> None:
    """Where it landed all are charged once, and where it did not all are told so."""
    failing_once(ledger, monkeypatch, OperationalError("lost", code=UNKNOWN), landed=landed)
    found = together(ledger, lambda: charge(ledger, Fraction(1, 64)))
    assert ledger.verify().entries == (CROWD if landed else 0)
    told = [each.code for each in found if isinstance(each, OperationalError)]
    assert told == ([] if landed else ["ledger_unavailable"] * CROWD)


@pytest.mark.parametrize("landed", [True, False])
def test_a_failure_after_the_commit_charges_nobody_twice(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, *, landed: bool
) -> None:
    """Where no memory is left for the last step of a commit, those who came with it are there once or told that not."""
    failing_once(ledger, monkeypatch, MemoryError(), landed=landed)
    found = together(ledger, lambda: charge(ledger, Fraction(1, 64)))
    assert ledger.verify().entries == (CROWD if landed else 0)
    assert len([each for each in found if isinstance(each, MemoryError)]) == 1
    assert len([each for each in found if isinstance(each, tuple)]) == (CROWD - 1 if landed else 0)


def test_slices_and_charges_in_one_commit(ledger: SqlLedger) -> None:
    """Whatever waits follows from what waited before it: one return of many gives back."""
    number = ledger.reserve({"visits": Pure(Fraction(1, 2))}, analyst="ana")[0].id
    found = together(ledger, lambda: ledger.close_reservation(number, by="ana"))
    assert sorted(map(len, found)) == [0] * (CROWD - 1) + [1]
    assert ledger.get_state("visits").spent.loss == 0
    assert ledger.verify().entries == 2


def test_an_interrupted_waiting_charge_is_not_committed(ledger: SqlLedger) -> None:
    """And does not keep the others waiting."""
    waiting = PendingCharge(lambda: pytest.fail("nobody waits for this"))
    waiting.abandoned = True
    ledger._writer._group._waiting.append(waiting)
    assert charge(ledger, Fraction(1, 64))[0].id == 1


def test_killed_amid_charges_of_threads(tmp_path: Path) -> None:
    """Each charge that a thread told of is kept, when the process is killed at any moment."""
    path = tmp_path / "a.ledger"
    budgets = {"visits": Budget("pure", Fraction(10**6), Fraction(0))}
    for patience in (0.0, 0.005, 0.013, 0.03):

        def crowded(tell: int) -> None:
            ledger = open_ledger(path, budgets)

            def stream() -> None:
                while True:
                    (entry,) = ledger.charge({"visits": Pure(Fraction(1))}, analyst="ana", query="SELECT 1")
                    os.write(tell, b"%d\n" % entry.id)

            for _ in range(CROWD):
                threading.Thread(target=stream, daemon=True).start()
            time.sleep(HANGS)

        _, heard = heard_from(crowded, patience)
        told = {int(line) for line in heard.split()}
        with closing(open_ledger(path, budgets)) as ledger:
            ids = [entry.id for entry in ledger.list_entries()]
            assert told
            assert told <= set(ids)
            assert ids == list(range(1, len(ids) + 1))
            assert ledger.verify().entries == len(ids)
