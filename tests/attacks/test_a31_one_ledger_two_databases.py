"""A31: one ledger, two databases.

The same policy over north and south replays north's count as south's, and a refinement takes the noise of one from the
data of the other.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.scratch_database import EmptyBackend
from dpsql.engine.replay import release_store
from dpsql.policy import load

COUNT = "SELECT COUNT(*) AS n FROM people"
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 100, "accountant": "pure"},
    "data_version": "1",
    "tables": {"people": {"unit": "id", "rows_per_unit": 1}},
}
SIZES = {"north": 1000, "south": 5000}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Two databases of one schema."""
    found = {name: tmp_path / f"{name}.duckdb" for name in SIZES}
    for name, path in found.items():
        made(path, SIZES[name])
    return found


def made(path: Path, people: int) -> None:
    """A file with so many people."""
    with closing(duckdb.connect(str(path))) as database:
        database.execute(f"CREATE OR REPLACE TABLE people AS SELECT range AS id FROM range({people})")


def opened(where: Any, ledger: Path, **policy: Any) -> Connection:
    """The database under the policy, and a ledger that all share."""
    return dpsql.connect(where, policy=POLICY | policy, ledger=ledger, analyst="ana")


def query_count(where: Any, ledger: Path, epsilon: float = 20, **policy: Any) -> tuple[int, str]:
    """The count, and how it came about: charged, replayed or refined."""
    with opened(where, ledger, **policy) as connection:
        result = connection.query(COUNT, epsilon=epsilon)
    receipt = result.receipt
    ((count,),) = result.rows
    assert isinstance(count, int)
    return count, "replayed" if receipt.replayed else "refined" if receipt.refined else "charged"


def near(count: int, name: str) -> bool:
    """Whether it is the count of that database: ε 20 errs by fewer than 50 but with chance 1e-400."""
    return abs(count - SIZES[name]) < 50


def frames(people: int) -> dict[str, Any]:
    """A database in memory."""
    return {"people": duckdb.sql(f"SELECT range AS id FROM range({people})").to_arrow_table()}


def test_careless_ledger_answers_one_database_for_another(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack works where a database is known by its policy alone: one's count is the other's, and is refined."""
    monkeypatch.setattr(release_store, "find_ledger_identity", lambda *_: None)
    monkeypatch.setattr("dpsql.engine.replay.release_store.get_database_mark", lambda *_: "")
    query_count(files["north"], tmp_path / "a.ledger")
    count, how = query_count(files["south"], tmp_path / "a.ledger")
    assert how == "replayed"
    assert near(count, "north")
    assert query_count(files["south"], tmp_path / "a.ledger", epsilon=30)[1] in {"refined", "charged"}


def test_another_file_is_refused_before_a_charge(files: dict[str, Path], tmp_path: Path) -> None:
    """The ledger of north does not open for south; both ways out work."""
    ledger = tmp_path / "a.ledger"
    query_count(files["north"], ledger)
    with pytest.raises(dpsql.PolicyError) as caught:
        opened(files["south"], ledger)
    assert caught.value.code == "another_database"
    assert re.search(
        r"to the database \S*north\.duckdb, but this database is \S*south\.duckdb", caught.value.message
    )
    assert "database: NAME" in str(caught.value.hint)
    assert query_count(files["south"], tmp_path / "b.ledger")[1] == "charged"
    count, how = query_count(files["south"], ledger, database="south-2026")
    assert how == "charged"
    assert near(count, "south")


def test_first_charge_binds_the_ledger_to_one_database(files: dict[str, Path], tmp_path: Path) -> None:
    """The ledger then refuses the other database."""
    ledger = tmp_path / "a.ledger"
    with opened(files["north"], ledger) as north, opened(files["south"], ledger) as south:
        north.query(COUNT, epsilon=1)
        with pytest.raises(dpsql.PolicyError) as caught:
            south.query(COUNT, epsilon=1)
        assert caught.value.code == "another_database"
        assert len(north.engine.ledger.list_entries()) == 1


def test_database_name_is_permanent(files: dict[str, Path], tmp_path: Path) -> None:
    """It goes with the file wherever that lies; another name, or none, is another database."""
    ledger, moved = tmp_path / "a.ledger", tmp_path / "elsewhere.duckdb"
    first, _ = query_count(files["north"], ledger, database="north")
    shutil.move(files["north"], moved)
    assert query_count(moved, ledger, database="north") == (first, "replayed")
    assert query_count(moved, ledger, 30, database="north")[1] == "refined"
    for other in ({"database": "south"}, {}):
        with pytest.raises(dpsql.PolicyError, match="to the database 'north'"):
            opened(files["south"], ledger, **other)


def test_one_file_by_two_paths_is_one_database(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path, a link and the owner's own connection lead to the same database."""
    ledger = tmp_path / "a.ledger"
    first, _ = query_count(files["north"], ledger)
    monkeypatch.chdir(tmp_path)
    Path("link.duckdb").symlink_to("north.duckdb")
    for database in ("north.duckdb", Path("link.duckdb")):
        assert query_count(database, ledger) == (first, "replayed")
    with closing(duckdb.connect("north.duckdb")) as own:
        assert query_count(own, ledger) == (first, "replayed")


def test_replaced_file_keeps_the_budget_without_its_answers(files: dict[str, Path], tmp_path: Path) -> None:
    """The budget continues, but no answer of the old file is replayed or refined."""
    ledger = tmp_path / "a.ledger"
    query_count(files["north"], ledger)
    files["south"].replace(files["north"])
    count, how = query_count(files["north"], ledger)
    assert how == "charged"
    assert near(count, "south")


def in_memory(people: int) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute(f"CREATE TABLE people AS SELECT range AS id FROM range({people})")
    return database


REMADE: dict[str, Callable[[int], Any]] = {"frames": frames, "a connection in memory": in_memory}


@pytest.mark.parametrize("make", REMADE.values(), ids=REMADE)
def test_each_memory_connection_is_another_database(make: Callable[[int], Any], tmp_path: Path) -> None:
    """Answers are replayed and refined within one connection; the next one starts fresh unless named."""
    ledger = tmp_path / "a.ledger"
    with opened(make(1000), ledger) as connection:
        connection.query(COUNT, epsilon=1)
        assert connection.query(COUNT, epsilon=1).receipt.replayed == (1,)
        assert connection.query(COUNT, epsilon=2).receipt.refined == (1,)
    count, how = query_count(make(5000), ledger)
    assert how == "charged"
    assert near(count, "south")
    first, _ = query_count(make(1000), ledger, database="north")
    assert query_count(make(1000), ledger, database="north") == (first, "replayed")


def test_check_plans_without_the_database(files: dict[str, Path], tmp_path: Path) -> None:
    """Empty tables that stand in for a database are none: they plan against any ledger, and fix nothing."""
    ledger = tmp_path / "a.ledger"
    query_count(files["north"], ledger)
    with opened(EmptyBackend(load(POLICY)), ledger) as planned:
        assert planned.explain(COUNT, epsilon=1)
    assert query_count(files["north"], ledger)[1] == "replayed"
