"""The dialect of emitted statements: DuckDB's, except in releases for another engine.

What is above the release boundary, and what is looked up in public tables, is always evaluated by DuckDB. So the entry
points of emission for private rows (`statement.emit_release` and `emit_sums`) take a dialect, and all that they call asks
`get_dialect()` for it. It is an argument of all of emission, which is not written at each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB

_DIALECT: ContextVar[Dialect] = ContextVar("dialect", default=DUCKDB)
_HELD: ContextVar[list[tuple[str, str]] | None] = ContextVar("held", default=None)


def get_dialect() -> Dialect:
    """Return the dialect of the statement that is being emitted."""
    return _DIALECT.get()


@contextmanager
def use_dialect(wanted: Dialect) -> Iterator[Dialect]:
    """Emit statements in this dialect within the context, in this thread alone."""
    token = _DIALECT.set(wanted)
    try:
        yield wanted
    finally:
        _DIALECT.reset(token)


@contextmanager
def collect_held_queries() -> Iterator[list[tuple[str, str]]]:
    """Collect the queries that a statement reads more than once within the context, where the engine materializes them."""
    found: list[tuple[str, str]] = []
    token = _HELD.set(found)
    try:
        yield found
    finally:
        _HELD.reset(token)


def emit_cte(name: str, query: str) -> tuple[list[str], str]:
    """Return a common table expression, and its name."""
    return [f"{name} AS (\n  {query}\n)"], name


def emit_shared_cte(name: str, query: str) -> tuple[list[str], str]:
    """Return the common table expressions of a query that the statement reads more than once, and its name there.

    An engine that would run it each time that it is read, over files that may have changed meanwhile or in a task that is
    tried again, holds its rows in a temporary table instead.
    """
    held = _HELD.get()
    if held is None or not get_dialect().capabilities.materializes_ctes:
        return emit_cte(name, query)
    called = f'{name[:-1]}{len(held)}"'
    held.append((called, query))
    return [], called
