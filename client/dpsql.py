"""Query a dpsql server: `dpsql.connect("https://dp.example.org:8439", token=…)`.

This is the package `dpsql` as dpsql-client installs it, without an engine: its modules are in the folder `dpsql_client` beside this
file. Where the whole dpsql is installed too, Python imports that: in a folder, a package goes before a module of the same name.
"""

from pathlib import Path
from typing import NoReturn

__path__ = [str(Path(__file__).with_name("dpsql_client"))]  # so that `dpsql.errors` and the like are found

from dpsql.api.base_connection import BINARY, DATETIME, NUMBER, ROWID, STRING, Cursor
from dpsql.api.connect import apilevel, connect, paramstyle, threadsafety
from dpsql.errors import (
    BackendError,
    BudgetExhausted,
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    LossError,
    NotSupportedError,
    OperationalError,
    PolicyError,
    ProgrammingError,
    QueryRejected,
    Warning,
)
from dpsql.interfaces.notebook import load_ipython_extension
from dpsql.results.result import Receipt, Result
from dpsql.version import VERSION, write_pip_command

__version__ = VERSION

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "BackendError",
    "BudgetExhausted",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "LossError",
    "NotSupportedError",
    "OperationalError",
    "PolicyError",
    "ProgrammingError",
    "QueryRejected",
    "Receipt",
    "Result",
    "Warning",
    "apilevel",
    "connect",
    "load_ipython_extension",
    "paramstyle",
    "threadsafety",
]


def __getattr__(name: str) -> NoReturn:
    """Raise ImportError for the names that need the engine, and AttributeError for all others."""
    if name in ("Connection", "SharedLedger"):
        raise ImportError(f"dpsql-client has no engine, which dpsql.{name} needs: {write_pip_command()}")
    raise AttributeError(f"module 'dpsql' has no attribute {name!r}")


if __name__ == "__main__":  # `python -m dpsql`
    raise SystemExit(f"dpsql-client has no commands: {write_pip_command()}, or call dpsql.connect in Python")
