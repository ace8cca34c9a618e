"""Read Spark's catalog: types, columns and kinds of tables, units of timestamps, and whether tables have changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dpsql.backends.base import TableOrigin
from dpsql.backends.dialect import QuerySyntax
from dpsql.backends.spark.session import SessionRunner, is_remote
from dpsql.errors import BackendError
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.names import quote_identifier

# Spark's types, by the names of the engine types that policies and plans know.


_NAMES = MappingProxyType(
    {
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp_ntz": "TIMESTAMP",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "binary": "BLOB",
    }
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT = re.compile(r"varchar\(\d+\)|string collate \w+")
_PADDED = re.compile(r"char\(\d+\)")


def parse_engine_type(name: str) -> str:
    """Return the engine type of a column, by the name that DESCRIBE has for it.

    A column whose type is not listed here has a name that no policy reads.

    >>> parse_engine_type("bigint"), parse_engine_type("decimal(12,2)"), parse_engine_type("timestamp"), parse_engine_type("char(5)")
    ('BIGINT', 'DECIMAL(12,2)', 'TIMESTAMP WITH TIME ZONE', 'CHAR')
    >>> parse_engine_type("map<int,int>"), parse_engine_type("string collate UTF8_LCASE")
    ('MAP<INT,INT> (SPARK)', 'VARCHAR')
    >>> parse_engine_type("array<struct<city:string,at:decimal(3,0)>>"), parse_engine_type("struct<a:int,seen:timestamp>")
    ('STRUCT("city" VARCHAR, "at" DECIMAL(3,0))[]', 'STRUCT<A:INT,SEEN:TIMESTAMP> (SPARK)')
    """
    return _parse_plain_type(name) or _parse_nested_type(name) or f"{name.upper()} (SPARK)"


def _parse_plain_type(name: str) -> str | None:
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        return f"DECIMAL({found[1]},{found[2]})"
    if _PADDED.fullmatch(name):
        return "CHAR"
    return "VARCHAR" if _TEXT.fullmatch(name) else _NAMES.get(name)


def _parse_nested_type(name: str) -> str | None:
    """Return the engine type of an array or a struct, None if a part of it, at any depth, is not read.

    Claim: no part of what is read makes Spark fail for a row.
    Why: Spark may read a struct whole of which a field is asked for, as below EXPLODE. Of moments within one nobody knows in which unit
    a file has them, and Spark fails at milliseconds that are too many.
    Source: Spark 4.0, NestedColumnAliasing, and as of `ParquetFooters`.
    """
    if name.startswith("array<") and name.endswith(">"):
        of = _parse_inner_type(name[len("array<") : -1])
        return of and f"{of}[]"
    if name.startswith("struct<") and name.endswith(">"):
        parts = [part.partition(":") for part in _split_fields(name[len("struct<") : -1])]
        kinds = [(field, _parse_inner_type(kind)) for field, _, kind in parts]
        if all(kind for _, kind in kinds):
            return f"STRUCT({', '.join(f'{quote_identifier(field)} {kind}' for field, kind in kinds)})"
    return None


def _parse_inner_type(name: str) -> str | None:
    """Return the engine type of a field or an element; None for moments, which are not read there."""
    return None if name.startswith("timestamp") else _parse_plain_type(name) or _parse_nested_type(name)


def _split_fields(text: str) -> list[str]:
    """Split a text at the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


# What Spark's catalog says of a table, by DESCRIBE TABLE EXTENDED. No row is read.


