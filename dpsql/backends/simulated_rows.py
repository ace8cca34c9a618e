"""Invented rows, from a policy alone: values drawn from declared bounds and domains, ids that lead to units.

Claim: private tables follow from the policy, the size that is asked for and the variant; public ones may be copies.
Why: of a database that is named, tables which the policy declares public are read and nothing else. What is made may be
given to anybody who may read the policy and the public tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path

import duckdb

from dpsql.backends.scratch_database import create_declared_tables, get_column_types, make_table
from dpsql.errors import OperationalError
from dpsql.policy import Column, Policy, Table, normalize_name
from dpsql.policy.names import quote_identifier, quote_literal, quote_table_name
from dpsql.policy.tables import Link

_NULLS = 0.02
"""The share of NULLs in a column that may hold them."""
_RANDOM_BITS = 53
_PUBLIC_ROWS = 10
_SHARED = 4
"""How many numbers, as of orders, a unit's rows share."""
_PLAIN = {
    "integer": "floor(1000 * {u})",
    "double": "1000 * {u}",
    "varchar": "'text ' || CAST(floor(20 * {u}) AS INTEGER)",
    "boolean": "{u} < 0.5",
    "date": "DATE '2020-01-01' + CAST(floor(365 * {u}) AS INTEGER)",
    "timestamp": "TIMESTAMP '2020-01-01' + to_seconds(floor(31536000 * {u}))",
    "time": "TIME '00:00:00' + to_seconds(floor(86399 * {u}))",
    "uuid": "md5(CAST({u} AS VARCHAR))",
    "blob": "encode('bytes ' || CAST(floor(20 * {u}) AS INTEGER))",
}
"""A value of each type without bounds or domain, of a number `u` in [0, 1)."""
_ID = {
    "VARCHAR": "'unit ' || {n}",
    "UUID": "md5(CAST({n} AS VARCHAR))",
    "BLOB": "encode('unit ' || {n})",
    "DATE": "DATE '1900-01-01' + CAST({n} AS INTEGER)",
    "TIMESTAMP": "TIMESTAMP '1900-01-01' + to_seconds({n})",
    "TIME": "TIME '00:00:00' + to_microseconds({n})",
}
"""The n-th id of a type; of the others the number itself."""


@dataclass(frozen=True, slots=True)
class SimulationSize:
    """How much is made: `units` privacy units, `rows` of each table in which a unit may have several."""

    units: int
    rows: int
    variant: int = 0


def write_simulated_file(
    policy: Policy, size: SimulationSize, path: Path, public: Path | None = None
) -> tuple[str, ...]:
    """Write a database of simulated rows; return the tables that are left out.

    Raises OperationalError where the file exists or cannot be written, or `public` cannot be read; then no file is left.
    """
    if path.exists():
        raise OperationalError(f"{path} already exists", code="file_exists", hint="choose another file")
    done = False
    try:
        with duckdb.connect(str(path)) as connection:
            missing = fill_simulated_tables(connection, policy, size, public)
        done = True
    except duckdb.Error:
        raise OperationalError(
            f"cannot write {path}",
            code="not_written",
            hint="check the directory and the free space of its disk",
        ) from None
    finally:
        if not done:
            path.unlink(missing_ok=True)
    return missing


def create_simulated_database(
    policy: Policy, size: SimulationSize, public: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Create a database in memory of simulated rows, which ends with the connection."""
    connection = duckdb.connect()
    try:
        fill_simulated_tables(connection, policy, size, public)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def open_simulated_database(
    policy: Policy, size: SimulationSize, public: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory of simulated rows."""
    with create_simulated_database(policy, size, public) as connection:
        yield connection


def fill_simulated_tables(
    connection: duckdb.DuckDBPyConnection, policy: Policy, size: SimulationSize, public: Path | None = None
) -> tuple[str, ...]:
    """Make the tables of a policy, each after those that it refers to; return those that are left out.

    `public` is a database whose public tables are copied. A public table that neither is there nor has declared columns is
    left out: an empty one without its columns stands for it.
    """
    copied = set() if public is None else set(_copy_public_tables(connection, policy, public))
    made = [
        name
        for name in _sort_by_links(policy)
        if name not in copied and (policy.tables[name].columns or not policy.tables[name].public)
    ]
    create_declared_tables(connection, policy, made)
    for name in made:
        maker = _RowGenerator(policy, name, size)
        columns = list(maker.iterate_columns())
        names = ", ".join(quote_identifier(column) for column, _ in columns)
        values = ", ".join(value for _, value in columns)
        connection.execute(
            f"INSERT INTO {quote_table_name(name)} ({names}) SELECT {values} FROM {maker.emit_source()}"
        )
    missing = tuple(name for name in policy.tables if name not in {*made, *copied})
    for name in missing:
        make_table(connection, name, "(left_out BOOLEAN)")
    return missing


def _copy_public_tables(connection: duckdb.DuckDBPyConnection, policy: Policy, public: Path) -> Iterator[str]:
    """Copy the public tables of a database, without views, which may read private rows."""
    try:
        connection.execute(f"ATTACH {quote_literal(str(public))} AS owners (READ_ONLY)")
    except duckdb.Error:
        raise OperationalError(
            f"cannot read {public}", code="database_missing", hint="name a DuckDB file"
        ) from None
    stored = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'owners'"
    ).fetchall()
    for schema, table in stored:
        name = policy.find_table_name(table if schema == "main" else f"{schema}.{table}")
        if name is not None and policy.tables[name].public:
            make_table(
                connection, name, f"AS FROM owners.{quote_identifier(schema)}.{quote_identifier(table)}"
            )
            yield name
    connection.execute("DETACH owners")


