"""What Liu, Sun, Jiang, Kong 2022 say of their Figure 1 and of their three examples, as examples/gaussian_dp.py has them."""

from __future__ import annotations

import math
import runpy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpsql.privacy.accounting.measurement import is_gaussian, measure
from dpsql.privacy.accounting.numerics import gaussian_delta
from dpsql.privacy.accounting.tradeoffs import bound_laplace_mu

PATH = Path(__file__).parents[3] / "examples" / "gaussian_dp.py"


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    """The names of the example."""
    return runpy.run_path(str(PATH))


def above(profile: Any, mu: str, epsilon: str) -> bool:
    """Whether the profile lies above that of μ-GDP at ε, for certain."""
    at = Decimal(epsilon)
    return bool(profile.delta(at).low > gaussian_delta(Decimal(mu), at).high)


def below(profile: Any, mu: str, epsilon: str) -> bool:
    """Whether the profile lies below that of μ-GDP at ε, for certain."""
    at = Decimal(epsilon)
    return bool(profile.delta(at).high < gaussian_delta(Decimal(mu), at).low)


@pytest.mark.parametrize("name", ["SGD", "ICEA"])
def test_refining_matters_near_the_origin(paper: dict[str, Any], name: str) -> None:
    """The inverted equations say that (0, δ) is out of reach for any δ below 1; by Theorem 2.1 it is not."""
    naive, refined = paper["NAIVE"][name], paper["REFINED"][name]
    assert naive.delta(Decimal(0)).high == 1
    assert naive.delta(Decimal(0)).low > Decimal("0.999999999999")
    assert refined.delta(Decimal(0)).high < Decimal("0.75")
    for tenth in range(60):
        assert refined.delta(Decimal(tenth) / 10).high <= naive.delta(Decimal(tenth) / 10).high
    assert refined.delta(Decimal(3)).high == naive.delta(Decimal(3)).high


@pytest.mark.parametrize("name", ["SGD", "ICEA"])
def test_the_refined_profile_is_the_least_of_all_that_is_implied(paper: dict[str, Any], name: str) -> None:
    """Against Theorem 2.1 written out, over a finer grid of ε' and with floats, the bounds hold and are tight."""
    refined, naive = paper["REFINED"][name], paper["NAIVE"][name]
    for epsilon in (0.0, 0.3, 0.77, 1.2, 2.0):
        implied = []
        for step in range(4000):
            other = epsilon + step / 1000
            d = float(naive.delta(Decimal(other)).high)
            implied.append(d + (1 - d) * (math.exp(other) - math.exp(epsilon)) / (1 + math.exp(other)))
        bounds = refined.delta(Decimal(epsilon))
        assert float(bounds.low) - 1e-9 <= min(implied)
        assert min(implied) - 1e-4 <= float(bounds.high) <= min(implied) + 1e-4
        assert bounds.high - bounds.low < Decimal("0.01")


def test_laplace_mechanism_is_two_and_four_gdp_and_not_one(paper: dict[str, Any]) -> None:
    """Its profile lies below those of 2- and 4-GDP and crosses that of 1-GDP; its μ is 1.80."""
    laplace = paper["REFINED"]["Laplace"]
    low, high = measure(laplace, Decimal("1e-3"))
    assert low <= bound_laplace_mu(laplace.epsilon) <= high
    assert 1 < low < high < 2
    assert above(laplace, "1", "0")
    assert below(laplace, "1", "1.99")


def test_gradients_are_two_gdp_and_not_one(paper: dict[str, Any]) -> None:
    """What the graph leaves open: the tail is √½, so they are Gaussian; the head decides, and 2-GDP holds everywhere."""
    sgd = paper["REFINED"]["SGD"]
    assert is_gaussian(sgd)
    assert float(sgd.tail) == pytest.approx(math.sqrt(0.5))
    low, high = measure(sgd, Decimal("0.005"))
    assert float(sgd.tail) < 1 < low < high < 2
    assert high - low < Decimal("0.02")
    assert above(sgd, "1", "1")
    assert all(below(sgd, "2", str(tenth / 10)) for tenth in range(100))


