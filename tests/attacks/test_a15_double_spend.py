"""A15: however many processes, threads and ledger objects race for the last of a budget, it is spent once."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from fractions import Fraction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from speeds import examples

from dpsql.errors import BudgetExhausted, OperationalError
from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.privacy.accounting import Charge, Event, Pure

# Forking beside threads is what these tests are about (or the test runner's threads are idle).
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

PROCESSES = 16
HANGS = 90  # seconds, past SQLite's patience: a process that takes so long is locked for ever
ROUNDS = examples(100, least=24)
FORK = multiprocessing.get_context("fork")
PURE = Budget("pure", Fraction(1), Fraction(0))
ZCDP = Budget("zcdp", Fraction(3), Fraction(1, 10**6))


def spend_all(ledger: Ledger, charges: dict[str, Event], who: str) -> int:
    """Charges until the budget is exhausted; how often it was let through."""
    passed = 0
    while True:
        try:
            ledger.charge(charges, analyst=who, query="SELECT 1")
        except BudgetExhausted:
            return passed
        passed += 1


def race(worker: Callable[[int], Any]) -> list[Any]:
    """What the worker returns in each of the processes."""
    results = FORK.SimpleQueue()
    crowd = [
        FORK.Process(target=lambda number: results.put(worker(number)), args=(number,))
        for number in range(PROCESSES)
    ]
    for process in crowd:
        process.start()
    finish(crowd)
    return [results.get() for _ in crowd]


def finish(crowd: Sequence[BaseProcess]) -> None:
    """Waits for the processes, each of which must end by itself and without an error."""
    deadline = time.monotonic() + HANGS
    for process in crowd:
        process.join(max(deadline - time.monotonic(), 0))
        process.kill()
    for process in crowd:
        process.join()
        assert process.exitcode == 0


@pytest.mark.parametrize("inherited", [True, False], ids=["one-object", "an-object-each"])
def test_sixteen_processes_spend_exactly_the_budget(tmp_path: Path, *, inherited: bool) -> None:
    """Forked copies of one ledger, and a fresh ledger in each process, admit 32 charges of 1/32 together."""
    path, budgets = tmp_path / "a.ledger", {"visits": PURE}
    ledger, meet = open_ledger(path, budgets), FORK.Barrier(PROCESSES)

    def worker(number: int) -> int:
        mine = ledger if inherited else open_ledger(path, budgets)
        meet.wait(HANGS)  # or else the first may be done before the last has begun
        return spend_all(mine, {"visits": Pure(Fraction(1, 32))}, f"analyst {number}")

    assert sum(race(worker)) == 32
    state = open_ledger(path, budgets).get_state("visits")
    assert state.spent == state.limit == Charge(Charge.UNIT, 0)
    assert [entry.number for entry in ledger.list_entries()] == list(range(1, 33))


def test_race_to_create_the_ledger_has_one_winner(tmp_path: Path) -> None:
    """Sixteen processes that all find no file make one ledger between them, with one budget."""
    path, budgets = tmp_path / "a.ledger", {"visits": ZCDP, "patients": PURE}
    charges: dict[str, Event] = {"visits": Pure(Fraction(1, 20)), "patients": Pure(Fraction(1, 20))}
    assert sum(race(lambda number: spend_all(open_ledger(path, budgets), charges, str(number)))) == 20
    patients, visits = open_ledger(path, budgets).list_states()
    assert patients.spent == patients.limit
    assert patients.queries == visits.queries == 20


def race_for_the_last(spend: Callable[[str], bool], tables: Sequence[str]) -> list[int]:
    """How often `spend` was let through for each table, which all processes race for at once, one by one."""
    meet = FORK.Barrier(PROCESSES)

    def worker(_: int) -> list[bool]:
        passed = []
        for table in tables:
            meet.wait(HANGS)
            passed.append(spend(table))
        return passed

    return [sum(passed) for passed in zip(*race(worker), strict=True)]


def test_hundred_races_spend_exactly_the_remaining_budget(tmp_path: Path) -> None:
    """As many of 16 processes pass as the 1 to 4 remaining charges allow."""
    path, tables = tmp_path / "a.ledger", [f"t{number:03}" for number in range(ROUNDS)]
    left = {table: 1 + number % 4 for number, table in enumerate(tables)}
    budgets = dict.fromkeys(tables, PURE)
    ledger = open_ledger(path, budgets)
    ledger.charge(
        {table: Pure(1 - Fraction(left[table], 40)) for table in tables}, analyst="ana", query="SELECT 1"
    )

    def spend(table: str) -> bool:
        try:
            ledger.charge({table: Pure(Fraction(1, 40))}, analyst=str(os.getpid()), query="SELECT 1")
        except BudgetExhausted:
            return False
        return True

    assert race_for_the_last(spend, tables) == list(left.values())
    ledger.close()
    after = open_ledger(path, budgets)
    assert all(state.spent == state.limit for state in after.list_states())
    assert after.read_head().entries == ROUNDS + sum(left.values())


def test_checking_before_writing_overspends(tmp_path: Path) -> None:
    """The attack works on a naive ledger: all sixteen read the remaining budget before any of them writes."""
    path, checked = tmp_path / "spent", FORK.Barrier(PROCESSES)
    path.touch()

    def spend(table: str) -> bool:
        fits = table not in path.read_text().split()
        checked.wait(HANGS)
        if fits:
            with path.open("a") as file:
                file.write(f"{table}\n")
        return fits

    assert race_for_the_last(spend, ["a", "b", "c"]) == [PROCESSES] * 3


def test_threads_spend_exactly_the_budget(tmp_path: Path) -> None:
    """Eight threads over one shared object and eight over their own admit 32 charges together."""
    path, budgets = tmp_path / "a.ledger", {"visits": PURE}
    shared = open_ledger(path, budgets)
    passed: list[int] = []

    def worker(ledger: Ledger) -> None:
        passed.append(spend_all(ledger, {"visits": Pure(Fraction(1, 32))}, "ana"))

    ledgers = [shared] * 8 + [open_ledger(path, budgets) for _ in range(8)]
    crowd = [threading.Thread(target=worker, args=(ledger,)) for ledger in ledgers]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert sum(passed) == 32
    assert shared.get_state("visits").spent == shared.get_state("visits").limit


def test_second_ledger_object_sees_every_charge(tmp_path: Path) -> None:
    """A fresh object on the same file, open before or after, has no budget of its own."""
    path, budgets = tmp_path / "a.ledger", {"visits": PURE}
    first, second = open_ledger(path, budgets), open_ledger(path, budgets)
    first.charge({"visits": Pure(Fraction(9, 10))}, analyst="ana", query="q")
    for ledger in (second, open_ledger(path, budgets)):
        with pytest.raises(BudgetExhausted):
            ledger.charge({"visits": Pure(Fraction(2, 10))}, analyst="bob", query="q")
    link = tmp_path / "b.ledger"
    link.symlink_to(path)
    with pytest.raises(BudgetExhausted):
        open_ledger(link, budgets).charge({"visits": Pure(Fraction(2, 10))}, analyst="bob", query="q")


def test_fork_does_not_copy_a_budget_in_memory() -> None:
    """The child of a process with a ledger in memory cannot spend the parent's budget again."""
    ledger = open_ledger(":memory:", {"visits": PURE})
    child = os.fork()
    if child == 0:
        try:
            ledger.charge({"visits": Pure(Fraction(1))}, analyst="ana", query="q")
        except OperationalError as error:
            os._exit(0 if error.code == "ledger_forked" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.charge({"visits": Pure(Fraction(1))}, analyst="ana", query="q")


def test_fork_during_charges_leaves_the_ledger_usable(tmp_path: Path) -> None:
    """A process that forks while its threads charge gives the child no open handle and no held lock."""
    path, budgets = tmp_path / "a.ledger", {"visits": PURE}
    ledger = open_ledger(path, budgets)
    charges: dict[str, Event] = {"visits": Pure(Fraction(1, 64))}
    passed: list[int] = []
    threads = [
        threading.Thread(target=lambda: passed.append(spend_all(ledger, charges, "parent"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    children = [FORK.Process(target=spend_all, args=(ledger, charges, "child")) for _ in range(6)]
    for child in children:
        child.start()
    for thread in threads:
        thread.join()
    finish(children)
    entries = ledger.list_entries()
    assert len(entries) == 64
    assert sum(entry.analyst == "parent" for entry in entries) == sum(passed)
    assert ledger.get_state("visits").spent == ledger.get_state("visits").limit


def after_the_parent_closed(charge: Callable[[], object], close: Callable[[], object]) -> None:
    """Charges in a child that was forked before its parent closed what both of them hold."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(reader, 1)
            charge()
            os._exit(0)
        finally:
            os._exit(1)
    close()
    os.write(writer, b"!")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(reader)
    os.close(writer)


def test_parent_child_and_grandchild_charge_after_a_fork(tmp_path: Path) -> None:
    """A ledger in use is forked twice over; each process charges, and every charge is there once."""
    path, budgets = tmp_path / "a.ledger", {"visits": PURE}
    ledger = open_ledger(path, budgets)

    def charge(who: str, times: int) -> None:
        for _ in range(times):
            ledger.charge({"visits": Pure(Fraction(1, 64))}, analyst=who, query="SELECT 1")

    def forked(target: Callable[..., None], *args: Any) -> BaseProcess:
        process = FORK.Process(target=target, args=args)
        process.start()
        return process

    def child() -> None:
        grandchild = forked(charge, "grandchild", 24)
        charge("child", 20)
        finish([grandchild])

    charge("parent", 1)
    running = forked(child)
    charge("parent", 19)
    finish([running])
    with pytest.raises(BudgetExhausted):
        charge("parent", 1)
    ledger.close()
    entries = open_ledger(path, budgets).list_entries()
    assert Counter(entry.analyst for entry in entries) == {"parent": 20, "child": 20, "grandchild": 24}
    assert entries[-1].spent == Charge(Charge.UNIT, 0)


def test_charge_outlives_the_connection_of_its_parent(tmp_path: Path) -> None:
    """The parent of a fork may close the ledger; a later charge of the child is kept."""
    path, budgets = tmp_path / "a.ledger", {"visits": PURE}
    ledger = open_ledger(path, budgets)

    def charge() -> None:
        ledger.charge({"visits": Pure(Fraction(1, 4))}, analyst="ana", query="SELECT 1")

    charge()
    after_the_parent_closed(charge, ledger.close)
    assert open_ledger(path, budgets).get_state("visits").queries == 2


def test_connection_across_a_fork_loses_a_charge(tmp_path: Path) -> None:
    """The attack works on a naive ledger: its parent's close takes the log away that the child writes to."""
    path = tmp_path / "a.db"
    crossing = sqlite3.connect(path, isolation_level=None)
    crossing.execute("PRAGMA journal_mode = WAL")
    crossing.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY)")

    def charge() -> None:
        crossing.execute("INSERT INTO entries DEFAULT VALUES")

    charge()
    after_the_parent_closed(charge, crossing.close)
    with closing(sqlite3.connect(path)) as after:
        assert after.execute("SELECT COUNT(*) FROM entries").fetchone() == (1,)
