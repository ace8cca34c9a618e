"""What a start loads: libraries that take long to load wait until they are needed, or never load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

HEAVY = ("pandas", "polars", "pyarrow", "scipy.stats")
"""Slow to load, and of no use to a query over a DuckDB file."""
ENGINE = ("duckdb", "numpy", "scipy", "sqlalchemy", "sqlglot")
"""Needed once a database is opened."""

_LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"
_ASKED = """
import dpsql
policy = {{
    "version": 1,
    "privacy_unit": "patient",
    "budget": {{"epsilon": 10, "delta": 1e-6}},
    "tables": {{
        "visits": {{
            "unit": "patient",
            "rows_per_unit": 2,
            "max_groups": 1,
            "columns": {{"plan": {{"type": "varchar"}}, "cost": {{"type": "double", "bounds": [0, 10]}}}},
        }}
    }},
}}
with dpsql.connect({path!r}, policy=policy, ledger=":memory:") as con:
    result = con.query("SELECT plan, AVG(cost), COUNT(*) FROM visits GROUP BY plan", epsilon=1)
    result.intervals(), str(result), con.explain("SELECT SUM(cost) FROM visits", epsilon=1), con.budget()
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A DuckDB file with a table of two visits."""
    path = tmp_path / "visits.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE visits AS SELECT 1 AS patient, 'A' AS plan, 2.5::DOUBLE AS cost")
    return path


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once it has run `code`."""
    run = subprocess.run([sys.executable, "-c", f"{code}\n{_LOADED}"], capture_output=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_loads_no_library_before_a_database_is_opened() -> None:
    """`import dpsql` loads neither pandas nor scipy.stats, nor even the engine and the parser."""
    loaded = modules_after("import dpsql")
    assert "dpsql.api.connection" in loaded
    assert loaded.isdisjoint({*HEAVY, *ENGINE})


def test_query_over_a_file_loads_no_dataframe_library(database: Path) -> None:
    """Queries, EXPLAIN and printing, also with selected keys, load neither pandas nor scipy.stats."""
    loaded = modules_after(_ASKED.format(path=str(database)))
    assert {"duckdb", "sqlglot"} <= loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("room", ["sql", "backends"])
def test_emission_has_no_context_variable(room: str) -> None:
    """What emission depends on is an argument: a variable of the context would be one that nobody sees."""
    modules = (Path(__file__).parents[2] / "dpsql" / room).rglob("*.py")
    assert [path.name for path in modules if "contextvars" in path.read_text(encoding="utf-8")] == []
