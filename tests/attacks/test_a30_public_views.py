"""A30, a public view that reads a private table: what it shows would be released exactly.

The engine's own plan says what a view reads, whatever lies between: views, macros, subqueries, spellings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
import yaml
from attacks.naive import Naive
from typer.testing import CliRunner
from worlds import connected, person, world

import dpsql
from dpsql.interfaces.cli.app import app

PRIVATE = {"unit": "id", "rows_per_unit": 1, "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}
SHOWN = {"public": True}
VIEWS = {
    "directly": "CREATE VIEW shown AS SELECT age FROM people",
    "by another case and quotes": 'CREATE VIEW shown AS SELECT age FROM "PEOPLE"',
    "by schema and database": "CREATE VIEW shown AS SELECT age FROM memory.main.people",
    "by another view": "CREATE VIEW v AS FROM people; CREATE VIEW shown AS SELECT MAX(age) AS age FROM v",
    "by a macro's subquery": "CREATE MACRO m() AS (SELECT MAX(age) FROM people); CREATE VIEW shown AS SELECT m() AS age",
    "by a table macro": "CREATE MACRO m() AS TABLE FROM people; CREATE VIEW shown AS FROM m()",
    "by a CTE": "CREATE VIEW shown AS WITH c AS (FROM people) SELECT 1 AS one FROM c",
    "by a recursive CTE": "CREATE VIEW shown AS WITH RECURSIVE c AS (FROM people UNION FROM c) FROM c",
    "by a scalar subquery": "CREATE VIEW shown AS SELECT rank, (SELECT SUM(age) FROM people) AS s FROM regions",
    "by EXISTS": "CREATE VIEW shown AS FROM regions WHERE EXISTS (FROM people WHERE city = name)",
    "by a lateral join": "CREATE VIEW shown AS SELECT rank, n FROM regions, (SELECT COUNT(*) AS n FROM people WHERE city = name)",
    "where nothing is left of it": "CREATE VIEW shown AS SELECT age FROM people WHERE FALSE LIMIT 0",
    "by a query in a text": "CREATE VIEW shown AS FROM query('SELECT age FROM people')",
    "by SUMMARIZE": "CREATE VIEW shown AS FROM (SUMMARIZE people)",
    "by a set operation": "CREATE VIEW shown AS SELECT rank FROM regions UNION ALL SELECT age FROM people",
}
FOREIGN = {
    "by its statistics": "CREATE VIEW shown AS FROM pragma_storage_info('people')",
    "by its number of rows": "CREATE VIEW shown AS FROM duckdb_tables()",
    "by a frame with no name": "CREATE TEMP VIEW shown AS FROM frame",
}


@pytest.fixture
def owner() -> Iterator[duckdb.DuckDBPyConnection]:
    """An open database with a private and a public table."""
    with duckdb.connect() as opened:
        opened.execute(
            "CREATE TABLE people AS SELECT i AS id, 30 AS age, 'Bonn' AS city FROM range(9) AS r(i)"
        )
        opened.execute("CREATE TABLE regions AS SELECT 'Bonn' AS name, 1 AS rank")
        opened.register("frame", pyarrow.table({"age": [30]}))
        yield opened


def opened(owner: Any, **tables: Any) -> None:
    """Connects under a policy with these tables."""
    connected(owner, {"budget": {"epsilon": 9}, "tables": tables})


def refusal(owner: Any, **tables: Any) -> dpsql.PolicyError:
    """The error of connecting."""
    with pytest.raises(dpsql.PolicyError) as caught:
        opened(owner, **tables)
    return caught.value


@pytest.mark.parametrize("case", VIEWS)
def test_public_view_of_a_private_table_is_refused(case: str, owner: duckdb.DuckDBPyConnection) -> None:
    """The view is refused at connect however it reads the table, and both are named."""
    owner.execute(VIEWS[case])
    error = refusal(owner, people=PRIVATE, shown=SHOWN)
    assert error.code == "public_view"
    assert "shown" in str(error)
    assert "people" in str(error)
    opened(owner, people=PRIVATE, regions=SHOWN)


@pytest.mark.parametrize("case", VIEWS)
def test_public_view_of_a_private_view_is_refused(case: str, owner: duckdb.DuckDBPyConnection) -> None:
    """The same rows under another name are refused: the tables that both views read decide."""
    owner.execute(VIEWS[case])
    owner.execute("CREATE VIEW patients AS SELECT * FROM people JOIN regions ON city = name")
    error = refusal(owner, patients=PRIVATE, shown=SHOWN, regions=SHOWN)
    assert error.code == "public_view"
    assert "patients" in str(error)


@pytest.mark.parametrize("case", FOREIGN)
def test_view_with_unknown_tables_is_refused(case: str, owner: duckdb.DuckDBPyConnection) -> None:
    """Functions of the catalogue, and frames that have no name in a plan."""
    owner.execute(FOREIGN[case])
    assert refusal(owner, people=PRIVATE, shown=SHOWN).code == "view_source"


def test_legitimate_views_are_opened(
    owner: duckdb.DuckDBPyConnection,
) -> None:
    """Declared public tables may be read by both kinds of views; a public view may read no table."""
    owner.execute("CREATE VIEW shown AS SELECT rank FROM regions")
    owner.execute("CREATE VIEW numbers AS FROM range(3)")
    owner.execute("CREATE VIEW patients AS SELECT * FROM people JOIN regions ON city = name")
    opened(owner, patients=PRIVATE, shown=SHOWN, regions=SHOWN, numbers=SHOWN)


def test_private_view_of_public_tables_is_refused(owner: duckdb.DuckDBPyConnection) -> None:
    """Then the table itself is what everybody sees."""
    owner.execute("CREATE VIEW patients AS FROM people")
    assert refusal(owner, patients=PRIVATE, people=SHOWN).code == "private_view"


def test_settings_of_the_owner_stay(owner: duckdb.DuckDBPyConnection) -> None:
    """Reading plans changes nothing of the owner's connection."""
    sql = "SELECT value, scope FROM duckdb_settings() WHERE name = 'explain_output'"
    for setting in ("", "SET SESSION explain_output = 'optimized_only'"):
        owner.execute(setting)
        before = owner.execute(sql).fetchall()
        opened(owner, people=PRIVATE)
        assert owner.execute(sql).fetchall() == before


