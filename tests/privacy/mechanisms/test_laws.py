"""Laws that every mechanism of the registry obeys, checked on examples of each."""

from __future__ import annotations

import dataclasses
import math
import pickle
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.errors import DataError, InternalError, LossError
from dpsql.privacy.mechanisms import (
    MECHANISMS,
    DiscreteGaussian,
    Geometric,
    LInfinityMechanism,
    Mechanism,
    Sensitivity,
    Staircase,
)
from tests.entropy import SeededEntropy

INDEPENDENT: list[Mechanism] = [
    *(Geometric(Fraction(scale)) for scale in ("3/10", "1", "7/2", "20")),
    *(DiscreteGaussian(Fraction(variance)) for variance in ("1/20", "3/10", "1", "5", "150")),
]
EXAMPLES: list[Mechanism] = [
    *INDEPENDENT,
    *(
        LInfinityMechanism(Fraction(scale), k)
        for scale, k in (("3/10", 2), ("1", 1), ("7/2", 2), ("3", 5), ("20", 10))
    ),
    *(
        Staircase(Fraction(loss), width, inner)
        for loss, width, inner in (("1/4", 3, 2), ("1", 1, 1), ("3", 20, 6), ("2", 7, 7), ("6", 40, 1))
    ),
]
WIDE_INDEPENDENT: list[Mechanism] = [Geometric(Fraction(2**40, 3)), DiscreteGaussian(Fraction(2**80, 9))]
WIDE: list[Mechanism] = [
    *WIDE_INDEPENDENT,
    LInfinityMechanism(Fraction(2**40, 3), 5),
    LInfinityMechanism(Fraction(2**70), 2),
]
WIDE += [Staircase(Fraction(2), 2**40, 2**38), Staircase(Fraction(1, 2**70), 2**70, 1)]


def law(mechanism: Mechanism, terms: int = 1) -> tuple[NDArray[np.float64], int]:
    """The probabilities of the sum of `terms` draws by brute force, and the index of zero."""
    reach = int(60 * mechanism.std) + 60
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    match mechanism:
        case Geometric():
            weights = np.exp(-np.abs(k) / float(mechanism.scale))
        case DiscreteGaussian():
            weights = np.exp(-k * k / (2 * float(mechanism.variance)))
        case LInfinityMechanism():  # given its radius, a coordinate is uniform
            radii = np.arange(reach + 1, dtype=np.float64)
            given = np.exp(
                (mechanism.dimensions - 1) * np.log(2 * radii + 1) - radii / float(mechanism.scale)
            )
            weights = np.cumsum(given[::-1])[::-1][np.abs(k).astype(int)]
        case Staircase():
            stairs = np.array([_stair(mechanism, abs(place)) for place in range(-reach, reach + 1)])
            weights = np.exp(-float(mechanism.loss) * stairs)
        case _:
            raise AssertionError(mechanism.name)
    single = weights / weights.sum()
    total = single
    for _ in range(terms - 1):
        total = np.convolve(total, single)
    return total, len(total) // 2


def _stair(noise: Staircase, magnitude: int) -> int:
    """How many stairs lie below a magnitude: one by one."""
    stair, end = 0, noise.inner
    while magnitude >= end:
        stair, end = stair + 1, end + noise.width
    return stair


def tail(probabilities: NDArray[np.float64], zero: int, threshold: int) -> float:
    """P(sum >= threshold), small terms first."""
    return float(probabilities[zero + threshold :][::-1].sum())


def test_every_registered_mechanism_has_examples() -> None:
    """A mechanism that is added to the registry is added here too."""
    assert {type(example) for example in EXAMPLES} == set(MECHANISMS)
    assert len({mechanism.name for mechanism in MECHANISMS}) == len(MECHANISMS)


