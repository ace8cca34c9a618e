"""Show a private answer with its intervals, and the true values to their right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.interfaces.shell.view import build_table
from dpsql.results.rendering import BESIDE, align_decimals, format_value
from dpsql.results.result import Result

if TYPE_CHECKING:
    from rich.table import Table

TRUE = "true"


def build_comparison_table(result: Result, truth: Iterable[Sequence[Any]], keys: int) -> Table:
    """Build a table of an answer. `truth` has the true rows of all groups; the first `keys` columns name a group."""
    known = {tuple(row[:keys]): row for row in truth}
    names: list[str] = []
    columns: list[list[str]] = []
    right: list[int] = []
    for index, column in enumerate(result.render_columns()):
        added = [(column.name, column.cells)]
        if column.half_widths is not None:
            added.append((BESIDE, column.half_widths))
        if index >= keys:
            added.append((TRUE, _format_true_values(result, known, keys, index)))
        if column.is_number:
            right += range(len(names), len(names) + len(added))
        names += [name for name, _ in added]
        columns += [cells for _, cells in added]
    return build_table(names, list(zip(*columns, strict=True)), right=right)


def _format_true_values(
    result: Result, known: Mapping[tuple[Any, ...], Sequence[Any]], keys: int, index: int
) -> list[str]:
    """Format the true values of a column with as many digits as the noisy ones; empty for an empty group."""
    cells = []
    for row, scales in zip(result.rows, result.scales, strict=True):
        exactly = known.get(row[:keys])
        cells.append("" if exactly is None else format_value(exactly[index], scales[index]))
    return align_decimals(cells)
