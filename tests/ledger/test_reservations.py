"""A slice counts whole from the first moment, is spent from once, and gives back what it has not spent, once."""

from __future__ import annotations

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

from dpsql.errors import BudgetExhausted, IntegrityError, OperationalError, ProgrammingError
from dpsql.ledger import Budget, Ledger, journal, open_ledger
from dpsql.ledger.balance import AccountReservation
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.protocol import ReservationState, TableCharge
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Charge, Pure, Selection
from dpsql.privacy.accounting.accountants import ACCOUNTANTS
from dpsql.privacy.accounting.events import Composed
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box

VISITS, ANA = AccountKey("visits"), AccountKey("visits", "ana")
PURE = Budget("pure", Fraction(1), Fraction(1, 1000))
BUDGETS: dict[str | AccountKey, Budget] = {"patients": PURE, "visits": PURE}
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
UNIT = Charge.UNIT


def days(low: int, high: int) -> Box:
    """The box of some days."""
    return Box.from_sides({"day": ((low, high),)})


def reserve(ledger: Ledger, epsilon: Fraction, *tables: str, who: str = "ana") -> int:
    """Reserves that much of each table; the slice's number."""
    charges = dict.fromkeys(tables or ("visits",), Pure(epsilon))
    return ledger.reserve(charges, analyst=who)[0].id


def ask(
    ledger: Ledger, epsilon: Fraction, within: int | None = None, box: Box = WHOLE, who: str = "ana"
) -> None:
    """Charges `visits`, or a slice of it."""
    ledger.charge(
        [TableCharge("visits", Pure(epsilon), box)], analyst=who, query="SELECT 1", reservation=within
    )


def spent(ledger: Ledger, table: str = "visits") -> Fraction:
    """What a table counts as spent."""
    return ledger.get_state(table).spent.loss_fraction


