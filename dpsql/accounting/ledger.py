"""The ledger's face: what it keeps, what it answers, what it refuses.

A charge is committed durably before the data is read. An entry holds the query and public metadata
alone, so neighbouring databases leave the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Protocol

from dpsql.accounting.accountants import Accountant, accountant_named
from dpsql.accounting.budget import Budget
from dpsql.accounting.events import Event
from dpsql.accounting.spend import Spend
from dpsql.errors import IntegrityError

Clock = Callable[[], datetime]
_HEAD = re.compile(r"(0|[1-9][0-9]{0,17}) ([0-9a-f]{64})")


def utc_now() -> datetime:
    """The present time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Account:
    """A table's budget, the accountant that keeps it, and the limit that follows."""

    budget: Budget
    accountant: Accountant
    limit: Spend

    @classmethod
    def of(cls, budget: Budget) -> Account:
        """The account of a budget; PolicyError if no accountant can keep it."""
        accountant = accountant_named(budget.accountant)
        return cls(budget, accountant, accountant.limit(budget.epsilon, budget.delta, budget.selection))


@dataclass(frozen=True, slots=True)
class Entry:
    """One charge to one table, as the ledger keeps it for ever.

    `charge` is the id of the first entry of the same charge, `number` counts the table's charges from 1,
    `spent` is the table's total after this one, `budget` is the digest of the table's budget, `digest`
    covers every other field and the `previous` entry's digest.
    """

    id: int
    charge: int
    at: datetime
    table: str
    number: int
    analyst: str
    query: str
    query_digest: str
    event: Event
    spend: Spend
    spent: Spend
    limit: Spend
    budget: str
    details: Mapping[str, Any]
    previous: str
    digest: str


@dataclass(frozen=True, slots=True)
class Head:
    """Where a ledger ends: how many entries it has, and the digest of the last, which covers all before it.

    Kept where nobody who can write the ledger reaches it, it shows later whether the ledger still holds all
    that it held. `str` and `parse` are inverse; IntegrityError for any other text.

    >>> Head.parse("2 " + "c0" * 32)
    Head(entries=2, digest='c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0')
    """

    entries: int
    digest: str

    def __str__(self) -> str:
        return f"{self.entries} {self.digest}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head that was written as `text`."""
        match = _HEAD.fullmatch(text)
        if match is None:
            raise IntegrityError("the text is not the head of a ledger", code="anchor_text")
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class Quote:
    """What a charge would do to one table: its cost, what is left before it, whether it fits."""

    table: str
    spend: Spend
    left: Spend

    @property
    def fits(self) -> bool:
        """Whether the table can bear the cost."""
        return self.spend.within(self.left)


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Where a table's budget stands.

    `queries` counts its charges, `remaining_epsilon` is the ε of the largest single ε-DP query that still
    fits (rounded down), `spent_epsilon` the ε that the spend amounts to (rounded up). The two need not
    add to `epsilon`: only under `pure` do epsilons add.
    """

    table: str
    accountant: str
    epsilon: Fraction
    delta: Fraction
    spent: Spend
    limit: Spend
    queries: int
    remaining_epsilon: Fraction
    spent_epsilon: Fraction


class Ledger(Protocol):
    """A durable record of all that was spent, that refuses what would pass a budget."""

    def charge(
        self,
        charges: Mapping[str, Event],
        *,
        analyst: str,
        query: str,
        details: Mapping[str, Any] | None = None,
    ) -> tuple[Entry, ...]:
        """Commits one entry a table, in the tables' order, and returns them: all or none.

        When it returns, the entries outlive a crash. Raises BudgetExhausted, and writes nothing, if any
        table's budget would be passed.
        """
        ...

    def dry_run(self, charges: Mapping[str, Event]) -> tuple[Quote, ...]:
        """What `charge` would do now, one quote a table; writes nothing."""
        ...

    def state(self, table: str) -> BudgetState:
        """Where the budget of `table` stands."""
        ...

    def states(self) -> tuple[BudgetState, ...]:
        """Where every budget of the policy stands, in the tables' order."""
        ...

    def entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """The entries (of one table; the last `limit`), oldest first."""
        ...

    def head(self) -> Head:
        """Where the ledger ends now."""
        ...

    def close(self) -> None:
        """Ends the use of this object; the ledger stays."""
        ...
