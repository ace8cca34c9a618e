"""A private answer with its intervals, and the true value right of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.rendering import BESIDE, decimals_aligned, text
from dpsql.result import Result
from dpsql.shell.view import table

if TYPE_CHECKING:
    from rich.table import Table

TRUE = "true"


def beside(result: Result, truth: Iterable[Sequence[Any]], keys: int) -> Table:
    """The answer as a table. `truth` are the true rows of all groups; the first `keys` columns name a group."""
    known = {tuple(row[:keys]): row for row in truth}
    names: list[str] = []
    columns: list[list[str]] = []
    right: list[int] = []
    for index, column in enumerate(result.rendered()):
        added = [(column.name, column.cells)]
        if column.halves is not None:
            added.append((BESIDE, column.halves))
        if index >= keys:
            added.append((TRUE, _true(result, known, keys, index)))
        if column.number:
            right += range(len(names), len(names) + len(added))
        names += [name for name, _ in added]
        columns += [cells for _, cells in added]
    return table(names, list(zip(*columns, strict=True)), right=right)


def _true(result: Result, known: Mapping[tuple[Any, ...], Sequence[Any]], keys: int, index: int) -> list[str]:
    """The true values of a column, to as many digits as the noisy ones; empty for an empty group."""
    cells = []
    for row, scales in zip(result.rows, result.scales, strict=True):
        exactly = known.get(row[:keys])
        cells.append("" if exactly is None else text(exactly[index], scales[index]))
    return decimals_aligned(cells)
