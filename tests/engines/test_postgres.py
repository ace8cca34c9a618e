"""The connection to PostgreSQL: what is read of which tables, under which settings, and what a failure says."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from engines import floats
from engines.loading import database, grant
from postgres import Server

import dpsql
from dpsql.backends.postgres.connection import PostgresBackend
from dpsql.backends.postgres.dialect import POSTGRES
from dpsql.backends.postgres.session import require_version
from dpsql.errors import BackendError, OperationalError, PolicyError, QueryRejected
from dpsql.interfaces.cli import main

EXACT = 10**15
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "big": {"type": "integer"},
                "mood": {"type": "varchar", "values": ["low", "it's"]},
                "x": {"type": "double", "bounds": [-10, 10]},
                "n": {"type": "integer", "bounds": [0, 100]},
                "price": {"type": "double", "bounds": [0, 50]},
                "name": {"type": "varchar"},
                "kind": {"type": "varchar", "values": ["a", "B", "é"]},
                "day": {"type": "date"},
                "moment": {"type": "timestamptz"},
                "hour": {"type": "time"},
            },
        },
        "kinds": {"public": True},
    },
}
PEOPLE = """
    CREATE TYPE mood AS ENUM ('low', 'it''s', 'high');
    CREATE TABLE people (
        id bigint, x double precision, n numeric(20,0), price numeric, name varchar(40), kind char(5),
        day date, moment timestamptz, hour time, mood mood, big numeric(30,0)
    );
    CREATE TABLE kinds (kind text, label text, weight numeric(5,2), since date);
    INSERT INTO kinds VALUES ('a', 'small', 1.5, '2020-01-01'), ('B', 'large', NULL, 'infinity'), ('é', NULL, 'NaN', '0044-03-15 BC');
"""


@pytest.fixture
def people(server: Server) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """An empty table of people, and kinds."""
    with database(server, "people") as (url, owner):
        owner.execute(PEOPLE)
        grant(owner)
        yield url, owner


def ask(url: str, sql: str, policy: dict[str, Any] = POLICY) -> list[tuple[Any, ...]]:
    with dpsql.connect(url, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        return list(con.query(sql).rows)


def hold(owner: psycopg.Connection[Any], *rows: str) -> None:
    owner.execute("TRUNCATE people")
    for row in rows:
        owner.execute(f"INSERT INTO people VALUES ({row})".encode())


SPECIAL = (
    "1, 'NaN', 'NaN', 'NaN', NULL, NULL, NULL, NULL, NULL",
    "2, 'Infinity', 99999999999999999999, 'Infinity', 'x', 'a', 'infinity', 'infinity', '24:00'",
    "3, '-Infinity', -99999999999999999999, '-Infinity', 'x', 'B', '-infinity', '-infinity', '00:00'",
    "4, 5e-324, 1, 1e-400, 'y ', 'é', '0044-03-15 BC', '0044-03-15 BC', '12:00'",
    "5, -0.0, 2, 1e400, '', 'z', '5874897-12-31', '294276-12-31', '23:59:59.999999'",
    "6, 1e308, 3, 1e131071, repeat('é', 20), 'a', '2024-02-29', '2024-02-29 23:30:00-05', '12:00'",
)


def test_stored_values_are_read_within_bounds(people: tuple[str, Any]) -> None:
    """NaN is NULL, a value beyond a bound is the bound, and moments are read in UTC."""
    url, owner = people
    hold(owner, *SPECIAL)
    assert ask(url, "SELECT SUM(x), COUNT(x), SUM(n), COUNT(n) FROM people") == [(10.0, 5, 106, 5)]
    assert ask(url, "SELECT SUM(price), COUNT(price) FROM people") == [(150.0, 5)]
    assert ask(url, "SELECT COUNT(*), COUNT(day), COUNT(moment), COUNT(hour) FROM people") == [(6, 1, 1, 4)]
    assert ask(
        url, "SELECT COUNT(*) FROM people WHERE EXTRACT(day FROM moment) = 1 AND hour = TIME '12:00'"
    ) == [(1,)]
    assert ask(url, "SELECT COUNT(*) FROM people WHERE x * x > 99 OR x / n > 5 OR x + 1e308 > 0") == [(5,)]
    assert ask(url, "SELECT COUNT(*) FROM people WHERE kind = 'a'") == [(2,)]
    owner.execute("UPDATE people SET big = n WHERE n <> 'NaN' OR id = 1")
    assert ask(url, "SELECT COUNT(big), COUNT(DISTINCT big) FROM people") == [(3, 3)]
    owner.execute("UPDATE people SET mood = CASE WHEN id < 4 THEN 'it''s' WHEN id < 6 THEN 'high' END::mood")
    assert ask(url, "SELECT mood, COUNT(*) FROM people GROUP BY mood") == [("low", 0), ("it's", 3), (None, 3)]
    assert ask(url, "SELECT COUNT(*) FROM people WHERE name = 'y' OR name < 'X'") == [(1,)]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize(
    "item",
    [
        "SUM(x * x * 1e300)",
        "SUM(CAST(x * 1e300 AS BIGINT))",
        "SUM(n * 92233720368547758)",
        "SUM(price / x)",
        "AVG(LN(ABS(x)) + EXP(x * 100))",
        "SUM(EXTRACT(year FROM day + CAST(n AS INTEGER)))",
        "COUNT(DISTINCT name || kind)",
        "MEDIAN(x - 1e308)",
        "SUM(DATE_DIFF('day', day, moment))",
    ],
)
def test_no_row_makes_a_query_fail(people: tuple[str, Any], item: str, special: str) -> None:
    """One person's rows cause no error, whatever is computed."""
    url, owner = people
    hold(owner, "7, 1, 1, 1, 'n', 'a', '2024-01-01', '2024-01-01', '12:00'", special)
    bounded = (
        item.replace("SUM(", "SUM(LEAST(9, ")
        .replace("AVG(", "AVG(LEAST(9, ")
        .replace("MEDIAN(", "MEDIAN(LEAST(9, ")
    )
    text = bounded if bounded == item else bounded[:-1] + "))"
    for sql in (
        f"SELECT {text} FROM people",
        f"SELECT {text} FROM (SELECT * FROM people WHERE x BETWEEN 0 AND 2 AND n > 0) AS s",
    ):
        try:
            ask(url, sql)
        except QueryRejected:
            continue