def _sort_by_links(policy: Policy) -> list[str]:
    """Return the tables, those that others refer to first."""
    left = {
        name: {policy.find_table_name(link.table) for link in table.all_links}
        for name, table in policy.tables.items()
    }
    found = list[str]()
    while left:
        ready = [name for name, wanted in left.items() if not (wanted - {name}) & left.keys()]
        for name in ready or list(left):  # a circle of links has no order
            found.append(name)
            del left[name]
    return found


@dataclass(frozen=True, slots=True)
class _RowGenerator:
    """The rows of one table: `i` counts them from 0."""

    policy: Policy
    name: str
    size: SimulationSize

    @property
    def table(self) -> Table:
        return self.policy.tables[self.name]

    def count_rows(self) -> int:
        if self.table.public:
            listed = (len(column.values) for column in self.table.columns.values() if column.values)
            return max(listed, default=_PUBLIC_ROWS)
        if self.table.rows_per_unit == 1 or self.policy.get_unit(self.name).kind == "row":
            return self.size.units
        return self.size.rows

    def emit_source(self) -> str:
        """Emit numbered rows, each beside the row that its first link refers to."""
        numbered = f"range({self.count_rows()}) AS made(i)"
        if not self._list_links():
            return numbered
        parent = quote_table_name(self._get_parent())
        there = f"(SELECT COUNT(*) FROM {parent})"
        return f"{numbered} JOIN {parent} AS parent ON parent.rowid = {self._emit_parent_choice(there)}"

    def iterate_columns(self) -> Iterator[tuple[str, str]]:
        """Yield each column with its value as SQL."""
        kinds = get_column_types(self.policy, self.name)
        copied = self._find_copied_columns()
        keys = {normalize_name(key) for key in self._iterate_keys()}
        for folded, (column, kind) in kinds.items():
            spec = self.table.columns.get(column)
            if folded in copied:
                yield column, f"parent.{quote_identifier(copied[folded])}"
            elif folded == normalize_name(self._find_unit_column() or ""):
                yield column, _emit_id(kind, spec, self._emit_unit_number())
            elif folded in keys:
                yield column, _emit_id(kind, spec, self._emit_key_number(folded))
            else:
                yield (
                    column,
                    _emit_id(kind, None, "i") if spec is None else self._emit_value(column, spec, kind),
                )

    def _get_parent(self) -> str:
        return self.policy.find_table_name(self._select_link().table) or self._select_link().table

    def _select_link(self) -> Link:
        """Return the link with the most columns: the others follow from the row that it refers to, as far as this has them."""
        return max(self._list_links(), key=lambda link: len(link.names))

    def _list_links(self) -> list[Link]:
        """Return the links to other tables."""
        return [link for link in self.table.all_links if self.policy.find_table_name(link.table) != self.name]

    def _find_copied_columns(self) -> dict[str, str]:
        """Return the columns that equal those of the referenced row, by folded names, with their names there."""
        if not self._list_links():
            return {}
        link = self._select_link()
        copied = {normalize_name(ours): theirs for ours, theirs in zip(link.names, link.keys, strict=True)}
        there = get_column_types(self.policy, self._get_parent())
        shared = [self._find_unit_column(), *(ours for other in self.table.all_links for ours in other.names)]
        for column in shared:
            if column is not None and normalize_name(column) in there:
                copied.setdefault(normalize_name(column), there[normalize_name(column)][0])
        return copied

    def _find_unit_column(self) -> str | None:
        if self.table.public:
            return None
        unit = self.policy.get_unit(self.name)
        return unit.column if unit.kind == "column" else None

    def _iterate_keys(self) -> Iterator[str]:
        """Yield the columns by which a row of this table is referred to: the first of each key tells it."""
        for _, link in self.policy.iterate_links():
            if self.policy.find_table_name(link.table) == self.name:
                yield link.keys[0]

    def _emit_unit_number(self) -> str:
        """Emit the unit of a row: each unit has one row first; some have many of the others."""
        if self.count_rows() <= self.size.units:
            return "i"
        again = _emit_uniform_integer(f"pow({self._emit_uniform_number('whose')}, 2)", self.size.units)
        return f"CASE WHEN i < {self.size.units} THEN i ELSE {again} END"

    def _emit_key_number(self, column: str) -> str:
        """Emit the key by which a row is referred to; if rows of a table refer to each other, several of a unit share it."""
        shared = any(normalize_name(name) == column for link in self.table.all_links for name in link.names)
        return (
            f"{_SHARED} * ({self._emit_unit_number()}) + {_emit_uniform_integer(self._emit_uniform_number(column), _SHARED)}"
            if shared
            else "i"
        )

    def _emit_parent_choice(self, count: str) -> str:
        return (
            f"i % {count}"
            if self.table.rows_per_unit == 1
            else _emit_uniform_integer(self._emit_uniform_number("parent"), count)
        )

    def _emit_value(self, column: str, spec: Column, kind: str) -> str:
        drawn = _emit_drawn_value(spec, self._emit_uniform_number(column))
        if spec.max_elements is not None:
            length = _emit_uniform_integer(
                self._emit_uniform_number(f"{column} length"), spec.max_elements + 1
            )
            element = _emit_drawn_value(spec, self._emit_uniform_number(column, "j"))
            drawn = f"list_transform(range({length}), lambda j: {element})"
        elif self.table.public and spec.values:
            drawn = f"{_emit_value_list(spec)}[1 + i % {len(spec.values)}]"
        value = f"CAST({drawn} AS {kind})"
        if self.table.public or not spec.nullable or spec.max_elements is not None:
            return value
        return f"CASE WHEN {self._emit_uniform_number(f'{column} is NULL')} >= {_NULLS} THEN {value} END"

    def _emit_uniform_number(self, tag: str, more: str = "0") -> str:
        """Emit a number in [0, 1) of the row and a tag, the same for the same variant."""
        text = quote_literal(f"{normalize_name(self.name)} {normalize_name(tag)}")
        return f"((hash(i, {text}, {self.size.variant}, {more}) >> {64 - _RANDOM_BITS}) / {float(2**_RANDOM_BITS)!r})"


