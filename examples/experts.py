"""Learn from experts privately, with randomized weighted majority, and compare its regret with that without privacy.

Run it with `python examples/experts.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
Each day the learner follows one of ten experts, then sees all ten losses. The choices do not reveal the losses of any day (Dwork, Roth
2014, section 11.2). The non-private learner uses the rate √(ln k/T), which is best for the bound 2·√(ln k/T).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from shared.pictures import draw, picture_of

from dpsql.privacy.experts import Schedule, WeightedMajority, bound_regret

EXPERTS, DELTA = 10, 1e-6


def losses(rounds: int) -> np.ndarray:
    """Return losses of 0 and 1: the first expert is wrong on 30% of the days, the last on 60%."""
    generator = np.random.default_rng(2026)
    return (generator.random((rounds, EXPERTS)) < np.linspace(0.3, 0.6, EXPERTS)).astype(np.float64)


def run(schedule: Schedule, given: np.ndarray) -> list[float]:
    """Return the regret per day after each day."""
    learner, found = WeightedMajority(experts=EXPERTS, schedule=schedule), []
    for day in given:
        learner.choose()
        learner.observe(day)
        found.append(learner.regret)
    return found


def schedules(rounds: int) -> dict[str, Schedule]:
    """Return the schedules to compare, by name."""
    free = Schedule(rounds, Fraction(math.sqrt(math.log(EXPERTS) / rounds)).limit_denominator(10**9))
    found = {"not private": free}
    for epsilon in (1, 8):
        found[f"ε = {epsilon}, published rate"] = Schedule.published(rounds, epsilon, DELTA)
        found[f"ε = {epsilon}, by zCDP"] = Schedule.concentrated(rounds, epsilon, DELTA)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print rates, bounds and regrets for 200 and 800 days."""
    path = picture_of(__doc__, arguments)
    for rounds in (200, 800):
        given = losses(rounds)
        best = 2 * math.sqrt(math.log(EXPERTS) / rounds)
        print(
            f"{rounds:,} days, {EXPERTS} experts, at δ = {DELTA:g}; without privacy the regret is at most {best:.3f}"
        )
        print("learner                      rate   bound   regret")
        for name, schedule in schedules(rounds).items():
            bound = min(1.0, bound_regret(float(schedule.rate), rounds, EXPERTS))
            print(f"{name:24} {float(schedule.rate):8.4f}  {bound:6.3f}  {run(schedule, given)[-1]:7.3f}")
        print()

    def onto(axes: Sequence[Any]) -> None:
        rounds = 800
        given = losses(rounds)
        days = np.arange(1, rounds + 1)
        for name, schedule in schedules(rounds).items():
            axes[0].plot(days, run(schedule, given), label=name)
        axes[0].plot(
            days, 2 * np.sqrt(math.log(EXPERTS) / days), color="black", linestyle="dotted", label="2√(ln k/t)"
        )
        axes[0].set(xlabel="days", ylabel="regret a day", ylim=(0, 0.5))

    draw(path, 1, onto)


if __name__ == "__main__":
    main()
