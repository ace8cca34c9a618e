"""A32: edits beside the chain.

Deleting what a ledger notes of refinements, or editing releases that it stores, makes a coupling draw again and again at
the price of a difference; each draw tells more of the data than was charged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from attacks.edits import rebuilt
from clinic import POLICY, database

import dpsql
from dpsql.api.connection import Connection
from dpsql.ledger import AnchorFile, entry_writer, journal, sql_ledger
from dpsql.ledger.digest import KeyedDigest, compute_text_digest
from dpsql.ledger.protocol import START
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.schema import Claims

COUNT = "SELECT COUNT(*) AS n FROM visits"
RULES: dict[str, Any] = POLICY | {
    "budget": {"epsilon": 30, "delta": 1e-6, "accountant": "pure"},
    "data_version": "1",
    "max_epsilon": 20,
    "database": "clinic",
}
KEY = b"the owner's secret of thirty-two"
Edit = Callable[[sqlite3.Connection], object]
Kept = dict[str, Any]


def opened(path: Path, kept: Kept) -> Connection:
    """The clinic under a budget that adds up losses, where a refinement is a coupling."""
    return dpsql.connect(database(), policy=RULES, ledger=path, analyst="ana", **kept)


def edit(path: Path, change: Edit) -> None:
    """Changes the file, closed, as whoever can write it does."""
    with closing(sqlite3.connect(path)) as file, file:
        file.row_factory = sqlite3.Row
        change(file)


def forget(file: sqlite3.Connection) -> None:
    """Takes away what is noted of refinements, and what they released."""
    file.execute("DELETE FROM refinements")
    file.execute("DELETE FROM releases WHERE refines IS NOT NULL OR number > 2")


def resealed(file: sqlite3.Connection) -> None:
    """Gives the stored releases the digests and links that they would have if they were true, without a key."""
    previous = "0" * 64
    for row in map(dict, file.execute("SELECT * FROM releases ORDER BY number").fetchall()):
        sealed = {name: value for name, value in row.items() if name != "body"}
        sealed |= {"previous": previous, "body_digest": compute_text_digest(row["body"])}
        previous = KeyedDigest().compute_digest(sealed)
        file.execute(
            "UPDATE releases SET previous = ?, body_digest = ?, digest = ? WHERE number = ?",
            [sealed["previous"], sealed["body_digest"], previous, row["number"]],
        )


def move(file: sqlite3.Connection) -> None:
    """Adds one to what was released, with all digests of the release mended."""
    file.execute("UPDATE releases SET body = replace(body, '\"cells\":[[[', '\"cells\":[[[1')")
    resealed(file)


def test_careless_ledger_redraws_a_refinement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack works where a table beside the chain holds the claims: eight couplings for eight differences."""
    monkeypatch.setattr(entry_writer, "require_refinable", lambda *_: None)
    monkeypatch.setattr("dpsql.ledger.releases.require_claim_count", lambda *_: None)
    monkeypatch.setattr(sql_ledger, "iterate_stored_releases", _careless(sql_ledger.iterate_stored_releases))
    monkeypatch.setattr(Claims, "with_claims", lambda self, *_: self)
    path, refined = tmp_path / "a.ledger", 0
    with opened(path, {}) as connection:
        connection.query(COUNT, epsilon=1)
    for _ in range(8):
        edit(path, forget)
        with opened(path, {}) as connection:
            refined += bool(connection.query(COUNT, epsilon=2).receipt.refined)
    assert refined == 8


def _careless(true: Callable[..., Any]) -> Callable[..., Any]:
    """What is stored, as it was found before: no claim, and no end, is held against it."""
    return lambda connection, seal, statistic, *_: true(connection, seal, statistic, Claims(), START)


