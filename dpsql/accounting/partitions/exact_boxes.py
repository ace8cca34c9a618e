"""How charges to parts were added up before cells were bounded: in disjoint boxes that are cut apart exactly.

For the entries of older ledgers alone, which say what was spent by this rule. What it gives is no less than what was
spent at any place, as is what `Parts.charged` gives; so either may follow from the other.
"""

from __future__ import annotations

from dpsql.accounting.partitions.boxes import WHOLE, Box, Parts
from dpsql.accounting.spend import NOTHING, Spend

_MOST_CELLS = 4_096
_FEW_CELLS = 64


def charged_exactly(parts: Parts, box: Box, spend: Spend) -> Parts:
    """The same after a charge to a box, or to the whole where that would make more than 4,096 cells."""
    few = len(parts.cells) < _FEW_CELLS or len(_cells(parts, box, NOTHING)) <= _MOST_CELLS
    if box == WHOLE or not few:
        return Parts(parts.base + spend, parts.cells)
    return Parts(parts.base, _cells(parts, box, spend))


def _cells(parts: Parts, box: Box, spend: Spend) -> dict[Box, Spend]:
    found: dict[Box, Spend] = {}
    rest = [box]
    for cell, own in parts.cells.items():
        shared = cell.meet(box)
        if shared is None:
            found[cell] = own
            continue
        found[shared] = own + spend
        found |= dict.fromkeys(cell.minus(box), own)
        rest = [piece for part in rest for piece in part.minus(cell)]
    return found | dict.fromkeys(rest, spend)
