"""The ledger charges parts of tables, by analyst and by period, and never lets a place pass its budget."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import BudgetExhausted, IntegrityError, OperationalError, PolicyError, ProgrammingError
from dpsql.ledger import Budget, Ledger, journal, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import KeyedDigest
from dpsql.ledger.protocol import TableCharge
from dpsql.ledger.quote import MOST_OWN_RESERVATIONS, MOST_RESERVATIONS
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Charge, Pure, Selection
from dpsql.privacy.accounting.events import Composed, Event
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges
from dpsql.privacy.accounting.partitions.grid import MOST_CELLS

BUDGETS: dict[str | AccountKey, Budget] = {"visits": Budget("pure", Fraction(1), Fraction(1, 1000))}
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def days(low: int, high: int) -> Box:
    """The box of some days."""
    return Box.from_sides({"day": ((low, high),)})


def ask(ledger: Ledger, *parts: Box, epsilon: Fraction = Fraction(1, 4), who: str = "ana") -> None:
    """Charges each part of `visits` in one charge."""
    ledger.charge(
        [TableCharge("visits", Pure(epsilon), part) for part in parts], analyst=who, query="SELECT 1"
    )


def left(ledger: Ledger, part: Box = WHOLE, who: str = "") -> Fraction:
    """The ε that is left of a part: of the analyst's budget if it is named, else of the table's."""
    quotes = ledger.dry_run([TableCharge("visits", Pure(Fraction(1, 64)), part)], analyst=who)
    return next(quote for quote in quotes if quote.analyst == who).remaining.loss_fraction


@pytest.fixture(params=["file", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger is kept: a file, a server."""
    return str(tmp_path / "a.ledger") if request.param == "file" else request.getfixturevalue("postgres_url")


