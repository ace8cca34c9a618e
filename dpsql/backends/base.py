"""What an engine offers, and the type that keeps exact values in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, final

from dpsql.backends.dialect import Dialect
from dpsql.errors import InternalError


@final
class Exact:
    """Exact rows on their way from the engine to the noise.

    They show in no repr, string, format, pickle or comparison; `reveal` is called in one place,
    `dpsql.release`.
    """

    __slots__ = ("__rows",)

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.__rows = rows

    def reveal(self) -> Sequence[tuple[Any, ...]]:
        """The exact rows, for the mechanism that noises them."""
        return self.__rows

    def __repr__(self) -> str:
        return "Exact(hidden)"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> NoReturn:
        raise InternalError("exact values cannot be pickled or copied")


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """Where the rows of a table or view come from, by the plan that the engine binds, views and macros expanded.

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
    """What an engine says, without reading a row, of which database it has open.

    `ledger_text` is what a ledger keeps of it (see `dpsql.ledger.identity`). `instance_mark` is equal only for what is surely
    the same database: a release is answered again, or refined, under an equal mark alone.
    """

    ledger_text: str
    instance_mark: str


TemporaryTables = Sequence[tuple[str, str]]
"""Temporary tables, in the order in which they are made: their names as emitted SQL has them, and their queries."""


class Backend(Protocol):
    """An engine that holds private and public tables."""

    name: str
    version: str
    dialect: Dialect
    """How statements over its tables are written."""

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """Which database this is, where its owner has given it no name; None for one without data."""
        ...

    @property
    def database_name(self) -> str:
        """The name that the database has in the engine, as in database.main.table."""
        ...

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each table's columns with their engine types. Metadata alone: no value is read."""
        ...

    def find_origin(self, table: str) -> TableOrigin | None:
        """Where the rows of a table or view come from, None where the engine cannot bind it. No row is read."""
        ...

    @property
    def is_unchanging(self) -> bool:
        """Whether an emitted query over public tables gives the same rows as long as the database is open."""
        ...

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:
        """Whether the engine can bind an emitted statement: nothing is run, and no row is read.

        `held` are temporary tables, as those of `stage_tables`, that the statement reads.
        """
        ...

    def read_public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ...

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns."""
        ...

    def can_parse(self, text: str) -> bool:
        """Whether the engine's own parser reads `text` as one statement. Nothing is bound or run."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Keeps other threads from the engine's connection, also those that came by it in another way."""
        ...

    def open_snapshot(self) -> AbstractContextManager[None]:
        """Within it, all statements see the database as it was at its start."""
        ...

    def run_statement(self, sql: str) -> Exact:
        """Runs the emitted statement. Raises BackendError, with constant text, for any failure."""
        ...

    def stage_tables(self, tables: TemporaryTables) -> AbstractContextManager[None]:
        """Within it there are temporary tables with the rows of these queries, by their names, one made after another.

        Nobody else can name them, and they are gone at the end, whatever happens. Raises as `run_statement` does.
        """
        ...

    def interrupt(self) -> None:
        """Stops the statement that runs now, which raises OperationalError (`cancelled`); for other threads to call.

        After a charge the engine records that as a failure.
        """
        ...

    def close(self) -> None:
        """Lets the database go."""
        ...
