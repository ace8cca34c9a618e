"""Open the parts of a connection in this process: the database, the ledger beside a policy, and the engine over both."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.api.remote.address import is_database_url, is_spark
from dpsql.api.shared_ledger import SharedLedger
from dpsql.errors import Error, ProgrammingError
from dpsql.policy.request.loss import Amount

if TYPE_CHECKING:
    from dpsql.backends import Backend
    from dpsql.engine.engine import Engine
    from dpsql.ledger import Ledger, LedgerHead
    from dpsql.policy import Policy


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """The arguments of `connect` for a database in this process; on a server its owner decides them."""

    policy: Any = None
    ledger: str | Path | SharedLedger | None = None
    analyst: str | None = None
    anchor: LedgerHead | str | Path | None = None
    ledger_key: bytes | str | Path | None = None
    reserve: Amount | None = None
    temp_directory: str | Path | None = None
    temp_limit: str | None = None


OpenBackend = Callable[["Policy", OwnerOptions], "Backend"]
"""Open the database under a policy."""


def open_engine(open_backend: OpenBackend, options: OwnerOptions) -> Engine:
    """Open the database, the ledger and the engine over both; the errors are those of `connect`."""
    from dpsql.engine.engine import Engine
    from dpsql.policy import load

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
    from dpsql.engine.database_identity import find_ledger_identity
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
    if is_database_url(database) or is_spark(database):
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
        types=rules.get_column_types(),
        temp_directory=options.temp_directory,
        temp_limit=options.temp_limit,
    )


def open_server(url: Any, rules: Policy, policy: Any, *, spills: bool) -> Backend:
    """Open a PostgreSQL or Spark database, which must have all of the policy's tables and place its own temporary files."""
    if spills:
        raise ProgrammingError(
            "temp_directory is only valid for DuckDB: the owner of a server or cluster places its temporary files",
            code="temp_directory",
        )
    if any(table.source is not None for table in rules.tables.values()):
        _require_no_sources(rules, policy)
    private = rules.list_private_tables()
    public = [name for name in rules.tables if name not in private]
    if is_spark(url):
        from dpsql.backends.spark.connection import SparkBackend

        return SparkBackend(url, private=private, public=public)
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