READ = frozenset({"parquet", "delta", "iceberg"})
"""The providers of tables that are read: their files have types.

ORC is not among them: its reader ends a query at a moment whose microseconds are more than 64 bits hold, and at the first row of
a column with a collation. CSV and JSON are not, whatever columns the catalog declares: an option of the table (FAILFAST), or a
line that is cut off, makes one row end a query.
"""
_DETAILS = "# Detailed Table Information"
_MOMENT = "timestamp"
_COLLATION = re.compile(r"string collate (\w+)", re.IGNORECASE)
_KINDS = MappingProxyType({"VIEW": "a view", "TEMPORARY": "a temporary view"})


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table: its columns with the names of their types, its provider, its kind, and where it lies.

    `mark` is equal only where the catalog's entry is the same: a table that was dropped and made anew has another.
    """

    columns: tuple[tuple[str, str], ...]
    provider: str
    kind: str
    location: str
    mark: tuple[tuple[str, str], ...]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, str]]) -> TableDescription:
        """Return the table for which DESCRIBE TABLE EXTENDED gives these names and types."""
        columns: list[tuple[str, str]] = []
        details: dict[str, str] = {}
        section: str | None = None
        for name, kind in rows:
            if not name or name.startswith("#"):
                section = name or ""
            elif section is None:
                columns.append((name, kind))
            elif section == _DETAILS:
                details.setdefault(name, kind)
        names = ("Created Time", "Type", "Provider", "Location", "View Text", "Owner")
        mark = tuple((name, details.get(name, "")) for name in names)
        return cls(
            tuple(columns),
            details.get("Provider", "").lower(),
            details.get("Type", "").upper(),
            details.get("Location", ""),
            mark,
        )

    @property
    def collated_columns(self) -> frozenset[str]:
        """Return the columns of texts, and of structs of such, whose collation does not compare bytes."""
        return frozenset(
            name
            for name, kind in self.columns
            if set(map(str.upper, _COLLATION.findall(kind))) - {"UTF8_BINARY"}
        )

    @property
    def has_timestamps(self) -> bool:
        """Return whether Parquet files hold moments, whose unit the catalog does not say."""
        return self.provider == "parquet" and any(kind.startswith(_MOMENT) for _, kind in self.columns)

    def with_masked_timestamps(self, other: frozenset[str] | None) -> TableDescription:
        """Return the table in which moments of `other` columns, or of all if None are known, have types that are not read.

        Nor have arrays then: what unnests one names all columns, and Spark has to leave such moments out by itself.
        """
        unknown = {
            name
            for name, kind in self.columns
            if kind.startswith(_MOMENT) and (other is None or name.lower() in map(str.lower, other))
        }
        columns = tuple(
            (name, f"{kind} that is not in microseconds")
            if name in unknown
            else (name, f"{kind} beside moments that are not in microseconds")
            if unknown and "array<" in kind
            else (name, kind)
            for name, kind in self.columns
        )
        return replace(self, columns=columns)

    @property
    def foreign_sources(self) -> tuple[str, ...]:
        """Return why it is not a table with typed files, as a noun; empty if it is one."""
        if self.kind not in ("MANAGED", "EXTERNAL"):
            return (_KINDS.get(self.kind, "an object that is not a table"),)
        return (
            () if self.provider in READ else (f"a table in the format {self.provider or 'of its catalog'}",)
        )


# Which moments of a table's Parquet files are not in microseconds, by the footers of the files. No row is read.


_OTHER = re.compile(r"^\s*\w+ int64 (.+) \(TIMESTAMP\((?!MICROS)", re.MULTILINE)


class ParquetFooters:
    """The footers of files that were looked at: files are not changed in place.

    Claim: no row of a column that is not named here makes Spark fail for its moment.
    Why: Spark takes microseconds as they are, and INT96 without a check. Milliseconds it multiplies by 1000, and fails where the
    product is beyond 64 bits; the catalog has the same type for all of them.
    Source: Apache Parquet, "Logical types", TIMESTAMP; Spark 4.0, ParquetVectorUpdaterFactory and DateTimeUtils.millisToMicros.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._known: dict[str, frozenset[str]] = {}

    def find_other_timestamp_columns(self, table: str) -> frozenset[str] | None:
        """Find the columns of which a file has moments in another unit; None if the files cannot be looked at.

        Spark Connect has no way to look at a footer. Raises whatever the session raises.
        """
        if is_remote(self._session):
            return None
        paths = self._session.table(table.replace('"', "`")).inputFiles()
        for path in paths:
            if path not in self._known:
                self._known[path] = frozenset(_OTHER.findall(self._read_schema(path)))
        return frozenset[str]().union(*(self._known[path] for path in paths))

    def _read_schema(self, path: str) -> str:
        """Read the schema of a file, as Parquet's library writes it out."""
        jvm, settings = self._session._jvm, self._session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001  (pyspark has no door to footers)
        place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
        file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(place, settings)
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
        try:
            return str(reader.getFooter().getFileMetaData().getSchema().toString())
        finally:
            reader.close()


