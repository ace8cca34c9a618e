"""Where an account stands, as its owner and its analysts are told."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.ledger.balance import Standing
from dpsql.ledger.protocol import Account, AccountKey, BudgetState, SliceState
from dpsql.request.loss import Figure


def state_of(
    key: AccountKey, account: Account, standing: Standing, failures: int, *, locked: bool
) -> BudgetState:
    """The state of an account, at a table with so many failures; all of it follows from the policy and the entries."""
    spent, budget, accountant = standing.spent, account.budget, account.accountant
    return BudgetState(
        table=key.table,
        accountant=budget.accountant,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent=spent,
        limit=account.limit,
        queries=standing.count,
        remaining_epsilon=Figure(accountant.remaining_epsilon(spent, account.limit)),
        spent_epsilon=Figure(accountant.epsilon_spent(spent, budget.delta, budget.selection), up=True),
        analyst=key.analyst,
        renewal=budget.renewal,
        period=standing.period,
        failures=failures,
        locked=locked,
    )


def slice_states(standings: Mapping[AccountKey, Standing]) -> tuple[SliceState, ...]:
    """The open slices of accounts, in the order of their numbers."""
    found = (
        SliceState(number, key, each.holder, each.limit, each.left())
        for key, standing in standings.items()
        for number, each in standing.slices.items()
    )
    return tuple(sorted(found, key=lambda state: (state.number, state.key)))
