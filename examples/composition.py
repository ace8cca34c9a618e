"""Show how ε composes: the total for one repeated question by each theorem, and the success of an attacker.

Run it with `python examples/composition.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from shared.pictures import draw, picture_of

from dpsql.privacy.accounting import Pure, compare
from dpsql.privacy.accounting.composition import Guarantee, advanced, sampled, sequential
from dpsql.privacy.mechanisms import GeometricMechanism

EACH, DELTA = Fraction(1, 10), Fraction(1, 10**6)
COUNTS = (1, 10, 30, 100, 300, 1000)


def promised(count: int) -> dict[str, float]:
    """Return the ε of `count` releases of ε = 0.1, by each theorem or accountant."""
    one = Guarantee(EACH)
    accountants = {
        charge.accountant: charge.epsilon
        for charge in compare([Pure(EACH)] * count, DELTA)
        if charge.epsilon is not None
    }
    return {
        "sequential": float(sequential([one] * count).epsilon),
        "advanced": float(advanced([one] * count, DELTA).epsilon),
        "zcdp": float(accountants["zcdp"]),
        "a tenth sampled": float(sequential([sampled(one, Fraction(1, 10))] * count).epsilon),
    }


def attack(count: int, runs: int) -> float:
    """Return how often the mean of `count` noisy counts reveals whether one person is among 100."""
    noise = GeometricMechanism(epsilon=EACH)
    truths = np.arange(runs) % 2
    means = noise.sample(runs * count).reshape(runs, count).mean(axis=1) + truths
    return float(((means > 0.5) == truths).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the guarantees, and the success of an attacker, for up to a thousand releases."""
    path = picture_of(__doc__, arguments)
    print(f"ε of releases of {float(EACH)} each, at δ = {float(DELTA):g} if the theorem has a δ")
    names = tuple(promised(1))
    print("releases  " + "".join(f"{name:>17}" for name in names) + "    attacker is right")
    for count in COUNTS:
        found = promised(count)
        print(
            f"{count:8}  " + "".join(f"{found[name]:17.2f}" for name in names) + f"{attack(count, 300):17.0%}"
        )

    def onto(axes: Sequence[Any]) -> None:
        for name in names:
            axes[0].plot(COUNTS, [promised(count)[name] for count in COUNTS], marker=".", label=name)
        axes[0].set(xlabel="releases", ylabel=f"ε at δ = {float(DELTA):g}", xscale="log", yscale="log")
        axes[1].plot(COUNTS, [attack(count, 300) for count in COUNTS], marker=".", color="tab:red")
        axes[1].set(
            xlabel="noisy counts that are averaged",
            ylabel="attacker is right",
            xscale="log",
            ylim=(0.4, 1.02),
        )

    draw(path, 2, onto)


if __name__ == "__main__":
    main()