@pytest.fixture(params=["file", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger is kept: a file, a server."""
    return str(tmp_path / "a.ledger") if request.param == "file" else request.getfixturevalue("postgres_url")


def test_a_slice_is_charged_whole_spent_from_and_given_back(kept: str) -> None:
    """The total stands still while the slice is spent from; each state is found again after a restart."""
    with closing(open_ledger(kept, BUDGETS)) as ledger:
        number = reserve(ledger, Fraction(1, 2))
        ask(ledger, Fraction(1, 8), number)
        assert spent(ledger) == Fraction(1, 2)
        with pytest.raises(
            BudgetExhausted,
            match=r"needs epsilon 0\.625 of table visits, but .* 0\.5 is left for one query \(budget: epsilon 1\)",
        ):
            ask(ledger, Fraction(5, 8))
        with pytest.raises(
            BudgetExhausted,
            match=r"of reservation 1 of table visits, but at most epsilon 0\.375 is left for one query\n",
        ):
            ask(ledger, Fraction(1, 2), number)
    with closing(open_ledger(kept, BUDGETS)) as ledger:
        assert ledger.list_reservations() == (
            ReservationState(number, VISITS, "ana", Charge(UNIT // 2, 0), Charge(3 * UNIT // 8, 0)),
        )
        ask(ledger, Fraction(1, 4), number)
        (entry,) = ledger.close_reservation(number, by="olga")
        assert (entry.kind, entry.reservation, entry.analyst, entry.event) == ("return", number, "olga", None)
        assert (entry.spend, entry.spent) == (Charge(UNIT // 8, 0), Charge(3 * UNIT // 8, 0))
        assert ledger.close_reservation(number, by="ana") == ledger.list_reservations() == ()
        assert ledger.verify() == ledger.read_head()
        assert [(one.kind, one.reservation) for one in ledger.list_entries()] == [
            ("reserve", 1), ("draw", 1), ("draw", 1), ("return", 1),
        ]  # fmt: skip
        with pytest.raises(
            OperationalError, match="reservation 1 is not open for 'ana' on table visits"
        ) as refused:
            ask(ledger, Fraction(1, 64), number)
        assert refused.value.code == "slice_closed"
        ask(ledger, Fraction(5, 8))


def test_slices_are_of_tables_and_of_analysts_at_once(tmp_path: Path) -> None:
    """Each account keeps its own side; where one cannot bear it nothing is reserved; others cannot spend it."""
    budgets = BUDGETS | {ANA: Budget("pure", Fraction(3, 4), Fraction(0))}
    with closing(open_ledger(tmp_path / "a.ledger", budgets)) as ledger:
        with pytest.raises(
            BudgetExhausted, match=r"the reservation needs epsilon 0\.8 of table visits for analyst ana"
        ):
            reserve(ledger, Fraction(8, 10), "patients", "visits")
        assert ledger.read_head().entries == 0
        number = reserve(ledger, Fraction(1, 2), "patients", "visits")
        assert [state.key for state in ledger.list_reservations()] == [AccountKey("patients"), VISITS, ANA]
        ask(ledger, Fraction(1, 8), number)
        for who in ("bob", ""):
            with pytest.raises(OperationalError, match=r"is not open for .* on table visits"):
                ask(ledger, Fraction(1, 8), number, who=who)
        returned = ledger.close_reservation(number, by="ana")
        assert [entry.spend.loss_fraction for entry in returned] == [
            Fraction(1, 2), Fraction(3, 8), Fraction(3, 8),
        ]  # fmt: skip
        assert (spent(ledger, "patients"), spent(ledger)) == (0, Fraction(1, 8))
        other = reserve(ledger, Fraction(1, 4), "patients")
        with pytest.raises(OperationalError, match=r"is not open for .* on table visits"):
            ask(ledger, Fraction(1, 8), other)
        assert ledger.verify() == ledger.read_head()


def test_parts_of_a_slice_are_spent_in_parallel_and_the_largest_stays_spent(tmp_path: Path) -> None:
    """As in the table itself; what is given back is what no place has spent."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        number = reserve(ledger, Fraction(1, 2))
        for month in range(3):
            ask(ledger, Fraction(1, 4), number, days(30 * month, 30 * month + 29))
        ask(ledger, Fraction(1, 8), number, days(0, 9))
        with pytest.raises(BudgetExhausted, match="a part of reservation 1 of table visits"):
            ask(ledger, Fraction(1, 4), number, days(5, 5))
        with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as again:
            assert again.list_reservations() == ledger.list_reservations()
            again.verify()
        (entry,) = ledger.close_reservation(number, by="ana")
        assert (entry.spend.loss_fraction, spent(ledger)) == (Fraction(1, 8), Fraction(3, 8))
        for part in (
            [TableCharge("visits", Pure(Fraction(1, 8)), days(0, 9))],
            2 * [TableCharge("visits", Pure(Fraction(1, 8)))],
        ):
            with pytest.raises(ProgrammingError, match="a reservation must cover whole tables"):
                ledger.reserve(part, analyst="ana")


def test_delta_is_reserved_and_given_back_too(tmp_path: Path) -> None:
    """A slice without δ refuses a choice of keys, even where the table has δ left."""
    half, delta = Pure(Fraction(1, 2)), Fraction(1, 4000)
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        bare = reserve(ledger, Fraction(1, 4))
        with pytest.raises(BudgetExhausted, match="delta"):
            ledger.charge({"visits": Selection(delta)}, analyst="ana", query="", reservation=bare)
        room = ledger.reserve({"visits": Composed((half, Selection(2 * delta)))}, analyst="ana")[0].id
        ledger.charge({"visits": Selection(delta)}, analyst="ana", query="", reservation=room)
        (entry,) = ledger.close_reservation(room, by="ana")
        assert entry.spend == Charge(UNIT // 2, UNIT // 4000)
        assert ledger.get_state("visits").spent == Charge(UNIT // 4, UNIT // 4000)


@pytest.mark.parametrize("accountant", sorted(ACCOUNTANTS))
def test_a_slice_is_as_much_as_one_query_of_its_epsilon(tmp_path: Path, accountant: str) -> None:
    """In each accountant's own measure: that query fits exactly, and nothing is left to give back."""
    budgets = {"visits": Budget(accountant, Fraction(2), Fraction(1, 10**6))}
    with closing(open_ledger(tmp_path / "a.ledger", budgets)) as ledger:
        number = reserve(ledger, Fraction(1, 10))
        with pytest.raises(BudgetExhausted):
            ask(ledger, Fraction(101, 1000), number)
        ask(ledger, Fraction(1, 10), number)
        before = ledger.get_state("visits").spent
        (entry,) = ledger.close_reservation(number, by="ana")
        assert (entry.spend, ledger.get_state("visits").spent) == (Charge(0, 0), before)


def test_a_slice_ends_with_its_period_and_with_a_reset(tmp_path: Path) -> None:
    """It was reserved of a budget that is no more: it buys nothing of the new one, and gives nothing back to it."""
    clock = SimpleNamespace(now=NOON)
    budgets = {"visits": Budget("pure", Fraction(1), Fraction(0), renewal="monthly"), "patients": PURE}
    with closing(open_ledger(tmp_path / "a.ledger", budgets, clock=lambda: clock.now)) as ledger:
        number = reserve(ledger, Fraction(1, 2), "patients", "visits")
        clock.now += timedelta(days=1)
        assert [state.key for state in ledger.list_reservations()] == [AccountKey("patients")]
        with pytest.raises(OperationalError, match=r"reservation 1 is not open for .* on table visits"):
            ask(ledger, Fraction(1, 8), number)
        ask(ledger, Fraction(1))
        ledger.reset("patients", by="olga", reason="a new study")
        assert ledger.close_reservation(number, by="ana") == ()
        assert (spent(ledger), spent(ledger, "patients")) == (1, 0)
        assert ledger.verify() == ledger.read_head()
    with closing(open_ledger(tmp_path / "a.ledger", budgets, clock=lambda: clock.now)) as ledger:
        assert ledger.list_reservations() == ()
        assert spent(ledger) == 1


def test_dry_run_reports_the_remaining_slice(tmp_path: Path) -> None:
    """And reserves, charges and ends nothing."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        number = reserve(ledger, Fraction(1, 2))
        head = ledger.read_head()
        (quote,) = ledger.dry_run({"visits": Pure(Fraction(3, 4))}, analyst="ana", reservation=number)
        assert (quote.remaining.loss_fraction, quote.fits, quote.reservation) == (
            Fraction(1, 2),
            False,
            number,
        )
        (quote,) = ledger.dry_run({"visits": Pure(Fraction(3, 4))}, analyst="ana")
        assert (quote.remaining.loss_fraction, quote.reservation) == (Fraction(1, 2), None)
        assert ledger.read_head() == head


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "charge", "draw", "return", "reopen"]),
        st.integers(1, 20),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=14,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_any_order_of_steps_counts_no_less_than_was_released(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, int]]
) -> None:
    """At each of four places: what was released there is within the limit, and counted, after each step."""
    path = tmp_path_factory.mktemp("any") / "a.ledger"
    ledger, numbers = open_ledger(path, BUDGETS), [99]
    released = [Fraction(0)] * 4
    for name, tenths, low, high in steps:
        epsilon, ends = Fraction(tenths, 20), (min(low, high), max(low, high))
        number = numbers[tenths % len(numbers)]
        try:
            if name == "reserve":
                numbers.append(reserve(ledger, epsilon))
            elif name == "return":
                ledger.close_reservation(number, by="ana")
            elif name == "reopen":
                ledger.close()
                ledger = open_ledger(path, BUDGETS)
            else:
                ask(ledger, epsilon, number if name == "draw" else None, days(*ends))
                for place in range(ends[0], ends[1] + 1):
                    released[place] += epsilon
        except (BudgetExhausted, OperationalError):
            continue
        assert max(released) <= spent(ledger) <= 1
    for number in numbers:
        ledger.close_reservation(number, by="ana")
    assert max(released) <= spent(ledger)
    assert ledger.verify() == ledger.read_head()
    ledger.close()


def test_long_ledgers_read_their_stored_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last entry vouches for them: found again when they are as they were, refused when they are not."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        number = reserve(ledger, Fraction(1, 2))
        ask(ledger, Fraction(1, 8), number, days(0, 9))
        ask(ledger, Fraction(1, 8), None, days(0, 9))
        held = ledger.list_reservations()
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 1)
    with closing(open_ledger(path, BUDGETS)) as ledger:
        assert ledger.list_reservations() == held
    whole = path.read_bytes()
    fresh = AccountReservation("ana", Charge(UNIT // 2, 0))
    for forgery in (
        f"UPDATE slices SET body = '{fresh}'",
        "DELETE FROM slices",
        "UPDATE slices SET number = 2",
        "INSERT INTO slices SELECT table_name, account_analyst, 7, body FROM slices",
    ):
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as raw:
            raw.executescript(forgery)
        with pytest.raises(
            IntegrityError, match="partitions or reservations of table visits in the ledger were changed"
        ):
            open_ledger(path, BUDGETS)
        with (
            closing(LedgerReader.open(path)) as history,
            pytest.raises(IntegrityError, match="do not follow"),
        ):
            history.verify()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"holder":"ana"}', str(AccountReservation("a", Charge(1, 0))) + " "]
)
def test_only_the_text_of_a_slice_is_one(text: str) -> None:
    """Written and read again it is the same; anything else is an IntegrityError."""
    with pytest.raises(IntegrityError, match="not a reservation, as dpsql writes it"):
        AccountReservation.parse(text)
    held = (
        AccountReservation("ana ε", Charge(5, 1))
        .with_charge(days(0, 3), Charge(2, 0))
        .with_charge(WHOLE, Charge(1, 1))
    )
    assert AccountReservation.parse(str(held)) == held
