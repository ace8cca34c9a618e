"""The ledger keeps releases: durably, all or none, sealed, and refined once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExhausted, IntegrityError, OperationalError
from dpsql.ledger import Budget, Entry, Ledger, open_ledger
from dpsql.ledger.protocol import NewRelease, ReleaseRecord
from dpsql.ledger.schema import REFINEMENTS, RELEASES
from dpsql.privacy.accounting import Pure

BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}
A, B, OTHER = NewRelease("s", "a", "{1}"), NewRelease("s", "b", "{2}"), NewRelease("t", "a", "{3}")


def charge(ledger: Ledger, refines: tuple[int, ...] = (), epsilon: Fraction = Fraction(1, 10)) -> Entry:
    """One charge, whose entry is returned."""
    (entry,) = ledger.charge({"visits": Pure(epsilon)}, analyst="ana", query="q", refines=refines)
    return entry


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A fresh ledger, in a file and in memory."""
    with closing(open_ledger(":memory:" if request.param == "memory" else tmp_path / "a", BUDGETS)) as opened:
        yield opened


def test_stored_releases_are_found_by_their_statistic(ledger: Ledger) -> None:
    """Oldest first, with its entry; of another statistic nothing."""
    charge(ledger)
    ledger.store_releases([A, OTHER], charge(ledger))
    ledger.store_releases([B], charge(ledger))
    assert ledger.list_stored_releases("s") == (
        ReleaseRecord(1, 2, A, is_refined=False),
        ReleaseRecord(3, 3, B, is_refined=False),
    )
    assert ledger.list_stored_releases("t") == (ReleaseRecord(2, 2, OTHER, is_refined=False),)
    assert ledger.list_stored_releases("u") == ()


def test_keeping_charges_nothing(ledger: Ledger) -> None:
    """The entries and the budget are what they were; the head says that two releases are stored."""
    entry = charge(ledger)
    before = ledger.list_entries(), ledger.list_states()
    ledger.store_releases([A, B], entry)
    ledger.store_releases([], entry)
    assert (ledger.list_entries(), ledger.list_states()) == before
    assert (ledger.read_head().entries, ledger.read_head().digest, ledger.read_head().releases) == (
        1,
        entry.digest,
        2,
    )
    assert ledger.verify() == ledger.read_head()


def test_kept_releases_outlive_the_process(tmp_path: Path) -> None:
    """Another ledger object on the file finds them."""
    with closing(open_ledger(tmp_path / "a", BUDGETS)) as first:
        first.store_releases([A], charge(first))
    with closing(open_ledger(tmp_path / "a", BUDGETS)) as second:
        assert [kept.release for kept in second.list_stored_releases("s")] == [A]


def test_a_release_is_refined_once(ledger: Ledger) -> None:
    """Whoever is second is told to ask again, and nothing is charged."""
    ledger.store_releases([A, B], charge(ledger))
    entry = charge(ledger, refines=(1,))
    ledger.store_releases([NewRelease("s", "c", "{4}", refines=1)], entry)
    before = ledger.read_head(), ledger.list_states()
    for refines in ((1,), (2, 1)):
        with pytest.raises(OperationalError) as caught:
            charge(ledger, refines=refines)
        assert (caught.value.code, caught.value.hint) == (
            "release_refined",
            "nothing was charged; run the query again",
        )
    assert (ledger.read_head(), ledger.list_states()) == before
    assert [kept.is_refined for kept in ledger.list_stored_releases("s")] == [True, False, False]
    charge(ledger, refines=(2, 3))


def test_a_stored_refinement_names_its_base(ledger: Ledger) -> None:
    """Where its charge claimed nothing, too, it is the only one."""
    ledger.store_releases([A], charge(ledger))
    ledger.store_releases([NewRelease("s", "c", "{4}", refines=1)], charge(ledger))
    assert [kept.is_refined for kept in ledger.list_stored_releases("s")] == [True, False]
    with pytest.raises(OperationalError, match="another query refined the same stored answer"):
        charge(ledger, refines=(1,))


def test_a_release_is_claimed_once(ledger: Ledger) -> None:
    """By a charge whose release nobody has seen, too."""
    ledger.store_releases([A], charge(ledger))
    assert charge(ledger, refines=(1,)).refines == (1,)
    assert ledger.list_stored_releases("s")[0].is_refined
    with pytest.raises(OperationalError, match="another query refined the same stored answer"):
        charge(ledger, refines=(1,))
    assert ledger.verify().entries == 2


