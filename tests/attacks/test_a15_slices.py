"""A15: however many processes spend from one slice, and give it back, it is spent once and given back once."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from attacks.test_a15_double_spend import PROCESSES, race

from dpsql.errors import BudgetExhausted, OperationalError
from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.privacy.accounting import Pure

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

BUDGETS = {"visits": Budget("pure", Fraction(1), Fraction(0))}
EACH, HALF = Fraction(1, 128), Fraction(1, 2)


def drawn(ledger: Ledger, number: int, most: int) -> int:
    """Spends from a slice until that is refused, or so often; how often it was let through."""
    for passed in range(most):
        try:
            ledger.charge({"visits": Pure(EACH)}, analyst="ana", query="SELECT 1", reservation=number)
        except (BudgetExhausted, OperationalError):
            return passed
    return most


def test_processes_spend_exactly_the_slice(tmp_path: Path) -> None:
    """Their charges add up to the slice, while others spend the rest of the table."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        number = ledger.reserve({"visits": Pure(HALF)}, analyst="ana")[0].id

    def worker(place: int) -> tuple[bool, int]:
        with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
            if place % 2:
                return True, drawn(ledger, number, 1000)
            passed = 0
            while True:
                try:
                    ledger.charge({"visits": Pure(EACH)}, analyst="bob", query="SELECT 1")
                except BudgetExhausted:
                    return False, passed
                passed += 1

    passed = Counter[bool]()
    for within, times in race(worker):
        passed[within] += times
    assert passed == {True: 64, False: 64}
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        assert [entry.spend.loss for entry in ledger.close_reservation(number, by="ana")] == [0]
        assert ledger.get_state("visits").spent == ledger.get_state("visits").limit
        ledger.verify()


def test_returned_slice_is_refunded_once(tmp_path: Path) -> None:
    """One return wins; what was let through before it stays spent to the last, and nothing is after it."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        numbers = [ledger.reserve({"visits": Pure(Fraction(1, 8))}, analyst="ana")[0].id for _ in range(8)]

    def worker(place: int) -> tuple[int, int]:
        with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
            passed = returned = 0
            for number in numbers:
                passed += drawn(ledger, number, place % 4)
                returned += len(ledger.close_reservation(number, by="ana"))
            return passed, returned

    ends = race(worker)
    assert len(ends) == PROCESSES
    assert sum(returned for _, returned in ends) == len(numbers)
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        assert ledger.get_state("visits").spent.loss_fraction == EACH * sum(passed for passed, _ in ends)
        assert ledger.list_reservations() == ()
        ledger.verify()
