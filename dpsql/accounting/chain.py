"""The chain of a ledger's entries: each names the one before by its digest, so that a change shows.

What somebody who can write the file rebuilds from the first changed entry on, digests and all, is a chain
too. Only a `Head` that is kept elsewhere tells it from the one that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dpsql.accounting.ledger import Head
from dpsql.accounting.rows import FIRST_PREVIOUS, Row, is_intact, stored_spend, tampered
from dpsql.accounting.spend import NOTHING, Spend

Total: TypeAlias = tuple[Spend, int]
"""What a table has spent, and in how many charges."""

START = Head(0, FIRST_PREVIOUS)


@dataclass(frozen=True, slots=True)
class Chain:
    """What was checked so far: where it ends, and each table's total."""

    head: Head = START
    totals: Mapping[str, Total] = field(default_factory=dict)

    def total(self, table: str) -> Total:
        """The total of a table."""
        return self.totals.get(table, (NOTHING, 0))

    def followed(self, rows: Iterable[Row], budget_of: Callable[[str], str | None]) -> Chain:
        """The chain with these entries after its last.

        `budget_of` gives the digest of a table's budget. Raises IntegrityError (`ledger_tampered`) with the
        number of the first entry that does not follow: an id, a digest, a link, a running total, a table's
        count or a budget is not what dpsql wrote.
        """
        end, totals, budgets = self.head, dict(self.totals), {}
        for row in rows:
            number = end.entries + 1
            if row["id"] > number:
                raise tampered(number, "is missing")
            if row["id"] < number:
                raise tampered(row["id"], "was put in")
            if not is_intact(row):
                raise tampered(number, "was changed")
            if row["previous"] != end.digest:
                raise tampered(number, "does not follow the one before")
            table = row["table_name"]
            if table not in budgets:
                budgets[table] = budget_of(table)
            if row["budget"] != budgets[table]:
                raise tampered(number, f"was charged to another budget than table {table} has now")
            spent, queries = totals.get(table, (NOTHING, 0))
            total = spent + stored_spend(row["loss"], row["delta"]), queries + 1
            if total != (stored_spend(row["spent_loss"], row["spent_delta"]), row["number"]):
                raise tampered(number, "does not add up with those before")
            totals[table] = total
            end = Head(number, row["digest"])
        return Chain(end, totals)
