"""An engine without data, on which constants are tried: whether a regular expression is one, say."""

from __future__ import annotations

import os
from functools import cache, lru_cache
from typing import Any

import duckdb

from dpsql.backends.duckdb import LOCKED, lock_down
from dpsql.errors import BackendError

_CONFIG = {**LOCKED, "memory_limit": "100MB", "threads": 1}


@lru_cache(maxsize=1024)
def find_evaluation_error(expression: str) -> str | None:
    """Why the engine cannot compute an expression of constants, in its words; None where it can.

    >>> find_evaluation_error("REGEXP_MATCHES('a', 'b')") is None, find_evaluation_error("REGEXP_MATCHES('a', '(')")
    (True, 'missing ): (')
    """
    try:
        _open_engine(os.getpid()).cursor().execute(f"SELECT {expression}").fetchall()
    except duckdb.Error as error:
        return str(error).partition("\n")[0].partition(": ")[2]
    except UnicodeDecodeError:
        return "the engine cannot read it"  # and cuts a character in two where it says so
    return None


def evaluate_constant(expression: str) -> Any:
    """What the engine makes of an expression of constants that cannot fail.

    >>> evaluate_constant("COALESCE(NULL, 2) < 3")
    True
    """
    ((found,),) = _open_engine(os.getpid()).cursor().execute(f"SELECT {expression}").fetchall()
    return found


def query_constant_rows(query: str) -> list[tuple[Any, ...]]:
    """The rows of an emitted query over constants. Raises BackendError where they need more than this engine has."""
    try:
        return _open_engine(os.getpid()).cursor().execute(query).fetchall()
    except duckdb.Error:
        raise BackendError from None


@cache
def _open_engine(_process: int) -> duckdb.DuckDBPyConnection:
    """An empty, locked, in-memory database of this process."""
    engine = duckdb.connect(config=_CONFIG)
    lock_down(engine)
    return engine
