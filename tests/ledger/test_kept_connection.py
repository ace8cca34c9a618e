"""A ledger opens its file once and keeps it open, but across no fork, and not when the path means another file."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

from dpsql.errors import BudgetExhausted, OperationalError
from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.ledger.stores import sqlite
from dpsql.ledger.stores.sqlite import SqliteStore
from dpsql.privacy.accounting import Pure
from tests.forks import quiet_fork

# The test runner's own threads are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}


def charge(ledger: Ledger) -> int:
    """Charges an eighth of the budget; the entry's id."""
    (entry,) = ledger.charge({"visits": Pure(Fraction(1, 8))}, analyst="ana", query="SELECT 1")
    return entry.id


def handles(path: Path) -> int:
    """How many open files of this process are the ledger's own file."""
    own, count = path.stat(), 0
    for number in range(4_096):
        try:
            count += os.path.samestat(os.fstat(number), own)
        except OSError:
            continue
    return count


@contextmanager
def listened(target: Any, name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Listens to SQLAlchemy for a while."""
    event.listen(target, name, listener)
    try:
        yield
    finally:
        event.remove(target, name, listener)


def ended_well(child: int) -> bool:
    """Whether a forked process ended without an error."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_uses_open_one_connection(tmp_path: Path) -> None:
    """Charges, quotes and states of an open ledger neither open nor close anything."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        charge(ledger)
        heard: list[str] = []
        with (
            listened(Pool, "connect", lambda *_: heard.append("opened")),
            listened(Pool, "close", lambda *_: heard.append("closed")),
        ):
            for _ in range(3):
                charge(ledger)
                ledger.dry_run({"visits": Pure(Fraction(1, 8))})
                ledger.list_states()
                ledger.list_entries()
        assert heard == []
        assert handles(tmp_path / "a.ledger") == 1


@pytest.mark.parametrize("said", [True, False], ids=["closed", "forgotten"])
def test_a_closed_ledger_leaves_no_open_file(tmp_path: Path, *, said: bool) -> None:
    """Closed, or dropped without a word, a ledger leaves no open file, and everything in the file itself."""
    path = tmp_path / "a.ledger"
    ledger = open_ledger(path, BUDGETS)
    charge(ledger)
    assert handles(path) == 1
    if said:
        ledger.close()
    del ledger
    gc.collect()
    assert handles(path) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["a.ledger"]
    shutil.copy(path, tmp_path / "b.ledger")
    with closing(open_ledger(tmp_path / "b.ledger", BUDGETS)) as copy:
        assert copy.get_state("visits").queries == 1


def test_two_objects_on_one_file_keep_their_locks(tmp_path: Path) -> None:
    """Closing one of two objects on a file takes no lock of the other: a second process still has to wait."""
    path = tmp_path / "a.ledger"
    first, second = open_ledger(path, BUDGETS), open_ledger(path, BUDGETS)
    assert [charge(ledger) for ledger in (first, second, first, second)] == [1, 2, 3, 4]
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"

    def interrupted(*_: object) -> None:
        second.close()
        done.append(subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False))

    done: list[subprocess.CompletedProcess[bytes]] = []
    with closing(first), listened(Engine, "commit", interrupted):
        assert charge(first) == 5
    assert b"database is locked" in done[0].stderr


def test_no_handle_crosses_a_fork(tmp_path: Path) -> None:
    """A child finds no open file of the ledger's; it opens its own, as its parent does again."""
    path = tmp_path / "a.ledger"
    ledgers = [open_ledger(path, BUDGETS) for _ in range(2)]
    for ledger in ledgers:
        charge(ledger)
    assert handles(path) == 2
    child = os.fork()
    if child == 0:
        try:
            clean = handles(path) == 0
            os._exit(0 if clean and charge(ledgers[0]) == 3 and handles(path) == 1 else 1)
        finally:
            os._exit(1)
    assert handles(path) == 0
    assert ended_well(child)
    assert charge(ledgers[1]) == 4
    for ledger in ledgers:
        ledger.close()


def test_fork_during_a_charge_undoes_it(tmp_path: Path) -> None:
    """A thread that forks inside its own charge closes what it charges through: no entry, and no harm."""
    path, children = tmp_path / "a.ledger", []

    def fork(*_: object) -> None:
        if (child := os.fork()) == 0:
            os._exit(0)
        children.append(child)

    with closing(open_ledger(path, BUDGETS)) as ledger:
        with listened(Engine, "commit", fork), pytest.raises(OperationalError) as caught:
            charge(ledger)
        assert caught.value.code == "ledger_unavailable"
        assert all(map(ended_well, children))
        assert charge(ledger) == 1


def test_a_fork_that_python_does_not_see_is_refused(tmp_path: Path) -> None:
    """Where C code forks beside an open ledger, the child may not use any: it has not the locks it would count on."""
    quiet_fork(
        f"""
        from pathlib import Path
        from dpsql.errors import OperationalError
        from tests.ledger.test_kept_connection import BUDGETS, charge, open_ledger

        path = Path({str(tmp_path / "a.ledger")!r})
        ledger = open_ledger(path, BUDGETS)
        charge(ledger)
        """,
        """
        for use in (lambda: charge(ledger), lambda: open_ledger(path, BUDGETS)):
            try:
                use()
            except OperationalError as error:
                assert "forked outside of Python" in str(error)
            else:
                raise AssertionError
        """,
        "assert charge(ledger) == 2",
    )


def test_a_ledger_that_is_closed_meanwhile_is_no_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may close one while another looks at all that are open."""
    monkeypatch.setattr(sqlite, "_OPEN", {*sqlite._OPEN, SqliteStore(tmp_path / "closed.ledger")})
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        assert charge(ledger) == 1


@pytest.mark.parametrize("beside", ["", "-wal", "-shm"])
def test_files_that_are_taken_away_are_noticed(tmp_path: Path, beside: str) -> None:
    """A charge goes to the files that the path names, never to ones that nobody will find again."""
    path = tmp_path / "a.ledger"
    ledger = open_ledger(path, BUDGETS)
    charge(ledger)
    Path(f"{path}{beside}").unlink()
    if beside:
        assert charge(ledger) == 2
    else:
        with pytest.raises(OperationalError) as caught:
            charge(ledger)
        assert caught.value.code == "ledger_unavailable"
        assert not path.exists()
    # As a crash would leave it: what is on disk counts, not what an open handle still sees.
    shutil.copytree(tmp_path, tmp_path / "left")
    ledger.close()
    if beside:
        with closing(open_ledger(tmp_path / "left" / "a.ledger", BUDGETS)) as left:
            assert left.get_state("visits").queries == 2


def test_an_interrupted_charge_holds_no_lock(tmp_path: Path) -> None:
    """An interrupt amid a charge undoes it, and leaves the file free for others and the ledger usable."""
    path = tmp_path / "a.ledger"

    def interrupt(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT"):
            raise KeyboardInterrupt

    with closing(open_ledger(path, BUDGETS)) as ledger:
        with listened(Engine, "after_cursor_execute", interrupt), pytest.raises(KeyboardInterrupt):
            charge(ledger)
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
        assert charge(ledger) == 1


def test_a_budget_is_one_for_all_objects_and_processes(tmp_path: Path) -> None:
    """Objects opened before and after, here and in a child, spend the same eight eighths."""
    path = tmp_path / "a.ledger"
    ledgers = [open_ledger(path, BUDGETS) for _ in range(3)]
    ids = [charge(ledger) for ledger in ledgers * 2]
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if charge(ledgers[2]) == 7 else 1)
        finally:
            os._exit(1)
    assert ended_well(child)
    assert [*ids, 7, charge(ledgers[0])] == list(range(1, 9))
    for ledger in ledgers:
        with pytest.raises(BudgetExhausted):
            charge(ledger)
        ledger.close()
