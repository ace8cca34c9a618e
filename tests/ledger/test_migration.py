"""A ledger of schema 2 opens with all that it had, in one step or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import IntegrityError, OperationalError, PolicyError
from dpsql.ledger import Budget, LedgerHead, journal, open_ledger
from dpsql.ledger.protocol import TableCharge
from dpsql.ledger.schema import SCHEMA
from dpsql.ledger.stored_release import NewRelease
from dpsql.privacy.accounting import Pure
from dpsql.privacy.accounting.partitions.boxes import Box

SCHEMA_4 = Path(__file__).parents[1] / "fixtures" / "ledger_4.sql"
HEAD_4 = LedgerHead(8, "9db01f65644cd6b070987fe2aa6ffbdba8566cdfbe1d8fadb0ef056017526378")
BUDGETS_4 = {"visits": Budget("pure", Fraction(30), Fraction(1, 10**6))}
OLD = Path(__file__).parents[1] / "fixtures" / "ledger_2.sql"
HEADS = (
    LedgerHead(3, "34d46cbfaf414122b5d1722d971efbedb2597c4e4594b0c795e3911148658502"),
    LedgerHead(4, "b979c2d74e6ea8688ee550f07d19531433c2a074d98f3d4ea0bff63e7045e989"),
)
BUDGETS = {
    "patients": Budget("pure", Fraction(1), Fraction(0)),
    "visits": Budget("zcdp", Fraction(1), Fraction(1, 10**6)),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as an older dpsql left it."""
    where = tmp_path / "a.ledger"
    edit(where, OLD.read_text(encoding="utf-8"))
    return where


def edit(path: Path, script: str) -> None:
    """Runs SQL in the file."""
    with closing(sqlite3.connect(path)) as file:
        file.executescript(script)


def schema(path: Path) -> list[tuple[str, str]]:
    """The definitions of all tables and indices, and the schema's number."""
    with closing(sqlite3.connect(path)) as file:
        found = file.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        return found + file.execute("SELECT key, value FROM meta ORDER BY key").fetchall()


def test_nothing_is_lost(path: Path, tmp_path: Path) -> None:
    """Entries, totals, and the heads that were given out are the same, and the next charge follows them."""
    for head in HEADS:
        open_ledger(path, BUDGETS, anchor=head).close()
    with closing(open_ledger(path, BUDGETS)) as ledger:
        assert ledger.read_head() == ledger.verify() == HEADS[-1]
        assert [(entry.table, entry.analyst, entry.number) for entry in ledger.list_entries()] == [
            ("visits", "ana", 1),
            ("patients", "bob", 1),
            ("visits", "bob", 2),
            ("patients", "ana", 2),
        ]
        assert {
            (entry.kind, entry.account_analyst, entry.period, entry.box) for entry in ledger.list_entries()
        } == {("charge", "", "", None)}
        assert ledger.get_state("patients").remaining_epsilon == Fraction(1, 4)
        assert ledger.get_state("visits").spent.loss == 9991674991575994439677273042
        (entry,) = ledger.charge({"patients": Pure(Fraction(1, 4))}, analyst="ana", query="SELECT 1")
        assert (entry.id, entry.number, entry.previous) == (5, 3, HEADS[-1].digest)
        assert ledger.verify().entries == 5
    open_ledger(tmp_path / "new", BUDGETS).close()
    assert schema(path) == schema(tmp_path / "new")


