"""Owners see from the command line what their budgets promise, and begin one anew."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from interfaces.cli.conftest import Run

POLICY = """version: 1
privacy_unit: visit
neighbors: {neighbors}
budget: {{epsilon: 1, renew: monthly}}
per_analyst: {{epsilon: 0.5}}
tables:
  v:
    unit: row
    partition: [day, cost]
    columns:
      day: {{type: date, bounds: [2024-01-01, 2024-12-31]}}
      cost: {{type: double, bounds: [0, 9]}}
"""


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """A database of a hundred visits, its policy beside it."""
    path = tmp_path / "v.duckdb"
    with duckdb.connect(path) as database:
        database.execute(
            "CREATE TABLE v AS SELECT DATE '2024-01-01' + CAST(range AS INTEGER) AS day, 1.5 AS cost FROM range(100)"
        )
    path.with_suffix(".yaml").write_text(POLICY.format(neighbors="add_remove"))
    return path


def test_check_warns_of_weak_budgets_and_uncharged_partitions(run: Run, visits: Path) -> None:
    """check warns of renewal, of analysts' budgets and of partitions that cannot be charged separately."""
    policy = visits.with_suffix(".yaml")
    said = run("check", policy).out
    assert (
        "v: the budget renews (monthly), so the guarantee is ε 1 for each period, and n times that over n periods"
        in said
    )
    assert (
        "an analyst's budget bounds the loss to that analyst alone; the tables' budgets bound the loss to all analysts together"
        in said
    )
    assert (
        "v.cost: declare values or bounds of whole numbers, or its partitions are not charged separately"
        in said
    )
    assert "v.day:" not in said
    policy.write_text(POLICY.format(neighbors="replace"))
    assert (
        "v: with neighbors: replace, a unit may move between partitions, so partitions are not charged separately"
        in run("check", policy).out
    )


def test_budget_shows_a_reset_with_author_and_reason(run: Run, visits: Path) -> None:
    """`ledger reset` records author and reason; `budget` shows both, and the remaining budget."""
    policy, ledger = visits.with_suffix(".yaml"), visits.with_suffix(".ledger")
    month = "SELECT COUNT(*) AS n FROM v WHERE date_trunc('month', day) = DATE '2024-0{}-01'"
    for number in (1, 2, 3):
        ran = run("query", visits, month.format(number), "-e", "0.5", "--analyst", "ana")
        assert "charged to v: ε 0.5; 50% left, at most ε 0.5 in one query" in ran.out
        assert "charged to v for ana: ε 0.5; 0% left" in ran.out
    price = (
        "v for ana, only day 2024-01-01 to 2024-01-31: ε = 0.5 and δ = 0, as for ε = 0.5; left ε = 0; REFUSED"
    )
    assert price in run("explain", visits, month.format(1), "-e", "0.5", "--analyst", "ana", "--fresh").out
    for analyst, whose in (([], "v"), (["--analyst", "ana"], "v for ana")):
        ran = run(
            "ledger",
            "reset",
            ledger,
            "-p",
            policy,
            "--table",
            "V",
            "--reason",
            "a second\nwave",
            "--by",
            "olga",
            *analyst,
        )
        assert f"reset the budget of {whose}: entry" in ran.out
        assert "the guarantees before and after the reset add up" in ran.out
    assert run("query", visits, month.format(1), "-e", "0.5", "--analyst", "ana").code == 0
    shown = run("budget", "-p", policy).out
    assert "v, monthly (" in shown
    assert "v was reset on " in shown
    assert "v for ana was reset on " in shown
    assert " by olga: a second" in shown
    assert run("ledger", "verify", ledger).code == 0


def test_budgets_are_amended_to_the_policy(run: Run, visits: Path) -> None:
    """`ledger amend` brings the ledger to an edited policy: refused before, agreed after; receipts of before stay good."""
    policy, ledger = visits.with_suffix(".yaml"), visits.with_suffix(".ledger")
    asked = ("query", visits, "SELECT COUNT(*) AS n FROM v", "-e", "0.5", "--analyst", "ana", "--fresh")
    receipt = json.loads(run(*asked, "--format", "json").out)["receipt"]
    amend = ("ledger", "amend", ledger, "-p", policy, "--by", "olga", "--reason", "a second\nwave")
    assert "error[amend_nothing]" in run(*amend).err
    policy.write_text(POLICY.format(neighbors="add_remove").replace("epsilon: 1", "epsilon: 2"))
    refused = run(*asked)
    assert (refused.code, "dpsql ledger amend" in refused.err) == (1, True)
    text = policy.read_text().replace("epsilon: 0.5", "epsilon: 0.75")
    policy.write_text(text)
    ran = run(*amend)
    assert ran.out.splitlines() == [
        (
            "the budget of v was epsilon 1, delta 0, accountant pure, renewed monthly; "
            "it is now epsilon 2, delta 0, accountant pure, renewed monthly: entry 3 of the ledger"
        ),
        (
            "the budget of v for ana was epsilon 1/2, delta 0, accountant pure, renewed monthly; "
            "it is now epsilon 3/4, delta 0, accountant pure, renewed monthly: entry 4 of the ledger"
        ),
        "spent budget stays spent: the new budget bounds all answers together, earlier ones included",
    ]
    assert "error[amend_nothing]" in run(*amend).err
    assert run(*asked).code == 4
    assert run(*asked[:4], "0.25", *asked[5:]).code == 0
    said = run("budget", "-p", policy).out
    assert "v was amended on " in said
    assert " by olga: a second\\nwave" in said
    assert run("ledger", "verify", ledger).code == 0
    assert run("ledger", "show", ledger, "--kind", "amend").out.count("amend") >= 2
    assert run("receipt", "verify", "-", "--ledger", ledger, stdin=json.dumps(receipt)).code == 0
    assert run("report", ledger, "-o", visits.with_suffix(".html")).code == 0
    assert "<td>amend</td>" in visits.with_suffix(".html").read_text()
    policy.write_text(text.replace("epsilon: 2", "epsilon: 0.5"))
    assert "error[amend_spent]" in run(*amend).err


