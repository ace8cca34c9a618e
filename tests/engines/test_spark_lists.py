"""Elements of Spark's arrays and fields of its structs are those of DuckDB's lists and structs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
def test_elements_and_fields_are_those_of_duckdb(pair: Pair, sql: str) -> None:
    """Also of lists and structs that are NULL, of structs within structs, and of lists within these."""
    assert sums(pair.other, sql, exact) == sums(pair.duckdb, sql, exact)


def test_fields_of_public_structs(spark: Any) -> None:
    """Copies of public rows hold structs and lists, with what can be read of them."""
    spark.sql("DROP SCHEMA IF EXISTS public_lists CASCADE")
    spark.sql("CREATE SCHEMA public_lists")
    spark.sql(
        "CREATE TABLE public_lists.places USING parquet AS SELECT * FROM VALUES "
        "(1, named_struct('city', 'Bonn', 'at', named_struct('day', DATE '2024-01-01', 'seen', TIMESTAMP '2024-01-01 00:00:00'))),"
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


@pytest.mark.parametrize("field", ["s.seen", "s.pairs", "s.city.x", "m"])
def test_other_fields_are_not_read(spark: Any, field: str) -> None:
    """Moments in structs, whose unit nobody knows; maps; fields that are not there."""
    spark.sql("DROP SCHEMA IF EXISTS other_lists CASCADE")
    spark.sql("CREATE SCHEMA other_lists")
    spark.sql(
        "CREATE TABLE other_lists.t USING parquet AS SELECT 1 AS id, map('a', 1) AS m, named_struct('city', 'Bonn', "
        "'seen', TIMESTAMP '2024-01-01 00:00:00', 'pairs', map('a', 1)) AS s"
    )
    spark.catalog.setCurrentDatabase("other_lists")
    tables = {"t": {"unit": "id", "rows_per_unit": 1, "columns": {field: {"type": "timestamp"}}}}
    rules = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": tables}
    with pytest.raises(dpsql.PolicyError), dpsql.connect(spark, policy=rules, ledger=":memory:") as opened:
        opened.query("SELECT COUNT(*) FROM t", epsilon=1)
