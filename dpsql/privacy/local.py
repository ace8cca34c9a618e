"""The local model: each person randomizes their own answer, so nobody has to trust the collector.

`randomize` runs on each person's own device; its answer may be published. `estimate` and `joint` run wherever answers are
collected, as often as one likes, at no further loss: they are post-processing.

>>> smoker = Choice(values=("no", "yes"), epsilon=1)
>>> answers = [randomize("yes" if person % 4 == 0 else "no", smoker) for person in range(2000)]
>>> found = estimate(answers)["yes"]
>>> abs(found.value - 0.25) < 0.2, found.low < found.value < found.high
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.privacy.mechanisms.library import LocalMechanism, RandomizedResponse, UnaryEncoding
from dpsql.privacy.mechanisms.library.base import parse_exact_number
from dpsql.privacy.mechanisms.sampler import sample_below

__all__ = ["Answer", "Choice", "Estimate", "Number", "estimate", "joint", "randomize"]

MOST_CELLS = 1 << 16
_FAR = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A question with a list of possible answers, `values`; `epsilon` is the loss of one answer.

    `method` is "response" (randomized response), "unary" (optimized unary encoding), or "auto": whichever has the smaller variance
    for a rare answer; unary encoding from 3e^ε + 2 values on.

    >>> Choice(values=range(3), epsilon=1).mechanism.name, Choice(values=range(30), epsilon=1).mechanism.name
    ('randomised response', 'unary encoding')
    """

    values: Sequence[Hashable]
    epsilon: Amount
    method: Literal["auto", "response", "unary"] = "auto"
    mechanism: LocalMechanism = field(init=False, repr=False, compare=False)
    """The mechanism that randomizes an answer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "epsilon", parse_amount(self.epsilon))
        if len(set(self.values)) != len(self.values):
            raise LossError("the values of a question must be distinct")
        if self.method not in ("auto", "response", "unary"):
            raise LossError(f"there is no method {self.method!r}", hint='"response", "unary" or "auto"')
        response = RandomizedResponse(epsilon=self.epsilon, choices=len(self.values))
        unary = UnaryEncoding(epsilon=self.epsilon, choices=len(self.values))
        better = self.method == "unary" or (self.method == "auto" and unary.variance < response.variance)
        object.__setattr__(self, "mechanism", unary if better else response)

    def event(self) -> Pure:
        """Return the event that an accountant charges for one answer."""
        return Pure(parse_amount(self.epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A question for a number between `bounds`, to which other values are clamped. `epsilon` is the loss of one answer.

    Claim: one bit is answered, and it is ε-DP; the mean of many answers estimates the mean without bias.
    Why: the number is rounded at random to one of the bounds, so that its mean is kept, and the bit that says which goes through
    randomized response. So 1 is answered with a chance between q and p = e^ε·q, and 0 with one between 1-p = q and 1-q = p.
    Source: Duchi, Jordan, Wainwright 2018, "Minimax optimal procedures for locally private estimation"; Ding, Kulkarni, Yekhanin
    2017, "Collecting telemetry data privately", section 3.
    """

    bounds: tuple[Amount, Amount]
    epsilon: Amount
    mechanism: LocalMechanism = field(init=False, repr=False, compare=False)
    """The mechanism that randomizes the rounded bit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", parse_amount(self.epsilon))
        object.__setattr__(self, "mechanism", RandomizedResponse(epsilon=self.epsilon))
        try:
            low, high = map(parse_exact_number, self.bounds)
        except (TypeError, ValueError, DataError):
            raise LossError("bounds must be two finite numbers") from None
        if low >= high:
            raise LossError("the lower bound must be below the upper bound")
        object.__setattr__(self, "bounds", (low, high))

    def event(self) -> Pure:
        """Return the event that an accountant charges for one answer."""
        return Pure(parse_amount(self.epsilon))


Question: TypeAlias = Choice | Number


@dataclass(frozen=True, slots=True)
class Answer:
    """A randomized answer. Only `report` has to be sent: the collector knows the question, and adds it.

    It is the number of a choice, a whole number whose binary digits are the choices' bits, or one bit. DataError for a report that
    no answer to the question has, so that what strangers send is checked where it enters.
    """

    question: Question
    report: int

    def __post_init__(self) -> None:
        kinds = 2
        if isinstance(self.question, Choice):
            kinds = len(self.question.values)
            kinds = 1 << kinds if isinstance(self.question.mechanism, UnaryEncoding) else kinds
        if type(self.report) is not int or not 0 <= self.report < kinds:
            raise DataError("this report is not a possible answer to the question")


class Estimate(NamedTuple):
    """An unbiased estimate, and the ends of its interval, clipped to the possible range."""

    value: float
    low: float
    high: float


def randomize(value: object, question: Question, *, entropy: Entropy | None = None) -> Answer:
    """Return the randomized answer of one person whose truth is `value`.

    Claim: ε-DP, whatever the value is; it never fails for a value, for whether somebody answers is an answer, too. A value that is
    not among those of a `Choice`, NULL among them, is one of these at random; a number that is none is either bound at random.
    Each further answer about the same truth loses ε again, so a device keeps its answer and repeats it.
    Source: Kasiviswanathan, Lee, Nissim, Raskhodnikova, Smith 2011, "What can we learn privately?" (the local model).
    """
    source = entropy or SystemEntropy()
    if isinstance(question, Choice):
        truth = _find_value_place(value, question)
        if truth is None:
            truth = int(sample_below(np.array([len(question.values)], np.int64), source)[0])
        found = question.mechanism.release(truth, entropy=source)
        if isinstance(found, list):
            return Answer(question, sum(1 << place for place, bit in enumerate(found) if bit))
        return Answer(question, int(found))
    above, whole = _compute_relative_position(value, question).as_integer_ratio()
    bit = int(sample_below(np.array([whole], object), source)[0]) < above
    return Answer(question, int(question.mechanism.release(int(bit), entropy=source)))


def _find_value_place(value: object, question: Choice) -> int | None:
    try:
        return question.values.index(value)
    except Exception:  # noqa: BLE001 - a value may have any comparison, and none may keep an answer from being given
        return None


def _compute_relative_position(value: object, question: Number) -> Fraction:
    """Return the position of the clamped value between the bounds, from 0 to 1; the middle for a value that is not a number."""
    low, high = (Fraction(bound) for bound in question.bounds)
    plain = value.item() if isinstance(value, np.generic) and value.size == 1 else value
    if isinstance(plain, Decimal) and plain.is_finite() and abs(plain.adjusted()) > _FAR:
        # A fraction of this size would fill the memory.
        plain = math.copysign(math.inf, plain) if plain.adjusted() > 0 else 0
    nan = plain.is_nan() if isinstance(plain, Decimal) else isinstance(plain, float) and math.isnan(plain)
    if nan or not isinstance(plain, (int, float, Decimal, Fraction)):
        return Fraction(1, 2)
    if plain in (math.inf, -math.inf):
        return Fraction(int(plain > 0))
    return (min(max(Fraction(plain), low), high) - low) / (high - low)


def estimate(answers: Iterable[Answer], confidence: float = 0.95) -> dict[Hashable, Estimate]:
    """Estimate the frequency of each value among those who answered; for a `Number` their mean, as "mean".

    Claim: each value has no bias, and each interval holds the truth among those who answered with at least that probability, at any
    number of answers.
    Why: of n independent answers, each of which supports a value with a chance of its own, the number that does has lower tails than
    the binomial one of the same mean (below the mean less 1, and likewise above), so that Clopper and Pearson's interval holds for
    the mean chance; the frequency is a line in it.
    Source: Hoeffding 1956, "On the distribution of the number of successes in independent trials", Theorem 5; Clopper, Pearson 1934;
    Wang, Blocki, Li, Jha 2017 (the estimate).

    Args:
        answers: The answers of independent people to one question.
        confidence: The probability of each interval, between 0 and 1.

    Returns:
        An estimate for each value of a `Choice`, or for "mean".

    Raises:
        DataError: Without an answer, for answers to several questions, and unless 0 < confidence < 1.
    """
    given, question = _require_one_question(answers)
    side = (1 - _require_confidence(confidence)) / 2
    supported = _compute_supports(given, question)
    counts = supported.sum(axis=0)
    p, q = question.mechanism.p, question.mechanism.q
    found = [_estimate_frequency(int(count), len(given), p, q, side) for count in counts]
    if isinstance(question, Choice):
        return dict(zip(question.values, found, strict=True))
    low, high = (float(bound) for bound in question.bounds)
    return {"mean": Estimate(*(low + part * (high - low) for part in found[1]))}


def joint(
    first: Iterable[Answer], second: Iterable[Answer], confidence: float = 0.95
) -> dict[tuple[Hashable, Hashable], Estimate]:
    """Return the frequency of each pair of values, from the answers of the same people, in the same order, to two `Choice` questions.

    A pair of answers has lost the sum of both ε.

    Claim: each value has no bias, and each interval holds the truth among those who answered with at least that probability.
    Why: both answers of a person are randomized independently, so the product of two estimates from single answers has the mean 1
    where both values are true, and else 0. It is bounded, and the mean of n independent ones is within √(2·V·ln(4/β)/n) +
    7·R·ln(4/β)/(3(n-1)) of its mean except with probability β, V being their sample variance and R their range.
    Source: Maurer, Pontil 2009, "Empirical Bernstein bounds and sample variance penalization", Theorem 4.

    Raises:
        DataError: Unless there are as many answers to one question as to the other, at least 2, and at most 65,536 pairs of values.
    """
    ones, question = _require_one_question(first)
    others, other_question = _require_one_question(second)
    if not isinstance(question, Choice) or not isinstance(other_question, Choice):
        raise DataError("a joint table needs questions with a list of values")
    if len(ones) != len(others) or len(ones) < 2:
        raise DataError("a joint table needs both answers of each person, from at least two people")
    if len(question.values) * len(other_question.values) > MOST_CELLS:
        raise DataError(f"a joint table may have at most {MOST_CELLS:,} cells")
    log = math.log(4 / (1 - _require_confidence(confidence)))
    singles = [
        _compute_single_estimates(given, of) for given, of in ((ones, question), (others, other_question))
    ]
    n = len(ones)
    spread = _compute_product_range(question, other_question)
    means = singles[0].T @ singles[1] / n
    squares = (singles[0] ** 2).T @ (singles[1] ** 2) / n
    variances = np.maximum(squares - means**2, 0) * n / (n - 1)
    halves = np.sqrt(2 * variances * log / n) + 7 * spread * log / (3 * (n - 1))
    return {
        (a, b): Estimate(
            float(means[i, j]),
            float(min(max(means[i, j] - halves[i, j], 0), 1)),
            float(min(max(means[i, j] + halves[i, j], 0), 1)),
        )
        for i, a in enumerate(question.values)
        for j, b in enumerate(other_question.values)
    }


def _require_one_question(answers: Iterable[Answer]) -> tuple[list[Answer], Question]:
    given = list(answers)
    if not given:
        raise DataError("an estimate needs at least one answer")
    question = given[0].question
    if any(answer.question is not question and answer.question != question for answer in given):
        raise DataError("these answers belong to several questions", hint="estimate each question separately")
    return given, question


def _require_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise DataError(f"the confidence must lie between 0 and 1, not {confidence}")
    return confidence


def _compute_supports(given: Sequence[Answer], question: Question) -> NDArray[np.bool_]:
    """Return which values each answer supports."""
    mechanism = question.mechanism
    if isinstance(mechanism, UnaryEncoding):
        length = -(-mechanism.choices // 8)
        raw = b"".join(answer.report.to_bytes(length, "little") for answer in given)
        bits = np.unpackbits(
            np.frombuffer(raw, np.uint8).reshape(len(given), length), axis=1, bitorder="little"
        )
        return mechanism.supports(bits[:, : mechanism.choices])
    return mechanism.supports(np.array([answer.report for answer in given], np.int64))


def _estimate_frequency(count: int, n: int, p: float, q: float, side: float) -> Estimate:
    """Return the frequency from a count of n answers that support it."""
    from scipy.special import betaincinv

    low = float(betaincinv(count, n - count + 1, side)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - side)) if count < n else 1.0
    ends = (min(max((rate - q) / (p - q), 0.0), 1.0) for rate in (low, high))
    return Estimate((count / n - q) / (p - q), *ends)


def _compute_single_estimates(given: Sequence[Answer], question: Choice) -> Floats:
    """Return the estimate of each value from each single answer."""
    p, q = question.mechanism.p, question.mechanism.q
    found: Floats = (_compute_supports(given, question).astype(np.float64) - q) / (p - q)
    return found


def _compute_product_range(*questions: Choice) -> float:
    """Return the range of a product of estimates from single answers."""
    ends: list[float] = [1.0]
    for question in questions:
        p, q = question.mechanism.p, question.mechanism.q
        ends = [end * single for end in ends for single in (-q / (p - q), (1 - q) / (p - q))]
    return max(ends) - min(ends)
