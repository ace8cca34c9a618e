"""Catalog queries are answered only from the policy; what the emulator lacks is refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clinic
import duckdb
import pytest

import dpsql
from dpsql.errors import Error, QueryRejected
from dpsql.interfaces.server.pg_catalog import PgCatalog
from dpsql.interfaces.server.settings import Settings
from dpsql.plan.types import Type
from dpsql.policy import load
from dpsql.sql.pg_catalog.functions import MACROS
from dpsql.sql.pg_catalog.parameters import ListType, infer_parameter_types
from dpsql.sql.pg_catalog.rewrite import parse_catalog_query

RECORDED = Path(__file__).parent / "recorded" / "catalogue.sql"


def recorded() -> Iterator[Any]:
    """The queries that clients send, with their parameters' values."""
    for number, part in enumerate(re.findall(r"-- (psql|SQLAlchemy|JDBC|pgcli|dbt)([^\n]*)\n(.*?);\n(?:-- values ([^\n]*)\n)?", RECORDED.read_text(encoding="utf-8"), re.DOTALL)):  # fmt: skip
        client, command, text, values = part
        yield pytest.param(text, json.loads(values or "[]"), id=f"{number} {client}{command}")


def catalogue_of(database: duckdb.DuckDBPyConnection, most: int = 1) -> PgCatalog:
    with dpsql.connect(database, policy=clinic.POLICY, ledger=":memory:") as connection:
        return PgCatalog(load(clinic.POLICY), connection.engine.catalog, 5.0, most)


@pytest.fixture(scope="module")
def catalogue() -> Iterator[PgCatalog]:
    made = catalogue_of(clinic.database())
    yield made
    made.close()


@pytest.fixture(scope="module")
def emptied() -> Iterator[PgCatalog]:
    other = clinic.database()
    other.execute("DELETE FROM visits; UPDATE wards SET beds = 0, name = 'x'")
    made = catalogue_of(other)
    yield made
    made.close()


def test_slow_catalog_queries_delay_no_other_user() -> None:
    """While one emulator is busy, another answers; there are at most as many as the limit."""
    made = catalogue_of(clinic.database(), most=2)
    with ThreadPoolExecutor(2) as pool, made._acquire_emulator() as busy:
        assert pool.submit(asked, made, "SELECT 1").result(60) == [(1,)]
        with made._acquire_emulator() as second:
            assert second is not busy
            third = pool.submit(asked, made, "SELECT 1")
            with pytest.raises(TimeoutError):
                third.result(0.2)
        assert third.result(60) == [(1,)]
    made.close()


