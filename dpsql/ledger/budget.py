"""The limits of a table: its privacy budget, the periods in which it renews, and the failures that lock it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from dpsql.errors import LossError, OperationalError
from dpsql.policy.names import SHARED_ACCOUNT
from dpsql.privacy.accounting.events import require_exact_positive

# The privacy budget of one table, and the periods of budgets that renew.


_PERIODS: Mapping[str, Callable[[datetime], str]] = {
    "daily": lambda at: f"{at:%Y-%m-%d}",
    "weekly": lambda at: "{0.year:04}-W{0.week:02}".format(at.isocalendar()),
    "monthly": lambda at: f"{at:%Y-%m}",
    "yearly": lambda at: f"{at:%Y}",
}
RENEWALS = tuple(_PERIODS)


def compute_period(renewal: str | None, at: datetime) -> str:
    """Return the period, in UTC, that a moment lies in; "" for a budget that never renews. Later ones sort later.

    >>> compute_period("monthly", datetime(2026, 11, 22, tzinfo=UTC)), compute_period("weekly", datetime(2027, 1, 1, tzinfo=UTC))
    ('2026-11', '2026-W53')
    """
    return "" if renewal is None else _PERIODS[renewal](at.astimezone(UTC))


@dataclass(frozen=True, slots=True)
class Budget:
    """(`epsilon`, `delta`)-DP for one table, kept by the accountant of that name.

    `selection` is the part of delta for key selection; None leaves the split to the accountant. Raises
    LossError unless epsilon > 0, 0 <= delta < 1 and 0 <= selection <= delta. `renewal` is one of
    `RENEWALS`, and None for a budget that never renews.

    The spend of one period does not count in the next, so the guarantee of such a budget is one for each period: over n periods it
    is n times as weak. No budget renews unless its owner says so.

    >>> Budget("zcdp", Fraction(3), Fraction(1, 10**6)).epsilon
    Fraction(3, 1)
    """

    accountant: str
    epsilon: Fraction
    delta: Fraction
    selection: Fraction | None = None
    renewal: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_exact_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", _require_delta_share(self.delta, "delta"))
        if self.delta >= 1:
            raise LossError("delta must be below 1")
        if self.selection is not None:
            object.__setattr__(
                self, "selection", _require_delta_share(self.selection, "the selection share of delta")
            )
            if self.selection > self.delta:
                raise LossError("the selection share of delta must be at most delta")
        if self.renewal is not None and self.renewal not in RENEWALS:
            raise LossError(f"the renewal of a budget must be {', '.join(RENEWALS)} or None")

    def __str__(self) -> str:
        share = "" if self.selection is None else f", selection {self.selection}"
        renewed = "" if self.renewal is None else f", renewed {self.renewal}"
        return f"epsilon {self.epsilon}, delta {self.delta}{share}, accountant {self.accountant}{renewed}"


def _require_delta_share(value: object, name: str) -> Fraction:
    zero = type(value) in (int, Fraction) and value == 0
    return Fraction(0) if zero else require_exact_positive(value, name)


# The number of failed queries after which a table is locked.


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
            shared = table == SHARED_ACCOUNT
            what, name = (
                ("all tables of the shared budget are", f'"{table}"')
                if shared
                else (f"the table {table} is", table)
            )
            raise OperationalError(
                f"{what} locked because queries failed {times} while they ran",
                code="table_locked",
                hint="nothing was charged; ask the data owner to find the cause and to unlock the table:"
                f' dpsql ledger unlock LEDGER {name} --reason "…"',
            )
