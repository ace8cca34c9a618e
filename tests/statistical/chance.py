"""How far the outcomes of a sound engine may stray from their rate, for as rare an alarm as one asks."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import rel_entr

FALSE_ALARM = 1e-9


def least_share(runs: int, rate: float) -> float:
    """The share of hits that so many independent runs fall below with probability of at most `FALSE_ALARM`.

    `rate` is the least chance of a hit, below 1. A run may count as a part of a hit: by Hoeffding (1963, theorem 1)
    P(share <= q) <= exp(-runs KL(q, rate)) holds for the mean of any independent variables in [0, 1].
    The share is 0 where the runs are too few to tell.
    """
    wanted = -math.log(FALSE_ALARM) / runs

    def excess(share: float) -> float:
        return float(rel_entr(share, rate) + rel_entr(1 - share, 1 - rate)) - wanted

    return float(brentq(excess, 0, rate)) if excess(0) > 0 else 0.0


def largest_share(runs: int, rate: float) -> float:
    """The share of hits that is exceeded as seldom, `rate` being the largest chance of a hit."""
    return 1 - least_share(runs, 1 - rate)
