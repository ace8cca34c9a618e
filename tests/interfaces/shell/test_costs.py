"""What is left, in words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpsql.interfaces.shell.answers import format_charges
from dpsql.ledger import BudgetState
from dpsql.policy.request.loss import format_rounded
from dpsql.privacy.accounting import Charge
from dpsql.results.rendering import compute_remaining_percent
from dpsql.results.result import Receipt

UNIT = Charge.UNIT


def state(accountant: str, spent: int, limit: int) -> BudgetState:
    return BudgetState(
        "visits", accountant, Fraction(3), Fraction(1, 10**7), Charge(spent, 0), Charge(limit, 0), 1,
        Fraction(2719, 1000), Fraction(1),
    )  # fmt: skip


def receipt(loss: str | None, *entries: dict[str, str]) -> Receipt:
    return Receipt(
        "q", "p", "a", "u", "n", "1", "d", (), None if loss is None else {"rho": loss}, entries, {}
    )


@given(st.fractions(Fraction(1, 10**9), 10**9), st.integers(1, 8), st.booleans())
def test_rounding_keeps_to_its_side(value: Fraction, digits: int, up: bool) -> None:
    """What is left is never shown larger than it is, what is spent never smaller, both near the truth."""
    shown = Fraction(format_rounded(value, digits, up=up))
    assert shown >= value if up else shown <= value
    assert abs(shown - value) < value * Fraction(10, 10**digits)


def test_percentages_are_rounded_down() -> None:
    """One unit short of all is not all; more spent than the limit is nothing left."""
    assert compute_remaining_percent(state("zcdp", 1, 10**6)) == 99
    assert compute_remaining_percent(state("zcdp", 0, 10**6)) == 100
    assert compute_remaining_percent(state("zcdp", 2, 1)) == 0


def test_a_charge_names_table_loss_and_rest() -> None:
    """Under zcdp the ε asked for is named with the ρ that was charged, under pure the ε alone."""
    paid = receipt("1/8", {"table": "visits", "loss": "1/8", "delta": "0"})
    zcdp = format_charges(paid, Fraction(1, 2), [state("zcdp", UNIT // 8, UNIT)])
    assert zcdp == "charged to visits: ε 0.5 (ρ 0.125); 87% left, at most ε 2.71 in one query"
    pure = format_charges(paid, Fraction(1, 8), [state("pure", UNIT // 8, UNIT)])
    assert pure.startswith("charged to visits: ε 0.125; ")


def test_a_free_answer_gives_its_reason() -> None:
    """The message says that nothing was charged, and whether the policy or an earlier answer made it free."""
    assert "the policy" in format_charges(receipt(None), Fraction(1), [])
    earlier = replace(receipt(None), replayed=(3,))
    told = "nothing was charged: an earlier answer to the same question, ledger entry 3"
    assert format_charges(earlier, Fraction(1), []) == told
    part = replace(receipt("1/8", {"table": "visits", "loss": "1/8", "delta": "0"}), replayed=(3, 5))
    lines = format_charges(part, Fraction(1, 8), [state("pure", UNIT // 8, UNIT)]).splitlines()
    assert lines[0].startswith("charged to visits: ")
    assert lines[1] == "the rest is free: an earlier answer to the same question, ledger entry 3, 5"
