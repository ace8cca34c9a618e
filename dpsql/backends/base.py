"""The protocol of engines, the type that protects exact values, and the keys that an engine's catalog declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn, Protocol, final

from dpsql.backends.dialect import Dialect
from dpsql.errors import BackendError, InternalError, OperationalError
from dpsql.policy.skeleton import ForeignKey, TableKeys


@final
class Exact:
    """Exact rows on their way from the engine to the noise.

    They show in no repr, string, format, pickle or comparison; `reveal` is called in one module,
    `dpsql.engine.release.exact_rows`.
    """

    __slots__ = ("__rows",)

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.__rows = rows

    def reveal(self) -> Sequence[tuple[Any, ...]]:
        """Return the exact rows, for the mechanism that adds noise."""
        return self.__rows

    def __repr__(self) -> str:
        return "Exact(hidden)"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> NoReturn:
        raise InternalError("exact values cannot be pickled or copied")


def to_exact_rows(rows: Iterable[tuple[Any, ...]]) -> Exact:
    """Return the rows of a statement, in which a DECIMAL is a whole number, and an array a list of them."""
    return Exact([tuple(map(_to_exact_value, row)) for row in rows])


def _to_exact_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    return list(map(_to_exact_value, value)) if isinstance(value, list) else value


def make_failure(*, cancelled: bool) -> BackendError | OperationalError:
    """Return the error for a failed statement, which has constant text whatever the engine says."""
    if not cancelled:
        return BackendError()
    return OperationalError("the query was cancelled while it ran; any charge stands", code="cancelled")


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The origin of a table's or view's rows, from the bound plan with views and macros expanded.

    `tables` are the stored tables and frames that it reads in the end, by their full names; `foreign_sources` the operators
    that read anything else, such as files. `is_stored_table` says that it is such a table or frame itself and no view, `has_checked_texts`
    that the engine has looked at the bytes of all texts, `not_null_columns` which of its columns are declared NOT NULL,
    also by a CHECK; `check_constraints` are the conditions of its CHECK constraints, as the engine writes them. `collated_columns` are the columns
    of texts, and of STRUCTs of such, whose collation takes texts for equal that differ.
    """

    tables: frozenset[str]
    foreign_sources: tuple[str, ...] = ()
    is_stored_table: bool = True
    has_checked_texts: bool = True
    not_null_columns: frozenset[str] = frozenset()
    check_constraints: tuple[str, ...] = ()
    collated_columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """The identity of the open database, determined without reading a row.

    `ledger_text` is stored in the ledger (see `dpsql.ledger.anchor`). Equal `instance_mark`s mean certainly the same database;
    a release is replayed or refined only under an equal mark.
    """

    ledger_text: str
    instance_mark: str


TemporaryTables = Sequence[tuple[str, str]]
"""Temporary tables in the order of their creation: their names in emitted SQL, and their queries."""


class Backend(Protocol):
    """An engine that holds private and public tables."""

    name: str
    version: str
    dialect: Dialect
    """The dialect of statements over its tables."""

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """Return the identity of a database without a name in the policy; None for one without data."""
        ...

    @property
    def database_name(self) -> str:
        """Return the name of the database in the engine, as in database.main.table."""
        ...

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Read each table's columns with their engine types, from metadata only."""
        ...

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find the origin of a table's or view's rows, or None if the engine cannot bind it. No row is read."""
        ...

    @property
    def is_unchanging(self) -> bool:
        """Return whether a query over public tables returns the same rows as long as the database is open."""
        ...

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:
        """Return whether the engine can bind an emitted statement; nothing is run, and no row is read.

        `held` are temporary tables, as those of `stage_tables`, that the statement reads.
        """
        ...

    def read_public_number(self, sql: str) -> int:
        """Return the whole number of an emitted query over public tables."""
        ...

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of an emitted query over public tables, and the engine types of its columns."""
        ...

    def can_parse(self, text: str) -> bool:
        """Return whether the engine's parser accepts `text` as one statement; nothing is bound or run."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock that keeps other threads from the engine's connection, also those that share it otherwise."""
        ...

    def open_snapshot(self) -> AbstractContextManager[None]:
        """Open a snapshot, within which all statements see the database as it was at its start."""
        ...

    def run_statement(self, sql: str) -> Exact:
        """Run an emitted statement. Raises BackendError, with constant text, for any failure."""
        ...

    def stage_tables(self, tables: TemporaryTables) -> AbstractContextManager[None]:
        """Create temporary tables from these queries, one after the other, for the enclosed work.

        Nobody else can name them, and they are always dropped at the end. Raises as `run_statement` does.
        """
        ...

    def interrupt(self) -> None:
        """Stop the running statement from another thread; it raises OperationalError (`cancelled`).

        After a charge, the engine records this as a failure.
        """
        ...

    def close(self) -> None:
        """Close the database."""
        ...


# Read the primary, unique and foreign keys of a schema from the rows of an engine's catalog.


def build_table_keys(
    rows: Iterable[tuple[Any, ...]], format_name: Callable[[str, str], str]
) -> dict[str, TableKeys]:
    """Return the keys by table name; `format_name` builds the name from a schema and a table.

    A row has the schema, the table, PRIMARY KEY, UNIQUE or FOREIGN KEY, its columns, and the table and columns that it references,
    which are of its own schema.
    """
    primary: dict[str, tuple[str, ...]] = {}
    unique: dict[str, list[tuple[str, ...]]] = {}
    foreign: dict[str, list[ForeignKey]] = {}
    for schema, table, kind, columns, target, references in rows:
        name = format_name(schema, table)
        if kind == "PRIMARY KEY":
            primary[name] = tuple(columns)
        elif kind == "UNIQUE":
            unique.setdefault(name, []).append(tuple(columns))
        else:
            key = ForeignKey(tuple(columns), format_name(schema, target), tuple(references))
            foreign.setdefault(name, []).append(key)
    return {
        name: TableKeys(primary.get(name, ()), tuple(foreign.get(name, ())), tuple(unique.get(name, ())))
        for name in {**primary, **unique, **foreign}
    }
