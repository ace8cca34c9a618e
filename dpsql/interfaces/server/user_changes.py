"""Watch changes of users while a server runs: record them in the audit log, and end their sessions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import sqlalchemy as sa

from dpsql.errors import Error
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log

POLL_SECONDS = 5.0
"""Seconds between two polls of the store."""


class UserChangeWatcher:
    """A task from `start` to `stop` that records changes of users and ends outdated logins.

    Claim: a session ends within `every` seconds after its user was removed, or the user's password or role changed, or with its
    running statement.
    Why: each poll compares all sessions with the store, whether or not a change was recorded.
    """

    def __init__(self, service: Service, log: Log, every: float = POLL_SECONDS) -> None:
        self._service, self._log, self._every = service, log, every
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> list[int]:
        """Start watching; there are no ports."""
        self._task = asyncio.ensure_future(self._check_repeatedly())
        return []

    async def stop(self) -> None:
        """Stop watching; remaining changes are recorded when the service closes."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _check_repeatedly(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._every)
            await loop.run_in_executor(None, self._note_changes)
            with suppress(sa.exc.SQLAlchemyError):  # the next poll tries again
                await self._service.disconnect_outdated_logins()

    def _note_changes(self) -> None:
        """Record changes of users; a failure is logged and tried again."""
        try:
            self._service.note_user_changes()
        except Error as error:
            self._log("audit failed", code=error.code, message=error.message)
        except sa.exc.SQLAlchemyError as error:
            self._log("audit failed", error=type(error).__name__)
