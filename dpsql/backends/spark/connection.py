"""Spark: the private tables of a cluster's catalogue, by a session of Spark, classic or Connect."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.dialect import Dialect
from dpsql.backends.public_copies import Columns, PublicCopies, select_readable_columns
from dpsql.backends.quoting import quote_identifier
from dpsql.backends.spark import columns
from dpsql.backends.spark.catalog import ParquetFooters, TableDescription, parse_engine_type
from dpsql.backends.spark.dialect import make_spark_dialect
from dpsql.backends.spark.session import (
    close_session,
    disable_error_log,
    is_remote,
    open_session,
    pin_settings,
)
from dpsql.errors import BackendError, OperationalError
from dpsql.ledger.database_identity import SPARK as IDENTITY
from dpsql.policy import normalize_name, split_table_name

_PLANNED = 1000
"""How many statements are known at most to be planned; beyond, all are forgotten."""

_T = TypeVar("_T")


class SparkBackend:
    """Tables of the catalogue of a Spark session.

    `database_name` is a URL or a session; statements run in a session of their own, beside it. `public` are the names of the
    public tables of the policy, which are copied where they are looked up or shown; `private` those of the private ones.

    Claim: all that a release reads of contributions is read of the same rows, whatever happens meanwhile.
    Why: contributions that a statement reads more than once are computed once, and their rows are kept by the executors,
    without what they were computed from: a task that is tried again reads the same rows, and where these are lost it fails.
    What they are computed from is deterministic over files that are not changed in place.
    Source: Zaharia et al. 2012, "Resilient distributed datasets", section 2.1 (lineage) and 5.4 (checkpoints).
    """

    name = "spark"

    def __init__(self, database: Any, *, public: Sequence[str] = (), private: Sequence[str] = ()) -> None:
        self._session, self._owned = open_session(database)
        self._public, self._declared = frozenset(map(normalize_name, public)), (*public, *private)
        self._lock = threading.RLock()
        self._in_snapshot = self._cancelled = False
        self._unchanged_by_name: dict[str, bool] = {}
        self._tag = f"dpsql-{secrets.token_hex(8)}"
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._initial_tables: dict[str, TableDescription | None] | None = None
        self._planned_statements: set[bytes] = set()
        self._copies = PublicCopies()
        try:
            self.version = str(self._session.version)
            self._run_guarded(lambda: pin_settings(self._session))
            # Tables without a schema are those of where the owner's session is.
            at = self._session if isinstance(database, str) else database
            self.database_name, self._schema = self._run_guarded(
                lambda: (str(at.catalog.currentCatalog()), str(at.catalog.currentDatabase()))
            )
            self.dialect: Dialect = make_spark_dialect(self.database_name, self._schema)
            self._random = secrets.token_hex(16)
            self._footers = ParquetFooters(self._session)
        except BaseException:
            self.close()
            raise

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """The catalogue and where the schema lies: not surely one database, so that only a name in the policy says so."""
        where = f"{self.database_name}.{self._schema}"
        rows = self._run_command(
            f"DESCRIBE SCHEMA EXTENDED {quote_identifier(self.database_name)}.{quote_identifier(self._schema)}"
        )
        lies = next((str(value) for name, value in rows if name == "Location"), "")
        return DatabaseIdentity(f"{IDENTITY}{where} {lies}", f"{IDENTITY}{where} {lies} {self._random}")

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each declared table's columns with their engine types; without a declared table, those of the current schema.

        Of columns whose names Spark takes for one, none.
        """
        self._initial_tables = None
        self._planned_statements.clear()
        with self.open_snapshot():
            found = {name: self._refresh_table(name) for name in self._declared or self._list_tables()}
            self._initial_tables = found
        self._columns = {
            name: [
                (column, parse_engine_type(kind))
                for column, kind in table.columns
                if _has_unique_name(column, table.columns)
            ]
            for name, table in found.items()
            if table is not None
        }
        return self._columns

    def _list_tables(self) -> list[str]:
        where = f"{quote_identifier(self.database_name)}.{quote_identifier(self._schema)}"
        return [str(row[1]) for row in self._run_command(f"SHOW TABLES IN {where}") if not row[2]]

    def _describe_table(self, name: str) -> TableDescription | None:
        """What the catalogue says of a table, None where there is none."""
        try:
            rows = self._run_command(f"DESCRIBE TABLE EXTENDED {self.dialect.queries.quote_table_name(name)}")
        except BackendError:
            return None
        return TableDescription.from_rows((str(name or ""), str(kind or "")) for name, kind, *_ in rows)

    def _refresh_table(self, name: str) -> TableDescription | None:
        """What the catalogue says of a table, whose files are looked for anew."""
        with suppress(BackendError):  # that it is gone is found below
            self._run_command(f"REFRESH TABLE {self.dialect.queries.quote_table_name(name)}")
        found = self._describe_table(name)
        return (
            found if found is None or not found.has_timestamps else self._mask_unknown_timestamps(name, found)
        )

    def _mask_unknown_timestamps(self, name: str, found: TableDescription) -> TableDescription:
        """A table whose moments that are not surely in microseconds have a type that no policy reads."""
        other: frozenset[str] | None = None
        with suppress(BackendError):
            other = self._run_guarded(
                lambda: self._footers.find_other_timestamp_columns(
                    self.dialect.queries.quote_table_name(name)
                )
            )
        return found.with_masked_timestamps(other)

    def _are_unchanged(self, *texts: str) -> bool:
        """Whether the tables that emitted queries read are what they were when the connection was opened.

        Each is looked at once in a snapshot, before the first query that reads it.
        """
        read = [
            name
            for name in self._declared
            if any(self.dialect.queries.quote_table_name(name) in text for text in texts)
        ]
        for name in read:
            if name not in self._unchanged_by_name:
                found = self._refresh_table(name)
                self._unchanged_by_name[name] = (
                    self._initial_tables is None or found == self._initial_tables[name]
                )
        return all(self._unchanged_by_name[name] for name in read)

    def find_origin(self, table: str) -> TableOrigin | None:
        """Whether a name is a table whose files have types; views and other tables are told by their kind."""
        found = self._describe_table(table)
        if found is None:
            return None
        where = found.location or ".".join(
            (self.database_name, *map(normalize_name, split_table_name(table)))
        )
        return TableOrigin(frozenset({where}), found.foreign_sources, collated_columns=found.collated_columns)

    @property
    def is_unchanging(self) -> bool:
        """Never: others write to the tables."""
        return False

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:
        """Whether Spark can plan an emitted statement, and the tables that it reads are what they were at the start.

        What it has planned of these tables it can plan again: the session and its settings are dpsql's own.
        """
        known = hashlib.sha256(
            "\0".join([sql, *(query for _, query in held)]).encode(errors="surrogatepass")
        ).digest()
        with self.open_snapshot():
            if not self._are_unchanged(sql, *(query for _, query in held)):
                return False
            if known in self._planned_statements:
                return True
            made: list[str] = []
            try:
                for name, query in held:
                    self._run_guarded(partial(self._create_view, name, partial(self._session.sql, query)))
                    made.append(name)
                ((plan, *_), *_) = self._run_command(f"EXPLAIN {sql}")
            except BackendError:
                return False
            finally:
                for name in made:
                    self._drop_view(name)
            if str(plan).startswith("Error occurred"):
                return False
            if len(self._planned_statements) >= _PLANNED:
                self._planned_statements.clear()
            self._planned_statements.add(known)
            return True

    def read_public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ((number,),) = self.read_public_rows(sql)[0]
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns, by DuckDB."""
        known = {
            name: columns for name, columns in self._columns.items() if normalize_name(name) in self._public
        }
        with self.open_snapshot():
            self._copies.copy_missing_tables(
                sql,
                {name: select_readable_columns(table) for name, table in known.items()},
                self._read_public_table,
            )
            return self._copies.run_query(sql)

    def can_parse(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement: queries are in its SQL."""
        return self._copies.can_parse(text)

    def lock(self) -> AbstractContextManager[object]:
        """As `Backend.lock`."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Within it, a table is looked at anew once, and a public one is copied once; Spark has no transactions of several tables."""
        if self._in_snapshot:
            yield
            return
        self._copies.drop_copies()
        self._cancelled = False
        self._in_snapshot = True
        self._unchanged_by_name.clear()
        try:
            yield
        finally:
            self._in_snapshot = False

    def run_statement(self, sql: str) -> Exact:
        """The exact rows of the emitted statement, whole numbers as Python's."""
        with self.open_snapshot():
            self._are_unchanged(sql)  # looks for files, where nothing was bound before
            return Exact([tuple(map(_to_exact_value, row)) for row in self._query_rows(sql)])

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Rows that executors keep, under names that no other session has; they are let go at the end.

        They do not know what they were computed from: if one is lost, what reads it fails.
        """
        frames: list[tuple[str, Any]] = []
        with self.open_snapshot():
            self._are_unchanged(*(query for _, query in tables))
            try:
                for name, query in tables:
                    frame = self._run_guarded(partial(self._checkpoint_query, query))
                    frames.append((name, frame))
                    self._run_guarded(partial(self._create_view, name, partial(_return_frame, frame)))
                yield
            finally:
                for name, frame in reversed(frames):
                    self._drop_view(name)
                    self._unpersist_frame(frame)
                frames.clear()

    def interrupt(self) -> None:
        """As `Backend.interrupt`."""
        self._cancelled = True
        with suppress(Exception):  # what has ended cannot be stopped
            if is_remote(self._session):
                self._session.interruptTag(self._tag)
            else:
                self._session.sparkContext.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """Lets the copies go, and ends the application or the session if it is dpsql's own."""
        self._copies.close()
        close_session(self._session, self._owned)

    def _read_public_table(self, table: str, read: Columns) -> list[tuple[Any, ...]]:
        items = (
            ", ".join(
                f"{columns.emit_copied_column(*column)} AS c{place}" for place, column in enumerate(read)
            )
            or "1"
        )
        sql = f"SELECT {items} FROM {self.dialect.queries.quote_table_name(table)}"
        if not self._are_unchanged(sql):
            raise OperationalError(
                "a table of the policy has changed since the connection was opened; nothing was charged",
                code="unbound",
                hint="connect again",
            )
        return self._query_rows(sql)

    def _checkpoint_query(self, query: str) -> Any:
        """The rows of a query, computed now and kept by the executors."""
        frame = self._session.sql(query).localCheckpoint(eager=True)
        if is_remote(self._session):
            # Connect takes the process's active session, which is the owner's, for that of the frame, and would release it there.
            frame._plan._spark_session = self._session  # noqa: SLF001
            frame = type(frame)(frame._plan, self._session)  # noqa: SLF001
        return frame

    def _create_view(self, name: str, get_frame: Callable[[], Any]) -> None:
        """Gives a frame a name of the session."""
        get_frame().createOrReplaceTempView(_get_view_name(name))

    def _drop_view(self, name: str) -> None:
        with suppress(BackendError):
            self._run_guarded(lambda: self._session.catalog.dropTempView(_get_view_name(name)))

    def _unpersist_frame(self, frame: Any) -> None:
        """Lets the executors drop rows at once; those of Connect go with the frame."""
        if not is_remote(self._session):
            with suppress(Exception):  # they go when the frame does
                frame._jdf.logicalPlan().rdd().unpersist(False)  # noqa: SLF001

    def _query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, which come as Arrow."""

        def fetch_rows() -> list[tuple[Any, ...]]:
            table = self._session.sql(sql).toArrow()
            return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

        return self._run_guarded(fetch_rows)

    def _run_command(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a command, which the driver has: fetched without a job, they come in a third of the time."""
        return self._run_guarded(lambda: [tuple(row) for row in self._session.sql(sql).collect()])

    def _run_guarded(self, work: Callable[[], _T]) -> _T:
        """What is done with the session; a failure has constant text, and says nothing of what Spark said."""
        failed: BaseException | None = None
        try:
            with disable_error_log():
                # By the tag of its jobs another thread can stop them; tags of a classic session are of one thread alone.
                tags = self._session if is_remote(self._session) else self._session.sparkContext
                add, remove = (
                    (tags.addTag, tags.removeTag)
                    if tags is self._session
                    else (tags.addJobTag, tags.removeJobTag)
                )
                add(self._tag)
                try:
                    return work()
                finally:
                    remove(self._tag)
        except KeyboardInterrupt:
            raise
        except Exception:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            failed = self._make_failure()
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise failed

    def _make_failure(self) -> BaseException:
        if not self._cancelled:
            return BackendError()
        return OperationalError("the query was cancelled while it ran; any charge stands", code="cancelled")


def _return_frame(frame: Any) -> Any:
    return frame


def _get_view_name(name: str) -> str:
    """The name of a temporary view, as emitted SQL has it in double quotes."""
    return f"`{name[1:-1]}`"


def _has_unique_name(column: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Whether no other column has this name in another case, by the rules of Unicode, as Spark compares them."""
    return sum(name.lower() == column.lower() for name, _ in columns) == 1


def _to_exact_value(value: Any) -> Any:
    """A value of a statement: what is a DECIMAL is a whole number, and an array a list of them."""
    if isinstance(value, Decimal):
        return int(value)
    return list(map(_to_exact_value, value)) if isinstance(value, list) else value
