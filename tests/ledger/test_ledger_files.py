"""The ledger's file: reopened with everything it had, refused when it is something else."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
import traceback
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event

from dpsql.errors import (
    BudgetExhausted,
    DatabaseError,
    Error,
    IntegrityError,
    NotSupportedError,
    OperationalError,
    PolicyError,
)
from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.stores.sqlite import SqliteStore
from dpsql.privacy.accounting import Pure

BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}
CHARGE = {"visits": Pure(Fraction(1, 8))}


def charge(ledger: Ledger) -> int:
    """Charges an eighth of the budget; the entry's id."""
    (entry,) = ledger.charge(CHARGE, analyst="ana", query="SELECT 1")
    return entry.id


def read_all(path: Path) -> None:
    """Opens the ledger and reads all that it says."""
    ledger = open_ledger(path, BUDGETS)
    ledger.list_states()
    ledger.list_entries()


def refused(target: str | Path) -> DatabaseError:
    """The error of opening the target, which shows nothing of SQLite or SQLAlchemy."""
    with pytest.raises((OperationalError, IntegrityError)) as caught:
        open_ledger(target, BUDGETS)
    shown = "".join(traceback.format_exception(caught.value))
    assert "sqlite3." not in shown
    assert "sqlalchemy.exc" not in shown
    return caught.value


