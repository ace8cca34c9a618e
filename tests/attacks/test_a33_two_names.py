"""A33: one ledger under two names, each with a fresh budget.

SQLite keeps what was charged last in a log beside the file, by the file's name. Under another name of the same file,
a hard link or a mount of the file alone, that log is not seen, and what it holds is spent again.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExhausted, IntegrityError, OperationalError
from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.stores import sqlite
from dpsql.privacy.accounting.events import Pure

BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}


def charge(ledger: Ledger) -> None:
    """Spends the whole budget."""
    ledger.charge({"visits": Pure(Fraction(1))}, analyst="ana", query="SELECT 1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger that nothing was spent of, closed."""
    found = tmp_path / "a.ledger"
    open_ledger(found, BUDGETS).close()
    return found


def test_hard_link_is_refused_under_both_names(path: Path, tmp_path: Path) -> None:
    """When it is opened, when it is read, and when the other name is given to a ledger in use."""
    other = tmp_path / "b.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        os.link(path, other)
        with pytest.raises(OperationalError, match=r"2 hard links, and each name could spend") as caught:
            charge(ledger)
        assert caught.value.code == "ledger_names"
        for name in (path, other):
            with pytest.raises(OperationalError, match="2 hard links"):
                open_ledger(name, BUDGETS)
            with pytest.raises(OperationalError, match="2 hard links"):
                LedgerReader.open(name)
        other.unlink()
        charge(ledger)
    with closing(open_ledger(path, BUDGETS)) as ledger, pytest.raises(BudgetExhausted):
        charge(ledger)


@pytest.mark.parametrize("name", ["a.ledger", "with space.ledger", "tab\t.ledger"])
def test_separately_mounted_file_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that is given only the file is refused; a mounted directory is one place."""
    path, mounts = tmp_path / name, tmp_path / "mountinfo"
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    written = str(path).replace(" ", "\\040").replace("\t", "\\011")
    line = "36 35 98:0 /srv/a.ledger {} rw,noatime shared:1 - ext3 /dev/root rw\n"
    mounts.write_text(line.format("/") + line.format(written))
    with pytest.raises(OperationalError, match="mounted as a single file") as caught:
        open_ledger(path, BUDGETS)
    assert caught.value.code == "ledger_names"
    assert "mount the directory" in str(caught.value.hint)
    mounts.write_text(line.format("/") + line.format(str(tmp_path).replace(" ", "\\040")))
    with closing(open_ledger(path, BUDGETS)) as ledger:
        charge(ledger)


def test_symbolic_link_is_the_same_ledger(path: Path, tmp_path: Path) -> None:
    """A link to the file, or to a directory above it, opens the same ledger, also when it is in use."""
    link, folder = tmp_path / "link.ledger", tmp_path / "folder"
    link.symlink_to(path)
    folder.symlink_to(tmp_path)
    with closing(open_ledger(path, BUDGETS)) as ledger:
        charge(ledger)
        for name in (link, folder / "a.ledger", folder / "link.ledger"):
            with closing(open_ledger(name, BUDGETS)) as other, pytest.raises(BudgetExhausted):
                charge(other)


@pytest.mark.parametrize("log", [True, False], ids=["with-its-log", "without"])
def test_copy_is_refused_with_the_anchor(tmp_path: Path, *, log: bool) -> None:
    """A copy is another file, and an older ledger by itself: the anchor knows of the newest."""
    anchor, copy = tmp_path / "anchor", tmp_path / "copy.ledger"
    with closing(open_ledger(tmp_path / "b.ledger", BUDGETS, anchor=anchor)) as ledger:
        for end in ("", "-wal") if log else ("",):
            shutil.copy(f"{tmp_path}/b.ledger{end}", f"{copy}{end}")
        charge(ledger)
    with pytest.raises((IntegrityError, OperationalError)):
        open_ledger(copy, BUDGETS, anchor=anchor)


def test_restored_log_is_noticed(path: Path, tmp_path: Path) -> None:
    """A process with the ledger open misses its own charges."""
    wal, kept = Path(f"{path}-wal"), tmp_path / "kept"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        shutil.copy(wal, kept)
        charge(ledger)
        ledger.list_states()
        wal.unlink()
        shutil.copy(kept, wal)
        with pytest.raises((IntegrityError, OperationalError)):
            charge(ledger)


def test_careless_ledger_is_spent_once_under_each_name(path: Path, tmp_path: Path) -> None:
    """The attack works where the last charge is kept beside the file, by its name."""
    other = tmp_path / "b.ledger"
    os.link(path, other)
    for name in (path, other):
        log = Path(f"{name}-log")
        assert name.samefile(path)
        assert not log.exists()
        log.write_text("1")
