"""A ledger that connections of several threads share, so that their charges are committed together."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dpsql.errors import InterfaceError, PolicyError, ProgrammingError

if TYPE_CHECKING:
    from dpsql.ledger import Ledger, LedgerHead
    from dpsql.policy import Policy


class SharedLedger:
    """A ledger for `connect(…, ledger=…)` that any number of connections of one process share.

    Charges that wait while another one is committed go into the next transaction together (*group commit*). Each is checked
    against those before it, and no query continues before its charge is durable. Connections that each open the ledger's file
    themselves take turns instead.

    The first connection opens the ledger. `close`, or the end of a `with` block, closes it; connections that share it leave it
    open.

    Args:
        target: The file of the ledger, as for `connect`.
        policy: The policy, as for `connect`.
        analysts: The analysts who will query, for a policy that gives budgets to analysts whom it does not list.
        anchor: As for `connect`.
        ledger_key: As for `connect`.

    >>> policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1},
    ...           "tables": {"people": {"unit": "row"}}}
    >>> import dpsql, pyarrow
    >>> with dpsql.SharedLedger(":memory:", policy=policy) as ledger:
    ...     for _ in range(2):
    ...         con = dpsql.connect({"people": pyarrow.table({"age": [30]})}, policy=policy, ledger=ledger)
    ...         _ = con.query("SELECT COUNT(*) FROM people", epsilon=0.25)
    ...         con.close()
    """

    def __init__(
        self,
        target: str | Path,
        *,
        policy: Any,
        analysts: Iterable[str] = (),
        anchor: LedgerHead | str | Path | None = None,
        ledger_key: bytes | str | Path | None = None,
    ) -> None:
        from dpsql.policy import load

        self.target, self._anchor, self._key = target, anchor, ledger_key
        self._policy = load(policy)
        self._analysts = (*self._policy.analysts, *map(self._policy.resolve_analyst_name, analysts))
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._database: str | None = None
        self._closed = False

    def open_for_connection(self, policy: Policy, analyst: str, database: str | None) -> Ledger:
        """Return the open ledger for an analyst's connection to a database.

        Raises:
            ProgrammingError: (`shared_ledger`) if the connection has another policy, or the ledger was opened without the
                analyst's budget.
            PolicyError: (`another_database`) if the first connection was to another database.
        """
        from dpsql.engine.budgets import collect_budgets

        if policy.compute_digest() != self._policy.compute_digest():
            raise ProgrammingError(
                "the shared ledger was opened for another policy",
                code="shared_ledger",
                hint="open one for each policy",
            )
        if not collect_budgets(policy, [analyst]).keys() <= collect_budgets(policy, self._analysts).keys():
            raise ProgrammingError(
                f"the shared ledger was opened without the budget of the analyst {analyst!r}",
                code="shared_ledger",
                hint="list all analysts: SharedLedger(…, analysts=[…])",
            )
        with self._lock:
            if self._closed:
                raise InterfaceError("the ledger is closed", code="ledger_closed")
            if self._ledger is None:
                self._ledger, self._database = self._open_ledger(database), database
            elif database != self._database:
                raise PolicyError(
                    "the shared ledger was opened for another database",
                    code="another_database",
                    hint="open one for each database",
                )
            return self._ledger

    def _open_ledger(self, database: str | None) -> Ledger:
        from dpsql.engine.budgets import collect_budgets
        from dpsql.ledger import open_ledger

        return open_ledger(
            self.target,
            collect_budgets(self._policy, self._analysts),
            anchor=self._anchor,
            key=self._key,
            database=database,
            max_failures=self._policy.get_failure_limits(),
        )

    def close(self) -> None:
        """Close the ledger; connections that share it can no longer query."""
        with self._lock:
            self._closed = True
            if self._ledger is not None:
                self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