def test_an_edited_long_one_is_refused_and_left_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is, the whole chain is checked before the new shape is committed."""
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 1)
    before = schema(path)
    edit(path, "UPDATE entries SET loss = '0' WHERE id = 1")
    for _ in range(2):
        with pytest.raises(IntegrityError, match="entry 1 of the ledger was changed"):
            open_ledger(path, BUDGETS)
        assert schema(path) == before


def test_a_changed_budget_migrates_nothing(path: Path) -> None:
    """A refusal of any kind undoes the migration with all else."""
    before = schema(path)
    with pytest.raises(PolicyError):
        open_ledger(path, {"patients": Budget("pure", Fraction(2), Fraction(0))})
    assert schema(path) == before


def test_what_was_new_in_schema_3_cannot_be_added_to_an_old_entry(path: Path) -> None:
    """The old digests stand for the old meaning alone: a kind, a period or a box beside them is an edit."""
    open_ledger(path, BUDGETS).close()
    whole = path.read_bytes()
    for change in ("kind = 'return'", "account_analyst = 'ana'", "period = '2026'", "box = ''"):
        edit(path, f"UPDATE entries SET {change} WHERE id = 3")
        with pytest.raises(IntegrityError, match="entry 3 of the ledger was changed"):
            open_ledger(path, BUDGETS)
        path.write_bytes(whole)


@pytest.mark.parametrize("version", ["1", str(int(SCHEMA) + 1)])
def test_no_other_schema_is_guessed_at(path: Path, version: str) -> None:
    """One before and one to come are refused in the same words."""
    edit(path, f"UPDATE meta SET value = '{version}' WHERE key = 'schema'")
    with pytest.raises(OperationalError, match="has a format that this version of dpsql cannot read"):
        open_ledger(path, BUDGETS)


def test_a_program_of_the_old_dpsql_cannot_write_beside(path: Path) -> None:
    """Its next entry lacks what schema 3 asks of one, so that it is charged nowhere."""
    open_ledger(path, BUDGETS).close()
    old = OLD.read_text(encoding="utf-8")
    columns = old.partition("CREATE TABLE entries (")[2].partition("PRIMARY KEY")[0]
    names = ", ".join(line.split()[0] for line in columns.strip().rstrip(",").splitlines() if line.strip())
    with closing(sqlite3.connect(path)) as file, pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        file.execute(f"INSERT INTO entries ({names}) SELECT {names} FROM entries WHERE id = 4")


AS_SCHEMA_4 = """
ALTER TABLE entries DROP COLUMN failures; ALTER TABLE entries DROP COLUMN refines;
ALTER TABLE entries DROP COLUMN claims; ALTER TABLE entries DROP COLUMN stored;
ALTER TABLE entries DROP COLUMN "database"; UPDATE meta SET value = '4' WHERE key = 'schema';
"""
AS_SCHEMA_3 = f"""{AS_SCHEMA_4}
ALTER TABLE entries DROP COLUMN slice; ALTER TABLE entries DROP COLUMN slices; DROP TABLE slices;
UPDATE meta SET value = '3' WHERE key = 'schema'
"""


def test_schema_3_gains_slices_and_keeps_its_digests(tmp_path: Path) -> None:
    """Entries, parts and heads of schema 3 stay as they were, and a slice can be reserved after them."""
    path, part = tmp_path / "a.ledger", Box.from_sides({"day": ((0, 9),)})
    with closing(open_ledger(path, BUDGETS)) as ledger:
        ledger.charge([TableCharge("patients", Pure(Fraction(1, 4)), part)], analyst="ana", query="SELECT 1")
        before = ledger.list_entries(), ledger.list_states(), ledger.read_head()
    edit(path, AS_SCHEMA_3)
    with closing(open_ledger(path, BUDGETS, anchor=before[2])) as ledger:
        assert (ledger.list_entries(), ledger.list_states(), ledger.verify()) == before
        number = ledger.reserve({"patients": Pure(Fraction(1, 2))}, analyst="ana")[0].id
        assert [entry.id for entry in ledger.close_reservation(number, by="ana")] == [3]
        assert ledger.verify() == ledger.read_head()


def test_an_edited_ledger_of_schema_3_is_refused(tmp_path: Path) -> None:
    """What was edited before the migration is found after it."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        ledger.charge({"patients": Pure(Fraction(1, 4))}, analyst="ana", query="SELECT 1")
    edit(path, f"{AS_SCHEMA_3}; UPDATE entries SET loss = '0'")
    with pytest.raises(IntegrityError, match="entry 1 of the ledger was changed"):
        open_ledger(path, BUDGETS)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == ("3",)


def test_schema_4_keeps_its_entries_and_gives_up_its_releases(tmp_path: Path) -> None:
    """Head, kinds and totals stay; what was stored is of no database that is known, so it is asked for anew."""
    path = tmp_path / "a.ledger"
    edit(path, SCHEMA_4.read_text(encoding="utf-8"))
    with closing(open_ledger(path, BUDGETS_4, anchor=HEAD_4, database="file:/data/clinic.duckdb")) as ledger:
        assert ledger.read_head() == ledger.verify() == HEAD_4
        kinds = [entry.kind for entry in ledger.list_entries()]
        assert kinds == ["charge", "charge", "charge", "reserve", "draw", "return", "reset", "charge"]
        assert ledger.get_state("visits").spent_epsilon == 3
        (entry,) = ledger.charge({"visits": Pure(Fraction(1))}, analyst="ana", query="SELECT 1")
        assert (entry.previous, entry.database) == (HEAD_4.digest, "file:/data/clinic.duckdb")
        ledger.store_releases([NewRelease("s", "m", "{}")], entry)
        assert ledger.verify() == ledger.read_head()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT number FROM releases").fetchall() == [(1,)]
        assert not file.execute("SELECT * FROM refinements").fetchall()


def test_an_edited_ledger_of_schema_4_is_refused(tmp_path: Path) -> None:
    """What was edited before the migration is found after it, and nothing is migrated."""
    path = tmp_path / "a.ledger"
    edit(path, SCHEMA_4.read_text(encoding="utf-8") + "UPDATE entries SET loss = '0' WHERE id = 8;")
    with pytest.raises(IntegrityError, match="entry 8 of the ledger was changed"):
        open_ledger(path, BUDGETS_4)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT COUNT(*) FROM refinements").fetchone() == (1,)
