"""docs/measurements/tpch.md says of each query what the tests hold; its noisy numbers are of the day it was written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tpch.report import lead
from tpch.study import UNITS
from tpch.verdicts import CASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "measurements" / "tpch.md").read_text(encoding="utf-8")
ANSWERED = r" \| [\d,]+ of [\d,]+( \+ [\d,]+)? \| ([\d.]+%|–)" * 2 + r" \|"
LINK = re.compile(r"\]\(([^)]+)\)")


def table(unit: str) -> list[str]:
    """The lines of a unit's table without its head."""
    (_, section) = PAGE.split(f"## Privacy unit: {unit}\n", 1)
    return [line for line in section.split("\n## ", 1)[0].splitlines() if line.startswith("| [")]


@pytest.mark.parametrize("unit", UNITS)
def test_each_query_has_its_verdict(unit: str) -> None:
    """The lines are those of the verdicts, in the order of the queries."""
    expected = [start for of, number in CASES if of == unit for start in lead(unit, number)]
    found = table(unit)
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(f"{start} |")
        numbers = line.removeprefix(start)
        assert re.fullmatch(r"( \|)+" if "refused" in start else ANSWERED, numbers), line


@pytest.mark.parametrize("unit", UNITS)
def test_errors_fall_with_a_larger_loss(unit: str) -> None:
    """An error at both losses is no larger at more loss, except 100%, which stands for no answer."""
    lines = [re.findall(r"([\d.]+)% \|", line) for line in table(unit)]
    both = [tuple(map(float, errors)) for errors in lines if len(errors) == 2]
    assert len(both) >= 20
    of_nothing = [errors for errors in both if all(abs(error - 100) < 1 for error in errors)]
    assert len(of_nothing) <= 1
    assert all(large <= small for small, large in both if (small, large) not in of_nothing)


def test_linked_files_exist() -> None:
    """Each query and rewrite that the page links to is a file."""
    links = LINK.findall(PAGE)
    assert links
    assert all((ROOT / "docs" / "measurements" / link).is_file() for link in links)