def test_texts_are_compared_by_their_bytes(server: Server) -> None:
    """Neither a database's collation nor a column's decides over equality or order."""
    with database(server, "people") as (url, owner):
        owner.execute(PEOPLE)
        owner.execute(
            "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        owner.execute(
            'ALTER TABLE people ALTER name TYPE text COLLATE folded, ALTER kind TYPE text COLLATE "en-x-icu"'
        )
        grant(owner)
        hold(
            owner,
            "1, 0, 0, 0, 'Ann', 'a', NULL, NULL, NULL",
            "2, 0, 0, 0, 'ANN', 'B', NULL, NULL, NULL",
            "3, 0, 0, 0, 'ann', 'é', NULL, NULL, NULL",
            "4, 0, 0, 0, 'A', 'a', NULL, NULL, NULL",
        )
        assert ask(url, "SELECT COUNT(*) FROM people WHERE name = kind") == [(0,)]
        assert ask(url, "SELECT COUNT(*) FROM people WHERE name = 'ann'") == [(1,)]
        assert ask(url, "SELECT COUNT(DISTINCT name) FROM people") == [(4,)]
        assert ask(url, "SELECT COUNT(*) FROM people WHERE kind < 'a'") == [(1,)]


def test_ids_under_a_collation_are_refused(server: Server) -> None:
    """At connect, where the collation is nondeterministic; one that decides over order alone passes."""
    with database(server, "ids") as (url, owner):
        owner.execute(
            "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        owner.execute('CREATE TABLE people (id text COLLATE folded, kind text COLLATE "en-x-icu")')
        grant(owner)
        policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}}
        for unit, refused in (("id", True), ("kind", False)):
            tables = {"people": {"unit": unit, "rows_per_unit": 1}}
            with pytest.raises(PolicyError) if refused else nullcontext() as caught:
                dpsql.connect(url, policy={**policy, "tables": tables}, ledger=":memory:").close()
            if caught is not None:
                assert caught.value.code == "unit_type"
                assert "collation" in str(caught.value)