@pytest.mark.parametrize("mechanism", [*EXAMPLES, *WIDE], ids=repr)
def test_values_are_frozen_and_name_themselves(mechanism: Mechanism) -> None:
    """A mechanism is an immutable, hashable value without a dictionary, described by its law."""
    assert mechanism.describe().startswith(mechanism.name + ", ")
    assert not hasattr(mechanism, "__dict__")
    twin = pickle.loads(pickle.dumps(mechanism))
    assert (twin, hash(twin)) == (mechanism, hash(mechanism))
    for parameter in dataclasses.fields(type(mechanism)):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(mechanism, parameter.name, Fraction(1))


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=repr)
def test_variance_is_that_of_the_law(mechanism: Mechanism) -> None:
    """`compute_variance` and `std` agree with the sum over the law."""
    probabilities, zero = law(mechanism)
    k = np.arange(-zero, zero + 1)
    assert mechanism.compute_variance() == pytest.approx((k * k * probabilities).sum(), rel=1e-9)
    assert mechanism.std == pytest.approx(mechanism.compute_variance() ** 0.5)


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=repr)
def test_tail_up_bounds_the_tail_and_is_tight(mechanism: Mechanism) -> None:
    """`bound_tail` is never below P(Z >= t), and for t >= 1 above it by rounding alone."""
    probabilities, zero = law(mechanism)
    for threshold in range(-5, int(8 * mechanism.std) + 2):
        exact = tail(probabilities, zero, threshold)
        assert mechanism.bound_tail(threshold) >= exact * (1 - 1e-12)
        if threshold >= 1 and exact > 1e-200:
            assert mechanism.bound_tail(threshold) <= exact * (1 + 1e-8)


@pytest.mark.parametrize("terms", [2, 3, 8])
@pytest.mark.parametrize("mechanism", INDEPENDENT, ids=repr)
def test_sum_tail_up_bounds_the_tail_of_the_sum(mechanism: Mechanism, terms: int) -> None:
    """`bound_sum_tail` is never below the convolution's tail; loose for the narrowest Gaussians alone."""
    probabilities, zero = law(mechanism, terms)
    tight = isinstance(mechanism, Geometric) or mechanism.compute_variance() > 0.9
    for threshold in range(-3, int(6 * mechanism.std * terms**0.5) + 2):
        exact, bound = tail(probabilities, zero, threshold), mechanism.bound_sum_tail(terms, threshold)
        assert bound >= exact * (1 - 1e-9) - 1e-14
        if tight and threshold >= 1:
            assert bound <= exact * 1.002 + 1e-14


@pytest.mark.parametrize("terms", [1, 2, 30])
@pytest.mark.parametrize("mechanism", [*INDEPENDENT, *WIDE_INDEPENDENT], ids=repr)
def test_sum_tail_up_beats_chernoff(mechanism: Mechanism, terms: int) -> None:
    """The bound is never looser than the best exponential moment's, from the exact or sub-Gaussian MGF."""
    for deviations in (1, 3, 8):
        threshold = int(deviations * mechanism.std * terms**0.5) + 1
        if isinstance(mechanism, Geometric):
            rate = 1 / float(mechanism.scale)
            moment = rate * np.linspace(0.001, 0.999, 999)
            log_mgf = 2 * np.log(-np.expm1(-rate)) - np.log(
                np.expm1(moment - rate) * np.expm1(-moment - rate)
            )
            chernoff = math.exp((terms * log_mgf - moment * threshold).min())
        else:
            assert isinstance(mechanism, DiscreteGaussian)
            chernoff = math.exp(-float(threshold**2 / (2 * terms * mechanism.variance)))
        assert mechanism.bound_sum_tail(terms, threshold) <= chernoff * (1 + 1e-8)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999999])
@pytest.mark.parametrize("mechanism", EXAMPLES, ids=repr)
def test_half_width_is_the_smallest(mechanism: Mechanism, confidence: float) -> None:
    """P(|Z| <= t) reaches the confidence at `compute_half_width` and not one step earlier."""
    probabilities, zero = law(mechanism)
    width = mechanism.compute_half_width(confidence)
    assert probabilities[zero - width : zero + width + 1].sum() >= confidence - 1e-12
    assert width == 0 or probabilities[zero - width + 1 : zero + width].sum() < confidence


@pytest.mark.parametrize("terms", [1, 2, 5])
@pytest.mark.parametrize("probability", [Fraction(1, 10), Fraction(1, 10**6)])
@pytest.mark.parametrize("mechanism", INDEPENDENT, ids=repr)
def test_sum_threshold_holds_and_is_small(mechanism: Mechanism, probability: Fraction, terms: int) -> None:
    """The sum reaches `compute_sum_threshold` with at most the probability asked for, and t-1 does not do."""
    probabilities, zero = law(mechanism, terms)
    threshold = mechanism.compute_sum_threshold(terms, probability)
    assert tail(probabilities, zero, threshold) <= probability
    if isinstance(mechanism, Geometric) or mechanism.compute_variance() > 0.9 or terms == 1:
        assert tail(probabilities, zero, threshold - 1) > probability * (1 - Fraction(1, 100))


