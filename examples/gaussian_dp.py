"""Compute a figure of a paper with certified bounds: which releases are Gaussian private, and how private they are.

Run it with `python examples/gaussian_dp.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
It follows Liu, Sun, Jiang, Kong 2022, "Identification, amplification and measurement: a bridge to Gaussian
differential privacy": its three examples, Figure 1, and the claims about them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

from shared.pictures import draw, picture_of

from dpsql.privacy.accounting.batch import Batch
from dpsql.privacy.accounting.composition import Guarantee, advanced
from dpsql.privacy.accounting.measurement import compose_mu, is_gaussian, measure
from dpsql.privacy.accounting.numerics import Bounds, convert_to_epsilon, gaussian_delta
from dpsql.privacy.accounting.profiles import LaplaceProfile, Profile, RefinedProfile, bound_probability
from dpsql.privacy.accounting.tradeoffs import bound_laplace_mu

ASKED = (1, 2, 4)
GRID = tuple(Decimal(k) / 128 for k in range(24 * 128 + 1))
MARGIN = Decimal("0.005")


@dataclass(frozen=True)
class NoisyGradients:
    """A release that keeps (ε, δ) wherever σ = (A/ε)·√ln(B/δ), as noisy gradient descent does with A = 2 and B = 1.

    So δ = B·exp(-(σ·ε/A)²), which falls as fast as a Gaussian one.
    """

    a: int = 2
    b: int = 1
    sigma: int = 2

    @property
    def rate(self) -> Fraction:
        """Return the factor of -ε² in ln δ."""
        return Fraction(self.sigma, self.a) ** 2

    @property
    def tail(self) -> Decimal:
        """Return √(1/(2·rate)), rounded up: √lim ε²/(-2 ln δ)."""
        context = Context(prec=50, rounding=ROUND_CEILING)
        return context.sqrt(context.divide(Decimal(self.rate.denominator), Decimal(2 * self.rate.numerator)))

    def delta(self, epsilon: Decimal) -> Bounds:
        """The δ that follows from the equation, at most 1."""
        with localcontext(prec=110):
            rate = Decimal(self.rate.numerator) / Decimal(self.rate.denominator)
            value = self.b * (-rate * epsilon * epsilon).exp()
            return bound_probability(value, value)

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Return an ε beyond which δ is below that of `mu`-GDP, for a `mu` of `tail` or more.

        With b = ε/μ + μ/2, δ_μ(ε) is at least φ(ε/μ - μ/2)·μ/(b²+3), as Mills' ratio is convex and at most
        (x²+2)/(x³+3x). From ε = 4 on, the log of that less ln δ grows: one ε where it is above 0 is enough.
        """
        m, start = float(mu), 4.0
        while True:
            a, b = start / m - m / 2, start / m + m / 2
            least = -a * a / 2 - math.log(2 * math.pi) / 2 + math.log(m / (b * b + 3))
            if least > math.log(self.b) - float(self.rate) * start * start + 1e-6:
                return Decimal(start)
            start *= 2


