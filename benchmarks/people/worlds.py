"""The studies under dpsql, and the engines that say what a statement means: DuckDB, and PostgreSQL and Spark where they run."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb

import dpsql.engine.release.noise
from benchmarks.people.statements import Statement
from benchmarks.people.studies import STUDIES, Study, fill, list_tables, make_policy, make_rows
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.engine import Engine
from dpsql.ledger import Budget, open_ledger
from dpsql.planning.group_selection import OptimalPartitionSelection
from dpsql.policy import load

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import postgres
from differential.documented import EMPTY_GROUPS, EQUAL_VALUES, told
from differential.world import LOSS
from entropy import SeededEntropy

Row = Sequence[Any]
Reference = Callable[[Study, str], Sequence[Row]]


class ReferenceFailed(Exception):  # noqa: N818
    """The reference does not accept a statement."""


@dataclass(frozen=True)
class Worlds:
    """Connections of dpsql by study, and the references by dialect."""

    connections: Mapping[str, Connection]
    references: Mapping[str, Reference]

    def ask(self, statement: Statement) -> tuple[Sequence[str], Sequence[Row], frozenset[str]]:
        """Return dpsql's columns and rows, and the documented differences that its notices tell of."""
        result = self.connections[statement.study.name].query(statement.sql, dialect=statement.dialect)
        return result.columns, list(result.rows), told(result.notices)

    def ask_reference(self, statement: Statement) -> Sequence[Row]:
        """Return the rows of the engine of the statement's dialect, or of DuckDB for what the statement means.

        Raises ReferenceFailed.
        """
        own = statement.dialect in self.references
        dialect, sql = (statement.dialect, statement.sql) if own else ("duckdb", statement.means)
        return self.references[dialect](statement.study, sql)


def _show_all(_chosen: object, units: int, _components: object) -> bool:
    return units > 0


def _connect(study: Study) -> Connection:
    rules = load(make_policy(study))
    spec = rules.get_budget(study.names["people"])
    budgets = {
        name: Budget(spec.accountant, spec.epsilon, spec.delta) for name in rules.list_private_tables()
    }
    engine = Engine(
        rules, DuckDBBackend(fill(study)), open_ledger(":memory:", budgets), "ana", SeededEntropy(1)
    )
    return Connection(engine, Fraction(LOSS), replay=False)


@contextmanager
def open_worlds(
    servers: Sequence[str] = (), report: Callable[[str], None] = lambda _: None
) -> Iterator[Worlds]:
    """Open all studies; `servers` may name postgres and spark, without which their statements are compared with what they mean."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(dpsql.engine.release.noise, "_is_selected", _show_all))
        stack.enter_context(
            mock.patch.object(
                OptimalPartitionSelection, "draw_selection", lambda _chosen, units, _entropy: units > 0
            )
        )
        report("filling eight studies")
        plain = {study.name: stack.enter_context(fill(study)) for study in STUDIES}
        references: dict[str, Reference] = {"duckdb": _ask_duckdb(plain)}
        if "postgres" in servers:
            report("starting PostgreSQL")
            references["postgres"] = stack.enter_context(_open_postgres())
        if "spark" in servers:
            report("starting Spark")
            references["spark"] = stack.enter_context(_open_spark(plain))
        connections = {study.name: _connect(study) for study in STUDIES}
        for connection in connections.values():
            stack.callback(connection.close)
        yield Worlds(connections, references)


def _ask_duckdb(plain: Mapping[str, duckdb.DuckDBPyConnection]) -> Reference:
    def ask(study: Study, sql: str) -> Sequence[Row]:
        try:
            return plain[study.name].execute(sql).fetchall()
        except duckdb.Error as error:
            raise ReferenceFailed(str(error)) from None

    return ask


@contextmanager
def _open_postgres() -> Iterator[Reference]:
    import psycopg

    programs = postgres.binaries()
    if programs is None:
        raise SystemExit(postgres.MISSING)
    with postgres.serving(programs) as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for study in STUDIES:
            connection.execute(f"CREATE SCHEMA {study.name}")
            connection.execute(f"SET search_path = {study.name}")
            rows = make_rows(study)
            for table, columns in list_tables(study).items():
                kinds = ", ".join(
                    f"{name} {kind.replace('DOUBLE', 'DOUBLE PRECISION')}" for name, kind in columns
                )
                connection.execute(f"CREATE TABLE {table} ({kinds})")
                with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                    for row in rows[table]:
                        copy.write_row(row)

        def ask(study: Study, sql: str) -> Sequence[Row]:
            try:
                connection.execute(f"SET search_path = {study.name}")
                return connection.execute(sql).fetchall()  # type: ignore[call-overload,no-any-return]
            except psycopg.Error as error:
                raise ReferenceFailed(str(error)) from None

        yield ask


@contextmanager
def _open_spark(plain: Mapping[str, duckdb.DuckDBPyConnection]) -> Iterator[Reference]:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("people")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for study in STUDIES:
                for table in list_tables(study):
                    path = f"{folder}/{study.name}-{table}.parquet"
                    plain[study.name].execute(f"COPY {table} TO '{path}' (FORMAT parquet)")
                    if table != "dim_date" or study is STUDIES[0]:
                        session.read.parquet(path).createOrReplaceTempView(table)

            def ask(_study: Study, sql: str) -> Sequence[Row]:
                try:
                    return [tuple(row) for row in session.sql(sql).collect()]
                except PySparkException as error:
                    raise ReferenceFailed(str(error)[:300]) from None

            yield ask
    finally:
        session.stop()


__all__ = ["EMPTY_GROUPS", "EQUAL_VALUES", "ReferenceFailed", "Worlds", "open_worlds"]
