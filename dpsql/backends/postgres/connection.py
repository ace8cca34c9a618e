"""PostgreSQL: the private tables of a database server, by psycopg."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dpsql.backends.base import Exact, Origin, Place, Tables
from dpsql.backends.declared_keys import table_keys
from dpsql.backends.dialect import Dialect
from dpsql.backends.postgres import catalogue, columns
from dpsql.backends.postgres.checks import condition
from dpsql.backends.postgres.dialect import POSTGRES, SCHEMA
from dpsql.backends.postgres.settings import pinning
from dpsql.backends.postgres.types import engine_type
from dpsql.backends.public_copies import Columns, PublicCopies, readable
from dpsql.backends.quoting import identifier
from dpsql.errors import BackendError, OperationalError, PolicyError
from dpsql.ledger.identity import POSTGRES as IDENTITY
from dpsql.policy import fold, table_parts
from dpsql.policy.decisions import TableKeys

OLDEST = 15
"""The oldest version that was reviewed; none newer than `NEWEST` is taken."""
NEWEST = 17
TIMEOUT = 600
"""Seconds that a statement may take."""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
_KINDS = MappingProxyType({"v": "a view", "m": "a materialized view", "f": "a foreign table"})


class PostgresBackend:
    """A database of PostgreSQL, read in one repeatable-read, read-only transaction a query.

    `public` are the names of the public tables of the policy, which are copied where they are looked up or shown; `private`
    those of the private ones. A role that may do more than read these is warned about, unless `warns` is false, for a look at the
    schema before there is a policy. A statement takes at most `timeout`
    seconds. Raises OperationalError where the server cannot be reached, lets nobody in, or is not one whose behaviour was reviewed.
    """

    name = "postgresql"
    dialect: Dialect = POSTGRES

    def __init__(
        self,
        url: str,
        *,
        public: Sequence[str] = (),
        private: Sequence[str] = (),
        timeout: int = TIMEOUT,
        warns: bool = True,
    ) -> None:
        self._url, self._timeout = url, timeout
        self._public, self._declared = frozenset(map(fold, public)), (*public, *private)
        self._alone = threading.RLock()
        self._inside = self._cancelled = False
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._marks: object = None
        self._unchanged = True
        self._connection, self._copies = _connected(url), PublicCopies()
        try:
            self._answered("SET statement_timeout = 0")  # a role's own would end what sets the others
            ((self.database, number, encoding, self._oid, *powers),) = self._look(catalogue.SERVER)
            self.version = f"{number // 10_000}.{number % 10_000}"
            _require_version(number // 10_000, encoding)
            if warns:
                self._warn(powers)
        except BaseException:
            self._connection.close()
            raise

    @cached_property
    def place(self) -> Place | None:
        """The server's own number and the database's: a copy of the server has both, so its address is in the mark.

        Raises PolicyError where the role may not read the server's number, and the policy has no name.
        """
        try:
            ((system, timeline),) = self._look(catalogue.IDENTITY)
        except BackendError:
            system = None
        if system is None:
            raise PolicyError(
                "the server does not say which one it is",
                code="no_identity",
                hint="name the database in the policy, `database: NAME`; or GRANT EXECUTE ON FUNCTION pg_control_system, "
                "pg_control_checkpoint",
            )
        info = self._connection.info
        identity = f"{IDENTITY}{system}/{self._oid}"
        return Place(identity, f"{identity} {timeline} {info.host}:{info.port}")

    def schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each table's columns with their engine types, from the catalogue; of what two names differ in case, none.

        Raises PolicyError for a table that the policy spells in another case, which is another table here.
        """
        self._marks = None
        with self.snapshot():
            self._columns = self._known_columns()
            self._marks = self._definitions(self._columns)
        spelt = {fold(name): name for name in self._columns}
        for name in self._declared:
            if spelt.get(fold(name), name) != name:
                raise PolicyError(
                    f"tables.{name}: the database calls it {spelt[fold(name)]}, and PostgreSQL tells them apart",
                    code="table_missing",
                    hint="spell it as the database does",
                )
        return self._columns

    def _known_columns(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, name, kind, unread, members in self._answered(catalogue.SCHEMA):
            known = unread or engine_type(name, kind, members)
            found.setdefault(_called(schema, table), []).append((column, known))
        alike = [fold(name) for name in found]
        return {
            name: [(column, kind) for column, kind in columns if _alone(column, columns)]
            for name, columns in found.items()
            if alike.count(fold(name)) == 1
        }

    def _definitions(self, columns: Mapping[str, Sequence[tuple[str, str]]]) -> object:
        """What the declared tables are: their columns, and the relations behind their names."""
        return [
            (columns.get(name), self._relations(name), self._answered(catalogue.DECLARED, _place(name)))
            for name in self._declared
        ]

    def _relations(self, table: str) -> list[tuple[Any, ...]]:
        with self.snapshot():
            return sorted(self._answered(catalogue.RELATION, _place(table)))

    def origin(self, table: str) -> Origin | None:
        """Whether a name is a table, with all that inherits from it; views and foreign tables are told by their kind."""
        rows = self._relations(table)
        if not rows:
            return None
        foreign = [_KINDS[kind] for _, kind, *_ in rows if kind in _KINDS]
        foreign += ["a table with row security" for _, _, secured, *_ in rows if secured]
        foreign += ["storage of an extension" for _, _, _, method, _ in rows if method != "heap"]
        declared = self._look(catalogue.DECLARED, _place(table))
        tables = frozenset(str(oid) for oid, *_ in rows)
        checks = tuple(condition(str(text)) for (text,) in self._look(catalogue.CHECKS, _place(table)))
        # One from which others inherit shows their rows, too, as a view would.
        return Origin(
            tables,
            tuple(dict.fromkeys(foreign)),
            stored=len(rows) == 1,
            required=frozenset(str(column) for column, present, _ in declared if present),
            checks=checks,
            collated=frozenset(str(column) for column, _, collated in declared if collated),
        )

    def keys(self) -> dict[str, TableKeys]:
        """The primary and foreign keys that each table declares, from the catalogue."""
        return table_keys(self._look(catalogue.KEYS), _called)

    @property
    def unchanging(self) -> bool:
        """Never: others write to the database."""
        return False

    def binds(self, sql: str, held: Tables = ()) -> bool:  # noqa: ARG002
        """Whether PostgreSQL can plan an emitted statement, and the declared tables are what they were at the start.

        Planning looks at the role's rights, too.
        """
        with self.snapshot():
            if not self._unchanged:
                return False
            try:
                self._look(f"EXPLAIN (COSTS OFF) {sql}")
            except BackendError:
                return False
            return True

    def public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ((number,),) = self.public_rows(sql)[0]
        return int(number)

    def public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns, by DuckDB."""
        known = {name: columns for name, columns in self._columns.items() if fold(name) in self._public}
        with self.snapshot():
            if not self._unchanged:
                raise OperationalError(
                    "a table of the policy has changed since the connection was opened; nothing was charged",
                    code="unbound",
                    hint="connect again",
                )
            self._copies.require(
                sql, {name: readable(columns) for name, columns in known.items()}, self._rows
            )
            return self._copies.query(sql)

    def parses(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement: queries are in its SQL."""
        return self._copies.parses(text)

    def alone(self) -> AbstractContextManager[object]:
        """As `Backend.alone`."""
        return self._alone

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A repeatable-read, read-only transaction, or the one that is open; public tables are copied within it anew."""
        if self._inside:
            yield
            return
        self._copies.clear()
        self._cancelled = False
        self._answered(_BEGIN + pinning(self._timeout))
        self._inside = True
        try:
            self._unchanged = self._is_unchanged()
            yield
        finally:
            self._inside = False
            self._quietly("ROLLBACK")

    def run(self, sql: str) -> Exact:
        """The exact rows of the emitted statement, whole numbers as Python's."""
        with self.snapshot():
            return Exact([tuple(map(_exact, row)) for row in self._answered(sql)])

    def _is_unchanged(self) -> bool:
        """Whether the declared tables are what they were when the connection was opened.

        They are locked before the first look, with which the snapshot of the transaction begins: so what is looked at is
        what is read, and nobody can put something else behind a name meanwhile. A lock excludes changes of a table alone,
        and is waited for at most as long as `settings` say.
        """
        if self._marks is None:
            return True
        tables = ", ".join(self.dialect.table_name(name) for name in self._declared)
        try:
            if tables:
                self._answered(f"LOCK TABLE {tables} IN ACCESS SHARE MODE")
            return self._definitions(self._known_columns()) == self._marks
        except BackendError:
            self._quietly("ROLLBACK")
            self._answered(_BEGIN + pinning(self._timeout))
            return False

    @contextmanager
    def staged(self, tables: Tables) -> Iterator[None]:
        """Never used: a read-only transaction has no temporary tables."""
        if tables:
            raise BackendError
        yield

    def interrupt(self) -> None:
        """As `Backend.interrupt`."""
        self._cancelled = True
        self._connection.cancel()

    def close(self) -> None:
        """Closes the connection and lets the copies go."""
        self._connection.close()
        self._copies.close()

    def _rows(self, table: str, read: Columns) -> list[tuple[Any, ...]]:
        items = ", ".join(columns.copied(*column) for column in read) or "1"
        return self._answered(f"SELECT {items} FROM {self.dialect.table_name(table)}")

    def _look(self, sql: str, parameters: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query of the catalogue; one that fails within a transaction does not end it."""
        if not self._inside:
            with self.snapshot():
                return self._answered(sql, parameters)
        self._answered("SAVEPOINT looked")
        try:
            rows = self._answered(sql, parameters)
        except BackendError:
            self._quietly("ROLLBACK TO SAVEPOINT looked")
            raise
        self._answered("RELEASE SAVEPOINT looked")
        return rows

    def _answered(self, sql: str, parameters: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
        failed: BaseException | None = None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql.encode(), parameters)
                return cursor.fetchall() if cursor.description else []
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

    def _quietly(self, sql: str) -> None:
        with suppress(Exception):  # the next statement says that the connection is lost
            self._connection.execute(sql.encode())

    def _warn(self, powers: Sequence[bool]) -> None:
        """Warns of a role that may do more than read the declared tables: dpsql needs nothing else."""
        superuser, powerful = powers
        if superuser or powerful:
            _warned("is a superuser, or may create roles or databases, replicate or bypass row security")
            return
        names = {(schema or SCHEMA, table) for schema, table in map(table_parts, self._declared)}
        folded = {(fold(schema), fold(table)) for schema, table in names}
        writable = [".".join(name) for name in self._look(catalogue.WRITABLE)]
        others = [
            f"{schema}.{table}"
            for schema, table in self._look(catalogue.READABLE)
            if (fold(schema), fold(table)) not in folded
        ]
        if writable:
            _warned(f"may change {', '.join(writable[:5])}")
        if others:
            _warned(f"may read tables that the policy does not declare: {', '.join(others[:5])}")


def _called(schema: str, table: str) -> str:
    """The name of a table as policies have it."""
    plain = identifier(table) if "." in table else table
    return plain if schema == SCHEMA else f"{schema}.{plain}"


def _place(table: str) -> tuple[str, str]:
    """The schema and the name of a declared table."""
    schema, name = table_parts(table)
    return schema or SCHEMA, name


def _connected(url: str) -> Any:
    """A connection; one clear sentence where the driver is missing or the server does not answer."""
    try:
        import psycopg
    except ImportError:
        raise OperationalError(
            "PostgreSQL is read by psycopg, which is not installed",
            code="driver_missing",
            hint="pip install 'dpsql[postgres]'",
        ) from None
    reason = ""
    try:
        return psycopg.connect(
            url, autocommit=True, client_encoding="UTF8", prepare_threshold=None, application_name="dpsql"
        )
    except (psycopg.Error, UnicodeError, ValueError) as error:
        reason = type(error).__name__
    raise OperationalError(
        f"the PostgreSQL server cannot be reached, or refuses this URL ({reason})",
        code="no_database",
        hint="does psql open the same URL?",
    )


def _require_version(major: int, encoding: str) -> None:
    if not OLDEST <= major <= NEWEST:
        raise OperationalError(
            f"PostgreSQL {major} was not reviewed: arithmetic, casts and settings are known of {OLDEST} to {NEWEST}",
            code="engine_version",
        )
    if encoding != "UTF8":
        raise OperationalError(
            f"the database's encoding is {encoding}: its texts are not compared and read as UTF-8",
            code="encoding",
            hint="copy it into a database with ENCODING 'UTF8'",
        )


def _warned(what: str) -> None:
    warnings.warn(
        f"the PostgreSQL role {what}; one with SELECT on the declared tables alone is enough", stacklevel=6
    )


def _alone(column: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Whether no other column has this name in another case: policies know no case."""
    return sum(fold(name) == fold(column) for name, _ in columns) == 1


def _exact(value: Any) -> Any:
    """A value of a statement: what is NUMERIC is a whole number, and an array a list of them."""
    if isinstance(value, Decimal):
        return int(value)
    return list(map(_exact, value)) if isinstance(value, list) else value
