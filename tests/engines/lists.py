"""Rows with lists and structs, and queries of their elements and fields, as each engine is asked for them."""

from __future__ import annotations

import random
from typing import Any

import duckdb

_ELEMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "numbers": ("INTEGER", ("NULL", "1", "2", "-9", "9")),
    "words": ("VARCHAR", ("NULL", "'new'", "'loud'", "''", "'é'")),
    "prices": ("DECIMAL(8,2)", ("NULL", "1.25", "-3", "999999.99")),
    "ratios": ("DOUBLE", ("NULL", "0.1", "'nan'::DOUBLE", "'inf'::DOUBLE", "-0.0", "1e300")),
    "days": ("DATE", ("NULL", "DATE '2024-02-29'", "DATE '1999-01-01'")),
}
"""The type of each list's elements, and the values of these."""
LISTED: dict[str, Any] = {
    "numbers": {"type": "int", "bounds": [-3, 3], "max_elements": 2},
    "words": {"type": "text", "values": ["new", "loud", ""], "max_elements": 3},
    "prices": {"type": "numeric(8,2)", "bounds": [0, 100], "max_elements": 2},
    "ratios": {"type": "double", "bounds": [-1, 1], "max_elements": 2},
    "days": {"type": "date", "max_elements": 1},
}
FIELDS: dict[str, Any] = {
    "s.city": {"type": "text", "values": ["Bonn", "Kiel"]},
    "s.at.floor": {"type": "int", "bounds": [0, 3]},
    "s.price": {"type": "numeric(8,2)", "bounds": [0, 100]},
    "s.marks": {"type": "int", "bounds": [0, 9], "max_elements": 2},
}
OF_LISTS = (
    "SELECT COUNT(*) FROM t, UNNEST(t.numbers) AS u(x)",
    "SELECT SUM(x), AVG(x) FROM t, UNNEST(numbers) AS u(x)",
    "SELECT x, COUNT(*) FROM t, UNNEST(words) AS u(x) GROUP BY x",
    "SELECT COUNT(DISTINCT x), COUNT(DISTINCT id) FROM t, UNNEST(words) AS u(x)",
    "SELECT SUM(x) FROM t, UNNEST(prices) AS u(x) WHERE x > 1",
    "SELECT SUM(x), COUNT(x) FROM t, UNNEST(ratios) AS u(x)",
    "SELECT COUNT(*) FROM t, UNNEST(days) AS u(x) WHERE x >= '2000-01-01'",
    "SELECT y, COUNT(*) FROM t, UNNEST(numbers) AS u(x), UNNEST(words) AS w(y) WHERE x > 0 GROUP BY y",
    "SELECT COUNT(*), COUNT(x), SUM(x) FROM t LEFT JOIN UNNEST(numbers) AS u(x) ON TRUE",
    "SELECT y, COUNT(x) FROM t LEFT JOIN UNNEST(numbers) AS u(x) ON TRUE, UNNEST(words) AS w(y) GROUP BY y",
    "SELECT SUM(n) FROM (SELECT id, COUNT(*) AS n FROM t, UNNEST(numbers) AS u(x) GROUP BY id) AS g",
    "SELECT k, COUNT(x), SUM(x + 1) FROM (SELECT k, UNNEST(numbers) AS x FROM t WHERE no > 1) GROUP BY k",
    "SELECT SUM(x) FROM t, UNNEST(numbers) AS u(x) JOIN v ON v.no = t.no",
    "SELECT SUM(x), COUNT(*) FROM v, UNNEST(v.numbers) AS u(x)",
)
OF_FIELDS = (
    "SELECT s.city, COUNT(*), SUM((s).at.floor), AVG(s['price']) FROM t GROUP BY s.city",
    "SELECT COUNT(*) FROM t WHERE s.city = 'Bonn' AND s.at.floor > 1 AND s.price BETWEEN 0.5 AND 3",
    "SELECT COUNT(*), SUM(x) FROM t, UNNEST(t.s.marks) AS u(x) WHERE t.s.city IS NOT NULL",
    "SELECT COUNT(*) FROM v JOIN t ON v.no = t.no WHERE t.s.at.floor = 1",
)


def policy(fields: bool) -> dict[str, Any]:
    """`t` has at most three rows of a unit; `v` is linked to it."""
    columns = {"no": {"type": "int"}, "k": {"type": "text", "values": ["a", "b"]}, **LISTED}
    t = {"unit": "id", "rows_per_unit": 3, "columns": {**columns, **(FIELDS if fields else {})}}
    link = {"column": "no", "references": "t.no"}
    linked = {"no": {"type": "int"}, "id": {"type": "int"}, "numbers": LISTED["numbers"]}
    v = {"link": link, "rows_per_unit": 3, "columns": linked}
    return {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**30, "delta": 1e-6},
        "tables": {"t": t, "v": v},
    }


def load() -> duckdb.DuckDBPyConnection:
    """The tables in DuckDB: lists that are NULL, empty, short and too long; structs that are NULL, or have such fields."""
    draw = random.Random(7)
    opened = duckdb.connect(config={"threads": 1})
    lists = ", ".join(f"{name} {kind}[]" for name, (kind, _) in _ELEMENTS.items())
    struct = 'STRUCT(city VARCHAR, "at" STRUCT(floor INTEGER), price DECIMAL(8,2), marks INTEGER[])'
    opened.execute(f"CREATE TABLE t (no INTEGER, id INTEGER, k VARCHAR, {lists}, s {struct})")
    for number in range(60):
        values = [_listed(draw, *_ELEMENTS[name]) for name in _ELEMENTS]
        opened.execute(
            f"INSERT INTO t VALUES ({number}, {number // 3}, '{draw.choice('ab')}', {', '.join(values)}, {_struct(draw)})"
        )
    opened.execute("CREATE TABLE v AS SELECT no, id, numbers FROM t")
    return opened


def _listed(draw: random.Random, kind: str, values: tuple[str, ...]) -> str:
    length = draw.choice([None, 0, 1, 2, 3, 5])
    if length is None:
        return "NULL"
    return f"CAST([{', '.join(draw.choices(values, k=length))}] AS {kind}[])"


def _struct(draw: random.Random) -> str:
    if draw.random() < 0.2:
        return "NULL"
    city, floor = draw.choice(["'Bonn'", "'Kiel'", "'Ulm'", "NULL"]), draw.choice(["NULL", "1", "2", "7"])
    at = draw.choice(["NULL", f"{{'floor': {floor}}}"])
    marks = _listed(draw, "INTEGER", ("NULL", "3", "12"))
    return f"{{'city': {city}, 'at': {at}, 'price': {draw.choice(['0.75', '-1', 'NULL'])}, 'marks': {marks}}}"