def asked(catalogue: PgCatalog, text: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    query = catalogue.match_query(text)
    assert query is not None, "no catalog query"
    settings = Settings("ana")
    return catalogue.answer_query(
        query, "ana", settings.get_value, values or [], assign=settings.assign_value
    )[1]


@pytest.mark.parametrize(("text", "values"), list(recorded()))
def test_catalog_queries_of_clients_are_answered(catalogue: PgCatalog, text: str, values: list[Any]) -> None:
    asked(catalogue, text, values)


def test_all_recorded_catalog_queries_are_parsed() -> None:
    assert len(list(recorded())) == RECORDED.read_text(encoding="utf-8").count(";\n")


def test_the_catalog_has_only_the_tables_and_columns_of_the_policy(catalogue: PgCatalog) -> None:
    """Not the table that the policy does not declare, nor the column of ids."""
    shown = asked(catalogue, "SELECT table_name, column_name, data_type FROM information_schema.columns")
    assert sorted(shown) == [
        ("visits", "cost", "double precision"),
        ("visits", "day", "date"),
        ("visits", "days", "bigint"),
        ("visits", "plan", "text"),
        ("visits", "ward", "text"),
        ("wards", "beds", "bigint"),
        ("wards", "name", "text"),
    ]
    assert asked(catalogue, "SELECT relname FROM pg_class WHERE relname = 'secrets'") == []


def test_tables_are_shown_in_their_schemas() -> None:
    """The default schema is public; two tables of one name are told apart by theirs."""
    database = duckdb.connect()
    database.execute(
        "CREATE SCHEMA emr; CREATE TABLE emr.visits (id INTEGER); CREATE TABLE visits (id INTEGER)"
    )
    column = {"type": "integer"}
    tables = {name: {"public": True, "columns": {"id": column}} for name in ("emr.visits", "visits")}
    policy = clinic.POLICY | {"tables": tables | {"public.x": {"public": True, "columns": {"id": column}}}}
    database.execute("CREATE SCHEMA public; CREATE TABLE public.x (id INTEGER)")
    with dpsql.connect(database, policy=policy, ledger=":memory:") as connection:
        made = PgCatalog(load(policy), connection.engine.catalog, 5.0)
    found = "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid >= 16384"
    expected = [("emr", "visits"), ("public", "visits"), ("public", "x")]
    assert sorted(asked(made, found)) == expected
    assert sorted(asked(made, "SELECT table_schema, table_name FROM information_schema.tables")) == expected
    assert sorted(asked(made, "SELECT schema_name FROM information_schema.schemata")) == [
        ("emr",), ("information_schema",), ("pg_catalog",), ("public",)
    ]  # fmt: skip
    made.close()


@pytest.mark.parametrize(("text", "values"), list(recorded()))
def test_catalog_answers_do_not_depend_on_the_data(
    catalogue: PgCatalog, emptied: PgCatalog, text: str, values: list[Any]
) -> None:
    """A database without a row, or with other values, is described alike."""
    assert asked(catalogue, text, values) == asked(emptied, text, values)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT current_user, current_schema(), current_database()", [("ana", "public", "dpsql")]),
        ("SELECT current_setting('server_version')", [("15.0",)]),
        ("SELECT 1 AS one, 'a' || 'b'", [(1, "ab")]),
        ("SELECT 'visits'::regclass::oid = (SELECT oid FROM pg_class WHERE relname = 'visits')", [(True,)]),
        ("SELECT c.oid::regclass::text FROM pg_class c WHERE relname = 'wards'", [("wards",)]),
        ("SELECT to_regtype('bigint')", [(20,)]),
        ("SELECT format_type(1016, NULL)", [("bigint[]",)]),
        ("SELECT col_description('visits'::regclass::oid, 3)", [("from 0 to 1000",)]),
        ("SELECT set_config('jit', 'on', false) AS a, current_setting('jit')", [("on", "on")]),
        (
            "SELECT typname FROM pg_type WHERE oid = ANY('{20,23}'::oid[]) ORDER BY oid",
            [("int8",), ("int4",)],
        ),
        ("SELECT * FROM generate_series(2, 4)", [(2,), (3,), (4,)]),
        ("SELECT * FROM generate_series(1, 5, 2)", [(1,), (3,), (5,)]),
        ("SELECT count(*) FROM generate_series(1, NULL)", [(0,)]),
        ("SELECT count(*) FROM generate_series(3, 2)", [(0,)]),
    ],
)
def test_functions_of_the_session_return_its_user_and_settings(
    catalogue: PgCatalog, text: str, rows: list[Any]
) -> None:
    assert asked(catalogue, text) == rows


REFUSED = [
    "SELECT * FROM pg_class, read_csv('/etc/passwd')",
    "SELECT getenv('HOME') FROM pg_class",
    "SELECT * FROM pg_class, duckdb_settings()",
    "SELECT (SELECT max(value) FROM duckdb_settings()) FROM pg_class",
    "SELECT pg_read_file('/etc/passwd') FROM pg_class",
    "SELECT set_config('search_path', relname, false) FROM pg_class",
    "SELECT set_config('search_path', '', false) FROM pg_class",
    "SELECT 1 WHERE set_config('search_path', '', false) = ''",
    "SELECT (SELECT set_config('search_path', '', false))",
    "SELECT upper(set_config('search_path', '', false))",
    "SELECT set_config('search_path', '')",
    "SELECT query('SELECT 1') FROM pg_class",
    "SELECT nextval('x') FROM pg_class",
    "SELECT * FROM pg_class WHERE oid = $1",
    "SELECT no_column FROM pg_class",
    "SELECT * FROM 'file.csv'",
    "SELECT * FROM generate_series('2000-01-01'::timestamp, '2100-01-01'::timestamp, '1 second'::interval)",
    "SELECT * FROM generate_series(1, 2, $1)",
    "SELECT replace('aaaa', 'a', relname) FROM pg_class",
    f"SELECT concat(relname{', relname' * 20}) FROM pg_class",
    "SELECT a.*, b.*, c.* FROM pg_class a, pg_class b, pg_class c",
    f"SELECT repeated FROM pg_class, pg_class b, (SELECT '{'x' * 10_000}' AS repeated) AS x",
]


