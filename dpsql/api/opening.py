"""Open the parts of a connection: addresses of databases and servers, the database, the shared or own ledger, the engine."""

from __future__ import annotations

import getpass
import platform
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from dpsql.api.arguments import OwnerOptions
from dpsql.errors import Error, InterfaceError, PolicyError, ProgrammingError

if TYPE_CHECKING:
    from dpsql.backends import Backend
    from dpsql.engine.engine import Engine
    from dpsql.ledger import Ledger, LedgerHead
    from dpsql.policy import Policy


# A ledger that connections of several threads share, so that their charges are committed together.


class SharedLedger:
    """A ledger for `connect(…, ledger=…)` that any number of connections of one process share.

    Charges that wait while another one is committed go into the next transaction together (*group commit*). Each is checked
    against those before it, and no query continues before its charge is durable. Connections that each open the ledger's file
    themselves take turns instead.

    The first connection opens the ledger. `close`, or the end of a `with` block, closes it; connections that share it leave it
    open.

    Args:
        target: The file of the ledger, as for `connect`.
        policy: The policy, as for `connect`.
        analysts: The analysts who will query, for a policy that gives budgets to analysts whom it does not list.
        anchor: As for `connect`.
        ledger_key: As for `connect`.

    >>> policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1},
    ...           "tables": {"people": {"unit": "row"}}}
    >>> import dpsql, pyarrow
    >>> with dpsql.SharedLedger(":memory:", policy=policy) as ledger:
    ...     for _ in range(2):
    ...         con = dpsql.connect({"people": pyarrow.table({"age": [30]})}, policy=policy, ledger=ledger)
    ...         _ = con.query("SELECT COUNT(*) FROM people", epsilon=0.25)
    ...         con.close()
    """

    def __init__(
        self,
        target: str | Path,
        *,
        policy: Any,
        analysts: Iterable[str] = (),
        anchor: LedgerHead | str | Path | None = None,
        ledger_key: bytes | str | Path | None = None,
    ) -> None:
        from dpsql.policy import load

        self.target, self._anchor, self._key = target, anchor, ledger_key
        self._policy = load(policy)
        self._analysts = (*self._policy.analysts, *map(self._policy.resolve_analyst_name, analysts))
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._database: str | None = None
        self._closed = False

    def open_for_connection(self, policy: Policy, analyst: str, database: str | None) -> Ledger:
        """Return the open ledger for an analyst's connection to a database.

        Raises:
            ProgrammingError: (`shared_ledger`) if the connection has another policy, or the ledger was opened without the
                analyst's budget.
            PolicyError: (`another_database`) if the first connection was to another database.
        """
        from dpsql.engine.budgets import collect_budgets

        if policy.compute_digest() != self._policy.compute_digest():
            raise ProgrammingError(
                "the shared ledger was opened for another policy",
                code="shared_ledger",
                hint="open one for each policy",
            )
        if not collect_budgets(policy, [analyst]).keys() <= collect_budgets(policy, self._analysts).keys():
            raise ProgrammingError(
                f"the shared ledger was opened without the budget of the analyst {analyst!r}",
                code="shared_ledger",
                hint="list all analysts: SharedLedger(…, analysts=[…])",
            )
        with self._lock:
            if self._closed:
                raise InterfaceError("the ledger is closed", code="ledger_closed")
            if self._ledger is None:
                self._ledger, self._database = self._open_ledger(database), database
            elif database != self._database:
                raise PolicyError(
                    "the shared ledger was opened for another database",
                    code="another_database",
                    hint="open one for each database",
                )
            return self._ledger

    def _open_ledger(self, database: str | None) -> Ledger:
        from dpsql.engine.budgets import collect_budgets
        from dpsql.ledger import open_ledger

        return open_ledger(
            self.target,
            collect_budgets(self._policy, self._analysts),
            anchor=self._anchor,
            key=self._key,
            database=database,
            max_failures=self._policy.get_failure_limits(),
        )

    def close(self) -> None:
        """Close the ledger; connections that share it can no longer query."""
        with self._lock:
            self._closed = True
            if self._ledger is not None:
                self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# The kinds of databases that `connect` takes.


