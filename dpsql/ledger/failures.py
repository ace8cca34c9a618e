"""The number of failed queries after which a table is locked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dpsql.errors import OperationalError

MOST_FAILURES: Final = 3
"""The limit of a table whose policy sets none."""


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """The number of failures that locks each table; `MOST_FAILURES` for tables that are not named."""

    by_table: Mapping[str, int] = field(default_factory=dict)

    def is_locked(self, table: str, failures: int) -> bool:
        """Return whether a table is locked after `failures` since the last unlock.

        >>> FailureLimit({"visits": 1}).is_locked("visits", 1), FailureLimit().is_locked("visits", 2)
        (True, False)
        """
        return failures >= self.by_table.get(table, MOST_FAILURES)

    def require_unlocked(self, table: str, failures: int) -> None:
        """Raise OperationalError (`table_locked`) for a table that is locked."""
        if self.is_locked(table, failures):
            times = "once" if failures == 1 else f"{failures} times"
            raise OperationalError(
                f"the table {table} is locked because queries failed {times} while they ran",
                code="table_locked",
                hint="nothing was charged; ask the data owner to find the cause and to unlock the table:"
                f' dpsql ledger unlock LEDGER {table} --reason "…"',
            )
