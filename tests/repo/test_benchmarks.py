"""The benchmarks run; how fast anything is, no test asserts."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.deep
def test_overhead_prints_a_ratio_for_every_case() -> None:
    """`python -m benchmarks.overhead` prints a line for each case, with times, ratios and targets."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.overhead", "--rows", "20000", "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    lines = run.stdout.splitlines()
    assert "20,000 rows" in lines[0]
    for name, target in (("a row a unit", "1.5"), ("patients, public keys", "1.5"), ("3 groups each", "3")):
        (line,) = (
            line for line in lines if name in line and "text to SQL" not in line and "NULL" not in line
        )
        cells = [cell.strip() for cell in re.split("[│|]", line)[2:8]]
        assert cells[3] == target
        assert all(re.fullmatch(r"[\d,]+\.\d+", cell) for cell in cells if cell != target)
    assert any("import dpsql" in line for line in lines)
    assert sum("text to SQL" in line for line in lines) == 8


@pytest.mark.deep
def test_engines_prints_a_ratio_for_each_question() -> None:
    """`python -m benchmarks.engines` prints a line for each question on an engine, and the mean of an engine's ratios."""
    lines = _printed("benchmarks.engines", "--scale", "0.01", "--rounds", "1", "--engines", "duckdb")
    found = [_cells(line) for line in lines if "duckdb" in line]
    assert len(found) == 7
    assert all(re.fullmatch(r"\d+\.\d\d", row[-1]) for row in found)


def test_latency_prints_each_request_and_duckdb() -> None:
    """`python -m benchmarks.latency` prints a line for each query and kind of request, with a ratio."""
    lines = _printed("benchmarks.latency", "--rows", "100", "--rounds", "1")
    for kind in ("DuckDB", "query", "replayed", "EXPLAIN", "other parameter", "other text"):
        cells = [_cells(line) for line in lines if kind in map(str.strip, re.split("[│|]", line))]
        assert len(cells) == 5, kind
        assert all(re.fullmatch(r"[\d,]+\.\d+", cell) for row in cells for cell in row[2:])


@pytest.mark.deep
def test_growth_prints_sizes_and_an_exponent(tmp_path: Path) -> None:
    """`python -m benchmarks.growth` prints a line for each size, and how fast they grow."""
    sizes = ("--kinds", "known groups", "--sizes", "5", "50", "--accountant", "pure")
    plotted = ("--plot", str(tmp_path / "growth.png")) if importlib.util.find_spec("matplotlib") else ()
    lines = _printed("benchmarks.growth", *sizes, *plotted)
    assert "growth with known groups" in lines[0]
    (slopes,) = (_cells(line) for line in lines if "exponent" in line)
    assert all(re.fullmatch(r"-?\d+\.\d\d", cell) for cell in slopes[1:])
    assert [_cells(line)[0] for line in lines if re.search(r"[│|] +50? [│|]", line)] == ["5", "50"]
    assert not plotted or (tmp_path / "growth.png").stat().st_size > 0


def _printed(module: str, *arguments: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    return run.stdout.splitlines()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│|]", line)[1:-1]]


@pytest.mark.deep
def test_server_prints_each_interface_and_number_of_clients() -> None:
    """`python -m benchmarks.server` prints a line for each interface, with one process and two, and number of clients."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.server", "--clients", "1", "2", "--seconds", "0.5"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    for name, lines in (("PostgreSQL", 4), ("HTTP", 4), ("in process", 2), ("DuckDB", 2)):
        assert sum(name in line for line in run.stdout.splitlines()) == lines
