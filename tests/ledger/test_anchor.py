"""The anchor: a file beside the ledger's, elsewhere, that knows how far the ledger has come."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import BudgetExhausted, Error, IntegrityError, OperationalError
from dpsql.ledger import AnchorFile, Budget, Ledger, LedgerHead, open_ledger
from dpsql.ledger.protocol import START
from dpsql.privacy.accounting import Pure

# The test runner's own threads are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

FORK = get_context("fork")
BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}
EIGHTH = {"visits": Pure(Fraction(1, 8))}
HEADS = st.builds(LedgerHead, st.integers(0, 10**17), st.text("0123456789abcdef", min_size=64, max_size=64))


def charge(ledger: Ledger) -> LedgerHead:
    """Charges an eighth of the budget; the head after it."""
    ledger.charge(EIGHTH, analyst="ana", query="SELECT 1")
    return ledger.read_head()


def refused(path: Path, anchor: Path | LedgerHead) -> Error:
    """The error of opening the ledger."""
    with pytest.raises(Error) as caught:
        open_ledger(path, BUDGETS, anchor=anchor)
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is."""
    return tmp_path / "a.ledger"


@pytest.fixture
def anchor(tmp_path: Path) -> Path:
    """Where the anchor is: in a directory of its own."""
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere" / "a.anchor"


@pytest.fixture
def ledger(path: Path, anchor: Path) -> Iterator[Ledger]:
    """A new ledger with its anchor."""
    with closing(open_ledger(path, BUDGETS, anchor=anchor)) as opened:
        yield opened


def test_the_anchor_follows_each_charge(ledger: Ledger, path: Path, anchor: Path) -> None:
    """It is made with a new ledger, and holds the head as soon as a charge returns; a refusal leaves it."""
    assert AnchorFile(anchor).read_head() == START
    for count in range(1, 9):
        head = charge(ledger)
        assert head.entries == count
        assert head.digest == ledger.list_entries(limit=1)[0].digest
        assert AnchorFile(anchor).read_head() == head
    with pytest.raises(BudgetExhausted):
        charge(ledger)
    assert anchor.read_text() == f"{head}\n"
    assert [file.name for file in anchor.parent.iterdir()] == ["a.anchor"]
    assert stat.S_IMODE(anchor.stat().st_mode) == 0o600
    open_ledger(path, BUDGETS, anchor=str(anchor)).close()


@given(HEADS)
def test_head_and_text_are_inverse(head: LedgerHead) -> None:
    """Text and head are inverse."""
    assert LedgerHead.parse(str(head)) == head


@pytest.mark.parametrize(
    "text", ["", "1", "-1 " + "0" * 64, "01 " + "0" * 64, "1 " + "0" * 63, "1 " + "G" * 64, "1 " + "0" * 65]
)
def test_other_texts_are_no_head(text: str) -> None:
    """What no ledger wrote is refused."""
    with pytest.raises(IntegrityError) as caught:
        LedgerHead.parse(text)
    assert caught.value.code == "anchor_text"


def test_every_former_head_is_accepted(path: Path) -> None:
    """A head kept at any time is accepted for ever; one of another ledger, or with more entries, is not."""
    with closing(open_ledger(path, BUDGETS)) as ledger:
        heads = [ledger.read_head(), *(charge(ledger) for _ in range(4))]
    assert heads[0] == START
    for head in heads:
        open_ledger(path, BUDGETS, anchor=head).close()
    for head in (LedgerHead(2, heads[3].digest), LedgerHead(5, heads[4].digest), LedgerHead(1, "0" * 64)):
        assert refused(path, head).code == "ledger_rolled_back"


def test_an_anchor_that_lags_is_caught_up_by_the_next_charge(path: Path, anchor: Path) -> None:
    """Charges without the anchor leave it behind; that is no rollback, and the next charge moves it on."""
    with closing(open_ledger(path, BUDGETS, anchor=anchor)) as ledger:
        first = charge(ledger)
    with closing(open_ledger(path, BUDGETS)) as unanchored:
        charge(unanchored)
    with closing(open_ledger(path, BUDGETS, anchor=anchor)) as ledger:
        assert AnchorFile(anchor).read_head() == first
        assert charge(ledger).entries == 3
        assert AnchorFile(anchor).read_head() == ledger.read_head()


