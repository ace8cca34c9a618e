"""Settings of an owner's connection: none that gives SQL another meaning is there when a query is charged.

Claim: every setting of the installed DuckDB was reviewed; those of the first kind are refused at connect, and
again before each charge.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from worlds import connected, spent

import dpsql
from dpsql.backends.duckdb.settings import HARMLESS, MEANING, find_changed_settings, list_known_meaning

POLICY = {
    "budget": {"epsilon": 9},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}
CHANGES = {
    "integer_division": "true",
    "error_on_division_by_zero": "false",
    "ieee_floating_point_ops": "false",
    "default_collation": "nocase",
    "default_null_order": "nulls_first",
    "default_order": "desc",
    "scalar_subquery_error_on_multiple_rows": "false",
    "regex_match_operator_semantics": "full",
    "dialect_compatibility_mode": "spark",
    "preserve_identifier_case": "lowercase",
    "max_execution_time": "5000",
    "old_implicit_casting": "true",
    "debug_window_mode": "combine",
}
CHANGES = {name: value for name, value in CHANGES.items() if name in list_known_meaning()}


@pytest.fixture
def owner() -> Iterator[duckdb.DuckDBPyConnection]:
    """An owner's open connection."""
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE people AS SELECT 30 AS age")
        yield opened


def test_every_setting_was_reviewed() -> None:
    """Each setting of this DuckDB is known to change SQL's meaning or not, and a new connection passes."""
    with duckdb.connect() as plain:
        settings = dict(plain.execute("SELECT name, value FROM duckdb_settings()").fetchall())
        unlisted = {
            name: plain.execute(f"SELECT current_setting('{name}')::VARCHAR").fetchall()[0][0]
            for name in list_known_meaning()
        }
    assert not HARMLESS & MEANING.keys()
    assert settings.keys() <= HARMLESS | MEANING.keys()
    assert find_changed_settings(settings | unlisted) == {}


def test_unreviewed_setting_must_have_its_default() -> None:
    """This holds for a later DuckDB's settings; an extension's settings are its own."""
    assert find_changed_settings({"s3_region": "x", "threads": "7"}) == {}


@pytest.mark.parametrize(("name", "value"), CHANGES.items(), ids=CHANGES)
def test_settings_that_change_sql_are_refused(
    name: str, value: str, owner: duckdb.DuckDBPyConnection
) -> None:
    """They are refused at connect, by name, and before the next charge; put back, all is as before."""
    connection = connected(owner, POLICY)
    owner.execute(f"SET {name} = '{value}'")
    for refused in (
        lambda: connected(owner, POLICY),
        lambda: connection.query("SELECT COUNT(*) FROM people"),
    ):
        with pytest.raises(dpsql.OperationalError) as caught:
            refused()
        assert caught.value.code == "setting"
        assert name in str(caught.value)
    assert spent(connection) == 0
    owner.execute(f"RESET {name}")
    assert len(connection.query("SELECT COUNT(*) FROM people")) == 1


def test_owner_chooses_speed_memory_and_time_zone(owner: duckdb.DuckDBPyConnection) -> None:
    """Settings that affect no value are left alone."""
    owner.execute("SET threads = 1; SET memory_limit = '1GB'; SET TimeZone = 'Asia/Tokyo'")
    assert len(connected(owner, POLICY).query("SELECT COUNT(*) FROM people")) == 1


def test_division_setting_changes_the_engine(owner: duckdb.DuckDBPyConnection) -> None:
    """The defect is there on the engine itself: half of one is nothing."""
    owner.execute("SET integer_division = true")
    assert owner.execute("SELECT 1 / 2").fetchone() == (0,)


BROKEN = [
    "DROP TABLE people",
    "ALTER TABLE people DROP COLUMN age",
    "DROP TABLE people; CREATE VIEW people AS FROM v",
]


@pytest.mark.parametrize("change", BROKEN)
def test_unbindable_query_is_not_charged(change: str, owner: duckdb.DuckDBPyConnection) -> None:
    """The owner changes a table while the connection is open: a clear refusal, of plans too, and no charge."""
    owner.execute(
        "CREATE TABLE other AS SELECT 1 AS one; CREATE VIEW v AS FROM other; ALTER TABLE people ADD COLUMN x INTEGER"
    )
    connection = connected(owner, POLICY)
    owner.execute(change)
    sql = "SELECT SUM(age) FROM people"
    for ask in (connection.query, connection.explain, lambda text: connection.budget([text])):
        with pytest.raises(dpsql.OperationalError) as caught:
            ask(sql)
        assert caught.value.code == "unbound"
    assert spent(connection) == 0


def test_binding_runs_nothing(owner: duckdb.DuckDBPyConnection) -> None:
    """A statement that would fail on a row binds, and nothing of it is run before the charge."""
    owner.execute("CREATE SEQUENCE seen")
    connection = connected(owner, POLICY)
    assert connection.engine.backend.can_bind("SELECT nextval('seen') FROM people")
    assert connection.engine.backend.can_bind("SELECT CAST('a' || age AS INTEGER) FROM people")
    assert owner.execute("SELECT nextval('seen')").fetchone() == (1,)
