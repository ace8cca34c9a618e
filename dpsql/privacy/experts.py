"""Learning from experts: randomized weighted majority, whose choices are differentially private for each day's losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.accountants import get_accountant
from dpsql.privacy.accounting.accountants.base import search_largest
from dpsql.privacy.accounting.events import BoundedRange, Composed
from dpsql.privacy.accounting.numerics import ln_down
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.privacy.mechanisms.sampler import clear_cache
from dpsql.privacy.mechanisms.selection import Exponential

__all__ = ["Schedule", "WeightedMajority"]

Neighbors = Literal["replace", "add_remove"]
LATTICE = 1 << 20
"""Losses between 0 and 1 are rounded to multiples of its inverse."""
MOST_ROUNDS = 10**7
_GRID = 1 << 24
_BITS = 100


@dataclass(frozen=True, slots=True)
class Schedule:
    """The parameters of `rounds` choices among experts: the learning `rate` η, and the neighboring sequences.

    Neighboring sequences differ in the losses of one round, all of them: under `replace` they are any others, as in the
    literature; under `add_remove` they are set to 0, so that all change in one direction.

    Claim: each choice has a range of at most 2η (`replace`) or η (`add_remove`), whatever was chosen before. So all together are
    ρ-zCDP with ρ = (rounds-1)·range²/8, that is (rounds-1)·η²/2 or (rounds-1)·η²/8: the first choice sees no loss.
    Why: a choice is the exponential mechanism with the summed losses as penalties and the rate η. One round's losses move each
    expert's sum by at most 1, up or down, so two experts' sums move apart by at most 2; if all go one way, by at most 1. The range
    is that of the logs of the ratios of chances. Composition holds although losses may follow the choices.
    Source: Dwork, Roth 2014, section 11.2 (the algorithm and its neighbors); Cesar, Rogers 2021, section 3 (range and zCDP).

    >>> Schedule(rounds=101, rate=Fraction(1, 10)).rho, Schedule(rounds=101, rate=Fraction(1, 10), neighbors="add_remove").rho
    (Fraction(1, 2), Fraction(1, 8))
    """

    rounds: int
    rate: Fraction
    neighbors: Neighbors = "replace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", parse_amount(self.rate, "rate"))
        _require_rounds(self.rounds)
        if self.neighbors not in ("replace", "add_remove"):
            raise LossError(f"neighbors must be replace or add_remove, not {self.neighbors!r}")

    @classmethod
    def published(cls, rounds: int, epsilon: Amount, delta: Amount) -> Schedule:
        """Return the rate ε/√(32·T·ln(1/δ)), T being `rounds`, for replaced losses.

        Claim: (ε, δ)-DP, for ε up to about 48·ln(1/δ); LossError where that is not shown. The theorem is printed without a condition
        on ε, and fails beyond 64·ln(1/δ), where the mean privacy loss of many rounds is larger than ε.
        Why: ρ is at most ε²/(64·ln(1/δ)), which implies ρ + 2·√(ρ·ln(1/δ)) = ε²/(64·ln(1/δ)) + ε/4.
        Source: Dwork, Roth 2014, Theorem 11.2, by advanced composition; the condition is derived here.

        >>> round(float(Schedule.published(rounds=1000, epsilon=1, delta=1e-6).rate), 6)
        0.001504
        """
        asked, slack = parse_amount(epsilon), parse_amount(delta, "delta")
        limit = _compute_rho_limit(asked, slack)
        _require_rounds(rounds)
        found = cls(rounds, _bound_root_below(asked * asked / (32 * rounds * -ln_down(slack))))
        if found.rho > limit:
            raise LossError(
                "the published rate is not proved for an epsilon this large",
                hint="use Schedule.concentrated, which is proved for it",
            )
        return found

    @classmethod
    def concentrated(
        cls, rounds: int, epsilon: Amount, delta: Amount, neighbors: Neighbors = "replace"
    ) -> Schedule:
        """Return the largest rate, on a fine grid, whose ρ implies (ε, δ)-DP: between four and five times the published one for usual losses.

        Source: Bun, Steinke 2016, with the conversion of Canonne, Kamath, Steinke 2020, Proposition 12.

        >>> round(float(Schedule.concentrated(rounds=1000, epsilon=1, delta=1e-6).rate), 6)
        0.006983
        """
        asked, slack = parse_amount(epsilon), parse_amount(delta, "delta")
        _require_rounds(rounds)
        limit = _compute_rho_limit(asked, slack)

        def fits_limit(units: int) -> bool:
            return cls(rounds, Fraction(units, _GRID), neighbors).rho <= limit

        if not fits_limit(1):
            raise LossError("the loss is too small for this number of rounds")
        return cls(rounds, Fraction(search_largest(fits_limit, _GRID // 100), _GRID), neighbors)

    @property
    def range(self) -> Fraction:
        """Return the range of a choice after the first."""
        return self.rate * (2 if self.neighbors == "replace" else 1)

    @property
    def rho(self) -> Fraction:
        """Return the zCDP loss of all choices together."""
        return (self.rounds - 1) * self.range**2 / 8

    def event(self) -> Composed | None:
        """Return the event that an accountant charges; None for a single round, whose choice uses no data."""
        return Composed((BoundedRange(self.range),) * (self.rounds - 1)) if self.rounds > 1 else None


@dataclass(slots=True)
class WeightedMajority:
    """The choice of one of `experts` each round, with probability proportional to e^(-η·its losses so far).

    Call `choose()` and `observe(losses)` in turns, at most `schedule.rounds` times (more raise LossError): one loss in [0, 1] for
    each expert, to which other values are clamped. Only the choices may be published: losses, `regret` and `chances` are private.

    Claim: the choices are as private as the schedule says, and for any losses the expected regret to the best expert is at most
    η + ln(k)/(η·T) a round, 2·√(ln(k)/T) for η = √(ln(k)/T). (In some slides the second term is printed as ln(k)/(n·T).)
    Why: losses are rounded to a lattice of 2**-20, which moves none by more than their bounds allow, and choices are drawn by the
    exact exponential mechanism.
    Source: Littlestone, Warmuth 1994, "The weighted majority algorithm"; Dwork, Roth 2014, Theorems 11.1 and 11.2.

    >>> learner = WeightedMajority(experts=2, schedule=Schedule(rounds=100, rate=Fraction(1)))
    >>> for _ in range(100):
    ...     choice = learner.choose()
    ...     learner.observe([0, 1])
    >>> learner.regret < 0.1
    True
    """

    experts: int
    schedule: Schedule
    entropy: Entropy = field(default_factory=SystemEntropy, repr=False)
    choices: list[int] = field(default_factory=list, init=False)
    """The experts that were chosen, in order."""
    _sums: list[int] = field(init=False, repr=False)
    _suffered: int = field(default=0, init=False, repr=False)
    _observed: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.experts) is not int or not 1 <= self.experts <= 10_000:
            raise LossError(f"the number of experts must be 1 to 10,000, not {self.experts!r}")
        self._sums = [0] * self.experts

    def choose(self) -> int:
        """Return the expert of this round, by its number from 0.

        Raises:
            LossError: If the losses of the previous round were not observed, and if the schedule has no rounds left.
        """
        if len(self.choices) > self._observed:
            raise LossError(
                "the expert of this round was already chosen; a second choice would be a second release"
            )
        if len(self.choices) >= self.schedule.rounds:
            raise LossError(
                "the schedule has no rounds left", hint="plan all rounds in the schedule before the first one"
            )
        law = Exponential(self.schedule.rate / LATTICE)
        found = law.select_candidate([1] * self.experts, self._sums, self.entropy)
        clear_cache()  # of what was computed from losses
        self.choices.append(found)
        return found

    def observe(self, losses: Sequence[Any] | NDArray[Any]) -> None:
        """Add the losses of the round.

        Args:
            losses: One loss for each expert, in [0, 1]. A value that is not a number counts as 1, so that no value ends a run.

        Raises:
            LossError: If the expert of the round was not chosen yet.
            DataError: For another number of losses.
        """
        if len(self.choices) == self._observed:
            raise LossError("choose an expert before you report the losses of the round")
        if len(losses) != self.experts:
            raise DataError(
                f"a round needs one loss for each of the {self.experts} experts, not {len(losses)}"
            )
        steps = [_to_lattice_steps(loss) for loss in losses]
        self._sums = [before + step for before, step in zip(self._sums, steps, strict=True)]
        self._suffered += steps[self.choices[-1]]
        self._observed += 1

    @property
    def chances(self) -> Floats:
        """Return the chances of the next choice. Not private."""
        sums = np.array([total - min(self._sums) for total in self._sums], np.float64) / LATTICE
        weights: Floats = np.exp(-float(self.schedule.rate) * sums)
        found: Floats = weights / weights.sum()
        return found

    @property
    def regret(self) -> float:
        """Return the mean loss of a round minus that of the best expert so far. Not private."""
        return (self._suffered - min(self._sums)) / LATTICE / max(1, self._observed)


def bound_regret(rate: float, rounds: int, experts: int) -> float:
    """Return η + ln(k)/(η·T): no losses have a larger expected regret per round.

    >>> best = math.sqrt(math.log(10) / 1000)
    >>> round(bound_regret(best, 1000, 10), 6) == round(2 * best, 6)
    True
    """
    return rate + math.log(experts) / (rate * rounds)


def _compute_rho_limit(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest ρ that implies (ε, δ)-DP, rounded down."""
    if delta >= 1:
        raise LossError("delta must be below 1")
    return get_accountant("zcdp").compute_limit(epsilon, delta, Fraction(0)).loss_fraction


def _require_rounds(rounds: int) -> None:
    if type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS:
        raise LossError(f"a schedule must have 1 to {MOST_ROUNDS:,} rounds, not {rounds!r}")


def _bound_root_below(square: Fraction) -> Fraction:
    """Return a rational barely below the square root."""
    return Fraction(math.isqrt(math.floor(square * (1 << 2 * _BITS))), 1 << _BITS)


def _to_lattice_steps(loss: Any) -> int:
    """Return a loss, clamped to [0, 1], in steps of the lattice; exact rounding would gain nothing."""
    try:
        value = float(loss)
    except (TypeError, ValueError, OverflowError):
        return LATTICE
    return LATTICE if math.isnan(value) else round(min(max(value, 0.0), 1.0) * LATTICE)
