"""The connection to ClickHouse: what is read of which tables, under which settings, and what a failure says."""

from __future__ import annotations

import struct
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from engines import clicks, floats
from worlds import before_filters, written_by

import dpsql
from dpsql.backends.clickhouse import session as sessions
from dpsql.backends.clickhouse.connection import ClickHouseBackend
from dpsql.backends.clickhouse.dialect import make_clickhouse_dialect
from dpsql.backends.clickhouse.session import PINNED
from dpsql.errors import BackendError, OperationalError, PolicyError, QueryRejected
from dpsql.sql.compile.compiler import Compiler

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
                "short": {"type": "date"},
                "stamp": {"type": "timestamp"},
                "moment": {"type": "timestamp"},
                "local": {"type": "timestamp"},
                "code": {"type": "integer"},
                "capped": {"type": "decimal(38, 0)", "bounds": [0, 10]},
                "amount": {"type": "varchar"},
            },
        },
        "kinds": {"public": True},
    },
}
PEOPLE = """CREATE TABLE {} (
    id Int64, x Float64, n Int128, price Float32, big UInt64, name String, word LowCardinality(Nullable(String)),
    kind Enum8('a' = 1, 'B' = 2, 'é' = 3, 'z' = 4), day Date32, short Nullable(Date), stamp DateTime('Asia/Tokyo'),
    moment DateTime64(3), local DateTime64(9, 'UTC'), code Decimal(38, 0), capped Nullable(Decimal(20, 0)),
    amount Decimal(38, 2)) ENGINE = MergeTree ORDER BY id"""
_MOST, _LEAST = 2**63 - 1, -(2**63)


def _moment(unit: str, ticks: int) -> str:
    return f"fromUnixTimestamp64{unit}(toInt64('{ticks}'))"


SPECIAL = [
    [
        "1",
        "nan",
        "0",
        "nan",
        "0",
        "''",
        "NULL",
        "'z'",
        "'1970-01-01'",
        "NULL",
        "0",
        "toDateTime64(0, 3)",
        "toDateTime64(0, 9)",
    ],
    [
        *(
            "2",
            "inf",
            f"toInt128('{'9' * 38}')",
            "inf",
            "18446744073709551615",
            "unhex('ff41')",
            "'ANN'",
            "'a'",
        ),
        *("'2299-12-31'", "'2149-06-06'", "4294967295", _moment("Milli", _MOST), _moment("Nano", _MOST)),
    ],
    [
        *(
            "3",
            "-inf",
            f"toInt128('-{'9' * 38}')",
            "-inf",
            "9223372036854775808",
            "repeat('é', 600000)",
            "'ann'",
            "'B'",
        ),
        *("'1900-01-01'", "'1970-01-01'", "0", _moment("Milli", _LEAST), _moment("Nano", _LEAST)),
    ],
    [
        *(
            "4",
            "5e-324",
            "1",
            "1e-45",
            "9223372036854775807",
            "'y '",
            "'Ann'",
            "'é'",
            "'2024-02-29'",
            "'2024-02-29'",
        ),
        *("1709164800", _moment("Milli", 1_709_164_800_123), _moment("Nano", -1)),
    ],
    [
        *("5", "-0.0", "2", "3.4e38", "7", "'é'", "'b'", "'z'", "'2024-03-01'", "'2024-03-01'"),
        *("1709251200", _moment("Milli", -62_135_596_800_001), _moment("Nano", 1999)),
    ],
]


DECIMALS = (
    ("0", None, "0.00"),
    ("9" * 38, "9" * 20, f"{'9' * 36}.99"),
    (f"-{'9' * 38}", f"-{'9' * 20}", "-0.05"),
    (str(_MOST), "10", "1.50"),
    (str(_LEAST - 1), "3", "7.00"),
)
"""The DECIMALs of the same rows."""


