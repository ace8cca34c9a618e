"""What `connect` is given, found: the files that a policy names, a server's tables, the ledger beside a policy, and who asks."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import ProgrammingError
from dpsql.remote.address import is_spark

if TYPE_CHECKING:
    from dpsql.backends import Backend
    from dpsql.policy import Policy


def open_server(url: Any, rules: Policy, policy: Any, *, spills: bool) -> Backend:
    """A database of PostgreSQL or Spark: all of the policy's tables are there, and what it writes to disk is its own."""
    if spills:
        raise ProgrammingError(
            "the temporary files of a server or a cluster are its owner's to place", code="temp_directory"
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
    """The database with the tables whose files the policy names."""
    named = isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy)
    sources = rules.resolve_source_paths(Path(policy).parent if named else Path())
    if database is None and not sources:
        raise ProgrammingError(
            "no database given, and the policy names no source of a table",
            code="no_database",
            hint='connect("name.duckdb", policy=…), or `source: name.parquet` in the policy\'s table',
        )
    if not sources:
        return database
    if not (database is None or isinstance(database, Mapping)):
        raise ProgrammingError(
            f"the policy has the sources of {', '.join(sources)}, and a database is given",
            code="ambiguous",
            hint="leave out one of them; what is not in files may be given as a dict of frames",
        )
    return {**sources, **(database or {})}


def get_ledger_path(policy: Any) -> Path:
    """The ledger of a policy's path. Raises ProgrammingError (`ledger_missing`) for a policy that is no file."""
    if isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy):
        return Path(policy).with_suffix(".ledger")
    raise ProgrammingError(
        "no ledger given: pass the file that records the charges",
        code="ledger_missing",
        hint='connect(…, ledger="name.ledger"), or ledger=":memory:" for one that ends with the process',
    )


def get_user_name() -> str:
    """The name that the operating system knows the present user by."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
