"""What a connection shows of an account: its key, the state of its budget, what is left, and the quote of a charge."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from dpsql.policy.names import SHARED_ACCOUNT
from dpsql.privacy.accounting.events import Charge
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box


class AccountKey(NamedTuple):
    """The key of an account: a table's own, or, with an `analyst`, that analyst's at the table.

    The account that all tables of a policy share has the name `SHARED_ACCOUNT` in place of a table's.

    >>> str(AccountKey("visits")), str(AccountKey("visits", "ana")), str(AccountKey("shared budget"))
    ('table visits', 'table visits for analyst ana', 'the shared budget')
    """

    table: str
    analyst: str = ""

    @property
    def name(self) -> str:
        """Return the owner of the account: the table's name, or "<table> for <analyst>"."""
        return f"{self.table} for {self.analyst}" if self.analyst else self.table

    @property
    def is_shared(self) -> bool:
        """Return whether this is an account of the budget that all tables share."""
        return self.table == SHARED_ACCOUNT

    @property
    def owner(self) -> str:
        """Return whose budget it is, as in "the budget of …"; all tables share one."""
        return self.name.replace(self.table, "all tables", 1) if self.is_shared else self.name

    def __str__(self) -> str:
        whose = f"the {self.table}" if self.is_shared else f"table {self.table}"
        return whose + (f" for analyst {self.analyst}" if self.analyst else "")


@dataclass(frozen=True, slots=True)
class Quote:
    """The quote of a charge for one account: its cost, what is left before it in its box, whether it fits.

    For a charge to a reservation, `reservation` is its number, and `remaining` is what is left of the reservation.
    """

    table: str
    charge: Charge
    remaining: Charge
    analyst: str = ""
    box: Box = WHOLE
    reservation: int | None = None

    @property
    def key(self) -> AccountKey:
        """Return the key of the account."""
        return AccountKey(self.table, self.analyst)

    @property
    def fits(self) -> bool:
        """Return whether the cost is within what is left."""
        return self.charge.is_within(self.remaining)


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The state of an account's budget: a table's, or that of one `analyst` at it.

    `spent` is the largest spend over its partitions, with all reservations. `queries` counts its entries,
    `remaining_epsilon` is the ε of the largest single ε-DP query that still fits the whole table (rounded down),
    `spent_epsilon` the ε that the spend amounts to (rounded up). The two need not add to `epsilon`: only under `pure` do epsilons add. Of a budget that renews this is
    about its `period`. `failures` counts the table's queries that failed while they ran since the last unlock;
    `locked` says that they have reached the limit, so that the table is not read.
    """

    table: str
    accountant: str
    epsilon: Fraction
    delta: Fraction
    spent: Charge
    limit: Charge
    queries: int
    remaining_epsilon: Fraction
    spent_epsilon: Fraction
    analyst: str = ""
    renewal: str | None = None
    period: str = ""
    failures: int = 0
    locked: bool = False

    @property
    def key(self) -> AccountKey:
        """Return the key of the account."""
        return AccountKey(self.table, self.analyst)

    @property
    def name(self) -> str:
        """Whose budget it is, in words: the table's name, or "<table> for <analyst>"."""
        return self.key.name


@dataclass(frozen=True, slots=True)
class RemainingBudget:
    """What is left in an account: the part of `BudgetState` that is stated after each answer."""

    table: str
    analyst: str
    accountant: str
    spent: Charge
    limit: Charge
    remaining_epsilon: Fraction

    @property
    def name(self) -> str:
        """See `BudgetState.name`."""
        return AccountKey(self.table, self.analyst).name
