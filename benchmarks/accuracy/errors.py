"""How far answers are from the truth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Group = tuple[str, ...]
Values = tuple[float | None, ...]
Answer = Mapping[Group, Values]
"""The numbers of each group; None where a system says NULL or no finite number."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one aggregate in many answers, and the share of its cells that were missing.

    `doubt` is the standard error of `rmse` as a share of it: how far it would differ in another run.
    """

    rmse: float
    median: float
    high: float
    missing: float
    doubt: float = 0.0


def errors(truth: Answer, answers: Sequence[Answer], column: int) -> Errors:
    """The root mean square error, and the median and 95th percentile of the relative errors, over groups and answers.

    A cell that is withheld, or no finite number, has the error of answering 0: it is missing, and its
    relative error is 1. Groups that nobody is in are left out, whether an answer shows them or not; cells
    whose exact value is 0 have no relative error.

    >>> found = errors({("a",): (10.0,), ("b",): (4.0,)}, [{("a",): (13.0,)}], 0)
    >>> round(found.rmse**2, 6), round(found.median, 6), found.missing
    (12.5, 0.65, 0.5)
    """
    exact = {group: values[column] for group, values in truth.items() if values[column] is not None}
    relative: list[float] = []
    squares: list[float] = []
    missing = 0
    for answer in answers:
        noisy = {group: answer[group][column] if group in answer else None for group in exact}
        missing += sum(value is None for value in noisy.values())
        distances = {group: abs((noisy[group] or 0.0) - value) for group, value in exact.items()}
        relative += [distances[group] / abs(value) for group, value in exact.items() if value]
        squares.append(statistics.fmean(distance**2 for distance in distances.values()))
    relative.sort()
    square = statistics.fmean(squares)
    spread = statistics.stdev(squares) / math.sqrt(len(squares)) if len(squares) > 1 else 0.0
    return Errors(
        rmse=math.sqrt(square),
        median=quantile(relative, 0.5),
        high=quantile(relative, 0.95),
        missing=missing / (len(answers) * len(exact)),
        doubt=spread / (2 * square) if square else 0.0,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which that share of some ordered values lies, between neighbours in proportion; NaN of none.

    >>> quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers; NaN of none."""
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
