"""The catalog queries of tools are answered with the policy's tables, in each dialect of the session, and cost nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.protocol.values import to_text
from dpsql.interfaces.server.users import Role, UserStore

from . import hospital
from .conftest import PASSWORD, Served, serving
from .raw_client import DESCRIBE_PORTAL, SYNC, RawClient, bind, execute, parse, rows_of, state_of

TOOLS = sorted((Path(__file__).parent / "recorded" / "tools").glob("*.sql"))
_QUERY = re.compile(
    r"-- (?!#|values|rows)([^\n]*)\n(.*?);\n(?:-- values ([^\n]*)\n)?(?:-- rows ([^\n]*)\n)?", re.DOTALL
)
_LEFT_TO_THE_DIALECT = {("metabase", "server's time")}
"""Queries without tables whose functions other dialects have, too."""

UNHURRIED = Limits(pg_catalog_seconds=60)
"""A busy machine may take longer for a catalog query than the server waits."""


@dataclass(frozen=True)
class Sent:
    """A query of a tool, with its parameters' values, and the rows of the answer if the test knows them."""

    label: str
    text: str
    values: list[Any]
    rows: list[Any] | None


def read_queries(path: Path) -> list[Sent]:
    """The queries of a tool."""
    found = _QUERY.findall(path.read_text(encoding="utf-8"))
    return [
        Sent(label, text, json.loads(values or "[]"), json.loads(rows) if rows else None)
        for label, text, values, rows in found
    ]


def ask(client: RawClient, sent: Sent) -> list[tuple[str, bytes]]:
    """What the server says to a query: with parameters by the extended protocol, without types."""
    if not sent.values:
        return client.query(sent.text)
    values = ["{" + ",".join(value) + "}" if isinstance(value, list) else str(value) for value in sent.values]
    return client.ask(parse(sent.text), bind("", "", *values), DESCRIBE_PORTAL, execute(), SYNC)


def prepare(folder: Path, *, emptied: bool = False) -> None:
    """Write the hospital's file, without a row if it is to be emptied, and the store of users."""
    file = folder / "clinic.duckdb"
    made = hospital.make_database()
    if emptied:
        made.execute("DELETE FROM patients; DELETE FROM visits; DELETE FROM emr.labs")
    made.execute(f"ATTACH '{file}' AS file; COPY FROM DATABASE memory TO file; DETACH file")
    made.close()
    store = UserStore.open(folder / "clinic.users", create=True)
    store.add_user("ana", Role.analyst, PASSWORD)
    store.add_user("bob", Role.analyst, PASSWORD)
    store.close()


@pytest.fixture(scope="module")
def served_hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hospital")
    prepare(folder)
    with serving(folder, policy=hospital.POLICY, limits=UNHURRIED) as found:
        yield found


