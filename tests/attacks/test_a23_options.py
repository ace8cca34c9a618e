"""A23, options and size: no option buys more than the policy allows, and no text costs without bound."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attacks.naive import Naive
from worlds import Refused, person, spent, world

import dpsql
from dpsql.api.connection import Connection

COUNT = "SELECT COUNT(*) FROM people"
KEYS = "SELECT word, COUNT(*) FROM people GROUP BY word"
NO_LOSS: list[Any] = [
    0, 0.0, -0.0, -1, -1e-9, math.nan, math.inf, -math.inf, True, False, "", "abc", "nan", "inf", "-1", "0", "0x1",
    "1e", "1/2", b"1", [1], {}, 1j, Decimal("NaN"), Decimal("Infinity"), Decimal(-1), Decimal(0), -(10**5_000),
]  # fmt: skip


@pytest.fixture
def capped() -> Connection:
    """A world whose policy caps each query at ε = 2."""
    return world(person(1), person(2), max_epsilon=2)


def test_careless_engine_takes_any_number_as_a_loss() -> None:
    """The attack works where a loss is only compared and added: NaN, less than nothing and no end of it buy more."""
    connection = world(person(1), person(2))
    naive = Naive(connection, budget=1)
    naive.query(COUNT, epsilon=-1e9)
    assert naive.number(COUNT, epsilon=1e9) == pytest.approx(2, abs=1e-6)
    naive = Naive(connection, budget=1)
    naive.query(COUNT, epsilon=math.nan)
    assert naive.number(COUNT, epsilon=1e9) == pytest.approx(2, abs=1e-6)
    assert Naive(connection).number(COUNT, epsilon=math.inf) == 2


@pytest.mark.parametrize("value", NO_LOSS, ids=map(str, range(len(NO_LOSS))))
def test_invalid_epsilon_or_delta_is_refused(value: Any, capped: Connection) -> None:
    """NaN, infinities, zero, less, truth values and what is no number: LossError, nothing charged."""
    targets: list[dict[str, Any]] = [{"target_error": value}, {"target_error": 9, "confidence": value}]
    for options in ({"epsilon": value}, {"delta": value}, {"epsilon": 1, "delta": value}, *targets):
        for ask in (capped.query, capped.execute, capped.explain):
            with pytest.raises(dpsql.LossError):
                ask(KEYS, **options)
    assert spent(capped) == 0


@pytest.mark.parametrize("epsilon", [2.0000001, 3, 1e9, "1e300", 10**30])
def test_policy_cap_holds(epsilon: Any, capped: Connection) -> None:
    """A loss above the policy's cap is refused before the charge by every interface."""
    for ask in (capped.query, capped.execute, capped.explain):
        with pytest.raises((dpsql.QueryRejected, dpsql.PolicyError, dpsql.LossError)):
            ask(COUNT, epsilon=epsilon)
    assert spent(capped) == 0
    assert len(capped.query(COUNT, epsilon=2)) == 1


HANGS = ["1e1000", "1e-1000", "1e99999999", "1e-99999999", "1e999999999999999999", "-1e99999999"]
DOUBLING = {
    "between": ("(CASE WHEN {} BETWEEN 0 AND 1 THEN 1 ELSE 0 END)", 24),
    "simple case": ("(CASE {} WHEN 0 THEN 1 WHEN 1 THEN 2 WHEN 2 THEN 3 WHEN 3 THEN 4 END)", 20),
    "wide simple case": (f"(CASE {{}} {' '.join(f'WHEN {n} THEN {n}' for n in range(300))} END)", 4),
}
PATIENCE = 100
"""Seconds after which a process is taken to hang; what it does takes a hundredth of that."""


def outcome_of(lines: str, given: Any) -> Any:
    """What another process, which may hang, prints for these inputs as JSON."""
    root = Path(__file__).parents[2]
    program = f"import json, sys\ngiven = json.loads(sys.stdin.read())\n{lines}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env={"PYTHONPATH": f"{root}:{root / 'tests'}", "PATH": "/usr/bin:/bin"},
    )
    return json.loads(done.stdout)


