"""Read ClickHouse's catalog: types, columns and engines of tables, and whether tables have changed. No row is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.backends.base import TableOrigin
from dpsql.backends.clickhouse.session import SessionRunner
from dpsql.backends.clickhouse.values import emit_constant
from dpsql.backends.dialect import QuerySyntax
from dpsql.policy import normalize_name, split_table_name

# ClickHouse's types, by the names of the engine types that policies and plans know.


_NAMES = MappingProxyType(
    {
        "Int8": "TINYINT",
        "Int16": "SMALLINT",
        "Int32": "INTEGER",
        "Int64": "BIGINT",
        "Int128": "HUGEINT",
        "UInt8": "UTINYINT",
        "UInt16": "USMALLINT",
        "UInt32": "UINTEGER",
        "UInt64": "UBIGINT",
        "UInt128": "UHUGEINT",
        "Float32": "FLOAT",
        "Float64": "DOUBLE",
        "String": "VARCHAR",
        "Bool": "BOOLEAN",
        "Date": "DATE",
        "Date32": "DATE",
        "DateTime": "TIMESTAMP_S",
    }
)
_MOMENTS = MappingProxyType({"3": "TIMESTAMP_MS", "6": "TIMESTAMP", "9": "TIMESTAMP_NS"})
"""The engine types of moments by the digits of their seconds."""
_WRAPPED = re.compile(r"(?:LowCardinality|Nullable)\((.*)\)", re.DOTALL)
_DECIMAL = re.compile(r"Decimal\((\d+), (\d+)\)")
_MOMENT = re.compile(r"DateTime64\((\d+)(?:, '[^']*')?\)")
_ZONED = re.compile(r"DateTime\('[^']*'\)")
_ENUM = re.compile(r"Enum(?:8|16)\(('[^'\\]*' = -?\d+(?:, '[^'\\]*' = -?\d+)*)\)", re.DOTALL)
"""An ENUM of members without quotation marks and escapes."""
_MOST_DIGITS = 38


def parse_engine_type(name: str) -> str:
    """Return the engine type of a column; one whose type is not listed here has a name that no policy reads.

    >>> parse_engine_type("Nullable(Int64)"), parse_engine_type("LowCardinality(Nullable(String))"), parse_engine_type("Decimal(12, 2)")
    ('BIGINT', 'VARCHAR', 'DECIMAL(12,2)')
    >>> parse_engine_type("DateTime64(6, 'UTC')"), parse_engine_type("Enum8('a' = 1, 'b' = -2)"), parse_engine_type("Array(Int8)")
    ('TIMESTAMP', "ENUM('a' = 1, 'b' = -2)", 'ARRAY(INT8) (CLICKHOUSE)')
    """
    while (wrapped := _WRAPPED.fullmatch(name)) is not None:
        name = wrapped[1]
    decimal, moment = _DECIMAL.fullmatch(name), _MOMENT.fullmatch(name)
    if decimal is not None and int(decimal[1]) <= _MOST_DIGITS:
        return f"DECIMAL({decimal[1]},{decimal[2]})"
    if moment is not None and moment[1] in _MOMENTS:
        return _MOMENTS[moment[1]]
    if _ZONED.fullmatch(name):
        return "TIMESTAMP_S"
    members = _ENUM.fullmatch(name)
    if members is not None:
        return f"ENUM({members[1]})"
    return _NAMES.get(name, f"{name.upper()} (CLICKHOUSE)")


# What the catalog says of a table.


_LASTING = re.compile(r"\bTTL\b")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table: its columns with the names of their types and the kinds of their defaults, its engine, and its text.

    It is equal only where the catalog's entry is the same: the text has all that the table was made of.
    """

    columns: tuple[tuple[str, str, str], ...]
    engine: str
    text: str
    is_mutating: bool = False

    @property
    def readable_columns(self) -> list[tuple[str, str]]:
        """Return the columns that are read, with their types: none that an expression computes, which may fail for a row."""
        return [(name, kind) for name, kind, default in self.columns if not default]

    @property
    def foreign_sources(self) -> tuple[str, ...]:
        """Return why its rows are not simply those that are stored, as a noun; empty if they are.

        Other engines of the family merge or replace rows in the background, so that which rows there are depends on time and on
        rows of other units; so does a TTL.
        """
        if self.engine != "MergeTree":
            return (f"a table of the engine {self.engine}",)
        if self.is_mutating:
            return ("a table with an unfinished mutation, which is computed as rows are read",)
        return ("a table with a TTL",) if _LASTING.search(_QUOTED.sub("", self.text)) else ()


