"""Amended budgets: entries by which an owner changes a budget, for a reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import BudgetExhausted, IntegrityError, PolicyError, ProgrammingError
from dpsql.ledger import AnchorFile, Budget, Ledger, journal, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Charge, Pure

VISITS, PATIENTS = AccountKey("visits"), AccountKey("patients")
ONE = Budget("pure", Fraction(1), Fraction(0))
Budgets = dict[str | AccountKey, Budget]
BOTH: Budgets = {"visits": ONE, "patients": ONE}


def pure(epsilon: Fraction | str) -> Budget:
    return Budget("pure", Fraction(epsilon), Fraction(0))


def charge(ledger: Ledger, epsilon: Fraction | str, table: str = "visits") -> None:
    ledger.charge({table: Pure(Fraction(epsilon))}, analyst="ana", query="SELECT 1")


@pytest.fixture(params=["file", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a ledger, in a file and in PostgreSQL."""
    return str(tmp_path / "a.ledger") if request.param == "file" else request.getfixturevalue("postgres_url")


def amend(target: str | Path, before: Budgets, epsilon: Fraction | str, table: str = "visits") -> Budgets:
    """Amends the budget of a table, and returns the budgets that hold then."""
    with closing(open_ledger(target, before)) as ledger:
        ledger.amend({AccountKey(table): pure(epsilon)}, by="owner", reason="a second study")
    return {**before, table: pure(epsilon)}


def test_a_raised_budget(target: str) -> None:
    """What was spent stays spent, the rest can be spent, and the entry says who, why, and both budgets."""
    with closing(open_ledger(target, BOTH)) as ledger:
        charge(ledger, "3/4")
        ((entry, before, after),) = ledger.amend({VISITS: pure(2)}, by="owner", reason="a second study")
    assert (entry.kind, entry.analyst, entry.number, before, after) == ("amend", "owner", 2, ONE, pure(2))
    assert entry.details["reason"] == "a second study"
    assert [entry.details[name]["epsilon"] for name in ("before", "after")] == ["1/1", "2/1"]
    with pytest.raises(PolicyError, match="dpsql ledger amend") as caught:
        open_ledger(target, BOTH)
    assert caught.value.code == "budget_changed"
    with closing(open_ledger(target, {**BOTH, "visits": pure(2)})) as ledger:
        assert ledger.get_state("visits").remaining_epsilon == Fraction(5, 4)
        charge(ledger, "5/4")
        with pytest.raises(BudgetExhausted):
            charge(ledger, "1/1000")
        charge(ledger, 1, "patients")
        head = ledger.verify()
    with closing(LedgerReader.open(target)) as history:
        assert history.verify().head.entries == head.entries == 4
        assert history.read_budgets() == {VISITS: pure(2), PATIENTS: ONE}


def test_a_lowered_budget(target: str) -> None:
    """It is at least what was spent, reservations included; nothing is written where it is not."""
    with closing(open_ledger(target, BOTH)) as ledger:
        charge(ledger, "1/4")
        ledger.reserve({"visits": Pure(Fraction(1, 4))}, analyst="ana")
        with pytest.raises(PolicyError) as caught:
            ledger.amend({VISITS: pure("49/100")}, by="owner", reason="too much")
    assert caught.value.code == "amend_spent"
    budgets = amend(target, BOTH, "1/2")
    with closing(open_ledger(target, budgets)) as ledger:
        assert [entry.kind for entry in ledger.list_entries()] == ["charge", "reserve", "amend"]
        with pytest.raises(BudgetExhausted):
            charge(ledger, "1/1000")
        (reserved,) = ledger.list_reservations()
        ledger.charge(
            {"visits": Pure(Fraction(1, 4))}, analyst="ana", query="SELECT 1", reservation=reserved.number
        )
        ledger.close_reservation(reserved.number, by="ana")
        ledger.verify()


@pytest.mark.parametrize(
    ("budget", "reason", "code"),
    [
        (Budget("zcdp", Fraction(2), Fraction(1, 10**7)), "why not", "amend_kind"),
        (Budget("pure", Fraction(2), Fraction(0), renewal="monthly"), "why not", "amend_kind"),
        (ONE, "why not", "amend_nothing"),
        (pure(2), " ", "amend_reason"),
    ],
)
def test_an_amendment_needs_a_reason_the_same_measure_and_a_new_budget(
    tmp_path: Path, budget: Budget, reason: str, code: str
) -> None:
    """Another measure, other periods, nothing new, no reason; and accounts that are not there."""
    with closing(open_ledger(tmp_path / "a.ledger", BOTH)) as ledger:
        with pytest.raises(ProgrammingError) as caught:
            ledger.amend(
                {PATIENTS: pure(3), VISITS: budget} if code == "amend_kind" else {VISITS: budget},
                by="o",
                reason=reason,
            )
        assert caught.value.code == code
    with closing(open_ledger(tmp_path / "a.ledger", BOTH)) as ledger:
        assert ledger.list_entries() == ()
        with pytest.raises(PolicyError, match="no budget"):
            ledger.amend({AccountKey("wages"): ONE}, by="owner", reason="why not")


