"""Real clients: psycopg, asyncpg, psql, SQLAlchemy with reflection, pandas."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pandas
import psycopg
import pytest
import sqlalchemy as sa

from dpsql.api import engine_queries
from dpsql.engine import stages
from dpsql.engine.engine import Engine
from dpsql.engine.replay import replays
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    RunStatement,
    StatementDescription,
)
from dpsql.interfaces.server.protocol.values import FLOAT8, to_text
from dpsql.interfaces.server.session import PgSession
from dpsql.interfaces.server.statements import Statement
from dpsql.interfaces.server.users import Role
from dpsql.policy.request.query import Query

from .conftest import PASSWORD, POLICY, Serve, Served, prepared
from .raw_client import DESCRIBE_PORTAL, SYNC, RawClient, bind, execute, parse, rows_of, state_of

GROUPED = "SELECT plan, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY plan ORDER BY plan"


@contextmanager
def connected(served: Served, user: str = "ana", **options: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(served.dsn(user), autocommit=True, **options) as connection:
        connection.execute("SET dpsql.epsilon = 0.5")
        yield connection


def test_psycopg_gets_an_answer_with_its_charge_and_error_bounds(shared: Served) -> None:
    told: list[str] = []
    with connected(shared) as connection:
        connection.add_notice_handler(lambda diagnostic: told.append(str(diagnostic.message_primary)))
        rows = connection.execute(GROUPED).fetchall()
        assert [row[0] for row in rows] == ["A", "B"]
        assert all(isinstance(row[1], int) and isinstance(row[2], float) for row in rows)
        assert any("±95%" in text for text in told)
        assert any("charged to visits" in text for text in told)
        assert connection.execute(GROUPED).fetchall() == rows
        assert "nothing was charged" in told[-1]


def test_columns_of_a_query_without_rows_cost_nothing(shared: Served) -> None:
    """LIMIT 0 and WHERE 1=0, as tools send them: names and types by the protocol and over HTTP, and no charge."""
    spent = shared.spent()
    with connected(shared) as connection:
        for text in (
            "SELECT * FROM visits LIMIT 0",
            "SELECT * FROM visits WHERE 1=0",
            "SELECT * FROM visits LIMIT %s",
        ):
            cursor = connection.execute(text, (0,) if "%s" in text else None)
            types = {column.name: column.type_code for column in cursor.description or ()}
            assert (types["cost"], cursor.fetchall()) == (FLOAT8, [])
    answer = shared.ask(
        "/v1/query", {"sql": "SELECT plan, cost FROM visits LIMIT 0", "epsilon": "0.5"}, token=shared.token()
    )
    assert [(column["name"], column["type"]) for column in answer.json["columns"]] == [
        ("plan", "VARCHAR"),
        ("cost", "DOUBLE"),
    ]
    assert (answer.json["rows"], shared.spent()) == ([], spent)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_parameters_are_accepted_in_both_formats(shared: Served, binary: bool, prepare: bool) -> None:
    text = "SELECT COUNT(*) AS n FROM visits WHERE days > %s AND plan = %s AND day >= %s AND cost < %s"
    values = (0, "A", dt.date(2024, 2, 1), 900.5)
    with connected(shared) as connection:
        (row,) = connection.execute(text, values, binary=binary, prepare=prepare).fetchall()
        assert connection.execute(text, values, binary=not binary).fetchall() == [row]
        assert connection.execute("SELECT name, beds FROM wards ORDER BY 1", binary=binary).fetchall() == [
            ("north", 10),
            ("south", 20),
        ]
        (day,) = connection.execute("SELECT MAX(day) AS d FROM visits", binary=binary).fetchone() or ()
        assert isinstance(day, dt.date)


def test_binary_and_text_results_are_equal_for_every_type(shared: Served) -> None:
    """Of what follows from the policy and constants, which is exact."""
    text = (
        "SELECT beds, beds / 4.0 AS d, name, beds > 10 AS b, DATE '1969-07-20' AS day, TIMESTAMP '1999-12-31 23:59:59.5' AS at"
        " FROM wards ORDER BY beds"
    )
    with connected(shared) as connection:
        told = connection.execute(text).fetchall()
        assert connection.execute(text, binary=True).fetchall() == told
        assert told[0] == (
            10,
            2.5,
            "north",
            False,
            dt.date(1969, 7, 20),
            dt.datetime(1999, 12, 31, 23, 59, 59, 500000),
        )


@pytest.mark.parametrize(
    ("text", "state", "at"),
    [
        ("SELECT COUNT(*) FROM vsits", "42P01", None),
        ("SELECT COUNT(*) FROM", "42601", None),
        ("SELECT pg_sleep(1)", "42883", 8),
        ("DELETE FROM visits", "25006", 1),
        ("SELECT * FROM visits", "0A000", None),
        ("SET no_such = 1", "42704", None),
        ("SET dpsql.epsilon = -1", "22023", None),
        ("SHOW no_such", "42704", None),
    ],
)
def test_errors_have_an_sqlstate_and_a_position(
    shared: Served, text: str, state: str, at: int | None
) -> None:
    with connected(shared) as connection:
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(text)
        assert refused.value.sqlstate == state
        assert at is None or refused.value.diag.statement_position == str(at)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_query_without_a_loss_names_the_setting(shared: Served) -> None:
    with (
        psycopg.connect(shared.dsn(), autocommit=True) as connection,
        pytest.raises(psycopg.Error) as refused,
    ):
        connection.execute("SELECT COUNT(*) FROM visits")
    assert "SET dpsql.epsilon" in str(refused.value.diag.message_hint)


def test_settings_transactions_and_explain_work_as_in_postgresql(shared: Served) -> None:
    options = "-c dpsql.epsilon=0.25 -c statement_timeout=1min"
    with psycopg.connect(shared.dsn(), options=options) as connection:  # in transactions of its own
        assert connection.execute("SHOW dpsql.epsilon").fetchall() == [("0.25",)]
        assert connection.execute("SHOW statement_timeout").fetchall() == [("60000",)]
        connection.execute("SET application_name TO 'notebook'")
        assert connection.info.parameter_status("application_name") == "notebook"
        plan = "\n".join(row[0] for row in connection.execute("EXPLAIN SELECT COUNT(*) FROM visits"))
        assert "Release" in plan
        connection.commit()
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing FROM visits")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        names = [column.name for column in connection.execute("SHOW dpsql.budget").description or ()]
        assert names[:2] == ["table", "analyst"]
        connection.execute("SELECT COUNT(*) AS n FROM visits")
        ((n, low, high),) = connection.execute("SHOW dpsql.intervals").fetchall()
        assert low < n < high
        assert '"entries"' in connection.execute("SHOW dpsql.receipt").fetchall()[0][0]


SETTINGS = {
    "dpsql.epsilon": "0.1", "dpsql.delta": "1e-6", "dpsql.max_groups": "3", "dpsql.target_error": "50",
    "dpsql.confidence": "0.9", "dpsql.dialect": "duckdb", "dpsql.replay": "off", "dpsql.notices": "off",
}  # fmt: skip
"""What clients may set, by the names that programs have written down."""


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_set_and_shown_by_its_name(shared: Served, name: str) -> None:
    """A setting is set and shown by its name, which documents and programs use."""
    with connected(shared) as connection:
        connection.execute(f"SET {name} = '{SETTINGS[name]}'")
        assert connection.execute(f"SHOW {name}").fetchall() == [(SETTINGS[name],)]


def test_an_auditor_sees_all_budgets_and_runs_no_queries(shared: Served) -> None:
    with connected(shared, "eve") as connection:
        seen = {row[1] for row in connection.execute("SHOW dpsql.budget")}
        assert {"ana", "bob"} <= seen
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT COUNT(*) FROM visits")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM wards")
    with connected(shared, "bob") as connection:
        assert {row[1] for row in connection.execute("SHOW dpsql.budget")} == {"", "bob"}


def test_rows_of_a_portal_are_fetched_in_parts(shared: Served) -> None:
    async def fetched() -> list[Any]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=shared.port, user="ana", password=PASSWORD,
            server_settings={"dpsql.epsilon": "0.5"},
        )  # fmt: skip
        try:
            async with connection.transaction():
                rows = [row async for row in connection.cursor(GROUPED, prefetch=1)]
            again = await connection.fetch(GROUPED)
            counted = await connection.fetchval(
                "SELECT COUNT(*) FROM visits WHERE days > $1 AND plan = $2 AND day > $3",
                0,
                "A",
                dt.date(2024, 1, 1),
            )
            with pytest.raises(asyncpg.UndefinedTableError):
                await connection.fetch("SELECT COUNT(*) FROM nothing")
            assert isinstance(counted, int)
            return [rows, again]
        finally:
            await connection.close()

    rows, again = asyncio.run(fetched())
    assert rows == again
    assert [row["plan"] for row in rows] == ["A", "B"]


def test_sqlalchemy_reflects_and_pandas_reads(shared: Served) -> None:
    url = sa.URL.create("postgresql+psycopg", "ana", PASSWORD, "127.0.0.1", shared.port, "clinic")
    engine = sa.create_engine(url, connect_args={"options": "-c dpsql.epsilon=0.5"})
    try:
        found = sa.inspect(engine)
        assert sorted(found.get_table_names()) == ["visits", "wards"]
        assert found.get_schema_names() == ["information_schema", "public"]
        kinds = {column["name"]: str(column["type"]) for column in found.get_columns("visits")}
        assert kinds == {
            "plan": "TEXT",
            "ward": "TEXT",
            "cost": "DOUBLE PRECISION",
            "days": "BIGINT",
            "day": "DATE",
        }
        assert found.get_pk_constraint("visits")["constrained_columns"] == []
        assert found.get_foreign_keys("visits") == found.get_indexes("visits") == []
        comment = "private: it protects each patient; the unit column is patient_id"
        assert found.get_table_comment("visits")["text"] == comment
        metadata = sa.MetaData()
        metadata.reflect(engine)
        visits = metadata.tables["visits"]
        asked = (
            sa.select(visits.c.plan, sa.func.count().label("n"))
            .where(
                visits.c.days >= 1,
                visits.c.plan == "A",
                visits.c.day > dt.date(2024, 2, 1),
                visits.c.cost < 900.5,
            )
            .group_by(visits.c.plan)
            .order_by(visits.c.plan)
        )
        with engine.connect() as connection:
            rows = connection.execute(asked).all()
        assert "A" in [row.plan for row in rows]
        frame = pandas.read_sql(GROUPED, engine)
        assert list(frame.columns) == ["plan", "n", "cost"]
        assert sorted(pandas.read_sql("wards", engine).columns) == ["beds", "name"]
    finally:
        engine.dispose()


def psql(served: Served, *commands: str, user: str = "ana", password: str = PASSWORD) -> tuple[str, str]:
    program = shutil.which("psql")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no psql here")
    arguments = [part for command in commands for part in ("-c", command)]
    ran = subprocess.run(
        [program, "-X", f"host=127.0.0.1 port={served.port} user={user} dbname=clinic", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PGPASSWORD": password},
    )  # fmt: skip
    return ran.stdout, ran.stderr


def test_psql_lists_tables_and_runs_queries(shared: Served) -> None:
    out, err = psql(
        shared, r"\d", r"\dt+", r"\d visits", r"\d+ wards", r"\l", r"\dn", r"\df", r"\du", r"\conninfo"
    )
    assert err == ""
    assert "public | visits | table" in out
    assert "cost   | double precision" in out
    out, err = psql(shared, "SET dpsql.epsilon = 0.5", GROUPED, "SELECT COUNT(*) FROM visits WHERE")
    assert "A" in out
    assert "n ±95%" in err
    assert "LINE 1" in err or "syntax" in err or "parsed" in err
    out, err = psql(shared, "BEGIN; SHOW dpsql.epsilon; COMMIT; SELECT 1 AS a; SELECT 2 AS b")
    assert err == ""
    assert "2" in out


def test_a_wrong_password_is_refused(shared: Served) -> None:
    _, err = psql(shared, "SELECT 1", password="wrong" + PASSWORD)
    assert "password authentication failed" in err
    _, err = psql(shared, "SELECT 1", user="nobody")
    assert "password authentication failed" in err
    assert {facts["user"] for event, facts in shared.logged if event == "login refused"} == {"ana", "nobody"}


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        ("-c dpsql.epsilon=0.5", "", "ε 0.5 (ρ"),
        ("", "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.25) ", "ε 0.25 (ρ"),
        ("", "", "ε 0.125 (ρ"),
    ],
)
def test_the_charge_notice_shows_the_stated_epsilon(
    tmp_path: Path, serve: Serve, options: str, text: str, said: str
) -> None:
    """Of the text, the session or the policy; ρ never passes for ε."""
    policy = {**POLICY, "budget": {"epsilon": 30, "delta": 1e-6}, "default_epsilon": 0.125}
    with serve(tmp_path, policy=policy) as served:
        told: list[str] = []
        with psycopg.connect(served.dsn(), autocommit=True, options=options) as connection:
            connection.add_notice_handler(lambda diagnostic: told.append(str(diagnostic.message_primary)))
            connection.execute(f"SELECT {text}COUNT(*) AS n FROM visits")
        assert f"charged to visits: {said}" in told[-1]
        asked = {"sql": f"SELECT {text}COUNT(*) AS n FROM visits WHERE days > 1"}
        epsilon = {"epsilon": 0.5} if options and not text else {}
        answer = served.ask("/v1/query", {**asked, **epsilon}, token=served.token())
        assert said in answer.json["cost"][0]


def test_a_query_with_parameters_is_planned_once(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A portal that was described with its values is answered as it was planned; one of samples of the types is planned anew."""
    planned = list[str]()
    plan = stages.prepare_query

    def counted(engine: Engine, asked: Query, *arguments: Any) -> Any:
        planned.append(asked.sql)
        return plan(engine, asked, *arguments)

    for module in (stages, replays, engine_queries):
        monkeypatch.setattr(module, "prepare_query", counted)
    with connected(shared) as connection:
        connection.execute("SELECT COUNT(*) AS n FROM visits WHERE days > %s", (1,)).fetchall()
        assert len(planned) == 1

    async def prepared() -> None:
        session = await asyncpg.connect(
            host="127.0.0.1", port=shared.port, user="ana", password=PASSWORD,
            server_settings={"dpsql.epsilon": "0.5"},
        )  # fmt: skip
        try:
            statement = await session.prepare("SELECT COUNT(*) AS n FROM visits WHERE days > $1")
            del planned[:]
            await statement.fetch(2)
            await statement.fetch(3)
            assert len(planned) == 2
        finally:
            await session.close()

    asyncio.run(prepared())


