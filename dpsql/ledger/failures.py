"""How many failures of its queries a table may have before it is locked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dpsql.errors import OperationalError

MOST_FAILURES: Final = 3
"""How many a table may have where its policy says nothing."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The failures that lock each table; those that are not named have `MOST_FAILURES`."""

    by_table: Mapping[str, int] = field(default_factory=dict)

    def locks(self, table: str, failures: int) -> bool:
        """Whether a table with so many failures since an owner last looked is locked.

        >>> Allowed({"visits": 1}).locks("visits", 1), Allowed().locks("visits", 2)
        (True, False)
        """
        return failures >= self.by_table.get(table, MOST_FAILURES)

    def require_open(self, table: str, failures: int) -> None:
        """Raises OperationalError (`table_locked`) for a table that is locked."""
        if self.locks(table, failures):
            times = "once" if failures == 1 else f"{failures} times"
            raise OperationalError(
                f"the table {table} is locked: its queries have failed {times} while they ran",
                code="table_locked",
                hint="nothing was charged; the data owner finds out why, and then opens it again:"
                f' dpsql ledger unlock LEDGER {table} --reason "…"',
            )
