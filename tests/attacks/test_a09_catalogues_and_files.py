"""A9, catalogues and files: refused by the whitelist, and the engine behind it is locked besides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from attacks.naive import Naive, distinguishes_worlds
from worlds import Refused, Row, connected, engine_of, person, spent, world

import dpsql
from dpsql.api.connection import Connection

SOURCES = [
    "duckdb_tables()",
    "duckdb_columns()",
    "duckdb_settings()",
    "duckdb_secrets()",
    "duckdb_functions()",
    "duckdb_logs()",
    "pragma_storage_info('people')",
    "pragma_table_info('people')",
    "pragma_database_size()",
    "information_schema.tables",
    "information_schema.columns",
    "pg_catalog.pg_class",
    "pg_tables",
    "sqlite_master",
    "duckdb_tables",
    "summary(people)",
    "read_csv('{file}')",
    "read_csv_auto('{file}')",
    "read_text('{file}')",
    "read_blob('{file}')",
    "read_json('{file}')",
    "read_parquet('{file}')",
    "parquet_metadata('{file}')",
    "sniff_csv('{file}')",
    "glob('{folder}/*')",
    "'{file}'",
    '"{file}"',
    "'{folder}/*.csv'",
    "'http://127.0.0.1:1/x.csv'",
    "query('SELECT 42')",
    "query_table('people')",
    "json_execute_serialized_sql(json_serialize_sql('SELECT 42'))",
    "sql_auto_complete('SEL')",
    "which_secret('x', 's3')",
    "test_all_types()",
    "range(people.id)",
    "generate_series(1, 10000000000)",
    "repeat_row(1, num_rows=9)",
    "(SHOW TABLES)",
    "(DESCRIBE people)",
    "(SUMMARIZE people)",
    "people, duckdb_tables()",
    "people JOIN read_csv('{file}') AS f ON f.a = people.id",
    "people JOIN duckdb_tables() AS f ON f.table_name = people.word",
]
STATEMENTS = [
    "ATTACH '{folder}/other.duckdb' AS other",
    "DETACH memory",
    "COPY people TO '{folder}/out.csv'",
    "COPY people FROM '{file}'",
    "COPY (SELECT * FROM people) TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET VARIABLE x = 1",
    "RESET threads",
    "SET threads = 1",
    "SET temp_directory = '{folder}'",
    "SET search_path = 'temp'",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CALL enable_logging()",
    "CHECKPOINT",
    "USE memory",
    "CREATE TABLE spoils AS SELECT * FROM people",
    "CREATE TEMP TABLE spoils AS SELECT * FROM people",
    "CREATE TEMP MACRO leak() AS 1",
    "CREATE SECRET (TYPE s3)",
    "INSERT INTO people VALUES (1)",
    "DELETE FROM people",
    "UPDATE people SET age = 1",
    "DROP TABLE people",
    "ALTER TABLE people ADD COLUMN x INTEGER",
    "TRUNCATE people",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "VACUUM",
    "ANALYZE",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM people",
    "DESCRIBE people",
    "SUMMARIZE people",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "TABLE people",
    "VALUES (1)",
    "PIVOT people ON city USING COUNT(*)",
    "UNPIVOT people ON age INTO NAME a VALUE b",
    "COMMENT ON TABLE people IS 'x'",
    "SELECT COUNT(*) FROM people; DROP TABLE people",
    "SELECT COUNT(*) FROM people; SELECT 1",
    "; SELECT COUNT(*) FROM people",
    ".tables",
    ".read {file}",
    "!ls",
    "\\! ls",
]
FUNCTIONS = [
    "getenv('HOME')",
    "current_setting('threads')",
    "version()",
    "current_database()",
    "current_schema()",
    "current_user",
    "in_search_path('main', 'main')",
    "pg_typeof(age)",
    "typeof(age)",
    "stats(age)",
    "getvariable('x')",
    "read_text('{file}')",
    "txid_current()",
    "current_query()",
    "json_serialize_sql('SELECT 1')",
    "nextval('s')",
    "table_name(people)",
    "COLUMNS('.*')",
    "hash(people)",
    "to_json(people)",
    "people",
    "struct_pack(a := people)",
]


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """A folder with a file that must not be read."""
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    return {"folder": str(tmp_path), "file": str(tmp_path / "x.csv")}


@pytest.mark.parametrize("source", SOURCES)
def test_only_declared_tables_are_allowed_in_from(
    source: str, refused: Refused, place: dict[str, str]
) -> None:
    """Table functions, files, catalogues and schemas are no tables: refused, nothing charged."""
    refused(f"SELECT COUNT(*) FROM {source.format(**place)}")
    refused(f"SELECT COUNT(*) FROM people JOIN {source.format(**place)} ON TRUE")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_only_select_is_a_query(statement: str, refused: Refused, place: dict[str, str]) -> None:
    """Statements that change, attach, copy, install or set are refused: nothing is charged or written."""
    refused(statement.format(**place))
    assert sorted(path.name for path in Path(place["folder"]).iterdir()) == ["x.csv"]


@pytest.mark.parametrize("call", FUNCTIONS)
def test_functions_do_not_read_the_environment(call: str, refused: Refused, place: dict[str, str]) -> None:
    """Neither functions of rows nor functions of released values do."""
    call = call.format(**place)
    refused(f"SELECT COUNT({call}) FROM people")
    refused(f"SELECT {call}, COUNT(*) FROM people")
    refused(f"SELECT COUNT(*) FROM people HAVING {call} IS NULL")


LOCKED = [
    *(
        f"SELECT * FROM {source}"
        for source in SOURCES
        if "{f" in source and not source.startswith(('"', "people"))
    ),
    *(
        s
        for s in STATEMENTS
        if s.startswith(("COPY", "EXPORT", "IMPORT", "INSTALL", "LOAD", "SET t", "SET e", "SET l", "RESET"))
    ),
    "ATTACH '{folder}/other.duckdb' AS other",
    "CREATE SECRET (TYPE s3)",
    "PRAGMA enable_profiling",
    "CALL enable_logging()",
    "SET threads = 8",
    "SET enable_external_access = true",
    "SELECT * FROM secret_of_the_program",
    "SELECT * FROM 'http://127.0.0.1:1/x.csv'",
]
OWN_POLICY = {
    "budget": {"epsilon": 1},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}


@pytest.fixture(scope="module", params=["path", "frames", "memory"])
def locked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A connection to a database that dpsql has opened itself."""
    folder = tmp_path_factory.mktemp("own")
    database: Any = ":memory:"
    if request.param == "path":
        database = str(folder / "a.duckdb")
        with duckdb.connect(database) as made:
            made.execute("CREATE TABLE people (age INTEGER); INSERT INTO people VALUES (30)")
    if request.param == "frames":
        database = {"people": pyarrow.table({"age": [30]})}
    if request.param == "memory":
        from dpsql.backends.duckdb import DuckDBBackend

        connection = world(person(1))
        object.__setattr__(connection.engine, "backend", DuckDBBackend(":memory:"))
    else:
        connection = connected(database, OWN_POLICY)
    yield connection
    connection.close()


