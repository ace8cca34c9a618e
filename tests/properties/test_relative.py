"""A search for an error that is a part of the value ends on what it sees, and is right as often as it promises."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction

import pytest

from dpsql.engine.accuracy_targets import FIRST
from dpsql.engine.relative_targets import STEPS, Cell, tighten_target
from dpsql.policy.request.loss import RelativeError, Target

PLACE = (0, 0)


def course(value: float, target: Target, draw: random.Random) -> Iterator[tuple[float, float, bool]]:
    """What is released of a value, the half-width, and whether that ends it; noise is Laplace's, of its own each time."""
    assert target.relative_error is not None
    share, missed = target.relative_error.fraction, 1 - float(tighten_target(target).confidence)
    epsilon, tried = 1.0, False
    while True:
        half = math.log(1 / missed) / epsilon
        seen = value + draw.choice((-1, 1)) * draw.expovariate(epsilon)
        cell = Cell(PLACE, Fraction(seen), Fraction(half))
        met = cell.is_within_target(share)
        yield seen, half, met
        if met or epsilon == FIRST:
            return
        aimed = cell.is_near_target(share)
        wanted = math.log(1 / missed) / float(cell.compute_next_error(share))
        epsilon = min(max(wanted, epsilon if aimed and not tried else 2 * epsilon), FIRST)
        tried = tried or aimed


@pytest.mark.parametrize("percent", [0.1, 1, 5, 50])
@pytest.mark.parametrize("away", [-1.3, -1.0, -0.9, -0.7, 0.0, 10.0])
def test_relative_target_holds_in_the_worst_case(percent: float, away: float) -> None:
    """The tried first errors are as large as allowed, and near that: those that noise lets end early.

    Of 20,000 answers more than 1,180 would be too far off once in a hundred million times, were it one in twenty.
    """
    target = Target(RelativeError(Fraction(str(percent)) / 100))
    draw = random.Random(round(percent * 1000 + away * 10))
    half = math.log(1 / (1 - float(tighten_target(target).confidence)))
    value = half / (percent / 100) + away * half
    wrong = 0
    for _ in range(20_000):
        *_, (seen, _, met) = course(value, target, draw)
        wrong += not met or abs(seen - value) > percent / 100 * abs(seen)
    assert wrong <= 1_180


@pytest.mark.parametrize("share", [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 2)])
@pytest.mark.parametrize("value", [0.0, 0.01, 1.0, 30.0, -300.0, 1e6])
def test_search_ends_within_its_steps(share: Fraction, value: float) -> None:
    """Each step's loss is at least twice the previous one, except for one."""
    draw = random.Random(1)
    for _ in range(200):
        halves = [half for _, half, _ in course(value, Target(RelativeError(share)), draw)]
        assert len(halves) <= STEPS
        assert all(later < earlier for earlier, later in itertools.pairwise(halves))


@pytest.mark.parametrize("share", [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 5), Fraction(1, 2)])
@pytest.mark.parametrize("value", [40, -40, 1000])
@pytest.mark.parametrize("half", [1, 3, 10, 60])
def test_next_target_is_met_anywhere_in_the_interval(share: Fraction, value: int, half: int) -> None:
    """Every value in the interval meets the next target error with any noise within it."""
    cell = Cell(PLACE, Fraction(value), Fraction(half))
    allowed = cell.compute_next_error(share)
    assert allowed > 0
    if not cell.is_within_target(share):
        assert allowed < half or not cell.is_near_target(share)
    if cell.is_near_target(share):
        ends = [abs(Fraction(value)) + sign * half for sign in (-1, 1)]
        assert all(
            Cell(PLACE, end + noise, allowed).is_within_target(share)
            for end in ends
            for noise in (-allowed, allowed)
        )
        assert not cell.is_out_of_reach(share, float(allowed))