def _emit_drawn_value(spec: Column, drawn: str) -> str:
    if spec.values:
        return f"{_emit_value_list(spec)}[1 + {_emit_uniform_integer(drawn, len(spec.values))}]"
    if spec.bounds is None:
        return _PLAIN[spec.type].format(u=drawn)
    low, high = spec.bounds
    if isinstance(low, datetime) and isinstance(high, datetime):
        length = (high - low).total_seconds()
        return f"TIMESTAMP '{low}' + to_seconds(floor({drawn} * {length!r}))"
    if isinstance(low, date) and isinstance(high, date):
        return f"DATE '{low}' + CAST({_emit_uniform_integer(drawn, (high - low).days + 1)} AS INTEGER)"
    least, most = spec.numeric_bounds or (Fraction(0), Fraction(1))
    if spec.type == "integer":
        return f"{int(least)} + {_emit_uniform_integer(drawn, int(most) - int(least) + 1)}"
    width = float(most) - float(least)
    return f"LEAST({float(most)!r}::DOUBLE, {float(least)!r}::DOUBLE + {drawn} * {width!r}::DOUBLE)"


def _emit_value_list(spec: Column) -> str:
    return f"[{', '.join(quote_literal(str(value)) for value in spec.values or ())}]"


def _emit_uniform_integer(drawn: str, count: object) -> str:
    """Emit an integer from 0 to `count` - 1, evenly, from a number in [0, 1)."""
    return f"CAST(LEAST(floor({drawn} * {count}), {count} - 1) AS BIGINT)"


def _emit_id(kind: str, spec: Column | None, number: str) -> str:
    """Emit the id of a number from 0, within the column's bounds or domain if it has one."""
    if spec is not None and spec.values:
        return f"CAST({_emit_value_list(spec)}[1 + {number} % {len(spec.values)}] AS {kind})"
    first = spec.numeric_bounds[0] if spec is not None and spec.numeric_bounds else 1
    counted = f"(CAST({number} AS BIGINT) + {int(first)})"
    return f"CAST({_ID.get(kind, '{n}').format(n=counted)} AS {kind})"
