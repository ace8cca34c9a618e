"""Elements of Spark's arrays and fields of its structs are those of DuckDB's lists and structs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from engines import sparks
from engines.lists import OF_FIELDS, OF_LISTS, load, policy
from engines.test_fixtures import Pair
from engines.test_lists import sums
from engines.test_spark_fixtures import exact

import dpsql

pytestmark = [*sparks.WARNINGS, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with load() as source:
        sparks.load(source, spark, tmp_path_factory.mktemp("lists"), "lists")
        spark.catalog.setCurrentDatabase("lists")
        with (
            dpsql.connect(source, policy=policy(fields=True), ledger=":memory:") as ours,
            dpsql.connect(spark, policy=policy(fields=True), ledger=":memory:") as theirs,
        ):
            yield Pair(ours, theirs)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sql", [*OF_LISTS, *OF_FIELDS])
def test_elements_and_fields_match_duckdb(pair: Pair, sql: str) -> None:
    """Lists and structs may be NULL or nested."""
    assert sums(pair.other, sql, exact) == sums(pair.duckdb, sql, exact)


def test_fields_of_public_structs_are_copied(spark: Any) -> None:
    """Copies of public rows hold structs and lists."""
    spark.sql("DROP SCHEMA IF EXISTS public_lists CASCADE")
    spark.sql("CREATE SCHEMA public_lists")
    spark.sql(
        "CREATE TABLE public_lists.places USING parquet AS SELECT * FROM VALUES "
        "(1, named_struct('city', 'Bonn', 'at', named_struct('day', DATE '2024-01-01', 'n', array(1)))),"
        "(2, named_struct('city', 'Kiel', 'at', NULL)), (3, NULL) AS t(id, s)"
    )
    spark.sql("CREATE TABLE public_lists.people USING parquet AS SELECT 1 AS who")
    spark.catalog.setCurrentDatabase("public_lists")
    columns = {"id": {"type": "int"}, "s.city": {"type": "text"}, "s.at.day": {"type": "date"}}
    rules = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1},
        "tables": {
            "places": {"public": True, "columns": columns},
            "people": {"unit": "who", "rows_per_unit": 1},
        },
    }
    with dpsql.connect(spark, policy=rules, ledger=":memory:") as connection:
        found = connection.query(
            "SELECT id, s.city, CAST(s.at.day AS VARCHAR) FROM places ORDER BY id", epsilon=1
        ).rows
    assert found == ((1, "Bonn", "2024-01-01"), (2, "Kiel", None), (3, None, None))


@pytest.mark.parametrize("field", ["s.seen", "s.city", "p.pairs", "p.city", "l", "m"])
def test_unsupported_fields_are_refused(spark: Any, field: str) -> None:
    """Structs and arrays that hold moments, whose unit nobody knows, or maps: Spark may read them whole, also for another field."""
    spark.sql("DROP SCHEMA IF EXISTS other_lists CASCADE")
    spark.sql("CREATE SCHEMA other_lists")
    spark.sql(
        "CREATE TABLE other_lists.t USING parquet AS SELECT 1 AS id, map('a', 1) AS m, named_struct('city', 'Bonn', "
        "'seen', TIMESTAMP '2024-01-01 00:00:00') AS s, named_struct('city', 'Bonn', 'pairs', map('a', 1)) AS p, "
        "array(named_struct('seen', TIMESTAMP '2024-01-01 00:00:00')) AS l"
    )
    spark.catalog.setCurrentDatabase("other_lists")
    tables = {"t": {"unit": "id", "rows_per_unit": 1, "columns": {field: {"type": "text"}}}}
    rules = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": tables}
    with pytest.raises(dpsql.PolicyError), dpsql.connect(spark, policy=rules, ledger=":memory:") as opened:
        opened.query("SELECT COUNT(*) FROM t", epsilon=1)


def test_nested_moments_in_milliseconds_are_refused(spark: Any, tmp_path: Path) -> None:
    """Structs and arrays with such moments are refused; no other query fails on them."""
    moments = pyarrow.array([1, 10**17], pyarrow.timestamp("ms"))
    for name, beside in (("t", {"seen": moments}), ("v", {})):
        inner = pyarrow.StructArray.from_arrays([pyarrow.array([1, 2]), moments], ["a", "seen"])
        plain = pyarrow.array([{"a": 1}, {"a": 2}])
        columns = {"id": [1, 2], "tags": [["a", "b", "c"], None], "s": inner, "p": plain, **beside}
        (tmp_path / name).mkdir()
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / name / "rows.parquet")
    spark.sql("DROP SCHEMA IF EXISTS milliseconds CASCADE")
    spark.sql("CREATE SCHEMA milliseconds")
    declared = "id BIGINT, tags ARRAY<STRING>, s STRUCT<a: BIGINT, seen: TIMESTAMP_NTZ>, p STRUCT<a: BIGINT>"
    for name, more in (("t", ", seen TIMESTAMP_NTZ"), ("v", "")):
        spark.sql(
            f"CREATE TABLE milliseconds.{name} ({declared}{more}) USING parquet LOCATION '{tmp_path / name}'"
        )
    spark.catalog.setCurrentDatabase("milliseconds")
    tags, field = {"type": "text", "values": ["a", "b"], "max_elements": 2}, {"type": "int", "bounds": [0, 9]}

    def run_query(table: str, columns: dict[str, Any], sql: str) -> object:
        tables = {table: {"unit": "id", "rows_per_unit": 1, "columns": columns}}
        rules = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 10**9}, "tables": tables}
        with dpsql.connect(spark, policy=rules, ledger=":memory:") as connection:
            return connection.query(sql, epsilon=10**6).rows

    for table, columns in (("t", {"tags": tags}), ("t", {"s.a": field}), ("v", {"s.a": field})):
        with pytest.raises(dpsql.PolicyError):
            run_query(table, columns, f"SELECT COUNT(*) FROM {table}")
    assert run_query("t", {"p.a": field}, "SELECT SUM(p.a) FROM t") == ((3,),)
    sql = "SELECT SUM(p.a), COUNT(DISTINCT x) FROM v LEFT JOIN UNNEST(tags) AS u(x) ON TRUE"
    assert run_query("v", {"p.a": field, "tags": tags}, sql) == ((4, 2),)
