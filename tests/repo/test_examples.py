"""The examples run, and say what they promise to say."""

from __future__ import annotations

import re
import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.policy import load

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_examples_exist() -> None:
    """An empty folder would pass every test of it."""
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each example runs as a program and prints something; those with a picture draw it."""
    picture = tmp_path / "picture.png"
    drawn_elsewhere = path.stem == "gaussian_dp"  # tests/privacy/accounting/test_plot.py
    drawing = "picture_of" in path.read_text(encoding="utf-8") and not drawn_elsewhere
    monkeypatch.setattr("sys.argv", [str(path), *(["--picture", str(picture)] if drawing else [])])
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 5
    assert picture.exists() is drawing
    assert not drawing or picture.stat().st_size > 10_000


def test_readme_picture_is_reproducible(tmp_path: Path) -> None:
    """`docs/answer.py` draws an SVG file, which the README and the home page show."""
    root = Path(__file__).parents[2]
    picture = tmp_path / "answer.svg"
    runpy.run_path(str(root / "docs" / "answer.py"))["draw_answer"](picture)
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "](docs/answer.svg)" in (root / "README.md").read_text(encoding="utf-8")
    assert "](answer.svg)" in (root / "docs" / "index.md").read_text(encoding="utf-8")


def example(name: str) -> dict[str, Any]:
    """The names that an example defines."""
    (path,) = (path for path in EXAMPLES if path.stem == name)
    return runpy.run_path(str(path))


def test_differencing_reveals_an_income_from_exact_totals_only() -> None:
    """The attack works on exact totals, to the last coin; private ones leave guesses millions apart."""
    attack = example("differencing")
    before, after = (attack["exact_total"](attack["area"](moved)) for moved in (False, True))
    assert before - after == attack["INCOMES"]["White"]
    guesses = attack["guesses"](12, 1)  # six are within a million with a probability of 8e-6, twelve of 1e-11
    assert np.ptp(guesses) > 1_000_000
    assert len(set(guesses)) >= 11


def test_survey_is_deniable_and_unbiased() -> None:
    """After a yes, nothing is believed beyond the factor 3 in odds; the estimate has no bias."""
    survey = example("survey")
    for prior in (0.1, 0.22, 0.5, 0.9):
        no, yes = survey["believed"](prior, float(survey["COINS"].loss))
        odds = prior / (1 - prior)
        assert yes / (1 - yes) == pytest.approx(3 * odds)
        assert no / (1 - no) == pytest.approx(odds / 3)
    found = [survey["coin_survey"](4_000)[1] for _ in range(30)]
    assert np.mean(found) == pytest.approx(survey["SMOKERS"], abs=0.02)


def test_auction_selects_a_good_price() -> None:
    """All four buy at 1.0; with many bidders the selection earns nearly the best, and a noisy price does not."""
    auction = example("auction")
    revenue, bids = auction["revenue"], auction["BIDS"]
    assert [float(revenue(Fraction(price), bids)) for price in ("1", "1.1", "3", "3.1", "3.2")] == [
        4,
        1.1,
        3,
        3.1,
        0,
    ]
    # What one bidder changes, over all bids on the list: at most the highest price, and in one direction.
    for bid in auction["PRICES"]:
        changes = [revenue(price, [*bids, bid]) - revenue(price, bids) for price in auction["PRICES"]]
        assert 0 <= min(changes) <= max(changes) <= auction["HIGHEST"]
    many = auction["selection"](bids * 100, 1)
    assert auction["expected"](many) > 0.99 * 400
    assert auction["noisy_price"](bids * 100, 1, 100) < 0.6 * 400


def test_histogram_has_sensitivity_one_or_two() -> None:
    """All small databases and dpsql's planned noise agree."""
    histogram = example("histogram_sensitivity")
    assert (histogram["sensitivity"](False), histogram["sensitivity"](True)) == (1, 2)
    assert "scale 1 " in histogram["scale_of"]("add_remove", 1)
    assert "scale 2 " in histogram["scale_of"]("replace", 1)


def test_losses_compose_and_bound_the_attacker() -> None:
    """Sequential composition is a line; nobody is right more often than e^ε/(1 + e^ε)."""
    composition = example("composition")
    for count in (1, 10, 100):
        assert composition["promised"](count)["sequential"] == pytest.approx(count / 10)
        right = composition["attack"](count, 2_000)
        assert right <= 1 / (1 + np.exp(-count / 10)) + 0.06


def test_experts_are_followed_within_the_bound() -> None:
    """Each learner's regret is within its bound and one run's noise; more privacy has a smaller rate."""
    experts = example("experts")
    rates = {name: float(schedule.rate) for name, schedule in experts["schedules"](200).items()}
    assert rates["ε = 1, published rate"] < rates["ε = 1, by zCDP"] < rates["ε = 8, by zCDP"]
    given = experts["losses"](200)
    for name, schedule in experts["schedules"](200).items():
        assert experts["run"](schedule, given)[-1] <= experts["bound_regret"](rates[name], 200, 10) + 0.2


