"""Spends are whole units, budgets are checked, and both refuse what is no amount."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import LossError
from dpsql.ledger.budget import Budget
from dpsql.privacy.accounting.events import Charge, to_units_down, to_units_up

AMOUNT = st.integers(min_value=0, max_value=10**40)


@given(st.fractions(min_value=0, max_value=10**6))
def test_units_enclose_the_value(value: Fraction) -> None:
    """Costs round up and limits round down, by less than a unit each."""
    exact = value * Charge.UNIT
    assert exact - 1 < to_units_down(value) <= exact <= to_units_up(value) < exact + 1


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
def test_adding_and_subtracting_are_exact(a: int, b: int, c: int, d: int) -> None:
    """Subtracting what was added gives back the same spend."""
    assert (Charge(a, b) + Charge(c, d)) - Charge(c, d) == Charge(a, b)


def test_within_needs_both() -> None:
    """A spend is within a limit only if its loss and its delta both are; equality is within."""
    limit = Charge(5, 5)
    assert limit.is_within(limit)
    assert not Charge(6, 0).is_within(limit)
    assert not Charge(0, 6).is_within(limit)


@pytest.mark.parametrize("pair", [(-1, 0), (0, -1), (1.0, 0), (0, True), (Fraction(1), 0)])
def test_a_spend_is_whole_and_not_negative(pair: tuple[Any, Any]) -> None:
    """A negative spend would give budget back."""
    with pytest.raises(LossError):
        Charge(*pair)


def test_more_than_there_is_cannot_be_taken() -> None:
    """Subtraction below zero raises instead of wrapping."""
    with pytest.raises(LossError):
        Charge(1, 1) - Charge(2, 0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "selection"),
    [
        (0, Fraction(0), None),
        (float("nan"), Fraction(0), None),
        (1.0, Fraction(0), None),
        (Fraction(1), 1, None),
        (Fraction(1), -1, None),
        (Fraction(1), 1e-6, None),
        (Fraction(1), Fraction(1, 10), Fraction(1, 5)),
        (Fraction(1), Fraction(1, 10), Fraction(-1, 5)),
    ],
)
def test_a_budget_is_exact_and_possible(epsilon: Any, delta: Any, selection: Any) -> None:
    """Epsilon above 0, delta in [0, 1), the selection's share at most delta, all exact."""
    with pytest.raises(LossError):
        Budget("pure", epsilon, delta, selection)
