"""Processes that are killed at a chosen step, and what they told before.

A step is a call or a return: of a function of dpsql, or of a C function that reaches SQLite or a file.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dpsql
from dpsql.ledger import workers

OURS = str(Path(dpsql.__file__).parent)
DATABASES = {"sqlite3"}
FILES = {"posix.open", "posix.write", "posix.fsync", "posix.replace"}
EFFECTS = {"execute", "executemany", "commit", "rollback", "Connection.close"}

Listener = Callable[[str], None]


def changed_something(name: str) -> bool:
    """Whether a step is the end of one that may have changed a database or a file."""
    kind, function = name.split(" ")
    return kind == "c_return" and (function in FILES or function.endswith(tuple(EFFECTS)))


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tells each step of the block, such as "c_return Connection.commit", just as it is taken."""

    def heard(frame: FrameType, event: str, function: Any) -> None:
        if event in ("call", "return"):
            if frame.f_code.co_filename.startswith(OURS):
                listener(f"{event} {frame.f_code.co_qualname}")
        elif type(getattr(function, "__self__", None)).__module__ in DATABASES:
            listener(f"{event} {function.__qualname__}")
        elif (name := f"{function.__module__}.{function.__name__}") in FILES:
            listener(f"{event} {name}")

    threading.setprofile(heard)  # a ledger works in threads of its own: here in new ones, which are heard
    workers._reset_after_fork()
    sys.setprofile(heard)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        workers._reset_after_fork()


def dying_at(step: int, counts: Callable[[str], bool] = changed_something) -> Listener:
    """A listener that kills its process, as kill -9 does, at the `step`-th of the steps that count."""
    taken = 0

    def listener(name: str) -> None:
        nonlocal taken
        taken += counts(name)
        if taken == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def heard_from(child: Callable[[int], None], patience: float | None = None) -> tuple[bool, bytes]:
    """Runs `child` in a fork, with a pipe's end to tell something: (whether it was killed, what it told).

    With `patience`, it is killed so many seconds after its first words. Any other end is an error.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            child(writer)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        told = b""
        if patience is not None:
            told = pipe.read(1)
            time.sleep(patience)
            os.kill(process, signal.SIGKILL)
        told += pipe.readall()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return code != 0, told
