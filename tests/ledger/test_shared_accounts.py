"""A ledger has one budget that all tables share or a budget for each table, from its first use on."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import OperationalError, PolicyError
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.policy.names import SHARED_ACCOUNT
from dpsql.privacy.accounting.events import Pure

OWN = Budget("pure", Fraction(2), Fraction(0))


@pytest.mark.parametrize("analyst", ["", "ana"])
@pytest.mark.parametrize("names", [("visits", SHARED_ACCOUNT), (SHARED_ACCOUNT, "visits")])
def test_a_ledger_never_changes_between_shared_and_separate_budgets(
    tmp_path: Path, names: tuple[str, str], analyst: str
) -> None:
    """What was charged to one kind would be missing in the other; nothing is stored by the refused opening."""
    first, second = names
    target = tmp_path / "a.ledger"
    with closing(open_ledger(target, {first: OWN})) as book:
        book.charge({first: Pure(Fraction(2))}, analyst="ana", query="q")
    other = {AccountKey(second): OWN, AccountKey(second, analyst): OWN}
    with pytest.raises(PolicyError) as refused:
        open_ledger(target, other)
    assert refused.value.code == "budget_changed"
    assert "begin a new ledger" in (refused.value.hint or "")
    with closing(open_ledger(target, {first: OWN})) as book:
        assert [state.table for state in book.list_states()] == [first]
        assert book.get_state(first).remaining_epsilon == 0


def test_one_ledger_cannot_be_opened_with_both() -> None:
    """Not even a new one."""
    with pytest.raises(PolicyError) as refused:
        open_ledger(":memory:", {"visits": OWN, SHARED_ACCOUNT: OWN})
    assert refused.value.code == "budget_changed"


def test_failures_lock_all_tables_of_a_shared_budget() -> None:
    """The error says so, and quotes the name for a shell."""
    with closing(open_ledger(":memory:", {SHARED_ACCOUNT: OWN}, max_failures={SHARED_ACCOUNT: 1})) as book:
        (entry,) = book.charge({SHARED_ACCOUNT: Pure(Fraction(1))}, analyst="ana", query="q")
        book.record_failure([SHARED_ACCOUNT], entry, analyst="ana", query="q", code="failed")
        with pytest.raises(OperationalError, match="all tables of the shared budget are locked") as locked:
            book.charge({SHARED_ACCOUNT: Pure(Fraction(1, 2))}, analyst="ana", query="q")
        assert 'unlock LEDGER "shared budget"' in (locked.value.hint or "")
        book.unlock(SHARED_ACCOUNT, by="owner", reason="found")
        book.charge({SHARED_ACCOUNT: Pure(Fraction(1, 2))}, analyst="ana", query="q")
