"""The library's mechanisms: what each claims of its law, its losses, its profile and its release, for every entry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr
from statistical.chance import FALSE_ALARM

from dpsql.errors import DataError, LossError, NotSupportedError
from dpsql.privacy.accounting import ACCOUNTANTS, compare
from dpsql.privacy.accounting.accountants import get_accountant
from dpsql.privacy.mechanisms import (
    LIBRARY,
    CubeMechanism,
    DiscreteGaussianMechanism,
    ExponentialMechanism,
    GaussianMechanism,
    GeometricMechanism,
    LaplaceMechanism,
    LibraryMechanism,
    LocalMechanism,
    NoiseMechanism,
    PermuteAndFlipMechanism,
    RandomizedResponse,
    ReportNoisyMax,
    SelectionMechanism,
    StaircaseMechanism,
    UnaryEncoding,
    VectorMechanism,
    WishartMechanism,
)
from dpsql.privacy.mechanisms.library.base import bound_l1_steps, bound_squared_l2_steps, bound_steps_moved
from tests.entropy import SeededEntropy

Floats = NDArray[np.float64]
NOISE: list[NoiseMechanism] = [
    LaplaceMechanism(epsilon=0.5, sensitivity=3),
    LaplaceMechanism(epsilon=2, sensitivity=1, step=0.125),
    GeometricMechanism(epsilon=0.7, sensitivity=2),
    GaussianMechanism(epsilon=0.5, delta=1e-5),
    GaussianMechanism(epsilon=3, delta=1e-3, sensitivity=2, step=0.25),
    GaussianMechanism(epsilon=0.9, delta=1e-6, calibration="classical"),
    DiscreteGaussianMechanism(rho=0.1),
    StaircaseMechanism(epsilon=3),
    StaircaseMechanism(epsilon=2, sensitivity=5, step=1),
    StaircaseMechanism(epsilon=1, cost="l1"),
    CubeMechanism(epsilon=1, dimensions=3),
    VectorMechanism(epsilon=1, dimensions=2),
    VectorMechanism(epsilon=2, sensitivity=3, dimensions=3),
]
SCORES = [3, 3.0, "3.1", 0, -2]
SELECTIONS: list[SelectionMechanism] = [
    ExponentialMechanism(scores=SCORES, epsilon=2, sensitivity=1.5),
    ExponentialMechanism(scores=SCORES, epsilon=2, monotone=True),
    PermuteAndFlipMechanism(scores=SCORES, epsilon=2, sensitivity=1.5),
    ReportNoisyMax(scores=SCORES, epsilon=2, sensitivity=1.5),
    ReportNoisyMax(scores=SCORES, epsilon=1, monotone=True),
]
LOCAL: list[LocalMechanism] = [
    RandomizedResponse.fair_coins(),
    RandomizedResponse.of_truth("0.3", choices=4),
    RandomizedResponse(epsilon=1),
    RandomizedResponse(epsilon=2, choices=6),
    UnaryEncoding(epsilon=1, choices=5),
]
WISHART = WishartMechanism(epsilon=1, delta=1e-3, dimensions=2, calibration="profile")
EVERY: list[LibraryMechanism] = [*NOISE, *SELECTIONS, *LOCAL, WISHART]
DRAWS = 12_000


def chi_squared(observed: NDArray[np.int64], chances: Floats) -> float:
    """The chance of counts as far from these chances; cells that expect less than 20 are put together."""
    expected = chances / chances.sum() * observed.sum()
    few = expected < 20
    if few.any():
        observed = np.append(observed[~few], observed[few].sum())
        expected = np.append(expected[~few], max(expected[few].sum(), 1e-3))
        if expected[-1] < 5:  # too few for the limit law: with the next cell
            observed = np.append(observed[1:-1], observed[0] + observed[-1])
            expected = np.append(expected[1:-1], expected[0] + expected[-1])
    return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))


def summed(density: Callable[[Floats], Floats], spread: float, step: float | None) -> tuple[Floats, Floats]:
    """Points and the chances at them, of a density on a fine grid or of probabilities at multiples of `step`."""
    if step is None:
        width = 80 * spread / 2**19
        points = (np.arange(2**19) - 2**18 + 0.5) * width
        return points, density(points) * width
    points = np.arange(-math.ceil(60 * spread / step), math.ceil(60 * spread / step) + 1) * step
    return points, density(points) * (step if step != 1 else 1)


def law_of(noise: NoiseMechanism) -> tuple[Floats, Floats]:
    """Its closed form; where the lattice is coarse, the probabilities of its points by brute force."""
    step = float(noise.spacing)
    if noise.spacing == 1 or step > 0.01:
        points = np.arange(
            -math.ceil(60 * noise.variance**0.5 / step), math.ceil(60 * noise.variance**0.5 / step) + 1
        )
        chances = lattice_law(noise, points)
        return points * step, chances
    return summed(noise.density, noise.variance**0.5, None)


def lattice_law(noise: NoiseMechanism, steps: Floats) -> Floats:
    """The law in steps, from the parameters of the mechanism alone."""
    moved = float(bound_steps_moved(Fraction(noise.sensitivity), noise.spacing))  # type: ignore[attr-defined]
    match noise:
        case LaplaceMechanism() | GeometricMechanism():
            weights = np.exp(-np.abs(steps) * float(noise.epsilon) / moved)
        case GaussianMechanism() | DiscreteGaussianMechanism():
            weights = np.exp(-(steps.astype(np.float64) ** 2) / (2 * float(noise.law.variance)))
        case StaircaseMechanism():
            first = round(noise.gamma * moved)
            weights = np.exp(-float(noise.epsilon) * np.floor((np.abs(steps) + moved - first) / moved))
        case _:
            raise AssertionError(noise.name)
    found: Floats = weights / weights.sum()
    return found


def hockey_stick(here: Floats, there: Floats, epsilon: float) -> float:
    """δ at ε of two laws on the same points."""
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


def test_every_entry_has_an_example() -> None:
    """A mechanism that is added to the library is added here too, and they have names of their own."""
    assert {type(example) for example in EVERY} == set(LIBRARY)
    assert len({entry.name for entry in LIBRARY}) == len(LIBRARY)


@pytest.mark.parametrize("noise", [*NOISE, WISHART], ids=repr)
def test_the_law_is_a_law_with_that_variance(noise: NoiseMechanism | WishartMechanism) -> None:
    """The closed form sums to 1, has the stated variance, and the stated interval holds as much as it says, but little more."""
    if isinstance(noise, WishartMechanism):
        points, chances = summed(lambda z: noise.density(z) * (z > 0), 2 * noise.variance**0.5 + 20, None)
    else:
        points, chances = law_of(noise)
        assert (points * chances).sum() == pytest.approx(0, abs=1e-6 * noise.variance**0.5 + 1e-9)
    mean = (points * chances).sum()
    assert chances.sum() == pytest.approx(1, abs=2e-4)
    assert ((points - mean) ** 2 * chances).sum() == pytest.approx(noise.variance, rel=3e-4)
    for confidence in (0.5, 0.95, 0.999):
        low, high = noise.interval(confidence)
        assert chances[(points >= low) & (points <= high)].sum() >= confidence - 3e-4
        inner = (points > low * 0.99 + high * 0.01) & (points < high * 0.99 + low * 0.01)
        coarse = (
            chances.max() if not isinstance(noise, WishartMechanism) and float(noise.spacing) > 0.01 else 0
        )
        assert chances[inner].sum() <= confidence + 2 * coarse + 1e-9
    for wrong in (0, 1, -0.5, 2):
        with pytest.raises(DataError):
            noise.interval(wrong)


@pytest.mark.parametrize("noise", [*NOISE, WISHART], ids=repr)
def test_samples_follow_the_law(noise: NoiseMechanism | WishartMechanism) -> None:
    """χ²: 12,000 draws of a coordinate from the system's entropy in 60 cells of the closed form, in vain about once in 10^9."""
    if isinstance(noise, WishartMechanism):
        draws = noise.sample(DRAWS)[:, 1, 1]
        points, chances = summed(lambda z: noise.density(z) * (z > 0), 2 * noise.variance**0.5 + 20, None)
    else:
        size = DRAWS if noise.name != "vector" else DRAWS // 10
        draws = noise.sample(size).reshape(size, -1)[:, -1].astype(np.float64)
        points, chances = law_of(noise)
    edges = points[np.searchsorted(np.cumsum(chances), np.linspace(0.01, 0.99, 60))]
    edges = np.unique(edges)
    cells = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(edges) + 1)
    law = np.bincount(np.searchsorted(edges, points, side="left"), weights=chances, minlength=len(edges) + 1)
    assert chi_squared(cells, law) > FALSE_ALARM