def test_constant_beside_a_real_is_a_real(server: Server) -> None:
    """It is read as beside DuckDB's FLOAT; so is the result of both."""
    policy = {
        **POLICY,
        "tables": {"floats": {"unit": "id", "rows_per_unit": 1, "columns": floats.COLUMNS}},
    }
    with database(server, "floats") as (url, owner):
        owner.execute("CREATE TABLE floats (id bigint, f real, x double precision, n integer)")
        owner.execute(f"INSERT INTO floats VALUES {floats.VALUES}".encode())
        grant(owner)
        with dpsql.connect(url, policy=policy, ledger=":memory:", epsilon=EXACT) as connection:
            for condition, rows in floats.expected().items():
                found = connection.query(f"SELECT COUNT(*) FROM floats WHERE {condition}").rows
                assert found == ((rows,),), condition


@pytest.mark.parametrize("condition", ["x BETWEEN -9 AND -8.5", "age = 77", "wednesday > DATE '2019-11-20'"])
def test_index_serves_a_condition_between_bounds(server: Server, condition: str) -> None:
    """The planner uses the index as it does without privacy."""
    columns = {
        "x": {"type": "double", "bounds": [-10, 10]},
        "age": {"type": "integer", "bounds": [0, 1000]},
        "wednesday": {"type": "date", "bounds": ["2000-01-01", "2020-01-01"]},
    }
    table = {"unit": "id", "rows_per_unit": 1, "columns": columns}
    with database(server, "indexed") as (url, owner):
        owner.execute(
            "CREATE TABLE people AS SELECT i AS id, i % 2001 / 100.0::float8 - 10 AS x, (i % 997)::int AS age,"
            " DATE '2000-01-05' + i % 1000 * 7 AS wednesday FROM generate_series(1, 50000) AS i"
        )
        for name in columns:
            owner.execute(f"CREATE INDEX ON people ({name})")
        owner.execute("ANALYZE people")
        grant(owner)
        with dpsql.connect(url, policy={**POLICY, "tables": {"people": table}}, ledger=":memory:") as con:
            asked = con.explain(f"SELECT COUNT(*) FROM people WHERE {condition}", epsilon=1).prepared
        plan = owner.execute(f"EXPLAIN {asked.releases[0].statement.sql}").fetchall()
    assert any("Index Cond" in line for (line,) in plan)


