"""Randomised weighted majority: its choices lose what its schedule says, and it learns as fast as the theorem says."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.errors import DataError, LossError
from dpsql.privacy.accounting import compare
from dpsql.privacy.accounting.events import BoundedRange
from dpsql.privacy.experts import LATTICE, Schedule, WeightedMajority, bound_regret
from tests.entropy import SeededEntropy

Floats = NDArray[np.float64]


def choice_law(losses: Floats, rate: float) -> Floats:
    """The chances of the next choice after these losses, of shape (rounds, experts)."""
    weights = np.exp(-rate * losses.sum(axis=0))
    found: Floats = weights / weights.sum()
    return found


def path_law(losses: Floats, rate: float) -> Floats:
    """The chances of all sequences of choices, round by round."""
    law = np.ones(1)
    for now in range(len(losses)):
        law = np.multiply.outer(law, choice_law(losses[:now], rate)).ravel()
    return law


def renyi(here: Floats, there: Floats, order: float) -> float:
    """The Rényi divergence."""
    return float(np.log((here**order * there ** (1 - order)).sum()) / (order - 1))


@pytest.mark.parametrize(("neighbors", "others"), [("replace", [0, 0.4, 1]), ("add_remove", [0])])
def test_choices_are_as_concentrated_as_scheduled(neighbors: str, others: list[float]) -> None:
    """Over all losses of three rounds on a grid, and all of one round's changes: D_α <= α·ρ, and near it for the worst."""
    rate, worst = 0.8, 0.0
    schedule = Schedule(3, Fraction(4, 5), neighbors)  # type: ignore[arg-type]
    grid = list(itertools.product((0, 0.4, 1), repeat=2))
    for first, second in itertools.product(grid, repeat=2):
        losses = np.array([first, second, (0, 0)], np.float64)
        here = path_law(losses, rate)
        for place, other in itertools.product((0, 1), itertools.product(others, repeat=2)):
            moved = losses.copy()
            moved[place] = other
            there = path_law(moved, rate)
            for order in (1.01, 2.0, 10.0):
                worst = max(worst, renyi(here, there, order) / order, renyi(there, here, order) / order)
            assert np.abs(np.log(here / there)).max() <= 2 * float(schedule.range) + 1e-9
    assert 0.6 * float(schedule.rho) < worst <= float(schedule.rho)


def test_replaced_losses_cost_four_times_as_much_as_removed_ones() -> None:
    """T·η²/8 is for losses that all change one way: under replaced ones the divergence of a single choice passes η²/8."""
    rate = 0.1
    here, there = (choice_law(np.array([loss], np.float64), rate) for loss in ((0, 1), (1, 0)))
    assert renyi(here, there, 1.001) > 3.9 * rate**2 / 8
    assert renyi(here, there, 1.001) <= 1.001 * rate**2 / 2
    assert Schedule(2, Fraction(1, 10)).rho == Fraction(1, 200)
    assert Schedule(2, Fraction(1, 10), "add_remove").rho == Fraction(1, 800)


def worst_delta(rate: float, rounds: int, epsilon: float) -> float:
    """δ of two balanced experts whose losses of one early round are swapped: each later choice loses ±η."""
    count = rounds - 1
    heads = np.arange(count + 1)
    loss = (2 * heads - count) * rate
    chance = stats.binom.pmf(heads, count, 1 / (1 + math.exp(-rate)))
    return float((chance * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)).sum())


@pytest.mark.parametrize("epsilon", [0.5, 2, 10])
def test_schedules_keep_their_delta(epsilon: float) -> None:
    """The exact δ of the worst pair of known losses, for the published and the concentrated rate, is at most δ."""
    for rounds, delta in ((20, 1e-3), (1000, 1e-6)):
        published = Schedule.published(rounds, epsilon, delta)
        concentrated = Schedule.concentrated(rounds, epsilon, delta)
        assert float(published.rate) == pytest.approx(epsilon / math.sqrt(32 * rounds * math.log(1 / delta)))
        assert published.rate < concentrated.rate
        for schedule in (published, concentrated):
            assert worst_delta(float(schedule.rate), rounds, epsilon) <= delta
        assert 2 * concentrated.rate == pytest.approx(
            float(Schedule.concentrated(rounds, epsilon, delta, "add_remove").rate), rel=1e-3
        )


def test_the_published_rate_fails_for_a_large_epsilon() -> None:
    """Beyond 64·ln(1/δ) the loss of many rounds is larger than ε nearly surely: refused, where the theorem has no condition."""
    rounds, delta = 100_000, 0.01
    for epsilon, broken in ((400, True), (100, False)):
        rate = epsilon / math.sqrt(32 * rounds * math.log(1 / delta))
        assert (worst_delta(rate, rounds, epsilon) > 0.9) is broken
    with pytest.raises(LossError, match="not proved"):
        Schedule.published(rounds, 400, delta)
    assert worst_delta(float(Schedule.concentrated(rounds, 400, delta).rate), rounds, 400) <= delta


def test_event_is_charged_as_scheduled() -> None:
    """The zCDP accountant's charge is ρ; under every accountant it has a charge; a single round has none."""
    schedule = Schedule(201, Fraction(1, 50))
    event = schedule.event()
    assert event is not None
    assert event.events == (BoundedRange(Fraction(1, 25)),) * 200
    charges = {charge.accountant: charge for charge in compare([event], Fraction(1, 10**6))}
    assert charges["zcdp"].loss is not None
    assert float(charges["zcdp"].loss) == pytest.approx(float(schedule.rho), rel=1e-9)
    assert all(charge.epsilon is not None for charge in charges.values())
    assert Schedule(1, Fraction(1)).event() is None


