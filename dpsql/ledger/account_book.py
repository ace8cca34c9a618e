"""The accounts of a policy: their budgets and limits, their balances now, and the tables that failures lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from dpsql.ledger.balance import Balance, compute_budget_state
from dpsql.ledger.budget import compute_period
from dpsql.ledger.chain import Chain
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.entry_kinds import EntryEffect
from dpsql.ledger.failures import FailureLimit
from dpsql.ledger.protocol import Account, AccountKey, BudgetState, Clock
from dpsql.ledger.quote import AccountCharge, QuotedCharge, iterate_quoted_charges
from dpsql.ledger.schema import get_account_key
from dpsql.ledger.stored_budget import with_stored_limit
from dpsql.ledger.tables import iterate_charge_rows, read_last_reset


class AccountBook:
    """The accounts of one policy, the clock by which they renew, and the number of failures that locks each table.

    It follows the chain of entries that it is given, and keeps no balances of its own.
    """

    def __init__(
        self,
        accounts: Mapping[AccountKey, Account],
        clock: Clock,
        failure_limit: FailureLimit | None = None,
    ) -> None:
        self.accounts = dict(sorted(accounts.items()))
        self.clock = clock
        self._failure_limit = failure_limit or FailureLimit()

    def take_stored_limit(self, key: AccountKey, row: Row, digests: KeyedDigest) -> None:
        """Take over the limit that was fixed when the account's budget was stored, as `with_stored_limit`."""
        self.accounts[key] = with_stored_limit(key, self.accounts[key], row, digests)

    def find_present_period(self, key: AccountKey, now: datetime) -> str:
        """Return the period of an account by the clock."""
        return compute_period(self.accounts[key].budget.renewal, now)

    def compute_balance(self, chain: Chain, key: AccountKey, now: datetime | None = None) -> Balance:
        """Return the balance of an account now: at the end of the chain, or at the beginning of a later period."""
        present = self.find_present_period(key, self.clock() if now is None else now)
        return chain.get_balance(key).move_to_period(present)

    def compute_balances(self, chain: Chain, now: datetime | None = None) -> dict[AccountKey, Balance]:
        """Return the balance of each account now."""
        return {key: self.compute_balance(chain, key, now) for key in self.accounts}

    def compute_state(self, chain: Chain, key: AccountKey, balance: Balance) -> BudgetState:
        """Return the state of an account that has this balance."""
        failures = chain.get_balance(AccountKey(key.table)).failures
        locked = self._failure_limit.is_locked(key.table, failures)
        return compute_budget_state(key, self.accounts[key], balance, failures, locked=locked)

    def require_unlocked(self, chain: Chain, table: str) -> None:
        """Raise OperationalError (`table_locked`) for a table that failures have locked."""
        self._failure_limit.require_unlocked(table, chain.get_balance(AccountKey(table)).failures)

    def iterate_quotes(
        self, chain: Chain, charges_due: Sequence[AccountCharge], kind: EntryEffect, now: datetime
    ) -> Iterator[QuotedCharge]:
        """Yield a quote for each charge as an entry of `kind`, as `iterate_quoted_charges`."""
        return iterate_quoted_charges(
            charges_due, kind, self.accounts, lambda key: self.compute_balance(chain, key, now)
        )

    def is_current(self, connection: Connection, chain: Chain, number: int) -> bool:
        """Return whether the releases that this charge paid for may still be used: no account of it was renewed or reset since.

        Claim: all noise that is drawn in one period of an account, or between two of its resets, was charged to it there.
        Why: the releases of a charge follow it at once, in the period in which it was charged. Three features use earlier charges.
        A reservation is part of an account's balance, and ends with it (`Balance.move_to_period`, the entry of a reset). A refinement
        calls this within the transaction of its charge, and a stream before each answer. Any other feature that releases later than it
        charges must call it too.
        """
        now = self.clock()
        for row in iterate_charge_rows(connection, number):
            key = get_account_key(row)
            balance = (
                self.compute_balance(chain, key, now) if key in self.accounts else chain.get_balance(key)
            )
            if row["period"] != balance.period or row["id"] < read_last_reset(connection, key):
                return False
        return True
