"""Simulated rows: within what the policy declares, of the units that it says, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from retail.study import database as retail
from retail.study import policy as retail_policy
from retail.verdicts import OPEN, key
from retail.workload import STATEMENTS

import dpsql
from dpsql.backends.scratch_database import EmptyBackend
from dpsql.backends.simulated_rows import (
    SimulationSize,
    fill_simulated_tables,
    open_simulated_database,
    write_simulated_file,
)
from dpsql.errors import OperationalError
from dpsql.policy import Policy

SIZE = SimulationSize(50, 400, variant=3)
COLUMNS: dict[str, Any] = {
    "n": {"type": "integer", "bounds": [-7, 7]},
    "big": {"type": "integer", "bounds": [-(10**15), 10**15]},
    "x": {"type": "double", "bounds": [0.5, 0.75], "nullable": False},
    "word": {"type": "varchar", "values": ["a", "it's", "ü"]},
    "day": {"type": "date", "bounds": ["2020-02-28", "2020-03-01"]},
    "moment": {"type": "timestamp", "bounds": ["2020-01-01", "2020-01-02T03:04:05"]},
    "sure": {"type": "boolean"},
    "hour": {"type": "time"},
    "code": {"type": "uuid"},
    "raw": {"type": "blob"},
    "free": {"type": "varchar"},
    "tags": {"type": "varchar", "values": ["p", "q"], "max_elements": 3},
}
EVERY_TYPE = Policy.model_validate(
    {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**6},
        "tables": {"t": {"unit": "who", "rows_per_unit": 30, "columns": COLUMNS}},
    },
    strict=False,
)
COLUMNS_OF_ONE = {"unit": "who", "rows_per_unit": 1, "columns": {"x": COLUMNS["x"]}}
WITHIN = """
    SELECT bool_and(n BETWEEN -7 AND 7), bool_and(big BETWEEN -1e15 AND 1e15), bool_and(x BETWEEN 0.5 AND 0.75),
        COUNT(*) - COUNT(x) = 0, COUNT(*) > COUNT(n), list_sort(list(DISTINCT word) FILTER (word IS NOT NULL)) = ['a', 'it''s', 'ü'],
        MIN(day) = DATE '2020-02-28' AND MAX(day) = DATE '2020-03-01',
        bool_and(moment BETWEEN TIMESTAMP '2020-01-01' AND TIMESTAMP '2020-01-02 03:04:05'),
        MAX(len(tags)) = 3, MIN(len(tags)) = 0, COUNT(DISTINCT who) = 50, COUNT(*) = 400
    FROM t
"""


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A column of every type."""
    with open_simulated_database(EVERY_TYPE, SIZE) as opened:
        yield opened


def test_simulated_values_match_the_declaration(database: duckdb.DuckDBPyConnection) -> None:
    """Bounds and domains are kept to and filled, NULLs are where they may be, every unit has a row."""
    assert database.sql(WITHIN).fetchall() == [(True,) * 12]


def test_every_type_has_an_empty_column() -> None:
    """Queries of all column types are planned without a database."""
    with dpsql.connect(EmptyBackend(EVERY_TYPE), policy=EVERY_TYPE, ledger=":memory:", epsilon=1) as planned:
        for column in COLUMNS.keys() - {"tags"}:
            assert planned.explain(f"SELECT COUNT({column}) FROM t")


def test_table_without_columns_has_rows() -> None:
    """Its rows can be counted, and nothing else."""
    bare = {"tables": {"t": {"unit": "row"}}}
    rules = Policy.model_validate(EVERY_TYPE.model_dump() | bare, strict=False)
    with (
        open_simulated_database(rules, SIZE) as made,
        dpsql.connect(made, policy=rules, ledger=":memory:") as connection,
    ):
        assert connection.query("SELECT COUNT(*) FROM t", epsilon=1000).rows == ((SIZE.units,),)


def test_unit_has_one_row_where_the_policy_says_so() -> None:
    """This holds for linked tables, too."""
    linked = {"link": {"column": "who", "references": "t.who"}, "rows_per_unit": 1}
    tables = {"t": COLUMNS_OF_ONE, "child": linked | {"columns": {"n": COLUMNS["n"]}}}
    rules = Policy.model_validate(EVERY_TYPE.model_dump() | {"tables": tables}, strict=False)
    with open_simulated_database(rules, SIZE) as made:
        assert made.sql(
            "SELECT COUNT(*), COUNT(DISTINCT who) FROM child SEMI JOIN t USING (who)"
        ).fetchall() == [(SIZE.units, SIZE.units)]