@pytest.mark.parametrize("dimensions", [2, 3])
def test_vectors_have_a_gamma_norm_and_no_direction(dimensions: int) -> None:
    """χ²: norms of the vector mechanism are gamma variables, and of each orthant and order of magnitudes there are as many."""
    noise = VectorMechanism(epsilon=1, dimensions=dimensions)
    draws = noise.sample(3_000)
    norms = np.sqrt((draws**2).sum(axis=1))
    from scipy.special import gammainc

    cells = np.bincount((gammainc(dimensions, norms) * 40).astype(int), minlength=40)
    assert chi_squared(cells, np.full(40, 1 / 40)) > FALSE_ALARM
    orthants = (draws > 0) @ 2 ** np.arange(dimensions)
    assert chi_squared(np.bincount(orthants, minlength=2**dimensions), np.ones(2**dimensions)) > FALSE_ALARM
    largest = np.abs(draws).argmax(axis=1)
    assert chi_squared(np.bincount(largest, minlength=dimensions), np.ones(dimensions)) > FALSE_ALARM


def test_the_ball_is_exact_on_small_lattices() -> None:
    """χ²: vectors of a narrow scale, each near 0 in a cell of its own, follow a**⌈norm⌉."""
    noise = VectorMechanism(epsilon=1, sensitivity=1, dimensions=2, step=1)
    scale = float(noise.law.scale)
    draws = noise.sample(DRAWS // 3)
    grid = np.array(list(itertools.product(range(-60, 61), repeat=2)))
    weights = np.exp(-np.ceil(np.sqrt((grid**2).sum(axis=1)) - 1e-9) / scale)
    near = np.abs(grid).max(axis=1) <= 4
    places = {tuple(vector): place for place, vector in enumerate(grid[near].tolist())}
    cells = np.zeros(len(places) + 1, np.int64)
    for vector in draws.tolist():
        cells[places.get(tuple(vector), len(places))] += 1
    chances = np.append(weights[near], weights[~near].sum()) / weights.sum()
    assert chi_squared(cells, chances) > FALSE_ALARM
    # And the loss of a shift by the lattice's sensitivity is at most ε.
    norm = np.ceil(np.sqrt((grid**2).sum(axis=1)) - 1e-9)
    reach = math.floor(math.sqrt(bound_squared_l2_steps(Fraction(1), Fraction(1), 2)))
    for shift in itertools.product(range(-reach, reach + 1), repeat=2):
        if shift[0] ** 2 + shift[1] ** 2 <= bound_squared_l2_steps(Fraction(1), Fraction(1), 2):
            moved = np.ceil(np.sqrt(((grid + shift) ** 2).sum(axis=1)) - 1e-9)
            assert (moved - norm).max() / scale <= 1 + 1e-9


@pytest.mark.parametrize("step", [Fraction(1), Fraction(1, 3), Fraction(2, 5), Fraction(7, 4)], ids=str)
def test_rounding_moves_no_vector_further_than_is_counted(step: Fraction) -> None:
    """Of random neighbours in exact numbers, rounded to the lattice, no difference is longer in any norm; some reach it."""
    generator = np.random.default_rng(21)
    attained = 0
    for _ in range(600):
        dimensions = int(generator.integers(1, 4))
        here = [Fraction(int(x), 60) for x in generator.integers(-200, 200, dimensions)]
        change = [Fraction(int(x), 60) for x in generator.integers(-70, 70, dimensions)]
        rounded = [math.floor(x / step + Fraction(1, 2)) for x in here]
        moved = [
            math.floor((x + d) / step + Fraction(1, 2)) - place
            for x, d, place in zip(here, change, rounded, strict=True)
        ]
        l1, square = sum(map(abs, change)), sum(d * d for d in change)
        most = max(map(abs, change))
        if not l1:
            continue
        assert sum(map(abs, moved)) <= bound_l1_steps(l1, step, dimensions)
        assert max(map(abs, moved)) <= bound_steps_moved(most, step)
        l2 = Fraction(math.isqrt(square.numerator * 10**12 // square.denominator) + 1, 10**6)
        assert sum(m * m for m in moved) <= bound_squared_l2_steps(l2, step, dimensions)
        attained += sum(map(abs, moved)) == bound_l1_steps(l1, step, dimensions)
    assert attained > 5


@pytest.mark.parametrize(
    "noise",
    [
        LaplaceMechanism(epsilon=1, sensitivity=1, step=0.25),
        LaplaceMechanism(epsilon=0.3, sensitivity=1, step="0.3"),
        GeometricMechanism(epsilon=1.5, sensitivity=3),
        StaircaseMechanism(epsilon=3, sensitivity=6, step=1),
        StaircaseMechanism(epsilon=2, sensitivity=1, step="0.22", cost="l1"),
        StaircaseMechanism(epsilon=0.4, sensitivity=4, step=1),
    ],
    ids=repr,
)
def test_profiles_of_noise_are_those_of_the_lattice(noise: NoiseMechanism) -> None:
    """δ by brute force over the law and its longest shift is the profile's; shorter shifts have less, and ε is attained."""
    steps = np.arange(-3000, 3001)
    law = lattice_law(noise, steps)
    moved = bound_steps_moved(Fraction(noise.sensitivity), noise.spacing)  # type: ignore[attr-defined]
    loss = float(noise.epsilon)  # type: ignore[attr-defined]
    for part in (0, 0.2, 0.5, 0.9, 0.999, 1):
        low, high = noise.profile().delta(Decimal(part * loss))
        deltas = [hockey_stick(law, np.roll(law, shift), part * loss) for shift in range(1, moved + 1)]
        assert float(low) - 1e-9 <= max(deltas) <= float(high) + 1e-9
        assert deltas[-1] == pytest.approx(max(deltas), abs=1e-12)
    ratios = np.log(law[2800:3200]) - np.log(np.roll(law, moved)[2800:3200])
    assert ratios.max() == pytest.approx(loss)


def test_profiles_of_fine_lattices_are_the_closed_forms() -> None:
    """Laplace, Gaussian, discrete Gaussian and staircase noise, at ε from 0 to beyond the loss."""
    for at in (Decimal(0), Decimal("0.3"), Decimal(1), Decimal(2)):
        e = float(at)
        laplace = LaplaceMechanism(epsilon=1.5, sensitivity=7).profile().delta(at).high
        assert float(laplace) == pytest.approx(max(0.0, 1 - math.exp((e - 1.5) / 2)), abs=2e-6)
        gaussian = GaussianMechanism(epsilon=1, delta=1e-2)
        mu = 1 / gaussian.variance**0.5
        exact = ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu)
        assert float(gaussian.profile().delta(at).high) == pytest.approx(exact, abs=1e-9)
        stairs = StaircaseMechanism(epsilon=2, sensitivity=3)
        gamma, b = stairs.gamma, math.exp(-2)
        peak = (1 - b) / (2 * (gamma + b * (1 - gamma)))  # over the sensitivity
        ahead = 0.5 + peak * min(gamma, 1 - gamma)
        delta = max(0.0, ahead * (1 - math.exp(e - 2)))
        assert float(stairs.profile().delta(at).high) == pytest.approx(delta, abs=1e-5)


def test_the_profile_of_discrete_gaussian_noise_is_above_brute_force() -> None:
    """For wide and narrow laws, integers and lattices: never below δ of the law, and near it where the law is wide."""
    steps = np.arange(-4000, 4001)
    for noise in (
        DiscreteGaussianMechanism(rho=0.5),
        DiscreteGaussianMechanism(rho=2, sensitivity=3),
        DiscreteGaussianMechanism(rho=0.02, sensitivity=20),
        GaussianMechanism(epsilon=1, delta=1e-3, step=0.5),
        GaussianMechanism(epsilon=1, delta=1e-3, step=0.05),
        GaussianMechanism(epsilon=4, delta=1e-2, sensitivity=1, step=1),
    ):
        law = lattice_law(noise, steps)
        moved = bound_steps_moved(Fraction(noise.sensitivity), noise.spacing)
        for e in (0, 0.4, 1, 2.5, 4):
            delta = hockey_stick(law, np.roll(law, moved), e)
            high = float(noise.profile().delta(Decimal(str(e))).high)
            assert delta <= high + 1e-12
            if noise.variance > 100 * float(noise.spacing) ** 2:
                assert high == pytest.approx(delta, rel=2e-2, abs=1e-6)
        if isinstance(noise, GaussianMechanism):
            assert hockey_stick(law, np.roll(law, moved), float(noise.epsilon)) <= float(noise.delta) + 1e-12


@pytest.mark.parametrize("kind", ["l1", "l2", "linf"])
def test_profiles_of_vectors_are_upper_bounds(kind: str) -> None:
    """δ of the continuous laws in two dimensions, integrated on a grid, for shifts along an axis and the diagonal."""
    noise: NoiseMechanism = {
        "l1": LaplaceMechanism(epsilon=1, dimensions=2),
        "l2": VectorMechanism(epsilon=1, dimensions=2),
        "linf": CubeMechanism(epsilon=1, dimensions=2),
    }[kind]
    grid = np.linspace(-18, 18, 721)
    x, y = np.meshgrid(grid, grid)
    norm: Callable[[Floats, Floats], Floats] = {
        "l1": lambda a, b: np.abs(a) + np.abs(b),
        "l2": np.hypot,
        "linf": lambda a, b: np.maximum(np.abs(a), np.abs(b)),
    }[kind]
    here = np.exp(-norm(x, y))
    for direction in ((1.0, 0.0), (1.0, 1.0)):
        length = float(norm(np.array(direction[0]), np.array(direction[1])))
        there = np.exp(-norm(x - direction[0] / length, y - direction[1] / length))
        for e in (0.0, 0.3, 0.8):
            delta = hockey_stick(here / here.sum(), there / there.sum(), e)
            assert delta <= float(noise.profile().delta(Decimal(str(e))).high) + 1e-3


@pytest.mark.parametrize("mechanism", EVERY, ids=repr)
def test_accountants_charge_points_of_the_profile(mechanism: LibraryMechanism) -> None:
    """Each accountant's ε for the event of one release, at some δ, is one that the profile keeps."""
    delta = Fraction(1, 100)
    charges = [charge for charge in compare([mechanism.event()], delta) if charge.epsilon is not None]
    assert len(charges) >= 2
    for charge in charges:
        kept = Decimal(charge.epsilon.numerator) / Decimal(charge.epsilon.denominator)
        assert mechanism.profile().delta(kept).low <= Decimal("0.01") * (1 + Decimal("1e-20"))
    for name in ACCOUNTANTS:
        accountant = get_accountant(name)
        try:
            one, two = (
                accountant.compute_charge(mechanism.event()),
                accountant.compute_charge(mechanism.event()),
            )
        except NotSupportedError:
            continue
        assert one == two


def test_releases_are_the_rounded_value_and_noise_on_the_lattice() -> None:
    """Exact values of any kind, singly or as vectors, end on the lattice; at a large loss they are the values."""
    strong = LaplaceMechanism(epsilon=10**6, sensitivity=1, step="0.25")
    for value in (3, 3.1, Fraction(10, 3), Decimal("3.1"), "3.1", np.float64(3.1), np.int64(3)):
        found = strong.release(value)
        assert type(found) is float
        assert (
            found
            == math.floor(Fraction(str(value) if "/" not in str(value) else value) * 4 + Fraction(1, 2)) / 4
        )
    assert GeometricMechanism(epsilon=10**6).release(2**60) == 2**60
    assert type(GeometricMechanism(epsilon=1).release(5)) is int
    vectors = GaussianMechanism(epsilon=1, delta=1e-6, dimensions=3, step="0.5").release([1.0, 2.0, 3.0])
    assert vectors.shape == (3,)
    assert ((vectors * 2) % 1 == 0).all()
    assert GaussianMechanism(epsilon=1, delta=1e-6, dimensions=3).sample(7).shape == (7, 3)
    assert CubeMechanism(epsilon=1, dimensions=4).release(np.zeros(4)).shape == (4,)


def test_intervals_cover_rounding() -> None:
    """With hardly any noise the error is that of rounding, and within the interval; integers have none."""
    coarse = LaplaceMechanism(epsilon=1000, step=1)
    low, high = coarse.interval(0.95)
    for value in (0.4, 0.5, -0.3, 7.49):
        assert low <= coarse.release(value) - value <= high
    assert (low, high) == (-0.5, 0.5)
    assert GeometricMechanism(epsilon=1000).interval(0.95) == (0, 0)


def test_releases_refuse_invalid_values() -> None:
    """NaN, infinities, text, fractions where integers are wanted, and vectors of another length; nothing is drawn."""
    for value in (math.nan, math.inf, "many", None, [1, 2], object()):
        with pytest.raises(DataError):
            LaplaceMechanism(epsilon=1).release(value)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="multiples of 1"):
        GeometricMechanism(epsilon=1).release(0.5)
    with pytest.raises(DataError):
        CubeMechanism(epsilon=1, dimensions=2).release([1])


@pytest.mark.parametrize(
    "build",
    [
        lambda: LaplaceMechanism(epsilon=0),
        lambda: LaplaceMechanism(epsilon=math.nan),
        lambda: LaplaceMechanism(epsilon=1, sensitivity=-1),
        lambda: LaplaceMechanism(epsilon=1, step=0),
        lambda: LaplaceMechanism(epsilon=1, dimensions=0),
        lambda: GaussianMechanism(epsilon=1, delta=1),
        lambda: GaussianMechanism(epsilon=1, delta=1e-6, calibration="classical"),
        lambda: GaussianMechanism(epsilon=5, delta=1e-6, calibration="classical"),
        lambda: GaussianMechanism(epsilon=1, delta=1e-6, calibration="best"),  # type: ignore[arg-type]
        lambda: StaircaseMechanism(epsilon=1, cost="l3"),  # type: ignore[arg-type]
        lambda: CubeMechanism(epsilon=1, dimensions=65),
        lambda: VectorMechanism(epsilon=1, dimensions=13),
        lambda: WishartMechanism(epsilon=1, delta=2),
        lambda: WishartMechanism(epsilon=1, delta=0.1, calibration="none"),  # type: ignore[arg-type]
        RandomizedResponse,
        lambda: RandomizedResponse(epsilon=1, odds=3),
        lambda: RandomizedResponse(odds=1),
        lambda: RandomizedResponse(epsilon=1, choices=1),
        lambda: RandomizedResponse.of_truth(1),
        lambda: UnaryEncoding(epsilon=1, choices=1),
        lambda: UnaryEncoding(epsilon=1e-20),
        lambda: RandomizedResponse(epsilon=1e-20),
        lambda: ExponentialMechanism(scores=[], epsilon=1),
    ],
)
def test_parameters_that_make_no_mechanism_are_refused(build: Callable[[], object]) -> None:
    """With a LossError that says which rule it is."""
    with pytest.raises(LossError):
        build()


# ---------------------------------------------------------------------------------------- selections


@pytest.mark.parametrize("selection", SELECTIONS, ids=repr)
def test_selections_follow_their_law(selection: SelectionMechanism) -> None:
    """χ²: 2,000 selections against the probabilities, which sum to 1; variance and interval are those of the scores."""
    chances = selection.probabilities()
    assert chances.sum() == pytest.approx(1, abs=1e-9)
    assert chi_squared(np.bincount(selection.sample(2_000), minlength=5), chances) > FALSE_ALARM
    scores = np.array([3, 3, 3.1, 0, -2])
    mean = (scores * chances).sum()
    assert selection.variance == pytest.approx(((scores - mean) ** 2 * chances).sum())
    for confidence in (0.3, 0.9, 0.9999):
        low, high = selection.interval(confidence)
        assert high == 0
        assert chances[scores - 3.1 >= low - 1e-9].sum() >= confidence - 1e-9
        assert chances[scores - 3.1 > low + 1e-9].sum() < confidence


def test_permute_and_flip_is_its_definition_and_noisy_max_with_exponential_noise() -> None:
    """Probabilities by walking through all orders of the candidates, and by 200,000 noisy maxima."""
    selection = PermuteAndFlipMechanism(scores=[2, 1.5, 0, 2], epsilon=2, sensitivity=1)
    coins = np.exp(np.array([2, 1.5, 0, 2]) - 2)
    exact = np.zeros(4)
    for order in itertools.permutations(range(4)):
        left = 1.0
        for place in order:
            exact[place] += left * coins[place] / 24
            left *= 1 - coins[place]
    assert selection.probabilities() == pytest.approx(exact, abs=1e-9)
    noise = np.random.default_rng(5).exponential(1.0, (200_000, 4)) + np.array([2, 1.5, 0, 2])
    assert chi_squared(np.bincount(noise.argmax(axis=1), minlength=4), exact) > FALSE_ALARM


@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlipMechanism, ReportNoisyMax])
@pytest.mark.parametrize("monotone", [False, True])
def test_selections_keep_their_loss_and_attain_it(kind: type[SelectionMechanism], monotone: bool) -> None:
    """Over all neighbouring scores of a grid no chance changes by more than e^ε; for opposite changes it nearly does."""
    largest = 0.0
    moves = [(0, 0.5, 1)] * 3 if monotone else [(-1, 0, 1)] * 3
    for base in ((0, 0, 0), (4, 0, 0), (0, 8, 1), (9, 0, 9)):
        here = kind(scores=base, epsilon=1, monotone=monotone).probabilities()  # type: ignore[call-arg]
        for move in itertools.product(*moves):
            moved = [x + d for x, d in zip(base, move, strict=True)]
            there = kind(scores=moved, epsilon=1, monotone=monotone).probabilities()  # type: ignore[call-arg]
            largest = max(largest, float(np.abs(np.log(here / there)).max()))
    assert 0.7 < largest <= 1 + 1e-6
    if not monotone:
        wrong = kind(scores=(9, 0, 9), epsilon=1, monotone=True).probabilities()  # type: ignore[call-arg]
        moved = kind(scores=(8, 1, 8), epsilon=1, monotone=True).probabilities()  # type: ignore[call-arg]
        assert np.abs(np.log(wrong / moved)).max() > 1.5, "the half that monotone scores spare is needed here"