def test_the_next_process_has_everything(tmp_path: Path) -> None:
    """Another interpreter opens the file, sees every entry, and spends what is left and no more."""
    path = tmp_path / "a.ledger"
    ledger = open_ledger(path, BUDGETS)
    entries = [charge(ledger) for _ in range(3)]
    ledger.close()
    code = (
        "import sys\n"
        "from fractions import Fraction\n"
        "from dpsql.privacy.accounting import Pure\nfrom dpsql.ledger import Budget, open_ledger\n"
        "ledger = open_ledger(sys.argv[1], {'visits': Budget('pure', Fraction(1), Fraction(0))})\n"
        "print([entry.id for entry in ledger.list_entries()], ledger.get_state('visits').remaining_epsilon)\n"
        "ledger.charge({'visits': Pure(Fraction(5, 8))}, analyst='bob', query='q')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{entries} 0.625"
    ledger = open_ledger(path, BUDGETS)
    assert [entry.analyst for entry in ledger.list_entries()] == ["ana"] * 3 + ["bob"]
    with pytest.raises(BudgetExhausted):
        charge(ledger)


def test_changed_budget_is_refused_with_both_budgets(tmp_path: Path) -> None:
    """A policy cannot give a spent table a new budget; the error names both."""
    path = tmp_path / "a.ledger"
    open_ledger(path, BUDGETS)
    for other in (
        Budget("pure", Fraction(2), Fraction(0)),
        Budget("pure", Fraction(1, 2), Fraction(0)),
        Budget("pure", Fraction(1), Fraction(1, 10**6)),
        Budget("pure", Fraction(1), Fraction(0), Fraction(0)),
        Budget("zcdp", Fraction(1), Fraction(1, 10**6)),
    ):
        with pytest.raises(PolicyError) as caught:
            open_ledger(path, {"visits": other})
        assert caught.value.code == "budget_changed"
        assert str(other) in str(caught.value)
        assert str(BUDGETS["visits"]) in str(caught.value)
    open_ledger(path, BUDGETS)


def test_a_new_table_gets_its_budget(tmp_path: Path) -> None:
    """A table added to the policy is added to the ledger; one taken away is remembered."""
    path = tmp_path / "a.ledger"
    charge(open_ledger(path, BUDGETS))
    more = BUDGETS | {"patients": Budget("pure", Fraction(3), Fraction(0))}
    assert [state.queries for state in open_ledger(path, more).list_states()] == [0, 1]
    fewer = open_ledger(path, {"patients": more["patients"]})
    with pytest.raises(PolicyError):
        fewer.get_state("visits")
    assert open_ledger(path, more).get_state("visits").queries == 1
    with pytest.raises(PolicyError):
        open_ledger(path, more | {"patients": BUDGETS["visits"]})


def test_an_impossible_budget_makes_no_entry(tmp_path: Path) -> None:
    """An unknown accountant, and zcdp without delta, are refused before the file is touched."""
    path = tmp_path / "a.ledger"
    for budget in (Budget("best", Fraction(1), Fraction(0)), Budget("zcdp", Fraction(1), Fraction(0))):
        with pytest.raises(PolicyError):
            open_ledger(path, {"visits": budget})
    assert not path.exists()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    """The file and SQLite's files beside it have mode 0600, whatever the umask."""
    path = tmp_path / "a.ledger"
    before = os.umask(0)
    try:
        ledger = open_ledger(path, BUDGETS)
        with sqlite3.connect(path) as reader:
            reader.execute("SELECT * FROM entries").fetchall()
            charge(ledger)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        reader.close()
    finally:
        os.umask(before)
    assert modes == {"a.ledger": 0o600, "a.ledger-wal": 0o600, "a.ledger-shm": 0o600}


def test_paths_are_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd names, relative paths and a later chdir lead to the same ledger."""
    monkeypatch.chdir(tmp_path)
    name = "a?mode=memory#% é.ledger"
    ledger = open_ledger(name, BUDGETS)
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    charge(ledger)
    assert open_ledger(tmp_path / name, BUDGETS).get_state("visits").queries == 1
    assert list((tmp_path / "else").iterdir()) == []


def test_other_files_are_refused_and_keep_their_bytes(tmp_path: Path) -> None:
    """A text file and another database are refused by name and keep their bytes."""
    text, other, near = tmp_path / "notes.txt", tmp_path / "other.db", tmp_path / "near.db"
    text.write_text("not a database, but long enough to be read as a header of one\n" * 20)
    for path, table in ((other, "CREATE TABLE people (name)"), (near, "CREATE TABLE meta (key, value)")):
        connection = sqlite3.connect(path)
        connection.execute(table)
        connection.commit()
        connection.close()
    for path in (text, other, near):
        before = path.read_bytes()
        error = refused(path)
        assert error.code == "not_a_ledger"
        assert str(path) in error.message
        assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["near.db", "notes.txt", "other.db"]


def test_impossible_places_are_named(tmp_path: Path) -> None:
    """A missing directory, a directory, an empty path, a NUL, and a URL."""
    assert refused(tmp_path / "no" / "a.ledger").code == "ledger_directory"
    assert not (tmp_path / "no").exists()
    assert refused(tmp_path).code == "not_a_ledger"
    assert refused("").code == "not_a_ledger"
    assert refused("a\0b").code == "ledger_unavailable"
    with pytest.raises(NotSupportedError):
        open_ledger("mysql://host/ledger", BUDGETS)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_ledger_that_cannot_be_written_is_refused() -> None:
    """A file without write permission cannot be charged, so it is refused when it is opened."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.ledger"
        open_ledger(path, BUDGETS)
        path.chmod(0o444)
        Path(name).chmod(0o555)
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:
                os.setuid(65534)
            try:
                open_ledger(path, BUDGETS)
            except OperationalError as error:
                os._exit(0 if error.code == "ledger_unavailable" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        Path(name).chmod(0o755)


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    """A schema that this dpsql does not know is not guessed at."""
    path = tmp_path / "a.ledger"
    open_ledger(path, BUDGETS)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    connection.close()
    assert refused(path).code == "ledger_version"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET spent_loss = '0'",
        "UPDATE entries SET spent_loss = '-1'",
        "UPDATE entries SET spent_loss = '1e3'",
        "UPDATE entries SET spent_loss = x'ff'",
        "UPDATE entries SET number = 'many'",
        "UPDATE entries SET number = 0",
        "UPDATE entries SET query = x'ff'",
        "UPDATE entries SET digest = ''",
        "DROP TABLE entries",
        "UPDATE accounts SET limit_loss = limit_loss || '0'",
        "UPDATE accounts SET epsilon = 'much'",
        "UPDATE accounts SET epsilon = '0/1'",
        "UPDATE accounts SET delta = '1/0'",
        "UPDATE entries SET event = '{}'",
        "UPDATE entries SET at = 'then'",
        "UPDATE entries SET details = '['",
    ],
)
def test_a_damaged_row_is_an_integrity_error(tmp_path: Path, damage: str) -> None:
    """What dpsql did not write is neither used nor shown as a Python error."""
    path = tmp_path / "a.ledger"
    charge(open_ledger(path, BUDGETS))
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(IntegrityError):
        read_all(path)