class DeclaredTables:
    """The tables that a policy declares, as the catalog describes them now, and as it did when the connection was opened.

    `names` are those of the policy, which `queries` quotes.
    """

    def __init__(self, runner: SessionRunner, names: Sequence[str], queries: QuerySyntax) -> None:
        self._runner, self.names, self._queries = runner, names, queries
        self._footers = ParquetFooters(runner.session)
        self._initial_tables: dict[str, TableDescription | None] | None = None
        self._unchanged_by_name: dict[str, bool] = {}

    def quote_name(self, name: str) -> str:
        """Quote the name of a table of the policy, with its catalog and schema."""
        return self._queries.quote_table_name(name)

    def read_columns(self, names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Read the columns of these tables with their engine types, and take the tables as the initial ones.

        Columns are left out if Spark takes their names for one.
        """
        found = {name: self._refresh_table(name) for name in names}
        self._initial_tables = found
        return {
            name: [
                (column, parse_engine_type(kind))
                for column, kind in table.columns
                if _has_unique_name(column, table.columns)
            ]
            for name, table in found.items()
            if table is not None
        }

    def forget_tables(self) -> None:
        """Forget the initial tables, so that no table counts as changed."""
        self._initial_tables = None

    def describe_table(self, name: str) -> TableDescription | None:
        """Return the catalog's description of a table, None if there is none."""
        try:
            rows = self._runner.run_command(f"DESCRIBE TABLE EXTENDED {self.quote_name(name)}")
        except BackendError:
            return None
        return TableDescription.from_rows((str(name or ""), str(kind or "")) for name, kind, *_ in rows)

    def _refresh_table(self, name: str) -> TableDescription | None:
        """Return the catalog's description of a table, whose files are looked for anew."""
        with suppress(BackendError):  # that it is gone is found below
            self._runner.run_command(f"REFRESH TABLE {self.quote_name(name)}")
        found = self.describe_table(name)
        return (
            found if found is None or not found.has_timestamps else self._mask_unknown_timestamps(name, found)
        )

    def _mask_unknown_timestamps(self, name: str, found: TableDescription) -> TableDescription:
        """Return the table in which moments that are not surely in microseconds have a type that no policy reads."""
        other: frozenset[str] | None = None
        with suppress(BackendError):
            other = self._runner.run_guarded(
                lambda: self._footers.find_other_timestamp_columns(self.quote_name(name))
            )
        return found.with_masked_timestamps(other)

    def begin_snapshot(self) -> None:
        """Look at each table anew before the next query that reads it."""
        self._unchanged_by_name.clear()

    def are_unchanged(self, *texts: str) -> bool:
        """Return whether the tables that emitted queries read are those of the start.

        Each is looked at once in a snapshot, before the first query that reads it.
        """
        read = [name for name in self.names if any(self.quote_name(name) in text for text in texts)]
        for name in read:
            if name not in self._unchanged_by_name:
                found = self._refresh_table(name)
                self._unchanged_by_name[name] = (
                    self._initial_tables is None or found == self._initial_tables[name]
                )
        return all(self._unchanged_by_name[name] for name in read)

    def find_origin(self, table: str, database: str) -> TableOrigin | None:
        """Find whether a name is a table whose files have types; views and other tables are told by their kind."""
        found = self.describe_table(table)
        if found is None:
            return None
        where = found.location or ".".join((database, *map(normalize_name, split_table_name(table))))
        return TableOrigin(frozenset({where}), found.foreign_sources, collated_columns=found.collated_columns)


def _has_unique_name(column: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Return whether no other column has this name in another case, by the rules of Unicode, as Spark compares them."""
    return sum(name.lower() == column.lower() for name, _ in columns) == 1
