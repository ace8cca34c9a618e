"""What a connection answers, charges and remembers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import clinic
import duckdb
import pytest
import yaml

import dpsql


def test_explain_charges_and_reads_nothing(con: dpsql.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXPLAIN, by method or by statement, shows the proof and the price without running the query."""
    monkeypatch.setattr(con.engine.backend, "run_statement", lambda _: pytest.fail("private data was read"))
    sql = "SELECT plan, AVG(cost) FROM visits WHERE days BETWEEN 1 AND 3 GROUP BY plan HAVING COUNT(*) > 10"
    text = str(con.explain(sql, epsilon=0.5))
    rows = con.execute(f"explain {sql}", epsilon=0.5).fetchall()
    assert "\n".join(str(row[0]) for row in rows) == text
    for part in (
        "[0, 1000]",
        "l1 sensitivity",
        "discrete gaussian",
        "half-width",
        "stability 1",
        "unit patient_id",
        "Price",
        "visits: ρ",
        'FROM "visits"',
        "HAVING",
    ):
        assert part in text
    assert con.budget()["visits"].queries == 0


def test_result_has_intervals_scales_and_a_receipt(con: dpsql.Connection) -> None:
    """Every aggregate has a scale and an interval around it, what is derived an interval; the receipt is JSON."""
    result = con.query(
        "SELECT plan, COUNT(*), SUM(cost), AVG(cost), AVG(cost) * COUNT(*) FROM visits GROUP BY 1", epsilon=1
    )
    for row, scales, intervals in zip(result.rows, result.scales, result.intervals(0.9), strict=True):
        assert scales[0] is None
        assert intervals[0] is None
        for value, scale, ends in list(zip(row, scales, intervals, strict=True))[1:4]:
            assert scale is not None
            assert scale > 0
            assert ends is not None
            assert ends[0] <= value <= ends[1]  # type: ignore[operator]
        assert scales[4] is None
        assert intervals[4] is not None
    receipt = json.loads(result.receipt.to_json())
    assert receipt["entries"][0]["table"] == "visits"
    assert receipt["loss"]["type"] == "gaussian"
    assert receipt["versions"]["duckdb"] == duckdb.__version__
    assert len(receipt["plan"]) == 64


def test_wider_confidence_gives_wider_intervals(con: dpsql.Connection) -> None:
    """An interval grows with its confidence, and a confidence outside (0, 1) is refused."""
    result = con.query("SELECT COUNT(*), AVG(cost) FROM visits", epsilon=1)
    for narrow, wide in zip(result.intervals(0.5)[0], result.intervals(0.99)[0], strict=True):
        assert narrow is not None
        assert wide is not None
        assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    with pytest.raises(dpsql.DataError):
        result.intervals(1.0)


def test_post_processing_is_free_and_right(con: dpsql.Connection) -> None:
    """Arithmetic, HAVING, ORDER BY and LIMIT act on released values, and cost nothing more."""
    plain = con.query("SELECT plan, COUNT(*) FROM visits GROUP BY plan", epsilon=0.5)
    rich = con.query(
        "SELECT plan, COUNT(*) AS n, COUNT(*) * 2 + 1 AS m FROM visits GROUP BY plan HAVING n > 5 "
        "ORDER BY m DESC, plan LIMIT 1",
        epsilon=0.5,
    )
    assert (plain.receipt.replayed, rich.receipt.replayed, rich.receipt.loss) == ((), (1,), None)
    ((plan, count, derived),) = rich.rows
    assert (plan, count) in plain.rows
    assert derived == count * 2 + 1  # type: ignore[operator]


def test_a_list_of_public_keys_is_free(con: dpsql.Connection) -> None:
    """Keys of a declared domain are known already: they are answered without a charge or a read."""
    result = con.query("SELECT plan FROM visits GROUP BY plan", epsilon=1)
    assert result.rows == (("A",), ("B",))
    assert con.budget()["visits"].queries == 0


def test_unknown_keys_pass_a_threshold(con: dpsql.Connection) -> None:
    """Large groups of undeclared keys are shown; a group of one unit is not."""
    result = con.query("SELECT ward, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward", epsilon=2)
    assert [row[0] for row in result.rows] == ["north", "south"]
    lonely = con.query("SELECT cost, COUNT(*) FROM visits WHERE cost > 498 GROUP BY cost", epsilon=1)
    assert lonely.rows == ()


