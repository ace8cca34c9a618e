"""Run one query for an interactive user: show progress, and report the charge after Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from dpsql.errors import Error
from dpsql.interfaces.shell.answers import INTERRUPTED

if TYPE_CHECKING:
    from dpsql.api.base_connection import BaseConnection
    from dpsql.results.result import Result

_QUIET: Final = 1.0
"""Seconds before progress is shown."""
_EVERY: Final = 0.5


class QueryInterrupted(KeyboardInterrupt):
    """Ctrl-C during a query; `text` says whether it was charged."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def run_query(
    connection: BaseConnection, sql: str, terms: Mapping[str, Any], *, progress: TextIO | None = None
) -> Result:
    """Run a query and return its answer. Ctrl-C raises `QueryInterrupted`, which says whether the query was charged.

    `progress` is the terminal that shows how long the query has been running.
    """
    left_behind = connection.charge_probe(sql)
    try:
        with show_progress(progress):
            return connection.query(sql, **terms)
    except KeyboardInterrupt:
        raise QueryInterrupted(_describe_interruption(left_behind)) from None


@contextmanager
def show_progress(terminal: TextIO | None) -> Iterator[None]:
    """Show on a terminal how long the enclosed work has taken, once that exceeds a second.

    Only the elapsed time is shown, which the user knows anyway. The engine's progress is not shown, since it depends on the
    number of rows, which is private.
    """
    if terminal is None:
        yield
        return
    ended, began = threading.Event(), time.monotonic()

    def write_elapsed_time() -> None:
        pause = _QUIET
        while not ended.wait(pause):
            pause = _EVERY
            terminal.write(f"\r\x1b[2Krunning for {time.monotonic() - began:.0f} s; Ctrl-C stops the query")
            terminal.flush()

    teller = threading.Thread(target=write_elapsed_time, name="dpsql progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if time.monotonic() - began >= _QUIET:
            terminal.write("\r\x1b[2K")
            terminal.flush()


def _describe_interruption(left_behind: Callable[[], str]) -> str:
    try:
        return left_behind()
    except (Error, KeyboardInterrupt):
        return INTERRUPTED