def test_the_lattice_of_noisy_scores_is_public() -> None:
    """The noise of report-noisy-max has one law whatever the scores, and neighbours of any fractions keep ε."""
    generator = np.random.default_rng(9)
    laws, largest = set(), 0.0
    for _ in range(60):
        base = [Fraction(int(x), int(y)) for x, y in generator.integers(1, 30, (3, 2))]
        moved = [x + Fraction(int(d), 97) for x, d in zip(base, generator.integers(-97, 98, 3), strict=True)]
        here, there = (ReportNoisyMax(scores=scores, epsilon=1) for scores in (base, moved))
        laws |= {here._noise[1], there._noise[1]}
        largest = max(largest, float(np.abs(np.log(here.probabilities() / there.probabilities())).max()))
    assert len(laws) == 1
    assert 0.3 < largest <= 1 + 1e-6


def test_the_utility_theorem_holds_and_permuting_is_never_worse() -> None:
    """P(score <= best - shortfall) <= e^-t for exact laws; the mean score of permute-and-flip is no lower."""
    generator = np.random.default_rng(3)
    for _ in range(12):
        scores = generator.integers(0, 12, generator.integers(2, 9)).tolist()
        epsilon = float(generator.uniform(0.1, 3))
        for monotone in (False, True):
            exponential = ExponentialMechanism(scores=scores, epsilon=epsilon, monotone=monotone)
            flip = PermuteAndFlipMechanism(scores=scores, epsilon=epsilon, monotone=monotone)
            for selection in (exponential, flip):
                for t in (0.1, 1.0, 3.0):
                    far = np.array(scores) <= max(scores) - selection.shortfall(1 - math.exp(-t))
                    assert selection.probabilities()[far].sum() <= math.exp(-t) + 1e-9
            means = [(selection.probabilities() * scores).sum() for selection in (exponential, flip)]
            assert means[1] >= means[0] - 1e-9


