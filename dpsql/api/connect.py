"""`connect`, and the module attributes of PEP 249.

A charge is durable when its query returns, so there is nothing to commit or roll back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dpsql.api.arguments import OwnerOptions, is_address
from dpsql.api.base_connection import QueryDefaults
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.version import write_pip_command

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.api.opening import SharedLedger
    from dpsql.api.remote import RemoteConnection
    from dpsql.ledger import LedgerHead

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"


@overload
def connect(
    database: Any = None,
    *,
    policy: Any,
    ledger: str | Path | SharedLedger | None = None,
    analyst: str | None = None,
    epsilon: Amount | None = None,
    anchor: LedgerHead | str | Path | None = None,
    ledger_key: bytes | str | Path | None = None,
    dialect: str = "duckdb",
    replay: bool = True,
    reserve: Amount | None = None,
    temp_directory: str | Path | None = None,
    temp_limit: str | None = None,
) -> Connection: ...


@overload
def connect(
    database: str,
    *,
    token: str | None = None,
    tls_ca: str | Path | None = None,
    epsilon: Amount | None = None,
    dialect: str = "duckdb",
    replay: bool = True,
) -> RemoteConnection: ...


def connect(
    database: Any = None,
    *,
    policy: Any = None,
    ledger: str | Path | SharedLedger | None = None,
    analyst: str | None = None,
    epsilon: Amount | None = None,
    anchor: LedgerHead | str | Path | None = None,
    ledger_key: bytes | str | Path | None = None,
    dialect: str = "duckdb",
    replay: bool = True,
    reserve: Amount | None = None,
    temp_directory: str | Path | None = None,
    temp_limit: str | None = None,
    token: str | None = None,
    tls_ca: str | Path | None = None,
) -> Connection | RemoteConnection:
    """Open private data for queries.

    With a database of this process, `policy` is required. With the address of a server, such as "https://dp.example.org:8439",
    only `token`, `tls_ca`, `epsilon`, `dialect` and `replay` apply: the server has the policy, the ledger and the data.

    A stored release answers only queries on the database that it was made from, which the policy's `database` or the path names.

    Args:
        database: The path of a DuckDB, Parquet, CSV, JSON, Arrow or SQLite file, or of a folder of such files, one for each
            table; the URL of a PostgreSQL database, a Spark cluster, Spark Connect or a folder of chdb (ClickHouse); a
            SparkSession; an open connection of duckdb or chdb; a dict of name → pandas, polars or Arrow table, or path, folder or pattern of files; the address of a
            server; or None if the policy names a `source` for each table.
        policy: The path or the text of a YAML file, a dict, or a `dpsql.policy.Policy`.
        ledger: The file that records the charges, by default the policy's path with the ending .ledger; ":memory:" for a ledger
            that ends with the process; or a `SharedLedger` for several connections.
        analyst: The name of the analyst, by default that of the user of the operating system.
        epsilon: The loss of a query that names none, by default the policy's `default_epsilon`.
        anchor: A file on another disk that records the ledger's state after each charge; an older ledger is then refused.
        ledger_key: A secret of the owner, or the path of a file with it. A ledger made with it opens and changes only with it.
        dialect: The dialect of queries that name none: duckdb, postgres, spark, snowflake, bigquery or tsql.
        replay: False draws new noise, with a new charge, for queries that do not set `replay`; see `Connection.query`.
        reserve: The ε to reserve of each private table until the connection closes; see `Connection.reserve`.
        temp_directory: A directory for what does not fit into memory; without it, a query that needs more than that fails.
        temp_limit: The most that may be written to `temp_directory`, such as "20GB"; by default half of the free space.
        token: The token that identifies the analyst to a server, by default the environment variable DPSQL_TOKEN.
        tls_ca: A file with the authorities that may have signed the server's certificate, in place of those of the system.

    Returns:
        A `Connection`, or a `RemoteConnection` for the address of a server.

    Raises:
        PolicyError: if the policy is invalid or does not match the database, or if the ledger belongs to another database.
        IntegrityError: if the ledger was edited (`ledger_tampered`), or is older than its anchor (`ledger_rolled_back`).
        ProgrammingError: if arguments are missing or contradict each other.
        NotSupportedError: for a database of this process, if only dpsql-client is installed (`engine_missing`).
    """
    owner = OwnerOptions(policy, ledger, analyst, anchor, ledger_key, reserve, temp_directory, temp_limit)
    defaults = QueryDefaults(None if epsilon is None else parse_amount(epsilon), dialect, replay)
    if is_address(database):
        return _connect_to_server(database, token, tls_ca, defaults, owner)
    connect_in_process = _import_engine()
    _require_owner_options(owner, token, tls_ca)
    return connect_in_process(database, defaults, owner)


def _import_engine() -> Callable[[Any, QueryDefaults, OwnerOptions], Connection]:
    """Return the function that opens a database in this process; raise NotSupportedError (`engine_missing`) in the client's wheel."""
    try:
        from dpsql.api.in_process import connect_in_process
    except ModuleNotFoundError as error:
        if error.name != "dpsql.api.in_process":  # another module is missing: the installation is broken
            raise
    else:
        return connect_in_process
    raise NotSupportedError(
        "dpsql-client has no engine: it only queries a server",
        code="engine_missing",
        hint=f"to open a database in this process, {write_pip_command()}; else "
        'pass connect("https://host:8439", token=…)',
    )


def _require_owner_options(owner: OwnerOptions, token: str | None, tls_ca: str | Path | None) -> None:
    """Raise ProgrammingError if a database in this process has no policy, or an option of a server."""
    if owner.policy is None:
        raise ProgrammingError(
            "no policy given", code="policy_missing", hint='connect(…, policy="name.yaml")'
        )
    if token is not None or tls_ca is not None:
        raise ProgrammingError(
            "token is only valid with the URL of a server, and this database is opened in this process",
            code="argument",
            hint='connect("https://host:8439", token=…)',
        )


def _connect_to_server(
    url: str, token: str | None, tls_ca: str | Path | None, defaults: QueryDefaults, owner: OwnerOptions
) -> RemoteConnection:
    """Return a connection to a server; raise ProgrammingError (`argument`) if an option of an owner is given."""
    from dpsql.api.remote import RemoteConnection

    if owner != OwnerOptions():
        raise ProgrammingError(
            "the server sets policy, ledger, analyst and reservations; the token identifies the analyst",
            code="argument",
            hint="connect(url, token=…, epsilon=…, dialect=…, replay=…, tls_ca=…)",
        )
    found = os.environ.get("DPSQL_TOKEN", "") if token is None else token
    return RemoteConnection(url, found, defaults, tls_ca=tls_ca)
