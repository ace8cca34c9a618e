"""How well clamps are learnt: `python -m benchmarks.clamps`.

Units have amounts by many laws, of which the largest that is allowed is 1.25 to 4,096 times the median, spread over 1, 7,
30 or 100 groups. For each choice of four constants (the power by which points weigh and the share of the loss that is
spent on the choice, both as factors of what the rule has for a number of groups, the tolerated error of units beyond the
clamp in noise, and the evidence that a lower clamp needs) it prints

- the share of groups whose 95% interval holds the true sum;
- the share that is off by more than three half-widths;
- the median error over that of the best clamp, which nobody can know: the geometric mean over cases;
- the median half-width over the same.

The first line of an accountant is of the chosen constants, and the last of the rule before 0.3.0. Sums that even the
best clamp leaves with an error of more than a third are in the first two columns only. The last tables are by law.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsql.planning.clamping import OCTAVES, RULE, get_tier

Amounts = NDArray[np.float64]
LAWS: dict[str, Callable[[np.random.Generator, int], Amounts]] = {
    "Pareto 1.2": lambda random, n: random.pareto(1.2, n) + 1,
    "Pareto 1.5": lambda random, n: random.pareto(1.5, n) + 1,
    "Pareto 2": lambda random, n: random.pareto(2.0, n) + 1,
    "Pareto 3": lambda random, n: random.pareto(3.0, n) + 1,
    "lognormal 1": lambda random, n: random.lognormal(0.0, 1.0, n),
    "lognormal 1.5": lambda random, n: random.lognormal(0.0, 1.5, n),
    "lognormal 2": lambda random, n: random.lognormal(0.0, 2.0, n),
    "lognormal 2.5": lambda random, n: random.lognormal(0.0, 2.5, n),
    "uniform": lambda random, n: random.uniform(0.0, 2.0, n),
    "constant": lambda _, n: np.ones(n),
    "mostly zero": lambda random, n: np.where(random.random(n) < 0.02, random.lognormal(0.0, 1.0, n), 0.0),
    "one whale": lambda random, n: np.append(random.lognormal(0.0, 0.5, n - 1), 1000.0),
}
UNITS = (30, 300, 1_000, 3_000, 100_000)
HEADROOMS = (1.25, 3, 8, 128, 4096)
GROUPS = (1, 7, 30, 100)
EPSILONS = (0.1, 0.2, 1.0, 4.0)
ACCOUNTANTS = ("pure", "zcdp")
DRAWS = 100
_COLUMNS = f"{'held %':>8} {'far %':>8} {'error':>8} {'width':>8}"
_GAUSSIAN, _LAPLACE = 1.959964, math.log(20) / math.sqrt(2)
"""Half-widths of 95% intervals, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What is to be chosen once and for all; without `slack`, a clamp is lowered without evidence, and nothing allowed for.

    `exponent` and `share` are factors of those that the rule has for a number of groups.
    """

    accountant: str
    exponent: float
    share: float
    tolerance: float
    slack: float | None

    @classmethod
    def of(cls, accountant: str) -> Constants:
        """The constants of the rule."""
        return cls(accountant, 1, 1, float(RULE.tolerance), RULE.slack)

    def exponent_of(self, groups: int) -> float:
        """The exponent where so many groups are released."""
        return self.exponent * get_tier(groups).exponent

    def share_of(self, groups: int) -> float:
        """The share of the loss that is spent on the choice where so many groups are released."""
        found = get_tier(groups)
        return self.share * float(found.pure_share if self.accountant == "pure" else found.share)


TRIED: dict[str, Sequence[float | None]] = {
    "exponent": (0.5, 1.5, 2),
    "share": (0.5, 0.7, 1.5, 2),
    "tolerance": (0.0, 0.1, 0.4, 0.8),
    "slack": (None, 3, 6, 9, 12, 18),
}
"""Of each constant what is tried beside what was chosen of the others."""


@dataclass(frozen=True, slots=True)
class Case:
    """Amounts on the grid: the points, how many units have more, and the sum of a group that each point leaves."""

    law: str
    groups: int
    epsilon: float
    accountant: str
    points: Amounts
    above: Amounts
    sums: Amounts
    total: float

    def std(self, share: float) -> Amounts:
        """The standard deviation of the noise at each point, with a share of the loss for the noise."""
        if self.accountant == "pure":
            return self.points * math.sqrt(2) / (share * self.epsilon)
        return self.points / math.sqrt(2 * share * self.rho)

    @property
    def rho(self) -> float:
        """What `zcdp` charges for a loss."""
        return self.epsilon * math.tanh(self.epsilon / 2)

    @property
    def best(self) -> float:
        """The least error of any point, with all of the loss for the noise."""
        return float(np.min(np.hypot(self.std(1.0), self.total - self.sums)))

    def rate(self, share: float) -> float:
        """The loss for each unit that has more than a point."""
        return share * self.epsilon if self.accountant == "pure" else math.sqrt(8 * share * self.rho)

    def chosen(self, constants: Constants, random: np.random.Generator) -> NDArray[np.intp]:
        """The points that are chosen, draw by draw."""
        share, exponent = constants.share_of(self.groups), constants.exponent_of(self.groups)
        rate = self.rate(share)
        spread = float((self.std(1 - share) / self.points)[0])
        tolerated = math.floor(constants.tolerance * self.groups * spread)
        penalties = np.maximum(self.above[1:] - tolerated, 0)
        if constants.slack is not None:
            odds = exponent * math.log(self.points[-1] / self.points[0]) + constants.slack
            penalties[-1] -= max(tolerated + odds / rate - self.above[0], 0)
        scores = -exponent * np.log(self.points) - rate * penalties
        return np.argmax(scores + random.gumbel(size=(DRAWS, len(scores))), axis=1)

    def allowance(self, constants: Constants, places: NDArray[np.intp]) -> Amounts:
        """What the interval allows for beyond each of the chosen points."""
        if constants.slack is None:
            return np.zeros(len(places))
        points = self.points[places]
        units = math.log(20) / self.rate(constants.share_of(self.groups))
        return units * np.minimum(points, self.points[-1] - points) / self.groups

    def outcome(self, constants: Constants, random: np.random.Generator) -> tuple[float, float, float, float]:
        """The shares of intervals that hold the truth and that are far off; error and half-width over the best error."""
        places = self.chosen(constants, random)
        std = self.std(1 - constants.share_of(self.groups))[places]
        half = std * (_LAPLACE if self.accountant == "pure" else _GAUSSIAN)
        noise = (
            random.normal(size=DRAWS)
            if self.accountant == "zcdp"
            else random.laplace(size=DRAWS) / math.sqrt(2)
        )
        lacking = self.total - self.sums[places] - noise * std
        above = self.allowance(constants, places)
        return (
            float(np.mean((-half <= lacking) & (lacking <= half + above))),
            float(np.mean(np.abs(lacking) > 3 * (half + above / 2))),
            float(np.median(np.abs(lacking))) / self.best,
            float(np.median(half + above / 2)) / self.best,
        )


def cases(random: np.random.Generator) -> Iterator[Case]:
    """All laws, numbers of units and groups, headrooms and losses. Each group has an equal part of each sum."""
    for (law, draw), units, headroom in itertools.product(LAWS.items(), UNITS, HEADROOMS):
        amounts = draw(random, units)
        positive = amounts[amounts > 0]
        most = headroom * float(np.median(positive)) if len(positive) else 1.0
        ordered = np.sort(np.minimum(amounts, most))
        points = most * 2.0 ** (-np.arange(OCTAVES * 4, -1, -1) / 4)
        upto = np.searchsorted(ordered, points, side="right")
        running = np.concatenate([[0.0], np.cumsum(ordered)])
        above = (units - upto).astype(np.float64)
        sums = running[upto] + points * above
        beyond = np.concatenate([[len(positive)], above])
        for groups, epsilon, accountant in itertools.product(GROUPS, EPSILONS, ACCOUNTANTS):
            parts = sums / groups, float(running[-1]) / groups
            yield Case(law, groups, epsilon, accountant, points, beyond, *parts)


def summary(known: Sequence[Case], constants: Constants, random: np.random.Generator) -> str:
    """The four columns."""
    found = [case.outcome(constants, random) for case in known]
    held, far = (100 * float(np.mean([each[at] for each in found])) for at in (0, 1))
    able = [each[2:] for each, case in zip(found, known, strict=True) if 3 * case.best <= case.total]
    error, width = np.exp(np.mean(np.log(able), axis=0)) if able else (math.nan, math.nan)
    return f"{held:>8.1f} {far:>8.2f} {error:>8.2f} {width:>8.2f}"


def main() -> None:
    """Prints the tables."""
    random = np.random.default_rng()
    known = list(cases(random))
    for accountant in ACCOUNTANTS:
        some = [case for case in known if case.accountant == accountant]
        chosen = Constants.of(accountant)
        print(f"\n{accountant:<20} {_COLUMNS}")
        print(f"{'chosen':<20} {summary(some, chosen, random)}")
        for name, values in TRIED.items():
            for value in values:
                print(f"{name:<13} {value!s:>6} {summary(some, replace(chosen, **{name: value}), random)}")
        print(f"\n{accountant:<13} {'groups':>6} {_COLUMNS}")
        for law, groups in itertools.product(LAWS, GROUPS):
            part = [case for case in some if (case.law, case.groups) == (law, groups)]
            print(f"{law:<13} {groups:>6} {summary(part, chosen, random)}")


if __name__ == "__main__":
    main()