def test_all_queries_of_the_files_are_read() -> None:
    for path in TOOLS:
        labels = re.findall(r"^-- (?!#|values |rows )", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(read_queries(path)) == len(labels), path.stem


@pytest.mark.parametrize("dialect", ["postgres", "duckdb", "bigquery"])
@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_queries_of_tools_are_answered_free(served_hospital: Served, path: Path, dialect: str) -> None:
    """Each query has an answer, and the rows that the test knows; nothing is charged."""
    entries = served_hospital.service.connections
    with entries.acquire_connection("ana") as connection:
        before = connection.engine.ledger.list_states()
    failed = list[str]()
    with RawClient(
        served_hospital.port, "ana", PASSWORD, **{"dpsql.dialect": dialect, "dpsql.epsilon": "1"}
    ) as client:
        for sent in read_queries(path):
            if dialect != "postgres" and (path.stem, sent.label) in _LEFT_TO_THE_DIALECT:
                continue
            told = ask(client, sent)
            rows = rows_of(told)
            wanted = [[None if value is None else to_text(value) for value in row] for row in sent.rows or ()]
            if state_of(told) is not None or (sent.rows is not None and rows != wanted):
                failed.append(f"{sent.label}: {state_of(told)} {rows}")
    assert failed == []
    with entries.acquire_connection("ana") as connection:
        assert connection.engine.ledger.list_states() == before


def test_answers_to_tools_do_not_depend_on_the_data(served_hospital: Served, tmp_path: Path) -> None:
    """The same bytes for a database without a patient, but for the time of the day."""
    prepare(tmp_path, emptied=True)
    moment = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")
    with (
        serving(tmp_path, policy=hospital.POLICY, limits=UNHURRIED) as emptied,
        RawClient(served_hospital.port, "ana", PASSWORD) as client,
        RawClient(emptied.port, "ana", PASSWORD) as other,
    ):
        for path in TOOLS:
            for sent in read_queries(path):
                if "pg_stat_activity" in sent.text:
                    continue
                ours, theirs = ask(client, sent), ask(other, sent)
                assert [(kind, moment.sub(b"", body)) for kind, body in ours] == [
                    (kind, moment.sub(b"", body)) for kind, body in theirs
                ], sent.label


def test_tools_see_nothing_that_the_policy_hides(served_hospital: Served) -> None:
    """Neither undeclared tables and columns, nor keys of undeclared columns, nor other users."""
    hidden = ("secrets", "full_name", "lab_id", "labs_patient_id", "bob")
    with RawClient(served_hospital.port, "ana", PASSWORD) as client:
        for path in TOOLS:
            for sent in read_queries(path):
                shown = " ".join(value or "" for row in rows_of(ask(client, sent)) for value in row)
                assert not [word for word in hidden if word in shown], sent.label
        for text in (
            "SELECT * FROM pg_roles",
            "SELECT * FROM pg_user",
            "SELECT * FROM pg_stat_activity",
            "SELECT grantee, table_name FROM information_schema.table_privileges",
            "SELECT conname, conkey FROM pg_constraint",
            "SELECT attname FROM pg_attribute",
            "SELECT * FROM pg_settings",
        ):
            shown = " ".join(value or "" for row in rows_of(client.query(text)) for value in row)
            assert not [word for word in hidden if word in shown], text


@pytest.mark.parametrize("dialect", ["postgres", "duckdb", "snowflake"])
def test_catalog_tables_are_not_joined_with_tables_of_the_policy(
    served_hospital: Served, dialect: str
) -> None:
    with RawClient(
        served_hospital.port, "ana", PASSWORD, **{"dpsql.dialect": dialect, "dpsql.epsilon": "1"}
    ) as client:
        for text in (
            "SELECT COUNT(*) FROM pg_class, visits",
            "SELECT COUNT(*) FROM information_schema.tables t JOIN visits v ON t.table_name = v.ward",
            "SELECT relname FROM pg_class WHERE relnatts IN (SELECT patient_id FROM visits)",
            "WITH pg_class AS (SELECT * FROM secrets) SELECT * FROM pg_class",
        ):
            assert state_of(client.query(text)) is not None, text


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT quote_ident('a'), quote_ident('A b'), quote_literal('o''k')", [["a", '"A b"', "'o''k'"]]),
        ("SELECT format('%I.%s = %L, 5%%', 'A', 7, 'x')", [["\"A\".7 = 'x', 5%"]]),
        ("SELECT parse_ident('emr.labs'), parse_ident('\"A b\".C')", [["{emr,labs}", '{"A b",c}']]),
        (
            "SELECT 'emr.labs'::regclass::oid::regclass, 'emr.visits'::regclass::oid, 'labs'::regclass::oid",
            [["emr.labs", None, None]],
        ),
        ("SELECT '16385'::regclass::text", [["visits"]]),
        ("SELECT 3 <> ALL ('{1,2}'::int[]), 'a' = ANY ('{a}')", [["t", "t"]]),
        ("SELECT s[i] FROM generate_series(1, 2) AS i, string_to_array('a,b', ',') AS s", [["a"], ["b"]]),
        ("SELECT count(*) FROM pg_class c WHERE c.xmin IS NULL OR c.tableoid <> 'pg_class'::regclass::oid", [["0"]]),
        (
            "SELECT indkey[0], array_lower(indkey, 1), array_upper(indkey, 1) FROM pg_index WHERE indisprimary",
            [["1", "0", "0"]],
        ),
        (
            "SELECT row_to_json(t) FROM (SELECT relname AS a FROM pg_class WHERE relname = 'wards') t",
            [['{"a":"wards"}']],
        ),
        (
            "SELECT a.key, a.n FROM pg_constraint c, unnest(c.conkey, c.confkey) WITH ORDINALITY a(key, ref, n) WHERE contype = 'f'",
            [["2", "1"]],
        ),
        (
            "SELECT has_table_privilege('visits', 'SELECT'), has_table_privilege('visits', 'INSERT, UPDATE')",
            [["t", "f"]],
        ),
        (
            "SELECT set_config('jit', 'on', false) FROM pg_show_all_settings() WHERE name = 'jit'",
            [["on"]],
        ),
        ("SELECT rolname FROM pg_roles ORDER BY 1", [["ana"], ["owner"]]),
        ("SELECT 1 AS select, 2 AS table", [["1", "2"]]),
    ],
)  # fmt: skip
def test_functions_of_the_catalog_mean_what_they_mean_in_postgresql(
    served_hospital: Served, text: str, rows: list[Any]
) -> None:
    with RawClient(served_hospital.port, "ana", PASSWORD) as client:
        told = client.query(text)
        assert rows_of(told) == rows, told