def test_disjoint_parts_cost_as_much_as_one(kept: str) -> None:
    """Twelve months cost one; what overlaps costs where it does; all of it is so after a restart."""
    with closing(open_ledger(kept, BUDGETS)) as ledger:
        for month in range(12):
            ask(ledger, days(30 * month, 30 * month + 29))
        assert ledger.get_state("visits").spent == Charge(Charge.UNIT // 4, 0)
        ask(ledger, days(15, 44))
        assert (left(ledger), left(ledger, days(0, 14)), left(ledger, days(50, 400))) == (
            Fraction(1, 2), Fraction(3, 4), Fraction(3, 4),
        )  # fmt: skip
        ask(ledger, WHOLE)
        ask(ledger, days(20, 20))
        with pytest.raises(
            BudgetExhausted,
            match=r"epsilon 0.25 of a part of table visits, but at most epsilon 0 is left for one query \(budget: epsilon 1\)",
        ):
            ask(ledger, days(0, 20))
        with pytest.raises(BudgetExhausted, match=r"0.25 of table visits, but at most epsilon 0 is left"):
            ask(ledger, WHOLE)
        scattered = Box.from_sides({"day": tuple((2**40 + 2 * day, 2**40 + 2 * day) for day in range(300))})
        ask(ledger, scattered)
        before = ledger.get_state("visits")
    with closing(open_ledger(kept, BUDGETS)) as ledger:
        assert ledger.get_state("visits") == before
        assert left(ledger, scattered) == Fraction(1, 2)
        assert (left(ledger, days(20, 20)), left(ledger, days(0, 14))) == (0, Fraction(1, 2))
        assert ledger.verify() == ledger.read_head()
        ask(ledger, days(400, 500), epsilon=Fraction(3, 4))
        assert [entry.box for entry in ledger.list_entries(limit=4)] == [
            None, str(days(20, 20)), str(scattered), str(days(400, 500)),
        ]  # fmt: skip


def test_few_rows_of_partitions_are_stored(kept: str) -> None:
    """After forty charges to skew boxes few rows are kept, of which a whole charge changes none but its own."""
    rng = random.Random(1)
    with closing(open_ledger(kept, BUDGETS)) as ledger:
        ask(ledger, days(0, 400), epsilon=Fraction(1, 2))
        for _ in range(40):
            sides = {name: (tuple(sorted(rng.sample(range(1000), 2))),) for name in ("day", "x", "y")}
            ask(ledger, Box.from_sides(sides), epsilon=Fraction(1, 10**9))
        balance = ledger._book.compute_balance(ledger._journal.chain, AccountKey("visits"))  # type: ignore[attr-defined]
        assert 1 < len(balance.parts.cells) <= MOST_CELLS
        assert (
            Fraction(1, 2)
            <= ledger.get_state("visits").spent.loss_fraction
            <= Fraction(1, 2) + Fraction(40, 10**9)
        )
        assert left(ledger, days(500, 999)) >= 1 - Fraction(40, 10**9)
        assert ledger.verify() == ledger.read_head()
        before = ledger.list_states()
    with closing(open_ledger(kept, BUDGETS)) as ledger:
        assert ledger.list_states() == before


def test_stored_cells_stay_where_a_charge_does_not_reach(kept: str) -> None:
    """Whether a charge reaches few of the stored cells or most, what is read back is what was charged."""
    parts = [
        *(days(30 * month, 30 * month + month + 1) for month in range(6)), days(0, 3), days(0, 140), days(31, 31), WHOLE,
        days(61, 400),
    ]  # fmt: skip
    expected = PartitionCharges()
    for part in parts:
        with closing(open_ledger(kept, BUDGETS)) as ledger:
            ask(ledger, part, epsilon=Fraction(1, 10))
        expected = expected.with_charge(part, Charge(Charge.UNIT // 10, 0))
        with closing(open_ledger(kept, BUDGETS)) as ledger:
            ledger.verify()
            assert ledger._book.compute_balance(ledger._journal.chain, AccountKey("visits")).parts == expected  # type: ignore[attr-defined]


def test_open_slices_are_few(tmp_path: Path) -> None:
    """Each is work for every charge after it: of one analyst there are sixteen at most, of all sixty-four."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        for number in range(MOST_RESERVATIONS):
            ledger.reserve(
                {"visits": Pure(Fraction(1, 10**6))}, analyst=f"a{number // MOST_OWN_RESERVATIONS}"
            )
        before = ledger.read_head()
        for who in ("a0", "new"):
            with pytest.raises(OperationalError, match="too many open reservations"):
                ledger.reserve({"visits": Pure(Fraction(1, 10**6))}, analyst=who)
        assert ledger.read_head() == before
        ledger.close_reservation(1, by="a0")
        with pytest.raises(OperationalError, match="too many open reservations: 16 by 'a1'"):
            ledger.reserve({"visits": Pure(Fraction(1, 10**6))}, analyst="a1")
        ledger.reserve({"visits": Pure(Fraction(1, 10**6))}, analyst="new")


def test_several_parts_of_a_charge_are_taken_together_or_not_at_all(tmp_path: Path) -> None:
    """One charge to overlapping parts adds up where they overlap; if it does not fit there, nothing is written."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        ask(ledger, days(0, 9), days(5, 14), epsilon=Fraction(1, 2))
        assert (left(ledger), left(ledger, days(0, 4))) == (0, Fraction(1, 2))
        before = ledger.list_entries(), ledger.list_states()
        with pytest.raises(BudgetExhausted):
            ask(ledger, days(20, 29), days(25, 34), epsilon=Fraction(5, 8))
        assert (ledger.list_entries(), ledger.list_states()) == before


def test_parts_spend_delta_too(tmp_path: Path) -> None:
    """A selection is charged where it chooses; loss and delta may be largest at different places."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        events: list[tuple[Event, Box]] = [
            (Composed((Pure(Fraction(1, 8)), Selection(Fraction(1, 1000)))), days(0, 9)),
            (Pure(Fraction(1, 2)), days(10, 19)),
        ]
        for event, part in events:
            ledger.charge([TableCharge("visits", event, part)], analyst="ana", query="q")
        assert ledger.get_state("visits").spent == Charge(Charge.UNIT // 2, Charge.UNIT // 1000)
        with pytest.raises(BudgetExhausted, match="delta"):
            ledger.charge(
                [TableCharge("visits", Selection(Fraction(1, 10**6)), days(9, 9))], analyst="ana", query="q"
            )
        ledger.charge(
            [TableCharge("visits", Selection(Fraction(1, 1000)), days(10, 19))], analyst="ana", query="q"
        )


@pytest.mark.parametrize(
    "forgery",
    [
        "UPDATE parts SET loss = '0'",
        "DELETE FROM parts WHERE box <> '{}'",
        "DELETE FROM parts WHERE box = '{}'",
        "UPDATE parts SET box = '{\"day\":[[90,99]]}' WHERE box = '{\"day\":[[0,9]]}'",
    ],
)
def test_edited_parts_are_refused(tmp_path: Path, forgery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of each part is vouched for by the last entry, and follows from all of them: on opening and by `verify`."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        ask(ledger, WHOLE)
        ask(ledger, days(0, 9))
        ask(ledger, days(20, 29), epsilon=Fraction(1, 8))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(forgery)
        raw.commit()
    unfounded = "partitions of table visits in the ledger do not follow from its entries"
    with pytest.raises(IntegrityError, match=unfounded):
        open_ledger(path, BUDGETS)
    with closing(LedgerReader.open(str(path))) as reader, pytest.raises(IntegrityError, match=unfounded):
        reader.verify()
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 1)
    with pytest.raises(
        IntegrityError, match="partitions or reservations of table visits in the ledger were changed"
    ):
        open_ledger(path, BUDGETS)


def test_long_ledgers_read_their_stored_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the history is not read, what is left of each part is the same."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        for part in (WHOLE, days(0, 9), days(5, 29), days(7, 7)):
            ask(ledger, part)
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 1)
    with closing(open_ledger(path, BUDGETS)) as ledger:
        found = [left(ledger, days(day, day)) for day in (0, 5, 7, 29, 30)]
        assert found == [Fraction(quarters, 4) for quarters in (2, 1, 0, 2, 3)]
        ask(ledger, days(29, 30))
        ledger.verify()


def test_a_box_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    """An entry's part is covered by its digest, and by what the next entries say is spent."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        ask(ledger, WHOLE)
        ask(ledger, WHOLE)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE entries SET box = ?", [str(days(0, 9))])
        raw.commit()
    with pytest.raises(IntegrityError, match="changed"):
        open_ledger(path, BUDGETS)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 4), st.integers(1, 6), st.sampled_from(["ana", "bob"])),
        min_size=1,
        max_size=12,
    )
)
def test_no_place_passes_any_budget(asked: list[tuple[int, int, int, str]]) -> None:
    """Against days that are counted one by one: what fits is admitted, what would pass a budget is not."""
    budgets = BUDGETS | {AccountKey("visits", "ana"): Budget("pure", Fraction(1, 2), Fraction(0))}
    spent = {"": [0] * 13, "ana": [0] * 13}
    with closing(open_ledger(":memory:", budgets)) as ledger:
        for low, length, eighths, who in asked:
            place = slice(low, low + length + 1)
            accounts = {"": 8, "ana": 4} if who == "ana" else {"": 8}
            fits = all(max(spent[key][place]) + eighths <= most for key, most in accounts.items())
            try:
                ask(ledger, days(low, low + length), epsilon=Fraction(eighths, 8), who=who)
            except BudgetExhausted:
                assert not fits
                continue
            assert fits
            for key in accounts:
                spent[key][place] = [own + eighths for own in spent[key][place]]
        for day in range(13):
            assert left(ledger, days(day, day)) == 1 - Fraction(spent[""][day], 8)
            assert left(ledger, days(day, day), who="ana") == Fraction(1, 2) - Fraction(spent["ana"][day], 8)
        ledger.verify()


