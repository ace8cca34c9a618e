"""The balance of an account: its spend on each partition, reservations, period and number of entries; and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dpsql.accounting.partitions.boxes import WHOLE, Box, PartitionSpend
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.ledger.digest import canonical, text_digest
from dpsql.ledger.protocol import Account, AccountKey, BudgetLeft, BudgetState, ReservationState
from dpsql.ledger.reservations import Reservations
from dpsql.request.loss import Figure


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance after `count` entries: the spend of each partition (`parts`) and open `reservations`, in a `period`.

    A reservation counts as spent as a whole. A period is text that sorts by time, and empty for a budget that never
    renews. `failures` counts the failed queries since the last unlock, in all periods.
    """

    parts: PartitionSpend = field(default_factory=PartitionSpend)
    count: int = 0
    period: str = ""
    reservations: Reservations = field(default_factory=dict)
    failures: int = 0

    @property
    def spent(self) -> Spend:
        """The largest spend over the partitions."""
        return self.parts.most()

    def in_period(self, period: str, *, anew: bool = False) -> Balance:
        """The balance in a period: a later one begins without spends and reservations; an earlier one changes nothing.

        A reset begins `anew` in any period: after a clock that was ahead, the budget renews again from the present one on. What was
        charged in the later period is of before the reset.
        """
        begins = period > self.period or (anew and period != self.period)
        return replace(self, parts=PartitionSpend(), period=period, reservations={}) if begins else self

    def left(self, limit: Spend, box: Box = WHOLE) -> Spend:
        """What may still be charged to a box."""
        spent = self.parts.most(box)
        return Spend(max(limit.loss - spent.loss, 0), max(limit.delta - spent.delta, 0))


def partitions_digest(parts: PartitionSpend) -> str | None:
    """The digest of the spend of each partition, which entries hold; None where only the whole table was charged."""
    if not parts.cells:
        return None
    return text_digest(
        canonical({box: [str(own.loss), str(own.delta)] for box, own in partition_rows(parts).items()})
    )


def partition_rows(parts: PartitionSpend) -> dict[str, Spend]:
    """The spend of each box, and of the whole table, by the box's text; {} where only the whole table was charged."""
    if not parts.cells:
        return {}
    return {**parts.by_text(), str(WHOLE): parts.base}


def partition_spend_of(rows: dict[str, Spend]) -> PartitionSpend:
    """The spend that `partition_rows` wrote as these rows."""
    cells = {Box.parse(text): own for text, own in rows.items()}
    base = cells.pop(WHOLE, NOTHING)
    return PartitionSpend(base, cells)


def state_of(
    key: AccountKey, account: Account, balance: Balance, failures: int, *, locked: bool
) -> BudgetState:
    """The state of an account at a table with this number of failures; it follows from the policy and the entries."""
    spent, budget, accountant = balance.spent, account.budget, account.accountant
    return BudgetState(
        table=key.table,
        accountant=budget.accountant,
        epsilon=Figure(budget.epsilon),
        delta=Figure(budget.delta),
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


def left_of(key: AccountKey, account: Account, balance: Balance) -> BudgetLeft:
    """What is left in an account."""
    spent = balance.spent
    remaining = Figure(account.accountant.remaining_epsilon(spent, account.limit))
    return BudgetLeft(key.table, key.analyst, account.budget.accountant, spent, account.limit, remaining)


def reservation_states(balances: Mapping[AccountKey, Balance]) -> tuple[ReservationState, ...]:
    """The open reservations of accounts, in the order of their numbers."""
    found = (
        ReservationState(number, key, each.holder, each.limit, each.left())
        for key, balance in balances.items()
        for number, each in balance.reservations.items()
    )
    return tuple(sorted(found, key=lambda state: (state.number, state.key)))
