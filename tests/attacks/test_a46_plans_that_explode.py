"""A46: a short statement whose plan, or a number in it, makes the work before a charge grow without end.

`x*x+x` through n derived tables has 3^n operations when it is written out, a common table expression of `s || s` 2^n, and
the digits of e^-ε grow with an ε that nobody can pay. Such work needs no charge, and keeps others waiting. It is counted
here in Python's calls, which do not depend on the machine.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import FrameType
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.expressions import (
    Call,
    Column,
    ColumnInfo,
    Expr,
    compute_expression_size,
    iterate_columns,
    substitute_columns,
    walk,
)
from dpsql.plan.functions import build_function_call
from dpsql.plan.types import Type
from dpsql.planning.group_selection import OptimalPartitionSelection, compute_sufficient_epsilon
from dpsql.privacy.mechanisms import PartitionSelection

MOST_CALLS = 3_000_000
"""Python makes so many calls in about a second."""
MOST_LETTERS = 1_500_000
"""The longest text that a statement may be sent as."""
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10, "delta": 1e-6, "accountant": "pure"},
    "tables": {
        "visits": {
            "unit": "pid",
            "rows_per_unit": 9,
            "columns": {
                "lvl": {"type": "integer", "bounds": [0, 5]},
                "cost": {"type": "double", "bounds": [0, 10]},
                "s": {"type": "varchar"},
            },
        },
        "kinds": {"public": True},
    },
}


def connect(epsilon: float = 10, accountant: str = "pure") -> Connection:
    """A connection to 60 rows of 20 persons."""
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE visits AS SELECT i // 3 AS pid, i % 5 AS lvl, i % 7 / 2.0 AS cost, 'a' || (i % 4) AS s FROM range(60) r(i)"
    )
    database.execute("CREATE TABLE kinds AS SELECT i AS k, 'n' || i AS name FROM range(5) r(i)")
    policy = {**POLICY, "budget": {"epsilon": epsilon, "delta": 1e-6, "accountant": accountant}}
    con = dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=min(1, epsilon))
    con.explain("SELECT s, COUNT(*), AVG(cost) FROM visits GROUP BY s")  # what is imported and cached once
    return con


class Calls:
    """How many Python functions were called."""

    number = 0


class TooMany(BaseException):
    """There were more than `MOST_CALLS`."""


@contextmanager
def counted() -> Iterator[Calls]:
    """Counts calls, and stops beyond the most, so that a fault does not hang; what other tests left is collected later.

    To collect one of their connections takes a hundred calls.
    """
    found = Calls()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            found.number += 1
            if found.number > 2 * MOST_CALLS:
                sys.setprofile(None)
                raise TooMany

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()


def explained(con: Connection, sql: str) -> str:
    """The code of the refusal, or "" for what is explained; in bounded work, and with a text of bounded length."""
    code, sent = "", 0
    with counted() as calls:
        try:
            sent = len(str(con.explain(sql, replay=False)))
        except dpsql.QueryRejected as error:
            code = error.code
    assert calls.number <= MOST_CALLS, (calls.number, sql[:300])
    assert sent <= MOST_LETTERS, (sent, sql[:300])
    return code


def nested(levels: int, item: str, base: str, end: str) -> str:
    """Derived tables within each other, each with the same items."""
    query = base
    for level in range(levels):
        query = f"SELECT {item.replace('#', str(level))} FROM ({query}) AS q{level}"
    return end.format(f"({query})")


ROWS = "SELECT pid, lvl AS x, s FROM visits"
GROUPS = "SELECT lvl AS k, COUNT(*) AS x FROM visits GROUP BY lvl"
PUBLIC = "SELECT k, k AS x FROM kinds"
COUNT = "SELECT COUNT(*) FROM {} AS q WHERE x > 3 OR s > 'b'"
ITEMS = (
    "x * x + x AS x",
    "x - x * 2 AS x",
    "CASE WHEN x > 2 THEN x ELSE x + 1 END AS x",
    "COALESCE(NULLIF(x, 3), x) AS x",
    "CASE WHEN x BETWEEN x - 1 AND x + 1 THEN x END AS x",
    f"CASE WHEN x IN ({', '.join(map(str, range(300)))}) THEN x ELSE x + 1 END AS x",
    f"GREATEST({', '.join(['x'] * 60)}) AS x",
)
TEXTS = ("s || s AS s", f"CONCAT({', '.join(['s'] * 60)}) AS s", "REPLACE(s, 'a', 'bc') || s AS s")


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("levels", [5, 12, 15])
@pytest.mark.parametrize("kind", ["private", "released", "public", "keys"])
def test_chains_of_derived_tables_are_planned_in_bounded_work(item: str, levels: int, kind: str) -> None:
    """Chains that repeat columns in each level are planned or refused soon."""
    sql = {
        "private": nested(levels, f"pid, s, {item}", ROWS, COUNT),
        "released": nested(levels, f"k, {item}", GROUPS, "SELECT k, x FROM {} AS q WHERE x > 3 ORDER BY x"),
        "public": nested(
            levels,
            f"k, {item}",
            PUBLIC,
            "SELECT COUNT(*) FROM visits JOIN {} AS q ON lvl = q.k WHERE q.x > 3",
        ),
        "keys": nested(levels, f"pid, s, {item}", ROWS, "SELECT x, COUNT(*) FROM {} AS q GROUP BY x"),
    }[kind]
    assert explained(connect(), sql) in ("", "too_long")


@pytest.mark.parametrize("item", ["x * x + x AS x", "CASE WHEN x > 2 THEN x ELSE x + 1 END AS x"])
def test_expression_that_an_engine_would_expand_is_refused(item: str) -> None:
    """PostgreSQL inlines the expressions of columns at any depth, so the size counts that."""
    for levels, code in ((5, ""), (9, "too_long"), (15, "too_long")):
        assert explained(connect(), nested(levels, f"pid, s, {item}", ROWS, COUNT)) == code


@pytest.mark.parametrize("item", TEXTS)
@pytest.mark.parametrize("levels", [3, 6, 14])
def test_chains_of_texts_are_planned_in_bounded_work(item: str, levels: int) -> None:
    """Common table expressions that each write a text of the one before several times."""
    tables = ["c0 AS (SELECT pid, lvl AS x, s FROM visits)"]
    tables += [f"c{level} AS (SELECT pid, x, {item} FROM c{level - 1})" for level in range(1, levels + 1)]
    sql = f"WITH {', '.join(tables)} SELECT COUNT(*) FROM c{levels} WHERE LENGTH(s) > 5"
    assert explained(connect(), sql) in ("", "too_long")


def aliases(number: int, items: int) -> str:
    chain = ", ".join(f"a{place - 1} + a{place - 1} AS a{place}" for place in range(1, number + 1))
    more = "".join(f", a{number} + {place} AS b{place}" for place in range(items))
    return f"SELECT COUNT(*) FROM (SELECT pid, lvl AS a0, {chain}{more} FROM visits) AS q WHERE a1 > 2"


def joined(number: int) -> str:
    tables = ["c0 AS (SELECT pid, lvl AS x FROM visits)"]
    tables += [
        f"c{i} AS (SELECT a.pid, a.x FROM c{i - 1} AS a JOIN c{i - 1} AS b USING (pid))"
        for i in range(1, number)
    ]
    return f"WITH {', '.join(tables)} SELECT COUNT(*) FROM c{number - 1} WHERE x > 1"


def chain(query: str, number: int) -> str:
    return " UNION ALL ".join([query] * number)


GROWING: dict[str, tuple[Callable[[int], str], tuple[int, ...]]] = {
    "aliases": (lambda n: aliases(n, 0), (8, 12, 80)),
    "aliases of aliases": (lambda n: aliases(10, n), (8, 40, 80)),
    "joins of themselves": (joined, (3, 8, 12)),
    "sums": (lambda n: f"SELECT {', '.join(f'SUM(lvl + {i})' for i in range(n))} FROM visits", (40, 90)),
    "means by group": (
        lambda n: f"SELECT s, {', '.join(f'AVG(cost + {i})' for i in range(n))} FROM visits GROUP BY s",
        (40, 90),
    ),
    "branches": (
        lambda n: (
            f"SELECT CASE {' '.join(f'WHEN lvl = {i} THEN {i}' for i in range(n))} END AS k, COUNT(*) FROM visits GROUP BY 1"
        ),
        (100, 1000),
    ),
    "lists": (
        lambda n: f"SELECT COUNT(*) FROM visits WHERE lvl IN ({', '.join(map(str, range(n)))})",
        (100, 5000),
    ),
    "conditions": (
        lambda n: f"SELECT COUNT(*) FROM visits WHERE {' AND '.join(f'lvl <> {i + 9}' for i in range(n))}",
        (100, 500, 2000),
    ),
    "unions": (
        lambda n: (
            f"SELECT COUNT(*) FROM ({' UNION ALL '.join(f'SELECT pid, lvl + {i} AS x FROM visits' for i in range(n))}) AS q WHERE x > 1"
        ),
        (10, 41, 127, 255),
    ),
    "unions of releases": (
        lambda n: " UNION ALL ".join(
            f"SELECT {i} AS k, COUNT(*) FROM visits WHERE lvl = {i}" for i in range(n)
        ),
        (10, 127, 200),
    ),
    "unions of constants": (
        lambda n: (
            f"SELECT COUNT(*) FROM visits JOIN ({' UNION ALL '.join(f'SELECT {i} AS k' for i in range(n))}) AS q ON lvl = q.k"
        ),
        (10, 200, 256, 5000),
    ),
    "unions of unions": (
        lambda n: f"SELECT COUNT(*) FROM ({chain(f'SELECT pid FROM ({chain(ROWS, n)}) AS r', n)}) AS q",
        (9, 15, 42, 60),
    ),
    "grouping sets": (
        lambda n: (
            f"SELECT COUNT(*) FROM visits GROUP BY GROUPING SETS ({', '.join(f'(lvl % {i + 2})' for i in range(n))})"
        ),
        (8, 32),
    ),
    "public joins": (
        lambda n: (
            f"SELECT COUNT(*) FROM visits {' '.join(f'JOIN kinds AS k{i} ON lvl = k{i}.k' for i in range(n))}"
        ),
        (16, 60),
    ),
    "windows": (
        lambda n: nested(n, "pid, s, x + ROW_NUMBER() OVER (PARTITION BY pid ORDER BY x) AS x", ROWS, COUNT),
        (6, 15),
    ),
    "subqueries": (
        lambda n: (
            f"SELECT COUNT(*) FROM visits AS v WHERE {' OR '.join(f'EXISTS (SELECT 1 FROM visits AS w{i} WHERE w{i}.pid = v.pid AND w{i}.lvl > {i})' for i in range(n))}"
        ),
        (8, 40),
    ),
    "joins with itself": (
        lambda n: (
            f"SELECT COUNT(*) FROM visits AS v0 {' '.join(f'JOIN visits AS v{i} ON v0.pid = v{i}.pid' for i in range(1, n))}"
        ),
        (7, 16, 40),
    ),
}


@pytest.mark.parametrize("name", GROWING)
def test_growing_statements_are_planned_in_bounded_work(name: str) -> None:
    """Each way in which a statement grows."""
    written, sizes = GROWING[name]
    con = connect()
    for size in sizes:
        assert explained(con, written(size)) in ("", "too_long", "too_deep", "fanout"), size


LONG: dict[str, str] = {
    "unions": chain(f"SELECT pid FROM ({chain(ROWS, 60)}) AS r", 60),
    "common tables": f"WITH {', '.join(f'c{i} AS (SELECT 1 AS k)' for i in range(1_200))} SELECT k FROM c1",
    "lists": f"SELECT COUNT(*) FROM visits WHERE lvl IN ({', '.join(['1'] * 12_000)})",
    "calls": f"SELECT COUNT(*) FROM visits WHERE GREATEST({', '.join(['lvl'] * 12_000)}) > 1",
    "conditions": f"SELECT COUNT(*) FROM visits WHERE {' OR '.join(['lvl = 1'] * 6_000)}",
}


@pytest.mark.parametrize("name", LONG)
def test_long_texts_are_refused_before_they_are_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, symbols and SELECTs are counted first: to read them takes a tenth of the work of parsing them."""
    con = connect()
    monkeypatch.setattr("dpsql.sql.parse.parse.parse_tokens", lambda *_: pytest.fail("it is parsed"))
    assert explained(con, LONG[name]) == "too_long"


