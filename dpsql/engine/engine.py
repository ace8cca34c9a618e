"""The engine of a connection: one policy, one database and one ledger, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from dpsql.backends import Backend, analyst_schema
from dpsql.engine.budgets import get_table_budget
from dpsql.engine.lookups import PublicLookups
from dpsql.engine.stop_requests import StopRequests
from dpsql.engine.stored_answers import ReleaseStore
from dpsql.ledger import Ledger
from dpsql.ledger.protocol import Account
from dpsql.policy import Policy
from dpsql.privacy.mechanisms import Entropy, SystemEntropy


@dataclass(frozen=True)
class Engine:
    """One policy, one database and one ledger; `analyst` runs the queries, and `reservation` is charged if there is one.

    It runs nothing itself: the stages of a query, in `dpsql.engine.stages`, and their drivers take it as an argument.
    """

    policy: Policy
    backend: Backend
    ledger: Ledger
    analyst: str
    entropy: Entropy = field(default_factory=SystemEntropy)
    reservation: int | None = None
    stops: StopRequests = field(default_factory=StopRequests, compare=False)

    @cached_property
    def catalog(self) -> analyst_schema.AnalystSchema:
        """Return the schema that an analyst sees."""
        built = analyst_schema.build_analyst_schema(
            self.policy, self.backend.read_schema(), self.backend.find_origin
        )
        return replace(built, database_name=self.backend.database_name)

    @cached_property
    def policy_digest(self) -> str:
        """Return the digest of the policy."""
        return self.policy.compute_digest()

    @cached_property
    def release_store(self) -> ReleaseStore:
        """Return the stored releases of the policy and the database."""
        return ReleaseStore(self.policy, self.analyst, self.ledger, self.backend, self.get_account)

    @property
    def public_lookups(self) -> PublicLookups:
        """Return the look-ups in public tables for one statement: each is made once, or once for all statements if nothing changes."""
        return (
            self._kept_lookups.with_fresh_evaluations()
            if self.backend.is_unchanging
            else PublicLookups(self.backend)
        )

    @cached_property
    def _kept_lookups(self) -> PublicLookups:
        return PublicLookups(self.backend)

    @cached_property
    def _accounts(self) -> dict[str, Account]:
        return {
            table: Account.from_budget(get_table_budget(self.policy, table))
            for table in self.policy.list_private_tables()
        }

    def get_account(self, table: str) -> Account:
        """Return the budget of a private table, with its accountant and limit."""
        return self._accounts[table]

    def cancel(self) -> None:
        """End the running statement for its client, unless it is charged; for other threads to call."""
        self.stops.cancel(self.backend)

    def stop(self) -> None:
        """End the running statement for the owner; for other threads to call."""
        self.stops.stop(self.backend)