def test_deleted_claims_are_found_on_use(tmp_path: Path) -> None:
    """By whoever asks what is stored, and whoever wants to refine anything: nothing is charged."""
    with closing(open_ledger(tmp_path / "a", BUDGETS)) as ledger:
        ledger.store_releases([A, B], charge(ledger))
        charge(ledger, refines=(1,))
        with closing(sqlite3.connect(tmp_path / "a")) as database, database:
            database.execute("DELETE FROM refinements")
        before = ledger.list_entries()
        for asked in (lambda: ledger.list_stored_releases("s"), lambda: charge(ledger, refines=(2,))):
            with pytest.raises(IntegrityError, match="the ledger's record of refined releases"):
                asked()
        assert ledger.list_entries() == before
        charge(ledger)


def test_a_refused_charge_claims_no_release(ledger: Ledger) -> None:
    """Where the budget does not suffice, the release may still be refined."""
    ledger.store_releases([A], charge(ledger))
    with pytest.raises(BudgetExhausted):
        charge(ledger, refines=(1,), epsilon=Fraction(2))
    assert not ledger.list_stored_releases("s")[0].is_refined


EDITS = {
    "the noise": "UPDATE releases SET body = '{9}'",
    "the name": "UPDATE releases SET measurement = 'b'",
    "the statistic": "UPDATE releases SET statistic = 's', number = 7 WHERE statistic = 't'",
    "the entry": "UPDATE releases SET entry = 2",
    "the entry's digest": "UPDATE releases SET entry_digest = 'x'",
    "a digest of another ledger's": "UPDATE releases SET digest = 'x'",
    "what it refines": "UPDATE releases SET refines = 1",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_release_is_refused(edit: str, tmp_path: Path) -> None:
    """Each column is under the digest; a budget and its chain are not touched by it."""
    with closing(open_ledger(tmp_path / "a", BUDGETS)) as ledger:
        ledger.store_releases([A, OTHER], charge(ledger))
        charge(ledger)
    with closing(sqlite3.connect(tmp_path / "a")) as database, database:
        database.execute(edit)
    with closing(open_ledger(tmp_path / "a", BUDGETS)) as ledger:
        with pytest.raises(IntegrityError) as caught:
            ledger.list_stored_releases("s")
        assert caught.value.code == "ledger_tampered"
        assert caught.value.message.endswith("of the ledger was changed")
        charge(ledger)


def test_a_release_of_another_history_is_refused(tmp_path: Path) -> None:
    """A row whose entry is not the one that paid for it: it was copied here, or entries were put back."""
    for name in "ab":
        with closing(open_ledger(tmp_path / name, BUDGETS)) as ledger:
            ledger.store_releases([A], charge(ledger, epsilon=Fraction(1, 10 + ord(name))))
    with closing(sqlite3.connect(tmp_path / "b")) as database:
        rows = database.execute("SELECT * FROM releases").fetchall()
    with closing(sqlite3.connect(tmp_path / "a")) as database, database:
        database.execute("DELETE FROM releases")
        database.executemany(f"INSERT INTO releases VALUES ({', '.join('?' * len(rows[0]))})", rows)
    with closing(open_ledger(tmp_path / "a", BUDGETS)) as ledger, pytest.raises(IntegrityError):
        ledger.list_stored_releases("s")


def test_the_tables_are_those_of_the_schema(tmp_path: Path) -> None:
    """What is kept is found through an index, however long the history."""
    open_ledger(tmp_path / "a", BUDGETS).close()
    with closing(sqlite3.connect(tmp_path / "a")) as database:
        for table in (RELEASES, REFINEMENTS):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table.name})")]
            assert columns == table.columns.keys()
        plan = database.execute("EXPLAIN QUERY PLAN SELECT * FROM releases WHERE statistic = 's'").fetchall()
    assert "releases_of_statistic" in plan[0][-1]


def test_one_measurement_is_found_alone(ledger: Ledger) -> None:
    """Of a statistic with many, only the asked one is read; of another statistic with its name, none."""
    ledger.store_releases([A, B, OTHER], charge(ledger))
    assert [kept.release for kept in ledger.list_stored_releases("s", "b")] == [B]
    assert [kept.release for kept in ledger.list_stored_releases("t", "a")] == [OTHER]
    assert ledger.list_stored_releases("t", "b") == ()


def test_a_release_stored_once_is_not_stored_again(ledger: Ledger) -> None:
    """A release of the same statistic and measurement is left out, within a call and after it; others are not."""
    once = [NewRelease("rows", name, "{}", once=True) for name in ("x", "y", "x")]
    ledger.store_releases(once, charge(ledger))
    ledger.store_releases(once, charge(ledger))
    ledger.store_releases([NewRelease("rows", "x", "{}")], charge(ledger))
    assert [kept.release.measurement for kept in ledger.list_stored_releases("rows")] == ["x", "y", "x"]
    ledger.verify()
