"""The protocol of query runners: a connection in this process or in another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions

if TYPE_CHECKING:
    from dpsql.ledger import RemainingBudget
    from dpsql.results.result import Receipt, Result


class PlannedQuery(Protocol):
    """A query that is planned and not charged yet."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the answer's columns, with their engine types."""
        ...


class QueryRunner(Protocol):
    """The runner of one analyst's queries, one at a time."""

    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> PlannedQuery:
        """As `Connection.plan`."""
        ...

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """As `Connection.query`."""
        ...

    def answer(self, planned: Any) -> Result:
        """As `Connection.answer`, of what `plan` has planned, at another of the same analyst's too."""
        ...

    def remaining_budget(self, receipt: Receipt) -> Sequence[RemainingBudget]:
        """As `Connection.remaining_budget`, of an answer that was given last."""
        ...
