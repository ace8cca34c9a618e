"""Forks by C, of which Python knows nothing: its own locks are as they were, so no other thread may be at work then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_LONGEST = 60


def quiet_fork(before: str, child: str, after: str = "") -> None:
    """Runs `before` in a new interpreter, then forks by C: `child` runs there, `after` in the parent.

    Threads that were begun before have time to come to rest; one that asked for the interpreter at the moment of the fork would
    let the child wait for it for ever, whatever it does.
    """
    script = f"""
import ctypes, os, time
{dedent(before)}
time.sleep(0.5)
if (child := ctypes.PyDLL(None).fork()) == 0:
    try:
        exec({dedent(child)!r})
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
{dedent(after)}
"""
    project = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", script], check=True, timeout=_LONGEST, cwd=project)