def test_scores_are_finite_numbers() -> None:
    """Of either sign, as integers, floats, fractions or their text; others are refused."""
    assert (
        ExponentialMechanism(scores=[-1, Fraction(1, 3), "0.5", np.int64(2), 0.0], epsilon=1).scores[0] == -1
    )
    for wrong in (math.nan, math.inf, "a", None):
        with pytest.raises(DataError):
            ExponentialMechanism(scores=[1, wrong], epsilon=1)  # type: ignore[list-item]


# ---------------------------------------------------------------------------------------- local answers


@pytest.mark.parametrize("mechanism", LOCAL, ids=repr)
def test_answers_follow_their_law_and_estimate_without_bias(mechanism: LocalMechanism) -> None:
    """χ² of which choices are supported, by each truth; the estimate's mean is the truth, its variance as stated."""
    for truth in range(mechanism.choices):
        answers = mechanism.sample(8_000, truth=truth)
        supported = mechanism.supports(answers).sum(axis=0)
        for choice, count in enumerate(supported.tolist()):
            chance = mechanism.p if choice == truth else mechanism.q
            assert chi_squared(np.array([count, 8_000 - count]), np.array([chance, 1 - chance])) > FALSE_ALARM
        estimates = (supported / 8_000 - mechanism.q) / (mechanism.p - mechanism.q)
        reach = 7 * max(1.0, mechanism.variance) ** 0.5 / 8_000**0.5 / min(1, 2 * (mechanism.p - mechanism.q))
        assert np.abs(estimates - (np.arange(mechanism.choices) == truth)).max() < reach
    low, high = mechanism.interval(0.99)
    mean = mechanism.q * high + (1 - mechanism.q) * low
    assert mean == pytest.approx(0, abs=1e-12)
    assert mechanism.q * high**2 + (1 - mechanism.q) * low**2 == pytest.approx(mechanism.variance)


