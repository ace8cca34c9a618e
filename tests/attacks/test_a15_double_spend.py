"""A15: however many processes, threads and ledger objects race for the last of a budget, it is spent once."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from dpsql.accounting import Budget, Event, Ledger, Pure, Spend, open_ledger
from dpsql.errors import BudgetExhausted, OperationalError

# Forking beside threads is what these tests are about (or the test runner's threads are idle).
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

PROCESSES = 16
HANGS = 90  # seconds, past SQLite's patience: a process that takes so long is locked for ever
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


def race(worker: Callable[[int], int]) -> int:
    """The sum of what the worker returns in each of the processes."""
    results = FORK.SimpleQueue()
    crowd = [
        FORK.Process(target=lambda number: results.put(worker(number)), args=(number,))
        for number in range(PROCESSES)
    ]
    for process in crowd:
        process.start()
    finish(crowd)
    return sum(int(results.get()) for _ in crowd)


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
    ledger = open_ledger(path, budgets)

    def worker(number: int) -> int:
        mine = ledger if inherited else open_ledger(path, budgets)
        return spend_all(mine, {"visits": Pure(Fraction(1, 32))}, f"analyst {number}")

    assert race(worker) == 32
    state = open_ledger(path, budgets).state("visits")
    assert state.spent == state.limit == Spend(Spend.UNIT, 0)
    assert [entry.number for entry in ledger.entries()] == list(range(1, 33))


def test_a_race_to_make_the_ledger_has_one_winner(tmp_path: Path) -> None:
    """Sixteen processes that all find no file make one ledger between them, with one budget."""
    path, budgets = tmp_path / "a.ledger", {"visits": ZCDP, "patients": PURE}
    charges: dict[str, Event] = {"visits": Pure(Fraction(1, 20)), "patients": Pure(Fraction(1, 20))}
    assert race(lambda number: spend_all(open_ledger(path, budgets), charges, str(number))) == 20
    patients, visits = open_ledger(path, budgets).states()
    assert patients.spent == patients.limit
    assert patients.queries == visits.queries == 20


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
    assert shared.state("visits").spent == shared.state("visits").limit


def test_a_second_ledger_object_sees_every_charge(tmp_path: Path) -> None:
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


def test_a_fork_does_not_copy_a_budget_in_memory() -> None:
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


def test_a_fork_amid_charges_leaves_the_ledger_usable(tmp_path: Path) -> None:
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
    entries = ledger.entries()
    assert len(entries) == 64
    assert sum(entry.analyst == "parent" for entry in entries) == sum(passed)
    assert ledger.state("visits").spent == ledger.state("visits").limit
