"""The periods of budgets that renew.

What is spent in one period says nothing of the next, so the guarantee of such a budget is one for each period:
over n periods it is n times as weak. No budget renews unless its owner says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

_PERIODS: Mapping[str, Callable[[datetime], str]] = {
    "daily": lambda at: f"{at:%Y-%m-%d}",
    "weekly": lambda at: "{0.year:04}-W{0.week:02}".format(at.isocalendar()),
    "monthly": lambda at: f"{at:%Y-%m}",
    "yearly": lambda at: f"{at:%Y}",
}
RENEWALS = tuple(_PERIODS)


def period(renewal: str | None, at: datetime) -> str:
    """The period, in UTC, that a moment lies in; "" for a budget that never renews. Later ones sort later.

    >>> period("monthly", datetime(2026, 11, 22, tzinfo=UTC)), period("weekly", datetime(2027, 1, 1, tzinfo=UTC))
    ('2026-11', '2026-W53')
    """
    return "" if renewal is None else _PERIODS[renewal](at.astimezone(UTC))