class DeclaredTables:
    """The tables that a policy declares, as the catalog describes them now, and as it did when the connection was opened.

    `names` are those of the policy, which `queries` quotes.
    """

    def __init__(
        self, runner: SessionRunner, names: Sequence[str], queries: QuerySyntax, database: str
    ) -> None:
        self._runner, self.names, self._queries, self._database = runner, names, queries, database
        self._initial_tables: dict[str, TableDescription | None] | None = None
        self._unchanged_by_name: dict[str, bool] = {}

    def quote_name(self, name: str) -> str:
        """Quote the name of a table of the policy, with its database."""
        return self._queries.quote_table_name(name)

    def list_tables(self) -> list[str]:
        """List the tables of the current database."""
        sql = f"SELECT name FROM system.tables WHERE database = {emit_constant(self._database)} AND NOT is_temporary ORDER BY name"
        return [str(name) for (name,) in self._runner.query_rows(sql)]

    def read_columns(self, names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Read the columns of these tables with their engine types, and take the tables as the initial ones."""
        found = {name: self.describe_table(name) for name in names}
        self._initial_tables = found
        return {
            name: [(column, parse_engine_type(kind)) for column, kind in table.readable_columns]
            for name, table in found.items()
            if table is not None
        }

    def forget_tables(self) -> None:
        """Forget the initial tables, so that no table counts as changed."""
        self._initial_tables = None

    def describe_table(self, name: str) -> TableDescription | None:
        """Return the catalog's description of a table, None if there is none."""
        schema, table = split_table_name(name)
        database, listed = map(emit_constant, (schema or self._database, table))
        found = self._runner.query_rows(
            f"SELECT engine, create_table_query FROM system.tables WHERE database = {database} AND name = {listed}"
        )
        if not found:
            return None
        columns = self._runner.query_rows(
            f"SELECT name, type, default_kind FROM system.columns WHERE database = {database} AND table = {listed} ORDER BY position"
        )
        mutations = self._runner.query_rows(
            f"SELECT 1 FROM system.mutations WHERE database = {database} AND table = {listed} AND NOT is_done"
        )
        ((engine, text),) = found
        listing = tuple((str(column), str(kind), str(default)) for column, kind, default in columns)
        return TableDescription(listing, str(engine), str(text), bool(mutations))

    def begin_snapshot(self) -> None:
        """Look at each table anew before the next query that reads it."""
        self._unchanged_by_name.clear()

    def list_read_tables(self, *texts: str) -> list[str]:
        """List the tables that emitted texts read: within quotation marks a text has names alone, as constants have none."""
        return [name for name in self.names if any(self.quote_name(name) in text for text in texts)]

    def are_unchanged(self, *texts: str) -> bool:
        """Return whether the tables that emitted queries read are those of the start; each is looked at once in a snapshot."""
        for name in self.list_read_tables(*texts):
            if name not in self._unchanged_by_name:
                known = self._initial_tables
                self._unchanged_by_name[name] = known is None or self.describe_table(name) == known[name]
        return all(self._unchanged_by_name[name] for name in self.list_read_tables(*texts))

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find whether a name is a table of stored rows; all others are told by their engine."""
        found = self.describe_table(table)
        if found is None:
            return None
        schema, name = split_table_name(table)
        where = ".".join(map(normalize_name, (schema or self._database, name)))
        return TableOrigin(frozenset({where}), found.foreign_sources)