def test_settings_of_role_and_database_are_overridden(people: tuple[str, Any]) -> None:
    """They are set again for each query."""
    url, owner = people
    hold(owner, "1, 0.1, 1, 1, 'b', 'a', '2024-02-01', '2024-02-01 00:30:00+00', '12:00'")
    for name, value in {
        "TimeZone": "America/New_York",
        "DateStyle": "SQL, DMY",
        "extra_float_digits": "-15",
        "standard_conforming_strings": "off",
        "bytea_output": "escape",
        "transform_null_equals": "on",
        "search_path": "other",
        "default_transaction_isolation": "serializable",
        "statement_timeout": "1ms",
        "lock_timeout": "1ms",
    }.items():
        owner.execute(f"ALTER ROLE reader SET {name} = '{value}'".encode())
    owner.execute("CREATE SCHEMA other; CREATE TABLE other.people AS SELECT 1 AS id")
    owner.execute(
        "CREATE FUNCTION other.abs(double precision) RETURNS double precision LANGUAGE sql AS 'SELECT 1/0.0'"
    )
    try:
        assert ask(
            url, "SELECT COUNT(*) FROM people WHERE EXTRACT(month FROM moment) = 2 AND name <> 'a\\b'"
        ) == [(1,)]
        assert ask(
            url, "SELECT COUNT(*) FROM people WHERE ABS(x) < 1 AND CAST(day AS VARCHAR) = '2024-02-01'"
        ) == [(1,)]
    finally:
        owner.execute("ALTER ROLE reader RESET ALL")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("ALTER TABLE people ENABLE ROW LEVEL SECURITY", "view_source"),
        ("ALTER TABLE people RENAME TO p; CREATE VIEW people AS SELECT * FROM p", "view_source"),
        ("ALTER TABLE people RENAME TO p; CREATE MATERIALIZED VIEW people AS SELECT * FROM p", "view_source"),
        ("CREATE DOMAIN short AS text; ALTER TABLE people ALTER name TYPE short", "column_type"),
        ("CREATE EXTENSION citext; ALTER TABLE people ALTER name TYPE citext", "column_type"),
        ("ALTER TABLE people ALTER name TYPE json USING NULL", "column_type"),
        ('ALTER TABLE people ADD "X" double precision', "column_missing"),
        ('CREATE TABLE "People" (id int)', "table_missing"),
        ('ALTER TABLE people RENAME TO "People"', "table_missing"),
        ("ALTER TABLE people ALTER id TYPE numeric", "unit_type"),
        (
            "CREATE EXTENSION file_fdw; CREATE SERVER f FOREIGN DATA WRAPPER file_fdw; CREATE FOREIGN TABLE more () INHERITS (people) SERVER f OPTIONS (filename '/nowhere')",
            "view_source",
        ),
    ],
)
def test_fallible_tables_are_refused(people: tuple[str, Any], change: str, code: str) -> None:
    """Views, foreign tables, row security, domains and extensions' types, and names in two cases: at connect."""
    url, owner = people
    try:
        owner.execute(change.encode())
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported):
        pytest.fail("the extension is not installed")
    grant(owner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(PolicyError) as caught:
            ask(url, "SELECT COUNT(*) FROM people")
    assert caught.value.code == code


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            "ALTER TABLE people RENAME TO p; CREATE VIEW people AS SELECT * FROM p; GRANT SELECT ON people TO reader",
            id="view",
        ),
        "ALTER TABLE people ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE people ALTER id TYPE text",
        "CREATE TABLE more () INHERITS (people)",
        "DROP TABLE people",
        "REVOKE SELECT ON people FROM reader",
    ],
)
def test_changed_table_is_refused_before_a_charge(people: tuple[str, Any], change: str) -> None:
    """The check of the connection's opening is repeated within the transaction that reads."""
    url, owner = people
    with dpsql.connect(url, policy=POLICY, ledger=":memory:", epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM people")
        owner.execute(change.encode())
        for sql in ("SELECT COUNT(*) FROM people WHERE n > 1", "SELECT COUNT(*) FROM kinds"):
            with pytest.raises(OperationalError) as caught:
                con.query(sql)
            assert caught.value.code == "unbound"
        assert con.budget()["people"].queries == 1


def test_public_parent_of_private_rows_is_refused(people: tuple[str, Any]) -> None:
    """A table shows the rows of those that inherit from it."""
    url, owner = people
    owner.execute("CREATE TABLE everybody (x double precision); ALTER TABLE people INHERIT everybody")
    grant(owner)
    policy = POLICY | {"tables": POLICY["tables"] | {"everybody": {"public": True}}}
    with pytest.raises(PolicyError) as caught:
        ask(url, "SELECT COUNT(*) FROM people", policy)
    assert caught.value.code == "public_view"


def test_privileged_role_gets_a_warning(people: tuple[str, Any]) -> None:
    """A superuser, a role that may write, and one that may read other tables."""
    url, owner = people
    with pytest.warns(UserWarning, match="superuser"):
        ask(url.replace("reader@", "ledger@"), "SELECT COUNT(*) FROM people")
    owner.execute("CREATE TABLE secrets (x int); GRANT SELECT ON secrets TO reader")
    with pytest.warns(UserWarning, match=r"does not declare: public\.secrets"):
        ask(url, "SELECT COUNT(*) FROM people")
    owner.execute("DROP TABLE secrets; GRANT INSERT ON people TO reader")
    with pytest.warns(UserWarning, match=r"may change public\.people"):
        ask(url, "SELECT COUNT(*) FROM people")


def test_missing_rights_are_reported_on_opening(people: tuple[str, Any]) -> None:
    """A role without rights, or with rights to columns only, cannot lock the table."""
    url, owner = people
    for change in ("REVOKE SELECT ON people FROM reader", "GRANT SELECT (id, n) ON people TO reader"):
        owner.execute(change.encode())
        with pytest.raises(PolicyError, match="NOT GRANTED TO THIS ROLE") as caught:
            ask(url, "SELECT COUNT(*) FROM people")
        assert caught.value.code == "column_type"


def test_public_tables_are_read_as_by_duckdb(people: tuple[str, Any]) -> None:
    """A query on public rows alone, and public rows beside released ones."""
    url, owner = people
    hold(owner, *(f"{i}, {i}, {i}, 1, 'n', '{'aB'[i % 2]}', NULL, NULL, NULL" for i in range(8)))
    assert ask(url, "SELECT kind, weight * 2, since FROM kinds ORDER BY kind DESC") == [
        ("é", None, None),
        ("a", 3.0, dt.date(2020, 1, 1)),
        ("B", None, None),
    ]
    sql = "SELECT label, COUNT(*) AS n FROM people JOIN kinds USING (kind) GROUP BY label ORDER BY n, label"
    assert [row for row in ask(url, sql) if row[1]] == [("large", 4), ("small", 4)]
    assert ask(
        url, "SELECT COUNT(*) FROM people WHERE kind IN (SELECT kind FROM kinds WHERE weight > 1)"
    ) == [(4,)]


def test_query_reads_one_snapshot_and_writes_nothing(people: tuple[str, Any]) -> None:
    """Rows that others write while a query runs are not in it; the transaction can write nothing."""
    url, owner = people
    hold(owner, "1, 0, 0, 0, 'n', 'a', NULL, NULL, NULL")
    backend = PostgresBackend(url, private=["people"], public=["kinds"])
    with backend.open_snapshot():
        before = backend.run_statement("SELECT COUNT(*) FROM public.people").reveal()
        owner.execute("INSERT INTO people SELECT * FROM people")
        assert backend.run_statement("SELECT COUNT(*) FROM public.people").reveal() == before == [(1,)]
        with pytest.raises(BackendError):
            backend.run_statement("DELETE FROM public.people")
    assert backend.run_statement("SELECT COUNT(*) FROM public.people").reveal() == [(2,)]
    backend.close()


def test_failure_has_constant_text(people: tuple[str, Any]) -> None:
    """PostgreSQL's words reach nobody, not even as the context of an error."""
    url, owner = people
    hold(owner, "1, 0, 0, 0, 'secret', 'a', NULL, NULL, NULL")
    backend = PostgresBackend(url, private=["people"], public=["kinds"])
    with pytest.raises(BackendError) as caught:
        backend.run_statement("SELECT CAST(name AS INTEGER) FROM public.people")
    assert "secret" not in repr(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert backend.run_statement("SELECT 1").reveal() == [(1,)]
    backend.close()


def test_tables_are_locked_during_a_query(people: tuple[str, Any]) -> None:
    """Within a query the tables are locked against changes of what they are, before anything is looked at."""
    url, owner = people
    backend = PostgresBackend(url, private=["people"], public=["kinds"])
    backend.read_schema()
    owner.execute("SET lock_timeout = '100ms'")
    with backend.open_snapshot():
        assert backend.can_bind("SELECT 1")
        for change in (
            "ALTER TABLE people ALTER id TYPE text",
            "ALTER TABLE kinds RENAME TO k",
            "DROP TABLE people",
        ):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                owner.execute(change.encode())
        owner.execute("INSERT INTO kinds VALUES ('c')")
    backend.close()


def test_statement_ends_in_time_and_on_request(people: tuple[str, Any]) -> None:
    """A statement that takes too long fails, and one that is interrupted says that it was cancelled."""
    url, owner = people
    backend = PostgresBackend(url, private=["people"], public=["kinds"], timeout=1)
    with pytest.raises(BackendError):
        backend.run_statement("SELECT pg_catalog.pg_sleep(30)")
    slow = PostgresBackend(url, private=["people"], public=["kinds"])
    sleeping = "SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_catalog.pg_sleep(30)%'"

    def interrupt() -> None:
        for _ in range(200):  # until it runs, however busy the machine is
            if owner.execute(sleeping).fetchall() != [(0,)]:
                break
            time.sleep(0.1)
        slow.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(OperationalError) as caught:
        slow.run_statement("SELECT pg_catalog.pg_sleep(30)")
    thread.join()
    assert caught.value.code == "cancelled"
    assert slow.run_statement("SELECT 1").reveal() == [(1,)]
    backend.close()
    slow.close()


def test_names_that_would_be_cut_are_refused(people: tuple[str, Any]) -> None:
    """Two names that begin alike would be one: no statement has them, and nothing is charged."""
    url, owner = people
    hold(owner, "1, 0, 0, 0, 'n', 'a', NULL, NULL, NULL")
    long = "a" * 62 + "é"
    sql = f'SELECT COUNT(*) FROM people AS "{long}1" WHERE EXISTS (SELECT 1 FROM people AS "{long}2" WHERE "{long}2".id = "{long}1".id)'
    with pytest.raises(QueryRejected) as caught:
        ask(url, sql)
    assert caught.value.code == "engine"


def test_text_with_character_zero_is_refused() -> None:
    """PostgreSQL has no such text."""
    with pytest.raises(QueryRejected) as caught:
        POSTGRES.support.require_readable_sql("SELECT 'a\0'")
    assert caught.value.code == "engine"


def test_database_has_an_identity(people: tuple[str, Any], server: Server, tmp_path: Any) -> None:
    """A ledger that has met one database refuses another of the same server."""
    url, owner = people
    hold(owner, "1, 0, 0, 0, 'n', 'a', NULL, NULL, NULL")
    ledger = tmp_path / "people.ledger"
    with dpsql.connect(url, policy=POLICY, ledger=ledger, epsilon=1) as con:
        first = con.query("SELECT COUNT(*) FROM people").rows
    with dpsql.connect(url, policy=POLICY, ledger=ledger, epsilon=1) as con:
        assert con.query("SELECT COUNT(*) FROM people").rows == first
    with database(server, "others") as (other, theirs):
        theirs.execute(PEOPLE)
        grant(theirs)
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(other, policy=POLICY, ledger=ledger)
    assert caught.value.code == "another_database"


def test_any_ledger_serves_any_engine(people: tuple[str, Any], server: Server) -> None:
    """A ledger on a PostgreSQL server stores charges of PostgreSQL tables."""
    url, owner = people
    hold(owner, "1, 0, 0, 0, 'n', 'a', NULL, NULL, NULL")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS engines CASCADE; CREATE SCHEMA engines")
    ledger = f"{server.url}&options=-csearch_path%3Dengines"
    policy = POLICY | {"budget": {"epsilon": 3, "delta": 1e-6}}
    with dpsql.connect(url, policy=policy, ledger=ledger, epsilon=0.1) as con:
        con.query("SELECT COUNT(*) FROM people")
        assert con.budget()["people"].queries == 1


def test_command_line_takes_the_url(
    people: tuple[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs a policy, since a server has no policy file next to it."""
    url, owner = people
    hold(owner, "7, 1, 1, 1, 'n', 'a', '2024-01-01', '2024-01-01', '12:00'")
    policy = tmp_path / "people.yaml"
    policy.write_text(json.dumps(POLICY, default=str), encoding="utf-8")
    asked = ["query", url, "SELECT COUNT(*) AS n FROM people", "-e", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*asked, "-p", str(policy)])
    assert (ended.value.code, capsys.readouterr().out.split()[0]) == (0, "n")
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert (ended.value.code, "error[policy_missing]" in capsys.readouterr().err) == (1, True)


def test_missing_driver_raises_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(OperationalError) as caught:
        dpsql.connect("postgresql://nowhere/x", policy=POLICY, ledger=":memory:")
    assert caught.value.code == "driver_missing"
    assert ".[postgres]" in str(caught.value)


def test_unreachable_server_error_hides_the_password() -> None:
    """The error does not contain the password."""
    with pytest.raises(OperationalError) as caught:
        dpsql.connect("postgresql://me:secret@/x?host=/nowhere", policy=POLICY, ledger=":memory:")
    assert caught.value.code == "no_database"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "encoding", "code"), [(14, "UTF8", "engine_version"), (16, "LATIN1", "encoding")]
)
def test_unreviewed_server_is_refused(number: int, encoding: str, code: str) -> None:
    """Another version, or another encoding."""
    with pytest.raises(OperationalError) as caught:
        require_version(number, encoding)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "condition",
    [
        "CONTAINS(UPPER(name), LOWER(name))",
        "STRPOS(name || 'a', name || 'b') > 0",
        f"TRANSLATE(name, '{'a' * 999}', '{'b' * 999}') = 'b'",
        f"TRIM(name, '{'ab' * 400}') = 'b'",
        "LOWER(name) = 'a' OR LOWER(name) = 'b' OR LOWER(name) = 'c'",
    ],
)
def test_excessive_text_work_is_refused(people: tuple[str, Any], condition: str) -> None:
    """The work of PostgreSQL counts, which compares letter by letter; a text's beginning is answered."""
    url, _ = people
    with dpsql.connect(url, policy=POLICY, ledger=":memory:", epsilon=EXACT) as con:
        with pytest.raises(QueryRejected) as caught:
            con.query(f"SELECT COUNT(*) FROM people WHERE {condition}")
        assert caught.value.code == "too_long"
        assert list(
            con.query(
                f"SELECT COUNT(*) FROM people WHERE {condition.replace('name', 'LEFT(name, 100)')}"
            ).rows
        )
