"""The balance of an account: its spend on each partition, reservations, period and number of entries; and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dpsql.ledger.digest import compute_text_digest, to_canonical_json
from dpsql.ledger.protocol import Account, AccountKey, BudgetState, RemainingBudget, ReservationState
from dpsql.ledger.reservations import Reservations
from dpsql.policy.request.loss import DisplayedFraction
from dpsql.privacy.accounting.charge import NOTHING, Charge
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance after `count` entries: the spend of each partition (`parts`) and open `reservations`, in a `period`.

    A reservation counts as spent as a whole. A period is text that sorts by time, and empty for a budget that never
    renews. `failures` counts the failed queries since the last unlock, in all periods.
    """

    parts: PartitionCharges = field(default_factory=PartitionCharges)
    count: int = 0
    period: str = ""
    reservations: Reservations = field(default_factory=dict)
    failures: int = 0

    @property
    def spent(self) -> Charge:
        """The largest spend over the partitions."""
        return self.parts.compute_largest_charge()

    def move_to_period(self, period: str, *, anew: bool = False) -> Balance:
        """Return the balance in a period: a later one begins without spends and reservations; an earlier one changes nothing.

        A reset begins `anew` in any period: after a clock that was ahead, the budget renews from the present period on. Charges of the
        later period count as charges before the reset.
        """
        begins = period > self.period or (anew and period != self.period)
        return replace(self, parts=PartitionCharges(), period=period, reservations={}) if begins else self

    def compute_remaining(self, limit: Charge, box: Box = WHOLE) -> Charge:
        """Return what may still be charged to a box."""
        spent = self.parts.compute_largest_charge(box)
        return Charge(max(limit.loss - spent.loss, 0), max(limit.delta - spent.delta, 0))


def compute_partitions_digest(parts: PartitionCharges) -> str | None:
    """Return the digest of the charges of each partition, which entries state; None if only the whole table was charged."""
    if not parts.cells:
        return None
    return compute_text_digest(
        to_canonical_json(
            {box: [str(own.loss), str(own.delta)] for box, own in to_charges_by_box(parts).items()}
        )
    )


def to_charges_by_box(parts: PartitionCharges) -> dict[str, Charge]:
    """Return the charges of each box, and of the whole table, by the box's text; {} if only the whole table was charged."""
    if not parts.cells:
        return {}
    return {**parts.compute_charges_by_text(), str(WHOLE): parts.base}


def from_charges_by_box(rows: dict[str, Charge]) -> PartitionCharges:
    """Return the spend that `to_charges_by_box` wrote as these rows."""
    cells = {Box.parse(text): own for text, own in rows.items()}
    base = cells.pop(WHOLE, NOTHING)
    return PartitionCharges(base, cells)


def compute_budget_state(
    key: AccountKey, account: Account, balance: Balance, failures: int, *, locked: bool
) -> BudgetState:
    """Return the state of an account at a table with this number of failures; it follows from the policy and the entries."""
    spent, budget, accountant = balance.spent, account.budget, account.accountant
    return BudgetState(
        table=key.table,
        accountant=budget.accountant,
        epsilon=DisplayedFraction(budget.epsilon),
        delta=DisplayedFraction(budget.delta),
        spent=spent,
        limit=account.limit,
        queries=balance.count,
        remaining_epsilon=DisplayedFraction(accountant.compute_remaining_epsilon(spent, account.limit)),
        spent_epsilon=DisplayedFraction(
            accountant.compute_spent_epsilon(spent, budget.delta, budget.selection), up=True
        ),
        analyst=key.analyst,
        renewal=budget.renewal,
        period=balance.period,
        failures=failures,
        locked=locked,
    )


def compute_remaining_budget(key: AccountKey, account: Account, balance: Balance) -> RemainingBudget:
    """Return the remaining budget of an account."""
    spent = balance.spent
    remaining = DisplayedFraction(account.accountant.compute_remaining_epsilon(spent, account.limit))
    return RemainingBudget(key.table, key.analyst, account.budget.accountant, spent, account.limit, remaining)


def list_reservation_states(balances: Mapping[AccountKey, Balance]) -> tuple[ReservationState, ...]:
    """Return the open reservations of accounts, in the order of their numbers."""
    found = (
        ReservationState(number, key, each.holder, each.limit, each.compute_remaining())
        for key, balance in balances.items()
        for number, each in balance.reservations.items()
    )
    return tuple(sorted(found, key=lambda state: (state.number, state.key)))