def test_a_missing_anchor_is_no_new_one(ledger: Ledger, path: Path, anchor: Path) -> None:
    """Where there are entries, the anchor must be there: in use, and on opening; its owner can begin it."""
    head = charge(ledger)
    anchor.unlink()
    with pytest.raises(IntegrityError) as caught:
        charge(ledger)
    assert caught.value.code == refused(path, anchor).code == "anchor_missing"
    assert not anchor.exists()
    AnchorFile(anchor).replace_head(head)
    assert charge(ledger).entries == 2


@pytest.mark.parametrize("content", [b"", b"1\n", b"\xff" * 70, b"0" * 10**6, b"SQLite format 3\0"])
def test_another_file_is_refused_as_an_anchor_and_kept(path: Path, anchor: Path, content: bytes) -> None:
    """A file of something else is refused, kept as it is, and no ledger is made beside it."""
    anchor.write_bytes(content)
    assert refused(path, anchor).code == "anchor_text"
    assert anchor.read_bytes() == content
    assert not path.exists()


def test_impossible_anchors_are_named(path: Path, tmp_path: Path) -> None:
    """A missing directory, a directory, a path that is none, the ledger itself, a ledger in memory."""
    for place in (tmp_path / "no" / "anchor", tmp_path, Path("a\0b"), path):
        assert refused(path, place).code == "anchor_unavailable"
    assert refused(Path(":memory:"), tmp_path / "anchor").code == "ledger_target"


def test_an_anchor_that_cannot_be_written_stops_the_answer(ledger: Ledger, anchor: Path) -> None:
    """The charge is in the ledger, but it fails: an answer that the anchor does not know could be had again."""
    (anchor.parent / "a.anchor.new").mkdir()
    with pytest.raises(OperationalError) as caught:
        charge(ledger)
    assert caught.value.code == "anchor_unavailable"
    assert caught.value.message.endswith("the charge stays")
    assert (ledger.read_head().entries, AnchorFile(anchor).read_head()) == (1, START)
    (anchor.parent / "a.anchor.new").rmdir()
    assert charge(ledger) == AnchorFile(anchor).read_head() == ledger.read_head()


def test_the_anchor_is_written_after_the_charge_and_replaced_whole(
    ledger: Ledger, path: Path, anchor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the anchor's name changes, the charge is committed and the new content is on the disk."""
    steps: list[object] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        fsync(handle)
        steps.append("synced")

    def replaced(fresh: Path, target: Path) -> Path:
        with closing(sqlite3.connect(path)) as other:  # which sees what is committed
            (last,) = other.execute("SELECT id || ' ' || digest FROM entries ORDER BY id DESC LIMIT 1")
        steps.append((target, fresh.read_text() == f"{last[0]}\n"))
        return replace(fresh, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    charge(ledger)
    assert steps == ["synced", (anchor, True), "synced"]


def test_the_anchor_of_many_processes_never_goes_back(path: Path, anchor: Path) -> None:
    """Six processes charge one ledger beside one anchor: it only grows, and ends where the ledger ends."""

    def spend() -> None:
        with closing(open_ledger(path, BUDGETS, anchor=anchor)) as ledger:
            for _ in range(10):
                ledger.charge({"visits": Pure(Fraction(1, 64))}, analyst="ana", query="SELECT 1")

    crowd = [FORK.Process(target=spend) for _ in range(6)]
    for process in crowd:
        process.start()
    seen = []
    while any(process.is_alive() for process in crowd):
        seen.append((AnchorFile(anchor).read_head() or START).entries)
    assert [process.exitcode for process in crowd] == [0] * 6
    assert seen == sorted(seen)
    with closing(open_ledger(path, BUDGETS, anchor=anchor)) as ledger:
        assert AnchorFile(anchor).read_head() == ledger.read_head()
        assert ledger.read_head().entries == 60
