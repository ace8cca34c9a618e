"""What is said of a query before it is asked: the lines of its plan, its receipt, its notices."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.result import Receipt, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedQuery:
    """The plan of a query with its proofs and its price, line by line; `receipt` is that of an answer, uncharged.

    `notices` say what of the statement needs attention.
    """

    lines: tuple[str, ...]
    receipt: Receipt
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def result(self) -> Result:
        """The explanation as a result of one text column."""
        rows = tuple((line,) for line in self.lines)
        return Result(
            ("plan",), ("VARCHAR",), rows, tuple((None,) for _ in rows), self.receipt, lambda *_: None
        )