def test_an_analyst_has_a_budget_within_the_table_s(tmp_path: Path) -> None:
    """A charge goes to both accounts or to none; others' are the table's alone."""
    budgets = BUDGETS | {AccountKey("visits", "ana"): Budget("pure", Fraction(1, 2), Fraction(0))}
    with closing(open_ledger(tmp_path / "a.ledger", budgets)) as ledger:
        ask(ledger, WHOLE, epsilon=Fraction(1, 2))
        assert [(entry.table, entry.account_analyst) for entry in ledger.list_entries()] == [
            ("visits", ""), ("visits", "ana"),
        ]  # fmt: skip
        before = ledger.list_entries()
        with pytest.raises(
            BudgetExhausted,
            match=r"of table visits for analyst ana, but at most epsilon 0 is left for one query \(budget: epsilon 0.5\)",
        ):
            ask(ledger, WHOLE, epsilon=Fraction(1, 8))
        assert ledger.list_entries() == before
        ask(ledger, WHOLE, epsilon=Fraction(1, 2), who="bob")
        assert [state.name for state in ledger.list_states()] == ["visits", "visits for ana"]
        with pytest.raises(BudgetExhausted, match="of table visits, but"):
            ask(ledger, WHOLE, epsilon=Fraction(1, 8), who="bob")


def test_a_reset_ends_the_period_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    """Nothing renews before that period; a reset is the way out, and what it begins renews as ever."""
    clock = SimpleNamespace(now=NOON.replace(year=2037))
    renewed: dict[str | AccountKey, Budget] = {
        "visits": Budget("pure", Fraction(1), Fraction(0), renewal="monthly")
    }
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, renewed, clock=lambda: clock.now)) as ledger:
        ask(ledger, WHOLE, epsilon=Fraction(1))
        for clock.now in (NOON, NOON + timedelta(days=40)):
            with pytest.raises(BudgetExhausted) as refused:
                ask(ledger, WHOLE)
            assert "a clock that was ahead charged this budget in 2037-11" in str(refused.value.hint)
        ledger.reset("visits", by="olga", reason="the clock was ahead")
        ask(ledger, days(0, 9), epsilon=Fraction(1))
        assert ledger.get_state("visits").period == "2027-01"
        with pytest.raises(BudgetExhausted) as refused:
            ask(ledger, WHOLE)
        assert "clock" not in str(refused.value.hint)
        clock.now += timedelta(days=31)
        ask(ledger, days(0, 9), epsilon=Fraction(1))
        assert ledger.verify() == ledger.read_head()
        before = ledger.list_states()
    with closing(open_ledger(path, renewed, clock=lambda: clock.now)) as ledger:
        assert ledger.list_states() == before


