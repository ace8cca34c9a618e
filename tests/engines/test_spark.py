"""The connection to Spark: what is read of which tables, under which settings, and what a failure says."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import floats, sparks
from worlds import before_filters, written_by

import dpsql
from dpsql.backends.spark import session as sessions
from dpsql.backends.spark.connection import SparkBackend
from dpsql.backends.spark.dialect import PART, make_spark_dialect
from dpsql.backends.spark.session import PINNED, QUICK, needs_reset
from dpsql.engine.replay.replays import plan_and_match
from dpsql.errors import BackendError, OperationalError, PolicyError, QueryRejected
from dpsql.planning.build_clamps import BY_NORM
from dpsql.policy.request.query import Query
from dpsql.sql.compile.compiler import Compiler

pytestmark = sparks.WARNINGS
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
                "x": {"type": "double", "bounds": [-10, 10]},
                "n": {"type": "integer", "bounds": [0, 100]},
                "price": {"type": "double", "bounds": [0, 50]},
                "big": {"type": "integer"},
                "name": {"type": "varchar"},
                "word": {"type": "varchar"},
                "kind": {"type": "varchar", "values": ["a", "B", "é"]},
                "day": {"type": "date"},
                "moment": {"type": "timestamptz"},
                "local": {"type": "timestamp"},
            },
        },
        "kinds": {"public": True},
    },
}
PEOPLE = """CREATE TABLE {} (
    id BIGINT, x DOUBLE, n DECIMAL(38,0), price FLOAT, big DECIMAL(20,0), name STRING, word STRING COLLATE UTF8_LCASE,
    kind CHAR(5), day DATE, moment TIMESTAMP, local TIMESTAMP_NTZ) USING parquet"""
_MOST, _LEAST = 2**63 - 1, -(2**63)
SPECIAL = [
    ["1", "'NaN'", "NULL", "'NaN'", *["NULL"] * 7],
    [
        *("2", "'Infinity'", "9" * 38, "'Infinity'", "9" * 20, "CAST(X'ff41' AS STRING)", "'ANN'", "'a'"),
        *("DATE_FROM_UNIX_DATE(2147483647)", f"TIMESTAMP_MICROS({_MOST})"),
        f"CAST(TIMESTAMP_MICROS({_MOST}) AS TIMESTAMP_NTZ)",
    ],
    [
        *(
            "3",
            "'-Infinity'",
            "-" + "9" * 38,
            "'-Infinity'",
            "-" + "9" * 20,
            "REPEAT('é', 600000)",
            "'ann'",
            "'B'",
        ),
        *("DATE_FROM_UNIX_DATE(-2147483648)", f"TIMESTAMP_MICROS({_LEAST})"),
        f"CAST(TIMESTAMP_MICROS({_LEAST}) AS TIMESTAMP_NTZ)",
    ],
    [
        *("4", "5e-324", "1", "1e-45", "9223372036854775807", "'y '", "'Ann'", "'é'", "DATE '0000-12-31'"),
        *("TIMESTAMP '2024-02-29 23:30:00-05'", "TIMESTAMP_NTZ '2024-02-29 23:30:00'"),
    ],
    [
        *("5", "-0.0", "2", "3.4e38", "9223372036854775808", "''", "'b'", "'z'", "DATE '2024-02-29'"),
        *("TIMESTAMP '1500-01-01 00:00:00'", "TIMESTAMP_NTZ '0001-01-01 00:00:00'"),
    ],
]


@pytest.fixture(scope="module")
def people(spark: Any) -> Iterator[Any]:
    """A session whose current schema has people with special values, nobody, and kinds."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS people")
    spark.catalog.setCurrentDatabase("people")
    for table in ("people", "nobody"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        spark.sql(PEOPLE.format(table))
    kinds = dict(field.simpleString().split(":") for field in spark.table("people").schema.fields)
    items = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
    writing = spark.newSession()
    sessions.pin_settings(writing)
    writing.catalog.setCurrentDatabase("people")
    for row in SPECIAL:
        writing.sql(
            f"INSERT INTO people SELECT {items} FROM VALUES ({', '.join(row)}) AS t({', '.join(kinds)})"
        )
    spark.sql("DROP TABLE IF EXISTS kinds")
    spark.sql(
        "CREATE TABLE kinds USING parquet AS SELECT * FROM VALUES ('a', 'small', 1.5, DATE '2020-01-01'), "
        "('B', 'large', NULL, DATE_FROM_UNIX_DATE(2147483647)), ('é', NULL, 2.5, NULL) AS t(kind, label, weight, since)"
    )
    return spark


@pytest.fixture(scope="module")
def con(people: Any) -> Iterator[Any]:
    with dpsql.connect(people, policy=POLICY, ledger=":memory:", epsilon=EXACT) as connection:
        yield connection


def test_stored_values_are_read_within_bounds(con: Any) -> None:
    """Bounds, NaN as NULL, UTC moments and UTF-8 texts without padding hold for any stored value."""
    sql = (
        "SELECT SUM(x), COUNT(x), SUM(n), COUNT(n), SUM(price), COUNT(price), COUNT(*), COUNT(day), COUNT(moment), COUNT(local), "
        "COUNT(name), COUNT(big), COUNT(CASE WHEN kind = 'a' THEN 1 END), COUNT(CASE WHEN word = 'ann' THEN 1 END), "
        "COUNT(CASE WHEN EXTRACT(day FROM moment) = 1 THEN 1 END), COUNT(CASE WHEN x * x > 99 OR x / n > 5 THEN 1 END), "
        "COUNT(CASE WHEN name = 'y' OR name < '' THEN 1 END) FROM people"
    )
    assert con.query(sql).rows == ((0.0, 4, 103, 4, 100.0, 4, 5, 1, 2, 2, 2, 1, 1, 1, 2, 2, 0),)


def test_texts_are_compared_by_their_bytes(con: Any) -> None:
    """A column's collation decides neither over equality nor over distinct values."""
    assert con.query("SELECT COUNT(DISTINCT word), COUNT(DISTINCT kind) FROM people").rows == ((4, 3),)


def test_ids_under_a_collation_are_refused(people: Any) -> None:
    """They are refused at connect; ids of bytes pass."""
    for unit, refused in (("word", True), ("name", False)):
        policy = {
            "version": 1,
            "privacy_unit": "person",
            "budget": {"epsilon": 1},
            "tables": {"people": {"unit": unit, "rows_per_unit": 1}},
        }
        with pytest.raises(dpsql.PolicyError) if refused else nullcontext() as caught:
            dpsql.connect(people, policy=policy, ledger=":memory:").close()
        if caught is not None:
            assert caught.value.code == "unit_type"
            assert "collation" in str(caught.value)


def test_constant_beside_a_float_is_a_float(people: Any) -> None:
    """It is read as beside DuckDB's FLOAT; so is the result of both."""
    rules = {"unit": "id", "rows_per_unit": 1, "columns": floats.COLUMNS}
    policy = {**POLICY, "tables": {"floats": rules}}
    people.sql("DROP TABLE IF EXISTS floats")
    people.sql("CREATE TABLE floats (id BIGINT, f FLOAT, x DOUBLE, n INT) USING parquet")
    people.sql(
        "INSERT INTO floats SELECT CAST(id AS BIGINT), CAST(f AS FLOAT), CAST(x AS DOUBLE), n"
        f" FROM VALUES {floats.VALUES} AS v(id, f, x, n)"
    )
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as connection:
        for condition, rows in floats.expected().items():
            found = connection.query(f"SELECT COUNT(*) FROM floats WHERE {condition}").rows
            assert found == ((rows,),), condition


def test_no_row_makes_a_query_fail(con: Any) -> None:
    """One person's rows cause no error, below a condition that excludes them or above."""
    items: tuple[str, ...] = (
        *(
            "LEAST(9, x * x * 1e300)",
            "LEAST(9, CAST(x * 1e300 AS BIGINT))",
            "LEAST(9, n * 92233720368547758)",
        ),
        *(
            "LEAST(9, price / x)",
            "LEAST(9, LN(ABS(x)) + EXP(x * 100))",
            "LEAST(9, big + big)",
            "LEAST(9, -big)",
        ),
        *(
            "LEAST(9, EXTRACT(year FROM day + CAST(big AS INTEGER)))",
            "LEAST(9, DATE_DIFF('day', day, local))",
        ),
        *("LEAST(9, big // n)", "LEAST(9, LENGTH(name || kind))", "LEAST(9, big % n)"),
    )
    for source in ("people", "(SELECT * FROM people WHERE x BETWEEN 0 AND 2 AND n > 0) AS s"):
        listed = ", ".join(f"SUM(GREATEST(-9, {item}))" for item in items)
        (row,) = con.query(f"SELECT {listed} FROM {source}").rows
        assert len(row) == len(items)


def test_public_tables_are_read_as_by_duckdb(con: Any) -> None:
    """A query on public rows alone, and public rows beside released ones."""
    assert con.query("SELECT kind, weight * 2, since FROM kinds ORDER BY kind DESC").rows == (
        ("é", 5.0, None),
        ("a", 3.0, dt.date(2020, 1, 1)),
        ("B", None, None),
    )
    sql = "SELECT label, COUNT(*) AS n FROM people JOIN kinds USING (kind) GROUP BY label ORDER BY n, label"
    assert [row for row in con.query(sql).rows if row[1]] == [("large", 1), ("small", 1), (None, 1)]


@pytest.mark.parametrize("product", ["s.e * s.e", "s.e + s.e", "s.e - -s.e"])
def test_excluded_row_makes_no_query_fail(con: Any, product: str) -> None:
    """Spark may compute before it filters: whole numbers are large before the condition."""
    sql = (
        f"SELECT COUNT(*) FROM (SELECT v.e FROM (SELECT id, big AS e FROM people) AS v WHERE v.e BETWEEN 0 AND 9) AS s "
        f"WHERE {product} < 100"
    )
    with written_by(before_filters(Compiler(make_spark_dialect())._get_template)):
        assert con.query(sql).rows


def test_settings_of_the_owner_are_separate(con: Any, people: Any) -> None:
    """Statements run in a session with dpsql's settings; the owner's session keeps its own."""
    session = con.engine.backend._runner.session
    wanted = {**PINNED, **QUICK}
    assert {name: session.conf.get(name) for name in wanted} == wanted
    assert session.conf.get("spark.sql.legacy.sizeOfNull") == "true"  # ANSI rules have the last word there
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert people.conf.get("spark.sql.ansi.enabled") == "false"
    assert people.conf.get("spark.sql.session.timeZone") == "America/New_York"
    left = {row[0] for row in session.sql("SET").collect()}
    assert not [name for name in left if needs_reset(name) and session.conf.isModifiable(name)]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("CREATE VIEW {} AS SELECT * FROM people", "view_source"),
        ("CREATE TABLE {} USING csv AS SELECT * FROM people WHERE id < 0", "view_source"),
        ("CREATE TABLE {} (id BIGINT, x DOUBLE) USING json OPTIONS (mode 'FAILFAST')", "view_source"),
        (PEOPLE.replace("USING parquet", "USING orc"), "view_source"),
        ("CREATE TEMPORARY VIEW {} AS SELECT * FROM people", "table_missing"),
        ("CREATE TABLE {} (id BIGINT, x DOUBLE, n ARRAY<INT>) USING parquet", "column_type"),
        ("CREATE TABLE {} (id BIGINT, x DOUBLE) USING parquet", "column_missing"),
    ],
)
def test_fallible_tables_are_refused(people: Any, change: str, code: str) -> None:
    """Views, files without types, those whose reader fails on a value, and ids that are not exact: when the connection opens."""
    name = "other"
    people.sql(change.format(name))
    try:
        policy = POLICY | {"tables": {name: POLICY["tables"]["people"]}}
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(people, policy=policy, ledger=":memory:")
        assert caught.value.code == code
    finally:
        people.sql(f"DROP VIEW IF EXISTS {name}" if "VIEW" in change else f"DROP TABLE IF EXISTS {name}")


