"""Random statements over chains of joins, on tables with NULLs, duplicates and full fan-out.

Every statement is one that DuckDB accepts too: what dpsql answers with next to no noise is what DuckDB
answers. Each private table has rows of as many as its owner declares of one unit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
from worlds import connected

import dpsql
from dpsql.connection import Connection
from dpsql.engine import Asked

EPSILON = 10**6
"""A loss at which noise is zero but with a probability of e^-1000000."""

SETUP = """
    CREATE TABLE c AS SELECT * FROM (VALUES
        (1, 'a', 1, 0), (2, 'b', 2, 1), (3, NULL, 3, 2), (4, 'a', NULL, 3), (5, 'x', 0, 0), (6, 'b', 1, NULL))
        AS v(id, s, n, m);
    CREATE TABLE o AS SELECT * FROM (VALUES
        (1, 'a', 1), (1, 'a', 1), (1, 'b', NULL), (1, NULL, 3), (1, 'x', 0),
        (2, 'b', 2), (2, NULL, 1), (3, 'a', 0), (4, NULL, NULL), (4, 'b', 3)) AS v(cid, s, n);
    CREATE TABLE r AS SELECT * FROM (VALUES
        (1, 'a', 0), (1, 'b', 1), (2, NULL, 2), (3, 'x', 3), (3, 'x', 3), (5, 'a', NULL), (6, 'b', 1)) AS v(rid, s, k);
    CREATE TABLE f AS SELECT * FROM (VALUES (1, 10), (1, 11), (2, 20), (4, 40), (6, NULL)) AS v(cid, fid);
    CREATE TABLE g AS SELECT * FROM (VALUES
        (10, 1), (10, NULL), (11, 2), (20, 3), (20, 3), (40, 0)) AS v(fid, n);
    CREATE TABLE pub AS SELECT * FROM (VALUES
        ('a', 1, 0), ('a', 2, 1), ('b', 2, NULL), ('d', 3, 2), (NULL, 0, 3)) AS v(s, k, w);
    CREATE TABLE tag AS SELECT * FROM (VALUES ('a', 1), ('b', 1), ('x', 3), ('y', NULL)) AS v(s, n);
"""
_SMALL = {"type": "integer", "bounds": [0, 3]}
_TEXT = {"type": "varchar", "values": ["a", "b", "x"]}
POLICY: dict[str, Any] = {
    "budget": {"epsilon": 10**12, "delta": 1e-6},
    "max_epsilon": 10**9,
    "tables": {
        "c": {"unit": "id", "rows_per_unit": 1, "columns": {"s": _TEXT, "n": _SMALL, "m": _SMALL}},
        "o": {
            "link": {"column": "cid", "references": "c.id"},
            "rows_per_unit": 5,
            "columns": {"s": _TEXT, "n": _SMALL},
        },
        "r": {"unit": "rid", "rows_per_unit": 2, "columns": {"s": _TEXT, "k": _SMALL}},
        "f": {
            "link": {"column": "cid", "references": "c.id"},
            "rows_per_unit": 2,
            "columns": {"fid": {"type": "integer"}},
        },
        "g": {
            "link": {"column": "fid", "references": "f.fid"},
            "rows_per_unit": 3,
            "columns": {"n": _SMALL},
        },
        "pub": {"public": True},
        "tag": {"public": True},
    },
}


@dataclass(frozen=True)
class Table:
    """A table: its columns of text and of small numbers, and what says whose a row is."""

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def private(self) -> bool:
        return bool(self.keys)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.texts, *self.numbers)


TABLES = {
    "c": Table(("s",), ("n", "m"), ("id",)),
    "o": Table(("s",), ("n",), ("cid",)),
    "r": Table(("s",), ("k",), ("rid",)),
    "f": Table((), (), ("cid", "fid")),
    "g": Table((), ("n",), ("fid",)),
    "pub": Table(("s",), ("k", "w")),
    "tag": Table(("s",), ("n",)),
}


def opened() -> Connection:
    """A connection to the tables, whose answers have next to no noise."""
    database = duckdb.connect(config={"threads": 1})
    database.execute(SETUP)
    return connected(database, POLICY)


def answered(connection: Connection, sql: str) -> list[tuple[Any, ...]] | None:
    """The rows of an answer with next to no noise, in an order of their own; None where it is refused."""
    try:
        prepared = connection.engine.prepare(Asked(sql, epsilon=Fraction(EPSILON), replay=False))
    except dpsql.QueryRejected:
        return None
    return in_order(connection.engine.answer(prepared).rows)


def in_order(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    return round(float(value), 6) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