@pytest.fixture(scope="module")
def flights() -> dict[str, Any]:
    """The names of the example of the flights, and its database."""
    names = example("flights")
    return {**names, "database": names["new_york"]()}


def test_flights_answer_ten_questions(flights: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Each question stands with its SQL, its noisy column's interval and the true value; the budget lasts."""
    flights["main"]()
    shown = capsys.readouterr().out
    assert len(flights["QUESTIONS"]) == 10
    for number, question in enumerate(flights["QUESTIONS"], 1):
        assert f"\n{number}. {question.title}\n" in shown
    heads = [line for line in shown.splitlines() if re.search(r"\btrue$", line)]
    assert len(heads) == 10
    assert all("±95%" in line for line in heads)
    assert re.search(r"(?m)^flights +\d+% .* 10 .* 8 +1e-6 +zcdp$", shown)


def test_flights_match_duckdb(flights: dict[str, Any]) -> None:
    """Answers about flights with a tail number are exact at a very large ε and with wide bounds."""
    policy = flights["POLICY"].replace("epsilon: 8", "epsilon: 1e12").replace("365", "1000")
    policy = policy.replace("[-30, 180]", "[-1000, 10000]")
    database = flights["database"].cursor()
    database.execute("CREATE TEMP VIEW known AS FROM flights WHERE tailnum IS NOT NULL")
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=10**9) as connection:
        for question in flights["QUESTIONS"]:
            truth = database.execute(
                question.select.replace("FROM flights", "FROM known AS flights")
            ).fetchall()
            exact = {row[: question.keys]: row[question.keys :] for row in truth}
            rows = connection.query(question.select).rows
            found = {
                row[: question.keys]: row[question.keys :] for row in rows if row[: question.keys] in exact
            }
            assert found, question.title
            for keys, values in found.items():
                assert values == pytest.approx(exact[keys], rel=0.01), question.title


def test_flights_intervals_hold_the_true_answers(flights: dict[str, Any]) -> None:
    """Noise and learnt clamps together, within bounds that cut nothing off: nearly as often as is said, and never far off.

    Most flights go to one time zone, and their number is within a tenth of the truth.
    """
    policy = flights["POLICY"].replace("epsilon: 8", "epsilon: 1000").replace("365", "1000")
    policy = policy.replace("[-30, 180]", "[-1000, 10000]")
    database = flights["database"].cursor()
    database.execute("CREATE OR REPLACE TEMP VIEW known AS FROM flights WHERE tailnum IS NOT NULL")
    held, far, near = [], [], []
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=0.4, replay=False) as connection:
        for question in (flights["QUESTIONS"][number] for number in (1, 2, 7)):
            select = question.select
            truth = database.execute(select.replace("FROM flights", "FROM known AS flights")).fetchall()
            exact = {row[: question.keys]: row for row in truth}
            for _ in range(6):
                answer = connection.query(select)
                for row, ends in zip(answer.rows, answer.intervals(), strict=True):
                    # A key that the public table has may be nobody's.
                    true_row = exact.get(row[: question.keys], row[: question.keys] + (None,) * len(row))
                    for value, interval, true in zip(row, ends, true_row, strict=False):
                        if interval is not None and value is not None and true is not None:
                            low, high = interval
                            held.append(low <= true <= high)
                            far.append(abs(value - true) > 1.5 * (high - low))
                    if row[0] == "America/New_York":
                        near.append(row[1] / exact[row[:1]][1])
    assert len(near) == 6
    # A tenth is six standard deviations of 1.6%, where the clamp that is chosen, and so the noise, is not the largest.
    assert np.median(near) == pytest.approx(1, rel=0.1)
    assert near == pytest.approx([1] * 6, rel=0.3)
    assert len(held) > 400
    assert sum(held) >= 0.9 * len(held)
    assert sum(far) <= 0.02 * len(far)


def test_flights_bounds_are_no_copies_of_the_data(flights: dict[str, Any]) -> None:
    """No bound is the smallest or largest value in the data, except the calendar's and the flights' year."""
    calendar = {"month", "day", "hour"}
    for name, table in load(flights["POLICY"]).tables.items():
        for column, facts in table.columns.items():
            if facts.numeric_bounds is None or column in calendar:
                continue
            ((low, high),) = (
                flights["database"].execute(f"SELECT MIN({column}), MAX({column}) FROM {name}").fetchall()
            )
            assert facts.numeric_bounds[0] != low, column
            assert facts.numeric_bounds[1] != high or (column, high) == ("year", 2013), column