def test_comments_around_utility_statements_are_ignored(shared: Served) -> None:
    """As dbt does before each; they are no part of a setting's name or value."""
    with connected(shared) as connection:
        connection.execute('/* {"app": "dbt"} */\n\n  SET dpsql.epsilon = 0.25 -- small\n')
        assert connection.execute("-- which?\nSHOW /* now */ dpsql.epsilon").fetchall() == [("0.25",)]
        connection.execute("/* a */ SET application_name = 'a /* b */  c'")
        assert connection.execute("SHOW application_name").fetchall() == [("a /* b */  c",)]
        connection.execute("/* a */ RESET /* b */ application_name")
        assert connection.execute("SHOW application_name").fetchall() == [("",)]
        connection.execute("/* a */ BEGIN; /* b */ COMMIT")


def test_a_described_plan_is_not_used_for_other_values(shared: Served) -> None:
    """What was described for one value is not the answer for another, be it equal to it in Python: of another type or sign."""
    user = shared.service.users.find_user("ana")
    assert user is not None
    statement = Statement.from_text("SELECT COUNT(*) AS n FROM visits WHERE cost > $1")

    async def told(described: Any, asked: Any) -> Any:
        session = PgSession(shared.service, user[0])
        session.settings.set_value("dpsql.epsilon", "0.01")
        found = await session.describe_statement(DescribeStatement(statement, (FLOAT8,), (described,)))
        assert isinstance(found, StatementDescription)
        answer = await session.run_statement(RunStatement(statement, (asked,), found.columns))
        assert isinstance(answer, Answer)
        result = session.last_answer.result
        return result and result.receipt.plan

    def of(described: Any, asked: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(told(described, asked), shared.loop).result(30)

    assert of(1.5, 700.5) == of(700.5, 700.5) != of(1.5, 1.5)
    assert of(0.0, -0.0) == of(-0.0, -0.0)


def asked_by_node(client: RawClient, text: str, *values: str, name: str = "") -> list[tuple[str, bytes]]:
    """What the server says to what the node package `pg` sends: no types, and Describe of the portal alone."""
    begun = () if name and name in client.parsed else (parse(text, name),)
    client.parsed.add(name)
    return client.ask(*begun, bind("", name, *values), DESCRIBE_PORTAL, execute(), SYNC)


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("cost > $1", ("5",)),
        ("days >= $1 AND days < $2", ("0", "7")),
        ("day BETWEEN $1 AND $2", ("2024-01-01", "2024-12-31")),
        ("cost * $1 > 10.5", ("2",)),
        ("plan = $1", ("A",)),
        ("cost >= $1::float8", ("5",)),
        ("cost > $1::FLOAT(53)", ("5",)),
        ("cost > $1::NUMERIC", ("5.5",)),
    ],
)
def test_parameters_without_types_are_inferred_from_their_context(
    shared: Served, condition: str, values: tuple[str, ...]
) -> None:
    """Whether the statement was described or not, by its name or without one, and for psycopg's texts."""
    text = f"SELECT COUNT(*) AS n FROM visits WHERE {condition}"
    with RawClient(shared.port, "ana", PASSWORD, **{"dpsql.epsilon": "0.01"}) as client:
        told = [asked_by_node(client, text, *values, name=name) for name in ("", "s", "s")]
        assert [state_of(each) for each in told] == [None] * 3
        ((row,), *others) = [rows_of(each) for each in told]
        assert others == [[row]] * 2
    with connected(shared) as connection:
        connection.execute("SET dpsql.epsilon = 0.01")
        read = re.sub(r"\$\d", "%s", text)
        assert connection.execute(read, values).fetchall() == [(int(str(row[0])),)]


