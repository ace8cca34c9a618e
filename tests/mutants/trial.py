"""Trying a fault: plant it in a copy of the project, run the test that must notice, take it out again."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .fault import Fault, StaleError

COPIED = ("dpsql", "client", "tests", "grammars", "pyproject.toml")
SECONDS = 120
"""A test that takes longer hangs."""
_PYTEST = (
    *(
        "-q",
        "-rf",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "--hypothesis-seed=0",
        "--hypothesis-profile=faults",
        "--timeout=0",
    ),
    *("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
)
_FAILED = 1
"""What pytest exits with when tests ran and some failed; errors of collection and usage have other codes."""
_SPOILT = re.compile(r"(Syntax|Name|Import|ModuleNotFound|Attribute|UnboundLocal)Error\b")
"""Failures that say of a patch that it is no program, not that a test has noticed it."""


class Verdict(Enum):
    """What became of a fault; only the first is good."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    STALE = "stale"
    SPOILT = "spoilt"


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault and its fate; `said` is how the test failed, or what went wrong."""

    fault: Fault
    verdict: Verdict
    said: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """What pytest said of some tests: its exit code and its text."""

    code: int
    text: str

    def reason(self, test: str) -> str | None:
        """Why a test, or one of its cases, failed; None if it did not."""
        for line in self.text.splitlines():
            failed = line.removeprefix("FAILED ")
            if failed != line and failed.startswith((f"{test} - ", f"{test}[")):
                return failed.removeprefix(test).rpartition("] - " if failed[len(test)] == "[" else " - ")[2]
        return None


@dataclass(frozen=True, slots=True)
class Workshop:
    """A copy of the project that one fault at a time is planted in; `warm` runs its tests."""

    root: Path
    warm: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def copied(cls, project: Path, root: Path) -> Iterator[Workshop]:
        """A fresh copy of what the tests need. Raises AssertionError if tests would not import it."""
        for name in COPIED:
            source = project / name
            if source.is_dir():
                shutil.copytree(source, root / name)
            elif source.exists():
                shutil.copy2(source, root / name)
        kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
        process = subprocess.Popen(
            [sys.executable, Path("tests", "mutants", "warm.py")],
            cwd=root,
            env=kept | _SET,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        with process:
            workshop = cls(root, process)
            found = json.loads(workshop._asked({"where": "dpsql"}))
            if Path(found).resolve().parents[1] != root.resolve():
                raise AssertionError(f"the tests would try {found}, not the copy in {root}")
            yield workshop

    def run(self, tests: Iterable[str], *options: str, seconds: int = 0) -> Run:
        """Runs tests by their node ids; TimeoutError after that many seconds, unless they are 0."""
        output = self.root / "output.txt"
        asked = {"arguments": [*_PYTEST, *options, *tests], "output": str(output), "seconds": seconds}
        code = int(self._asked(asked))
        if code == -signal.SIGALRM:
            raise TimeoutError
        return Run(code, output.read_text(encoding="utf-8", errors="replace"))

    def _asked(self, request: dict[str, object]) -> str:
        if self.warm.stdin is None or self.warm.stdout is None:
            raise TypeError("the process has pipes")
        print(json.dumps(request), file=self.warm.stdin, flush=True)
        return self.warm.stdout.readline()

    def tried(self, fault: Fault) -> Trial:
        """Plants a fault, runs its test and takes the fault out."""
        begun = time.monotonic()
        verdict, said = self._verdict(fault)
        return Trial(fault, verdict, said, time.monotonic() - begun)

    def _verdict(self, fault: Fault) -> tuple[Verdict, str]:
        try:
            with self._planted(fault):
                run = self.run([fault.test], "-x", seconds=SECONDS)
        except StaleError as error:
            return Verdict.STALE, str(error)
        except TimeoutError:
            return Verdict.SPOILT, f"no end within {SECONDS} seconds"
        if run.code == 0:
            return Verdict.SURVIVED, "the test passes"
        why = run.reason(fault.test)
        if run.code != _FAILED or why is None:
            return Verdict.SPOILT, f"pytest ends with {run.code}: {run.text.strip()[-300:]}"
        return (Verdict.SPOILT if _SPOILT.match(why) else Verdict.CAUGHT), why

    @contextmanager
    def _planted(self, fault: Fault) -> Iterator[None]:
        path = self.root / fault.file
        sound = path.read_text(encoding="utf-8") if path.is_file() else ""
        self._write(path, fault.planted(sound))
        try:
            yield
        finally:
            self._write(path, sound)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Bytecode is matched by time and size, and both texts may be of one second and one size.
        Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)


_UNSET = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"})
"""What would lead the tests elsewhere, or make each of them compile the project anew."""
_SET = {
    "COLUMNS": "1000",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONHASHSEED": "0",  # sets in one order each time
    "OPENBLAS_NUM_THREADS": "1",  # threads would not live on in what is forked
}


def shares(tests: Sequence[str], number: int) -> list[list[str]]:
    """The distinct tests in `number` parts, each part in the order of the files."""
    distinct = sorted(set(tests))
    return [distinct[start::number] for start in range(number)]
