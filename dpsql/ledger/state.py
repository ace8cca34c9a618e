"""The state of accounts and reservations as owners and analysts see it."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.ledger.balance import Balance
from dpsql.ledger.protocol import Account, AccountKey, BudgetState, ReservationState
from dpsql.request.loss import Figure


def state_of(
    key: AccountKey, account: Account, balance: Balance, failures: int, *, locked: bool
) -> BudgetState:
    """The state of an account at a table with this number of failures; it follows from the policy and the entries."""
    spent, budget, accountant = balance.spent, account.budget, account.accountant
    return BudgetState(
        table=key.table,
        accountant=budget.accountant,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent=spent,
        limit=account.limit,
        queries=balance.count,
        remaining_epsilon=Figure(accountant.remaining_epsilon(spent, account.limit)),
        spent_epsilon=Figure(accountant.epsilon_spent(spent, budget.delta, budget.selection), up=True),
        analyst=key.analyst,
        renewal=budget.renewal,
        period=balance.period,
        failures=failures,
        locked=locked,
    )


def reservation_states(balances: Mapping[AccountKey, Balance]) -> tuple[ReservationState, ...]:
    """The open reservations of accounts, in the order of their numbers."""
    found = (
        ReservationState(number, key, each.holder, each.limit, each.left())
        for key, balance in balances.items()
        for number, each in balance.reservations.items()
    )
    return tuple(sorted(found, key=lambda state: (state.number, state.key)))
