"""The local model: answers are as private as they say, estimates have no bias, and intervals hold the truth."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import chdtrc
from statistical.chance import FALSE_ALARM, least_share

from dpsql.errors import DataError, LossError
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.local import Answer, Choice, Number, estimate, joint, randomize
from tests.entropy import SeededEntropy

PLAN = Choice(values=("A", "B", "C"), epsilon=1)
MANY = Choice(values=range(20), epsilon=1)
COST = Number(bounds=(0, 100), epsilon=1)


def share(question: Choice | Number, value: object, report: int, draws: int) -> float:
    """How often a value is answered by that report."""
    source = SeededEntropy(5)
    return sum(randomize(value, question, entropy=source).report == report for _ in range(draws)) / draws


@pytest.mark.parametrize(
    ("value", "chance"), [(0, 0.0), (25, 0.25), (100, 1.0), (-7, 0.0), (1e9, 1.0), (Fraction(1, 3), 1 / 300)]
)
def test_a_number_is_rounded_at_random_then_randomised(value: object, chance: float) -> None:
    """The report is 1 with the chance q + (p-q)·y, which lies between q and p = e^ε·q for every value."""
    p, q = COST.mechanism.p, COST.mechanism.q
    expected, draws = q + (p - q) * chance, 1_000
    count = round(share(COST, value, 1, draws) * draws)
    chi = (count - draws * expected) ** 2 / (draws * expected * (1 - expected))
    assert chdtrc(1, chi) > FALSE_ALARM
    assert p / q == pytest.approx(math.e)
    assert 1 - q == pytest.approx(p)


@pytest.mark.parametrize(
    "value",
    [
        None,
        math.nan,
        "many",
        object(),
        [1],
        np.array([1, 2]),
        math.inf,
        -math.inf,
        np.float64("nan"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("1e999999999"),
        Decimal("-1e-999999999"),
        1j,
        b"1",
        10**400,
    ],
    ids=lambda value: str(type(value)),
)
def test_no_value_makes_an_answer_fail(value: object) -> None:
    """Whether somebody answers would be an answer too: what is no number, and no listed value, is answered all the same."""
    reports = {randomize(value, COST).report for _ in range(60)}
    assert reports <= {0, 1}
    assert 0 <= randomize(value, PLAN).report < 3
    assert 0 <= randomize(value, MANY).report < 2**20


def test_a_value_that_is_not_listed_is_any_of_them() -> None:
    """All reports are alike, so each answer is as private as others."""
    counts = Counter(randomize("Z", PLAN).report for _ in range(1_500))
    assert all(abs(counts[report] - 500) < 140 for report in range(3))


def test_an_answer_to_a_choice_keeps_its_epsilon() -> None:
    """By 1,500 answers of each truth: each report is at most e^ε times as likely by one truth as by another."""
    source = SeededEntropy(2)
    shares = {
        value: Counter(randomize(value, PLAN, entropy=source).report for _ in range(1_500))
        for value in PLAN.values
    }
    for one, other in itertools.permutations(PLAN.values, 2):
        for report in range(3):
            assert shares[one][report] <= math.e * shares[other][report] * 1.5
    assert PLAN.event() == Pure(Fraction(1))


@pytest.mark.parametrize(
    "question", [PLAN, MANY, Choice(values=("no", "yes"), epsilon=3)], ids=["response", "unary", "strong"]
)
def test_frequencies_are_estimated_and_their_intervals_hold(question: Choice) -> None:
    """In 20 surveys of 150 people the estimates average to the truth, and 95% intervals hold it as often as they say."""
    truth = [question.values[person * person % 7 % len(question.values)] for person in range(150)]
    exact = {value: truth.count(value) / 150 for value in question.values}
    held, surveys, off = 0, 20, dict.fromkeys(question.values, 0.0)
    for survey in range(surveys):
        source = SeededEntropy(survey)
        found = estimate([randomize(value, question, entropy=source) for value in truth])
        assert set(found) == set(question.values)
        for value, (middle, low, high) in found.items():
            held += low <= exact[value] <= high
            off[value] += middle - exact[value]
            assert 0 <= low <= high <= 1
    runs = surveys * len(question.values)
    assert held / runs >= least_share(runs // len(question.values), 0.95)
    deviation = math.sqrt(question.mechanism.variance / 150 / surveys) + 1 / math.sqrt(150 * surveys)
    assert all(abs(each) / surveys < 5 * deviation for each in off.values())


def test_the_interval_of_a_few_answers_is_wide_and_true() -> None:
    """Of one to twelve answers, over all outcomes of the exact law, at least 95% of the chance is where the truth is held."""
    question = Choice(values=("no", "yes"), epsilon=2)
    p, q = question.mechanism.p, question.mechanism.q
    for n, yes in ((1, 0), (1, 1), (4, 1), (12, 3), (12, 12)):
        law = np.array([1.0])
        for person in range(n):
            chance = p if person < yes else q
            law = np.convolve(law, [1 - chance, chance])
        held = 0.0
        for count, mass in enumerate(law):
            answers = [Answer(question, 1)] * count + [Answer(question, 0)] * (n - count)
            _, low, high = estimate(answers)["yes"]
            held += mass * (low <= yes / n <= high)
        assert held >= 0.95


def test_means_are_estimated_and_their_intervals_hold() -> None:
    """In 30 surveys of 100 people, with values beyond the bounds, the interval holds the mean of the clamped values."""
    values = [float(x) for x in np.linspace(-30, 160, 100)]
    exact = float(np.clip(values, 0, 100).mean())
    found = []
    for survey in range(30):
        source = SeededEntropy(survey)
        found.append(estimate([randomize(value, COST, entropy=source) for value in values])["mean"])
    assert sum(low <= exact <= high for _, low, high in found) / 30 >= least_share(30, 0.95)
    assert np.mean([middle for middle, _, _ in found]) == pytest.approx(exact, abs=11)
    assert all(0 <= low <= high <= 100 for _, low, high in found)


@pytest.mark.parametrize(
    "second", [Choice(values=("no", "yes"), epsilon=2), Choice(values=range(5), epsilon=2, method="unary")]
)
def test_joint_tables_are_estimated_and_their_intervals_hold(second: Choice) -> None:
    """In 15 surveys of 160 people the cells average to the truth, correlated as it is, and 95% intervals hold it."""
    first = Choice(values=("A", "B"), epsilon=2)
    people = [("A", second.values[0])] * 80 + [("B", second.values[1])] * 60 + [("A", second.values[1])] * 20
    cells = list(itertools.product(first.values, second.values))
    total, held = dict.fromkeys(cells, 0.0), 0
    for survey in range(15):
        source = SeededEntropy(survey)
        ones = [randomize(one, first, entropy=source) for one, _ in people]
        others = [randomize(other, second, entropy=source) for _, other in people]
        for cell, (middle, low, high) in joint(ones, others).items():
            total[cell] += middle / 15
            held += low <= people.count(cell) / 160 <= high
    assert held / (15 * len(cells)) >= least_share(15, 0.95)
    for cell in cells:
        assert total[cell] == pytest.approx(people.count(cell) / 160, abs=0.14)
    assert sum(total.values()) == pytest.approx(1, abs=0.25)


def test_estimates_refuse_meaningless_input() -> None:
    """No answers, answers to two questions, a confidence of 1, joint tables of unequal length or of numbers."""
    answer, number = Answer(PLAN, 0), Answer(COST, 1)
    for wrong in ([], [answer, number], [answer, Answer(MANY, 0)]):
        with pytest.raises(DataError):
            estimate(wrong)
    for confidence in (0, 1, -1):
        with pytest.raises(DataError):
            estimate([answer], confidence)
    for ones, others in (([answer] * 2, [answer]), ([answer], [answer]), ([number] * 2, [answer] * 2)):
        with pytest.raises(DataError):
            joint(ones, others)
    wide = Choice(values=range(300), epsilon=1)
    with pytest.raises(DataError, match="cells"):
        joint([Answer(wide, 0)] * 2, [Answer(wide, 0)] * 2)


def test_reports_of_strangers_are_checked() -> None:
    """A report that no answer has, of another type or out of range, is refused where it enters."""
    for question, wrong in (
        (PLAN, 3),
        (PLAN, -1),
        (MANY, 2**20),
        (COST, 2),
        (PLAN, True),
        (PLAN, "A"),
        (PLAN, 1.0),
    ):
        with pytest.raises(DataError):
            Answer(question, wrong)  # type: ignore[arg-type]
    assert Answer(MANY, 2**20 - 1).report == 2**20 - 1


def test_questions_refuse_invalid_options() -> None:
    """One value, equal values, another method, bounds that are equal or none."""
    for wrong in (
        {"values": ["A"]},
        {"values": ["A", "A"]},
        {"values": ["A", "B"], "method": "best"},
        {"values": ["A", "B"], "epsilon": 0},
    ):
        with pytest.raises(LossError):
            Choice(**{"epsilon": 1, **wrong})  # type: ignore[arg-type]
    for bounds in ((1, 1), (2, 1), (0, math.inf), (0, "x"), (0, math.nan), (None, 1), (0, "1e999999999")):
        with pytest.raises(LossError):
            Number(bounds=bounds, epsilon=1)  # type: ignore[arg-type]


def test_fresh_random_answers_each_day_reveal_the_truth() -> None:
    """The attack works on a device that randomises each day, and not on one that repeats its answer."""
    question = Choice(values=("no", "yes"), epsilon=0.6)
    source = SeededEntropy(3)

    def guess(days: list[Answer]) -> str:
        return max(question.values, key=lambda value: estimate(days)[value].value)

    careless = careful = 0
    for person in range(20):
        truth = question.values[person % 2]
        careless += guess([randomize(truth, question, entropy=source) for _ in range(150)]) == truth
        careful += guess([randomize(truth, question, entropy=source)] * 150) == truth
    assert careless >= 19
    assert careful < 19