def test_whole_statement_is_bounded() -> None:
    """Many expressions, each within its limit, are more than a statement may have; half as many are planned."""
    con = connect()
    item = " + ".join(["lvl"] * 19)
    for number, code in ((45, ""), (99, "too_long")):
        items = ", ".join(f"SUM(x * {place} + x + {item})" for place in range(number))
        sql = f"SELECT {items} FROM (SELECT pid, lvl, {' + '.join(['lvl'] * 19)} AS y, y + y + y + y AS x FROM visits) AS q"
        assert explained(con, sql) == code


def test_conditions_of_all_levels_are_bounded() -> None:
    """Conditions of derived tables are put at one scan by the engine, so that they count together."""
    con, query = connect(), "SELECT pid, s, lvl AS x FROM visits"
    for level, code in enumerate(("", "", "", "too_long")):
        said = " AND ".join(f"x <> {place + 100 * level}" for place in range(9, 99))
        query = f"SELECT pid, s, x FROM ({query}) AS q{level} WHERE {said}"
        assert explained(con, f"SELECT COUNT(*) FROM ({query}) AS q") == code


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_are_planned_in_bounded_work(seed: int) -> None:
    """Levels of several kinds, drawn at random, on top of each other."""
    rng = random.Random(seed)
    query = ROWS
    for level in range(rng.randint(1, 15)):
        table = f"({query}) AS q{level}"
        query = rng.choice(
            [
                f"SELECT pid, s, {rng.choice(ITEMS)} FROM {table}",
                f"SELECT pid, x, {rng.choice(TEXTS[:2])} FROM {table}",
                f"SELECT pid, s, x FROM {table} WHERE x * x > {level} AND s <> 'b'",
                f"SELECT pid, s, x + ROW_NUMBER() OVER (PARTITION BY pid ORDER BY x, s) AS x FROM {table}",
                f"SELECT pid, s, SUM(x * x + x) AS x FROM {table} GROUP BY pid, s",
                f"SELECT pid, s, x FROM {table} UNION ALL SELECT pid, s, lvl AS x FROM visits",
                f"SELECT q{level}.pid, q{level}.s, x FROM {table} JOIN kinds ON x = k",
            ]
        )
    end = rng.choice(
        [
            COUNT,
            "SELECT s, COUNT(*), SUM(LEAST(GREATEST(x, 0), 9)) FROM {} AS q GROUP BY s",
            "SELECT LEAST(GREATEST(x, 0), 9) AS k, COUNT(*) FROM {} AS q GROUP BY 1",
            "SELECT DISTINCT s FROM {} AS q WHERE x > 1",
        ]
    )
    explained(connect(accountant=rng.choice(["pure", "zcdp"])), end.format(f"({query})"))


