"""docs/reference says what the package does: its generated pages are those that `python docs/generate.py` writes."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import dpsql
from tests.sql.codes import raised

ROOT = Path(__file__).parents[2]
PAGES = ("functions", "policy", "cli", "errors", "sql", "types", "mechanisms", "engines")


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    """The names of docs/generate.py."""
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.fixture(scope="module")
def generated(generator: dict[str, Any]) -> dict[str, str]:
    """Each generated page as it should be, by its name."""
    return {path.stem: text for path, text in generator["pages"]().items()}


@pytest.mark.whole
@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(generated: dict[str, str], name: str) -> None:
    """The page is what `python docs/generate.py` writes."""
    assert set(generated) == set(PAGES)
    page = ROOT / "docs" / "reference" / f"{name}.md"
    assert page.read_text(encoding="utf-8") == generated[name], "run: python docs/generate.py"


def test_man_page_is_current(generator: dict[str, Any]) -> None:
    """dpsql(1) has each command and option; a line of text begins with no macro."""
    manual = generator["manual"]
    text = manual["PAGE"].read_text(encoding="utf-8")
    assert text == manual["manual"](), "run: python docs/generate.py"
    assert "\n.SS dpsql ledger verify" in text
    assert {line.split()[0] for line in text.splitlines() if line[0] == "."} == {
        ".TH",
        ".SH",
        ".SS",
        ".B",
        ".I",
        ".PP",
        ".TP",
    }


def test_gallery_pictures_are_current(generator: dict[str, Any]) -> None:
    """Each mechanism has the picture of its law and samples that `python docs/generate.py` draws."""
    made = generator["gallery"]["pictures"]()
    assert len(made) == len(generator["gallery"]["LIBRARY"])
    assert set(made) == set(generator["gallery"]["PICTURES"].glob("*.svg"))
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run: python docs/generate.py"
        assert text.count("<rect") > 3, "samples are bars"


def test_every_refusal_code_is_listed(generated: dict[str, str]) -> None:
    """The codes that tests know of are on the page of errors."""
    _, _, refusals = generated["errors"].partition("## QueryRejected")
    assert {code for code in raised() if f"| `{code}` |" not in refusals} <= {"parameter"}


def test_every_error_is_listed(generated: dict[str, str]) -> None:
    """Each class of error that the package exports has a heading."""
    exported = [getattr(dpsql, name) for name in dpsql.__all__]
    classes = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, dpsql.Error)]
    assert len(classes) > 10
    for kind in classes:
        assert f"## {kind.__name__}\n" in generated["errors"]


def test_every_option_is_listed(generated: dict[str, str]) -> None:
    """Every command, and options that only some of them have, are on the page of the command line."""
    for word in (
        "dpsql query",
        "dpsql ledger unlock",
        "dpsql receipt verify",
        "--target-error",
        "--head",
        "--reservation",
    ):
        assert word in generated["cli"]
    assert "`\\explain SELECT …`" in generated["cli"]


def test_listed_contexts_of_aggregates_are_true(generated: dict[str, str]) -> None:
    """The table of aggregates says yes and no: of SUM everywhere, of COUNT_IF not within a unit, of ARG_MAX not across units."""
    lines = {
        line.split("|")[1].strip(): line.split("|")[2:-1]
        for line in generated["sql"].splitlines()
        if "| yes |" in line
    }
    cells = {name: [cell.strip() for cell in row] for name, row in lines.items()}
    assert set(cells["`SUM(x)`"]) == {"yes"}
    assert cells["`COUNT_IF(x > 10)`"][:3] == ["yes", "yes", "–"]
    assert cells["`ARG_MAX(k, x)`"][0] == "–"
