"""A ledger in PostgreSQL, for deployments that share one: row locks, and commits that are durable on the server."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from dpsql.errors import DatabaseError, IntegrityError, NotSupportedError, OperationalError, ProgrammingError
from dpsql.ledger.stores.base import UNKNOWN
from dpsql.version import write_pip_command

PATIENCE = 60
_MAKING = 0x6470_7371_6C  # the advisory lock while the tables do not exist
_BEGIN_WRITING = (
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",  # so that reads under the lock see the newest rows
    "SET LOCAL synchronous_commit = on",
    f"SET LOCAL lock_timeout = '{PATIENCE}s'",
)
_TABLES = (
    "SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.to_regnamespace(current_schema()::text)"
    " AND relkind IN ('r', 'p', 'v', 'm', 'f') LIMIT 1"
)


class PostgresStore:
    """A `Store`: the database and schema that a URL `postgresql://user@host/name` leads to.

    Claim: a charge is made on the newest totals, and is durable when it returns.
    Why: each writer first locks one row, the ledger's description, by SELECT … FOR UPDATE, and holds it until its
    commit; at READ COMMITTED what it reads after that is all that earlier writers committed. `synchronous_commit` is
    on in its transaction whatever the server's default is, and a server that runs without fsync is refused.
    Source: the PostgreSQL manual, chapters 13.2.1, 13.3.2 and 20.5.

    A connection that was lost is opened again at the next use. After a fork the child opens its own.
    """

    def __init__(self, url: str) -> None:
        try:
            target = make_url(url)
            self.where = target.set(query={}).render_as_string(hide_password=True)
            self._engine = create_engine(
                target.set(drivername="postgresql+psycopg"),
                pool_size=1,
                max_overflow=16,
                pool_pre_ping=True,
                connect_args={"connect_timeout": PATIENCE, "application_name": "dpsql"},
            )
        except ImportError:
            raise NotSupportedError(
                "a ledger in PostgreSQL needs the package psycopg, which is not installed",
                code="ledger_target",
                hint=f"install it: {write_pip_command('postgres')}",
            ) from None
        except (ArgumentError, NoSuchModuleError, ValueError):
            raise OperationalError(
                "the URL of the ledger is not valid",
                code="ledger_unavailable",
                hint="write it as postgresql://user@host/name",
            ) from None
        self.patience: float = PATIENCE
        self._lock = threading.RLock()
        self._made = False
        _STORES.add(self)

    def lock(self) -> AbstractContextManager[object]:
        """See `Store.lock`, for this object alone: the server holds out the others."""
        return self._lock

    @contextmanager
    def open_connection(self) -> Iterator[Connection]:
        """See `Store.open_connection`."""
        with _translate_errors(self.where), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def open_transaction(self, *, write: bool) -> Iterator[Connection]:
        """See `Store.open_transaction`; OperationalError (`ledger_unknown`) where the connection is lost amid the commit."""
        with _translate_errors(self.where), self._engine.connect() as connection:
            transaction = connection.begin()
            if write:
                self._lock_out_others(connection)
            else:
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield connection
            try:
                transaction.commit()
            except DBAPIError as error:
                if not write or not _is_lost(error):
                    raise
                raise OperationalError(
                    f"the connection to the ledger {self.where} was lost during a commit, so the charge may have been stored",
                    code=UNKNOWN,
                    hint="nothing was answered; check the ledger's last entries before you run the query again",
                ) from None

    def _lock_out_others(self, connection: Connection) -> None:
        for setting in _BEGIN_WRITING:
            connection.exec_driver_sql(setting)
        if not self._made:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MAKING})")
            self._made = bool(self.list_columns(connection, "meta"))
        if self._made:
            connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'format' FOR UPDATE")

    def configure_database(self, connection: Connection) -> None:
        """See `Store.configure_database`: refuses a server that forgets what it committed."""
        if connection.exec_driver_sql("SHOW fsync").scalar_one() != "on":
            raise OperationalError(
                f"the PostgreSQL server of the ledger {self.where} runs with fsync off, so it could lose charges",
                code="ledger_unavailable",
                hint="set `fsync = on` in its postgresql.conf",
            )

    def is_empty(self, connection: Connection) -> bool:
        """See `Store.is_empty`, of the schema that comes first in the search path."""
        return not connection.exec_driver_sql(_TABLES).all()

    def list_columns(self, connection: Connection, table: str) -> frozenset[str]:
        """See `Store.list_columns`."""
        found = connection.exec_driver_sql(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = %(table)s",
            {"table": table},
        )
        return frozenset(map(str, found.scalars()))

    def require_owner(self) -> None:
        """See `Store.require_owner`: a child opens its own connection."""

    def close(self) -> None:
        """See `Store.close`."""
        self._engine.dispose()

    def abandon(self) -> None:
        """See `Store.abandon`."""
        self._engine.dispose()

    def reset_after_fork(self) -> None:
        """Forget the parent's connections in the child of a fork; they stay open for the parent."""
        self._lock = threading.RLock()
        self._engine.dispose(close=False)


_STORES: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _reset_stores() -> None:
    for store in tuple(_STORES):
        store.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_stores)


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Turn what psycopg and SQLAlchemy raise into dpsql's errors."""
    try:
        yield
    except DBAPIError as error:
        raise _to_ledger_error(error, where) from None
    except (SQLAlchemyError, OSError):
        raise _make_unavailable_error(where) from None


def _is_lost(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or state is None or state[:3] == "57P" or state[:2] == "08"


def _to_ledger_error(error: DBAPIError, where: str) -> DatabaseError:
    import psycopg

    state = getattr(error.orig, "sqlstate", None) or ""
    if state in _STATES:
        text, code, hint = _STATES[state]
        return OperationalError(f"the ledger {where} {text}", code=code, hint=hint)
    if isinstance(error.orig, psycopg.DataError):
        return ProgrammingError("the text holds a NUL character, which PostgreSQL cannot store", code="text")
    if _is_lost(error) or state[:2] in {"28", "3D", "53"}:
        return _make_unavailable_error(where)
    return IntegrityError(
        f"the ledger {where} is damaged", code="ledger_corrupt", hint="restore the newest backup"
    )


def _make_unavailable_error(where: str) -> OperationalError:
    return OperationalError(
        f"the PostgreSQL server of the ledger {where} cannot be reached",
        code="ledger_unavailable",
        hint="nothing was charged; check that the server runs and accepts this user, and try again",
    )


_BUSY = ("was locked by another program for too long", "ledger_busy", "nothing was charged; try again")
_DENIED = ("cannot be written", "ledger_unavailable", "allow this user to create and write its tables")
_STATES = {
    "55P03": _BUSY,
    "40001": _BUSY,
    "40P01": _BUSY,
    "57014": _BUSY,
    "25006": _DENIED,
    "42501": _DENIED,
    "3F000": (
        "has no schema for its tables",
        "ledger_unavailable",
        "create the schema that the search path names",
    ),
}
