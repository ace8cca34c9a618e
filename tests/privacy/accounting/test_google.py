"""The accountants against Google's: no looser by 1% than its RDP accountant, never below its PLD accountant."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, pld, rdp

from dpsql.privacy.accounting import ComparedCharge, compare
from dpsql.privacy.accounting.events import Event, Gaussian, Pure
from dpsql.privacy.accounting.renyi import fixed_epsilon

DELTA = Fraction(1, 10**6)
GRID = 1 + 1e-3  # what its discretised losses are off by


def compared(events: list[Event]) -> dict[str, ComparedCharge]:
    """The charges by their accountants."""
    return {charge.accountant: charge for charge in compare(events, DELTA)}


def epsilon(charge: ComparedCharge) -> float:
    """The ε that is charged; infinite where the accountant refuses."""
    return math.inf if charge.epsilon is None else float(charge.epsilon)


@pytest.mark.parametrize(("noise", "count"), [(1, 1), (5, 10), (10, 200), (40, 1000), (100, 20)])
def test_gaussian_noise_against_google(noise: int, count: int) -> None:
    """For Gaussian noise zcdp and gdp are at most 1% above its RDP accountant, and not below its PLD accountant."""
    charges = compared([Gaussian(Fraction(1, 2 * noise * noise))] * count)
    event = dp_accounting.GaussianDpEvent(noise)
    loose = rdp.RdpAccountant().compose(event, count).get_epsilon(float(DELTA))
    tight = pld.PLDAccountant().compose(event, count).get_epsilon(float(DELTA))
    for name in ("zcdp", "gdp"):
        assert tight <= epsilon(charges[name]) * GRID, name
        # Discrete noise is charged for being discrete, which is seen where σ is small.
        assert epsilon(charges[name]) <= loose * 1.01 or noise < 5, name
    assert epsilon(charges["zcdp"]) <= loose * 1.01


@pytest.mark.parametrize(("each", "count"), [("1/100", 3000), ("1/10", 200), ("1/4", 100)])
def test_pure_releases_against_google(each: str, count: int) -> None:
    """For many ε-DP releases zcdp is at most 1% above its RDP accountant, told the same ρ.

    None of the accountants is below its PLD accountant, told that they are Laplace mechanisms, which are ε-DP.
    """
    loss = float(Fraction(each))
    charges = compared([Pure(Fraction(each))] * count)
    same = dp_accounting.ZCDpEvent(loss * math.tanh(loss / 2))
    assert (
        epsilon(charges["zcdp"]) <= rdp.RdpAccountant().compose(same, count).get_epsilon(float(DELTA)) * 1.01
    )
    laplace = pld.PLDAccountant().compose(dp_accounting.LaplaceDpEvent(1 / loss), count)
    tight = laplace.get_epsilon(float(DELTA))
    for charge in charges.values():
        assert tight <= epsilon(charge) * GRID, charge.accountant


@pytest.mark.parametrize(
    ("each", "count", "looser"),
    [("1/100", 3000, 1.01), ("1/50", 500, 1.01), ("1/10", 200, 1.02), ("1/4", 100, 1.05), ("3", 10, 2.2)],
)
def test_one_number_against_the_whole_curve(each: str, count: int, looser: float) -> None:
    """Told that the releases are randomised responses, its RDP accountant follows their whole Rényi curve.

    So does `fixed_epsilon`, at more orders. A ledger's ρ is the line that touches that curve at its start, which is
    within 1% for small losses, and further off for large.
    """
    loss, releases = float(Fraction(each)), [Pure(Fraction(each))] * count
    honest = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(loss)), 2)
    relation = NeighboringRelation.REPLACE_ONE
    curve = rdp.RdpAccountant(neighboring_relation=relation).compose(honest, count).get_epsilon(float(DELTA))
    tight = pld.PLDAccountant(neighboring_relation=relation).compose(honest, count).get_epsilon(float(DELTA))
    assert tight <= float(fixed_epsilon(releases, DELTA)) * GRID
    assert curve * 0.99 <= float(fixed_epsilon(releases, DELTA)) <= curve * 1.001
    assert curve <= epsilon(compared(releases)["zcdp"]) * GRID
    assert epsilon(compared(releases)["zcdp"]) <= curve * looser


@pytest.mark.parametrize(("noise", "pure"), [(10, "1/10"), (40, "1/3"), (4, "1")])
def test_a_fixed_list_against_google(noise: int, pure: str) -> None:
    """Gaussian noise and randomised responses together: what its RDP accountant says, not below its PLD accountant."""
    loss = float(Fraction(pure))
    releases = [Gaussian(Fraction(1, 2 * noise * noise))] * 20 + [Pure(Fraction(pure))] * 30
    honest = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(loss)), 2)
    relation = NeighboringRelation.REPLACE_ONE
    curve, tight = (
        kind(neighboring_relation=relation)
        .compose(dp_accounting.GaussianDpEvent(moved * noise), 20)
        .compose(honest, 30)
        .get_epsilon(float(DELTA))
        # Where one unit is replaced, the latter takes it to move a count by 2.
        for kind, moved in ((rdp.RdpAccountant, 1), (pld.PLDAccountant, 2))
    )
    assert tight <= float(fixed_epsilon(releases, DELTA)) * GRID
    assert float(fixed_epsilon(releases, DELTA)) <= curve * 1.001


def test_mixed_releases_against_google() -> None:
    """Laplace and Gaussian releases together: not below its PLD accountant."""
    charges = compared([Pure(Fraction(1, 10))] * 50 + [Gaussian(Fraction(1, 200))] * 50)
    mixed = pld.PLDAccountant().compose(dp_accounting.LaplaceDpEvent(10), 50)
    tight = mixed.compose(dp_accounting.GaussianDpEvent(10), 50).get_epsilon(float(DELTA))
    for name in ("zcdp", "gdp"):
        assert tight <= epsilon(charges[name]) * GRID
