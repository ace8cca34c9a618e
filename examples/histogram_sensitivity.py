"""Show that the sensitivity of a histogram is 1 or 2, depending on the definition of neighbors.

Run it with `python examples/histogram_sensitivity.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
Adding or removing a person changes one bar by one. Replacing a person may lower one bar and raise another: then the l1 sensitivity
is 2, and noise for 1 is not private enough (Dwork, Roth 2014, Example 3.2 and section 2.3).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
from shared.pictures import draw, picture_of

import dpsql
from dpsql.privacy.mechanisms import GeometricMechanism

PLANS = ("A", "B", "C")
PEOPLE = ("A", "A", "A", "A", "B", "B", "C")


def bars(people: Sequence[str]) -> np.ndarray:
    """Count the people of each plan."""
    counts = Counter(people)
    return np.array([counts[plan] for plan in PLANS])


def neighbours(people: Sequence[str], replace: bool) -> Iterator[Sequence[str]]:
    """Yield all databases that differ in one person."""
    for place in range(len(people)):
        rest = (*people[:place], *people[place + 1 :])
        if replace:
            yield from ((*rest, plan) for plan in PLANS)
        else:
            yield rest
    if not replace:
        yield from ((*people, plan) for plan in PLANS)


def sensitivity(replace: bool) -> int:
    """Return the largest l1 change of the bars over all databases of up to four people and all their neighbors."""
    return max(
        int(np.abs(bars(here) - bars(there)).sum())
        for size in range(1, 5)
        for here in itertools.product(PLANS, repeat=size)
        for there in neighbours(here, replace)
    )


def loss(noise: GeometricMechanism, here: np.ndarray, there: np.ndarray) -> float:
    """Return the largest log ratio of the probabilities of an outcome."""
    scale = float(noise.law.scale)
    # At an outcome beyond both, on the side of `here`.
    return float(np.abs(here - there).sum()) / scale


def scale_of(neighbors: str, epsilon: float) -> str:
    """Return the line of EXPLAIN with the noise that dpsql plans for the histogram."""
    people = pyarrow.table({"plan": list(PEOPLE)})
    columns = {"plan": {"type": "varchar", "values": list(PLANS), "nullable": False}}
    policy: dict[str, Any] = {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": neighbors,
        "budget": {"epsilon": 1},
        "tables": {"people": {"unit": "row", "columns": columns}},
    }
    with dpsql.connect({"people": people}, policy=policy, ledger=":memory:") as con:
        plan = str(con.explain("SELECT plan, COUNT(*) AS n FROM people GROUP BY plan", epsilon=epsilon))
    return next(line.strip() for line in plan.splitlines() if "geometric" in line)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both sensitivities, the loss of noise for the smaller one, and the noise that dpsql plans."""
    path = picture_of(__doc__, arguments)
    print("plan  people")
    for plan, count in zip(PLANS, bars(PEOPLE), strict=True):
        print(f"{plan:4}  {count}")
    moved = ("C", *PEOPLE[1:])
    print(
        f"\na person less:     {bars(PEOPLE[1:])}, so the bars move by {np.abs(bars(PEOPLE) - bars(PEOPLE[1:])).sum()}"
    )
    print(f"a person replaced: {bars(moved)}, so the bars move by {np.abs(bars(PEOPLE) - bars(moved)).sum()}")
    print(f"\nsensitivity, add_remove: {sensitivity(replace=False)}, replace: {sensitivity(replace=True)}")
    for wanted in (1, 2):
        noise = GeometricMechanism(epsilon=1, sensitivity=wanted, dimensions=3)
        print(
            f"noise for {wanted} at ε = 1: a replaced person loses ε = {loss(noise, bars(PEOPLE), bars(moved)):g}, "
            f"bars are off by {noise.interval(0.95)[1]:g} at most in 95% of releases"
        )
    for neighbors in ("add_remove", "replace"):
        print(f"\nexplain, neighbors: {neighbors}\n  {scale_of(neighbors, 1)}")

    def onto(axes: Sequence[Any]) -> None:
        for pane, other, title in (
            (axes[0], PEOPLE[1:], "a person less"),
            (axes[1], moved, "a person replaced"),
        ):
            places = np.arange(len(PLANS))
            pane.bar(places - 0.2, bars(PEOPLE), 0.4, color="tab:gray", label="before")
            pane.bar(places + 0.2, bars(other), 0.4, color="tab:blue", label="after")
            pane.set(xticks=places, xticklabels=PLANS, ylabel="people", title=title)

    draw(path, 2, onto)


if __name__ == "__main__":
    main()