@pytest.fixture(scope="module")
def people(clickhouse: Any) -> Any:
    """A connection whose current database has people with special values, and kinds."""
    clickhouse.query("DROP DATABASE IF EXISTS people")
    clickhouse.query("CREATE DATABASE people")
    clickhouse.query("USE people")
    clickhouse.query(PEOPLE.format("people"))
    for row, decimals in zip(SPECIAL, DECIMALS, strict=True):
        written = ["NULL" if text is None else f"'{text}'" for text in decimals]
        clickhouse.query(f"INSERT INTO people SELECT {', '.join([*row, *written])}")
    clickhouse.query(
        "CREATE TABLE kinds (kind String, label Nullable(String), weight Nullable(Float64), since Nullable(Date32)) "
        "ENGINE = MergeTree ORDER BY kind"
    )
    clickhouse.query(
        "INSERT INTO kinds VALUES ('a', 'small', 1.5, '2020-01-01'), ('B', 'large', NULL, NULL), ('é', NULL, 2.5, '2299-12-31')"
    )
    return clickhouse


@pytest.fixture
def con(people: Any) -> Iterator[Any]:
    people.query("USE people")
    with dpsql.connect(people, policy=POLICY, ledger=":memory:", epsilon=EXACT) as connection:
        yield connection


def test_stored_values_are_read_within_bounds(con: Any) -> None:
    """Bounds, NaN as NULL, moments in UTC and texts of UTF-8 hold for any stored value."""
    sql = (
        "SELECT SUM(x), COUNT(x), SUM(n), COUNT(n), SUM(price), COUNT(price), COUNT(*), COUNT(day), COUNT(short), COUNT(stamp), "
        "COUNT(moment), COUNT(local), COUNT(name), COUNT(big), COUNT(CASE WHEN kind = 'a' THEN 1 END), COUNT(kind), "
        "COUNT(CASE WHEN word = 'ann' THEN 1 END), COUNT(CASE WHEN EXTRACT(day FROM day) = 29 THEN 1 END), "
        "COUNT(CASE WHEN EXTRACT(year FROM stamp) = 2106 THEN 1 END), COUNT(CASE WHEN EXTRACT(microsecond FROM local) = 1 THEN 1 END), "
        "COUNT(CASE WHEN local < TIMESTAMP '1970-01-01' THEN 1 END), COUNT(CASE WHEN x * x > 99 OR x / n > 5 THEN 1 END) FROM people"
    )
    ((*found,),) = con.query(sql).rows
    assert found[:9] == [0.0, 4, 103, 5, 100.0, 4, 5, 5, 4]
    assert found[9:] == [5, 2, 5, 3, 3, 1, 3, 1, 1, 1, 1, 2, 2]


def test_decimals_are_read_within_bounds(con: Any) -> None:
    """What 64 bits do not hold is NULL, or the nearer bound; a text has all digits after the point."""
    sql = (
        "SELECT COUNT(code), SUM(capped), COUNT(capped), COUNT(CASE WHEN amount IN ('0.00', '-0.05', '1.50', '7.00') THEN 1 END), "
        "COUNT(CASE WHEN code > 0 THEN 1 END) FROM people"
    )
    assert con.query(sql).rows == ((2, 23, 4, 4, 1),)


