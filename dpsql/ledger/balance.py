"""Where an account stands: what is spent on each part, what is reserved, in which period, after how many entries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dpsql.accounting.partitions.boxes import WHOLE, Box, Parts
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.ledger.digest import canonical, text_digest
from dpsql.ledger.reservations import Slices


@dataclass(frozen=True, slots=True)
class Standing:
    """An account after `count` entries, with what was spent on its `parts`, and its open `slices`, in a `period`.

    A slice counts whole among what is spent. A period is text that sorts by time, and empty for a budget that never
    renews. `failures` are those since an owner last looked, in whatever period.
    """

    parts: Parts = field(default_factory=Parts)
    count: int = 0
    period: str = ""
    slices: Slices = field(default_factory=dict)
    failures: int = 0

    @property
    def spent(self) -> Spend:
        """The largest spend over the parts."""
        return self.parts.most()

    def begun(self, period: str) -> Standing:
        """The same at a time of a period: a later one has no spends and no slices; an earlier one changes nothing."""
        return replace(self, parts=Parts(), period=period, slices={}) if period > self.period else self

    def left(self, limit: Spend, box: Box = WHOLE) -> Spend:
        """What may still be charged to a box."""
        spent = self.parts.most(box)
        return Spend(max(limit.loss - spent.loss, 0), max(limit.delta - spent.delta, 0))


def parts_digest(parts: Parts) -> str | None:
    """The digest of what is spent on each part, by which an entry vouches for it; None where there is the whole alone."""
    if not parts.cells:
        return None
    return text_digest(
        canonical({box: [str(own.loss), str(own.delta)] for box, own in parts_rows(parts).items()})
    )


def parts_rows(parts: Parts) -> dict[str, Spend]:
    """What is spent on each box besides the whole, and on the whole, by the box's text; {} for the whole alone."""
    if not parts.cells:
        return {}
    return {str(box): own for box, own in parts.cells.items()} | {str(WHOLE): parts.base}


def parts_of(rows: dict[str, Spend]) -> Parts:
    """The parts that these rows keep."""
    cells = {Box.parse(text): own for text, own in rows.items()}
    base = cells.pop(WHOLE, NOTHING)
    return Parts(base, cells)