def test_damaged_bytes_never_escape_as_something_else(tmp_path: Path) -> None:
    """Pages overwritten at random give a dpsql error, or an answer, but no other exception."""
    path = tmp_path / "a.ledger"
    ledger = open_ledger(path, BUDGETS)
    for _ in range(6):
        charge(ledger)
    ledger.close()
    whole = path.read_bytes()
    choose = random.Random(7)
    seen = set()
    for attempt in range(40):
        broken = bytearray(whole)
        length = choose.choice([1, 16, 600, 5000])
        start = attempt % 3 * 8 if attempt < 6 else choose.randrange(len(whole))
        broken[start : start + length] = choose.randbytes(len(broken[start : start + length]))
        path.write_bytes(broken)
        try:
            read_all(path)
            charge(open_ledger(path, BUDGETS))
        except Error as error:
            seen.add(error.code)
        for beside in ("-wal", "-shm", "-journal"):
            (tmp_path / f"a.ledger{beside}").unlink(missing_ok=True)
    assert {"not_a_ledger", "ledger_corrupt"} <= seen


def test_a_deleted_ledger_is_not_a_fresh_budget(tmp_path: Path) -> None:
    """An open ledger whose file is gone refuses; it does not begin again."""
    path = tmp_path / "a.ledger"
    ledger = open_ledger(path, BUDGETS)
    charge(ledger)
    path.unlink()
    with pytest.raises(OperationalError):
        charge(ledger)
    assert not path.exists()


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    """A crash between making the file and filling it leaves an empty one: it is filled."""
    path = tmp_path / "a.ledger"
    path.touch(0o600)
    assert charge(open_ledger(path, BUDGETS)) == 1


def test_a_writer_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another program holds the file, the charge fails as busy, and nothing is charged."""
    path = tmp_path / "a.ledger"
    monkeypatch.setattr("dpsql.ledger.stores.sqlite.BUSY_SECONDS", 0.05)
    ledger = open_ledger(path, BUDGETS)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError) as caught:
        charge(ledger)
    assert caught.value.code == "ledger_busy"
    other.execute("ROLLBACK")
    other.close()
    assert charge(ledger) == 1


def test_a_charge_is_one_synchronous_write_transaction(tmp_path: Path) -> None:
    """It takes the write lock before it reads the totals, and commits with synchronous FULL into the log."""
    statements: list[str] = []
    settings: list[object] = []

    def heard(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement.split(maxsplit=1)[0])

    def commits(connection: Connection) -> None:
        settings.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())
        settings.append(connection.exec_driver_sql("PRAGMA journal_mode").scalar())

    ledger = open_ledger(tmp_path / "a.ledger", BUDGETS)
    event.listen(Engine, "before_cursor_execute", heard)
    event.listen(Engine, "commit", commits)
    try:
        charge(ledger)
    finally:
        event.remove(Engine, "before_cursor_execute", heard)
        event.remove(Engine, "commit", commits)
    # The entries that came meanwhile, the newest stored release, and the entry as it was kept.
    assert statements == ["BEGIN", "SELECT", "SELECT", "INSERT", "SELECT", "PRAGMA", "PRAGMA"]
    assert settings == [2, "wal"]


def test_history_of_an_analyst_costs_the_same_with_other_queries(tmp_path: Path) -> None:
    """It is read while charges wait: the steps of SQLite are counted."""
    path, budgets = tmp_path / "a.ledger", {"visits": Budget("pure", Fraction(1_000), Fraction(0))}
    ledger, steps = open_ledger(path, budgets), list[int]()
    (entry,) = ledger.charge(CHARGE, analyst="bob", query="SELECT 1")
    for count in (20, 200):
        for _ in range(count):
            ledger.charge(CHARGE, analyst="ana", query="SELECT 1")
        steps.append(0)
        with closing(LedgerReader.open(path)) as reader:

            def step() -> None:
                steps[-1] += 1

            assert isinstance(reader._store, SqliteStore)
            assert reader._store._raw is not None
            reader._store._raw.set_progress_handler(step, 1)
            assert [each.id for each in reader.list_last_entries(1_000, analyst="bob", kind="charge")] == [
                entry.id
            ]
            assert reader.list_last_entries(1_000, analyst="carl", kind="charge") == []
    assert steps[1] < 1.5 * steps[0]
