"""Depth: within the limits of a text, a query needs at most `ROOM` frames of Python's stack, whatever nests in it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import duckdb
import pytest

import dpsql
from dpsql.sql.lower.derived_tables import MAX_CHAIN
from dpsql.sql.lower.statement_context import MAX_DERIVED_DEPTH
from dpsql.sql.parse.parse import MAX_DEPTH, MAX_NESTING, ROOM

POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10_000},
    "tables": {
        "visits": {
            "unit": "person",
            "rows_per_unit": 3,
            "max_groups": 2,
            "columns": {
                "age": {"type": "integer", "bounds": [0, 110]},
                "urgent": {"type": "boolean"},
                "note": {"type": "varchar", "values": ["a", "b"]},
            },
        }
    },
}
NESTED = {
    "parentheses": ("SELECT COUNT(*) FROM visits WHERE {}age{} > 3", "(", ")"),
    "NOT": ("SELECT COUNT(*) FROM visits WHERE {}urgent{}", "NOT ", ""),
    "NOT of parentheses": ("SELECT COUNT(*) FROM visits WHERE {}urgent{}", "NOT (", ")"),
    "signs": ("SELECT COUNT(*) FROM visits WHERE {}age{} > 3", "- (", ")"),
    "CASE, its result": ("SELECT COUNT(*) FROM visits WHERE {}age{} > 3", "CASE WHEN urgent THEN ", " END"),
    "CASE, its condition": ("SELECT COUNT(*) FROM visits WHERE {}urgent{}", "CASE WHEN ", " THEN TRUE END"),
    "CASE, its ELSE": ("SELECT COUNT(*) FROM visits WHERE {}urgent{}", "CASE WHEN TRUE THEN FALSE ELSE ", " END"),
    "functions": ("SELECT COUNT(*) FROM visits WHERE {}age{} > 3", "ABS(", ")"),
    "functions of two": ("SELECT COUNT(*) FROM visits WHERE {}age{} > 3", "COALESCE(1, ", ")"),
    "casts": ("SELECT COUNT(*) FROM visits WHERE {}age{} > 3", "CAST(", " AS INTEGER)"),
    "conditions": ("SELECT COUNT(*) FROM visits WHERE {}urgent{}", "urgent AND (FALSE OR ", ")"),
    "BETWEEN": ("SELECT COUNT(*) FROM visits WHERE {}urgent{}", "1 BETWEEN (", ")::INT AND 2"),
    "lists": ("SELECT COUNT(*) FROM visits WHERE age IN {}1{}", "(", ")"),
    "derived tables": ("SELECT COUNT(*) FROM {}visits{}", "(SELECT * FROM ", ") AS t"),
    "common tables": ("{}SELECT * FROM visits{}", "WITH t AS (", ") SELECT * FROM t"),
    "scalar subqueries": ("SELECT {}COUNT(*) FROM visits{}", "(SELECT ", ")"),
    "IN of subqueries": ("SELECT COUNT(*) FROM visits WHERE {}TRUE{}", "age IN (SELECT age FROM visits WHERE ", ")"),
    "EXISTS": ("SELECT COUNT(*) FROM visits WHERE {}TRUE{}", "EXISTS (SELECT age FROM visits WHERE ", ")"),
    "ANY of subqueries": ("SELECT {}1{}", "1 = ANY (SELECT ", ")"),
    "UNION, to the left": ("SELECT COUNT(*) FROM {}SELECT age FROM visits{}", "(", " UNION ALL SELECT age FROM visits) AS t"),
    "UNION, to the right": ("{}SELECT COUNT(*) FROM visits{}", "SELECT COUNT(*) FROM visits UNION ALL (", ")"),
    "FILTER": ("SELECT {}urgent{} FROM visits", "COUNT(*) FILTER (WHERE ", ")"),
    "windows": ("SELECT {}1{} FROM visits", "SUM(1) OVER (ORDER BY ", ")"),
    "intervals": ("SELECT COUNT(*) FROM visits WHERE {}1{} = 1", "INTERVAL (", ") DAY"),
    "lists of functions": ("SELECT HISTOGRAM(age, [{}1{}]) FROM visits", "F([", "])"),
}  # fmt: skip
"""By what nests: a text, what opens a level, and what closes it."""
CHAINED = {
    "AND": ("SELECT COUNT(*) FROM visits WHERE urgent{}", " AND urgent", 400),
    "OR": ("SELECT COUNT(*) FROM visits WHERE urgent{}", " OR age > 3", 400),
    "sums": ("SELECT SUM(age{}) FROM visits", " + 1", MAX_DEPTH - 10),
    "texts": ("SELECT COUNT(*) FROM visits WHERE note{} = 'a'", " || 'a'", MAX_DEPTH - 10),
    "casts": ("SELECT SUM(age{}) FROM visits", "::INT", MAX_DEPTH - 10),
    "sums of releases": ("SELECT COUNT(*){} FROM visits", " + COUNT(*)", MAX_DEPTH - 10),
    "UNION ALL": ("SELECT COUNT(*) FROM visits{}", " UNION ALL SELECT COUNT(*) FROM visits", 126),
    "UNION": ("SELECT COUNT(*) FROM visits{}", " UNION SELECT COUNT(*) FROM visits", MAX_CHAIN),
    "rows of UNION ALL": ("SELECT COUNT(*) FROM (SELECT age FROM visits{}) AS t", " UNION ALL SELECT age FROM visits", 254),
    "INTERSECT": ("SELECT COUNT(*) FROM (SELECT age FROM visits{}) AS t", " INTERSECT SELECT age FROM visits", MAX_CHAIN),
    "signs": ("SELECT SUM({}age) FROM visits", "- ", MAX_DEPTH - 10),
    "comparisons": ("SELECT COUNT(*) FROM visits WHERE TRUE{}", " = TRUE", MAX_DEPTH - 10),
    "cross joins": ("SELECT COUNT(*) FROM visits{}", " CROSS JOIN (SELECT 1) AS t", 12),
}  # fmt: skip
"""By what is chained: a text, a link, and how many links."""
TEXTS = {f"nested {name}": text.format(opening * MAX_NESTING, closing * MAX_NESTING) for name, (text, opening, closing) in NESTED.items()}  # fmt: skip
TEXTS |= {f"a chain of {name}": text.format(link * count) for name, (text, link, count) in CHAINED.items()}


@pytest.fixture(scope="module")
def con() -> dpsql.Connection:
    """A connection to one small table."""
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE visits AS SELECT range // 2 AS person, range % 90 AS age, range % 3 = 0 AS urgent, "
        "CASE WHEN range % 2 = 0 THEN 'a' ELSE 'b' END AS note FROM range(40)"
    )
    return dpsql.connect(database, policy=POLICY, ledger=":memory:")


def outcome(con: dpsql.Connection, text: str, dialect: str) -> str:
    """The code of the refusal, or what came back; the type of an error that is none of dpsql's."""
    try:
        result = con.query(text, epsilon=1, dialect=dialect, replay=False)
        result.intervals()
    except dpsql.Error as error:
        return f"{error.code}: {error.message}"
    except Exception as error:
        return type(error).__name__
    return f"{len(result)} rows of {result.columns}"