def test_resets_that_cannot_be_are_refused(run: Run, visits: Path) -> None:
    """No ledger, no such table, no reason: an error, and no new ledger."""
    policy, ledger = visits.with_suffix(".yaml"), visits.with_suffix(".ledger")
    asked = ("ledger", "reset", ledger, "-p", policy)
    assert "does not exist" in run(*asked, "--table", "v", "--reason", "why").err
    assert not ledger.exists()
    assert run("query", visits, "SELECT COUNT(*) FROM v", "-e", "0.5").code == 0
    assert "error[no_budget]" in run(*asked, "--table", "w", "--reason", "why").err
    assert "error[reset_reason]" in run(*asked, "--table", "v", "--reason", " ").err


def test_budgets_of_several_policies_and_all_analysts(run: Run, visits: Path, tmp_path: Path) -> None:
    """Each policy under its name, also one that was not asked yet; an analyst without a line in the policy is listed."""
    policy, other = visits.with_suffix(".yaml"), tmp_path / "other.yaml"
    other.write_text(POLICY.format(neighbors="replace"), encoding="utf-8")
    assert run("query", visits, "SELECT COUNT(*) FROM v", "-e", 0.1, "--analyst", "eve").code == 0
    alone = run("budget", policy)
    assert (alone.code, alone.out) == (0, run("budget", "--policy", policy).out)
    assert any(line.startswith("v for eve,") for line in alone.out.splitlines())
    both = run("budget", policy, other)
    assert both.code == 0
    assert both.out.startswith(f"{policy}\n")
    assert f"\n\n{other}\n" in both.out
    assert f"{other.with_suffix('.ledger')} does not exist" in both.out
    assert not other.with_suffix(".ledger").exists()
    for arguments in ((), (policy, other, "--ledger", tmp_path / "x.ledger")):
        ran = run("budget", *arguments)
        assert (ran.code, "error[argument]" in ran.err) == (1, True)


SHARED = """version: 1
privacy_unit: patient
budget: {epsilon: 3, delta: 1e-7, shared: true}
tables:
  patients: {unit: id, rows_per_unit: 1, columns: {age: {type: integer, bounds: [0, 110]}}}
  visits: {link: {column: patient, references: patients.id}, rows_per_unit: 5}
"""


def test_owners_see_and_reset_a_shared_budget_by_any_of_its_tables(run: Run, tmp_path: Path) -> None:
    """check, budget and ledger reset speak of one budget for all tables."""
    path, policy = tmp_path / "c.duckdb", tmp_path / "c.yaml"
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE patients AS SELECT range AS id, 40 AS age FROM range(9)")
        database.execute("CREATE TABLE visits AS SELECT range % 9 AS patient FROM range(20)")
    policy.write_text(SHARED)
    checked = " ".join(run("check", policy, path).out.split())
    assert "the budget that patients and visits share holds 30 questions at ε 0.1" in checked
    assert "zcdp, shared" in checked
    query = "SELECT COUNT(*) FROM visits JOIN patients ON patient = id"
    answer = run("query", path, query, "--policy", policy, "-e", "0.1")
    assert "charged to shared budget: ε 0.1" in answer.out + answer.err
    assert "shared budget" in run("budget", "--policy", policy).out
    ledger = path.with_suffix(".ledger")
    done = run("ledger", "reset", ledger, "--policy", policy, "--table", "Visits", "--reason", "new data")
    assert "reset the budget of all tables: entry 2" in done.out
    assert "shared budget was reset on" in run("budget", "--policy", policy).out


def test_init_proposes_a_shared_budget_for_several_tables(run: Run, tmp_path: Path) -> None:
    """One table has nobody to share with, and rows that are units have no ids."""
    path = tmp_path / "c.duckdb"
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE patients (id INTEGER, age INTEGER)")
    assert "\n  shared: true" not in run("init", path, "--output", "-").out
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE visits (patient INTEGER)")
    assert "\n  delta: TODO\n  shared: true\n" in run("init", path, "--output", "-").out
    metadata = tmp_path / "schema.yml"
    metadata.write_text("models: [{name: visits, config: {meta: {dpsql: {unit: row}}}}]")
    assert "\n  shared: true" not in run("init", path, "--from", metadata, "--output", "-").out