@pytest.mark.parametrize("terms", [1, 2, 5])
@pytest.mark.parametrize(
    "mechanism", [Geometric(Fraction(1000)), DiscreteGaussian(Fraction(10**6)), *WIDE_INDEPENDENT], ids=repr
)
def test_draws_agree_with_the_thresholds(mechanism: Mechanism, terms: int) -> None:
    """Of 20,000 sums the expected share passes `compute_sum_threshold`, of the draws that within `compute_half_width`."""
    draws = np.array(mechanism.draw(20_000 * terms, SeededEntropy(terms)))
    sums = draws.reshape(terms, -1).sum(axis=0)
    passed = np.count_nonzero(sums >= mechanism.compute_sum_threshold(terms, Fraction(1, 20)))
    assert abs(passed - 1000) < 6 * 31
    inside = np.count_nonzero(np.abs(draws) <= mechanism.compute_half_width(0.9)) / terms
    assert abs(inside - 18_000) < 6 * 43


@pytest.mark.parametrize("mechanism", WIDE_INDEPENDENT, ids=repr)
def test_wide_scales_and_small_probabilities_are_in_closed_form(mechanism: Mechanism) -> None:
    """At 2**40 steps and 1e-12 the bounds scale as the continuous law's, and the tail is inverted."""
    for terms in (1, 2, 100):
        threshold = mechanism.compute_sum_threshold(terms, Fraction(1, 10**12))
        assert mechanism.bound_sum_tail(terms, threshold) <= 1e-12
        assert mechanism.bound_sum_tail(terms, threshold - 2**12) > 1e-12
        assert 6 * terms**0.5 < threshold / mechanism.std < 25 * terms**0.5
    assert mechanism.compute_sum_threshold(1, Fraction(1, 2**900)) > threshold / 10
    assert 0 < mechanism.bound_tail(2**4000) <= 1e-300


@pytest.mark.parametrize("mechanism", [*EXAMPLES, *WIDE], ids=repr)
def test_draws_are_python_integers(mechanism: Mechanism) -> None:
    """Draws can be added to any Python integer without a type in between."""
    drawn = mechanism.draw(50, SeededEntropy(1))
    assert len(drawn) == 50
    assert {type(value) for value in drawn} == {int}


@pytest.mark.parametrize("mechanism", EXAMPLES[:1] + WIDE, ids=repr)
def test_senseless_questions_are_refused(mechanism: Mechanism) -> None:
    """A confidence or a probability outside (0, 1), and a sum of nothing, are errors of dpsql."""
    for confidence in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(DataError):
            mechanism.compute_half_width(confidence)
    for probability in (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2**901)):
        with pytest.raises(LossError):
            mechanism.compute_sum_threshold(1, probability)
    with pytest.raises(InternalError):
        mechanism.compute_sum_threshold(0, Fraction(1, 2))


def test_parameters_are_positive_fractions() -> None:
    """A float, zero or negative parameter is a bug; a loss of zero or one absurdly small is refused."""
    for wrong in (Fraction(0), Fraction(-1), 1.5, 3, float("nan")):
        for mechanism in (
            Geometric,
            DiscreteGaussian,
            partial(LInfinityMechanism, dimensions=3),
            partial(Staircase, width=3, inner=2),
        ):
            with pytest.raises(InternalError):
                mechanism(wrong)  # type: ignore[arg-type]
        for calibrate in (
            Geometric.calibrate,
            DiscreteGaussian.calibrate,
            partial(LInfinityMechanism.calibrate, dimensions=3),
            lambda cell, loss: Staircase.calibrate(int(cell), 1, loss),
        ):
            with pytest.raises(LossError):
                calibrate(Fraction(1), wrong if wrong != 3 else Fraction(0))  # type: ignore[arg-type]
            with pytest.raises(LossError):
                calibrate(Fraction(1), Fraction(1, 10**300))
            with pytest.raises(InternalError):
                calibrate(Fraction(0), Fraction(1))


def test_sensitivity_is_that_of_a_vector() -> None:
    """A sensitivity is not negative, and its l2 norm does not pass its l1 norm."""
    assert Sensitivity(Fraction(3), Fraction(5)).l2_squared == 5
    for l1, l2_squared in ((-1, 0), (1, -1), (1, 2)):
        with pytest.raises(InternalError):
            Sensitivity(Fraction(l1), Fraction(l2_squared))
