"""SQLAlchemy's dialect: reflection from the policy, statements as programs write them, pandas and polars on an engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas
import polars
import pytest
import sqlalchemy as sa
from small_study import write_study
from sqlalchemy.dialects import registry

import dpsql
from dpsql.api.connection import Connection

registry.register("dpsql", "dpsql.interfaces.sqlalchemy", "DpsqlDialect")  # as the installed package does
SQL = "SELECT plan, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY plan ORDER BY plan"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The small study, asked at ε = 1."""
    database, policy = write_study(tmp_path)
    return f"dpsql:///{database}?policy={policy}&epsilon=1"


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    """An engine of it."""
    made = sa.create_engine(url)
    yield made
    made.dispose()


def test_declared_tables_and_columns_are_reflected(engine: sa.Engine) -> None:
    """Tables and columns with types; no other table, and nothing is charged."""
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["visits", "regions"]
    assert (inspector.get_view_names(), inspector.get_schema_names()) == ([], ["main"])
    assert inspector.has_table("VISITS")
    assert not inspector.has_table("patients")
    columns = {column["name"]: column for column in inspector.get_columns("visits")}
    assert isinstance(columns["cost"]["type"], sa.Double)
    assert isinstance(columns["day"]["type"], sa.Date)
    assert not columns["plan"]["nullable"]
    with pytest.raises(sa.exc.NoSuchTableError):
        inspector.get_columns("patients")
    reflected = sa.Table("visits", sa.MetaData(), autoload_with=engine)
    assert (len(reflected.primary_key), len(reflected.indexes)) == (0, 0)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, Connection)
        assert sum(state.queries for state in driver.budget().values()) == 0


def test_comments_name_the_unit_column(engine: sa.Engine) -> None:
    """The comment of a table says whom it protects and what its budget is, that of a column its bounds or values."""
    inspector = sa.inspect(engine)
    told = inspector.get_table_comment("visits")["text"] or ""
    assert told.startswith(
        "private: it protects each patient; the unit column is patient_id; at most 10 rows per patient"
    )
    assert "budget: ε " in told
    assert inspector.get_table_comment("regions")["text"] == "public"
    comments = {column["name"]: column["comment"] for column in inspector.get_columns("visits")}
    assert (comments["patient_id"], comments["plan"]) == ("privacy unit", "never NULL, A, B, C")
    reflected = sa.Table("visits", sa.MetaData(), autoload_with=engine)
    assert (reflected.comment, reflected.c.patient_id.comment) == (told, "privacy unit")


def test_statements_of_the_expression_language(engine: sa.Engine) -> None:
    """Parameters, limits, CASE, casts and functions, over reflected tables, as plain SQL answers them."""
    visits = sa.Table("visits", sa.MetaData(), autoload_with=engine)
    count, share = sa.func.count().label("n"), sa.cast(visits.c.cost > 500, sa.Double)
    statement = (
        sa.select(visits.c.plan, count, sa.func.avg(share).label("large"))
        .where(visits.c.day >= sa.bindparam("since"), visits.c.plan.in_(["A", "B"]))
        .group_by(visits.c.plan)
        .order_by(visits.c.plan)
        .limit(1)
    )
    with engine.connect() as connection:
        rows = connection.execute(statement, {"since": "2021-01-01"}).all()
        assert [row.plan for row in rows] == ["A"]
        assert isinstance(rows[0].n, int)
        joined = sa.select(sa.func.count()).select_from(
            visits.join(sa.table("regions", sa.column("id")), sa.text("region = id"))
        )
        assert connection.execute(joined).scalar_one() is not None
        sized = connection.execute(
            sa.text("SELECT COUNT(*) FROM visits WHERE cost > :least"), {"least": 10}
        ).scalar_one()
        assert isinstance(sized, int)


def test_frames_are_read_without_a_warning(engine: sa.Engine) -> None:
    """By pandas and polars, with the same numbers."""
    with warnings.catch_warnings(), engine.connect() as connection:
        warnings.simplefilter("error")
        ours = pandas.read_sql(sa.text(SQL), connection)
        theirs = polars.read_database(SQL, connection)
    assert list(ours.columns) == ["plan", "n", "mean"]
    assert ours["n"].tolist() == theirs["n"].to_list()
    assert pandas.read_sql_table("regions", engine).shape[0] > 0


def test_errors_are_those_of_dpsql(engine: sa.Engine) -> None:
    """Within SQLAlchemy's; what would write is refused, and ROLLBACK gives nothing back."""
    with engine.connect() as connection:
        with pytest.raises(sa.exc.DBAPIError) as caught:
            connection.execute(sa.text("SELECT nothing FROM visits"))
        assert isinstance(caught.value.orig, dpsql.QueryRejected)
        with pytest.raises(sa.exc.DBAPIError):
            connection.execute(sa.text("DELETE FROM visits"))
        connection.execute(sa.text(SQL))
        connection.rollback()
        driver = connection.connection.driver_connection
        assert isinstance(driver, Connection)
        assert sum(state.queries for state in driver.budget().values()) == 1


def test_urls(url: str, tmp_path: Path) -> None:
    """The policy beside the file, a ledger in memory that all connections of an engine share, and what a URL cannot say."""
    database = url.partition("?")[0]
    beside = sa.create_engine(f"{database}?ledger=:memory:&epsilon=1")
    for _ in range(2):
        with beside.connect() as connection:
            connection.execute(sa.text(SQL))
            driver = connection.connection.driver_connection
            assert isinstance(driver, Connection)
            assert sum(state.queries for state in driver.budget().values()) == 1
    beside.dispose()
    for wrong in (f"{database}?polcy=x", "dpsql://host/x.duckdb", "dpsql://"):
        with pytest.raises(sa.exc.ArgumentError, match="takes policy, ledger"):
            sa.create_engine(wrong).connect()
    gone = sa.create_engine(f"dpsql:///{tmp_path}/gone.duckdb")
    with pytest.raises(sa.exc.DBAPIError) as caught:
        gone.connect()
    assert isinstance(caught.value.orig, dpsql.PolicyError)


def test_a_select_of_no_row_has_columns_and_costs_nothing(engine: sa.Engine) -> None:
    """`limit(0)` of the expression language, and pandas on text as tools send it."""
    visits = sa.Table("visits", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = connection.execute(sa.select(visits).limit(0))
        assert set(found.keys()) == {column.name for column in visits.columns}
        assert found.all() == []
        assert list(pandas.read_sql(sa.text("SELECT plan, cost FROM visits WHERE 1=0"), connection)) == [
            "plan",
            "cost",
        ]
        driver = connection.connection.driver_connection
        assert isinstance(driver, Connection)
        assert sum(state.queries for state in driver.budget().values()) == 0