def test_any_stored_bits_are_read(people: Any) -> None:
    """Formats of bytes store numbers that are no day, no member of an ENUM and neither true nor false; none ends a query."""
    people.query("USE people")
    people.query(
        "CREATE TABLE odd (id Int64, day Date32, kind Enum8('a' = 1, 'é' = -2), yes Bool) ENGINE = MergeTree ORDER BY id"
    )
    rows = [(1, 2**31 - 1, 7, 5), (2, -(2**31), -2, 1), (3, 213_503_982, 1, 0), (4, 19_782, 0, 255)]
    for number, day, kind, yes in rows:
        data = struct.pack("<qibB", number, day, kind, yes).hex()
        read = "id Int64, day Date32, kind Enum8(\\'a\\' = 1, \\'é\\' = -2), yes Bool"
        people.query(f"INSERT INTO odd SELECT * FROM format(RowBinary, '{read}', unhex('{data}'))")
    columns = {"day": {"type": "date"}, "kind": {"type": "varchar"}, "yes": {"type": "boolean"}}
    policy = POLICY | {"tables": {"odd": {"unit": "id", "rows_per_unit": 1, "columns": columns}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        sql = "SELECT COUNT(day), COUNT(kind), COUNT(CASE WHEN kind = 'é' THEN 1 END), COUNT(CASE WHEN yes = TRUE THEN 1 END) FROM odd"
        assert con.query(sql).rows == ((1, 2, 1, 3),)
    people.query("DROP TABLE odd")


def test_texts_are_compared_by_their_bytes(con: Any) -> None:
    """Case decides, also in a column of few values."""
    assert con.query("SELECT COUNT(DISTINCT word), COUNT(DISTINCT kind) FROM people").rows == ((4, 3),)


@pytest.mark.slow
def test_constant_beside_a_float_is_a_float(people: Any) -> None:
    """It is read as beside DuckDB's FLOAT; so is the result of both."""
    policy = {**POLICY, "tables": {"floats": {"unit": "id", "rows_per_unit": 1, "columns": floats.COLUMNS}}}
    people.query("USE people")
    people.query(
        "CREATE TABLE floats (id Int64, f Float32, x Float64, n Int32) ENGINE = MergeTree ORDER BY id"
    )
    people.query(f"INSERT INTO floats VALUES {floats.VALUES}")
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as connection:
        for condition, rows in floats.expected().items():
            found = connection.query(f"SELECT COUNT(*) FROM floats WHERE {condition}").rows
            assert found == ((rows,),), condition
    people.query("DROP TABLE floats")


@pytest.mark.slow
def test_no_row_makes_a_query_fail(con: Any) -> None:
    """One person's rows cause no error, below a condition that excludes them or above."""
    items = (
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
        *("LEAST(9, big // n)", "LEAST(9, LENGTH(name || kind))", "LEAST(9, big % n)", "LEAST(9, big * big)"),
    )
    for source in ("people", "(SELECT * FROM people WHERE x BETWEEN 0 AND 2 AND n > 0) AS s"):
        listed = ", ".join(f"SUM(GREATEST(-9, {item}))" for item in items)
        (row,) = con.query(f"SELECT {listed} FROM {source}").rows
        assert len(row) == len(items)


@pytest.mark.parametrize("product", ["s.e * s.e", "s.e + s.e", "s.e - -s.e"])
def test_excluded_row_makes_no_query_fail(con: Any, product: str) -> None:
    """ClickHouse may compute before it filters: whole numbers are large before the condition."""
    sql = (
        f"SELECT COUNT(*) FROM (SELECT v.e FROM (SELECT id, big AS e FROM people) AS v WHERE v.e BETWEEN 0 AND 9) AS s "
        f"WHERE {product} < 100"
    )
    with written_by(before_filters(Compiler(make_clickhouse_dialect())._get_template)):
        assert con.query(sql).rows


def test_public_tables_are_read_as_by_duckdb(con: Any) -> None:
    """A query on public rows alone, and public rows beside released ones."""
    rows = con.query("SELECT kind, weight * 2, CAST(since AS VARCHAR) FROM kinds ORDER BY kind DESC").rows
    assert rows == (("é", 5.0, "2299-12-31"), ("a", 3.0, "2020-01-01"), ("B", None, None))
    sql = "SELECT label, COUNT(*) AS n FROM people JOIN kinds USING (kind) GROUP BY label ORDER BY n, label"
    assert [row for row in con.query(sql).rows if row[1]] == [("large", 1), ("small", 1), (None, 1)]


def test_settings_of_the_owner_are_separate(people: Any) -> None:
    """Statements run in a session with dpsql's settings, which writes to no table; the owner's session keeps its own."""
    people.query("USE people")
    for name, value in (("limit", "1"), ("transform_null_in", "1"), ("max_rows_to_read", "1")):
        people.query(f"SET {name} = {value}")
    try:
        with dpsql.connect(people, policy=POLICY, ledger=":memory:", epsilon=EXACT) as con:
            runner = con.engine.backend._runner
            found = dict(runner.query_rows("SELECT name, value FROM system.settings"))
            assert {name: found[name] for name in PINNED} == dict(PINNED)
            assert con.query("SELECT COUNT(*) FROM people").rows == ((5,),)
            for text in (
                "INSERT INTO people.kinds VALUES ('q', NULL, 1, NULL)",
                "DROP TABLE people.kinds",
                "SET readonly = 0",
            ):
                with pytest.raises(BackendError):
                    runner.run_command(text)
        found = dict(
            clicks.read(people, "SELECT name, value FROM system.settings WHERE name = 'transform_null_in'")
        )
        assert found == {"transform_null_in": "1"}
    finally:
        for name in ("limit", "transform_null_in", "max_rows_to_read"):
            people.query(f"SET {name} = DEFAULT")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("CREATE VIEW {} AS SELECT * FROM people", "view_source"),
        ("CREATE TABLE {} (id Int64, n Int64) ENGINE = Memory", "view_source"),
        ("CREATE TABLE {} (id Int64, n Int64) ENGINE = Log", "view_source"),
        ("CREATE TABLE {} (id Int64, n Int64) ENGINE = ReplacingMergeTree ORDER BY id", "view_source"),
        ("CREATE TABLE {} (id Int64, n Int64) ENGINE = SummingMergeTree ORDER BY id", "view_source"),
        ("CREATE TABLE {} (id Int64, n Int64) ENGINE = Merge(currentDatabase(), 'people')", "view_source"),
        ("CREATE TABLE {} (id Int64, n Int64) ENGINE = File(CSV, '/dev/null')", "view_source"),
        (
            "CREATE TABLE {} (id Int64, n Int64, d Date) ENGINE = MergeTree ORDER BY id TTL d + INTERVAL 1 DAY",
            "view_source",
        ),
        ("CREATE TEMPORARY TABLE {} (id Int64, n Int64)", "table_missing"),
        (
            "CREATE TABLE {} (id Int64, x Float64, n Array(Int64)) ENGINE = MergeTree ORDER BY id",
            "column_type",
        ),
        (
            "CREATE TABLE {} (id Int64, x Float64, n Int64 DEFAULT toInt64(x)) ENGINE = MergeTree ORDER BY id",
            "column_missing",
        ),
        (
            "CREATE TABLE {} (id Int64, x Float64, n Int64 ALIAS toInt64(toString(x))) ENGINE = MergeTree ORDER BY id",
            "column_missing",
        ),
    ],
)
def test_unstable_tables_are_refused(people: Any, change: str, code: str) -> None:
    """Views, other engines, rows that end, and columns that an expression computes: when the connection opens."""
    people.query("USE people")
    people.query(change.format("other"))
    try:
        rules = {"unit": "id", "rows_per_unit": 1, "columns": {"n": {"type": "integer"}}}
        policy = POLICY | {"tables": {"other": rules}}
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(people, policy=policy, ledger=":memory:")
        assert caught.value.code == code
    finally:
        people.query("DROP TEMPORARY TABLE other" if "TEMPORARY" in change else "DROP TABLE other")


