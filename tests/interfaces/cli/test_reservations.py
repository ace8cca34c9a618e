"""Reservations from the command line: made for a session, listed, shown, and given back."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from interfaces.cli.conftest import Run

from dpsql.engine.budgets import collect_budgets
from dpsql.ledger import open_ledger
from dpsql.policy import load
from dpsql.privacy.accounting import Pure

COUNT = "SELECT COUNT(DISTINCT patient_id) AS n FROM visits;"


def test_a_shell_reserves_for_its_queries(run: Run, study: Path) -> None:
    """They are charged to the reservation, which ends with the shell; one that does not fit opens none."""
    ran = run("shell", study, "-e", "0.5", "--reserve", "2", stdin=COUNT)
    assert (ran.code, "charged to reservation 1 of visits: ε 0.5" in ran.out) == (0, True)
    rows = [
        json.loads(line) for line in run("ledger", "export", study.with_suffix(".ledger")).out.splitlines()
    ]
    assert [row["kind"] for row in rows] == ["reserve", "draw", "return"]
    assert (
        "error[budget_exhausted]: the reservation needs"
        in run("shell", study, "--reserve", "90", stdin=COUNT).err
    )


def test_an_owner_returns_an_abandoned_reservation(run: Run, study: Path) -> None:
    """No policy is needed; a second return is refused, and the chain stays valid."""
    policy, path = study.with_suffix(".yaml"), study.with_suffix(".ledger")
    ledger = open_ledger(path, collect_budgets(load(policy)))
    number = ledger.reserve({"visits": Pure(Fraction(10))}, analyst="ana")[0].id
    ledger.close()
    assert "reservation 1 of visits is held by ana: 100% left" in run("budget", "-p", policy).out
    assert "open reservations: 1" in run("ledger", "verify", path).out
    ran = run("ledger", "return", path, "--reservation", number, "--by", "olga")
    assert (ran.code, "entry 2 of the ledger" in ran.out) == (0, True)
    assert (
        "error[slice_closed]: no open reservation has the number 1"
        in run("ledger", "return", path, "--reservation", number).err
    )
    assert "is held by" not in run("budget", "-p", policy).out
    shown = run("ledger", "show", path).out
    assert all(kind in shown for kind in ("reserve 1", "return 1", "olga"))
    assert run("ledger", "verify", path).code == 0


def test_a_return_needs_the_number_of_a_reservation(run: Run, study: Path) -> None:
    """Without it there is nothing to end."""
    path = study.with_suffix(".ledger")
    open_ledger(path, collect_budgets(load(study.with_suffix(".yaml")))).close()
    missing = run("ledger", "return", path)
    assert missing.code != 0
    assert "--reservation" in missing.err