def is_database_url(database: Any) -> TypeGuard[str]:
    """Return whether a database argument is the URL of a PostgreSQL database.

    >>> is_database_url("postgresql://reader@db.example.org/clinic"), is_database_url("hospital.duckdb")
    (True, False)
    """
    return isinstance(database, str) and database.startswith(("postgresql://", "postgres://"))


def is_spark(database: Any) -> bool:
    """Return whether a database argument is the URL of a Spark cluster or of Spark Connect, or a Spark session.

    >>> is_spark("sc://spark.example.org:15002"), is_spark("spark://master:7077"), is_spark("hospital.duckdb")
    (True, True, False)
    """
    if isinstance(database, str):
        return database.startswith(("spark://", "sc://"))
    kind = type(database)
    return kind.__name__ == "SparkSession" and kind.__module__.startswith("pyspark.")


def is_chdb(database: Any) -> bool:
    """Return whether a database argument is the URL of a folder of chdb, or an open connection of chdb.

    >>> is_chdb("chdb:///srv/clinic"), is_chdb("hospital.duckdb")
    (True, False)
    """
    if isinstance(database, str):
        return database.startswith("chdb://")
    kind = type(database)
    return kind.__name__ == "Connection" and kind.__module__.startswith("chdb.")


def is_server(database: Any) -> bool:
    """Return whether a database argument is of an engine other than DuckDB: see `open_server`.

    >>> is_server("chdb:///srv/clinic"), is_server("hospital.duckdb")
    (True, False)
    """
    return is_database_url(database) or is_spark(database) or is_chdb(database)


# The parts of a connection in this process: the database, the ledger beside a policy, and the engine over both.


OpenBackend = Callable[["Policy", OwnerOptions], "Backend"]
"""Open the database under a policy."""


def open_engine(open_backend: OpenBackend, options: OwnerOptions) -> Engine:
    """Open the database, the ledger and the engine over both; the errors are those of `connect`."""
    from dpsql.engine.engine import Engine
    from dpsql.policy import load
    from dpsql.verification.certificate import require_verified

    require_verified()
    rules = load(options.policy)
    target = options.ledger if options.ledger is not None else get_ledger_path(options.policy)
    if isinstance(target, SharedLedger) and not (options.anchor is None and options.ledger_key is None):
        raise ProgrammingError(
            "anchor and ledger_key belong to the shared ledger",
            code="shared_ledger",
            hint="SharedLedger(…, anchor=…, ledger_key=…)",
        )
    backend = open_backend(rules, options)
    try:
        analyst = rules.resolve_analyst_name(options.analyst or get_user_name())
        ledger = _open_ledger(target, options, rules, backend, analyst)
        engine = Engine(rules, backend, ledger, analyst)
        engine.catalog  # noqa: B018  (compares the policy with the database now, not at the first query)
    except Error:
        backend.close()
        raise
    return engine


def _open_ledger(
    target: str | Path | SharedLedger, options: OwnerOptions, rules: Policy, backend: Backend, analyst: str
) -> Ledger:
    """Open the ledger of a database for an analyst, or take part in a shared one."""
    from dpsql.engine.budgets import collect_budgets
    from dpsql.engine.replay.release_store import find_ledger_identity
    from dpsql.ledger import open_ledger

    identity = find_ledger_identity(rules, backend)
    if isinstance(target, SharedLedger):
        return target.open_for_connection(rules, analyst, identity)
    return open_ledger(
        target,
        collect_budgets(rules, [analyst]),
        anchor=options.anchor,
        key=options.ledger_key,
        database=identity,
        max_failures=rules.get_failure_limits(),
    )


