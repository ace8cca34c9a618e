"""The coverage benchmark counts what its intervals hold, and asks the same of dpsql and of DuckDB."""

from __future__ import annotations

import itertools
import json
import math

import pytest

from benchmarks.coverage.__main__ import main
from benchmarks.coverage.cells import Cell, Tally, cells_of, truth_of
from benchmarks.coverage.studies import STUDIES, Study, statements
from benchmarks.coverage.table import percent
from dpsql.policy import load


def test_tally_counts_covered_far_and_missing_cells() -> None:
    """A missing number has the relative error 1; far off is what is beyond three half-widths."""
    found = Tally.of(
        [Cell(100, 90, (80, 100)), Cell(10, 20, (19, 21)), Cell(10, 12, (11, 13)), Cell(5, None), Cell(0, 1)]
    )
    assert (found.cells, found.missing, found.bare, found.held, found.far) == (5, 1, 1, 1, 1)
    assert (found.held_share, found.far_share) == (1 / 3, 1 / 3)
    assert found.error == pytest.approx(0.6)
    assert found.shown_error == pytest.approx(0.2)
    assert found.width == pytest.approx(0.1)
    assert math.isnan(Tally.of([]).held_share)


def test_exact_answer_is_covered_by_its_point() -> None:
    """A difference by the order of a float sum is no error."""
    assert Cell(0.3, 0.1 + 0.2, (0.1 + 0.2, 0.1 + 0.2)).held
    assert not Cell(0.3, 0.1 + 0.2, (0.1 + 0.2, 0.1 + 0.2)).far


def test_count_off_by_one_is_not_far_off() -> None:
    """This holds however narrow its interval is."""
    assert not Cell(5.0, 6.0, (6.0, 6.0)).far
    assert Cell(5.0, 9.0, (9.0, 9.0)).far
    assert Cell(5.5, 6.0, (6.0, 6.0)).far


def test_cells_match_the_exact_answer() -> None:
    """Groups that nobody is in are left out, and so is what is NULL in truth."""
    truth = truth_of([("a", 1, None), (None, 2, 3.0)], 1)
    rows = [("nobody", 9, 9.0), (None, 4, None)]
    ends = [(None, (8.0, 10.0), (8.0, 10.0)), (None, (3.0, 5.0), None)]
    assert cells_of(truth, rows, ends) == [Cell(1, None), Cell(2, 4, (3.0, 5.0)), Cell(3.0, None)]


def test_statements_have_titles_and_keys() -> None:
    """The keys are those of GROUP BY."""
    one, other = statements(
        "-- all\nSELECT COUNT(*) FROM t;\n\n-- by two\nSELECT a, b, SUM(x) FROM t GROUP BY a, b;\n"
    )
    assert (one.title, one.keys) == ("all", 0)
    assert (other.sql, other.keys) == ("SELECT a, b, SUM(x) FROM t GROUP BY a, b", 2)
    assert [*one.aggregated, *other.aggregated] == ["x"]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_each_study_has_enough_statements_and_valid_policies(study: Study) -> None:
    """Titles are different, and where keys are secret the policy tells those alone that the statement adds up."""
    titles = [one.title for one in study.statements]
    assert len(set(titles)) == len(titles) >= 10
    assert all(len(one.kinds) >= 1 for one in study.statements)
    for secret, statement in itertools.product((False, True), study.statements):
        policy = load(study.policy("zcdp", statement, secret=secret))
        for table, column in study.keys:
            rule = policy.tables[table].columns[column]
            hidden = secret and column not in statement.aggregated
            assert (rule.values is None and rule.bounds is None) == hidden


def test_program_prints_a_line_for_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    """Each statement in it has one, too; answers at a loss of 1000 are close to the truth."""
    asking = [
        "--data",
        "rand",
        "--epsilon",
        "1000",
        "--accountant",
        "pure",
        "--runs",
        "2",
        "--only",
        "health",
    ]
    main([*asking, "--statements"])
    printed = capsys.readouterr().out
    assert printed.count("| rand | 1000 | pure       | known ") == 1 + 3
    assert printed.count("| rand | 1000 | pure       | secret ") == 1 + 2
    main([*asking, "--json"])
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(fact["statement"], fact["keys"]) for fact in facts} >= {
        ("health", "known"),
        ("health", "secret"),
    }
    assert all(fact["refused"] is None and fact["error"] < 0.01 for fact in facts)


def test_refusal_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The line has its reason, and it is counted."""
    main(
        [
            "--data",
            "rand",
            "--epsilon",
            "0.0000001",
            "--accountant",
            "pure",
            "--keys",
            "known",
            "--only",
            "rows",
        ]
    )
    assert "| why" in capsys.readouterr().out


def test_shares_are_rounded() -> None:
    """Two digits below one percent, a dash for none."""
    assert [percent(share) for share in (0.9512, 0.00456, 12.3, math.nan, math.inf)] == [
        "95.1%", "0.46%", "1,230%", "–", "∞",
    ]  # fmt: skip
