"""Reservations amid charges keep the budget under every accountant, whoever chooses each step after which answer.

The best adversary is enumerated exactly: at each point of the tree of answers it reserves, asks within a slice or
beside it, or gives back. Filters with the mistakes that one could make here are caught by the same adversary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
from ledger.adversaries import Budget, Filter, Release, assert_private, gaussian, leak, response

from dpsql.errors import OperationalError
from dpsql.ledger.balance import CHARGE, DRAW, RESERVE, RETURN, Balance, EntryEffect, apply_effect
from dpsql.ledger.budget import Budget as Limits
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.protocol import Account
from dpsql.ledger.quote import iterate_quoted_charges, list_account_charges
from dpsql.privacy.accounting.accountants import ACCOUNTANTS, Accountant
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.events import Charge, Composed, Event, Pure, Selection

BUDGET: Budget = (Fraction(1), Fraction(1, 10**3))
MANY = 8
VISITS = AccountKey("visits")
every_accountant = pytest.mark.parametrize("accountant", [kind() for kind in ACCOUNTANTS.values()], ids=str)
Stepped = Callable[[Balance, EntryEffect], Balance]


@dataclass(frozen=True, slots=True)
class Act(Release):
    """A step of the adversary's: a question, beside slices or within the newest; or one that has no answer."""

    kind: str = CHARGE

    @property
    def mirrored(self) -> Act:
        """The same with the neighbours exchanged."""
        return Act(self.event, self.there, self.here, self.kind)


def silent(kind: str, event: Event) -> Act:
    """A step that is answered by nothing."""
    return Act(event, (1.0,), (1.0,), kind)


def slices_filter(accountant: Accountant, step_of: Stepped = apply_effect) -> Filter:
    """The ledger's own: the same quotes, on balances that follow from the same steps."""
    account = Account.from_budget(Limits(accountant.name, *BUDGET))
    accounts = {VISITS: account}

    def admits(path: tuple[Release, ...]) -> bool:
        balance = Balance()
        for number, act in enumerate(path, 1):
            assert isinstance(act, Act)
            newest = max(balance.reservations, default=None)
            if act.kind == RETURN:
                if newest is None:
                    return False
                step = EntryEffect(
                    RETURN, balance.reservations[newest].compute_remaining(), reservation=newest, actor="ana"
                )
                balance = step_of(balance, step)
                continue
            kind = EntryEffect(
                act.kind, reservation={DRAW: newest, RESERVE: number}.get(act.kind), actor="ana"
            )
            due = list_account_charges({"visits": act.event}, "ana", accounts)
            try:
                (planned,) = iterate_quoted_charges(due, kind, accounts, lambda _, now=balance: now)
            except OperationalError:
                return False
            if not planned.quote.fits:
                return False
            balance = step_of(balance, planned.effect)
        return True

    return admits


def menu(accountant: Accountant) -> list[Act]:
    """Questions at the limit and at half of it, beside and within slices of the same sizes, and their return."""
    limit = accountant.compute_limit(*BUDGET)
    sizes = [search_largest_epsilon(accountant.compute_charge, limit.loss // share) for share in (1, 2)]
    room = Selection(limit.delta_fraction / 2)
    rho = accountant.find_gaussian_rho(sizes[1])
    asked = [*map(response, sizes), leak(limit.delta_fraction / 2) if rho is None else gaussian(rho, (0,))]
    acts = [Act(each.event, each.here, each.there, kind) for each in asked for kind in (CHARGE, DRAW)]
    slices = [silent(RESERVE, Composed((Pure(size), room))) for size in sizes]
    return [*acts, *slices, silent(RETURN, Pure(Fraction(1)))]


@every_accountant
def test_slices_keep_the_budget(accountant: Accountant) -> None:
    """Reserved, spent from, given back, and reserved again, in any order that any answers suggest."""
    assert_private(slices_filter(accountant), menu(accountant), BUDGET, depth=5)


def gives_all_back(before: Balance, step: EntryEffect) -> Balance:
    """The mistake of giving back the slice instead of what is left of it."""
    after = apply_effect(before, step)
    if step.kind != RETURN or step.reservation is None:
        return after
    held = before.reservations[step.reservation]
    spent = Charge(held.limit.loss - step.charge.loss, held.limit.delta - step.charge.delta)
    parts = type(after.parts)(after.parts.base - spent, after.parts.cells)
    return Balance(parts, after.count, after.period, after.reservations)


def counts_nothing(before: Balance, step: EntryEffect) -> Balance:
    """The mistake of reserving without charging: two may then hold the same budget."""
    after = apply_effect(before, step)
    return (
        Balance(before.parts, after.count, after.period, after.reservations)
        if step.kind == RESERVE
        else after
    )


def forgets_draws(before: Balance, step: EntryEffect) -> Balance:
    """The mistake of not counting within the slice."""
    return before if step.kind == DRAW else apply_effect(before, step)


PLANS: dict[Stepped, tuple[str, ...]] = {
    gives_all_back: (RESERVE, DRAW, RETURN) * MANY,
    counts_nothing: (RESERVE, DRAW) * MANY,
    forgets_draws: (RESERVE, *[DRAW] * MANY),
}


@pytest.mark.parametrize("mistaken", PLANS)
@every_accountant
def test_mistaken_slices_would_pass_the_budget(accountant: Accountant, mistaken: Stepped) -> None:
    """An adversary who does the same again and again passes it with each of them, and not with what is right."""
    epsilon = search_largest_epsilon(accountant.compute_charge, accountant.compute_limit(*BUDGET).loss)
    told = response(epsilon)
    acts = [Act(told.event, told.here, told.there, DRAW)]
    acts += [silent(RESERVE, told.event), silent(RETURN, told.event)]
    plan = PLANS[mistaken]

    def in_order(admitted: Filter) -> Filter:
        def admits(path: tuple[Release, ...]) -> bool:
            kinds = tuple(act.kind for act in path if isinstance(act, Act))
            return kinds == plan[: len(path)] and admitted(path)

        return admits

    assert_private(in_order(slices_filter(accountant)), acts, BUDGET, depth=len(plan))
    with pytest.raises(AssertionError, match="δ ="):
        assert_private(in_order(slices_filter(accountant, mistaken)), acts, BUDGET, depth=len(plan))
