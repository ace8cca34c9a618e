"""A receipt that dpsql wrote is borne out by its ledger; one that was changed in any place is refused, or says less.

Claim: of each kind of answer, under each accountant, the receipt passes, and a change of one place of it is refused
unless the field is among those that the ledger is said not to hold.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from properties.receipts import ANSWERS, SAID, UNSAID, Remembered, changes, data_of, opened

from dpsql.errors import IntegrityError, ProgrammingError
from dpsql.ledger.receipts import check_receipt

KINDS = [
    (accountant, kind)
    for accountant in ("pure", "zcdp", "basic", "gdp")
    for kind in ANSWERS
    if accountant in ("pure", "zcdp") or "refine" in kind or "percent" in kind or kind == "combined"
]


@pytest.mark.parametrize(("accountant", "kind"), KINDS)
def test_genuine_receipts_pass_and_changed_ones_fail(accountant: str, kind: str, tmp_path: Path) -> None:
    """Every field that is not named as unsaid is bound: changed, left out or added to, it is refused."""
    ledger = tmp_path / "clinic.ledger"
    with opened(ledger, accountant) as connection:
        receipt = data_of(ANSWERS[kind](connection).receipt)
    with closing(Remembered.open(ledger)) as history:
        unsaid = set(check_receipt(receipt, history).unverified_fields)
        if kind in SAID:
            assert unsaid - {"target"} <= set(receipt) - SAID[kind]
        else:
            assert unsaid <= UNSAID.get(kind, frozenset())
        for path, changed in changes(receipt):
            try:
                found = check_receipt(changed, history)
            except (IntegrityError, ProgrammingError):
                continue
            assert _is_unsaid(path, set(found.unverified_fields)), f"{kind}: {path} was changed, and shown"


def _is_unsaid(path: tuple[object, ...], unsaid: set[str]) -> bool:
    """Whether a place is of a field that is not shown."""
    names = {str(path[0]), ".".join(map(str, path[:2]))}
    of_a_clamp = path[0] == "mechanisms" and "selected clamps, and their noise" in unsaid
    learnt = {"noise", "l1_sensitivity", "l2_sensitivity_squared", "linf_sensitivity"}
    return bool(names & unsaid) or (of_a_clamp and ("chosen" in path or str(path[-1]) in learnt))