def test_an_invalid_parameter_value_is_refused_uncharged(shared: Served) -> None:
    spent = shared.spent()
    with RawClient(shared.port, "ana", PASSWORD, **{"dpsql.epsilon": "0.01"}) as client:
        told = asked_by_node(client, "SELECT COUNT(*) FROM visits WHERE cost > $1", "five")
        assert state_of(told) == "22P02"
    assert shared.spent() == spent


def test_psycopg_rolls_back_with_prepared_statements(shared: Served) -> None:
    """It says DEALLOCATE ALL then, since a rollback could have taken the statements with it."""
    with psycopg.connect(shared.dsn(), options="-c dpsql.epsilon=0.01") as connection:
        for number in range(7):
            connection.execute("SELECT COUNT(*) FROM visits WHERE cost > %s", (number,)).fetchall()
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing FROM visits")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(psycopg.Error), connection.transaction():
            connection.execute("SELECT nothing FROM visits")
        for number in range(7):
            connection.execute("SELECT COUNT(*) FROM visits WHERE cost > %s", (number,)).fetchall()


def test_a_pool_of_asyncpg_gives_connections_back_after_a_charge(shared: Served) -> None:
    """Its reset goes back to the settings that it began with, so that the next user of a connection has a loss as well."""

    async def ask() -> list[int]:
        pool = await asyncpg.create_pool(
            host="127.0.0.1", port=shared.port, user="ana", password=PASSWORD, database="clinic",
            min_size=1, max_size=1, server_settings={"dpsql.epsilon": "0.02"},
        )  # fmt: skip
        async with pool:
            found = [
                await pool.fetchval("SELECT COUNT(*) FROM visits WHERE cost > $1", 2.5) for _ in range(3)
            ]
            async with pool.acquire() as connection:
                await connection.execute("SET dpsql.epsilon = 0.5")
                with contextlib.suppress(asyncpg.PostgresError):
                    await connection.execute("SELECT nothing FROM visits")
            assert await pool.fetchval("SHOW dpsql.epsilon") == "0.02"
            return found

    found = asyncio.run(ask())
    assert len(found) == 3
    assert len(set(found)) == 1