def test_renewing_budget_starts_over_and_never_goes_back(tmp_path: Path) -> None:
    """A new period has spent nothing; a clock that falls back spends of the latest period there was."""
    clock = SimpleNamespace(now=NOON)
    renewed: dict[str | AccountKey, Budget] = {
        "visits": Budget("pure", Fraction(1), Fraction(0), renewal="monthly")
    }
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, renewed, clock=lambda: clock.now)) as ledger:
        ask(ledger, WHOLE, epsilon=Fraction(1, 2))
        ask(ledger, days(0, 9), epsilon=Fraction(1, 2))
        clock.now = NOON + timedelta(days=1)
        assert (left(ledger), ledger.get_state("visits").period) == (1, "2026-12")
        ask(ledger, days(0, 3), epsilon=Fraction(3, 4))
        clock.now = NOON
        assert (left(ledger), ledger.get_state("visits").period) == (Fraction(1, 4), "2026-12")
        ask(ledger, WHOLE)
        with pytest.raises(BudgetExhausted):
            ask(ledger, days(0, 9))
        ledger.verify()
        before = ledger.list_states()
    with closing(open_ledger(path, renewed, clock=lambda: clock.now)) as ledger:
        assert ledger.list_states() == before
    with pytest.raises(
        PolicyError, match=r"accountant pure in the policy, but .* renewed monthly in the ledger"
    ):
        open_ledger(path, {"visits": Budget("pure", Fraction(1), Fraction(0))})


def test_owner_may_reset_a_budget(tmp_path: Path) -> None:
    """A reset is an entry of the chain with who did it and why; from then on nothing is spent."""
    path = tmp_path / "a.ledger"
    budgets = BUDGETS | {AccountKey("visits", "ana"): Budget("pure", Fraction(1, 2), Fraction(0))}
    with closing(open_ledger(path, budgets, clock=lambda: NOON)) as ledger:
        ask(ledger, days(0, 9), epsilon=Fraction(1, 2))
        entry = ledger.reset("visits", by="olga", reason="the study's second wave")
        assert (entry.kind, entry.event, entry.spend, entry.spent) == (
            "reset",
            None,
            Charge(0, 0),
            Charge(0, 0),
        )
        assert (entry.analyst, entry.details) == ("olga", {"reason": "the study's second wave"})
        assert (left(ledger, days(0, 9)), left(ledger, days(0, 9), who="ana")) == (1, 0)
        ledger.reset("visits", analyst="ana", by="olga", reason="likewise")
        ask(ledger, days(5, 9), epsilon=Fraction(1, 2))
        assert ledger.verify() == ledger.read_head()
        before = ledger.list_states(), ledger.list_entries()
    with closing(open_ledger(path, budgets, clock=lambda: NOON)) as ledger:
        assert (ledger.list_states(), ledger.list_entries()) == before
        assert [entry.kind for entry in ledger.list_entries("visits")] == [
            "charge",
            "charge",
            "reset",
            "reset",
            "charge",
            "charge",
        ]
        for reason in ("", " \n"):
            with pytest.raises(ProgrammingError, match="a reset needs a reason"):
                ledger.reset("visits", by="olga", reason=reason)
        with pytest.raises(PolicyError, match="no budget for table secrets"):
            ledger.reset("secrets", by="olga", reason="curiosity")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE entries SET kind = 'reset' WHERE id = 6")
        raw.commit()
    with pytest.raises(IntegrityError, match="entry 6 of the ledger was changed"):
        open_ledger(path, budgets)


def test_entries_of_unknown_kinds_are_refused(tmp_path: Path) -> None:
    """A chain that is well made, but with an entry whose meaning is unknown, is not one that dpsql wrote."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        ask(ledger, WHOLE)
    with closing(sqlite3.connect(path)) as raw:
        raw.row_factory = sqlite3.Row
        row = {**raw.execute("SELECT * FROM entries").fetchone(), "kind": "gift"}
        raw.execute("UPDATE entries SET kind = 'gift', digest = ?", [KeyedDigest().compute_digest(row)])
        raw.commit()
    with pytest.raises(
        IntegrityError, match="entry 1 of the ledger does not agree with the entries before it"
    ):
        open_ledger(path, BUDGETS)
