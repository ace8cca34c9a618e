"""The accounts of a policy: their budgets and limits, their balances now, and what the ledger stores of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from dpsql.errors import IntegrityError, PolicyError
from dpsql.ledger.balance import Balance, EntryEffect, compute_budget_state
from dpsql.ledger.budget import FailureLimit, compute_period
from dpsql.ledger.budget_state import AccountKey, BudgetState
from dpsql.ledger.chain import Chain
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.protocol import Account, Clock
from dpsql.ledger.quote import AccountCharge, QuotedCharge, iterate_quoted_charges
from dpsql.ledger.schema import RESTORE, get_account_key, parse_budget, parse_charge
from dpsql.ledger.tables import iterate_charge_rows, read_last_reset
from dpsql.policy.names import normalize_account_name

# The comparison of a policy's budgets and account names with those that the ledger stores.


def require_one_spelling(wanted: Iterable[AccountKey], stored: Iterable[AccountKey]) -> None:
    """Require that each account has one spelling, among the wanted and the stored ones.

    Otherwise `VISITS` would have a budget in addition to that of `visits`, and "bob " one in addition to that of "bob".

    Raises:
        PolicyError: `account_name`, for a wanted account that is stored or wanted under another spelling.
    """
    asked = tuple(wanted)
    spelled: dict[AccountKey, AccountKey] = {}
    for key in (*stored, *asked):
        spelled.setdefault(_normalize_key(key), key)
    for key in asked:
        if (other := spelled[_normalize_key(key)]) != key:
            raise PolicyError(
                f"{_describe_account(key)} shares the account of {_describe_account(other)}: the names differ only by"
                " case, spaces or Unicode form",
                code="account_name",
                hint=f"use the spelling of the ledger: {_describe_account(other)}",
            )


def require_one_sharing(wanted: Iterable[AccountKey], stored: Iterable[AccountKey]) -> None:
    """Require that a ledger has one shared budget or budgets of tables, from its first use on, and not both.

    Claim: all charges for a table are in one account, whatever the policy said before.
    Why: with both, what was charged to a table's own account would be missing in the shared one, and the other way round.

    Raises:
        PolicyError: `budget_changed`, if the ledger has the other kind.
    """
    asked = {key.is_shared for key in wanted}
    if len(asked | {key.is_shared for key in stored}) < 2:
        return
    words = (
        ("one budget for all tables", "a budget for each table")
        if True in asked
        else ("a budget for each table", "one budget that all tables share")
    )
    raise PolicyError(
        f"the policy has {words[0]}, but the ledger has {words[1]}",
        code="budget_changed",
        hint="write `shared` into the policy's budget as it was, or begin a new ledger, whose budget adds to this one",
    )


def _normalize_key(key: AccountKey) -> AccountKey:
    return AccountKey(normalize_account_name(key.table), normalize_account_name(key.analyst))


def _describe_account(key: AccountKey) -> str:
    return f"analyst {key.analyst!r} at table {key.table!r}" if key.analyst else f"table {key.table!r}"


def with_stored_limit(key: AccountKey, account: Account, row: Row, digests: KeyedDigest) -> Account:
    """Return the account with the limit that was fixed when its budget was stored.

    Raises PolicyError (`budget_changed`) where the stored budget is another.
    """
    stored = parse_budget(row, digests)
    if stored != account.budget:
        raise PolicyError(
            f"the budget of {key} is {account.budget} in the policy, but {stored} in the ledger",
            code="budget_changed",
            hint="write the ledger's budget into the policy, or change the ledger's:"
            ' dpsql ledger amend LEDGER --policy FILE --reason "…"',
        )
    limit = parse_charge(row["limit_loss"], row["limit_delta"])
    if not limit.is_within(account.limit):
        raise IntegrityError(
            f"the stored limit of {key} in the ledger is above its budget",
            code="ledger_corrupt",
            hint=RESTORE,
        )
    return replace(account, limit=limit)


# The accounts of a policy: their budgets and limits, their balances now, and the tables that failures lock.


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
