"""The ledger in PostgreSQL: one writer at a time, durable, and honest about lost connections."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import psycopg
import pytest
from postgres import Server
from sqlalchemy import Connection, Engine, event

from dpsql.errors import (
    BudgetExhausted,
    Error,
    IntegrityError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from dpsql.ledger import AnchorFile, Budget, Ledger, open_ledger
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Pure

# The test runner's own threads are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

FORK = get_context("fork")
BUDGETS = {
    "patients": Budget("pure", Fraction(1), Fraction(0)),
    "visits": Budget("pure", Fraction(1), Fraction(0)),
}


def charge(ledger: Ledger, part: int = 8) -> int:
    """Charges a part of the budget of visits; the entry's id."""
    (entry,) = ledger.charge({"visits": Pure(Fraction(1, part))}, analyst="ana", query="SELECT 1")
    return entry.id


def execute(url: str, sql: str) -> None:
    """Changes the database as somebody with its shell can."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def refused(use: Callable[[], object]) -> Error:
    """The error of a use, which shows nothing of psycopg or SQLAlchemy."""
    with pytest.raises(Error) as caught:
        use()
    shown = "".join(traceback.format_exception(caught.value))
    assert "psycopg." not in shown
    assert "sqlalchemy.exc" not in shown
    return caught.value


@pytest.fixture
def ledger(postgres_url: str) -> Iterator[Ledger]:
    """A new ledger."""
    with closing(open_ledger(postgres_url, BUDGETS)) as opened:
        yield opened


def test_next_object_reads_everything(ledger: Ledger, postgres_url: str) -> None:
    """Entries, totals and the head are there for another object, and for one without a policy."""
    assert [charge(ledger) for _ in range(3)] == [1, 2, 3]
    with closing(open_ledger(postgres_url, BUDGETS)) as other:
        assert other.list_entries() == ledger.list_entries()
        assert other.list_states() == ledger.list_states()
        assert charge(other) == 4
    assert charge(ledger) == 5
    with closing(LedgerReader.open(postgres_url)) as history:
        assert history.verify(ledger.read_head()).head == ledger.verify()
        assert [row["id"] for row in history.iterate_rows()] == [1, 2, 3, 4, 5]


def test_a_charge_is_one_durable_transaction_under_a_row_lock(ledger: Ledger) -> None:
    """It locks before it reads, and commits synchronously whatever the server's default is."""
    statements: list[str] = []
    settings: list[object] = []

    def heard(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    def commits(connection: Connection) -> None:
        settings.extend(
            connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("synchronous_commit", "transaction_isolation", "fsync")
        )

    charge(ledger)
    event.listen(Engine, "before_cursor_execute", heard)
    event.listen(Engine, "commit", commits)
    try:
        charge(ledger)
    finally:
        event.remove(Engine, "before_cursor_execute", heard)
        event.remove(Engine, "commit", commits)
    assert settings == ["on", "read committed", "on"]
    kinds = [statement.split(maxsplit=1)[0] for statement in statements]
    reads = ["SELECT"] * 3  # the lock, the entries that came meanwhile, the newest stored release
    assert kinds == ["SET", "SET", "SET", *reads, "INSERT", "SELECT", "SHOW", "SHOW", "SHOW"]
    assert statements[3].endswith("FOR UPDATE")


def test_processes_spend_exactly_the_budget(postgres_url: str) -> None:
    """Eight processes race to make the ledger and to spend it: 32 charges pass between them, and a chain stands."""

    def spend(passed: int) -> None:
        with closing(open_ledger(postgres_url, BUDGETS)) as ledger:
            for _ in range(10):
                try:
                    charge(ledger, 32)
                except BudgetExhausted:
                    break
                os.write(passed, b"!")

    reader, writer = os.pipe()
    crowd = [FORK.Process(target=spend, args=(writer,)) for _ in range(8)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join(120)
    os.close(writer)
    assert [process.exitcode for process in crowd] == [0] * 8
    with os.fdopen(reader, "rb") as told:
        assert len(told.read()) == 32
    with closing(open_ledger(postgres_url, BUDGETS)) as ledger:
        assert ledger.verify().entries == 32
        assert ledger.get_state("visits").spent == ledger.get_state("visits").limit


def test_two_objects_race_for_the_last(postgres_url: str, ledger: Ledger) -> None:
    """While one holds the lock the other waits, and then sees what was spent."""
    charge(ledger, 1)
    with closing(open_ledger(postgres_url, BUDGETS)) as other:
        for each in (other, ledger):
            with pytest.raises(BudgetExhausted):
                charge(each)


def test_a_fork_opens_its_own_connection(ledger: Ledger) -> None:
    """Parent and child charge after a fork, neither through the other's connection."""
    charge(ledger)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if charge(ledger) in {2, 3} else 1)
        finally:
            os._exit(2)
    assert charge(ledger) in {2, 3}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert charge(ledger) == 4
    assert ledger.verify().entries == 4


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_loses_nothing(ledger: Ledger, server: Server, mode: str) -> None:
    """While it is down a charge fails and costs nothing; after it, even after a crash, all charges are there."""
    assert [charge(ledger), charge(ledger)] == [1, 2]
    server.stop(mode)
    try:
        error = refused(lambda: charge(ledger))
    finally:
        server.start()
    assert (error.code, error.hint) == (
        "ledger_unavailable",
        "nothing was charged; check that the server runs and accepts this user, and try again",
    )
    assert charge(ledger) == 3
    assert ledger.verify().entries == 3


KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dpsql'"


def test_a_connection_that_is_lost_between_charges_is_opened_again(ledger: Ledger, postgres_url: str) -> None:
    """Nobody notices."""
    charge(ledger)
    execute(postgres_url, KILL)
    assert charge(ledger) == 2


@pytest.mark.parametrize("landed", [False, True])
def test_a_commit_whose_answer_is_lost_is_looked_up(
    ledger: Ledger, postgres_url: str, monkeypatch: pytest.MonkeyPatch, *, landed: bool
) -> None:
    """If the commit landed the charge stands and is answered; if not, the error says that nothing was charged."""
    commit = psycopg.Connection.commit
    lost: list[int] = []

    def broken(connection: psycopg.Connection) -> None:
        if lost:
            return commit(connection)
        lost.append(1)
        if landed:
            commit(connection)
        execute(postgres_url, KILL)
        connection.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(psycopg.Connection, "commit", broken)
    if landed:
        assert charge(ledger) == 1
    else:
        error = refused(lambda: charge(ledger))
        assert (error.code, error.hint) == ("ledger_unavailable", "nothing was charged; try again")
    assert lost
    assert ledger.verify().entries == int(landed)
    assert charge(ledger) == 1 + int(landed)


def test_unknown_commit_is_reported_as_unknown(
    ledger: Ledger, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller learns that nobody can tell whether the charge stands while the server is gone."""
    charge(ledger)

    def broken(connection: psycopg.Connection) -> None:
        server.stop("immediate")
        connection.close()
        raise psycopg.OperationalError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "commit", broken)
        try:
            error = refused(lambda: charge(ledger))
        finally:
            server.start()
    assert error.code == "ledger_unknown"
    assert "the charge may have been stored" in error.message
    assert charge(ledger) == 2


def test_edits_are_found(ledger: Ledger, postgres_url: str) -> None:
    """As in a file: on opening and by the whole check, in words of dpsql."""
    charge(ledger)
    charge(ledger)
    execute(postgres_url, "UPDATE entries SET loss = '0' WHERE id = 1")
    error = refused(lambda: open_ledger(postgres_url, BUDGETS))
    assert (error.code, error.message) == ("ledger_tampered", "entry 1 of the ledger was changed")
    assert refused(ledger.verify).message == error.message
    execute(postgres_url, "DROP TABLE entries")
    assert isinstance(refused(lambda: charge(ledger)), IntegrityError)


def test_trigger_that_undoes_a_charge_fails_the_charge(ledger: Ledger, postgres_url: str) -> None:
    """What was written is read back before it is committed."""
    execute(
        postgres_url,
        "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER trap BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION undo()",
    )
    assert refused(lambda: charge(ledger)).code == "ledger_tampered"


def test_an_anchor_and_a_key_hold_here_too(postgres_url: str, tmp_path: Path) -> None:
    """The anchor follows each charge and shows a removed one; the key is asked for."""
    anchor, key = tmp_path / "anchor", b"k" * 32
    with closing(open_ledger(postgres_url, BUDGETS, anchor=anchor, key=key)) as ledger:
        charge(ledger)
        charge(ledger)
        assert AnchorFile(anchor).read_head() == ledger.read_head()
    assert refused(lambda: open_ledger(postgres_url, BUDGETS)).code == "ledger_key"
    execute(postgres_url, "DELETE FROM entries WHERE id = 2")
    assert (
        refused(lambda: open_ledger(postgres_url, BUDGETS, anchor=anchor, key=key)).code
        == "ledger_rolled_back"
    )


def test_a_schema_with_other_tables_is_refused(postgres_url: str) -> None:
    """A schema with somebody's tables is refused, and nothing is made in it."""
    execute(postgres_url, "CREATE TABLE meta (key text, value text)")
    assert refused(lambda: open_ledger(postgres_url, BUDGETS)).code == "not_a_ledger"
    execute(postgres_url, "DROP TABLE meta; CREATE VIEW one AS SELECT 1")
    assert refused(lambda: open_ledger(postgres_url, BUDGETS)).code == "not_a_ledger"


def test_impossible_servers_are_named(postgres_url: str, server: Server) -> None:
    """No server, no database, no schema, another kind; a password is in no error."""
    cases = {
        "postgresql://ledger:secret@/postgres?host=/nowhere": "ledger_unavailable",
        f"postgresql://ledger@/nothing?host={server.folder}": "ledger_unavailable",
        f"{server.url}&options=-csearch_path%3Dnowhere": "ledger_unavailable",
        "postgresql://[": "ledger_unavailable",
    }
    for url, code in cases.items():
        error = refused(lambda url=url: open_ledger(url, BUDGETS))
        assert (error.code, isinstance(error, OperationalError)) == (code, True)
        assert "secret" not in str(error)
    assert isinstance(refused(lambda: open_ledger("mysql://host/ledger", BUDGETS)), NotSupportedError)
    assert refused(lambda: LedgerReader.open(postgres_url)).code == "not_a_ledger"


def test_text_with_nul_is_refused(ledger: Ledger) -> None:
    """PostgreSQL has no NUL in its texts: the charge is refused before anything is written."""
    error = refused(
        lambda: ledger.charge({"visits": Pure(Fraction(1, 8))}, analyst="ana", query="SELECT '\0'")
    )
    assert isinstance(error, ProgrammingError)
    assert ledger.list_entries() == ()


def test_a_server_without_fsync_is_refused(postgres_url: str, server: Server) -> None:
    """It would forget charges that it committed."""
    execute(server.url, "ALTER SYSTEM SET fsync = off")
    execute(server.url, "SELECT pg_reload_conf()")
    try:
        with psycopg.connect(server.url) as watching:
            while watching.execute("SHOW fsync").fetchone() != ("off",):
                watching.rollback()
        assert "runs with fsync off" in refused(lambda: open_ledger(postgres_url, BUDGETS)).message
    finally:
        execute(server.url, "ALTER SYSTEM RESET fsync")
        execute(server.url, "SELECT pg_reload_conf()")