def test_reset_statements_of_connection_pools_are_accepted(shared: Served) -> None:
    """Each is told as what it is here; statements and portals are forgotten by name and all together."""
    with RawClient(shared.port, "ana", PASSWORD) as client:

        def tags(text: str) -> list[str]:
            return [body[:-1].decode() for kind, body in client.query(text) if kind == "C"]

        assert tags("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;") == [
            "SELECT 1",
            "CLOSE CURSOR ALL",
            "UNLISTEN",
            "RESET",
        ]
        assert tags("DISCARD PLANS; DISCARD TEMPORARY; DISCARD ALL") == [
            "DISCARD PLANS",
            "DISCARD TEMP",
            "DISCARD ALL",
        ]
        for wrong in ("DISCARD", "DISCARD nothing", "DEALLOCATE", "UNLISTEN"):
            assert state_of(client.query(wrong)) == "42601"
        client.ask(parse("SELECT 1", "s"), parse("SELECT 2", "T"), SYNC)
        assert state_of(client.query("DEALLOCATE t")) == "26000"
        assert tags('DEALLOCATE s; DEALLOCATE PREPARE "T"') == ["DEALLOCATE"] * 2
        assert state_of(client.ask(bind("", "s"), SYNC)) == "26000"
        client.ask(parse("SELECT 1", "s"), SYNC)
        assert tags("DEALLOCATE ALL") == ["DEALLOCATE ALL"]
        assert state_of(client.ask(bind("", "s"), SYNC)) == "26000"
        client.query("BEGIN")
        client.ask(parse("SELECT relname FROM pg_class", "s"), bind("p", "s"), execute("p", 1), SYNC)
        assert tags("CLOSE p") == ["CLOSE CURSOR"]
        assert state_of(client.ask(execute("p", 1), SYNC)) == "34000"
        assert state_of(client.query("CLOSE p")) == "25P02"
        client.query("ROLLBACK")
        client.query("BEGIN")
        client.ask(bind("p", "s"), execute("p", 1), SYNC)
        client.query("COMMIT")
        assert state_of(client.ask(execute("p", 1), SYNC)) == "34000"