def test_changed_table_is_refused_before_a_charge(people: Any) -> None:
    """The tables of a query are checked again before its charge; other tables do not matter."""
    people.sql(PEOPLE.format("changing"))
    policy = POLICY | {"tables": {"changing": POLICY["tables"]["people"], "kinds": {"public": True}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM changing")
        people.sql("DROP TABLE changing")
        people.sql("CREATE VIEW changing AS SELECT * FROM people")
        with pytest.raises(OperationalError) as caught:
            con.query("SELECT COUNT(*) FROM changing WHERE n > 1")
        assert caught.value.code == "unbound"
        assert con.query("SELECT COUNT(*) FROM kinds").receipt.entries == ()
        assert con.budget()["changing"].queries == 1
    people.sql("DROP VIEW changing")


def test_moments_in_milliseconds_are_refused(people: Any, tmp_path: Path) -> None:
    """One beyond 64 bits of microseconds would end a query: such a column is refused at the start, and in a file that comes later."""

    def write(name: str, unit: str) -> None:
        moments = {column: pa.array([1, 10**17], pa.timestamp(unit)) for column in ("seen", "a moment")}
        pq.write_table(pa.table({"u": [1, 2], **moments}), tmp_path / name)

    write("a.parquet", "us")
    people.sql(f"CREATE TABLE moments USING parquet LOCATION '{tmp_path}'")
    table = {"unit": "u", "rows_per_unit": 1, "columns": {"seen": {"type": "timestamp"}}}
    policy = POLICY | {"tables": {"moments": table}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.query("SELECT COUNT(seen) FROM moments")
        write("b.parquet", "ms")
        with pytest.raises(OperationalError) as changed:
            con.query("SELECT COUNT(seen) FROM moments WHERE u > 0")
        assert changed.value.code == "unbound"
        assert con.budget()["moments"].queries == 1
    for column in ("seen", "a moment"):
        table["columns"] = {column: {"type": "timestamp"}}
        with (
            pytest.raises(dpsql.PolicyError) as refused,
            dpsql.connect(people, policy=policy, ledger=":memory:") as con,
        ):
            con.explain("SELECT COUNT(*) FROM moments", epsilon=1)
        assert refused.value.code == "column_type"
    table["columns"] = {}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM moments")
    people.sql("DROP TABLE moments")


def test_statements_read_the_same_contributions(people: Any) -> None:
    """Stored rows stay the same while others write, and are freed at the end, also after a failure."""
    people.sql("CREATE TABLE IF NOT EXISTS written USING parquet AS SELECT 1L AS u")
    backend = SparkBackend(people, private=["written"])
    context = people.sparkContext._jsc.sc()
    before = context.getPersistentRDDs().size()
    query = 'SELECT u, COUNT(*) AS n FROM "spark_catalog"."people"."written" GROUP BY u'
    with backend.stage_tables([('"#held"', query), ('"#more"', 'SELECT SUM(n) AS n FROM "#held"')]):
        first = backend.run_statement('SELECT SUM(n) AS n FROM "#held"').reveal()
        people.sql("INSERT INTO written SELECT id FROM range(9)")
        assert backend.run_statement('SELECT SUM(n) AS n FROM "#held"').reveal() == first == [(1,)]
        assert backend.run_statement('SELECT n FROM "#more"').reveal() == [(1,)]
        assert "#held" not in [table.name for table in people.catalog.listTables()]
    assert context.getPersistentRDDs().size() == before
    with (
        pytest.raises(BackendError),
        backend.stage_tables([('"#held"', query), ('"#more"', "SELECT nothing")]),
    ):
        pass
    with pytest.raises(BackendError):
        backend.run_statement('SELECT * FROM "#held"')
    assert context.getPersistentRDDs().size() == before
    assert backend.run_statement('SELECT COUNT(*) AS n FROM "spark_catalog"."people"."written"').reveal() == [
        (10,)
    ]


def test_failure_has_constant_text(con: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Spark's words reach nobody: no context of an error, no log."""
    with caplog.at_level(logging.DEBUG), pytest.raises(BackendError) as caught:
        con.engine.backend.run_statement(
            "SELECT CAST(word AS INT) FROM spark_catalog.people.people WHERE word = 'ann'"
        )
    assert "ann" not in repr(caught.value).lower()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert not [record for record in caplog.records if record.name == "SQLQueryContextLogger"]
    assert con.engine.backend.run_statement("SELECT 1").reveal() == [(1,)]


def test_statement_ends_on_request(con: Any) -> None:
    """A statement that is interrupted says that it was cancelled; the next one runs."""
    backend = con.engine.backend

    def interrupt() -> None:
        for _ in range(3000):  # however late it begins on a busy machine
            time.sleep(0.1)
            backend.interrupt()
            if ended.is_set():
                return

    ended = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    slow = "SELECT SUM(a.id * b.id % 7) FROM range(100000000) AS a CROSS JOIN range(1000000) AS b"
    with pytest.raises(OperationalError) as caught:
        backend.run_statement(slow)
    ended.set()
    thread.join()
    assert caught.value.code == "cancelled"
    assert backend.run_statement("SELECT 1").reveal() == [(1,)]


@pytest.mark.parametrize("name", ['a"b', "a\\b"])
def test_names_with_quotes_and_escapes_are_refused(con: Any, name: str) -> None:
    """A quote within a name, and what escapes one."""
    quoted = name.replace('"', '""')
    with pytest.raises(QueryRejected) as caught:
        con.query(f'SELECT COUNT(*) FROM people AS "{quoted}" WHERE "{quoted}".n > 0')
    assert caught.value.code == "engine"


def test_table_of_rows_as_units_is_answered_or_refused(people: Any) -> None:
    """It is counted and summed; where rows need ids, it is refused."""
    policy = POLICY | {
        "tables": {
            "kinds": {"public": True},
            "people": {
                "unit": "row",
                "columns": {"n": {"type": "integer", "bounds": [0, 100]}, "kind": {"type": "varchar"}},
            },
        }
    }
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        assert con.query("SELECT COUNT(*), SUM(n) FROM people").rows == ((5, 103),)
        with pytest.raises(QueryRejected) as caught:
            con.query("SELECT COUNT(*) FROM people CROSS JOIN kinds")
        assert caught.value.code == "engine"


def test_schema_is_part_of_the_identity(people: Any, tmp_path: Path) -> None:
    """A ledger that has met one schema refuses another; without a name in the policy nothing is answered again elsewhere."""
    ledger = tmp_path / "people.ledger"
    with dpsql.connect(people, policy=POLICY, ledger=ledger, epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM people")
    with dpsql.connect(people, policy=POLICY, ledger=ledger, epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM people")
        assert con.budget()["people"].queries == 2
    people.sql("CREATE SCHEMA IF NOT EXISTS elsewhere")
    people.catalog.setCurrentDatabase("elsewhere")
    try:
        for table in ("people", "kinds"):
            people.sql(f"CREATE TABLE IF NOT EXISTS {table} USING parquet AS SELECT * FROM people.{table}")
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(people, policy=POLICY, ledger=ledger)
        assert caught.value.code == "another_database"
    finally:
        people.catalog.setCurrentDatabase("people")


def test_missing_library_raises_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about pyspark or Java says what to install."""
    import sys

    def refused(url: str) -> OperationalError:
        with pytest.raises(OperationalError) as caught:
            dpsql.connect(url, policy=POLICY, ledger=":memory:")
        return caught.value

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark.sql", None)
        error = refused("spark://nowhere:7077")
        assert (error.code, ".[spark]" in str(error)) == ("driver_missing", True)
    monkeypatch.setattr(sessions.shutil, "which", lambda *_, **__: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(OperationalError) as caught:
        sessions._require_java()
    assert (caught.value.code, "Java 17" in str(caught.value)) == ("driver_missing", True)


@pytest.mark.parametrize("version", ["3.5.1", "5.0.0", "nonsense"])
def test_unreviewed_version_is_refused(version: str) -> None:
    """Arithmetic, casts and settings differ."""
    with pytest.raises(OperationalError) as caught:
        sessions.require_version(version)
    assert caught.value.code == "engine_version"


def test_constants_do_not_depend_on_settings(con: Any) -> None:
    """A constant reads back as itself: quotes, backslashes, variables, character 0."""
    dialect: Callable[[Any], str] = make_spark_dialect().values.emit_constant
    values = [
        "it's",
        "a\\b",
        '"',
        "é",
        "${x}",
        "a\0b",
        "\U0001f926",
        1.7976931348623157e308,
        5e-324,
        2**63 - 1,
        -(2**63),
        b"\x00\\'",
        True,
    ]
    items = ", ".join(f"{dialect(value)} AS c{place}" for place, value in enumerate(values))
    assert con.engine.backend.run_statement(f"SELECT {items}").reveal() == [tuple(values)]


def test_whole_numbers_do_not_wrap(con: Any) -> None:
    """Sums of the largest numbers of 64 bits, whole or in parts, quotients, and points of DOUBLE beyond them, are exact."""
    assert 2**46 * 2**PART <= 2**63
    dialect = make_spark_dialect()
    most, point = 2**63 - 1, dialect.points.emit_wide_lattice_point("x", (2.0**40, 2.0**40))
    items = [
        (dialect.integers.emit_exact_sum("n", most), -most + 3 * most),
        (dialect.integers.emit_exact_sum("n DIV 3000000001", 2**33), 2 * (most // 3_000_000_001)),
        (dialect.integers.emit_exact_sum("n DIV 300000000000001", 2**16), 2 * (most // 300_000_000_000_001)),
        (
            dialect.integers.emit_integer_quotient(
                f"{dialect.integers.to_wide_int('MIN(n)')} * {2**40}", "-7"
            ),
            most * 2**40 // 7,
        ),
        (f"MAX({point})", 2**80),
        (f"MIN({point})", round(Fraction(-1 / 3) * 2**80)),
        (f"SUM({dialect.points.emit_lattice_point('x', 2.0)})", 2 - 1),
    ]
    rows = f"(VALUES ({most}L, 1e0), ({most}L, 5e-324), ({most}L, -1e0 / 3e0), ({-most}L, NULL)) AS t(n, x)"
    sql = f"SELECT {', '.join(f'{text} AS c{place}' for place, (text, _) in enumerate(items))} FROM {rows}"
    assert con.engine.backend.run_statement(sql).reveal() == [tuple(value for _, value in items)]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["k", "s"])
def test_sums_over_units_have_more_than_64_bits(
    spark: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many units whose mean, in subdivisions of a lattice step, is the greatest: of known groups, and of secret ones."""
    monkeypatch.setattr("dpsql.planning.layouts.favors_separate_totals", lambda _: False)
    monkeypatch.setattr("dpsql.planning.choose._list_clamp_scopes", lambda *_: (BY_NORM,))
    monkeypatch.setattr("dpsql.planning.choose._iterate_unclamped", lambda *_: ())
    units, most = 200_000, 10**7
    spark.sql("CREATE SCHEMA IF NOT EXISTS sums")
    spark.sql("DROP TABLE IF EXISTS sums.visits")
    spark.sql(
        "CREATE TABLE sums.visits USING parquet AS "
        f"SELECT id AS person, 0 AS k, 's' AS s, CAST({most} AS DOUBLE) AS x FROM range({units})"
    )
    columns = {
        "k": {"type": "integer", "values": [0]},
        "s": {"type": "varchar"},
        "x": {"type": "double", "bounds": [0, most]},
    }
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "database": "sums",
        "budget": {"epsilon": 10, "delta": 1e-6},
        "tables": {"sums.visits": {"unit": "person", "rows_per_unit": 8, "columns": columns}},
    }
    sql = f"SELECT {key}, AVG(x) FROM sums.visits GROUP BY {key}"
    with dpsql.connect(spark, policy=policy, ledger=":memory:", epsilon=1) as con:
        (part,) = plan_and_match(con.engine, Query(sql)).releases
        (measure,) = part.plan.analysis.measures
        assert measure.lattice is not None
        fine = {
            clamp.subdivisions for clamp in part.plan.clamps if clamp.total is None and 0 in clamp.measures
        }
        assert max(fine) * measure.lattice.high * units > 2**63
        assert (part.statement.stages is None) == (key == "k")
        ((_, mean),) = con.query(sql)
    assert mean == pytest.approx(most, rel=0.01)


def test_frames_and_temporary_views_are_refused_with_what_to_save(spark: Any) -> None:
    """They are plans, which Spark computes anew each time: neither is a table that dpsql's own session has."""
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1},
        "tables": {"visits_of_now": {"unit": "id", "rows_per_unit": 1}},
    }
    frame = spark.range(3)
    frame.createOrReplaceTempView("visits_of_now")
    try:
        for database, words in (
            (spark, "is a temporary view of the Spark session"),
            ({"visits_of_now": frame}, "is a data frame of Spark"),
        ):
            with pytest.raises(dpsql.ProgrammingError, match=words) as caught:
                dpsql.connect(database, policy=policy, ledger=":memory:")
            assert "saveAsTable" in str(caught.value.hint)
    finally:
        spark.catalog.dropTempView("visits_of_now")
