"""Reads the queries of tests/fixtures, which say what becomes of each.

A block is a title, a query and what is expected, and ends at a blank line:

    -- A mean by group
    SELECT plan, AVG(cost) FROM visits GROUP BY plan
    -- plan:
    --   SELECT plan, AVG(cost)
    --   BY plan: 3 values
    --   OF cost in [0, 1000]
    --   FROM visits

`-- plan:` is the summary of an accepted query. A refused one has `-- code: table` and, where the error
points at a place, `-- at: line:column`. `-- with: [18, 'A']` gives parameters. `-- unlike duckdb: why`
excuses an answer that differs from DuckDB's.

In tests/fixtures/dialects, a file for each, `-- duckdb:` is the query in DuckDB's SQL that means the same, and
`-- value:` what a query on nothing private answers there, by the dialect's own manual.

In tests/fixtures/everyday, a file for each dialect whose engine runs here, a block is a title and a query.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dpsql.plan.types import Value

FIXTURES = Path(__file__).parents[1] / "fixtures"
_FIELDS = ("plan", "code", "at", "with", "unlike duckdb", "duckdb", "value")
_ENDS = frozenset({"plan", "code", "duckdb", "value"})


@dataclass(frozen=True, slots=True)
class Fixture:
    """A query of a fixture file with what is expected of it."""

    file: str
    title: str
    query: str
    fields: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"

    def field(self, name: str) -> str | None:
        """What the fixture says of `name`, or None."""
        return dict(self.fields).get(name)

    @property
    def accepted(self) -> bool:
        """Whether the query is expected to be answered."""
        return self.field("plan") is not None

    @property
    def parameters(self) -> tuple[Value, ...]:
        """The values for the query's `?`."""
        return tuple(ast.literal_eval(self.field("with") or "[]"))


@cache
def fixtures() -> tuple[Fixture, ...]:
    """Every fixture of every file in DuckDB's SQL."""
    return _all("sql")


@cache
def dialects() -> tuple[Fixture, ...]:
    """Every fixture in another dialect, which its file is called by."""
    return _all("dialects")


@cache
def everyday(dialect: str) -> tuple[Fixture, ...]:
    """The statements in a dialect that its own engine answers, too."""
    blocks = (FIXTURES / "everyday" / f"{dialect}.sql").read_text().strip().split("\n\n")
    titles = (block.split("\n", 1) for block in blocks)
    return tuple(Fixture(dialect, title.removeprefix("-- "), query, ()) for title, query in titles)


def _all(folder: str) -> tuple[Fixture, ...]:
    paths = sorted((FIXTURES / folder).glob("*.sql"))
    return tuple(fixture for path in paths for fixture in _read(path))


def accepted() -> list[Fixture]:
    """The fixtures that are answered."""
    return [fixture for fixture in fixtures() if fixture.accepted]


def refused() -> list[Fixture]:
    """The fixtures that are refused."""
    return [fixture for fixture in fixtures() if not fixture.accepted]


def _read(path: Path) -> Iterator[Fixture]:
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip("\n").splitlines()
        if lines:
            yield _fixture(path.stem, lines)


def _fixture(file: str, lines: list[str]) -> Fixture:
    title, *rest = lines
    fields: dict[str, list[str]] = {}
    query: list[str] = []
    for line in rest:
        name, colon, value = line.removeprefix("-- ").partition(":")
        if line.startswith("-- ") and colon and name in _FIELDS:
            fields[name] = [value.strip()] if value.strip() else []
        elif line.startswith("--   ") and fields:
            fields[list(fields)[-1]].append(line.removeprefix("--   "))
        elif fields:
            raise ValueError(f"{file}: {title}: the query goes on after its expectations")
        else:
            query.append(line)
    if not title.startswith("-- ") or len(_ENDS & fields.keys()) != 1:
        raise ValueError(f"{file}: {title}: a block has a title, and one plan, code, meaning or value")
    joined = tuple((name, "\n".join(values)) for name, values in fields.items())
    return Fixture(file, title.removeprefix("-- "), "\n".join(query), joined)