KEPT: dict[str, Callable[[Path], Kept]] = {
    "nothing": lambda _: {},
    "an anchor": lambda folder: {"anchor": folder / "anchor"},
    "a key": lambda _: {"ledger_key": KEY},
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_no_coupling_is_drawn_twice(kept: Callable[[Path], Kept], tmp_path: Path) -> None:
    """Deleted claims and refinements are found, and buy no second draw at the price of a difference."""
    path, own = tmp_path / "a.ledger", kept(tmp_path)
    with opened(path, own) as connection:
        connection.query(COUNT, epsilon=1)
        assert connection.query(COUNT, epsilon=2).receipt.refined == (1,)
    edit(path, forget)
    refined = 0
    for _ in range(3):
        with suppress(dpsql.Error), opened(path, own) as connection:
            refined += bool(connection.query(COUNT, epsilon=2).receipt.refined)
    assert refined == 0
    assert not verified(path, own)


def verified(path: Path, kept: Kept) -> bool:
    """Whether the whole ledger passes, beside what is kept of it elsewhere."""
    head = AnchorFile(kept["anchor"]).read_head() if "anchor" in kept else None
    with closing(LedgerReader.open(path, kept.get("ledger_key"))) as history:
        try:
            history.verify(head)
        except dpsql.IntegrityError:
            return False
    return True


DELETED: dict[str, tuple[str, bool]] = {
    "claims": ("DELETE FROM refinements", False),
    "a claim for another": ("UPDATE refinements SET base = 2", False),
    "a stored release": ("DELETE FROM releases WHERE number = 1", False),
    "the refinement": ("DELETE FROM releases WHERE refines IS NOT NULL", False),
    "all stored releases": ("DELETE FROM releases", False),
    "nothing": ("SELECT 1", True),
}


@pytest.mark.parametrize(("sql", "passes"), DELETED.values(), ids=DELETED)
@pytest.mark.parametrize("length", [1000, 1], ids=["followed", "looked up"])
def test_deleted_entries_are_found(
    sql: str, passes: bool, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` finds them, and a later query is charged whole or refused: never drawn for less."""
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", length)
    path = tmp_path / "a.ledger"
    with opened(path, {}) as connection:
        connection.query(COUNT, epsilon=1)
        connection.query(COUNT, epsilon=2)
        connection.query("SELECT SUM(days) AS s FROM visits", epsilon=1)
    edit(path, lambda file: file.execute(sql))
    assert verified(path, {}) is passes
    if not passes:
        with suppress(dpsql.IntegrityError), opened(path, {}) as connection:
            before = connection.budget()["visits"].spent_epsilon
            receipt = connection.query(COUNT, epsilon=3).receipt
            assert not receipt.refined or connection.budget()["visits"].spent_epsilon - before == 1


@pytest.mark.parametrize("more", [False, True], ids=["the newest", "an older one"])
@pytest.mark.parametrize("kept", [KEPT["an anchor"], KEPT["a key"]], ids=["an anchor", "a key"])
def test_edited_release_is_refused(kept: Callable[[Path], Kept], more: bool, tmp_path: Path) -> None:
    """It is refused however its digests were mended, also when an entry came after it."""
    path, own = tmp_path / "a.ledger", kept(tmp_path)
    with opened(path, own) as connection:
        connection.query(COUNT, epsilon=1)
        if more:
            connection.query("SELECT SUM(days) AS s FROM visits", epsilon=1)
    assert verified(path, own)
    edit(path, move)
    assert not verified(path, own)
    with pytest.raises(dpsql.IntegrityError), opened(path, own) as connection:
        connection.query(COUNT, epsilon=2)


def test_edited_release_before_an_entry_is_found(tmp_path: Path) -> None:
    """The entry after it holds its digest."""
    path = tmp_path / "a.ledger"
    with opened(path, {}) as connection:
        connection.query(COUNT, epsilon=1)
        connection.query("SELECT SUM(days) AS s FROM visits", epsilon=1)
    edit(path, move)
    assert not verified(path, {})


def test_entries_hold_the_claims(tmp_path: Path) -> None:
    """The entry that pays for a refinement names the release, and each later one vouches for all claims."""
    path = tmp_path / "a.ledger"
    with opened(path, {}) as connection:
        for epsilon in (1, 2, 3):
            connection.query(COUNT, epsilon=epsilon)
        entries = connection.engine.ledger.list_entries()
    first, second, third = (entry.refines for entry in entries)
    assert (first, len(second), len(third)) == ((), 1, 1)
    assert second != third
    edit(path, lambda file: file.execute("UPDATE entries SET refines = NULL WHERE id = 2"))
    with pytest.raises(dpsql.IntegrityError, match="entry 2 of the ledger was changed"):
        opened(path, {})


def refined_once(path: Path) -> None:
    """A ledger with a refinement, and an entry after it."""
    with opened(path, {}) as connection:
        for epsilon in (1, 2):
            connection.query(COUNT, epsilon=epsilon)
        connection.query("SELECT SUM(days) AS s FROM visits", epsilon=1)


def test_exchanged_claims_are_found_when_a_long_ledger_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last entry alone is read there; it holds the digest of all claims."""
    path = tmp_path / "a.ledger"
    refined_once(path)
    edit(path, lambda file: file.execute("UPDATE refinements SET base = base + 1"))
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 1)
    with pytest.raises(dpsql.IntegrityError, match="the ledger's record of refined releases was changed"):
        opened(path, {})


def test_entry_holds_the_earlier_claims(tmp_path: Path) -> None:
    """A claim that is taken out of its entry, with all digests of the entries mended, contradicts the next one."""
    path = tmp_path / "a.ledger"
    refined_once(path)

    def without(file: sqlite3.Connection) -> None:
        file.execute("DELETE FROM refinements")
        file.execute("UPDATE entries SET refines = NULL, claims = NULL WHERE id = 2")
        file.execute("DELETE FROM releases WHERE entry > 1")
        rebuilt(file, 3)

    edit(path, without)
    assert not verified(path, {})
    with pytest.raises(
        dpsql.IntegrityError, match="entry 3 of the ledger does not agree with the entries before it"
    ):
        opened(path, {})
