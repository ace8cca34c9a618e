"""A process that has loaded pytest and the libraries, and forks for each run: to load them takes longer than most tests.

It runs in a copy of the project, reads a request a line, and answers each with pytest's exit code, or with where a
module lies. Of the project itself it loads nothing, so that each run imports what stands in the files then.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LIBRARIES = (
    "duckdb",
    "hypothesis",
    "numpy.random",
    "pydantic",
    "pytest",
    "rich.console",
    "scipy.special",
    "scipy.stats",
    "yaml",
    "sqlalchemy.dialects.sqlite",
    "sqlglot.dialects.duckdb",
    "typer",
)


def main() -> None:
    """Answers requests until there are no more."""
    sys.path[0] = str(Path.cwd())  # as for python -m pytest
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        if "where" in request:
            found = importlib.util.find_spec(request["where"])
            print(json.dumps(None if found is None else found.origin), flush=True)
        else:
            print(run(**request), flush=True)


def run(*, arguments: Sequence[str], output: str, seconds: int) -> int:
    """The exit code of pytest with these arguments, its text in the file `output`; below zero where a signal ended it, as when time runs out."""
    child = os.fork()
    if child == 0:
        os.setsid()
        gc.freeze()  # pytest collects garbage as it ends, which takes long among the libraries' objects
        signal.alarm(seconds)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(file, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        predictable()
        import pytest

        code = pytest.main(list(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has started and left
    return os.waitstatus_to_exitcode(status)


def predictable() -> None:
    """Draws the same bytes in each run, so that a fault is caught always or never; what is forked draws its own."""
    drawn = os.urandom
    os.urandom = random.Random(0).randbytes
    os.register_at_fork(after_in_child=lambda: setattr(os, "urandom", drawn))


if __name__ == "__main__":
    main()