def test_open_ledgers_refuse_to_charge_after_an_amendment(target: str) -> None:
    """A process with the former policy neither charges, nor reads what is left, nor releases anything more."""
    uses: list[Callable[[Ledger], object]] = [
        lambda ledger: charge(ledger, "1/8"),
        lambda ledger: charge(ledger, "1/8", "patients"),
        lambda ledger: ledger.list_states(),
        lambda ledger: ledger.dry_run({"visits": Pure(Fraction(1, 8))}),
    ]
    with (
        closing(open_ledger(target, BOTH)) as former,
        closing(open_ledger(target, {"patients": ONE})) as other,
    ):
        charge(former, "1/2")
        budgets = amend(target, BOTH, "5/8")
        for use in (*uses, *uses):
            with pytest.raises(PolicyError) as caught:
                use(former)
            assert caught.value.code == "budget_changed"
        charge(other, "1/8", "patients")  # whose own budget is what it was
    with closing(open_ledger(target, budgets)) as ledger:
        assert [entry.table for entry in ledger.list_entries()] == ["visits", "visits", "patients"]
        ledger.verify()


def test_a_ledger_is_amended_often_and_opened_by_its_last_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry is held against the budget of its time, whether all are read or only the last of each account."""
    budgets = amend(tmp_path / "a.ledger", BOTH, "1/4")
    for epsilon in ("1/2", "3/4", "5/8"):
        with closing(open_ledger(tmp_path / "a.ledger", budgets)) as ledger:
            charge(ledger, "1/8")
            charge(ledger, "1/8", "patients")
        budgets = amend(tmp_path / "a.ledger", budgets, epsilon)
    with closing(LedgerReader.open(tmp_path / "a.ledger")) as history:
        assert [
            entry.limit.loss_fraction for entry in history.iterate_entries() if entry.table == "visits"
        ] == [Fraction(each) for each in ("1/4", "1/4", "1/2", "1/2", "3/4", "3/4", "5/8")]
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 2)
    with closing(open_ledger(tmp_path / "a.ledger", budgets)) as ledger:
        assert ledger.get_state("visits").remaining_epsilon == Fraction(1, 4)
        charge(ledger, "1/4")
        ledger.verify()


def test_anchor_covers_amendments(tmp_path: Path) -> None:
    """The anchor refuses an earlier copy, which has the former budget."""
    path, anchor = tmp_path / "a.ledger", tmp_path / "anchor"
    with closing(open_ledger(path, BOTH, anchor=anchor)) as ledger:
        charge(ledger, "1/2")
    copy = path.read_bytes()
    with closing(open_ledger(path, BOTH, anchor=anchor)) as ledger:
        ledger.amend({VISITS: pure("1/2")}, by="owner", reason="enough")
    head = AnchorFile(anchor).read_head()
    assert head is not None
    assert head.entries == 2
    path.write_bytes(copy)
    with pytest.raises(IntegrityError) as caught:
        open_ledger(path, BOTH, anchor=anchor)
    assert caught.value.code == "ledger_rolled_back"


def test_a_period_begins_with_the_amended_budget(tmp_path: Path) -> None:
    """What renews is bounded by the last amendment, in the present period and in those to come."""
    now = [datetime(2026, 11, 1, tzinfo=UTC)]

    def monthly(epsilon: int) -> Budgets:
        return {"visits": Budget("pure", Fraction(epsilon), Fraction(0), renewal="monthly")}

    def opened(epsilon: int) -> Ledger:
        return open_ledger(tmp_path / "a.ledger", monthly(epsilon), clock=lambda: now[0])

    with closing(opened(2)) as ledger:
        charge(ledger, 1)
        ledger.amend({VISITS: monthly(1)["visits"]}, by="owner", reason="enough")
    for month in (11, 12):
        now[0] = datetime(2026, month, 2, tzinfo=UTC)
        with closing(opened(1)) as ledger:
            if month == 12:
                charge(ledger, 1)
            with pytest.raises(BudgetExhausted):
                charge(ledger, "1/8")
            ledger.verify()


@settings(max_examples=examples(6), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=8))
def test_any_sequence_spends_at_most_its_budgets(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int]]
) -> None:
    """Whatever is charged and amended in turn, the sum of all losses is within the budget of each moment."""
    path, budgets, spent = tmp_path_factory.mktemp("any") / "a.ledger", dict(BOTH), Fraction(0)
    for amends, eighths in steps:
        amount = Fraction(eighths, 8)
        with closing(open_ledger(path, budgets)) as ledger:
            limit = budgets["visits"].epsilon
            if not amends:
                if spent + amount <= limit:
                    charge(ledger, amount)
                    spent += amount
                else:
                    with pytest.raises(BudgetExhausted):
                        charge(ledger, amount)
            elif amount == limit or amount < spent:
                with pytest.raises(ProgrammingError):
                    ledger.amend({VISITS: pure(amount)}, by="owner", reason="why not")
            else:
                ledger.amend({VISITS: pure(amount)}, by="owner", reason="why not")
                budgets["visits"] = pure(amount)
    with closing(open_ledger(path, budgets)) as ledger:
        ledger.verify()
        assert ledger.get_state("visits").spent.loss_fraction == spent <= budgets["visits"].epsilon
        assert ledger.get_state("patients").spent == Charge(0, 0)
