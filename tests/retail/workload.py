"""The queries of the workload, and what becomes of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "queries"
_HEAD = re.compile(r"^-- (\d+) (\w+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A query of a theme, by its number and its name there."""

    theme: str
    number: int
    name: str
    sql: str

    def __str__(self) -> str:
        return f"{self.theme}-{self.number}-{self.name}"


def _statements() -> tuple[Statement, ...]:
    found = []
    for path in sorted(_FOLDER.glob("*.sql")):
        _, *parts = _HEAD.split(path.read_text(encoding="utf-8"))
        for number, name, sql in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found.append(Statement(path.stem, int(number), name, sql.strip().rstrip(";")))
    return tuple(found)


STATEMENTS = _statements()
"""All of them, in order."""