@pytest.mark.parametrize("text", REFUSED)
def test_catalog_queries_reach_no_files_settings_or_private_tables(catalogue: PgCatalog, text: str) -> None:
    query = catalogue.match_query(text)
    if query is not None:
        with pytest.raises(QueryRejected) as refused:
            catalogue.answer_query(
                query, "ana", dict[str, str]().get, [], assign=Settings("ana").assign_value
            )
        assert "/etc/passwd" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM visits",
        "SELECT * FROM pg_class, visits",
        "SELECT * FROM pg_class WHERE oid IN (SELECT days FROM visits)",
        "WITH pg_class AS (SELECT * FROM visits) SELECT * FROM pg_class",
        "SELECT random()",
        "SELECT no_such_function()",
        "DELETE FROM pg_class",
        "SELECT 1; SELECT 2",
        "SELECT * FROM other.pg_class",
        "SELECT * FROM secrets",
        "(((",
    ],
)
def test_other_queries_are_left_to_the_engine(catalogue: PgCatalog, text: str) -> None:
    assert catalogue.match_query(text) is None


@pytest.mark.parametrize("table", ["duckdb_tables", "sqlite_master", "pragma_database_list"])
def test_a_common_table_expression_names_no_table_outside_of_its_query(
    catalogue: PgCatalog, table: str
) -> None:
    """Else a table of the emulator's own engine of that name would be read."""
    for text in (
        f"SELECT (WITH {table} AS (SELECT 1) SELECT 1), s.* FROM {table} AS s",
        f"WITH {table} AS (SELECT * FROM {table}) SELECT * FROM {table}",
        f"WITH a AS (SELECT * FROM {table}), {table} AS (SELECT 1) SELECT * FROM a",
    ):
        assert catalogue.match_query(text) is None, text


def test_a_common_table_expression_of_a_catalog_tables_name_reads_that_table(catalogue: PgCatalog) -> None:
    text = "WITH pg_class AS (SELECT * FROM pg_class WHERE relname = 'wards') SELECT relname FROM pg_class"
    assert asked(catalogue, text) == [("wards",)]
    outer = (
        "SELECT count(*) FROM pg_settings, (WITH pg_settings AS (SELECT 1) SELECT * FROM pg_settings) AS x"
    )
    assert asked(catalogue, outer) == [(0,)]
    counted = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT count(*) FROM n"
    )
    assert asked(catalogue, counted) == [(5,)]


def test_functions_read_the_rows_of_their_own_session(catalogue: PgCatalog) -> None:
    """The rows of another session were still in the emulator, and told its user and settings."""

    def ask(user: str, text: str) -> list[Any]:
        query, assigned = catalogue.match_query(text), Settings(user).assign_value
        assert query is not None
        listed = [("application_name", f"tool of {user}")]
        found = catalogue.answer_query(query, user, {}.get, [], assign=assigned, settings=lambda: listed)
        return found[1]

    ask("bob", "SELECT * FROM pg_roles, pg_settings")
    assert ask("ana", "SELECT to_regrole('bob'), to_regrole('ana') IS NULL") == [(None, False)]
    reading = "SELECT current_setting(n) FROM (SELECT 'application_name' AS n) AS x"
    assert ask("ana", reading) == [("tool of ana",)]


def _nest(depth: int, pattern: str, inner: str = "relname") -> str:
    for _ in range(depth):
        inner = pattern.replace("@", inner)
    return inner