@pytest.mark.parametrize(
    "text",
    [
        "SELECT set_config('jit', 'off', false) FROM pg_settings",
        "SELECT set_config('jit', 'off', false) FROM pg_settings WHERE name = 'none'",
        "SELECT set_config('jit', 'off', false) FROM pg_settings WHERE name = 'jit' OR true",
        "SELECT format(relname, 1) FROM pg_class",
        "SELECT format('%9s', 1)",
        "SELECT format('%s')",
        "SELECT to_char(now(), relname) FROM pg_class",
        "SELECT * FROM to_json(1), 'x.csv'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM pg_ls_dir('/')",
        "SELECT json_agg(relname ORDER BY relname) FROM pg_class",
    ],
)
def test_other_calls_are_refused(served_hospital: Served, text: str) -> None:
    with RawClient(served_hospital.port, "ana", PASSWORD) as client:
        told = client.query(text)
        assert state_of(told) in ("0A000", "42883", "42601", "42P01", "22023"), told
        assert b"/etc/passwd" not in b"".join(body for _, body in told if b"root" in body)


def test_quoted_texts_do_not_grow_without_limit(served_hospital: Served) -> None:
    """Quoting a quotation mark doubles it: thirty times would fill the memory of the server."""
    with RawClient(served_hospital.port, "ana", PASSWORD) as client:
        for name, most in (("quote_ident", 20_002), ("quote_literal", 20_002), ("to_json", 10_000)):
            grown = "'\"''\"'"
            for _ in range(30):
                grown = f"{name}({grown})"
            ((longest,),) = rows_of(client.query(f"SELECT length({grown})"))
            assert int(longest or 0) <= most, name


def test_columns_without_names_are_called_as_in_postgresql(served_hospital: Served) -> None:
    with RawClient(served_hospital.port, "ana", PASSWORD) as client:
        told = client.query("SELECT current_schema(), version(), count(*), 1 FROM pg_class")
        description = next(body for kind, body in told if kind == "T")
        assert re.findall(rb"(?:^..|\0.{18})([\w?]+)(?=\0)", description, re.DOTALL) == [
            b"current_schema", b"version", b"count", b"?column?"
        ]  # fmt: skip


PSQL = re.split(
    r"\s+(?=\\)",
    r"""\d \d+ \dS \dS+ \da \daS \dA \dA+ \dAc \dAf \dAp \db \db+ \dc \dcS \dconfig \dC \dC+ \dd \dD \dDS \ddp \dE \des \deu \dew
    \det \df \dfS \df+ \dF \dFd \dFp \dFt \dg \dg+ \du \du+ \di \di+ \diS \dl \dL \dLS \dm \dm+ \dn \dn+ \dnS \do \doS \dO \dOS
    \dp \dP \dP+ \drds \dRp \dRp+ \dRs \dRs+ \ds \ds+ \dt \dt+ \dtS+ \dT \dT+ \dTS \dv \dv+ \dvS \dx \dx+ \dX \dy \dy+ \l \l+ \z
    \dti \dtvmsE \d visits \d+ visits \d patients \d+ patients \d wards \d emr.labs \d emr.* \dt emr.* \dt v* \d "visits" \du ana
    \df a* \dp visits \sv visits \dconfig *""",
)
"""psql's commands that look at the catalog."""


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_psql_describes_tables_with_their_keys(served_hospital: Served, dialect: str) -> None:
    told = subprocess.run(
        ["psql", "-X", "-q", served_hospital.dsn(options=f"-cdpsql.dialect={dialect}")],
        input="\n".join(PSQL),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "ERROR" not in told.stderr, told.stderr
    for shown in (
        '"patients_pkey" PRIMARY KEY, btree (patient_id)',
        '"visits_visit_id_key" UNIQUE CONSTRAINT, btree (visit_id)',
        '"visits_patient_id_fkey" FOREIGN KEY (patient_id) REFERENCES patients(patient_id)',
    ):
        assert shown in told.stdout
    assert "secrets" not in told.stdout


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint ORDER BY conname",
            [["PRIMARY KEY (patient_id)"], ["FOREIGN KEY (patient_id) REFERENCES patients(patient_id)"], ["UNIQUE (visit_id)"]],
        ),
        ("SELECT obj_description(oid) FROM pg_class WHERE relname = 'wards'", [["public"]]),
        ("SELECT format_type(oid, NULL) FROM pg_type WHERE typname = 'int8'", [["bigint"]]),
        ("SELECT oid::regclass FROM pg_class WHERE relname = 'wards'", [["wards"]]),
        ("SELECT oid::regtype FROM pg_type WHERE typname = 'bool'", [["boolean"]]),
        ("SELECT oid::regnamespace FROM pg_namespace WHERE nspname = 'emr'", [["emr"]]),
        ("SELECT current_setting(name) FROM pg_settings WHERE name = 'jit'", [["off"]]),
        ("SELECT relname::regclass::oid FROM pg_class WHERE relname = 'wards'", [["16386"]]),
        ("SELECT relname FROM clinic.pg_catalog.pg_class WHERE oid = 16386", [["wards"]]),
    ],
)  # fmt: skip
def test_arguments_are_columns_of_the_query(served_hospital: Served, text: str, rows: list[Any]) -> None:
    """A column without its table, as an argument, is not taken for one of the table that the function looks in."""
    with RawClient(served_hospital.port, "ana", PASSWORD) as client:
        told = client.query(text)
        assert rows_of(told) == rows, told