@pytest.mark.parametrize("statement", LOCKED)
def test_engine_is_locked_behind_the_whitelist(
    statement: str, locked: Connection, place: dict[str, str]
) -> None:
    """A statement that passed the whitelist would still find no file, extension, setting or variable."""
    secret_of_the_program = pyarrow.table({"a": [42]})
    assert secret_of_the_program.num_rows == 1
    with pytest.raises(duckdb.Error):
        engine_of(locked).execute(statement.format(**place)).fetchall()
    assert sorted(path.name for path in Path(place["folder"]).iterdir()) == ["x.csv"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("enable_external_access", False),
        ("python_enable_replacements", False),
        ("autoinstall_known_extensions", False),
        ("autoload_known_extensions", False),
        ("allow_community_extensions", False),
        ("lock_configuration", True),
    ],
)
def test_locks_stay_closed(setting: str, value: bool, locked: Connection) -> None:
    """Each lock is closed, and the last one keeps all of them so."""
    assert engine_of(locked).execute(f"SELECT current_setting('{setting}')").fetchone() == (value,)
    with pytest.raises(duckdb.Error):
        engine_of(locked).execute(f"SET {setting} = {not value}")


def test_unlocked_engine_reads_files_and_variables(place: dict[str, str]) -> None:
    """The attack works on an engine as it comes: it reads files and variables of the program."""
    secret_of_the_program = pyarrow.table({"a": [42]})
    assert secret_of_the_program.num_rows == 1
    plain = duckdb.connect()
    assert plain.execute("SELECT a FROM secret_of_the_program").fetchone() == (42,)
    assert plain.execute(f"SELECT a FROM '{place['file']}'").fetchone() == (1,)
    plain.execute("SET lock_configuration = true")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT estimated_size FROM duckdb_tables() WHERE table_name = 'people'",
        "SELECT SUM(count) FROM pragma_storage_info('people') WHERE column_name = 'id' AND segment_type <> 'VALIDITY'",
        "SELECT COUNT(*) FROM query('FROM people')",
        "SELECT COUNT(*) FROM query_table('people')",
        "SELECT COUNT(*) FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM people'))",
    ],
)
def test_catalogue_of_a_careless_engine_counts_exactly(sql: str, rows: list[Row]) -> None:
    """The attack works where only names in FROM are checked: an engine's function counts without noise."""
    assert distinguishes_worlds(
        lambda naive: (naive.query(sql), naive.spent), world(*rows), world(*rows, person(99))
    )
    assert Naive(world(*rows)).query(sql) == [(len(rows),)]


class Text(str):
    """Text that writes itself otherwise."""

    __slots__ = ()

    def replace(self, *_: Any) -> str:
        return "x' OR (SELECT MAX(answer) FROM hidden) = 42 OR '' = '"

    def __str__(self) -> str:
        return self.replace()

    __repr__ = __str__


class Whole(int):
    """A number that writes itself as a query."""

    def __format__(self, _: str) -> str:
        return "(SELECT MAX(answer) FROM hidden) AS BIGINT) + CAST(0"

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__


class Real(float):
    """A number that writes itself as a query."""

    def __repr__(self) -> str:
        return "(SELECT MAX(answer) FROM hidden) + 0e0"

    __str__ = __repr__


class Day(dt.date):
    """A day that writes itself as a condition."""

    def isoformat(self) -> str:
        return "2020-01-01' OR (SELECT MAX(answer) FROM hidden) = 42 OR '' = '"


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT COUNT(*) FROM people WHERE word = ?", Text("a")),
        ("SELECT COUNT(*) FROM people WHERE age = ?", Whole(3)),
        ("SELECT COUNT(*) FROM people WHERE free = ?", Real(3)),
        ("SELECT COUNT(*) FROM people WHERE day = ?", Day(2020, 1, 1)),
    ],
    ids=["text", "whole", "real", "day"],
)
def test_parameter_object_is_read_as_a_value(sql: str, value: Any) -> None:
    """An object that writes itself as SQL is taken for its value, or refused; its words are never sent."""
    connection = world(person(1))
    engine_of(connection).execute("CREATE TABLE hidden AS SELECT 42 AS answer")
    try:
        plan = connection.explain(sql, [value]).prepared
    except dpsql.Error:
        assert spent(connection) == 0
        return
    assert "hidden" not in plan.statement.sql