def at_depth(frames: int, work: Callable[[], str]) -> str:
    """What `work` returns below that many frames of a new thread."""
    found = list[str]()

    def descend(left: int) -> None:
        if left:
            descend(left - 1)
        else:
            found.append(work())

    thread = threading.Thread(target=descend, args=(frames,))
    thread.start()
    thread.join()
    return found[0]


def deepest(con: dpsql.Connection, text: str, dialect: str) -> str:
    """The outcome from the deepest stack that a query is not refused for."""
    for frames in range(sys.getrecursionlimit() - ROOM, 0, -1):
        found = at_depth(frames, lambda: outcome(con, text, dialect))
        if "calling program" not in found:
            return found
    raise AssertionError("no stack is shallow enough")


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "tsql"])
@pytest.mark.parametrize("name", TEXTS)
def test_texts_at_the_limits_fit_on_the_stack(con: dpsql.Connection, name: str, dialect: str) -> None:
    """From the deepest stack that is allowed, the outcome is what it is from a shallow one, and no RecursionError."""
    found = deepest(con, TEXTS[name], dialect)
    assert found == at_depth(0, lambda: outcome(con, TEXTS[name], dialect))
    assert found != "RecursionError"


@pytest.mark.parametrize("name", NESTED)
def test_one_level_more_is_refused(con: dpsql.Connection, name: str) -> None:
    """The limit is one of the text: a level more is refused from any stack, or the engine's parser refuses both."""
    text, opening, closing = NESTED[name]
    found = outcome(con, text.format(opening * (MAX_NESTING + 1), closing * (MAX_NESTING + 1)), "duckdb")
    assert found.startswith("too_deep: ")


def test_deep_caller_is_refused_before_the_charge(con: dpsql.Connection) -> None:
    """Fewer than `ROOM` remaining frames are refused by a constant text without a charge."""
    before = con.budget()["visits"].spent
    found = at_depth(
        sys.getrecursionlimit() - ROOM, lambda: outcome(con, "SELECT COUNT(*) FROM visits", "duckdb")
    )
    assert found == f"too_deep: the calling program leaves less than {ROOM} frames of Python's stack"
    assert con.budget()["visits"].spent == before


def test_limits_agree() -> None:
    """Derived tables may nest as deeply as their parentheses."""
    assert MAX_DERIVED_DEPTH <= MAX_NESTING
