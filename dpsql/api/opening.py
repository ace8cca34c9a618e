"""Open what `connect` is given: the database, the files that a policy names, the ledger next to a policy, or a server."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.api.remote.address import is_database_url, is_spark
from dpsql.api.shared_ledger import SharedLedger
from dpsql.errors import Error, ProgrammingError
from dpsql.policy.request.loss import Amount, parse_amount

if TYPE_CHECKING:
    from dpsql.api.remote.connection import RemoteConnection
    from dpsql.backends import Backend
    from dpsql.engine.engine import Engine
    from dpsql.ledger import LedgerHead
    from dpsql.policy import Policy


def open_engine(
    database: Any,
    policy: Any,
    ledger: str | Path | SharedLedger | None,
    analyst: str | None,
    *,
    anchor: LedgerHead | str | Path | None,
    ledger_key: bytes | str | Path | None,
    temp: tuple[str | Path | None, str | None],
) -> Engine:
    """Open the database, the ledger and the engine over both; `temp` is the directory for temporary files and its limit.

    The other arguments are those of `connect`, and so are the errors.
    """
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.engine.budgets import collect_budgets
    from dpsql.engine.database_identity import find_ledger_identity
    from dpsql.engine.engine import Engine
    from dpsql.ledger import open_ledger
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    rules = load(policy)
    target = ledger if ledger is not None else get_ledger_path(policy)
    if isinstance(target, SharedLedger) and not (anchor is None and ledger_key is None):
        raise ProgrammingError(
            "anchor and ledger_key belong to the shared ledger",
            code="shared_ledger",
            hint="SharedLedger(…, anchor=…, ledger_key=…)",
        )
    place = target.target if isinstance(target, SharedLedger) else target
    host = platform.node() if is_url(place) else ""
    backend: Backend = (
        database
        if isinstance(database, DuckDBBackend)
        else open_server(database, rules, policy, spills=temp[0] is not None)
        if is_database_url(database) or is_spark(database)
        else DuckDBBackend(
            with_sources(database, rules, policy),
            host=host,
            types=rules.get_column_types(),
            temp_directory=temp[0],
            temp_limit=temp[1],
        )
    )
    try:
        who = rules.resolve_analyst_name(analyst or get_user_name())
        if isinstance(target, SharedLedger):
            book = target.open_for_connection(rules, who, find_ledger_identity(rules, backend))
        else:
            book = open_ledger(
                target,
                collect_budgets(rules, [who]),
                anchor=anchor,
                key=ledger_key,
                database=find_ledger_identity(rules, backend),
                max_failures=rules.get_failure_limits(),
            )
        engine = Engine(rules, backend, book, who)
        engine.catalog  # noqa: B018  (the policy is held against the database now, not at the first query)
    except Error:
        backend.close()
        raise
    return engine


def open_remote(
    url: str,
    token: str | None,
    tls_ca: str | Path | None,
    defaults: tuple[Amount | None, str, bool],
    owners: tuple[Any, ...],
) -> RemoteConnection:
    """Return a connection to a server; `defaults` are epsilon, dialect and replay, `owners` the arguments of an owner.

    Raises ProgrammingError (`argument`) if one of `owners` is given.
    """
    from dpsql.api.remote.connection import RemoteConnection

    if any(given is not None for given in owners):
        raise ProgrammingError(
            "the server sets policy, ledger, analyst and reservations; the token identifies the analyst",
            code="argument",
            hint="connect(url, token=…, epsilon=…, dialect=…, replay=…, tls_ca=…)",
        )
    found = os.environ.get("DPSQL_TOKEN", "") if token is None else token
    epsilon, dialect, replay = defaults
    loss = None if epsilon is None else parse_amount(epsilon)
    return RemoteConnection(url, found, epsilon=loss, dialect=dialect, replay=replay, tls_ca=tls_ca)


def open_server(url: Any, rules: Policy, policy: Any, *, spills: bool) -> Backend:
    """Open a PostgreSQL or Spark database, which must have all of the policy's tables and place its own temporary files."""
    if spills:
        raise ProgrammingError(
            "temp_directory is only valid for DuckDB: the owner of a server or cluster places its temporary files",
            code="temp_directory",
        )
    if any(table.source is not None for table in rules.tables.values()):
        with_sources(url, rules, policy)  # says which tables are elsewhere
    private = rules.list_private_tables()
    public = [name for name in rules.tables if name not in private]
    if is_spark(url):
        from dpsql.backends.spark.connection import SparkBackend

        return SparkBackend(url, private=private, public=public)
    from dpsql.backends.postgres.connection import PostgresBackend

    return PostgresBackend(url, private=private, public=public)


def with_sources(database: Any, rules: Policy, policy: Any) -> Any:
    """Return the database with the tables whose files the policy names."""
    named = isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy)
    sources = rules.resolve_source_paths(Path(policy).parent if named else Path())
    if database is None and not sources:
        raise ProgrammingError(
            "no database given, and the policy names no source for its tables",
            code="no_database",
            hint='connect("name.duckdb", policy=…), or `source: name.parquet` in the policy\'s table',
        )
    if not sources:
        return database
    if not (database is None or isinstance(database, Mapping)):
        raise ProgrammingError(
            f"a database was given, but the policy already names the sources of {', '.join(sources)}",
            code="ambiguous",
            hint="remove one of them; pass tables that are not in files as a dict of data frames",
        )
    return {**sources, **(database or {})}


def get_ledger_path(policy: Any) -> Path:
    """Return the ledger that belongs to the path of a policy; raise ProgrammingError (`ledger_missing`) if it is not a path."""
    if isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy):
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