def open_database(database: Any, rules: Policy, options: OwnerOptions) -> Backend:
    """Open a database that has all tables of the policy: a file or folder, a URL, or an open connection."""
    from dpsql.backends.duckdb import DuckDBBackend

    if isinstance(database, DuckDBBackend):
        return database
    if is_server(database):
        return open_server(database, rules, options.policy, spills=options.temp_directory is not None)
    _require_no_sources(rules, options.policy)
    return _open_duckdb(database, rules, options)


def open_tables(tables: Mapping[str, Any] | None, rules: Policy, options: OwnerOptions) -> Backend:
    """Open data frames and files as a database: those given by name, and those that the policy names.

    Raises ProgrammingError (`no_database`) if nothing is given and the policy names no source.
    """
    sources = _resolve_sources(rules, options.policy)
    if tables is None and not sources:
        raise ProgrammingError(
            "no database given, and the policy names no source for its tables",
            code="no_database",
            hint='connect("name.duckdb", policy=…), or `source: name.parquet` in the policy\'s table',
        )
    return _open_duckdb({**sources, **(tables or {})}, rules, options)


def _open_duckdb(data: Any, rules: Policy, options: OwnerOptions) -> Backend:
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.ledger.open import is_url

    target = options.ledger.target if isinstance(options.ledger, SharedLedger) else options.ledger
    # A ledger on a server may be shared by machines, where equal paths are different files.
    host = platform.node() if target is not None and is_url(target) else ""
    return DuckDBBackend(
        data,
        host=host,
        readings=rules.get_readings(),
        temp_directory=options.temp_directory,
        temp_limit=options.temp_limit,
    )


def open_server(url: Any, rules: Policy, policy: Any, *, spills: bool) -> Backend:
    """Open a PostgreSQL, Spark or chdb database, which must have all of the policy's tables and place its own temporary files."""
    from dpsql.backends.duckdb.connection import require_text_files

    if spills:
        raise ProgrammingError(
            "temp_directory is only valid for DuckDB: the owner of another engine places its temporary files",
            code="temp_directory",
        )
    require_text_files(rules.get_readings(), [])
    if any(table.source is not None for table in rules.tables.values()):
        _require_no_sources(rules, policy)
    private = rules.list_private_tables()
    public = [name for name in rules.tables if name not in private]
    if is_spark(url):
        from dpsql.backends.spark.connection import SparkBackend

        return SparkBackend(url, private=private, public=public)
    if is_chdb(url):
        from dpsql.backends.clickhouse.connection import ClickHouseBackend

        return ClickHouseBackend(url, private=private, public=public)
    from dpsql.backends.postgres.connection import PostgresBackend

    return PostgresBackend(url, private=private, public=public)


def _resolve_sources(rules: Policy, policy: Any) -> dict[str, Path]:
    """Return the files of tables that the policy names, relative to the policy's file if it has one."""
    return rules.resolve_source_paths(Path(policy).parent if _is_path(policy) else Path())


def _require_no_sources(rules: Policy, policy: Any) -> None:
    """Raise ProgrammingError (`ambiguous`) if the policy names the sources of tables, although a database was given."""
    if sources := _resolve_sources(rules, policy):
        raise ProgrammingError(
            f"a database was given, but the policy already names the sources of {', '.join(sources)}",
            code="ambiguous",
            hint="remove one of them; pass tables that are not in files as a dict of data frames",
        )


def _is_path(policy: Any) -> bool:
    """Return whether a policy is given as a path, not as its text."""
    return isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy)


def get_ledger_path(policy: Any) -> Path:
    """Return the ledger that belongs to the path of a policy; raise ProgrammingError (`ledger_missing`) if it is not a path."""
    if _is_path(policy):
        return Path(policy).with_suffix(".ledger")
    raise ProgrammingError(
        "no ledger given: pass the file that records the charges",
        code="ledger_missing",
        hint='connect(…, ledger="name.ledger"), or ledger=":memory:" for one that ends with the process',
    )


def get_user_name() -> str:
    """Return the name of the operating system's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
