"""The day and the time of a statement: `current_date` and `now()` are constants in it.

Claim: a statement that names its day or its moment is the statement in which that constant is written out.
Why: both are read once, before anything of the data is; the plan holds the constant, so that its fingerprint, by which
stored releases are found, is of that day, and no clock is in the SQL that is sent.
Source: ISO/IEC 9075-2, <datetime value function>: all of one statement are effectively evaluated at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot import exp

from dpsql.plan.expressions import Literal
from dpsql.plan.types import Type

_DAYS = ("current_date", "today")
_MOMENTS = (
    "now", "current_timestamp", "get_current_timestamp", "transaction_timestamp", "localtimestamp",
    "current_localtimestamp",
)  # fmt: skip
TIME_CALLS: Mapping[str, Type] = MappingProxyType(
    {**dict.fromkeys(_DAYS, Type.DATE), **dict.fromkeys(_MOMENTS, Type.TIMESTAMP)}
)
"""The functions without arguments that return the day or the time of the statement."""
TIME_NODES: Mapping[type[exp.Expr], str] = MappingProxyType(
    {
        exp.CurrentDate: "current_date",
        exp.CurrentTimestamp: "current_timestamp",
        exp.Localtimestamp: "localtimestamp",
    }
)
"""The parser's nodes for those that are written without parentheses."""


@dataclass(frozen=True, slots=True)
class StatementTime:
    """The time of a statement, in UTC without a zone; `used_constants` holds the constants that it reads, by name."""

    at: dt.datetime
    used_constants: dict[str, str] = field(default_factory=dict)

    def build_constant(self, name: str) -> Literal:
        """Build the constant that a call of the name is in this statement."""
        kind = TIME_CALLS[name]
        found = self.at.date() if kind is Type.DATE else self.at
        self.used_constants[name] = f"{found} UTC" if kind is Type.TIMESTAMP else str(found)
        return Literal(found, kind)
