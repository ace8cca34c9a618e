"""Watch changes of users while a server runs: record them in the audit log, and end their sessions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import sqlalchemy as sa

from dpsql.errors import Error
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log

POLL_SECONDS = 5.0
"""Seconds after which the store is looked at again."""


class UserChangeWatcher:
    """Notes the changes of users from `start` to `stop`, as a door of its own that nobody goes through, and ends former logins.

    Claim: a user who was removed, or whose password or role is another, has no session that lasts `every` seconds longer, but for
    what its statement takes to end.
    Why: each look at the store compares all sessions with it, whatever was noted of changes.
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
            with suppress(sa.exc.SQLAlchemyError):  # which the next look finds, too, or not any more
                await self._service.disconnect_outdated_logins()

    def _note_changes(self) -> None:
        """Record changes of users; a failure is logged and tried again."""
        try:
            self._service.note_user_changes()
        except Error as error:
            self._log("audit failed", code=error.code, message=error.message)
        except sa.exc.SQLAlchemyError as error:
            self._log("audit failed", error=type(error).__name__)
