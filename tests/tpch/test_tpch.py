"""TPC-H's 22 queries as published, under two privacy units: answered, public, or refused for a reason.

What is answered has the columns of DuckDB's own answer, and what is public is that answer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from tpch.study import QUERIES, TABLES, UNITS, policy

import dpsql
from dpsql.connection import Connection

PUBLIC = {"customer": {2, 11, 16}, "supplier": {13, 22}}
"""The queries that read nothing private."""
REFUSED = {
    "customer": {
        9: "unbounded",  # the profit needs the cost of a part, which the public table gives no bounds
        10: "group_by_unit",
        18: "group_by_unit",
    },
    "supplier": {
        2: "exact_only",
        4: "private_join",
        15: "exact_only",
        20: "group_by",
        21: "private_join",
    },
}
"""The codes of what is refused."""
CASES = [(unit, number) for unit in UNITS for number in QUERIES]


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """TPC-H at scale factor 0.01."""
    folder = tmp_path_factory.mktemp("tpch")
    command = ["tpchgen-cli", "parquet", "--scale-factor", "0.01", "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    with duckdb.connect() as opened:
        for table in TABLES:
            opened.execute(f"CREATE TABLE {table} AS SELECT * FROM '{Path(folder) / table}.parquet'")
        yield opened


@pytest.fixture(scope="session")
def studies(database: duckdb.DuckDBPyConnection) -> dict[str, Connection]:
    """A connection for each privacy unit."""
    return {
        unit: dpsql.connect(database, policy=policy(unit), ledger=":memory:", epsilon=1) for unit in UNITS
    }


@pytest.mark.parametrize(("unit", "number"), CASES)
def test_each_query_has_its_verdict(
    studies: dict[str, Connection], database: duckdb.DuckDBPyConnection, unit: str, number: int
) -> None:
    """A query is answered with the columns of DuckDB's answer, exactly and free if public, or refused."""
    connection = studies[unit]
    before = len(connection.engine.ledger.entries())
    if number in REFUSED[unit]:
        with pytest.raises(dpsql.QueryRejected) as caught:
            connection.query(QUERIES[number])
        assert caught.value.code == REFUSED[unit][number]
        assert len(connection.engine.ledger.entries()) == before
        return
    result = connection.query(QUERIES[number])
    exact = database.execute(QUERIES[number])
    assert len(result.columns) == len(exact.description or ())
    if number in PUBLIC[unit]:
        assert len(result.rows) == len(exact.fetchall())
        assert len(connection.engine.ledger.entries()) == before
    else:
        assert len(connection.engine.ledger.entries()) > before