def test_min_frequency_is_strict() -> None:
    """A group behind which fewer units stand than the owner asks for is never shown."""
    tables = clinic.POLICY["tables"]
    policy = {**clinic.POLICY, "tables": {**tables, "visits": {**tables["visits"], "min_frequency": 150}}}
    with dpsql.connect(clinic.database(), policy=policy, ledger=":memory:", epsilon=2) as con:
        assert con.query("SELECT plan, COUNT(*) FROM visits GROUP BY plan").rows == ()
        assert len(con.query("SELECT ward, COUNT(*) FROM visits GROUP BY ward").rows) == 2


def test_the_budget_ends(con: dpsql.Connection) -> None:
    """Over the budget: BudgetExhausted says what is left, nothing is read, nothing is charged."""
    sql = "SELECT COUNT(*) FROM visits"
    while con.budget()["visits"].remaining_epsilon >= 1:
        con.query(sql, epsilon=1, replay=False)
    with pytest.raises(dpsql.BudgetExhausted, match="left"):
        con.query(sql, epsilon=1, replay=False)
    before = con.budget()["visits"]
    with pytest.raises(dpsql.BudgetExhausted):
        con.query(sql, epsilon=1, replay=False)
    assert con.budget()["visits"] == before
    assert con.query(sql, epsilon=0.01).rows


def test_the_cap_of_a_query(con: dpsql.Connection) -> None:
    """A query over the policy's max_epsilon is refused before it is charged."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.query("SELECT COUNT(*) FROM visits", epsilon=2.01)
    assert caught.value.code == "epsilon_cap"


def test_the_next_process_finds_the_budget(tmp_path: Path) -> None:
    """The ledger lies beside the policy and is found again with all that was spent."""
    rules = tmp_path / "clinic.yaml"
    rules.write_text(yaml.safe_dump(clinic.POLICY))
    with dpsql.connect(clinic.database(), policy=rules, epsilon=1) as con:
        con.query("SELECT COUNT(*) FROM visits")
        spent = con.budget()["visits"].spent
    assert (tmp_path / "clinic.ledger").exists()
    with dpsql.connect(clinic.database(), policy=rules) as con:
        assert con.budget()["visits"].spent == spent


def test_errors_teach(con: dpsql.Connection) -> None:
    """An error names the place, the reason and the way out."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.query("SELECT COUNT(*)\nFROM visits WHERE cots > 5", epsilon=1)
    assert str(caught.value) == (
        "there is no column cots (line 2, column 19)\n"
        "  FROM visits WHERE cots > 5\n"
        "                    ^\n"
        "hint: did you mean cost?"
    )


@pytest.mark.parametrize(
    ("database", "policy", "error"),
    [
        ("nowhere.duckdb", clinic.POLICY, dpsql.OperationalError),
        (42, clinic.POLICY, dpsql.ProgrammingError),
        ({"visits": 42}, clinic.POLICY, dpsql.ProgrammingError),
        ({}, clinic.POLICY, dpsql.PolicyError),
        ({}, "nowhere.yaml", dpsql.PolicyError),
    ],
)
def test_connect_refuses_clearly(database: Any, policy: Any, error: type[Exception]) -> None:
    """What cannot be connected to is an error of dpsql's own."""
    with pytest.raises(error):
        dpsql.connect(database, policy=policy, ledger=":memory:")


def test_a_policy_without_a_path_needs_a_ledger() -> None:
    """A policy without a path has no ledger beside it, so one must be named."""
    with pytest.raises(dpsql.ProgrammingError, match="no ledger given"):
        dpsql.connect(clinic.database(), policy=clinic.POLICY)


def test_a_policy_must_fit_the_database() -> None:
    """A declared table or column that is not there, or of another type, is a PolicyError."""
    for columns in (
        {"nothing": {"type": "double"}},
        {"plan": {"type": "double"}},
        {"cost": {"type": "date"}},
    ):
        table = {"unit": "patient_id", "rows_per_unit": 1, "columns": columns}
        with pytest.raises(dpsql.PolicyError):
            dpsql.connect(
                clinic.database(), policy={**clinic.POLICY, "tables": {"visits": table}}, ledger=":memory:"
            )
    table = {"unit": "nobody", "rows_per_unit": 1, "columns": {}}
    with pytest.raises(dpsql.PolicyError):
        dpsql.connect(
            clinic.database(), policy={**clinic.POLICY, "tables": {"visits": table}}, ledger=":memory:"
        )


