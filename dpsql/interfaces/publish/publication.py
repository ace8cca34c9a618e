"""Read a publication: named queries with their policy and losses, in a YAML file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from dpsql.errors import ProgrammingError
from dpsql.policy.fields import Delta, Epsilon
from dpsql.policy.problem import Problem, make_problem_error
from dpsql.policy.report import make_policy_error
from dpsql.policy.request.query import QueryOptions
from dpsql.policy.tables import Model
from dpsql.policy.tree import parse_yaml

LARGEST_FILE = 1_000_000  # bytes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_WANTED = {
    "missing": "is missing",
    "extra_forbidden": "is not a key of a publication",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least 1",
}


def _require_file_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise make_problem_error(
            "bad_name", "may have only letters, digits, - and _, since files are named after it"
        )
    return name


class PublishedTable(Model):
    """A query with its loss, by default that of the publication, and a note for readers."""

    sql: str
    title: str | None = None
    note: str | None = None
    epsilon: Epsilon | None = None
    delta: Delta | None = None
    max_groups: Annotated[int, Field(ge=1)] | None = None


class Publication(Model):
    """A publication. Paths are relative to its file."""

    title: str
    policy: str
    database: str | None = None
    ledger: str | None = None
    analyst: str | None = None
    dialect: str = "duckdb"
    epsilon: Epsilon | None = None
    tables: dict[Annotated[str, AfterValidator(_require_file_name)], PublishedTable]

    def build_query_options(self, table: PublishedTable, default: Fraction | None = None) -> QueryOptions:
        """Return the options of a table's query."""
        loss = next((each for each in (table.epsilon, self.epsilon, default) if each is not None), None)
        return {
            "epsilon": loss,
            "delta": table.delta,
            "max_groups": table.max_groups,
            "dialect": self.dialect,
            "replay": True,
        }


def load_publication(path: Path) -> Publication:
    """Load a publication from a YAML file, as strictly as a policy.

    Raises PolicyError with the line and key of each problem, and ProgrammingError (`publication`) if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)[:LARGEST_FILE].decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"cannot read {path} as UTF-8 text", code="publication", hint="check the path and the encoding"
        ) from None
    tree = parse_yaml(text, str(path))
    found: Publication | None = None
    problems = list(tree.problems)
    try:
        found = Publication.model_validate({} if tree.value is None else tree.value)
    except ValidationError as error:
        problems += _iterate_problems(error)
    if found is not None and not found.tables:
        problems.append(Problem(("tables",), "missing", "must name at least one query"))
    if found is not None and len({name.casefold() for name in found.tables}) < len(found.tables):
        problems.append(
            Problem(
                ("tables",), "bad_name", "has names that differ only in case, but files are named after them"
            )
        )
    if found is None or problems:
        raise make_policy_error(tree.source, problems)
    return found


def build_publication(
    title: str, policy: str, texts: Mapping[str, str], epsilon: Fraction | None, dialect: str
) -> Publication:
    """Build a publication of named queries. Raises ProgrammingError for an invalid file name, or without a query."""
    wrong = [name for name in texts if not _NAME.fullmatch(name)]
    if wrong or not texts:
        raise ProgrammingError(
            f"{wrong[0]!r} cannot name a table; use letters, digits, - and _"
            if wrong
            else "the files contain no query",
            code="query_file",
            hint="rename the file, after which the output is named" if wrong else "write a query into a file",
        )
    tables = {name: PublishedTable(sql=sql) for name, sql in texts.items()}
    return Publication(title=title, policy=policy, tables=tables, epsilon=epsilon, dialect=dialect)


def _iterate_problems(error: ValidationError) -> Iterator[Problem]:
    for details in error.errors(include_url=False):
        path = tuple(str(step) for step in details["loc"] if step != "[key]")
        kind, context = details["type"], details.get("ctx", {})
        if kind == "policy":
            yield from (problem.with_parents(*path) for problem in context["problems"])
        else:
            yield Problem(path, kind, _WANTED.get(kind, "must be a mapping of keys"))