ASK = """
import dpsql
from worlds import person, world
town = world(person(1))
def code(sql):
    try:
        return len(town.query(sql))
    except dpsql.QueryRejected as error:
        return error.code
print(json.dumps([code(sql) for sql in given]))
"""


def test_oversized_number_is_refused_at_once() -> None:
    """A huge exponent raises LossError in the time that it takes to read the number."""
    lines = """
import dpsql
from dpsql.policy.request.loss import parse_amount
def code(size):
    try:
        return str(parse_amount(size))
    except dpsql.LossError as error:
        return error.code
print(json.dumps([code(size) for size in given]))
"""
    assert outcome_of(lines, HANGS) == ["loss"] * len(HANGS)


def test_exponential_growth_of_a_short_text_is_refused() -> None:
    """Operands that are written twice must not double at each level: refused while the plan is small."""
    queries = [nested(template, depth) for template, depth in DOUBLING.values()]
    assert all(len(sql) < 30_000 for sql in queries)
    assert set(outcome_of(ASK, queries)) <= {"too_deep", "too_long"}


def test_moderate_growth_is_answered_or_refused_at_once() -> None:
    """Work is linear in the text below the limit too: no query of a line takes minutes to plan."""
    between, _ = DOUBLING["between"]
    doubled = ", ".join(f"a{n} + a{n} AS a{n + 1}" for n in range(14))
    queries = [nested(between, 12), nested(between, 13), f"SELECT COUNT(*) AS a0, {doubled} FROM people"]
    assert set(outcome_of(ASK, queries)) <= {"too_deep", "too_long", 1}


@pytest.mark.parametrize("delta", [1, 1.0, "1", 2, 1e9])
def test_delta_of_one_or_more_buys_nothing(delta: Any) -> None:
    """Delta 1 would show every key: it is refused, and so is a delta above the budget's."""
    connection = world(person(1), person(2, word="secret"))
    for sql in (KEYS, COUNT):
        with pytest.raises(dpsql.Error):
            connection.query(sql, delta=delta)
    with pytest.raises(dpsql.BudgetExhausted):
        connection.query(KEYS, delta="0.5")
    assert spent(connection) == 0


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", math.nan, math.inf, [1]])
def test_max_groups_is_a_positive_whole_number(value: Any, capped: Connection) -> None:
    """Anything else is refused; the query's own bound can lower the policy's, never raise it."""
    with pytest.raises(dpsql.ProgrammingError):
        capped.query(KEYS, max_groups=value)
    assert spent(capped) == 0


def test_max_groups_cannot_be_raised() -> None:
    """A query that asks for more groups than the policy allows gets the policy's."""
    connection = world(person(1), table={"max_groups": 1})
    bounds = {
        connection.explain(KEYS, max_groups=n).prepared.plan.analysis.bound for n in (None, 1, 2, 10**30)
    }
    assert len(bounds) == 1
    assert bounds.pop().groups == 1


def test_other_options_are_refused(capped: Connection) -> None:
    """There is no option for a seed, a mechanism, a sensitivity or a scale."""
    for name in (
        "seed",
        "mechanism",
        "sensitivity",
        "scale",
        "noise",
        "rho",
        "unit",
        "bounds",
        "rows_per_unit",
    ):
        options: dict[str, Any] = {name: 1}
        with pytest.raises(TypeError):
            capped.query(COUNT, **options)


ANSWERED = {
    "a list of 10,000": f"{COUNT} WHERE age IN ({', '.join(map(str, range(10_000)))})",
    "a list of 10,000 texts": f"{COUNT} WHERE word IN ({', '.join(repr(str(n)) for n in range(10_000))})",
    "1,000 conditions": COUNT + " WHERE age = 1" + " OR age = 2" * 1_000,
    "500 branches": f"SELECT SUM(CASE {' '.join(f'WHEN age = {n} THEN {n}' for n in range(500))} END) FROM people",
    "twenty parentheses": f"SELECT SUM({'(' * 20}cost{')' * 20}) FROM people",
    "a long text": f"{COUNT} WHERE word = '{'x' * 100_000}'",
    "a rich pattern": f"{COUNT} WHERE word LIKE '{'%a' * 1_000}'",
    "eighty sums": f"SELECT SUM(age{'+ age' * 80}) FROM people",
}