def test_randomised_response_is_exactly_as_private_as_stated() -> None:
    """By odds of the law: fair coins ln 3, α-coins ln((1+α)/(1-α)), k choices ε; the profile is that of the law."""
    assert float(RandomizedResponse.fair_coins().loss) == pytest.approx(math.log(3))
    for alpha in (0.1, 0.5, 0.9):
        survey = RandomizedResponse.of_truth(alpha)
        assert survey.p == pytest.approx((1 + alpha) / 2)
        assert float(survey.loss) == pytest.approx(math.log((1 + alpha) / (1 - alpha)))
        assert float(survey.loss) > 2 * alpha, "2α is no bound"
    for choices in (2, 3, 7):
        survey = RandomizedResponse(epsilon=1.3, choices=choices)
        assert survey.p + (choices - 1) * survey.q == pytest.approx(1)
        assert survey.p / survey.q == pytest.approx(math.exp(1.3))
        here, there = np.full(choices, survey.q), np.full(choices, survey.q)
        here[0], there[1] = survey.p, survey.p
        for e in (0, 0.5, 1.2, 1.3):
            high = float(survey.profile().delta(Decimal(str(e))).high)
            assert high == pytest.approx(hockey_stick(here, there, e), abs=1e-12)


def test_unary_encoding_is_exactly_as_private_as_stated() -> None:
    """Over all strings of bits: the largest ratio is e^ε, and the profile is that of the law."""
    mechanism = UnaryEncoding(epsilon=1.3, choices=4)

    def law(truth: int) -> Floats:
        chances = [mechanism.p if place == truth else mechanism.q for place in range(4)]
        strings = itertools.product((0, 1), repeat=4)
        return np.array(
            [math.prod(c if bit else 1 - c for c, bit in zip(chances, bits, strict=True)) for bits in strings]
        )

    assert np.log(law(0) / law(1)).max() == pytest.approx(1.3)
    for e in (0, 0.5, 1.2, 1.3):
        high = float(mechanism.profile().delta(Decimal(str(e))).high)
        assert high == pytest.approx(hockey_stick(law(0), law(1), e), abs=1e-12)
    better = [
        k
        for k in range(2, 40)
        if RandomizedResponse(epsilon=1, choices=k).variance > UnaryEncoding(epsilon=1).variance
    ]
    assert better[0] == math.floor(3 * math.e + 2) + 1


