"""A16: a process killed at any step of reserving, spending and giving back leaves no more to spend than there was."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from dying import dying_at, heard_from, listening

from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.privacy.accounting import Pure

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

BUDGETS = {name: Budget("pure", Fraction(1), Fraction(0)) for name in ("patients", "visits")}
HALF, EIGHTH = Fraction(1, 2), Fraction(1, 8)


def session(ledger: Ledger, tell: Callable[[bytes], object]) -> None:
    """Reserves of both tables, asks once of one, gives back; each is told of when it has returned."""
    number = ledger.reserve(dict.fromkeys(BUDGETS, Pure(HALF)), analyst="ana")[0].id
    tell(b"r")
    ledger.charge({"visits": Pure(EIGHTH)}, analyst="ana", query="SELECT 1", reservation=number)
    tell(b"d")
    ledger.close_reservation(number, by="ana")
    tell(b"g")


def test_reported_slices_survive_a_kill_at_any_step(tmp_path: Path) -> None:
    """Reported slices are whole; another process closes an open one once; the answer stays paid for."""
    ends, killed, step = set[tuple[str, int]](), True, 0
    while killed:
        step += 1
        path = tmp_path / f"{step}.ledger"
        ledger = open_ledger(path, BUDGETS)

        def child(tell: int, opened: Ledger = ledger, at: int = step) -> None:
            with listening(dying_at(at)):
                session(opened, lambda word: os.write(tell, word))

        killed, reported = heard_from(child)
        ledger.close()
        with closing(open_ledger(path, BUDGETS)) as after:
            after.verify()
            kinds = [entry.kind for entry in after.list_entries()]
            assert kinds == ["reserve", "reserve", "draw", "return", "return"][: len(kinds)]
            assert len(kinds) >= {b"": 0, b"r": 2, b"rd": 3, b"rdg": 5}[reported]
            assert len(kinds) in (0, 2, 3, 5)
            spent = [state.spent.loss_fraction for state in after.list_states()]
            assert spent == {0: [0, 0], 2: [HALF, HALF], 3: [HALF, HALF], 5: [0, EIGHTH]}[len(kinds)]
            after.close_reservation(1, by="olga")
            assert after.close_reservation(1, by="olga") == ()
            requested = EIGHTH if "draw" in kinds else 0
            assert [state.spent.loss_fraction for state in after.list_states()] == [0, requested]
        ends.add((reported.decode(), len(kinds)))
    assert ends == {("", 0), ("", 2), ("r", 2), ("r", 3), ("rd", 3), ("rd", 5), ("rdg", 5)}
