"""Randomized response and optimized unary encoding: each person randomizes their own answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.accounting.numerics import ln_up
from dpsql.privacy.accounting.profiles import Profile, ResponseProfile, UnaryProfile
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.privacy.mechanisms.library.base import set_frozen_fields
from dpsql.privacy.mechanisms.sampler import sample_below, sample_lies

MOST_CHOICES = 1 << 16
_LEAST = Fraction(1, 10**6)
"""The least epsilon: below it p and q are practically equal in floats."""


class LocalMechanism(ABC):
    """A randomized answer to a question with `choices` answers, which are numbered from 0.

    An answer supports some choices. It supports the true one with probability `p`, and any other one with probability `q` < p; so a count
    c of the answers that support a choice, of n, estimates its frequency as (c/n - q)/(p - q), without bias.

    The error is that estimate from a single answer less the truth.
    """

    __slots__ = ()

    name: ClassVar[str]
    choices: int

    @property
    @abstractmethod
    def p(self) -> float:
        """Return the probability that an answer supports the truth."""

    @property
    @abstractmethod
    def q(self) -> float:
        """Return the probability that an answer supports a given choice that is not the truth."""

    @property
    @abstractmethod
    def loss(self) -> Fraction:
        """ε, exactly or rounded up."""

    @abstractmethod
    def sample(self, size: int = 1, *, truth: int = 0, entropy: Entropy | None = None) -> NDArray[Any]:
        """Return `size` independent answers of a person whose true choice this is."""

    @abstractmethod
    def supports(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which choices each answer supports: shape `(answers, choices)`."""

    @abstractmethod
    def profile(self) -> Profile:
        """Return the least δ at each ε."""

    def event(self) -> Pure:
        """Return `Pure(ε)`."""
        return Pure(self.loss)

    def release(self, truth: int, *, entropy: Entropy | None = None) -> Any:
        """Return the answer of one person with that truth. A second answer to the same question is a second release."""
        return self.sample(1, truth=truth, entropy=entropy)[0].tolist()

    @property
    def variance(self) -> float:
        """Return the variance of a rare choice's frequency as estimated from one answer; that of n answers is an nth of it.

        Source: Wang, Blocki, Li, Jha 2017, equation (4) for any p and q.
        """
        return self.q * (1 - self.q) / (self.p - self.q) ** 2

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval that holds the estimate for a choice that is not the truth with that probability, from one answer.

        An answer supports it or not, so the ends are the estimates of both, or one where that suffices. DataError unless
        0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise DataError(f"the confidence must lie between 0 and 1, not {confidence}")
        low, high = -self.q / (self.p - self.q), (1 - self.q) / (self.p - self.q)
        return (
            (low, low) if 1 - self.q >= confidence else (high, high) if self.q >= confidence else (low, high)
        )

    def _check_choices(self) -> None:
        if type(self.choices) is not int or not 2 <= self.choices <= MOST_CHOICES:
            raise LossError(f"a question must have 2 to {MOST_CHOICES:,} choices, not {self.choices!r}")
        if self.loss < _LEAST:
            raise LossError(f"the epsilon of an answer must be at least {float(_LEAST):g}")

    def _check_truth(self, truth: int) -> None:
        if not 0 <= truth < self.choices:
            raise DataError(f"a choice must be a number from 0 to {self.choices - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedResponse(LocalMechanism):
    """The truth with probability e^ε/(e^ε + choices - 1), and each other choice with probability 1/(e^ε + choices - 1).

    `odds`, where given, is e^ε itself, for coins: `fair_coins()` and `of_truth(alpha)` make such ones. One of `epsilon` and
    `odds` is given.

    Claim: ε-DP for each answer, whoever collects them; the profile is exact, and with two choices the largest of all ε-DP
    releases.
    Why: the truth is e^ε times as likely as on the neighbor, each other answer at most as likely.
    Source: Warner 1965, "Randomized response: a survey technique for eliminating evasive answer bias"; Kairouz, Bonawitz,
    Ramage 2016, "Discrete distribution estimation under local privacy".

    >>> survey = RandomizedResponse.fair_coins()
    >>> survey.p, survey.q, round(float(survey.loss), 12) == round(math.log(3), 12)
    (0.75, 0.25, True)
    """

    name: ClassVar[str] = "randomised response"

    epsilon: Amount | None = None
    choices: int = 2
    odds: Amount | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.odds is None):
            raise LossError(
                "pass either epsilon or odds to randomized response, not both or neither", hint="epsilon=1"
            )
        if self.epsilon is not None:
            set_frozen_fields(self, epsilon=parse_amount(self.epsilon))
        elif self.odds is not None:
            set_frozen_fields(self, odds=parse_amount(self.odds, "odds"))
            if parse_amount(self.odds) <= 1:
                raise LossError("the odds must be above 1, so that the truth is the most likely answer")
        self._check_choices()

    @classmethod
    def fair_coins(cls) -> RandomizedResponse:
        """Return the mechanism of two fair coins: heads, the truth; tails, what the second coin says. ε = ln 3.

        Source: Dwork, Roth 2014, Claim 3.5.
        """
        return cls.of_truth(Fraction(1, 2))

    @classmethod
    def of_truth(cls, alpha: Amount, choices: int = 2) -> RandomizedResponse:
        """Return the truth with probability `alpha`, else one of the choices, all alike: ε = ln((1 + (choices-1)·α)/(1 - α)).

        With two choices that is ln((1+α)/(1-α)) = 2·artanh(α), which is above 2α: the often quoted 2α is what it tends to for
        small α, and no bound. LossError unless 0 < alpha < 1.

        >>> round(float(RandomizedResponse.of_truth(0.5).loss), 4)
        1.0986
        """
        chance = parse_amount(alpha, "alpha")
        if chance >= 1:
            raise LossError("alpha must be below 1: an answer that is always true gives no privacy")
        return cls(odds=(1 + (choices - 1) * chance) / (1 - chance), choices=choices)

    @property
    def loss(self) -> Fraction:
        """ε, exactly or, where odds are given, their logarithm rounded up."""
        return parse_amount(self.epsilon) if self.epsilon is not None else ln_up(parse_amount(self.odds or 1))

    @property
    def p(self) -> float:
        """Return the probability of the truth."""
        if self.odds is not None:
            return float(parse_amount(self.odds) / (parse_amount(self.odds) + self.choices - 1))
        return 1 / (1 + (self.choices - 1) * math.exp(-float(self.loss)))

    @property
    def q(self) -> float:
        """Return the probability of any other choice."""
        if self.odds is not None:
            return float(1 / (parse_amount(self.odds) + self.choices - 1))
        shrunk = math.exp(-float(self.loss))
        return shrunk / (1 + (self.choices - 1) * shrunk)

    def sample(self, size: int = 1, *, truth: int = 0, entropy: Entropy | None = None) -> NDArray[np.int64]:
        """Return `size` independent answers of a person whose true choice this is, as numbers of choices; the law is exact."""
        self._check_truth(truth)
        source = entropy or SystemEntropy()
        if self.odds is None:
            lying = sample_lies(self.loss, self.choices, size, source)
        else:
            above, unit = parse_amount(self.odds).as_integer_ratio()
            # A number below the sum of both weights: it lies where it is not below that of the truth.
            bounds = np.array([above + unit * (self.choices - 1)] * size, object)
            lying = np.array(sample_below(bounds, source) >= above, np.bool_)
        others = np.array(sample_below(np.full(size, self.choices - 1, np.int64), source), np.int64)
        return np.where(lying, others + (others >= truth), truth)

    def supports(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Return an answer supports the choice that it names."""
        found: NDArray[np.bool_] = np.asarray(answers)[:, np.newaxis] == np.arange(self.choices)
        return found

    def profile(self) -> ResponseProfile:
        """Return the exact profile, at ε as in `loss`."""
        return ResponseProfile(self.loss, self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryEncoding(LocalMechanism):
    """A bit for each choice: the true one's is 1 with probability 1/2, each other one's with probability 1/(e^ε + 1).

    Claim: ε-DP for each answer; the variance 4e^ε/(e^ε - 1)² does not grow with the number of choices, and is less than that of
    randomized response from 3e^ε + 2 choices on. The profile is exact.
    Why: two truths' bits differ, with the ratios (1/2)/q for the one and (1-q)/(1/2) for the other, at most e^ε together.
    Source: Wang, Blocki, Li, Jha 2017, "Locally differentially private protocols for frequency estimation", section 4.3.

    >>> many = 200
    >>> unary, response = UnaryEncoding(epsilon=1, choices=many), RandomizedResponse(epsilon=1, choices=many)
    >>> round(unary.variance, 2), round(response.variance, 2)
    (3.68, 67.98)
    """

    name: ClassVar[str] = "unary encoding"

    epsilon: Amount
    choices: int = 2

    def __post_init__(self) -> None:
        set_frozen_fields(self, epsilon=parse_amount(self.epsilon))
        self._check_choices()

    @property
    def loss(self) -> Fraction:
        """ε."""
        return parse_amount(self.epsilon)

    @property
    def p(self) -> float:
        """1/2."""
        return 0.5

    @property
    def q(self) -> float:
        """1/(e^ε + 1)."""
        shrunk = math.exp(-float(self.loss))
        return shrunk / (1 + shrunk)

    def sample(self, size: int = 1, *, truth: int = 0, entropy: Entropy | None = None) -> NDArray[np.bool_]:
        """Return `size` independent answers of a person whose true choice this is: shape `(size, choices)`; the law is exact."""
        self._check_truth(truth)
        source = entropy or SystemEntropy()
        found = sample_lies(self.loss, 2, size * self.choices, source).reshape(size, self.choices)
        found[:, truth] = (source.draw_words(size) & np.uint64(1)).astype(np.bool_)
        return found

    def supports(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Return an answer supports the choices whose bits are 1."""
        return np.asarray(answers, np.bool_)

    def profile(self) -> UnaryProfile:
        """Return the exact one."""
        return UnaryProfile(self.loss)