def test_the_end_of_the_gradients_is_one(paper: dict[str, Any]) -> None:
    """Beyond the ε that the proof names, their δ is below that of μ-GDP, down to the μ of the tail."""
    naive = paper["NAIVE"]["SGD"]
    for mu in (naive.tail, Decimal(1), Decimal(2)):
        end = naive.bound_crossover_epsilon(mu)
        assert all(below(naive, str(mu), str(end + step)) for step in (0, 1, 5, 30, 200))


def test_the_encoder_is_gaussian_for_no_mu(paper: dict[str, Any]) -> None:
    """Its δ falls as 1/ε: it crosses the curves of 2- and 4-GDP, and lies above any other far enough out."""
    icea = paper["REFINED"]["ICEA"]
    assert not is_gaussian(icea)
    assert above(icea, "1", "0")
    assert below(icea, "2", "2")
    assert above(icea, "2", "4")
    assert below(icea, "4", "0")
    assert above(icea, "4", "16")
    assert above(paper["NAIVE"]["ICEA"], "20", "400")


@pytest.mark.parametrize("name", ["Laplace", "SGD", "ICEA"])
def test_the_tail_is_the_limit(paper: dict[str, Any], name: str) -> None:
    """Theorem 3.3: ε²/(-2 ln δ(ε)) comes near the square of what is said, or grows without end."""
    profile = paper["NAIVE"][name]

    def ratio(epsilon: int) -> float:
        delta = profile.delta(Decimal(epsilon)).high
        return 0.0 if delta == 0 else epsilon**2 / float(-2 * delta.ln())

    if profile.tail is None:
        assert 100 * ratio(10) < ratio(1000) < ratio(10**4) / 50
    else:
        assert ratio(12) == pytest.approx(float(profile.tail) ** 2)


@pytest.mark.parametrize("mu", ["0.5", "1", "4"])
def test_the_tail_of_gaussian_noise(mu: str) -> None:
    """Lemma 3.1: δ_μ(ε) over μ·φ(a)/a², a = ε/μ - μ/2, tends to 1, and ε²/(-2 ln δ_μ) to μ²."""
    m = Decimal(mu)
    ratios = []
    for epsilon in (Decimal(200), Decimal(2000)):
        a = epsilon / m - m / 2
        delta = gaussian_delta(m, epsilon).high
        ln_lemma = float(m.ln() - a * a / 2 - 2 * a.ln()) - math.log(2 * math.pi) / 2
        ratios.append(math.exp(float(delta.ln()) - ln_lemma))
    assert abs(ratios[1] - 1) < min(abs(ratios[0] - 1), 0.02)
    assert float(epsilon**2 / (-2 * delta.ln())) == pytest.approx(float(m) ** 2, rel=0.02)


def test_four_gdp_is_concave_near_the_origin_and_one_gdp_convex() -> None:
    """What the figure shows near ε = 0, by second differences."""
    at = [Decimal(k) / 10 for k in range(3)]
    four, one = ([gaussian_delta(Decimal(mu), e).high for e in at] for mu in (4, 1))
    assert four[0] + four[2] < 2 * four[1]
    assert one[0] + one[2] > 2 * one[1]


def test_the_example_compares_with_gdp_and_draws_a_picture(
    paper: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table names which of 1-, 2- and 4-GDP each satisfies; the batch as one beats its parts; the picture is there."""
    paper["main"](["--picture", str(tmp_path / "figure.png")])
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[-3:] for line in shown.partition("GDP  \n")[2].splitlines()[:3]}
    assert rows == {"Laplace": ["no", "yes", "yes"], "SGD": ["no", "yes", "yes"], "ICEA": ["no", "no", "no"]}
    added, advanced, parts, batch = (float(line.split()[-1]) for line in shown.splitlines()[-6:-2])
    assert batch < advanced < parts < added
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
