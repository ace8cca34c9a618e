"""Tables of several schemas: a name means the table that DuckDB takes, and that one is charged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

import dpsql
from dpsql.backends.duckdb.versions import supports
from dpsql.policy import load, skeleton

COLUMNS = {"pid": {"type": "integer", "nullable": False}, "cost": {"type": "integer", "bounds": [0, 10]}}
PRIVATE = {"unit": "pid", "rows_per_unit": 5, "columns": COLUMNS}
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**9, "delta": 1e-6},
    "tables": {
        "emr.people": {"unit": "id", "rows_per_unit": 1, "columns": {"id": COLUMNS["pid"]}},
        "emr.visits": PRIVATE | {"unit": None, "link": {"column": "pid", "references": "emr.people.id"}},
        "lab.visits": PRIVATE,
        "visits": PRIVATE,
        "emr.wards": {"public": True, "columns": {"id": {"type": "integer"}}},
    },
}
SETUP = """
    CREATE SCHEMA emr; CREATE SCHEMA lab; CREATE SCHEMA hidden;
    CREATE TABLE emr.people AS SELECT i AS id FROM range(40) t(i);
    CREATE TABLE emr.visits AS SELECT i % 40 AS pid, i % 7 AS cost FROM range(90) t(i);
    CREATE TABLE lab.visits AS SELECT i % 30 AS pid, i % 5 AS cost FROM range(60) t(i);
    CREATE TABLE visits AS SELECT i % 20 AS pid, i % 3 AS cost FROM range(30) t(i);
    CREATE TABLE emr.wards AS SELECT i AS id FROM range(7) t(i);
    CREATE TABLE hidden.visits AS SELECT 1 AS pid, 2 AS cost;
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as database:
        database.execute(SETUP)
        yield database


@pytest.fixture
def connection(engine: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    return dpsql.connect(engine, policy=POLICY, ledger=":memory:", epsilon=10**6)


SPELLINGS = [
    ".".join(filter(None, parts))
    for parts in itertools.product(
        ("", "hospital", '"HOSPITAL"', "other"),
        ("", "main", "emr", '"Emr"', "lab", "hidden", "hospital", "temp"),
        ("visits", '"VISITS"', "people", '"emr.visits"'),
    )
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_name_means_the_table_of_the_engine(
    name: str, engine: duckdb.DuckDBPyConnection, connection: dpsql.Connection
) -> None:
    """dpsql and DuckDB read the same declared tables by a name."""
    query = f"SELECT COUNT(*) FROM {name}"
    try:
        theirs = engine.execute(query).fetchall()
    except duckdb.Error:
        theirs = None
    if theirs is not None and "hidden" not in name:
        assert [tuple(row) for row in connection.query(query).rows] == theirs
        return
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query(query)
    assert caught.value.code in ("table", "ambiguous")


def test_columns_are_named_with_their_schema(connection: dpsql.Connection) -> None:
    """A column's schema is that of its table, and tables of one name take an alias."""
    query = "SELECT COUNT(emr.visits.cost) FROM emr.visits JOIN lab.visits AS l ON emr.visits.pid = l.pid"
    assert [tuple(row) for row in connection.query(query).rows] == [(140,)]
    for refused, code in {
        "SELECT COUNT(lab.visits.cost) FROM emr.visits": "table",
        "SELECT COUNT(main.visits.cost) FROM emr.visits": "table",
        "SELECT COUNT(emr.visits.cost) FROM visits": "table",
        "SELECT COUNT(*) FROM emr.visits JOIN lab.visits USING (pid)": "ambiguous",
    }.items():
        with pytest.raises(dpsql.QueryRejected) as caught:
            connection.query(refused)
        assert caught.value.code == code


def test_schema_named_like_the_database_is_ambiguous(tmp_path: Path) -> None:
    """DuckDB does not know which is meant, so nothing is read until the database is named too."""
    with duckdb.connect(str(tmp_path / "emr.duckdb")) as database:
        database.execute(
            SETUP.replace("TABLE emr.", "TABLE emr.emr.").replace("SCHEMA emr;", "SCHEMA emr.emr;")
        )
        with pytest.raises(dpsql.PolicyError) as caught:
            dpsql.connect(database, policy=POLICY, ledger=":memory:")
    assert caught.value.code == "view_unbound"


def test_each_schema_s_table_has_its_own_account(connection: dpsql.Connection) -> None:
    """A query is charged to the table that it reads, by the whole name."""
    connection.query("SELECT COUNT(*) FROM lab.visits")
    assert [name for name, state in connection.budget().items() if state.spent_epsilon] == ["lab.visits"]


def test_view_of_a_private_table_in_another_schema_is_not_public(engine: duckdb.DuckDBPyConnection) -> None:
    """Views tell tables of one name in two schemas apart."""
    engine.execute("CREATE VIEW seen AS SELECT * FROM lab.visits")
    tables = {"lab.visits": PRIVATE, "visits": {"public": True}, "seen": {"public": True}}
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.connect(engine, policy=POLICY | {"tables": tables}, ledger=":memory:")
    assert caught.value.code == ("public_view" if supports("qualified_scans") else "view_source")


@pytest.mark.parametrize("name", ["main.visits", "MAIN.visits", "a.b.c", ".visits", "emr.", 'emr."visits"'])
def test_table_has_one_name_in_a_policy(name: str) -> None:
    """The default schema is left out, and other names have one dot at most."""
    with pytest.raises(dpsql.PolicyError) as caught:
        load(POLICY | {"tables": {name: PRIVATE}})
    assert caught.value.code == "bad_name"


@pytest.mark.parametrize(
    ("references", "keys"),
    [
        ("emr.sales.[ticket, item]", ("ticket", "item")),
        (["emr.sales.ticket", "emr.sales.item"], ("ticket", "item")),
        ("emr.sales.ticket", ("ticket",)),
    ],
)
def test_reference_names_a_table_of_a_schema(references: Any, keys: tuple[str, ...]) -> None:
    """A link leads to the declared table whose schema stands before it."""
    id_, sales = {"type": "integer", "nullable": False}, "emr.sales"
    columns = {"id": id_, "ticket": id_, "item": id_}
    link = {"columns": list(keys), "references": references}
    tables = {
        sales: {"unit": "id", "rows_per_unit": 5, "columns": columns},
        "returns": {"link": link, "rows_per_unit": 5, "columns": columns},
    }
    found = load(POLICY | {"tables": tables}).tables["returns"].link
    assert found is not None
    assert (found.table, found.keys) == (sales, keys)
    again = load(load(POLICY | {"tables": tables}))
    assert again.tables["returns"].unit_link == found
    with pytest.raises(dpsql.PolicyError) as caught:
        load(POLICY | {"tables": tables | {"emr": tables[sales]}})
    assert caught.value.code == "bad_reference"


def test_init_writes_the_tables_of_all_schemas(engine: duckdb.DuckDBPyConnection) -> None:
    """Tables of the default schema come first, by their simple name; a dot within a name is left out."""
    from dpsql.backends.duckdb import DuckDBBackend

    engine.execute('CREATE TABLE "emr.visits" (x INTEGER); CREATE TABLE emr."a.b" (x INTEGER)')
    backend = DuckDBBackend(engine)
    assert [column for column, _ in backend.read_schema()["emr.visits"]] == ["pid", "cost"]
    text = skeleton(backend.read_schema(), "db")
    declared = list(yaml.safe_load(text)["tables"])
    assert declared == ["visits", "emr.people", "emr.visits", "emr.wards", "hidden.visits", "lab.visits"]
