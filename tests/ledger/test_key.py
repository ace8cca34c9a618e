"""A ledger with a key: without it nobody opens the ledger, nor makes an entry that passes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import Error, IntegrityError
from dpsql.ledger import Budget, journal, open_ledger
from dpsql.ledger.digest import KeyedDigest, read_ledger_key
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Pure

KEY, OTHER = b"k" * 32, b"o" * 32
BUDGETS = {
    "patients": Budget("pure", Fraction(1), Fraction(0)),
    "visits": Budget("pure", Fraction(1), Fraction(0)),
}
EIGHTH = Pure(Fraction(1, 8))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of six entries with a key; those of patients are the first and the fourth."""
    where = tmp_path / "a.ledger"
    with closing(open_ledger(where, BUDGETS, key=KEY)) as ledger:
        for table in ("patients", "visits", "visits", "patients", "visits", "visits"):
            ledger.charge({table: EIGHTH}, analyst="ana", query="SELECT 1")
    return where


def edit(path: Path, script: str, *, seal: KeyedDigest | None = None) -> None:
    """Changes the file; with a seal, gives all entries the links and digests that it would give them."""
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        file.executescript(script)
        previous = "0" * 64
        for row in map(dict, file.execute("SELECT * FROM entries ORDER BY id").fetchall() if seal else ()):
            assert seal is not None
            row["previous"] = previous
            previous = seal.compute_digest(row)
            file.execute(
                "UPDATE entries SET previous = ?, digest = ? WHERE id = ?",
                [row["previous"], previous, row["id"]],
            )
        file.commit()


def refused(path: Path, key: bytes | None) -> Error:
    """The error of opening the ledger, the same with its policy and without."""
    with pytest.raises(Error) as caught:
        open_ledger(path, BUDGETS, key=key)
    with pytest.raises(Error) as alone:
        LedgerReader.open(path, key)
    assert str(alone.value) == str(caught.value)
    return caught.value


def test_a_ledger_opens_only_with_its_own_key(path: Path, tmp_path: Path) -> None:
    """No key, another key, and a key for a ledger without one are told apart, and none is shown."""
    with closing(open_ledger(path, BUDGETS, key=KEY)) as ledger:
        assert ledger.verify().entries == 6
        assert KEY.decode() not in repr(vars(ledger))
    open_ledger(tmp_path / "plain", BUDGETS).close()
    errors = [refused(path, None), refused(path, OTHER), refused(tmp_path / "plain", KEY)]
    assert [error.code for error in errors] == ["ledger_key"] * 3
    assert "needs its key" in str(errors[0])
    assert "was made with another key" in str(errors[1])
    assert "was made without a key" in str(errors[2])
    assert not any(key.decode() in str(error) for error in errors for key in (KEY, OTHER))


def test_a_key_is_a_file_or_bytes(path: Path, tmp_path: Path) -> None:
    """A text is the path of a file; a line's end in it is no part of the key."""
    file = tmp_path / "ledger.key"
    file.write_bytes(KEY + b"\r\n")
    for key in (file, str(file), KEY):
        open_ledger(path, BUDGETS, key=key).close()
    for bad in (b"", b"short", b"x" * 2000, tmp_path / "none", tmp_path, "a\0b"):
        with pytest.raises(Error) as caught:
            read_ledger_key(bad)
        assert caught.value.code == "ledger_key"


def test_a_ledger_rebuilt_without_the_key_is_refused(path: Path) -> None:
    """Rebuilt as a ledger without a key, or under another, it does not open for one who has the key."""
    plain = "UPDATE meta SET value = 'sha256' WHERE key = 'digests'; UPDATE entries SET loss = '0', spent_loss = '0'"
    edit(path, plain, seal=KeyedDigest())
    assert refused(path, KEY).code == "ledger_key"


@pytest.mark.parametrize("most", [1000, 2], ids=["short", "long"])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET spent_loss = '0' WHERE table_name = 'patients'",
        "UPDATE entries SET spent_loss = '0', loss = '0'",
        "DELETE FROM entries WHERE id = 4; UPDATE entries SET id = id - 1 WHERE id > 4",
        "UPDATE accounts SET epsilon = '2/1'",
    ],
)
def test_no_rebuilding_gives_budget_back(
    path: Path, change: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the history and however well its digests are mended without the key, opening refuses it.

    A ledger without a key believes the end of a long chain that was rebuilt.
    """
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", most)
    for seal in (None, KeyedDigest(), KeyedDigest(OTHER)):
        whole = path.read_bytes()
        edit(path, change, seal=seal)
        with pytest.raises(IntegrityError) as caught:
            open_ledger(path, BUDGETS, key=KEY)
        assert caught.value.code == "ledger_tampered"
        path.write_bytes(whole)


def test_true_entries_alone_give_no_older_total(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs a key to remove entries; what is left of one account shows in the sum of all."""
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 2)
    edit(path, "DELETE FROM entries WHERE id = 4")
    with pytest.raises(IntegrityError, match=r"does not hold the \d+ entries that its last one counts"):
        open_ledger(path, BUDGETS, key=KEY)