def test_careless_substitution_builds_every_part() -> None:
    """The attack works where each part is built as often as it stands; its size is known without that."""
    x: Expr = Column("t", "x", ColumnInfo(Type.INTEGER, "BIGINT"))

    def careless(expr: Expr, item: Expr) -> Expr:
        built.append(expr)
        if not isinstance(expr, Call):
            return item
        return Call(expr.function, tuple(careless(part, item) for part in expr.arguments), expr.type)

    item = build_function_call("add", build_function_call("multiply", x, x), x)
    assert item is not None
    whole = item
    built: list[Expr] = []
    for _ in range(6):
        whole = careless(whole, item)
    assert len(built) > 3**6
    shared = item
    with counted():
        for _ in range(40):
            (column,) = set(iterate_columns(shared))
            shared = substitute_columns(shared, {column: item})
        assert len(list(walk(shared))) < 1000
    assert compute_expression_size(shared) > 3**40


ENTRIES: dict[str, Callable[[Connection, float], object]] = {
    "query": lambda con, loss: con.query("SELECT DISTINCT s FROM visits", epsilon=loss),
    "plan": lambda con, loss: con.plan("SELECT s, COUNT(*) FROM visits GROUP BY s", epsilon=loss),
    "execute": lambda con, loss: con.execute("SELECT COUNT(*) FROM visits", epsilon=loss),
    "option": lambda con, loss: con.query(
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = {loss}) s, COUNT(*) FROM visits GROUP BY s"
    ),
    "synthetic": lambda con, loss: con.synthetic("SELECT lvl, cost FROM visits", epsilon=loss),
    "stream": lambda con, loss: con.stream("SELECT lvl FROM visits", epsilon=loss, updates=2),
    "reserve": lambda con, loss: con.reserve(epsilon=loss),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_unaffordable_loss_is_refused_before_planning(entry: str, accountant: str) -> None:
    """A loss above the whole budget gets the error of a spent budget, with little work."""
    con = connect(accountant=accountant)
    for loss in (11, 20_000, 10**9):
        with counted() as calls, pytest.raises(dpsql.BudgetExhausted) as caught:
            ENTRIES[entry](con, loss)
        assert caught.value.code == "budget_exhausted"
        assert calls.number < MOST_CALLS / 10
    assert con.budget()["visits"].spent.loss == 0


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_forecast_of_an_unaffordable_loss_takes_little_work(accountant: str) -> None:
    """EXPLAIN and a forecast plan it all the same, and show that it is refused, with no more work than for a small one."""
    con = connect(accountant=accountant)
    for loss in (11, 20_000, 10**9):
        with counted() as calls:
            explained = con.explain("SELECT DISTINCT s FROM visits", epsilon=loss)
            forecast = con.budget(["SELECT DISTINCT s FROM visits"], epsilon=loss)
        assert "REFUSED" in str(explained)
        assert "does not fit" in str(forecast)
        assert calls.number < MOST_CALLS


