"""The servers of one process: started together, and stopped together when the process gets a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The start and stop of a server: `start` listens and returns the ports, `stop` ends all connections."""

    start: Callable[[], Awaitable[list[int]]]
    stop: Callable[[], Awaitable[None]]


async def serve_until_signal(
    servers: Sequence[Lifecycle],
    ready: Callable[[list[list[int]]], None],
    reload: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until the process gets SIGTERM or SIGINT; `ready` gets the ports of each server, `reload` is called on SIGHUP."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        # On Windows Ctrl-C raises KeyboardInterrupt instead.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, ended.set)
    tasks = set[asyncio.Task[None]]()
    if reload is not None and hasattr(signal, "SIGHUP"):
        wanted = reload

        def start_reload() -> None:
            task = asyncio.ensure_future(_await_work(wanted()))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, start_reload)
    try:
        ready([await door.start() for door in servers])
        await ended.wait()
    finally:
        await asyncio.gather(*tasks, *(door.stop() for door in servers))


async def _await_work(work: Awaitable[None]) -> None:
    await work