@pytest.mark.parametrize("name", ANSWERED)
def test_large_honest_queries_are_answered(name: str) -> None:
    """Size alone is no reason for a refusal."""
    assert len(world(person(1)).query(ANSWERED[name])) == 1


def nested(template: str, depth: int, seed: str = "age") -> str:
    """A template filled with itself."""
    for _ in range(depth):
        seed = template.replace("{}", seed)
    return f"SELECT SUM({seed}) FROM people"


REFUSED = {
    "parentheses": f"SELECT SUM({'(' * 9_000}age{')' * 9_000}) FROM people",
    "minus": f"SELECT SUM({'- ' * 9_000}age) FROM people",
    "not": f"{COUNT} WHERE {'NOT ' * 9_000}member",
    "sums": f"SELECT SUM(age{'+ 1' * 9_000}) FROM people",
    "casts": f"SELECT SUM(age{'::BIGINT' * 9_000}) FROM people",
    "dots": f"SELECT SUM(age{'.age' * 9_000}) FROM people",
    "functions": nested("ABS({})", 200),
    "cases": nested("CASE WHEN {} = 1 THEN 1 END", 100),
    "arrays": f"SELECT SUM({'[' * 9_000}age{']' * 9_000}) FROM people",
    "types": f"SELECT SUM(age::{'STRUCT(a ' * 2_000}INT{')' * 2_000}) FROM people",
    "intervals": f"SELECT SUM({'INTERVAL ' * 9_000}1) FROM people",
    "subqueries": f"{'SELECT * FROM (' * 2_000}people{')' * 2_000}",
    "joins": f"{COUNT}{' JOIN regions ON city = name' * 3_000}",
    "unions": COUNT + " UNION SELECT 1" * 3_000,
    "words": f"SELECT {', '.join(['COUNT(*)'] * 30_000)} FROM people",
    "characters": f"{COUNT} WHERE word = '{'x' * 600_000}'",
    "digits": f"SELECT SUM(age + {'9' * 50_000}) FROM people",
    "outputs": f"SELECT {', '.join(f'SUM(age + {n})' for n in range(101))} FROM people",
    "keys": f"{COUNT} GROUP BY {', '.join(f'age + {n}' for n in range(61))}",
    "tables": f"{COUNT}{''.join(f' JOIN regions AS r{n} ON city = r{n}.name' for n in range(64))}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_excess_depth_and_length_are_refused(name: str, refused: Refused) -> None:
    """Nesting and length beyond the limits: a refusal with a code, no crash, no charge."""
    assert refused(REFUSED[name]) in {
        "too_deep", "too_long", "syntax", "not_a_select", "constant", "subquery", "type", "function", "column",
        "ambiguous", "clause", "join",
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 2, 100_000])
def test_number_of_parameters_is_checked(count: int) -> None:
    """Too few or far too many values: a DataError, nothing charged."""
    connection = world(person(1))
    with pytest.raises(dpsql.DataError):
        connection.query(f"{COUNT} WHERE age = ?", [1] * count)
    assert spent(connection) == 0


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 2**63, -(2**64), 10**5_000, "a\0b", "\ud800", b"x", [1], {"a": 1}, object(), 1j],
    ids=map(str, range(12)),
)
def test_unsupported_parameter_values_are_refused(value: Any) -> None:
    """Values that SQL cannot hold are refused before the charge by a dpsql error."""
    connection = world(person(1))
    for column in ("age", "free", "word"):
        with pytest.raises(dpsql.Error):
            connection.query(f"{COUNT} WHERE {column} = ?", [value])
    assert spent(connection) == 0


def test_many_parameters_are_answered() -> None:
    """A list of 5,000 parameters is a list like any other."""
    places = ", ".join("?" * 5_000)
    assert len(world(person(1)).query(f"{COUNT} WHERE age IN ({places})", list(range(5_000)))) == 1