def test_a_truth_that_is_no_choice_is_refused() -> None:
    """Before anything is drawn."""
    for truth in (-1, 2):
        with pytest.raises(DataError):
            RandomizedResponse(epsilon=1).release(truth)


# ---------------------------------------------------------------------------------------- optima


@pytest.mark.parametrize("epsilon", [0.2, 1, 3, 7])
def test_the_staircase_has_the_least_cost_of_all(epsilon: float) -> None:
    """No other first stair has a lower cost on a small lattice, and γ is the paper's on a fine one; Laplace noise has more."""
    for cost, power in (("l1", 1), ("l2", 2)):
        noise = StaircaseMechanism(epsilon=epsilon, sensitivity=20, step=1, cost=cost)  # type: ignore[arg-type]
        k = np.arange(-20_000, 20_001)
        costs = []
        for inner in range(1, 21):
            weights = np.exp(-epsilon * ((np.abs(k) + 20 - inner) // 20))
            costs.append(float((np.abs(k) ** power * weights).sum() / weights.sum()))
        assert costs[noise.law.inner - 1] == pytest.approx(min(costs), rel=1e-12)
    fine = StaircaseMechanism(epsilon=epsilon, cost="l1")
    assert fine.gamma == pytest.approx(1 / (1 + math.exp(epsilon / 2)), abs=1e-5)
    assert StaircaseMechanism(epsilon=epsilon).variance < 2 / epsilon**2
    assert StaircaseMechanism(epsilon=epsilon).variance <= fine.variance


def test_draws_come_from_the_entropy_that_is_given() -> None:
    """A fixed source, for tests, makes fixed draws of every mechanism; none takes a seed, and two calls differ without it."""
    for mechanism in EVERY:
        one, two = (mechanism.sample(20, entropy=SeededEntropy(4)) for _ in range(2))
        assert (np.asarray(one) == np.asarray(two)).all()
    wide = LaplaceMechanism(epsilon=1)
    assert (wide.sample(20) != wide.sample(20)).any()
