"""The command line in this process, over the small study."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_study import write_study

from dpsql.interfaces.cli import main


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `dpsql` with these arguments, `stdin` piped in."""

    def command(*arguments: object, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        code = ended.value.code
        return Ran(code if isinstance(code, int) else int(code is not None), *capsys.readouterr())

    return command


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The small study's database, its policy beside it, no ledger yet."""
    database, _ = write_study(tmp_path)
    return database
