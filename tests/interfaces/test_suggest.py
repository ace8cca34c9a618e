"""`dpsql suggest`: proposals by charged answers, and the policy's text with them."""

from __future__ import annotations

import json
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.interfaces.cli import main
from dpsql.interfaces.suggest import SAMPLES, build_questions, round_outward, with_keys
from dpsql.policy import load

POLICY = """\
version: 1
database: clinic
privacy_unit: patient
budget: {epsilon: 40, delta: 1e-6}
tables:
  visits:
    unit: id
    rows_per_unit: 4
    columns:
      plan: {type: varchar}   # which plan
      age:
        type: integer
      cost: {type: double, bounds: [-1000000, 1000000]}
      day: {type: date}
"""
FAR = (date(1, 1, 1), date(9999, 12, 31))


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """4,000 patients of 3 visits; one has a plan of his own, and a cost of a million."""
    database = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i % 4000 AS id, CASE WHEN i = 7 THEN 'secret' WHEN i % 9 = 0 THEN NULL ELSE"
            " ['A', 'B'][1 + i % 2] END AS plan, 18 + (i % 4000 * 7919 % 70)::INTEGER AS age, CASE WHEN i = 7 THEN 1e6 WHEN i % 5 = 0 THEN"
            " NULL ELSE 20.0 + i % 4000 * 7 % 400 END AS cost, DATE '2024-01-01' + (i % 366)::INTEGER AS day FROM range(12000) AS t(i)"
        )
    (tmp_path / "clinic.yaml").write_text(POLICY, encoding="utf-8")
    return database


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_proposals_cover_most_units_and_share_the_loss(
    clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounds cover most units, a value of one unit is never listed, and all losses add up to the requested one."""
    rules, target = clinic.with_suffix(".yaml"), clinic.with_suffix(".suggested.yaml")
    assert run("suggest", "visits", clinic, "-e", "2", "--column", "cost", "--check") == 0
    assert not clinic.with_suffix(".ledger").exists()
    assert (
        run("suggest", "visits", clinic, "-e", "2", "--column", "cost", "--column", "plan", "--column", "day")
        == 0
    )
    shown = capsys.readouterr().out
    assert '+      plan: {type: varchar, values: ["A", "B"]}   # which plan' in shown
    columns = load(target).tables["visits"].columns
    low, high = columns["cost"].bounds or (0, 0)
    assert 20 <= low <= 60
    assert 380 <= high <= 500
    assert columns["day"].bounds == (date(2024, 1, 1), date(2024, 12, 31))
    assert columns["age"].bounds is None
    assert rules.read_text(encoding="utf-8") == POLICY
    receipts = json.loads(clinic.with_suffix(".suggested.receipts.json").read_text(encoding="utf-8"))
    losses = [Fraction(entry["loss"]) for receipt in receipts for entry in receipt["entries"]]
    assert len(losses) == 3
    share = Fraction(2, 3)
    assert sum(losses) <= 3 * share * share / 2  # each is a ρ of at most ε²/2
    # Nothing is asked where a file is in the way.
    with dpsql.connect(clinic, policy=rules) as con:
        left = con.budget()["visits"].remaining_epsilon
    assert run("suggest", "visits", clinic, "-e", "1") == 1
    with dpsql.connect(clinic, policy=rules) as con:
        assert con.budget()["visits"].remaining_epsilon == left
    # Under its own name the proposed policy goes on with the ledger.
    target.replace(rules)
    with dpsql.connect(clinic, policy=rules) as con:
        assert con.budget()["visits"].remaining_epsilon == left


def test_rows_per_unit_covers_nearly_all_units(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rounded number replaces a wide public bound, and no column is queried."""
    with duckdb.connect(str(clinic)) as connection:
        connection.execute("INSERT INTO visits SELECT 5, 'A', 40, 20, DATE '2024-01-01' FROM range(200)")
    rules = clinic.with_suffix(".yaml")
    rules.write_text(POLICY.replace("rows_per_unit: 4", "rows_per_unit: 365"), encoding="utf-8")
    assert run("suggest", "visits", clinic, "-e", "1", "--rows-per-unit") == 0
    shown = capsys.readouterr().out
    assert "+    rows_per_unit: 3\n" in shown
    assert "visits: rows_per_unit is the 99% quantile of rows per unit" in shown
    found = load(clinic.with_suffix(".suggested.yaml")).tables["visits"]
    assert found.rows_per_unit == 3
    assert len(json.loads(clinic.with_suffix(".suggested.receipts.json").read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize("unit", ["unit: row", "unit: id\n    rows_per_unit: 1"])
def test_rows_per_unit_is_refused_for_one_row_per_unit(
    clinic: Path, capsys: pytest.CaptureFixture[str], unit: str
) -> None:
    """There is nothing to propose."""
    rules = POLICY.replace("unit: id\n    rows_per_unit: 4", unit)
    clinic.with_suffix(".yaml").write_text(rules, encoding="utf-8")
    assert run("suggest", "visits", clinic, "-e", "1", "--rows-per-unit", "--check") == 1
    assert "error[rows_per_unit]: visits has one row per unit" in capsys.readouterr().err


def test_no_column_is_charged_if_not_all_fit_the_budget(
    clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Queries that do not fit into the budget together charge nothing."""
    assert run("suggest", "visits", clinic, "-e", "90") == 4
    assert "error[budget_exhausted]" in capsys.readouterr().err
    with dpsql.connect(clinic, policy=clinic.with_suffix(".yaml")) as con:
        assert con.budget()["visits"].queries == 0


@pytest.mark.parametrize(
    ("kind", "engine", "limits"),
    [
        ("integer", "TINYINT", (-128, 127)),
        ("integer", "UINTEGER", (0, 2**32 - 1)),
        ("integer", "BIGINT", (-(10**15), 10**15)),
        ("double", "DECIMAL(10,2)", (-(10**8), 10**8)),
        ("date", "DATE", FAR),
        ("double", "DOUBLE", None),
        ("double", "FLOAT", None),
        ("double", "DECIMAL(38,2)", None),
    ],
)
def test_a_column_without_public_range_is_refused(
    kind: str, engine: str, limits: tuple[Any, Any] | None
) -> None:
    """Without bounds, the range of the type is used; a type without a useful range is refused."""
    policy = load(
        {
            "version": 1,
            "privacy_unit": "person",
            "budget": {"epsilon": 1},
            "tables": {"t": {"unit": "row", "columns": {"x": {"type": kind}}}},
        }
    )
    if limits is None:
        with pytest.raises(dpsql.ProgrammingError) as refused:
            build_questions(policy, "t", {"x": engine})
        assert refused.value.code == "no_public_range"
    else:
        wide, asked = build_questions(policy, "t", {"x": engine})
        assert wide.tables["t"].columns["x"].bounds == limits
        assert [each.key for each in asked] == ["bounds"]
        load(wide)


@pytest.mark.parametrize(
    ("column", "declared", "option"),
    [("age", "bounds: [0, 120]", "--values"), ("age", "values: [1, 2]", "--column")],
)
def test_bounds_and_values_of_one_column_are_refused_before_the_charge(
    clinic: Path, capsys: pytest.CaptureFixture[str], column: str, declared: str, option: str
) -> None:
    """With both, the proposed policy would be invalid after its answer was charged."""
    rules = POLICY.replace("        type: integer\n", f"        type: integer\n        {declared}\n")
    clinic.with_suffix(".yaml").write_text(rules, encoding="utf-8")
    assert run("suggest", "visits", clinic, "-e", "2", option, column) == 1
    assert f"visits.{column} already has {declared.partition(':')[0]}" in capsys.readouterr().err
    with dpsql.connect(clinic, policy=clinic.with_suffix(".yaml")) as con:
        assert con.budget()["visits"].queries == 0


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_sample_of_each_type_makes_a_policy(kind: str) -> None:
    """So that whether a text can be edited is known before an answer is charged, whatever it proposes."""
    text = POLICY.replace("plan: {type: varchar}", f"plan: {{type: {kind}}}")
    edited = load(with_keys(text, "visits", {"plan": {"values": SAMPLES[kind]}}))
    assert tuple(edited.tables["visits"].columns["plan"].values or ()) == SAMPLES[kind]


def test_keys_and_bounded_columns_are_skipped_by_default() -> None:
    """Neither bounds nor values are proposed for the unit's column, for keys and for bounded columns."""
    columns = {
        "id": {"type": "varchar"},
        "x": {"type": "integer", "bounds": [0, 5]},
        "y": {"type": "varchar"},
    }
    tables = {"t": {"unit": "id", "rows_per_unit": 1, "columns": columns}}
    policy = load({"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": tables})
    assert [each.column for each in build_questions(policy, "T", {})[1]] == ["y"]
    assert [each.column for each in build_questions(policy, "t", {}, ["X"])[1]] == ["x"]
    for wrong in (("nope", ()), ("t", ("nope",))):
        with pytest.raises(dpsql.ProgrammingError):
            build_questions(policy, wrong[0], {}, wrong[1])


@pytest.mark.parametrize(
    ("low", "high", "limits", "whole", "found"),
    [
        (Fraction(3), Fraction(117), (Fraction(-1000), Fraction(1000)), True, (0, 120)),
        (Fraction(5), Fraction(5), (Fraction(-9), Fraction(9)), True, (5, 5)),
        (
            Fraction(-7, 8),
            Fraction(1, 8),
            (Fraction(-1), Fraction(1)),
            False,
            (Fraction(-9, 10), Fraction(1, 5)),
        ),
        (Fraction(0), Fraction(0), (Fraction(-1), Fraction(1)), False, (0, 0)),
        (Fraction(3), Fraction(117), (Fraction(2), Fraction(118)), True, (2, 118)),
        (date(1930, 5, 4), date(2009, 2, 3), FAR, False, (date(1930, 1, 1), date(2009, 12, 31))),
        (date(2024, 2, 4), date(2024, 2, 5), FAR, False, (date(2024, 2, 1), date(2024, 2, 29))),
        (
            datetime(2024, 12, 4, 5),
            datetime(2024, 12, 5, 6),
            (datetime(1, 1, 1), datetime(9999, 12, 31)),
            False,
            (datetime(2024, 12, 1), datetime(2024, 12, 31, 23, 59, 59)),
        ),
    ],
)
def test_round_numbers_lie_outside(
    low: Any, high: Any, limits: tuple[Any, Any], whole: bool, found: tuple[Any, Any]
) -> None:
    """Bounds in round numbers hold what was found, within what was declared."""
    assert round_outward(low, high, limits, whole=whole) == found
    assert found[0] <= low
    assert found[1] >= high


@pytest.mark.parametrize(
    "column",
    [
        "x: {type: double}",
        "x: {type: double, bounds: [0, 9]}  # wide",
        "x: {type: double, bounds: [0, 9], }",
        "x:\n        type: double",
        "x:\n        bounds:\n          - 0\n          - 9\n        type: double",
        "'x': {'type': double}",
    ],
)
def test_a_text_is_edited_in_place(column: str) -> None:
    """Whatever the layout, the key is there and all else as it was."""
    text = POLICY.replace("      plan:", f"      {column}\n      plan:")
    edited = with_keys(text, "visits", {"x": {"bounds": (Fraction(1), Fraction(5, 2))}}, ["by hand"])
    assert load(edited).tables["visits"].columns["x"].bounds == (1, Fraction(5, 2))
    assert edited.startswith("# by hand\nversion: 1\n")
    assert "# which plan" in edited