def test_seed_determines_the_rows(database: duckdb.DuckDBPyConnection) -> None:
    """The same seed makes the same rows, another one others."""
    rows = database.sql("FROM t").fetchall()
    with (
        open_simulated_database(EVERY_TYPE, SIZE) as again,
        open_simulated_database(EVERY_TYPE, SimulationSize(50, 400, variant=4)) as other,
    ):
        assert again.sql("FROM t").fetchall() == rows
        assert other.sql("FROM t").fetchall() != rows


def test_every_column_is_answered(database: duckdb.DuckDBPyConnection) -> None:
    """The policy is that of the rows: each column is read, and none loses rows to its bounds."""
    with dpsql.connect(database, policy=EVERY_TYPE, ledger=":memory:", epsilon=1000) as connection:
        for column in COLUMNS:
            query = (
                "SELECT COUNT(tag) FROM t, UNNEST(t.tags) AS u(tag)"
                if column == "tags"
                else f"SELECT COUNT({column}) FROM t"
            )
            assert connection.query(query).rows[0][0] > 100, column


def test_ids_lead_to_units(tmp_path: Path) -> None:
    """Linked rows refer to rows that are there, of the same unit, through keys of several columns too."""
    rules = Policy.model_validate(retail_policy())
    path = _stored(tmp_path)
    with duckdb.connect() as made:
        assert fill_simulated_tables(made, rules, SimulationSize(200, 600), path) == ()
        lost = """
            SELECT COUNT(*) FROM store_returns r ANTI JOIN store_sales s
            ON r.order_key = s.order_key AND r.item_key = s.item_key AND r.customer_key = s.customer_key
        """
        assert made.sql(lost).fetchall() == [(0,)]
        assert made.sql(
            "SELECT MAX(n) FROM (SELECT COUNT(DISTINCT customer_key) n FROM store_sales GROUP BY order_key)"
        ).fetchall() == [(1,)]
        with dpsql.connect(made, policy=rules, ledger=":memory:", epsilon=0.001) as connection:
            statements = [each for each in STATEMENTS[::12] if key(each) not in OPEN]
            assert sum(_answered(connection, each.sql) for each in statements) >= len(statements) - 1


def test_only_public_tables_are_copied(tmp_path: Path) -> None:
    """No row of a private table is copied, and no public view, which may read one."""
    path = tmp_path / "owners.duckdb"
    with duckdb.connect(str(path)) as owners:
        owners.execute("CREATE TABLE t AS SELECT 1 AS who, 'secret' AS free, 5 AS n")
        owners.execute("CREATE TABLE rates AS SELECT 9 AS rate")
        owners.execute("CREATE SCHEMA hr")
        owners.execute("CREATE TABLE hr.grades AS SELECT 4 AS grade")
        owners.execute("CREATE VIEW seen AS SELECT free FROM t")
    tables = {
        "rates": {"public": True},
        "hr.grades": {"public": True},
        "hr.gone": {"public": True},
        "seen": {"public": True},
    }
    private = {"unit": "who", "rows_per_unit": 3, "columns": {"free": {"type": "varchar"}}}
    rules = Policy.model_validate(EVERY_TYPE.model_dump() | {"tables": tables | {"t": private}}, strict=False)
    with duckdb.connect() as made:
        assert fill_simulated_tables(made, rules, SimulationSize(20, 40), path) == ("hr.gone", "seen")
        assert made.sql("FROM rates, hr.grades").fetchall() == [(9, 4)]
        assert made.sql("SELECT COUNT(*) FROM t WHERE free = 'secret'").fetchall() == [(0,)]


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """Nothing is made where it cannot be written, either."""
    path = tmp_path / "there.duckdb"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(OperationalError, match="already exists"):
        write_simulated_file(EVERY_TYPE, SIZE, path)
    assert path.read_text(encoding="utf-8") == "mine"
    with pytest.raises(OperationalError, match="cannot write"):
        write_simulated_file(EVERY_TYPE, SIZE, tmp_path / "nowhere" / "x.duckdb")
    with pytest.raises(OperationalError, match="cannot read"):
        write_simulated_file(EVERY_TYPE, SIZE, tmp_path / "x.duckdb", tmp_path / "nothing.duckdb")
    assert sorted(tmp_path.iterdir()) == [path]


def _stored(directory: Path) -> Path:
    path = directory / "retail.duckdb"
    with retail() as source:
        source.execute(f"ATTACH '{path}' AS stored")
        for name, table in Policy.model_validate(retail_policy()).tables.items():
            if table.public:
                source.execute(f"CREATE TABLE stored.main.{name} AS FROM {name}")
        source.execute("DETACH stored")
    return path


def _answered(connection: dpsql.Connection, sql: str) -> bool:
    try:
        connection.explain(sql)
    except dpsql.QueryRejected:
        return False
    return True