def test_max_groups_of_a_query(con: dpsql.Connection) -> None:
    """A query may lower the number of groups of a unit that count, which lowers the noise on units."""
    sql = "SELECT ward, COUNT(DISTINCT patient_id) AS units FROM visits GROUP BY ward"
    many = con.query(sql, epsilon=0.3).scales[0][1]
    one = con.query(sql, epsilon=0.3, max_groups=1).scales[0][1]
    assert many is not None
    assert one is not None
    assert one < many


FRAMES: dict[str, Callable[..., Any]] = {
    "pandas": lambda of, **options: of.df(**options).to_dict("list"),
    "polars": lambda of, **options: of.pl(**options).to_dict(as_series=False),
    "Arrow": lambda of, **options: of.to_arrow_table(**options).to_pydict(),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_frames_have_interval_columns_after_noisy_columns(
    con: dpsql.Connection, frame: Callable[..., Any]
) -> None:
    """Both ends follow each column that has intervals, derived ones too, and no other column."""
    sql = "SELECT plan, COUNT(*) AS n, SUM(cost) / COUNT(*) AS mean, n > 5 AS many FROM visits GROUP BY plan"
    result = con.query(sql, epsilon=1)
    found = frame(result, intervals=True, confidence=0.8)
    assert list(found) == ["plan", "n", "n_low", "n_high", "mean", "mean_low", "mean_high", "many"]
    for name, place in (("n", 1), ("mean", 2)):
        ends = [row[place] for row in result.intervals(0.8)]
        assert list(zip(found[f"{name}_low"], found[f"{name}_high"], strict=True)) == ends
    assert list(frame(result)) == list(result.columns)
    assert list(frame(con.execute(sql, epsilon=1), intervals=True)) == list(found)


def test_interval_columns_depend_on_the_query_only(con: dpsql.Connection) -> None:
    """An answer without rows, or with NULL, has the same columns and types as one with all values."""
    sql = "SELECT plan, STDDEV(cost) AS s FROM visits {} GROUP BY plan {}"
    full, nothing, nobody = (
        con.query(sql.format(*parts), epsilon=0.1).df(intervals=True).dtypes.to_dict()
        for parts in (("", ""), ("", "HAVING COUNT(*) < -1000000"), ("WHERE cost > 999", ""))
    )
    assert list(full) == ["plan", "s", "s_low", "s_high"]
    assert full == nothing == nobody


def test_a_column_in_the_place_of_an_end_is_refused(con: dpsql.Connection) -> None:
    """Where a column has the name that an end would get, frames with intervals are refused, others not."""
    result = con.query("SELECT COUNT(*) AS n, SUM(cost) AS n_low FROM visits", epsilon=1)
    with pytest.raises(dpsql.DataError, match="n_low"):
        result.df(intervals=True)
    assert list(result.df()) == ["n", "n_low"]


def test_only_counts_are_displayed_as_at_least_zero(con: dpsql.Connection) -> None:
    """Negative noisy counts are displayed as 0; negative sums and computed values are not changed."""
    result = con.query(
        "SELECT COUNT(*) AS a, COUNT(cost) AS b, COUNT(DISTINCT patient_id) AS c, COUNT(DISTINCT days) AS d, "
        "SUM(days) AS e, COUNT(*) - 1 AS f, AVG(cost) AS g FROM visits",
        epsilon=1,
    )
    below = replace(result, rows=((-1, -2, -3, -4, -5, -6, -7.5),))
    assert below.displayed == ((0, 0, 0, 0, -5, -6, -7.5),)
    assert below.rows[0][0] == -1
    union = con.query("SELECT COUNT(*) FROM visits UNION ALL SELECT SUM(days) FROM visits", epsilon=1)
    assert replace(union, rows=((-1,), (-1,))).displayed == ((-1,), (-1,))
