"""A local Spark for the tests of engines, and tables of a DuckDB database in its catalogue, with the same values.

It has two threads and more partitions than these, tries slow tasks twice, and joins by shuffling: what a result may hang on
in a cluster it may hang on here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.policy.engine_types import parse_element_type, parse_struct_fields

WARNINGS = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Py4J leaves connections to its end."""
SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps of the plans of a thousand statements, and its parser of all, leaves thousands of tests too little memory.
    "spark.driver.memory": "2g",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.files.maxPartitionBytes": "16k",
    "spark.sql.autoBroadcastJoinThreshold": "1k",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.locality.wait": "0",
    # What dpsql sets anew or takes back in its own session:
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.caseSensitive": "true",
}
_TYPES = {
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "UUID": "STRING",
    "BLOB": "BINARY",
    "BOOLEAN": "BOOLEAN",
}


def require() -> None:
    """Skips a test where pyspark or Java is missing, but not in CI."""
    missing = importlib.util.find_spec("pyspark") is None or shutil.which("java") is None
    if missing and not os.environ.get("CI"):
        pytest.skip("pyspark or Java is not installed")


@contextlib.contextmanager
def running() -> Iterator[Any]:
    """A session of a local Spark; its warehouse is removed at the end."""
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp(prefix="spark-")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", folder).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def spark_type(kind: str) -> str | None:
    """The Spark type of a DuckDB type, None for those that it does not have."""
    if kind.startswith("ENUM"):
        return "STRING"
    of, inner = parse_element_type(kind), parse_struct_fields(kind)
    if of is not None:
        return f"ARRAY<{spark_type(of)}>"
    if inner is not None:
        return f"STRUCT<{', '.join(f'`{name}`: {spark_type(each)}' for name, each in inner.items())}>"
    return kind if re.fullmatch(r"DECIMAL\(\d+,\d+\)", kind) else _TYPES.get(kind)


def load(source: duckdb.DuckDBPyConnection, session: Any, folder: Path, schema: str) -> None:
    """Makes a schema anew with all tables of `source`, in Parquet files of a few rows each, with the columns that Spark can have."""
    source.execute("SET TimeZone = 'UTC'")
    session.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    for place in dict.fromkeys(
        ["main", *(row[0] for row in source.execute("SELECT schema_name FROM duckdb_tables()").fetchall())]
    ):
        session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema if place == 'main' else place}")
    for place, table in source.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall():
        columns = [
            (name, kind, spark_type(kind))
            for name, kind in source.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?",
                [place, table],
            ).fetchall()
        ]
        hold(
            session,
            f"{schema if place == 'main' else place}.`{table}`",
            [(name, wanted) for name, _, wanted in columns if wanted is not None],
            folder / place / table,
            (source, f'"{place}"."{table}"'),
        )


def hold(
    session: Any,
    name: str,
    columns: list[tuple[str, str]],
    folder: Path,
    rows: tuple[duckdb.DuckDBPyConnection, str],
    *,
    files: int = 3,
) -> None:
    """Makes a table anew of the rows of a table or query of DuckDB, in several files."""
    source, query = rows
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    items = ", ".join(_stored(column, kind) for column, kind in columns)
    for part in range(files):
        rows = f'(SELECT *, ROW_NUMBER() OVER () AS "#row" FROM {query})'
        source.execute(
            f"COPY (SELECT {items} FROM {rows} WHERE \"#row\" % {files} = {part}) TO '{folder}/{part}.parquet' (FORMAT parquet)"
        )
    declared = ", ".join(f"`{column}` {kind}" for column, kind in columns)
    session.sql(f"DROP TABLE IF EXISTS {name}")
    session.sql(f"CREATE TABLE {name} ({declared}) USING parquet LOCATION '{folder}'")


def _stored(column: str, kind: str) -> str:
    if "<" in kind:
        return f'"{column}"'
    stored = {
        "STRING": "VARCHAR",
        "TIMESTAMP_NTZ": "TIMESTAMP",
        "TIMESTAMP": "TIMESTAMPTZ",
        "BINARY": "BLOB",
    }.get(kind, kind)
    return f'CAST("{column}" AS {stored}) AS "{column}"'