@pytest.mark.parametrize(
    "text",
    [
        "SELECT oid AS a0" + "".join(f", a{i} + a{i} AS a{i + 1}" for i in range(40)) + " FROM pg_class",
        "SELECT " + _nest(24, "nullif(@, 'a')") + " FROM pg_class",
        "SELECT " + _nest(24, "split_part(@, 'a', 1)") + " FROM pg_class",
        f"SELECT {_nest(20, 'CASE @ WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END', 'oid')} FROM pg_class",
        f"SELECT {_nest(18, '(SELECT max(g) FROM generate_series(1, @) AS g)', '2')} FROM pg_class",
        f"SELECT * FROM {_nest(20, '(SELECT *, * FROM @ AS x)', 'pg_class')} AS y",
        "SELECT 1 FROM pg_class AS t0"
        + "".join(f" JOIN pg_class AS t{i} ON t{i}.oid = t{i - 1}.oid" for i in range(1, 400)),
    ],
)
def test_a_short_query_of_a_large_plan_is_refused_at_once(catalogue: PgCatalog, text: str) -> None:
    """The engine stops no planning at its limits: each of these took its thread for minutes, or all memory."""
    started = time.monotonic()
    with pytest.raises(QueryRejected, match=r"at most 50 tables|written out"):
        asked(catalogue, text)
    assert time.monotonic() - started < 4


def test_a_policy_table_hides_a_catalog_table_of_its_name() -> None:
    assert parse_catalog_query("SELECT * FROM pg_class", {"pg_class"}) is None
    assert parse_catalog_query("SELECT * FROM pg_type", {"pg_class"}) is not None


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("SELECT count(*) FROM generate_series(1, 1000000)", 1_001),
        ("SELECT count(*) FROM unnest(generate_series(1, 1000000)) AS x", 1_001),
        ("SELECT count(*) FROM (SELECT generate_series(1, 1000000, 1)) AS x", 1_001),
        ("SELECT length(a || a) FROM (SELECT '" + "x" * 9_000 + "' AS a) AS x", 10_000),
        ("SELECT length(concat(a, a)) FROM (SELECT '" + "x" * 9_000 + "' AS a) AS x", 10_000),
    ],
)
def test_lists_and_texts_of_a_catalog_query_are_bounded(catalogue: PgCatalog, text: str, most: int) -> None:
    """The engine's limit of memory does not hold for them: a few characters could ask for all that there is."""
    assert asked(catalogue, text) == [(most,)]


def test_a_catalog_query_is_stopped_at_its_time_limit() -> None:
    catalogue = catalogue_of(clinic.database())
    catalogue._seconds = 0.3
    crossed = ", ".join(f"pg_attribute a{n}, pg_class b{n}" for n in range(4))
    with pytest.raises(Error) as stopped:
        asked(
            catalogue,
            f"SELECT count(*) FROM {crossed} WHERE length(a1.attname || b2.relname || b3.relname) = 1",
        )
    assert stopped.value.code == "cancelled"
    assert asked(catalogue, "SELECT 1") == [(1,)]
    catalogue.close()


def test_the_emulator_has_the_locked_settings_of_the_engine(catalogue: PgCatalog) -> None:
    """Behind the list of functions stands a second wall."""
    for text in (
        "SELECT * FROM read_text('/etc/hostname')",
        "ATTACH 'x.duckdb'",
        "SET threads = 2",
        "INSTALL httpfs",
    ):
        with catalogue._acquire_emulator() as twin, pytest.raises(duckdb.Error):
            twin._connection.execute(text)