@pytest.mark.parametrize(
    ("setting", "begin", "state"),
    [
        ("idle_session_timeout", False, "57P05"),
        ("idle_in_transaction_session_timeout", True, "25P03"),
    ],
)
def test_an_idle_session_ends(shared: Served, setting: str, begin: bool, state: str) -> None:
    """Also one that begins a message and does not end it; others stay."""
    with (
        RawClient(shared.port, "ana", PASSWORD, **{setting: "1s"}) as client,
        RawClient(shared.port, "bob", PASSWORD) as other,
    ):
        assert state_of(client.query("SELECT 1")) is None
        if begin:
            client.query("BEGIN")
        client.send(b"Q\0")
        told = client.said()
        assert state_of([told]) == state
        assert client.said() == ("", b"")
        assert rows_of(other.query("SELECT 1")) == [["1"]]


def test_an_owner_ends_sessions_and_users_end_their_own(tmp_path: Path, serve: Serve) -> None:
    prepared(tmp_path)[1].add_user("olga", Role.owner, PASSWORD)
    with serve(tmp_path) as served, connected(served) as first, connected(served) as second:
        pids = [connection.info.backend_pid for connection in (first, second)]
        with connected(served, "bob") as other:
            text = "SELECT pg_terminate_backend(%s)"
            assert other.execute(text, (pids[0],)).fetchall() == [(False,)]
            assert other.execute("SELECT pg_catalog.pg_cancel_backend(1) AS done").fetchall() == [(False,)]
        assert second.execute(f"SELECT pg_terminate_backend({pids[0]})").fetchall() == [(True,)]
        with pytest.raises(psycopg.errors.AdminShutdown):
            until_it_fails(first)
        with connected(served, "olga") as owner:
            seen = "SELECT usename, state FROM pg_stat_activity ORDER BY 1"
            assert owner.execute(seen).fetchall() == [("ana", "idle"), ("olga", "active")]
            assert owner.execute("SELECT pg_terminate_backend(%s)", (pids[1],)).fetchall() == [(True,)]
            with pytest.raises(psycopg.errors.AdminShutdown):
                until_it_fails(second)
        assert [event.facts["by"] for event in served.audit if event.name == "session ended"] == [
            "ana",
            "olga",
        ]


