"""The explanation of a query: the lines of its plan, its receipt, its notices and its price."""

from __future__ import annotations

import html
from dataclasses import dataclass
from fractions import Fraction

from dpsql.policy.request.loss import format_rounded
from dpsql.results.result import Receipt, Result


@dataclass(frozen=True, slots=True)
class QueryCharge:
    """What a query would be charged: an ε, or the most for an answer in steps, to each of these accounts."""

    epsilon: Fraction
    accounts: tuple[str, ...]
    steps: bool = False

    def __str__(self) -> str:
        most = "at most " if self.steps else ""
        return f"{most}ε {format_rounded(self.epsilon, 6, up=True)}, charged to {' and '.join(self.accounts)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplainedQuery:
    """The plan of a query with its proofs and its price, line by line; `receipt` is that of an answer, uncharged.

    `notices` say what needs attention in the statement; `price` is None for a free query.
    """

    lines: tuple[str, ...]
    receipt: Receipt
    price: QueryCharge | None = None
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_result(self) -> Result:
        """Return the explanation as a result with one text column."""
        rows = tuple((line,) for line in self.lines)
        return Result(
            ("plan",), ("VARCHAR",), rows, tuple((None,) for _ in rows), self.receipt, lambda *_: None
        )