def test_choices_follow_their_law() -> None:
    """1,000 learners with the same three rounds of losses choose as the law of the summed losses says."""
    losses = np.array([[0, 1, 0.5], [0.25, 0, 1]])
    source, counts = SeededEntropy(6), np.zeros(3)
    for _ in range(1000):
        learner = WeightedMajority(experts=3, schedule=Schedule(3, Fraction(1)), entropy=source)
        for day in losses:
            learner.choose()
            learner.observe(day)
        counts[learner.choose()] += 1
        assert learner.chances == pytest.approx(choice_law(losses, 1.0), abs=1e-5)
    assert stats.chisquare(counts, 1000 * choice_law(losses, 1.0)).pvalue > 1e-9


@pytest.mark.parametrize("kind", ["constant", "alternating", "random", "chasing"])
def test_the_regret_is_within_the_bound(kind: str) -> None:
    """Expected regret, by the exact chances of each round, for fixed losses and for an adversary who knows the chances."""
    rounds, experts = 400, 5
    best = math.sqrt(math.log(experts) / rounds)
    generator = np.random.default_rng(1)
    learner = WeightedMajority(
        experts, Schedule(rounds, Fraction(best).limit_denominator(10**6)), SeededEntropy(2)
    )
    expected, total = 0.0, np.zeros(experts)
    for now in range(rounds):
        chances = learner.chances
        losses = {
            "constant": np.arange(experts) / (experts - 1),
            "alternating": (np.arange(experts) + now) % 2,
            "random": generator.random(experts) < np.linspace(0.4, 0.6, experts),
            "chasing": chances == chances.max(),
        }[kind].astype(np.float64)
        expected += float(chances @ losses)
        total += losses
        learner.choose()
        learner.observe(losses)
    regret = (expected - total.min()) / rounds
    assert regret <= bound_regret(best, rounds, experts) <= 2 * math.sqrt(math.log(experts) / rounds) + 1e-9
    assert learner.regret == pytest.approx(regret, abs=0.15)
    if kind == "constant":
        assert regret < 0.1


def test_rounds_take_turns_and_end() -> None:
    """No second choice in a round, no losses before a choice, no round beyond the schedule, a loss for each expert."""
    learner = WeightedMajority(experts=2, schedule=Schedule(1, Fraction(1)))
    with pytest.raises(LossError, match="choose an expert"):
        learner.observe([0, 1])
    learner.choose()
    with pytest.raises(LossError, match="second release"):
        learner.choose()
    with pytest.raises(DataError):
        learner.observe([0, 1, 1])
    learner.observe([0, 1])
    with pytest.raises(LossError, match="no rounds left"):
        learner.choose()


def test_losses_are_clamped_and_none_ends_a_run() -> None:
    """Beyond the bounds, NaN, text and NULL: each is a loss between 0 and 1."""
    learner = WeightedMajority(experts=6, schedule=Schedule(1, Fraction(1)))
    learner.choose()
    learner.observe([-5, 1e300, math.nan, "x", None, 10**400])  # type: ignore[list-item]
    assert learner._sums == [0, LATTICE, LATTICE, LATTICE, LATTICE, LATTICE]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Schedule(0, Fraction(1)),
        lambda: Schedule(10, Fraction(0)),
        lambda: Schedule(10, Fraction(1), "swap"),  # type: ignore[arg-type]
        lambda: Schedule.published(10, 1, 1),
        lambda: Schedule.concentrated(10, 1, 2),
        lambda: Schedule.published(10, "1e300", "1e-320"),
        lambda: WeightedMajority(0, Schedule(10, Fraction(1))),
    ],
)
def test_invalid_schedules_are_refused(wrong: object) -> None:
    """With a LossError."""
    with pytest.raises(LossError):
        wrong()  # type: ignore[operator]


def test_the_bound_has_the_rate_below_the_line() -> None:
    """Of a small rate the expected regret passes η + ln(k)/T² and η + ln(k)/(k·T) by far, and not η + ln(k)/(η·T)."""
    rounds, experts, rate = 100, 5, 0.001
    losses = np.tile(np.arange(experts) / (experts - 1), (rounds, 1))
    suffered = sum(float(choice_law(losses[:now], rate) @ losses[now]) for now in range(rounds))
    regret = suffered / rounds
    for misprint in (rounds * rounds, experts * rounds):
        assert regret > 10 * (rate + math.log(experts) / misprint)
    assert regret <= bound_regret(rate, rounds, experts)


def test_weighted_majority_by_the_printed_score_follows_the_worst_expert() -> None:
    """The score of an expert is minus its losses: by their sum, as printed, the regret stays, whatever the number of rounds."""
    for rounds in (100, 1000):
        losses = np.tile([0.0, 1.0], (rounds, 1))
        rate = math.sqrt(math.log(2) / rounds)
        regrets = [
            np.mean([choice_law(losses[:now], sign * rate)[1] for now in range(rounds)]) for sign in (1, -1)
        ]
        assert regrets[0] <= bound_regret(rate, rounds, 2)
        assert regrets[1] >= 1 - bound_regret(rate, rounds, 2)
