"""How well clamps are learnt: `python -m benchmarks.clamps`.

Units have amounts by many laws, of which the largest that is allowed is 8 to 4,096 times the median. For
each choice of three constants (the power by which points weigh, the share of the loss that is spent on the
choice, and how far below the largest the grid begins) it prints how many times the error of the best clamp,
which nobody can know, a sum has: the geometric mean, what one case of ten exceeds, and the most, with the accountant
`pure` and with `zcdp`. The error is the root of the mean square of noise and of what is cut off. Sums that
even the best clamp leaves with an error of more than a third are left out. The last tables are by law and
number of units, with the error of the derived bound beside it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsql.planning import clamping

Amounts = NDArray[np.float64]
LAWS: dict[str, Callable[[np.random.Generator, int], Amounts]] = {
    "Pareto 1.2": lambda random, n: random.pareto(1.2, n) + 1,
    "Pareto 2": lambda random, n: random.pareto(2.0, n) + 1,
    "Pareto 3": lambda random, n: random.pareto(3.0, n) + 1,
    "lognormal": lambda random, n: random.lognormal(0.0, 1.0, n),
    "uniform": lambda random, n: random.uniform(0.0, 2.0, n),
    "constant": lambda _, n: np.ones(n),
    "mostly zero": lambda random, n: np.where(random.random(n) < 0.02, random.lognormal(0.0, 1.0, n), 0.0),
}
UNITS = (100, 1_000, 10_000, 100_000, 1_000_000)
HEADROOMS = (8, 128, 4096)
EPSILONS = (0.1, 1.0)
ACCOUNTANTS = ("pure", "zcdp")
DRAWS = 200


@dataclass(frozen=True, slots=True)
class Constants:
    """What is to be chosen once and for all."""

    exponent: float
    share: float
    octaves: int


CHOSEN = {
    "pure": Constants(clamping.PURE_EXPONENT, float(clamping.PURE_SHARE), clamping.OCTAVES),
    "zcdp": Constants(clamping.EXPONENT, float(clamping.SHARE), clamping.OCTAVES),
}
TRIED = {
    "exponent": (1, 1.5, 2, 2.5, 3, 4, 5),
    "share": (0.02, 0.05, 0.1, 0.15, 0.2, 0.3),
    "octaves": (8, 11, 14, 17, 20, 30),
}
"""Of each constant what is tried beside what was chosen of the others."""


@dataclass(frozen=True, slots=True)
class Case:
    """Amounts on a fine grid: the points, how many units have more, and the sum that each point leaves."""

    law: str
    units: int
    epsilon: float
    accountant: str
    points: Amounts
    above: Amounts
    sums: Amounts
    total: float

    @property
    def best(self) -> float:
        """The least error of any point, with all of the loss for the noise."""
        return float(np.min(self.errors(1.0)))

    @property
    def derived(self) -> float:
        """The error of noise for the largest amount that is allowed."""
        return float(self.errors(1.0)[-1])

    def errors(self, share: float) -> Amounts:
        """The error at each point, with a share of the loss for the noise."""
        if self.accountant == "pure":
            noise = math.sqrt(2) * self.points / (share * self.epsilon)
        else:
            noise = self.points / math.sqrt(2 * share * self.rho)
        return np.hypot(noise, self.total - self.sums)

    @property
    def rho(self) -> float:
        """What `zcdp` charges for a loss."""
        return self.epsilon * math.tanh(self.epsilon / 2)

    def rate(self, share: float) -> float:
        """The loss for each unit that has more than a point."""
        return share * self.epsilon if self.accountant == "pure" else math.sqrt(8 * share * self.rho)

    def error(self, constants: Constants, random: np.random.Generator) -> float:
        """The root mean square error where the point is chosen."""
        first = np.searchsorted(self.points, self.points[-1] / 2.0**constants.octaves)
        scores = -constants.exponent * np.log(self.points) - self.rate(constants.share) * self.above
        noisy = scores[first:] + random.gumbel(size=(DRAWS, len(scores) - first))
        errors = self.errors(1 - constants.share)[first:][np.argmax(noisy, axis=1)]
        return float(np.sqrt(np.mean(errors**2)))


def cases(random: np.random.Generator) -> Iterator[Case]:
    """All laws, numbers of units, headrooms and losses."""
    for (law, draw), units, headroom, epsilon, accountant in itertools.product(
        LAWS.items(), UNITS, HEADROOMS, EPSILONS, ACCOUNTANTS
    ):
        amounts = draw(random, units)
        positive = amounts[amounts > 0]
        most = headroom * float(np.median(positive)) if len(positive) else 1.0
        ordered = np.sort(np.minimum(amounts, most))
        points = most * 2.0 ** (-np.arange(30 * 4, -1, -1) / 4)
        upto = np.searchsorted(ordered, points, side="right")
        running = np.concatenate([[0.0], np.cumsum(ordered)])
        above = (units - upto).astype(np.float64)
        sums = running[upto] + points * above
        case = Case(law, units, epsilon, accountant, points, above, sums, float(running[-1]))
        if 3 * case.best <= case.total:
            yield case


def ratios(known: list[Case], constants: Constants, random: np.random.Generator) -> Amounts:
    """The errors over those of the best points."""
    return np.array([case.error(constants, random) / case.best for case in known])


def summary(found: Amounts) -> str:
    """The geometric mean, what one of ten exceeds, and the most."""
    mean, high, most = (
        math.exp(float(np.mean(np.log(found)))),
        float(np.quantile(found, 0.9)),
        float(np.max(found)),
    )
    return f"{mean:>8.2f} {high:>8.2f} {most:>8.1f}"


def main() -> None:
    """Print the tables."""
    random = np.random.default_rng()
    known = {name: [case for case in cases(random) if case.accountant == name] for name in ACCOUNTANTS}
    print(f"{'':>16} {'pure':>26} {'zcdp':>26}")
    print(f"{'':>16}" + f" {'mean':>8} {'90%':>8} {'most':>8}" * 2)
    for name, values in TRIED.items():
        for value in values:
            found = [
                summary(ratios(some, replace(CHOSEN[accountant], **{name: value}), random))
                for accountant, some in known.items()
            ]
            print(f"{name:>10} {value:>5} {' '.join(found)}")
    for accountant in ACCOUNTANTS:
        print(f"\n{accountant:<14} {'units':>10} {'mean':>8} {'90%':>8} {'most':>8} {'derived':>9}")
        for law, units in itertools.product(LAWS, UNITS):
            some = [case for case in known[accountant] if (case.law, case.units) == (law, units)]
            if some:
                derived = math.exp(float(np.mean([math.log(case.derived / case.best) for case in some])))
                found = summary(ratios(some, CHOSEN[accountant], random))
                print(f"{law:<14} {units:>10,} {found} {derived:>9.1f}")


if __name__ == "__main__":
    main()
