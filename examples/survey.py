"""Show plausible deniability: in this survey a single "yes" means little, and all answers together give an estimate.

Run it with `python examples/survey.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
Each person flips a coin. After tails they tell the truth; after heads a second coin decides between yes and no. Warner described this
protocol in 1965. Claim 3.5 of Dwork, Roth 2014 says that it is (ln 3)-differentially private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from shared.pictures import draw, picture_of

from dpsql.privacy.local import Choice, estimate, randomize
from dpsql.privacy.mechanisms import RandomizedResponse

SMOKERS, PEOPLE = 0.22, 2_000
COINS = RandomizedResponse.fair_coins()


def believed(prior: float, epsilon: float) -> tuple[float, float]:
    """Return the belief about one person after a no and after a yes, by Bayes' rule from the `prior`."""
    odds = prior / (1 - prior)
    return tuple(odds * step / (1 + odds * step) for step in (math.exp(-epsilon), math.exp(epsilon)))  # type: ignore[return-value]


def coin_survey(people: int) -> tuple[float, float]:
    """Return the share of yes among the answers, and the estimated share of smokers."""
    smokers = round(SMOKERS * people)
    yes = int(COINS.sample(smokers, truth=1).sum() + COINS.sample(people - smokers, truth=0).sum())
    return yes / people, (yes / people - COINS.q) / (COINS.p - COINS.q)


def device_survey(people: int, epsilon: float) -> tuple[float, float, float]:
    """Return the estimate of `dpsql.privacy.local` and its 95% interval."""
    question = Choice(values=("no", "yes"), epsilon=epsilon)
    answers = [randomize("yes" if person < SMOKERS * people else "no", question) for person in range(people)]
    return estimate(answers)["yes"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what one answer reveals about a person, and what all answers reveal about the population."""
    path = picture_of(__doc__, arguments)
    print(f"a smoker says yes with probability     {COINS.p}")
    print(f"a non-smoker says yes with probability {COINS.q}")
    print(f"so ε = ln({COINS.p / COINS.q:.0f}) = {float(COINS.loss):.4f}")
    no, yes = believed(SMOKERS, float(COINS.loss))
    print(
        f"\nbelief that a person smokes: {SMOKERS:.0%} before the answer, {no:.0%} after a no, {yes:.0%} after a yes"
    )
    share, found = coin_survey(PEOPLE)
    print(
        f"\nof {PEOPLE:,} answers {share:.1%} are yes; without the noise, {found:.1%} smoke (the truth is {SMOKERS:.0%})"
    )
    print("\nε      estimated smokers, from as many answers")
    for epsilon in (0.5, 1.0, 2.0):
        middle, low, high = device_survey(PEOPLE, epsilon)
        print(f"{epsilon:<5}  {middle:6.1%}   between {low:.1%} and {high:.1%}")

    def onto(axes: Sequence[Any]) -> None:
        priors = np.linspace(0.01, 0.99, 99)
        for epsilon, color in ((math.log(3), "tab:blue"), (0.25, "tab:orange")):
            axes[0].fill_between(
                priors,
                [believed(prior, epsilon)[0] for prior in priors],
                [believed(prior, epsilon)[1] for prior in priors],
                color=color,
                alpha=0.4,
                label=f"ε = {epsilon:.2f}",
            )
        axes[0].set(xlabel="belief before an answer", ylabel="belief after a no (below) and a yes (above)")
        sizes = [100, 300, 1_000, 3_000, 10_000]
        for _ in range(8):
            axes[1].plot(sizes, [coin_survey(size)[1] for size in sizes], color="tab:gray", marker=".")
        axes[1].axhline(SMOKERS, color="tab:red", label="the truth")
        axes[1].set(xlabel="answers", ylabel="estimated share of smokers", xscale="log")

    draw(path, 2, onto)


if __name__ == "__main__":
    main()
