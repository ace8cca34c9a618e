"""A36: an interrupt at any line of a charge leaves a lock held for all, or what was charged appended twice.

Ctrl-C, or any signal whose handler raises, comes between any two instructions. A charge that is interrupted is there
once or not at all, and whoever comes next, in any thread, process or program, need not wait.
"""

from __future__ import annotations

import inspect
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import postgres as installed
import pytest

import dpsql.ledger
from dpsql.ledger import Budget, open_ledger, workers
from dpsql.ledger.sql_ledger import SqlLedger
from dpsql.privacy.accounting.events import Pure

BUDGETS = {"visits": Budget("pure", Fraction(10**6), Fraction(0))}
LEDGER = (str(Path(dpsql.ledger.__file__).parent), workers.__file__)
HANGS, CROWD = 20, 4
_SERVE, _FIRST = inspect.getsourcelines(workers._WorkerPool.serve_work)
(WAITS,) = (_FIRST + place for place, line in enumerate(_SERVE) if "self.waiting_items.get()" in line)
"""Where a worker waits for the next work; elsewhere in `serve_work` it may be about to begin one."""


@pytest.fixture(scope="module")
def server() -> Iterator[installed.Server]:
    """A PostgreSQL server; skips where none is installed."""
    with installed.running() as started:
        yield started