def test_free_query_has_no_excessive_loss() -> None:
    """Public keys alone and combined answers are not charged, and stored releases are answered again."""
    con = connect(epsilon=0.5)
    con.query("SELECT COUNT(*) FROM visits", epsilon=0.5)
    assert con.query("SELECT lvl FROM visits GROUP BY lvl", epsilon=100).rows
    assert con.combine("SELECT COUNT(*) FROM visits").rows
    assert con.query("SELECT COUNT(*) FROM visits", epsilon=0.5).rows


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_choosing_keys_takes_no_more_work_for_a_larger_loss(accountant: str) -> None:
    """e^-ε is not computed to as many digits as it has zeros."""
    con = connect(10**12, accountant)
    numbers = []
    for loss in (100, 10_000, 10**8):
        with counted() as calls:
            assert len(con.query("SELECT DISTINCT s FROM visits", epsilon=loss, replay=False).rows) == 4
        numbers.append(calls.number)
    assert max(numbers) < 1.5 * numbers[0]


def test_selection_of_keys_spends_no_more_than_needed() -> None:
    """The law of the selection at ε 2,000 is that of a far smaller ε; the charge is 2,000."""
    planned = connect(10**12).plan("SELECT DISTINCT s FROM visits", epsilon=2_000)
    selection = planned.plan.selection
    assert isinstance(selection, OptimalPartitionSelection)
    assert selection.mechanism.epsilon == compute_sufficient_epsilon(selection.mechanism.delta) < 200
    assert planned.terms.epsilon == 2_000


@pytest.mark.parametrize("delta", [Fraction(1, 4), Fraction(1, 10**6), Fraction(1, 10**30)])
def test_enough_loss_shows_all_groups_except_single_units(delta: Fraction) -> None:
    """A single unit is shown with δ at the limit; two are withheld with a probability below e^-64."""
    rule = PartitionSelection(compute_sufficient_epsilon(delta), delta)
    assert rule.bound_probability(1, 60) == (delta, delta)
    assert 1 - rule.bound_probability(2, 60)[0] < Fraction(1, 10**27)
    assert rule.compute_median_units() == (1 if delta >= Fraction(1, 2) else 2)
