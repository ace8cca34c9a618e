"""Statements of other dialects mean here what they mean on their own engine, where it runs: noise is off, and answers are compared."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from engines import sparks
from engines.loading import database, load
from postgres import Server

from dpsql.api.connection import Connection
from tests.sql.fixture_files import Fixture, everyday
from tests.sql.study import clinic, study

pytestmark = sparks.WARNINGS

TOLERANCE = 1e-6
"""What rounding to the lattice may change, relative to the value."""


def normalize(value: Any) -> Any:
    """A value without the differences of drivers: decimals are numbers, and midnights are days."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None)
        return value.date() if value.time() == dt.time() else value
    return value


def is_same(ours: Any, theirs: Any) -> bool:
    """Whether two values are the same but for rounding."""
    ours, theirs = normalize(ours), normalize(theirs)
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return ours == theirs


def assert_same_answers(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    """Compares rows in order."""
    assert len(ours) == len(theirs), f"{ours} for {theirs}"
    for our, their in zip(ours, theirs, strict=True):
        assert len(our) == len(their)
        assert all(map(is_same, our, their)), f"{our} for {their}"


@pytest.fixture(scope="module")
def asked() -> Iterator[Connection]:
    """The clinic, asked in PostgreSQL's SQL."""
    with study(dialect="postgres") as opened:
        yield opened


@pytest.fixture(scope="module")
def answering(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """The clinic on PostgreSQL itself."""
    with database(server, "meaning") as (_, owner), clinic() as source:
        load(source, owner)
        yield owner


@pytest.mark.parametrize("fixture", everyday("postgres"), ids=str)
def test_postgres_statements_mean_the_same(
    asked: Connection, answering: psycopg.Connection[Any], fixture: Fixture
) -> None:
    """Values are those of PostgreSQL, and so are the columns' names."""
    cursor = answering.execute(fixture.query.encode())
    result = asked.query(fixture.query)
    assert [str(column) for column in result.columns] == [column.name for column in cursor.description or ()]
    assert_same_answers(list(result.rows), cursor.fetchall())


@pytest.fixture(scope="module")
def spark_session(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The clinic in a session of Spark with its own defaults."""
    with clinic() as source:
        sparks.load(source, spark, tmp_path_factory.mktemp("meaning"), "meaning")
    session = spark.newSession()
    for name, value in (("ansi.enabled", "true"), ("session.timeZone", "UTC"), ("caseSensitive", "false")):
        session.conf.set(f"spark.sql.{name}", value)
    session.catalog.setCurrentDatabase("meaning")
    return session


@pytest.fixture(scope="module")
def asked_in_spark() -> Iterator[Connection]:
    """The clinic, asked in Spark's SQL."""
    with study(dialect="spark") as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("fixture", everyday("spark"), ids=str)
def test_spark_statements_mean_the_same(
    asked_in_spark: Connection, spark_session: Any, fixture: Fixture
) -> None:
    """Values are those of Spark, whose decimals and dates are Python's."""
    theirs = [tuple(row) for row in spark_session.sql(fixture.query).collect()]
    assert_same_answers(list(asked_in_spark.query(fixture.query).rows), theirs)
