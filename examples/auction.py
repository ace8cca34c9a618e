"""Select the best price of an auction privately, where noise on the price itself would destroy the revenue.

Run it with `python examples/auction.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
A, B and C bid 1.0 and D bids 3.1 (McSherry, Talwar 2007; retold by Hu, Zhou 2017, "Differential privacy: a survey", Example 2.1).
At 3.1 the revenue is 3.1, at 3.2 nothing is sold, and at 1.0 all four buy, for 4.0 (the texts say 3.0, and forget D). Just above the
best price most of the revenue is lost, so noise on the price costs almost everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from shared.pictures import draw, picture_of

from dpsql.privacy.mechanisms import ExponentialMechanism, LaplaceMechanism, PermuteAndFlipMechanism

BIDS = [Fraction(1), Fraction(1), Fraction(1), Fraction("3.1")]
PRICES = [Fraction(k, 10) for k in range(1, 41)]
HIGHEST = max(PRICES)
"""A bidder changes the revenue at a price by at most that price, and raises all revenues or lowers all: scores are monotone."""


def revenue(price: Fraction, bids: Sequence[Fraction]) -> Fraction:
    """Return the revenue if everybody who bid at least the price pays it."""
    return price * sum(bid >= price for bid in bids)


def selection(bids: Sequence[Fraction], epsilon: float) -> ExponentialMechanism:
    """Return the exponential mechanism over the prices."""
    scores = [revenue(price, bids) for price in PRICES]
    return ExponentialMechanism(scores=scores, epsilon=epsilon, sensitivity=HIGHEST, monotone=True)


def expected(mechanism: ExponentialMechanism | PermuteAndFlipMechanism) -> float:
    """Return the mean revenue of the selected price."""
    return float(mechanism.probabilities() @ np.array([float(score) for score in mechanism.scores]))  # type: ignore[arg-type]


def noisy_price(bids: Sequence[Fraction], epsilon: float, runs: int) -> float:
    """Return the mean revenue if the best price is published with Laplace noise instead."""
    best = max(PRICES, key=lambda price: revenue(price, bids))
    noise = LaplaceMechanism(epsilon=epsilon, sensitivity=HIGHEST)
    prices = [Fraction(max(0.0, noise.release(best))) for _ in range(runs)]
    return float(sum(revenue(price, bids) for price in prices) / runs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print revenues, and the share of them that private selections earn."""
    path = picture_of(__doc__, arguments)
    print("price    revenue of four bidders")
    for price in map(Fraction, ("1", "1.1", "3.1", "3.2")):
        print(f"{float(price):5}    {float(revenue(price, BIDS)):.1f}")
    print(
        "\nbidders  best   exponential   permute-and-flip   noise on the price   shortfall at 95%, by the theorem"
    )
    for times in (1, 25, 250):
        bids = BIDS * times
        found = selection(bids, 1)
        flip = PermuteAndFlipMechanism(scores=found.scores, epsilon=1, sensitivity=HIGHEST, monotone=True)
        best = max(float(score) for score in found.scores)  # type: ignore[arg-type]
        noisy = noisy_price(bids, 1, 300)
        print(
            f"{len(bids):7}  {best:5.0f}  {expected(found):10.1f}    {expected(flip):10.1f}         {noisy:10.1f}"
            f"         {found.shortfall(0.95):10.1f}"
        )

    def onto(axes: Sequence[Any]) -> None:
        prices = [float(price) for price in PRICES]
        axes[0].step(prices, [float(revenue(price, BIDS)) for price in PRICES], where="mid", color="black")
        axes[0].set(xlabel="price", ylabel="revenue of four bidders")
        for times, color in ((1, "tab:gray"), (10, "tab:orange"), (100, "tab:blue")):
            chances = selection(BIDS * times, 1).probabilities()
            axes[1].plot(prices, chances, color=color, label=f"{4 * times} bidders")
        axes[1].set(xlabel="price", ylabel="chance of its selection, at ε = 1")

    draw(path, 2, onto)


if __name__ == "__main__":
    main()