@pytest.fixture(params=["file", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger is kept: a file, a server."""
    if request.param == "file":
        return str(tmp_path / "a.ledger")
    return str(request.getfixturevalue("server").url) + f"&options=-csearch_path%3D{_schema(request)}"


def _schema(request: pytest.FixtureRequest) -> str:
    import psycopg

    name = f"attack{abs(hash(request.node.nodeid)) % 10**9}"
    with psycopg.connect(request.getfixturevalue("server").url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return name


@pytest.fixture
def ledger(target: str) -> Iterator[SqlLedger]:
    """A new ledger, with an entry."""
    found = open_ledger(target, BUDGETS)
    assert isinstance(found, SqlLedger)
    with closing(found):
        charge(found, "first")
        yield found


def charge(ledger: SqlLedger, query: str) -> None:
    """One charge, which its query tells from others."""
    ledger.charge({"visits": Pure(Fraction(1, 64))}, analyst="ana", query=query)


def interrupted(work: Callable[[], object], line: int, of: tuple[str, ...] = LEDGER) -> bool:
    """Whether `work` came to its so manieth line in files below `of`, where it is interrupted, in this thread."""
    seen = count(1)

    def at_line(frame: FrameType, kind: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(of):
            return None
        if kind == "line" and next(seen) == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return at_line

    before = sys.gettrace()
    sys.settrace(at_line)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def settled() -> None:
    """Waits for what goes on without whoever was interrupted."""
    deadline = time.monotonic() + HANGS
    while any(map(at_work, threading.enumerate())):
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def at_work(thread: threading.Thread) -> bool:
    """Whether a thread is a worker, and does not wait for the next work."""
    if thread.name != workers.NAME or thread.ident not in sys._current_frames():
        return False  # one whose start was interrupted may never begin
    frame = sys._current_frames()[thread.ident]
    waits = frame.f_code is workers._WorkerPool.serve_work.__code__ and frame.f_lineno == WAITS
    return not (waits and workers._POOL.waiting_items.empty())


def require_free(target: str, patience: float = 0) -> None:
    """Another program may write at once, or as soon as what goes on is done."""
    if "://" in target:
        import psycopg

        with psycopg.connect(target) as other:
            other.execute(f"SET lock_timeout = {int(patience * 1000) + 1}".encode())
            other.execute("SELECT value FROM meta WHERE key = 'format' FOR UPDATE")
    else:
        with closing(sqlite3.connect(target, timeout=patience, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")


def in_a_thread(work: Callable[[], object]) -> None:
    """Does it in another thread, which must not hang."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(HANGS)
    assert not thread.is_alive()


def count_queries(ledger: SqlLedger) -> Counter[str]:
    """How often each query is there, in a ledger that is whole."""
    entries = ledger.list_entries()
    assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
    assert ledger.verify() == ledger.read_head()
    return Counter(entry.query for entry in entries)


def require_once_or_never(ledger: SqlLedger, heard: set[str], others: set[str]) -> None:
    """Each charge that was heard of is there once, and each of `others` at most once."""
    found = count_queries(ledger)
    assert set(found) >= heard
    assert set(found) <= heard | others
    assert set(found.values()) == {1}


def lines(*, most: int, every: int) -> list[Any]:
    """The places of a charge: some of them, and in the deep suite all the others."""
    return [
        pytest.param(
            range(first, most, every), marks=[] if first == 1 else pytest.mark.deep, id=f"from-{first}"
        )
        for first in range(1, every + 1)
    ]


@pytest.mark.parametrize("places", lines(most=3000, every=4))
def test_interrupt_at_each_line_leaves_a_whole_charge(ledger: SqlLedger, target: str, places: range) -> None:
    """The charge is stored once or not at all, nobody waits, and the process goes on with the ledger."""
    heard, others = {"first"}, set[str]()
    for line in places:
        if not interrupted(lambda line=line: charge(ledger, f"at {line}"), line):  # type: ignore[misc]
            heard.add(f"at {line}")
            break
        others.add(f"at {line}")
        settled()
        require_free(target)
        in_a_thread(lambda line=line: charge(ledger, f"after {line}"))  # type: ignore[misc]
        heard.add(f"after {line}")
    assert len(heard) > 10
    require_once_or_never(ledger, heard, others)


@pytest.mark.parametrize("places", lines(most=3000, every=8))
def test_interrupt_at_each_line_of_a_batch_serves_the_others(
    ledger: SqlLedger, target: str, places: range
) -> None:
    """Charges that waited in the batch are served, each once, whoever led it."""
    heard, others = {"first"}, set[str]()
    for line in places:
        cut = list[bool]()

        def first(line: int = line, cut: list[bool] = cut) -> None:
            cut.append(interrupted(lambda: charge(ledger, f"at {line}"), line))

        def other(name: str) -> None:
            charge(ledger, name)
            heard.add(name)

        names = [f"beside {line} {number}" for number in range(CROWD)]
        crowd = [threading.Thread(target=first, daemon=True)]
        crowd += [threading.Thread(target=other, args=(name,), daemon=True) for name in names]
        with ledger._journal.store.lock():
            for thread in crowd:
                thread.start()
            deadline = time.monotonic() + HANGS
            while len(ledger._writer._group._waiting) < CROWD:
                assert time.monotonic() < deadline
                time.sleep(0.0005)
        for thread in crowd:
            thread.join(HANGS)
            assert not thread.is_alive()
        settled()
        require_free(target)
        assert heard >= set(names)
        (heard if cut == [False] else others).add(f"at {line}")
        if cut == [False]:
            break
    require_once_or_never(ledger, heard, others)


@contextmanager
def alarmed(seconds: float) -> Iterator[None]:
    """Raises KeyboardInterrupt after so long, wherever the main thread is."""

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore:(?s).*KeyboardInterrupt:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("shots", [60, pytest.param(1500, marks=pytest.mark.deep)])
def test_signals_at_any_time_leave_whole_charges(ledger: SqlLedger, target: str, shots: int) -> None:
    """Signals arrive between the lines and within the libraries below, too.

    A signal that falls into a callback of the garbage collector is swallowed by Python with a warning, and the charge
    goes on as if there had been none.
    """
    heard, others = {"first"}, set[str]()
    for shot in range(shots):
        name = f"shot {shot}"
        try:
            with alarmed(1e-5 + 3e-3 * shot / shots):
                charge(ledger, name)
                heard.add(name)
        except KeyboardInterrupt:
            others.add(name)
        settled()
        require_free(target, HANGS / 2)
    in_a_thread(lambda: charge(ledger, "after"))
    require_once_or_never(ledger, heard | {"after"}, others - heard)


class Careless:
    """A ledger that releases its lock where Python lets it, and appends again what it has not heard of."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("CREATE TABLE entries (query TEXT)")
        self.waiting = list[str]()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """From BEGIN to COMMIT, undone by an error."""
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except Exception:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")

    def charge(self, query: str) -> None:
        """Appends all that wait."""
        self.waiting.append(query)
        with self.transaction():
            for each in self.waiting:
                self.database.execute("INSERT INTO entries VALUES (?)", [each])
        self.waiting.clear()


def test_careless_ledger_stays_locked_or_charges_twice(tmp_path: Path) -> None:
    """The attack works: at some lines the lock is left held, at others the next charge appends this one again."""
    locked = doubled = 0
    for line in count(1):
        path = tmp_path / f"{line}.ledger"
        careless = Careless(path)
        with closing(careless.database):
            if not interrupted(lambda own=careless: own.charge("mine"), line, (__file__,)):  # type: ignore[misc]
                break
            try:
                require_free(str(path))
            except sqlite3.OperationalError:
                locked += 1
                careless.database.execute("ROLLBACK")
            careless.charge("next")
            found = careless.database.execute("SELECT query FROM entries").fetchall()
            doubled += found.count(("mine",)) > 1
    assert locked > 0
    assert doubled > 0
