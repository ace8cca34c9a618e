"""What owners see of queries that failed while they ran, and how they open a table again."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path

from interfaces.cli.conftest import Run

from dpsql.engine.budgets import collect_budgets
from dpsql.ledger import open_ledger
from dpsql.policy import load
from dpsql.privacy.accounting import Pure


def failed(policy: Path, ledger: Path, table: str, times: int) -> None:
    """Notes failures of a charge."""
    with closing(open_ledger(ledger, collect_budgets(load(policy)))) as book:
        (entry, *_) = book.charge({table: Pure(Fraction(1, 100))}, analyst="ana", query="SELECT 1")
        for _ in range(times):
            book.record_failure([table], entry, analyst="ana", query="SELECT 1", code="backend")


def test_a_lock_is_shown_and_opened(run: Run, study: Path) -> None:
    """By budget, check and show; unlock wants a reason, keeps it, and finds the table whatever its case."""
    policy, ledger = study.with_suffix(".yaml"), study.with_suffix(".ledger")
    table = load(policy).list_private_tables()[0]
    assert "failed" not in run("budget", "--policy", policy).out
    failed(policy, ledger, table, 2)
    one = (
        f"{table}: 2 queries have failed while running; dpsql ledger show {ledger} --kind failure lists them"
    )
    for command in (("budget", "--policy", policy), ("check", policy)):
        assert run(*command).out.splitlines()[-1] == one
    failed(policy, ledger, table, 1)
    assert "3: locked" in run("budget", "--policy", policy).out
    assert (
        f"locked; unlock it with: dpsql ledger unlock {ledger} {table} --reason" in run("check", policy).out
    )
    assert run("ledger", "show", ledger, "--kind", "failure").out.count("failure") == 3
    assert run("ledger", "unlock", ledger, table).code != 0
    assert "error[unlock_reason]" in run("ledger", "unlock", ledger, table, "--reason", " ").err
    assert "error[no_budget]" in run("ledger", "unlock", ledger, "nowhere", "--reason", "why").err
    done = run("ledger", "unlock", ledger, table.upper(), "--reason", "mended", "--by", "olga")
    assert done.out == f"unlocked the table {table} after 3 failures: entry 6 of the ledger\n"
    said = run("budget", "--policy", policy).out
    assert "failed" not in said
    assert f"{table} was unlocked on " in said
    assert "by olga: mended" in said


def test_check_reports_a_ledger_with_a_key_as_unchecked(run: Run, study: Path, tmp_path: Path) -> None:
    """A ledger with a key is reported as not checked, not skipped silently."""
    policy, key = study.with_suffix(".yaml"), tmp_path / "key"
    key.write_text("a secret of the owner's, long enough")
    with closing(open_ledger(study.with_suffix(".ledger"), collect_budgets(load(policy)), key=key)):
        pass
    assert "its ledger was not checked: " in run("check", policy).out
    assert "not looked at" not in run("check", policy, "--ledger-key", key).out
