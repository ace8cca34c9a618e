"""The tables: errors side by side, and how dpsql compares with the best of its peers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.errors import Errors, geometric_mean

LEAST = 0.01
"""What a ratio counts as in the geometric mean where it is less: an error of 0 has no logarithm."""
MOST = 0.7
"""The target for the geometric mean of the ratios to the best peer; none should be above 1."""


@dataclass(frozen=True, slots=True)
class Line:
    """One number of one question at one ε: the errors of each system, None of one that does not answer."""

    question: str
    output: str
    epsilon: float
    errors: Mapping[str, Errors | None]

    @property
    def name(self) -> str:
        """The line as tables name it."""
        return f"{self.question}: {self.output}"

    def ratio(self, ours: str) -> float | None:
        """The error of `ours` to the least of the others; None where there is nothing to compare."""
        own, best = self.errors.get(ours), self.best(ours)
        if own is None or best is None:
            return None
        if not best.rmse:
            return math.inf if own.rmse else 1.0
        return own.rmse / best.rmse

    def best(self, ours: str) -> Errors | None:
        """The least of the others' errors."""
        others = [found for system, found in self.errors.items() if system != ours and found is not None]
        return min(others, key=lambda found: found.rmse, default=None)

    def surely_worse(self, ours: str) -> bool:
        """Whether the ratio is above 1 by more than two of its standard errors."""
        ratio, own, best = self.ratio(ours), self.errors.get(ours), self.best(ours)
        if ratio is None or own is None or best is None:
            return False
        return ratio > math.exp(2 * math.hypot(own.doubt, best.doubt))


def page(lines: Sequence[Line], ours: str, systems: Sequence[str]) -> Iterator[str]:
    """The tables of each ε and the comparison, as aligned Markdown."""
    for epsilon in dict.fromkeys(line.epsilon for line in lines):
        these = [line for line in lines if line.epsilon == epsilon]
        yield f"### ε = {epsilon:g}: root mean square error\n"
        yield from aligned(
            ["", *systems, "ratio"],
            [
                [
                    line.name,
                    *(number(line.errors[system]) for system in systems),
                    _ratio(line.ratio(ours)),
                ]
                for line in these
            ],
        )
        yield f"\n### ε = {epsilon:g}: relative error, median and 95th percentile, and cells missing\n"
        yield from aligned(
            ["", *systems],
            [[line.name, *(relative(line.errors[system]) for system in systems)] for line in these],
        )
        yield ""
    yield from comparison(lines, ours)


def comparison(lines: Sequence[Line], ours: str) -> Iterator[str]:
    """The geometric mean of the ratios to the best peer, and the lines above the targets."""
    yield f"### {ours} to its best peer\n"
    rows = []
    for epsilon in [*dict.fromkeys(line.epsilon for line in lines), None]:
        these = [line for line in lines if epsilon in (None, line.epsilon)]
        ratios = [ratio for line in these for ratio in (line.ratio(ours),) if ratio is not None]
        if ratios:
            rows.append(
                [
                    "all" if epsilon is None else f"{epsilon:g}",
                    str(len(ratios)),
                    f"{geometric_mean([max(ratio, LEAST) for ratio in ratios]):.2f}",
                    str(sum(ratio <= MOST for ratio in ratios)),
                    str(sum(MOST < ratio <= 1 for ratio in ratios)),
                    str(sum(ratio > 1 for ratio in ratios)),
                    str(sum(line.surely_worse(ours) for line in these)),
                    _ratio(max(ratios)),
                ]
            )
    columns = ["ε", "lines", "geometric mean", f"at most {MOST}", "at most 1", "above 1", "surely", "largest"]
    yield from aligned(columns, rows)


def refusals(refused: Sequence[tuple[str, str, float, str]]) -> Iterator[str]:
    """Why there is no answer, by system and question."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for system, question, epsilon, reason in refused:
        found.setdefault((system, question, reason), []).append(f"{epsilon:g}")
    rows = [
        [system, question, ", ".join(losses), reason.replace("|", "/")]
        for (system, question, reason), losses in found.items()
    ]
    if rows:
        yield "\n### Not answered\n"
        yield from aligned(["system", "question", "ε", "why"], rows)


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table whose columns are aligned in plain text too: the first to the left, numbers to the right.

    >>> print(*aligned(["", "n"], [["a", "10"], ["bc", "1"]]), sep=chr(10))
    |    |  n |
    |----|---:|
    | a  | 10 |
    | bc |  1 |
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = [False, *(all(_is_number(row[at]) for row in rows) for at in range(1, len(head)))]
    yield _row(head, widths, right)
    marks = ("-" * (width + 1) + (":" if ends else "-") for width, ends in zip(widths, right, strict=True))
    yield f"|{'|'.join(marks)}|"
    for row in rows:
        yield _row(row, widths, right)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if ends else cell.ljust(width)
        for cell, width, ends in zip(cells, widths, right, strict=True)
    )
    return f"| {' | '.join(placed)} |"


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell in "–∞"


def number(found: Errors | None) -> str:
    """A root mean square error for people; a dash for none.

    >>> number(Errors(12345.6, 0, 0, 0)), number(Errors(0.012345, 0, 0, 0)), number(None)
    ('12,346', '0.0123', '–')
    """
    if found is None:
        return "–"
    return f"{found.rmse:,.0f}" if found.rmse >= 1000 else f"{found.rmse:.3g}"


def relative(found: Errors | None) -> str:
    """The relative errors for people, with the share of missing cells if there are any.

    >>> relative(Errors(1, 0.0123, 0.5, 0.25))
    '1.23% / 50% (25% missing)'
    """
    if found is None:
        return "–"
    missing = f" ({found.missing:.0%} missing)" if found.missing else ""
    return f"{100 * found.median:.3g}% / {100 * found.high:.3g}%{missing}"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:.2f}" if ratio < math.inf else "∞"
