"""A16: a process killed at any step leaves a ledger that has every charge it was told of."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

from dpsql.accounting import Budget, Event, Ledger, Pure, open_ledger
from dpsql.accounting.rows import FIRST_PREVIOUS, entry_digest

# The test runner's own threads are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

BUDGETS = {
    "patients": Budget("pure", Fraction(100), Fraction(0)),
    "visits": Budget("zcdp", Fraction(100), Fraction(1, 10**6)),
}
CHARGES: dict[str, Event] = {table: Pure(Fraction(1, 100)) for table in BUDGETS}


def charge(ledger: Ledger) -> list[int]:
    """Charges both tables once; the ids of the entries."""
    return [entry.id for entry in ledger.charge(CHARGES, analyst="ana", query="SELECT 1")]


def kept(ledger: Ledger, path: Path) -> list[int]:
    """The ids in the ledger, after checking that it is whole: pairs, running totals and digests."""
    entries = ledger.entries()
    ids = [entry.id for entry in entries]
    assert ids == list(range(1, len(ids) + 1))
    assert [entry.table for entry in entries] == ["patients", "visits"] * (len(ids) // 2)
    for state in ledger.states():
        mine = [entry for entry in entries if entry.table == state.table]
        assert state.queries == len(mine)
        assert state.spent.loss == sum(entry.spend.loss for entry in mine)
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    previous = FIRST_PREVIOUS
    for row in map(dict, connection.execute("SELECT * FROM entries ORDER BY id")):
        assert row["previous"] == previous
        previous = row["digest"]
        assert previous == entry_digest(row)
    connection.close()
    return ids


def die_at(step: int) -> Callable[..., None]:
    """A listener that kills its process, as kill -9 does, when it is called for the `step`-th time."""
    seen = 0

    def listener(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def child(path: Path, ledger: Ledger | None, step: int, tell: int) -> None:
    """Charges (opening the ledger if it is not), dying at a step; writes to `tell` when it is charged."""
    listener = die_at(step)
    for target, name in (
        (Engine, "after_cursor_execute"),
        (Engine, "commit"),
        (Pool, "checkin"),
        (Pool, "close"),
    ):
        event.listen(target, name, listener)
    charge(ledger or open_ledger(path, BUDGETS))
    os.write(tell, b"!")
    os._exit(0)


def run_child(path: Path, ledger: Ledger | None, step: int) -> tuple[bool, bool]:
    """(whether the child was killed, whether it had told of the charge)."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            child(path, ledger, step, write)
        finally:
            os._exit(1)
    os.close(write)
    told = os.read(read, 1) == b"!"
    os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0, told


@pytest.mark.parametrize("begun", [False, True], ids=["new", "existing"])
def test_killed_at_every_step(tmp_path: Path, *, begun: bool) -> None:
    """After each statement, before each commit and close: all or none of the charge, and none lost."""
    outcomes = set()
    for step in range(1, 200):
        path = tmp_path / f"{step}.ledger"
        opened = open_ledger(path, BUDGETS) if begun else None
        before = charge(opened) if opened else []
        killed, told = run_child(path, opened, step)
        after = open_ledger(path, BUDGETS)
        ids = kept(after, path)
        assert ids in (before, [*before, len(before) + 1, len(before) + 2])
        assert not told or len(ids) > len(before)
        outcomes.add((killed, told, len(ids) > len(before)))
        assert charge(after) == [len(ids) + 1, len(ids) + 2]
        if not killed:
            break
    assert outcomes == {(True, False, False), (True, False, True), (False, True, True)}


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """A process killed amid a stream of charges: every one it told of is kept, in order, and one more at most."""
    path = tmp_path / "a.ledger"
    told_before = 0
    for patience in (0.0, 0.003, 0.007, 0.011, 0.02):
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            ledger = open_ledger(path, BUDGETS)
            while True:
                for entry in ledger.charge(CHARGES, analyst="ana", query="SELECT 1"):
                    os.write(write, b"%d\n" % entry.id)
        os.close(write)
        heard = os.read(read, 1)
        time.sleep(patience)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        while block := os.read(read, 65536):
            heard += block
        os.close(read)
        told = [int(line) for line in heard.split()]
        ids = kept(open_ledger(path, BUDGETS), path)
        assert told == list(range(told_before + 1, told_before + len(told) + 1))
        assert told[-1] <= len(ids) <= told[-1] + 3
        told_before = len(ids)
