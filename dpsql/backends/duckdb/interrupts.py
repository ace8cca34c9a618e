"""Queries that the engine stopped on request, which is no failure of the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import duckdb

from dpsql.errors import OperationalError
from dpsql.workers import End, Work, hand_over

_T = TypeVar("_T")
_AGAIN = 0.1
"""Seconds between interrupts of an engine that has not stopped: it forgets one that comes before the query begins."""


def interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], _T]) -> _T:
    """What `work` on a connection returns or raises; Ctrl-C interrupts it, and is raised when it has stopped.

    Python delivers signals to the main thread alone. DuckDB 2.0 checks for them while a query runs there, but not while
    it waits for its own threads, and Ctrl-C is lost. So the main thread waits here, where Python delivers it. A second
    Ctrl-C does not leave the query running: the connection would be in use for every later one.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    given = Work(work)
    try:
        hand_over(given)
        given.ended.wait()
    except BaseException:
        if not given.withdrawn():
            _stop(connection, given.ended)
        raise
    return given.outcome()


def _stop(connection: duckdb.DuckDBPyConnection, ended: End) -> None:
    """Interrupts a query until it has ended, however often Ctrl-C is pressed meanwhile."""
    while not ended.wait(0):
        try:
            connection.interrupt()
            ended.wait(_AGAIN)
        except KeyboardInterrupt:
            continue


def cancellation(error: Exception) -> BaseException | None:
    """What is to be raised where an engine's error says that it was told to stop; None for other errors.

    Ctrl-C, which the engine turns into a RuntimeError of this text, is KeyboardInterrupt again. A program's call of
    the connection's `interrupt` is OperationalError (`cancelled`).
    """
    if type(error) is RuntimeError and str(error) == "Query interrupted":
        return KeyboardInterrupt()
    if isinstance(error, duckdb.InterruptException):
        return OperationalError(
            "the query was cancelled while it ran; what was charged stays charged", code="cancelled"
        )
    return None
