"""Queries that the engine stopped on request, which is no failure of the engine."""

from __future__ import annotations

import duckdb

from dpsql.errors import OperationalError


def find_cancellation(error: Exception) -> BaseException | None:
    """What is to be raised where an engine's error says that it was told to stop; None for other errors.

    Ctrl-C, which the engine turns into a RuntimeError of this text, is KeyboardInterrupt again. A program's call of
    the connection's `interrupt` is OperationalError (`cancelled`).
    """
    if type(error) is RuntimeError and str(error) == "Query interrupted":
        return KeyboardInterrupt()
    if isinstance(error, duckdb.InterruptException):
        return OperationalError("the query was cancelled while it ran; any charge stands", code="cancelled")
    return None