def test_every_function_of_the_emulator_can_be_called(catalogue: PgCatalog) -> None:
    for name, meanings in MACROS.items():
        for meaning in meanings:
            count = len([part for part in meaning.partition(" := ")[0].split(",") if part.strip()])
            if name not in ("regclass_name", "regtype_name", "schema_name"):
                asked(catalogue, f"SELECT {name}({', '.join(['NULL'] * count)})")


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SELECT COUNT(*) FROM t WHERE age > $1 AND name = $2", {1: Type.INTEGER, 2: Type.VARCHAR}),
        ("SELECT $1::date, $2", {1: Type.DATE}),
        (
            "SELECT a FROM t WHERE day BETWEEN $1 AND $2 LIMIT $3",
            {1: Type.DATE, 2: Type.DATE, 3: Type.INTEGER},
        ),
        ("SELECT a FROM t WHERE age IN ($1, $2)", {1: Type.INTEGER, 2: Type.INTEGER}),
        ("SELECT a FROM t WHERE name LIKE $1", {1: Type.VARCHAR}),
        ("SELECT a FROM t WHERE age + $1 > 2.5", {1: Type.INTEGER}),
        (
            "SELECT a FROM t WHERE age = ANY($1) AND name <> ALL($2) AND day = ANY($3::date[])",
            {1: ListType(Type.INTEGER), 2: ListType(Type.VARCHAR), 3: ListType(Type.DATE)},
        ),
        ("SELECT a FROM t WHERE length(name) > $1 AND (age > 3) = $2", {1: Type.INTEGER, 2: Type.BOOLEAN}),
        ("SELECT SUM(CASE WHEN name = $1 THEN $2 ELSE 0 END) FROM t", {1: Type.VARCHAR, 2: Type.INTEGER}),
        ("SELECT CASE WHEN age > 3 THEN day ELSE $1 END FROM t", {1: Type.DATE}),
        ("SELECT CASE name WHEN $1 THEN 1 END FROM t", {1: Type.VARCHAR}),
        (
            "SELECT a FROM t WHERE coalesce(age, $1) < 3 AND nullif(day, $2) IS NULL",
            {1: Type.INTEGER, 2: Type.DATE},
        ),
        ("SELECT a FROM t WHERE abs(age - $1) < $2", {1: Type.INTEGER, 2: Type.INTEGER}),
        (
            "SELECT a FROM t GROUP BY a HAVING COUNT(*) > $1 AND AVG(age) > $2",
            {1: Type.INTEGER, 2: Type.DOUBLE},
        ),
        (
            "SELECT round(AVG(age), $1), left(name, $2) FROM t WHERE $3",
            {1: Type.INTEGER, 2: Type.INTEGER, 3: Type.BOOLEAN},
        ),
        ("SELECT a FROM t WHERE name = 'a' AND $1 = lower(name)", {1: Type.VARCHAR}),
        (
            "SELECT a FROM t WHERE day >= date_trunc('month', $1::date) AND $2 < age",
            {1: Type.DATE, 2: Type.INTEGER},
        ),
        (
            "SELECT a FROM t WHERE oid = CAST($1 AS REGCLASS) AND age = $2 AND name = $3::name",
            {2: Type.INTEGER},
        ),
        ("SELECT (", {}),
    ],
)
def test_parameter_types_are_inferred_from_their_context(
    text: str, types: dict[int, Type | ListType]
) -> None:
    columns = {"age": Type.INTEGER, "name": Type.VARCHAR, "day": Type.DATE}
    assert infer_parameter_types(text, columns) == types


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{r}", ["visits", "wards"]),
        ('{"r"}', ["visits", "wards"]),
        ("{v,r}", ["visits", "wards"]),
        ("{v,m}", []),
    ],
)
def test_array_literal_is_read_as_by_postgresql(catalogue: PgCatalog, text: str, found: list[str]) -> None:
    query = "SELECT relname FROM pg_class WHERE relkind = ANY($1) AND relnamespace = 2200 ORDER BY 1"
    assert [name for (name,) in asked(catalogue, query, [text])] == found
    written = query.replace("$1", f"'{text}'")
    assert [name for (name,) in asked(catalogue, written)] == found


def test_a_bound_array_equals_its_literal(catalogue: PgCatalog) -> None:
    query = "SELECT relname FROM pg_class WHERE relkind = ANY($1) AND relnamespace = 2200 ORDER BY 1"
    assert asked(catalogue, query, [("r", "v")]) == [("visits",), ("wards",)]


@pytest.mark.parametrize("text", ["r", "{r", "{r}}", "{{r}}", "{r,}", "{,r}", '{"r}', "{r} OR 1=1", ""])
def test_other_array_texts_are_refused(catalogue: PgCatalog, text: str) -> None:
    with pytest.raises(QueryRejected, match="plain list of names"):
        asked(catalogue, "SELECT relname FROM pg_class WHERE relkind = ANY($1)", [text])


def test_rewritten_queries_have_a_bounded_size(catalogue: PgCatalog) -> None:
    """REPLACE of each letter by many, in itself again and again, would fill the server's memory."""
    grown = "relname"
    for _ in range(4):
        grown = f"replace({grown}, 'a', '{'a' * 60}')"
    ((longest,),) = asked(catalogue, f"SELECT MAX(length({grown})) FROM pg_class WHERE relname = 'wards'")
    assert longest <= 60 * 10_000
    for wrong in ("replace(relname, 'a', relname)", f"replace(relname, 'a', '{'a' * 64}')"):
        with pytest.raises(QueryRejected, match="REPLACE takes two short texts"):
            asked(catalogue, f"SELECT {wrong} FROM pg_class")