@pytest.mark.parametrize(
    ("view", "code"),
    [("SELECT age FROM people", "public_view"), ("SELECT * FROM 'lost.parquet'", "view_unbound")],
)
def test_check_refuses_public_views_of_private_tables(view: str, code: str, tmp_path: Path) -> None:
    """`dpsql check` names both, and says of a view that cannot be bound that it cannot be read."""
    path, rules = tmp_path / "a.duckdb", tmp_path / "a.yaml"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE people AS SELECT 1 AS id, 30 AS age")
        made.execute(f"COPY people TO '{tmp_path}/lost.parquet'")
        made.execute(f"CREATE VIEW shown AS {view.replace('lost', f'{tmp_path}/lost')}")
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}}
    rules.write_text(yaml.safe_dump({**policy, "tables": {"people": PRIVATE, "shown": SHOWN}}), "utf-8")
    found = CliRunner().invoke(app, ["check", str(rules), str(path)])
    assert found.exit_code != 0
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.connect(path, policy=rules, ledger=":memory:")
    assert caught.value.code == code


def test_careless_engine_answers_a_public_view() -> None:
    """The attack works where a name decides which table is public: everybody's age, exactly."""
    naive = Naive(
        world(
            person(1, age=77),
            setup=["CREATE TABLE hidden AS SELECT 77 AS age", "CREATE VIEW shown AS SELECT age FROM hidden"],
        )
    )
    assert naive.query("SELECT age FROM shown") == [(77,)]
    assert naive.spent == 0
