"""The tables say who is better, by how much, and who did not answer."""

from __future__ import annotations

from benchmarks.accuracy.errors import Errors
from benchmarks.accuracy.table import Line, aligned, comparison, page, refusals

SYSTEMS = ("ours", "one", "other")


def errors(rmse: float, doubt: float = 0.01) -> Errors:
    """Errors of that size."""
    return Errors(rmse, rmse / 100, rmse / 10, 0, doubt)


def line(ours: float | None, one: float | None, other: float | None, epsilon: float = 1) -> Line:
    """A line of three systems, None for one that does not answer."""
    sizes = zip(SYSTEMS, (ours, one, other), strict=True)
    return Line("q", "n", epsilon, {name: None if size is None else errors(size) for name, size in sizes})


def test_ratio_is_to_the_best_answer() -> None:
    """One that refuses is no peer; with none, or without an answer of ours, there is no ratio."""
    assert line(2, 4, 8).ratio("ours") == 0.5
    assert line(2, None, 8).ratio("ours") == 0.25
    assert line(2, None, None).ratio("ours") is None
    assert line(None, 1, 1).ratio("ours") is None
    assert line(1, 0, 1).ratio("ours") == float("inf")
    assert line(0, 0, 1).ratio("ours") == 1


def test_ratio_above_one_may_be_chance() -> None:
    """Two standard errors must not explain the difference."""
    assert line(1.1, 1, 1).surely_worse("ours")
    assert not line(1.02, 1, 1).surely_worse("ours")
    assert not line(0.5, 1, 1).surely_worse("ours")
    unsure = Line("q", "n", 1, {"ours": errors(1.1, 0.1), "one": errors(1, 0.1)})
    assert not unsure.surely_worse("ours")


def test_comparison_counts_lines_by_their_targets() -> None:
    """It counts by ε and in total, with the geometric mean of the existing ratios."""
    lines = [line(1, 2, 2), line(2, 1, 4), line(None, 1, 1), line(0.9, 1, 1, epsilon=3)]
    *_, one, three, every = comparison(lines, "ours")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (one, three, every)]
    assert cells[0] == ["1", "2", "1.00", "1", "0", "1", "1", "2.00"]
    assert cells[1] == ["3", "1", "0.90", "0", "1", "0", "0", "0.90"]
    assert cells[2] == ["all", "3", "0.97", "1", "1", "1", "1", "2.00"]


def test_each_system_has_a_cell_on_each_line() -> None:
    """A dash where it does not answer."""
    words = list(page([line(2, None, 8)], "ours", SYSTEMS))
    rows = [row for row in words if row.startswith("| q: n")]
    assert [cell.strip() for cell in rows[0].strip("|").split("|")] == ["q: n", "2", "–", "8", "0.25"]
    assert [cell.strip() for cell in rows[1].strip("|").split("|")] == ["q: n", "2% / 20%", "–", "8% / 80%"]


def test_columns_are_aligned() -> None:
    """Each line of a table is as long as the others."""
    assert len({len(row) for row in aligned(["", "number"], [["long name", "1"], ["", "12,345,678"]])}) == 1


def test_every_refusal_is_printed() -> None:
    """One line for a system's reason, with the ε for which it gave it."""
    refused = [("one", "q", 1, "no MEDIAN"), ("one", "q", 3, "no MEDIAN"), ("other", "q", 3, "a | b")]
    *_, first, second = refusals(refused)
    assert "no MEDIAN" in first
    assert "1, 3" in first
    assert "a / b" in second
    assert list(refusals([])) == []
