"""The dialect in which a statement is emitted: DuckDB's, but where a release is emitted for another engine.

What is above the release boundary, and what is looked up in public tables, is always evaluated by DuckDB. So the entry
points of emission for private rows (`statement.emit` and `emit_sums`) take a dialect, and all that they call asks
`dialect()` for it. It is an argument of all of emission, which is not written at each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB

_DIALECT: ContextVar[Dialect] = ContextVar("dialect", default=DUCKDB)


def dialect() -> Dialect:
    """The dialect of the statement that is being emitted."""
    return _DIALECT.get()


@contextmanager
def written_in(wanted: Dialect) -> Iterator[Dialect]:
    """Within it, statements are emitted in this dialect, in this thread alone."""
    token = _DIALECT.set(wanted)
    try:
        yield wanted
    finally:
        _DIALECT.reset(token)
