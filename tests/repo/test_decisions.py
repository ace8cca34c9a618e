"""The records of decisions: numbered, in four parts, and listed in the index and in the site's navigation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
PARTS = ["Status", "Context", "Decision", "Consequences"]
STATUS = re.compile(
    r"(Accepted|Superseded by \[\d+\]\(\d{4}-[\w-]+\.md\)) on \d{4}-\d\d-\d\d(, amended on \d{4}-\d\d-\d\d)?\."
)


def read_title(record: Path) -> str:
    """The title of a record, with its number."""
    return record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def test_records_are_numbered_without_gaps() -> None:
    """The number of a record stands in its file's name and in its title."""
    for number, record in enumerate(RECORDS, start=1):
        assert record.name.startswith(f"{number:04d}-"), record.name
        assert read_title(record).startswith(f"{number}. "), record.name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_record_has_four_parts(record: Path) -> None:
    """Each part has text, the status a date, and the whole record fits on a screen."""
    text = record.read_text(encoding="utf-8")
    head, *parts = re.split(r"(?m)^## ", text)
    assert head == f"# {read_title(record)}\n\n"
    assert [part.partition("\n")[0] for part in parts] == PARTS
    bodies = [part.partition("\n")[2].strip() for part in parts]
    assert all(bodies)
    assert STATUS.fullmatch(bodies[0]), bodies[0]
    assert len(text.splitlines()) <= 50


def test_index_and_navigation_list_every_record() -> None:
    """The records stand in the order of their numbers, under their titles."""
    titles = [(*read_title(record).split(". ", 1), record.name) for record in RECORDS]
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| (\d+) \| \[(.+)\]\((.+)\) \|", index) == titles
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r'(?m)^ +- "(\d+)\. (.+)": decisions/(.+)$', navigation) == titles