def until_it_fails(connection: psycopg.Connection[Any]) -> None:
    while True:
        connection.execute("SELECT 1")


@pytest.mark.parametrize(
    ("condition", "values", "same"),
    [
        ("plan = ANY(%s)", ["A", "B"], "plan IN ('A', 'B')"),
        ("plan = ANY(%s::text[])", ["A"], "plan IN ('A')"),
        ("plan <> ALL(%s)", ["A", 'b"\\,'], "plan NOT IN ('A', 'b\"\\,')"),
        ("days = ANY(%s)", [1, 2, 70_000], "days IN (1, 2, 70000)"),
        ("cost = ANY(%s)", [1.5, 100.0], "cost IN (1.5, 100.0)"),
        ("day = ANY(%s)", [dt.date(2024, 3, 1)], "day IN (DATE '2024-03-01')"),
    ],
)
def test_lists_are_bound_as_arrays(shared: Served, condition: str, values: list[Any], same: str) -> None:
    """By psycopg in text and binary, by asyncpg, and by node; it is the query with IN, and answered free as that was."""
    text = "SELECT COUNT(*) AS n FROM visits WHERE "
    with connected(shared) as connection:
        connection.execute("SET dpsql.epsilon = 0.01")
        (expected,) = connection.execute(text + same).fetchone() or ()
        spent = shared.spent()
        for binary in (False, True):
            parameter = "%b" if binary else "%t"
            found = connection.execute(text + condition.replace("%s", parameter), (values,)).fetchall()
            assert found == [(expected,)]

    async def ask() -> Any:
        asked = await asyncpg.connect(
            host="127.0.0.1", port=shared.port, user="ana", password=PASSWORD, database="clinic",
            server_settings={"dpsql.epsilon": "0.01"},
        )  # fmt: skip
        try:
            return await asked.fetchval(text + condition.replace("%s", "$1"), values)
        finally:
            await asked.close()

    assert asyncio.run(ask()) == expected
    with RawClient(shared.port, "ana", PASSWORD, **{"dpsql.epsilon": "0.01"}) as client:
        told = asked_by_node(client, text + condition.replace("%s", "$1"), to_text(values))
        assert rows_of(told) == [[str(expected)]]
    assert shared.spent() == spent


def test_null_and_empty_lists_are_refused_uncharged(shared: Served) -> None:
    spent = shared.spent()
    text = "SELECT COUNT(*) AS n FROM visits WHERE days = ANY($1)"
    with RawClient(shared.port, "ana", PASSWORD, **{"dpsql.epsilon": "0.01"}) as client:
        for wrong, state in (
            ("{1,", "22P02"),
            ("1", "22P02"),
            ("{{1}}", "22P02"),
            ("{a}", "22P02"),
            ("{1}{", "22P02"),
            ("{}", "42P02"),
        ):
            assert (wrong, state_of(asked_by_node(client, text, wrong))) == (wrong, state)
        told = client.query("SELECT COUNT(*) AS n FROM visits WHERE days > ANY($1)")
        assert state_of(told) in ("0A000", "42883", "42P02")
    assert shared.spent() == spent
