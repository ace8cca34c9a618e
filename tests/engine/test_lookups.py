"""What is looked up in public tables is kept where nothing can change it, and looked up again where something can.

Claim: what a later statement is planned on is what the public tables hold then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine.lookups import _make_room

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "budget": {"epsilon": 9},
    "tables": {
        "visits": {"unit": "patient", "rows_per_unit": 2, "columns": {"place": {"type": "integer"}}},
        "places": {"public": True},
    },
}
TABLES = """
    CREATE TABLE visits AS SELECT range AS patient, CAST(range % 3 AS INTEGER) AS place FROM range(100);
    CREATE TABLE places AS SELECT CAST(range AS INTEGER) AS place, 'p' || range AS name FROM range(3);
"""
SQL = "SELECT p.name, COUNT(*) FROM visits v JOIN places p ON v.place = p.place GROUP BY p.name"


def stored(folder: Path, more: str = "") -> Path:
    """A database in a file, with more than the tables."""
    path = folder / "visits.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(TABLES + more)
    return path


def looked_up(con: dpsql.Connection, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The look-ups that a second statement makes."""
    con.explain(SQL, epsilon=1)
    backend, made = con.engine.backend, list[str]()
    for name in ("read_public_rows", "read_public_number"):
        ask = getattr(backend, name)
        monkeypatch.setattr(backend, name, lambda sql, ask=ask: made.append(sql) or ask(sql))
    con.explain(SQL, epsilon=1)
    return made


def test_unchanging_file_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes to it while it is open."""
    with dpsql.connect(stored(tmp_path), policy=POLICY, ledger=":memory:") as con:
        assert looked_up(con, monkeypatch) == []


@pytest.mark.parametrize(
    "more",
    [
        "CREATE VIEW lately AS SELECT now() AS moment;",
        "CREATE TABLE drawn (a INTEGER, b VARCHAR GENERATED ALWAYS AS (random()));",
    ],
)
def test_time_dependent_query_is_looked_up_again(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views and generated columns may differ from one statement to the next."""
    with dpsql.connect(stored(tmp_path, more), policy=POLICY, ledger=":memory:") as con:
        assert looked_up(con, monkeypatch)


def test_changed_table_is_looked_up_again() -> None:
    """More rows of a public table to a private one are more rows of a unit, in the next statement."""
    with duckdb.connect() as owner:
        owner.execute(TABLES)
        with dpsql.connect(owner, policy=POLICY, ledger=":memory:") as con:
            before = str(con.explain(SQL, epsilon=1))
            owner.execute("INSERT INTO places SELECT place, 'also ' || name FROM places")
            after = str(con.explain(SQL, epsilon=1))
    assert "at most 2 rows per unit" in before
    assert "at most 4 rows per unit" in after


def test_data_frames_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has them may change them."""
    with duckdb.connect() as owner:
        owner.execute(TABLES)
        frames = {name: owner.sql(f"FROM {name}").to_arrow_table() for name in ("visits", "places")}
    with dpsql.connect(frames, policy=POLICY, ledger=":memory:") as con:
        assert looked_up(con, monkeypatch)


def test_kept_lookups_are_limited() -> None:
    """However many different ones are made, the memory that they take is bounded."""
    kept = dict[str, int]()
    for number in range(1000):
        _make_room(kept)[str(number)] = number
    assert 0 < len(kept) < 300
    assert kept["999"] == 999