def test_changed_table_is_refused_before_a_charge(people: Any) -> None:
    """The tables of a query are looked at again before its charge."""
    people.query("USE people")
    people.query(PEOPLE.format("changing"))
    policy = POLICY | {"tables": {"changing": POLICY["tables"]["people"], "kinds": {"public": True}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM changing")
        people.query("DROP TABLE changing")
        people.query("CREATE VIEW changing AS SELECT * FROM people")
        with pytest.raises(OperationalError) as caught:
            con.query("SELECT COUNT(*) FROM changing WHERE n > 1")
        assert caught.value.code == "unbound"
        assert con.query("SELECT COUNT(*) FROM kinds").receipt.entries == ()
        assert con.budget()["changing"].queries == 1
    people.query("DROP VIEW changing")


def test_statements_read_the_same_rows(people: Any) -> None:
    """Held rows stay the same while others write, and are dropped at the end, also after a failure."""
    people.query("USE people")
    people.query("CREATE TABLE written (u Int64) ENGINE = MergeTree ORDER BY u")
    people.query("INSERT INTO written VALUES (1)")
    backend = ClickHouseBackend(people, private=["written"])
    backend.read_schema()
    query = 'SELECT u, COUNT(*) AS n FROM "people"."written" GROUP BY u'
    both = 'SELECT (SELECT COUNT(*) FROM "people"."written" AS a) AS n, COUNT("u") AS m FROM "people"."written" AS b'
    with backend.stage_tables([('"#some"', query), ('"#more"', 'SELECT SUM(n) AS n FROM "#some"')]):
        first = backend.run_statement('SELECT SUM(n) AS n FROM "#some"').reveal()
        assert backend.run_statement(both).reveal() == [(1, 1)]  # read twice, so that its rows are held
        people.query("INSERT INTO written SELECT number FROM numbers(9)")
        assert backend.run_statement('SELECT SUM(n) AS n FROM "#some"').reveal() == first == [(1,)]
        assert backend.run_statement('SELECT n FROM "#more"').reveal() == [(1,)]
        assert backend.run_statement('SELECT COUNT(*) AS n FROM "people"."written"').reveal() == [(1,)]
    assert backend.run_statement(both).reveal() == [(10, 10)]
    with (
        pytest.raises(BackendError),
        backend.stage_tables([('"#some"', query), ('"#more"', "SELECT nothing")]),
    ):
        pass
    with pytest.raises(BackendError):
        backend.run_statement('SELECT * FROM "#some"')
    assert backend._runner.query_rows("SELECT name FROM system.tables WHERE is_temporary") == []
    backend.close()
    people.query("DROP TABLE written")


def test_binding_reads_no_row(con: Any) -> None:
    """A statement is analyzed before the charge: neither its subqueries nor the queries of its temporary tables run."""
    backend = con.engine.backend
    failing = 'SELECT id, throwIf(id > 0) AS u FROM "people"."people"'
    assert backend.can_bind(f'SELECT id FROM "people"."people" WHERE id IN (SELECT u FROM ({failing}) AS f)')
    assert backend.can_bind('SELECT u FROM "#held"', [('"#held"', failing)])
    assert not backend.can_bind('SELECT nothing FROM "people"."people"')
    assert not backend.can_bind('SELECT u FROM "#held"', [('"#held"', "SELECT nothing")])


def test_failure_has_constant_text(con: Any) -> None:
    """ClickHouse's words reach nobody: no context of an error."""
    with pytest.raises(BackendError) as caught:
        con.engine.backend.run_statement("SELECT throwIf(word = 'ann', 'ann') AS n FROM people.people")
    assert "ann" not in repr(caught.value).lower()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert con.engine.backend.run_statement("SELECT 1 AS n").reveal() == [(1,)]


def test_rows_of_a_failed_statement_are_discarded(con: Any) -> None:
    """chdb gives rows that a failed statement had computed with the next result; dpsql's next result has none of them."""
    backend = con.engine.backend
    session, many = (
        backend._runner.session,
        "SELECT number + throwIf(number = 900000) AS n FROM numbers(1000000)",
    )
    left = []
    for _ in range(5):
        with pytest.raises(Exception, match="throwIf"):
            session.query(many, "Native")
        left.append(len(session.query("SELECT 1 AS n", "Native").bytes()) > 100)
    assert any(left), "chdb has mended this: the runner no longer needs to discard anything"
    for _ in range(5):
        with pytest.raises(BackendError):
            backend.run_statement(many)
        assert backend.run_statement("SELECT 1 AS n").reveal() == [(1,)]


def test_statement_ends_on_request(con: Any) -> None:
    """A statement that is interrupted says that it was cancelled; the next one runs."""
    backend, ended = con.engine.backend, threading.Event()

    def interrupt() -> None:
        for _ in range(3000):  # however late it begins on a busy machine
            time.sleep(0.1)
            backend.interrupt()
            if ended.is_set():
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(OperationalError) as caught:
        backend.run_statement("SELECT SUM(sipHash64(number) % 7) AS n FROM numbers(100000000000)")
    ended.set()
    thread.join()
    assert caught.value.code == "cancelled"
    assert backend.run_statement("SELECT 1 AS n").reveal() == [(1,)]


@pytest.mark.parametrize("name", ['a"b', "a\\b"])
def test_names_with_quotes_and_escapes_are_refused(con: Any, name: str) -> None:
    """A quote within a name, and what escapes one."""
    quoted = name.replace('"', '""')
    with pytest.raises(QueryRejected) as caught:
        con.query(f'SELECT COUNT(*) FROM people AS "{quoted}" WHERE "{quoted}".n > 0')
    assert caught.value.code == "engine"


def test_conditions_that_hold_of_null_are_refused(con: Any) -> None:
    """ClickHouse answers NOT IN wrongly where a value is NULL; NOT EXISTS is answered as in DuckDB."""
    with pytest.raises(QueryRejected) as caught:
        con.query("SELECT COUNT(*) FROM people WHERE word NOT IN (SELECT label FROM kinds WHERE weight > 2)")
    assert caught.value.code == "engine"
    sql = "SELECT COUNT(*) FROM people WHERE NOT EXISTS (SELECT 1 FROM kinds WHERE kinds.label = people.word)"
    assert con.query(sql).rows == ((5,),)


def test_joins_by_doubles_are_refused(con: Any) -> None:
    """ClickHouse joins by bits, so that 0.0 is not -0.0; a condition that compares them is one."""
    for sql in (
        "SELECT COUNT(*) FROM people JOIN kinds ON x = weight",
        "SELECT COUNT(*) FROM people WHERE x IN (SELECT weight FROM kinds)",
    ):
        with pytest.raises(QueryRejected) as caught:
            con.query(sql)
        assert caught.value.code == "engine"
    assert con.query("SELECT COUNT(*) FROM people WHERE x = 0").rows == ((1,),)
    assert con.query("SELECT COUNT(*) FROM people WHERE x IN (0, 1)").rows == ((1,),)


def test_table_of_rows_as_units_is_answered_or_refused(people: Any) -> None:
    """It is counted and summed; where rows need ids, it is refused."""
    people.query("USE people")
    columns = {"n": {"type": "integer", "bounds": [0, 100]}, "kind": {"type": "varchar"}}
    policy = POLICY | {"tables": {"kinds": {"public": True}, "people": {"unit": "row", "columns": columns}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        assert con.query("SELECT COUNT(*), SUM(n) FROM people").rows == ((5, 103),)
        with pytest.raises(QueryRejected) as caught:
            con.query("SELECT COUNT(*) FROM people CROSS JOIN kinds")
        assert caught.value.code == "engine"


def test_equal_ids_are_one_unit(people: Any) -> None:
    """-0.0 is 0.0, and NaN is NaN whatever its bits are, as in DuckDB: each is one person, with one row that counts."""
    people.query("USE people")
    people.query("CREATE TABLE signed (id Float64, n Int64) ENGINE = MergeTree ORDER BY n")
    people.query("INSERT INTO signed VALUES (-0.0, 1), (0.0, 2), (nan, 3), (-nan, 4), (7, 5)")
    columns = {"n": {"type": "integer", "bounds": [0, 9]}}
    policy = POLICY | {"tables": {"signed": {"unit": "id", "rows_per_unit": 1, "columns": columns}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        assert con.query("SELECT COUNT(*) FROM signed").rows == ((3,),)
    people.query("DROP TABLE signed")


def test_column_of_its_table_s_name_is_no_table(people: Any) -> None:
    """A source may be called as the database, with a column that is called as the table: it is read twice and answered."""
    people.query("USE people")
    people.query("CREATE TABLE visit (id Int64, visit Int64) ENGINE = MergeTree ORDER BY id")
    people.query("INSERT INTO visit VALUES (1, 2), (2, 3)")
    columns = {"visit": {"type": "integer", "bounds": [0, 9]}}
    policy = POLICY | {"tables": {"visit": {"unit": "id", "rows_per_unit": 1, "columns": columns}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        sql = "SELECT COUNT(*) FROM visit AS people JOIN visit AS b ON people.id = b.id WHERE people.visit + b.visit > 4"
        assert con.query(sql).rows == ((1,),)
    people.query("DROP TABLE visit")


def test_sum_of_a_unit_s_wide_numbers_is_answered(people: Any) -> None:
    """Whole numbers with wide bounds are added up in steps, and the sum is scaled as a DOUBLE; so is that of a window."""
    people.query("USE people")
    people.query("CREATE TABLE wide (id Int64, n Int64) ENGINE = MergeTree ORDER BY id")
    people.query(f"INSERT INTO wide VALUES (1, {2**40}), (1, {2**40}), (2, 0)")
    columns = {"n": {"type": "integer", "bounds": [0, 2**40]}}
    policy = POLICY | {"tables": {"wide": {"unit": "id", "rows_per_unit": 2, "columns": columns}}}
    with dpsql.connect(people, policy=policy, ledger=":memory:", epsilon=EXACT) as con:
        for item, inner in (
            ("SUM(s)", "SELECT id, SUM(n) AS s FROM wide GROUP BY id"),
            ("MAX(s)", "SELECT id, SUM(n) OVER (PARTITION BY id) AS s FROM wide"),
            ("COUNT(CASE WHEN s > 0 THEN 1 END)", "SELECT id, AVG(n) AS s FROM wide GROUP BY id"),
        ):
            ((found,),) = con.query(f"SELECT {item} FROM ({inner}) AS q").rows
            assert found == (1 if item.startswith("COUNT") else pytest.approx(2**41, rel=1e-6)), item
    people.query("DROP TABLE wide")


def test_database_is_part_of_the_identity(people: Any, tmp_path: Path) -> None:
    """A ledger that has met one database refuses another; without a name in the policy nothing is answered again elsewhere."""
    ledger = tmp_path / "people.ledger"
    people.query("USE people")
    for queries in (1, 2):
        with dpsql.connect(people, policy=POLICY, ledger=ledger, epsilon=1) as con:
            con.query("SELECT COUNT(*) FROM people")
            assert con.budget()["people"].queries == queries
    people.query("DROP DATABASE IF EXISTS elsewhere")
    people.query("CREATE DATABASE elsewhere")
    people.query("USE elsewhere")
    for table in ("people", "kinds"):
        people.query(f"CREATE TABLE {table} AS people.{table}")
    with pytest.raises(PolicyError) as caught:
        dpsql.connect(people, policy=POLICY, ledger=ledger)
    assert caught.value.code == "another_database"


def test_missing_library_raises_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install, and what is no place of a database."""
    for url in (f"chdb://{tmp_path}/nothing", "chdb://host/folder", f"chdb://{tmp_path}?user=ana"):
        with pytest.raises(dpsql.Error) as nowhere:
            dpsql.connect(url, policy=POLICY, ledger=":memory:")
        assert nowhere.value.code == "no_database"
    monkeypatch.setitem(sys.modules, "chdb", None)
    with pytest.raises(OperationalError) as caught:
        dpsql.connect(f"chdb://{tmp_path}", policy=POLICY, ledger=":memory:")
    assert (caught.value.code, ".[clickhouse]" in str(caught.value)) == ("driver_missing", True)


def test_unreviewed_version_is_refused(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arithmetic, casts and settings differ."""
    monkeypatch.setattr(sessions, "REVIEWED", "25.1")
    with pytest.raises(OperationalError) as caught:
        dpsql.connect(people, policy=POLICY, ledger=":memory:")
    assert caught.value.code == "engine_version"


def test_constants_read_back_unchanged(con: Any) -> None:
    """A constant reads back as itself: quotes, backslashes, character 0, the ends of DOUBLE."""
    dialect = make_clickhouse_dialect().values.emit_constant
    values = [
        *("it's", "a\\b", '"', "é", "{x}", "a\0b", "\U0001f926"),
        *(1.7976931348623157e308, 5e-324, -0.1, 2**63 - 1, -(2**63), True),
    ]
    items = ", ".join(f"{dialect(value)} AS c{place}" for place, value in enumerate(values))
    assert con.engine.backend.run_statement(f"SELECT {items}").reveal() == [tuple(values)]


def test_whole_numbers_do_not_wrap(con: Any) -> None:
    """Sums of the largest numbers of 64 bits, quotients, and points of DOUBLE beyond them, are exact."""
    dialect, most = make_clickhouse_dialect(), 2**63 - 1
    point = dialect.points.emit_wide_lattice_point("x", (2.0**40, 2.0**40))
    product = f"{dialect.integers.to_wide_int('MIN(n)')} * {2**40}"
    items = [
        (dialect.integers.emit_exact_sum("n", most), -most + 3 * most),
        (
            dialect.integers.emit_exact_sum("intDiv(n, 300000000000001)", 2**16),
            2 * (most // 300_000_000_000_001),
        ),
        (dialect.integers.emit_integer_quotient(product, "-7"), most * 2**40 // 7),
        (f"MAX({point})", 2**80),
        (f"MIN({point})", round(Fraction(-1 / 3) * 2**80)),
        (f"SUM({dialect.points.emit_lattice_point('x', 2.0)})", 2 - 1),
        (dialect.integers.to_double(dialect.integers.to_wide_int(str(2**64 - 1))), float(2**64 - 1)),
        (f"{dialect.integers.to_wide_int('MAX(n)')} <= {dialect.integers.emit_threshold(2**64)}", 1),
    ]
    listed = [(most, 1.0), (most, 5e-324), (most, -1 / 3), (-most, None)]
    values = ", ".join(f"({', '.join(map(dialect.values.emit_constant, row))})" for row in listed)
    sql = f"SELECT {', '.join(f'{text} AS c{place}' for place, (text, _) in enumerate(items))} FROM (SELECT * FROM (VALUES {values}) AS v(n, x)) AS t"
    assert con.engine.backend.run_statement(sql).reveal() == [tuple(value for _, value in items)]
