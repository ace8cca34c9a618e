"""Text for people: values, tables, and budgets."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpsql.plan.types import AnswerValue
from dpsql.policy.request.loss import format_rounded

if TYPE_CHECKING:
    from dpsql.ledger.budget_state import BudgetState, RemainingBudget


# Values and tables as text for people: digits above the noise, half-widths, aligned columns.


Ends = tuple[float, float] | None
CONFIDENCE = 0.95
BESIDE = "±95%"
"""The head of the half-widths next to a column."""
NUMBERS = ("BIGINT", "DOUBLE", "HUGEINT")


@dataclass(frozen=True, slots=True)
class RenderedColumn:
    """A column as text; `half_widths` are the half-widths of its 95% intervals, if it is noisy."""

    name: str
    cells: list[str]
    is_number: bool
    half_widths: list[str] | None


@dataclass(frozen=True, slots=True)
class NoisyCell:
    """A displayed value, the standard deviation of its noise, and its 95% interval."""

    value: AnswerValue
    scale: float | None
    ends: Ends


def render_column(name: str, kind: str, texts: list[str], cells: Sequence[NoisyCell]) -> RenderedColumn:
    """Return a column with these texts and its half-widths.

    The interval of a value lies within the value minus and plus its half-width. For NULL, the interval itself is written out.
    """
    halves = None
    if any(cell.ends is not None for cell in cells):
        halves = align_decimals([_format_half_width(cell.value, cell.scale, cell.ends) for cell in cells])
    number = kind in NUMBERS or kind.startswith("DECIMAL(")
    return RenderedColumn(name, align_decimals(texts) if number else texts, number, halves)


def expand_columns(columns: Sequence[RenderedColumn]) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return names, cells and whether they are numbers, column by column, with the half-widths as columns."""
    names, cells, numbers = list[str](), list[list[str]](), list[bool]()
    for column in columns:
        names.append(column.name)
        cells.append(column.cells)
        numbers.append(column.is_number)
        if column.half_widths is not None:
            names.append(BESIDE)
            cells.append(column.half_widths)
            numbers.append(True)
    return names, cells, numbers


def format_value(value: Any, scale: float | None = None) -> str:
    """Return a value for people; a number's digits below its noise are left out.

    >>> format_value(1234.5678, 3.2), format_value(0.123456, 0.004), format_value(None), format_value({10: 1234, 20: 5})
    ('1,234.6', '0.1235', 'NULL', '{10: 1,234, 20: 5}')
    >>> format_value(Decimal("1234.50")), format_value(Decimal("1234.50"), 3.2)
    ('1,234.50', '1,234.5')
    """
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {format_value(count)}' for key, count in value.items())}}}"
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:,f}" if scale is None or scale <= 0 else format_value(float(value), scale)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if scale is None or scale <= 0 or not math.isfinite(scale):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    decimals = min(12, max(0, 1 - math.floor(math.log10(scale))))
    return f"{value:,.{decimals}f}"


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> list[str]:
    r"""Return a table as lines of text with a rule under its heads, columns of `numbers` to the right.

    >>> print(*format_table(("table", "ε"), [("visits", "1"), ("beds", "10")], (False, True)), sep="\n")
    table    ε
    ──────────
    visits   1
    beds    10
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    return [_format_row(heads, widths, numbers), rule, *(_format_row(row, widths, numbers) for row in rows)]


def _format_row(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, numbers, strict=True)
    )
    return "  ".join(placed).rstrip()


def _format_half_width(value: AnswerValue, scale: float | None, ends: Ends) -> str:
    if ends is None:
        return ""
    low, high = ends
    value = float(value) if isinstance(value, Decimal) else value
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return f"[{format_value(low, scale)}, {format_value(high, scale)}]"
    decimals = 0 if isinstance(value, int) else _count_decimals(format_value(value, scale))
    rounded = round(value, decimals)
    return f"{_round_up(max(high - rounded, rounded - low, 0.0), decimals):,.{decimals}f}"


def _count_decimals(number: str) -> int:
    return len(number.partition(".")[2])


def _round_up(value: float, decimals: int) -> float:
    """Round a value up, so that an interval is never shown too narrow."""
    steps = value * 10**decimals
    return math.ceil(steps) / 10**decimals if steps < 2**53 else value


def align_decimals(cells: Sequence[str]) -> list[str]:
    """Pad numbers on the right, so that their decimal points are aligned."""
    tails = [len(cell) - cell.find(".") if "." in cell and cell[-1].isdigit() else 0 for cell in cells]
    widest = max(tails, default=0)
    return [cell + " " * (widest - tail) if cell else cell for cell, tail in zip(cells, tails, strict=True)]


# The state of budgets as a table for people; remaining budgets are rounded down.


BUDGET_HEADS = ("used", "next query ε ≤", "queries", "spent ε", "ε", "δ", "accountant")


def format_budget_cells(state: BudgetState) -> tuple[str, ...]:
    """Return the name of a budget and the cells under `BUDGET_HEADS`."""
    return (
        f"{state.name}, {state.renewal} ({state.period})" if state.renewal else state.name,
        f"{100 - compute_remaining_percent(state)}%",
        format_rounded(state.remaining_epsilon),
        f"{state.queries:,}",
        format_rounded(state.spent_epsilon, up=True),
        format_rounded(state.epsilon, 6),
        format_rounded(state.delta, 6),
        state.accountant,
    )


def compute_remaining_percent(state: BudgetState | RemainingBudget) -> int:
    """Return the remaining part of a budget's loss, in whole percent, rounded down."""
    left = max(state.limit.loss - state.spent.loss, 0)
    return 100 * left // state.limit.loss if state.limit.loss else 0


def format_html_table(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> str:
    """Return a table as HTML for notebooks, with numbers at the right."""
    side = [' style="text-align: right"' if number else "" for number in numbers]
    head = "".join(f"<th{at}>{html.escape(name)}</th>" for name, at in zip(names, side, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{at}>{html.escape(cell)}</td>" for cell, at in zip(row, side, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def format_html_text(text: str) -> str:
    """Return a text whose columns are aligned as HTML: notebooks show `pre` in a proportional font unless it says otherwise."""
    return f'<pre style="font-family: monospace">{html.escape(text)}</pre>'


class Budgets(dict[str, "BudgetState"]):
    """The states of budgets by the names of their accounts, which print as a table."""

    def __str__(self) -> str:
        return "\n".join(format_table(*self._list_cells()))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return format_html_table(*self._list_cells())

    def _list_cells(self) -> tuple[tuple[str, ...], list[list[str]], tuple[bool, ...]]:
        """Return the heads, the cells, and which columns are numbers."""
        heads = ("table", *BUDGET_HEADS)
        numbers = (False, *(True for _ in BUDGET_HEADS[1:]), False)
        return heads, [[*format_budget_cells(state)] for state in self.values()], numbers
