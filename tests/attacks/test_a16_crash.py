"""A16: a process killed at any step leaves a ledger that has every charge it was told of."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from dying import dying_at, heard_from, listening
from sqlalchemy import Connection, Engine, event

from dpsql.ledger import AnchorFile, Budget, Ledger, open_ledger
from dpsql.privacy.accounting import Event, Pure

# The test runner's own threads are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

BUDGETS = {
    "patients": Budget("pure", Fraction(100), Fraction(0)),
    "visits": Budget("zcdp", Fraction(100), Fraction(1, 10**6)),
}
CHARGES: dict[str, Event] = {table: Pure(Fraction(1, 100)) for table in BUDGETS}
Charging = Callable[[Ledger, Callable[[], None]], None]


def charge(ledger: Ledger) -> list[int]:
    """Charges both tables once; the ids of the entries."""
    return [entry.id for entry in ledger.charge(CHARGES, analyst="ana", query="SELECT 1")]


def kept(ledger: Ledger) -> list[int]:
    """The ids in the ledger, whose chain was checked as it was opened: pairs, and totals that add up."""
    entries = ledger.list_entries()
    ids = [entry.id for entry in entries]
    assert ids == list(range(1, len(ids) + 1))
    assert [entry.table for entry in entries] == ["patients", "visits"] * (len(ids) // 2)
    for state in ledger.list_states():
        mine = [entry for entry in entries if entry.table == state.table]
        assert state.queries == len(mine)
        assert state.spent.loss == sum(entry.spend.loss for entry in mine)
    return ids


def charge_then_report(ledger: Ledger, tell: Callable[[], None]) -> None:
    """What an engine does: nothing is said before the charge has returned."""
    charge(ledger)
    tell()


def report_while_committing(ledger: Ledger, tell: Callable[[], None]) -> None:
    """A naive engine: the answer is out when the ledger begins to commit."""

    def early(_connection: Connection) -> None:
        tell()

    event.listen(Engine, "commit", early)
    charge(ledger)


@dataclass(frozen=True, slots=True)
class Death:
    """One process: whether it was killed, had told of its charge, and left it in the ledger and the anchor."""

    killed: bool
    reported: bool
    charged: bool
    anchored: bool


def killed_at(step: int, folder: Path, *, begun: bool, anchored: bool, charging: Charging) -> Death:
    """Kills a process at one step of a charge and looks at what it left, which must be whole.

    With `begun` the ledger has entries and is open before the fork, else the process makes it.
    """
    path, anchor = folder / f"{step}.ledger", folder / f"{step}.anchor" if anchored else None
    opened = open_ledger(path, BUDGETS, anchor=anchor) if begun else None
    before = len(charge(opened)) if opened else 0

    def child(tell: int) -> None:
        with listening(dying_at(step)):
            ledger = opened or open_ledger(path, BUDGETS, anchor=anchor)
            charging(ledger, lambda: os.write(tell, b"!"))

    killed, reported = heard_from(child)
    head = AnchorFile(anchor).read_head() if anchor else None
    after = open_ledger(path, BUDGETS, anchor=anchor)
    ids = kept(after)
    assert len(ids) in (before, before + 2)
    assert head is None or head.entries in (before, len(ids))
    assert charge(after) == [len(ids) + 1, len(ids) + 2]
    after.close()
    return Death(killed, reported == b"!", len(ids) > before, head is not None and head.entries > before)


def deaths(
    folder: Path, *, begun: bool, anchored: bool = False, charging: Charging = charge_then_report
) -> list[Death]:
    """Kills a process at each step, one further each time, until one lives to the end."""
    found: list[Death] = []
    while not found or found[-1].killed:
        step = len(found) + 1
        found.append(killed_at(step, folder, begun=begun, anchored=anchored, charging=charging))
    return found


@pytest.mark.parametrize("begun", [False, True], ids=["new", "existing"])
def test_charge_is_atomic_when_killed_at_any_step(tmp_path: Path, *, begun: bool) -> None:
    """Before and after each statement, commit and close: all or none of the charge, and none lost."""
    found = deaths(tmp_path, begun=begun)
    assert {(death.killed, death.reported, death.charged) for death in found} == {
        (True, False, False),
        (True, False, True),
        (True, True, True),
        (False, True, True),
    }


@pytest.mark.parametrize("begun", [False, True], ids=["new", "existing"])
def test_anchor_is_consistent_when_killed_at_any_step(tmp_path: Path, *, begun: bool) -> None:
    """The anchor is never ahead of the ledger, at most one charge behind, and holds each reported charge."""
    found = deaths(tmp_path, begun=begun, anchored=True)
    assert {(death.charged, death.anchored, death.reported) for death in found} == {
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    }


def test_reporting_before_the_commit_is_observable(tmp_path: Path) -> None:
    """The attack works on a naive engine: killed between report and commit, it leaves no charge."""
    found = deaths(tmp_path, begun=True, charging=report_while_committing)
    assert any(death.reported and not death.charged for death in found)


def test_reported_charges_survive_a_kill_at_any_moment(tmp_path: Path) -> None:
    """When a process is killed in a stream of charges, each reported charge is kept, and one more at most."""
    path = tmp_path / "a.ledger"

    def stream(tell: int) -> None:
        ledger = open_ledger(path, BUDGETS)
        while True:
            os.write(tell, b"".join(b"%d\n" % entry for entry in charge(ledger)))

    reported_before = 0
    for patience in (0.0, 0.003, 0.007, 0.011, 0.02) * 2:
        _, heard = heard_from(stream, patience)
        reported = [int(line) for line in heard.split()]
        ids = kept(open_ledger(path, BUDGETS))
        assert reported == list(range(reported_before + 1, reported_before + len(reported) + 1))
        assert reported[-1] <= len(ids) <= reported[-1] + 3
        reported_before = len(ids)
