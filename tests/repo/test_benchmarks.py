"""The benchmarks run; how fast anything is, no test asserts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
    assert sum("text to SQL" in line for line in lines) == 7
