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

from dpsql.backends.base import Exact, Origin, Place, Tables
from dpsql.backends.dialect import Dialect
from dpsql.backends.public_copies import Columns, PublicCopies, readable
from dpsql.backends.quoting import identifier
from dpsql.backends.spark import columns
from dpsql.backends.spark.dialect import SparkDialect
from dpsql.backends.spark.footers import Footers
from dpsql.backends.spark.session import end, is_remote, opened, pin, quiet
from dpsql.backends.spark.tables import Described
from dpsql.backends.spark.types import engine_type
from dpsql.errors import BackendError, OperationalError
from dpsql.ledger.identity import SPARK as IDENTITY
from dpsql.policy import fold, table_parts

_PLANNED = 1000
"""How many statements are known at most to be planned; beyond, all are forgotten."""

_T = TypeVar("_T")


class SparkBackend:
    """Tables of the catalogue of a Spark session.

    `database` is a URL or a session; statements run in a session of their own, beside it. `public` are the names of the
    public tables of the policy, which are copied where they are looked up or shown; `private` those of the private ones.

    Claim: all that a release reads of contributions is read of the same rows, whatever happens meanwhile.
    Why: contributions that a statement reads more than once are computed once, and their rows are kept by the executors,
    without what they were computed from: a task that is tried again reads the same rows, and where these are lost it fails.
    What they are computed from is deterministic over files that are not changed in place.
    Source: Zaharia et al. 2012, "Resilient distributed datasets", section 2.1 (lineage) and 5.4 (checkpoints).
    """

    name = "spark"

    def __init__(self, database: Any, *, public: Sequence[str] = (), private: Sequence[str] = ()) -> None:
        self._session, self._owned = opened(database)
        self._public, self._declared = frozenset(map(fold, public)), (*public, *private)
        self._alone = threading.RLock()
        self._inside = self._cancelled = False
        self._looked: dict[str, bool] = {}
        self._tag = f"dpsql-{secrets.token_hex(8)}"
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._marks: dict[str, Described | None] | None = None
        self._planned: set[bytes] = set()
        self._copies = PublicCopies()
        try:
            self.version = str(self._session.version)
            self._guarded(lambda: pin(self._session))
            # Tables without a schema are those of where the owner's session is.
            at = self._session if isinstance(database, str) else database
            self.database, self._schema = self._guarded(
                lambda: (str(at.catalog.currentCatalog()), str(at.catalog.currentDatabase()))
            )
            self.dialect: Dialect = SparkDialect(self.database, self._schema)
            self._random = secrets.token_hex(16)
            self._footers = Footers(self._session)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> Place | None:
        """The catalogue and where the schema lies: not surely one database, so that only a name in the policy says so."""
        where = f"{self.database}.{self._schema}"
        rows = self._command(
            f"DESCRIBE SCHEMA EXTENDED {identifier(self.database)}.{identifier(self._schema)}"
        )
        lies = next((str(value) for name, value in rows if name == "Location"), "")
        return Place(f"{IDENTITY}{where} {lies}", f"{IDENTITY}{where} {lies} {self._random}")

    def schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each declared table's columns with their engine types; without a declared table, those of the current schema.

        Of columns whose names Spark takes for one, none.
        """
        self._marks = None
        self._planned.clear()
        with self.snapshot():
            found = {name: self._found_anew(name) for name in self._declared or self._all_tables()}
            self._marks = found
        self._columns = {
            name: [
                (column, engine_type(kind)) for column, kind in table.columns if _alone(column, table.columns)
            ]
            for name, table in found.items()
            if table is not None
        }
        return self._columns

    def _all_tables(self) -> list[str]:
        where = f"{identifier(self.database)}.{identifier(self._schema)}"
        return [str(row[1]) for row in self._command(f"SHOW TABLES IN {where}") if not row[2]]

    def _described(self, name: str) -> Described | None:
        """What the catalogue says of a table, None where there is none."""
        try:
            rows = self._command(f"DESCRIBE TABLE EXTENDED {self.dialect.table_name(name)}")
        except BackendError:
            return None
        return Described.of((str(name or ""), str(kind or "")) for name, kind, *_ in rows)

    def _found_anew(self, name: str) -> Described | None:
        """What the catalogue says of a table, whose files are looked for anew."""
        with suppress(BackendError):  # that it is gone is found below
            self._command(f"REFRESH TABLE {self.dialect.table_name(name)}")
        found = self._described(name)
        return found if found is None or not found.has_moments else self._with_units(name, found)

    def _with_units(self, name: str, found: Described) -> Described:
        """A table whose moments that are not surely in microseconds have a type that no policy reads."""
        other: frozenset[str] | None = None
        with suppress(BackendError):
            other = self._guarded(lambda: self._footers.not_in_microseconds(self.dialect.table_name(name)))
        return found.without_moments(other)

    def _are_unchanged(self, *texts: str) -> bool:
        """Whether the tables that emitted queries read are what they were when the connection was opened.

        Each is looked at once in a snapshot, before the first query that reads it.
        """
        read = [
            name for name in self._declared if any(self.dialect.table_name(name) in text for text in texts)
        ]
        for name in read:
            if name not in self._looked:
                found = self._found_anew(name)
                self._looked[name] = self._marks is None or found == self._marks[name]
        return all(self._looked[name] for name in read)

    def origin(self, table: str) -> Origin | None:
        """Whether a name is a table whose files have types; views and other tables are told by their kind."""
        found = self._described(table)
        if found is None:
            return None
        where = found.location or ".".join((self.database, *map(fold, table_parts(table))))
        return Origin(frozenset({where}), found.foreign, collated=found.collated)

    @property
    def unchanging(self) -> bool:
        """Never: others write to the tables."""
        return False

    def binds(self, sql: str, held: Tables = ()) -> bool:
        """Whether Spark can plan an emitted statement, and the tables that it reads are what they were at the start.

        What it has planned of these tables it can plan again: the session and its settings are dpsql's own.
        """
        known = hashlib.sha256(
            "\0".join([sql, *(query for _, query in held)]).encode(errors="surrogatepass")
        ).digest()
        with self.snapshot():
            if not self._are_unchanged(sql, *(query for _, query in held)):
                return False
            if known in self._planned:
                return True
            made: list[str] = []
            try:
                for name, query in held:
                    self._guarded(partial(self._name, name, partial(self._session.sql, query)))
                    made.append(name)
                ((plan, *_), *_) = self._command(f"EXPLAIN {sql}")
            except BackendError:
                return False
            finally:
                for name in made:
                    self._forget(name)
            if str(plan).startswith("Error occurred"):
                return False
            if len(self._planned) >= _PLANNED:
                self._planned.clear()
            self._planned.add(known)
            return True

    def public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ((number,),) = self.public_rows(sql)[0]
        return int(number)

    def public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns, by DuckDB."""
        known = {name: columns for name, columns in self._columns.items() if fold(name) in self._public}
        with self.snapshot():
            self._copies.require(sql, {name: readable(table) for name, table in known.items()}, self._rows)
            return self._copies.query(sql)

    def parses(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement: queries are in its SQL."""
        return self._copies.parses(text)

    def alone(self) -> AbstractContextManager[object]:
        """As `Backend.alone`."""
        return self._alone

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within it, a table is looked at anew once, and a public one is copied once; Spark has no transactions of several tables."""
        if self._inside:
            yield
            return
        self._copies.clear()
        self._cancelled = False
        self._inside = True
        self._looked.clear()
        try:
            yield
        finally:
            self._inside = False

    def run(self, sql: str) -> Exact:
        """The exact rows of the emitted statement, whole numbers as Python's."""
        with self.snapshot():
            self._are_unchanged(sql)  # looks for files, where nothing was bound before
            return Exact([tuple(map(_exact, row)) for row in self._answered(sql)])

    @contextmanager
    def staged(self, tables: Tables) -> Iterator[None]:
        """Rows that executors keep, under names that no other session has; they are let go at the end.

        They do not know what they were computed from: if one is lost, what reads it fails.
        """
        frames: list[tuple[str, Any]] = []
        with self.snapshot():
            self._are_unchanged(*(query for _, query in tables))
            try:
                for name, query in tables:
                    frame = self._guarded(partial(self._checkpoint, query))
                    frames.append((name, frame))
                    self._guarded(partial(self._name, name, partial(_same, frame)))
                yield
            finally:
                for name, frame in reversed(frames):
                    self._forget(name)
                    self._release(frame)
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
        end(self._session, self._owned)

    def _rows(self, table: str, read: Columns) -> list[tuple[Any, ...]]:
        items = (
            ", ".join(f"{columns.copied(*column)} AS c{place}" for place, column in enumerate(read)) or "1"
        )
        sql = f"SELECT {items} FROM {self.dialect.table_name(table)}"
        if not self._are_unchanged(sql):
            raise OperationalError(
                "a table of the policy has changed since the connection was opened; nothing was charged",
                code="unbound",
                hint="connect again",
            )
        return self._answered(sql)

    def _checkpoint(self, query: str) -> Any:
        """The rows of a query, computed now and kept by the executors."""
        frame = self._session.sql(query).localCheckpoint(eager=True)
        if is_remote(self._session):
            # Connect takes the process's active session, which is the owner's, for that of the frame, and would release it there.
            frame._plan._spark_session = self._session  # noqa: SLF001
            frame = type(frame)(frame._plan, self._session)  # noqa: SLF001
        return frame

    def _name(self, name: str, made: Callable[[], Any]) -> None:
        """Gives a frame a name of the session."""
        made().createOrReplaceTempView(_view(name))

    def _forget(self, name: str) -> None:
        with suppress(BackendError):
            self._guarded(lambda: self._session.catalog.dropTempView(_view(name)))

    def _release(self, frame: Any) -> None:
        """Lets the executors drop rows at once; those of Connect go with the frame."""
        if not is_remote(self._session):
            with suppress(Exception):  # they go when the frame does
                frame._jdf.logicalPlan().rdd().unpersist(False)  # noqa: SLF001

    def _answered(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, which come as Arrow."""

        def fetched() -> list[tuple[Any, ...]]:
            table = self._session.sql(sql).toArrow()
            return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

        return self._guarded(fetched)

    def _command(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a command, which the driver has: fetched without a job, they come in a third of the time."""
        return self._guarded(lambda: [tuple(row) for row in self._session.sql(sql).collect()])

    def _guarded(self, work: Callable[[], _T]) -> _T:
        """What is done with the session; a failure has constant text, and says nothing of what Spark said."""
        failed: BaseException | None = None
        try:
            with quiet():
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
            failed = self._failure()
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise failed

    def _failure(self) -> BaseException:
        if not self._cancelled:
            return BackendError()
        return OperationalError(
            "the query was cancelled while it ran; what was charged stays charged", code="cancelled"
        )


def _same(frame: Any) -> Any:
    return frame


def _view(name: str) -> str:
    """The name of a temporary view, as emitted SQL has it in double quotes."""
    return f"`{name[1:-1]}`"


def _alone(column: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Whether no other column has this name in another case, by the rules of Unicode, as Spark compares them."""
    return sum(name.lower() == column.lower() for name, _ in columns) == 1


def _exact(value: Any) -> Any:
    """A value of a statement: what is a DECIMAL is a whole number, and an array a list of them."""
    if isinstance(value, Decimal):
        return int(value)
    return list(map(_exact, value)) if isinstance(value, list) else value