@dataclass(frozen=True)
class InvisibilityCloak:
    """The encoder that keeps (ε, δ) where it sends m > 10·ln(n/(ε·δ)) messages for each of n users.

    So δ = (n/ε)·exp(-m/10), at most 1, which falls no faster than 1/ε.
    """

    messages: int = 20
    users: int = 4

    @property
    def tail(self) -> Decimal | None:
        """Return None, because ε²/(-2 ln δ) grows without bound."""
        return None

    def delta(self, epsilon: Decimal) -> Bounds:
        """The δ that follows from the equation, at most 1."""
        with localcontext(prec=110):
            share = self.users * (Decimal(-self.messages) / 10).exp()
            return Bounds(Decimal(1), Decimal(1)) if epsilon <= share else bound_probability(share / epsilon)

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Raise ValueError, because there is no such ε."""
        raise ValueError(f"no δ of {mu}-GDP stays above one that falls as 1/ε")


LAPLACE = LaplaceProfile(Fraction(2))
NAIVE: dict[str, Profile] = {"Laplace": LAPLACE, "SGD": NoisyGradients(), "ICEA": InvisibilityCloak()}
REFINED: dict[str, Profile] = {
    "Laplace": LAPLACE,
    "SGD": RefinedProfile(NAIVE["SGD"], GRID),
    "ICEA": RefinedProfile(NAIVE["ICEA"], GRID),
}


def holds(mu: int, measured: Bounds | None) -> bool | None:
    """Return whether the measurement proves `mu`-GDP, or None if it is not fine enough."""
    if measured is None or mu < measured.low:
        return False
    return True if mu >= measured.high else None


def crossing(profile: Profile, mu: int) -> Decimal | None:
    """Return the first whole ε up to 24 at which the profile is certainly above that of `mu`-GDP."""
    found = (
        Decimal(epsilon)
        for epsilon in range(25)
        if profile.delta(Decimal(epsilon)).low > gaussian_delta(Decimal(mu), Decimal(epsilon)).high
    )
    return next(found, None)


def refinement() -> None:
    """Print the left half of the figure in numbers."""
    print("δ at ε       naive                refined by Theorem 2.1")
    for name in ("SGD", "ICEA"):
        for epsilon in (Decimal(0), Decimal("0.5"), Decimal(1), Decimal(2)):
            before, after = NAIVE[name].delta(epsilon).high, REFINED[name].delta(epsilon).high
            print(f"{name:5} {epsilon:>5}  {float(before):>10.6f}  {float(after):>20.6f}")


def identification() -> None:
    """Print which of the three releases is Gaussian private, and for which μ."""
    print("\nis it μ-GDP?     μ measured            " + "".join(f"{mu}-GDP  " for mu in ASKED))
    words = {True: "yes", False: "no", None: "?"}
    for name, profile in REFINED.items():
        measured = measure(profile, MARGIN) if is_gaussian(profile) else None
        bounds = (
            "for no μ" if measured is None else f"{float(measured.low):.4f} to {float(measured.high):.4f}"
        )
        answers = "".join(f"{words[holds(mu, measured)]:7}" for mu in ASKED)
        print(f"{name:16} {bounds:21} {answers}")
    for mu in ASKED:
        print(f"ICEA lies above {mu}-GDP at ε = {crossing(REFINED['ICEA'], mu)}")


def batches(count: int) -> None:
    """Print the ε of `count` Laplace releases at ε = 0.1, composed in every way."""
    one, delta = Fraction(1, 10), Fraction(1, 10**5)
    parts = compose_mu([bound_laplace_mu(one)] * count)
    batch = measure(Batch.from_profiles([(LaplaceProfile(one), count)], points=100), MARGIN / 2).high
    print(f"\n{count} Laplace releases at ε = {float(one)}, at δ = {float(delta):g}")
    print(f"ε added                          {float(count * one):.3f}")
    print(f"advanced composition             {float(advanced([Guarantee(one)] * count, delta).epsilon):.3f}")
    print(f"each measured, μ = {float(parts):.3f}         {float(convert_to_epsilon(parts, delta)):.3f}")
    print(f"measured as one, μ = {float(batch):.3f}       {float(convert_to_epsilon(batch, delta)):.3f}")


def panes(axes: Sequence[Any]) -> None:
    """Draw the two panes of the figure."""
    points = [Decimal(k) / 20 for k in range(101)]
    at = [float(point) for point in points]
    left, right = axes
    colors = dict(zip(REFINED, ("tab:blue", "tab:orange", "tab:green"), strict=True))
    for name, profile in REFINED.items():
        values = [float(profile.delta(point).high) for point in points]
        for pane in (left, right):
            pane.plot(at, values, color=colors[name], label=f"{name}, refined" if name != "Laplace" else name)
        if name != "Laplace":
            naive = [float(NAIVE[name].delta(point).high) for point in points]
            left.plot(at, naive, color=colors[name], linestyle="dotted", label=f"{name}, naive")
    for mu in ASKED:
        values = [float(gaussian_delta(Decimal(mu), point).high) for point in points]
        right.plot(at, values, color="black", linestyle="dashed", linewidth=0.5 + mu / 4, label=f"{mu}-GDP")
    for pane in (left, right):
        pane.set(xlabel="ε", ylabel="δ", xlim=(0, 5), ylim=(0, 1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the numbers of the figure, and draw it if `--picture` asks for it."""
    path = picture_of(__doc__, arguments)
    refinement()
    identification()
    for count in (16, 100):
        batches(count)
    draw(path, 2, panes)


if __name__ == "__main__":
    main()
