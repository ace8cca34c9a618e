"""Random statements over chains of joins, on tables with NULLs, duplicates and full fan-out.

Every statement is one that DuckDB accepts too: what dpsql answers with next to no noise is what DuckDB
answers. Each private table has rows of as many as its owner declares of one unit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
from worlds import connected

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query

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
        "tag": {"public": True, "columns": {"s": {"type": "varchar", "nullable": False}}},
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
        """Whether its rows are somebody's."""
        return bool(self.keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns."""
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
        prepared = prepared_exactly(connection, sql)
    except dpsql.QueryRejected:
        return None
    return in_order(answer_query(connection.engine, prepared).rows)


def prepared_exactly(connection: Connection, sql: str) -> QueryRun:
    """The plan of a statement with next to no noise."""
    return plan_and_match(connection.engine, Query(sql, epsilon=Fraction(EPSILON), replay=False))


def in_order(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows in an order that follows from what is in them."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    return (
        round(float(value), 6) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    )


@dataclass(frozen=True)
class Statements:
    """Draws statements; each is accepted by DuckDB, and most are by dpsql."""

    random: random.Random

    def chain(self) -> str:
        """An aggregate over a chain of joins, with a condition or two."""
        names = [self._of(["c", "c", "o", "r", "f", "g"])]
        wanted = self._of([2, 2, 3, 3, 4])
        while len(names) < wanted:
            names.append(self._of(["c", "o", "o", "r", "r", "f", "g", "pub", "pub", "tag"]))
        aliases = [f"{name}{place}" for place, name in enumerate(names)]
        text = f"{names[0]} {aliases[0]}"
        for place in range(1, len(names)):
            text += self._joined(names, aliases, place)
        where = [self._condition(names, aliases) for _ in range(self._of([0, 0, 1, 2]))]
        where += [self._equal(names, aliases) for _ in range(self._of([0, 0, 0, 1]))]
        where += [self._matched(names, aliases) for _ in range(self._of([0, 0, 1]))]
        where += [self._valued(names, aliases) for _ in range(self._of([0, 0, 1]))]
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        return f"SELECT {self._shown(names, aliases)} FROM {text}{clause}"

    def grouped(self) -> str:
        """An aggregate over groups of a unit, in a derived table over a join of two tables."""
        one, two = self._of([("c", "o"), ("o", "r"), ("r", "c"), ("r", "o"), ("f", "o")])
        ours, theirs = TABLES[one].keys[0], TABLES[two].keys[0]
        kind = self._of(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        key = self._of(
            [f"a.{ours}", f"b.{theirs}", f"COALESCE(a.{ours}, b.{theirs})", f"COALESCE(b.{theirs}, a.{ours})"]
        )
        where = self._of(["", "", f" WHERE a.{ours} IS NOT NULL", f" WHERE b.{theirs} IS NOT NULL"])
        inner = (
            f"SELECT {key} AS u, COUNT(*) AS t, COUNT(b.{theirs}) AS v FROM {one} a {kind} {two} b "
            f"ON a.{ours} = b.{theirs}{where} GROUP BY {key}"
        )
        return f"SELECT COUNT(*), SUM(t), SUM(v) FROM ({inner}) AS d"

    def _joined(self, names: Sequence[str], aliases: Sequence[str], place: int) -> str:
        name, alias = names[place], aliases[place]
        kind = self._of(
            ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", ","]
        )
        if kind in ("RIGHT JOIN", "FULL JOIN") and place > 1 and self._of([True, True, False]):
            kind = "JOIN"
        table = f"{name} {alias}"
        if kind in ("CROSS JOIN", ",") and not TABLES[name].private:
            return f"{', ' if kind == ',' else ' CROSS JOIN '}{table}"
        kind = "JOIN" if kind in ("CROSS JOIN", ",") else kind
        shared = [
            column
            for column in TABLES[name].columns
            if sum(column in TABLES[before].columns for before in names[:place]) == 1
        ]
        keyed = not TABLES[name].private or any(column in TABLES[name].keys for column in shared)
        if shared and keyed and self._of([True, False, False]):
            used = [column for column in shared if column in TABLES[name].keys or self._of([True, False])]
            return f" {kind} {table} USING ({', '.join(used or shared[:1])})"
        on = []
        if TABLES[name].private:
            on.append(self._same(names[: place + 1], aliases[: place + 1]))
        else:
            on.append(self._equal(names[: place + 1], aliases[: place + 1], last=True))
        on += [
            self._condition(names[: place + 1], aliases[: place + 1]) for _ in range(self._of([0, 0, 1, 2]))
        ]
        self.random.shuffle(on)
        return f" {kind} {table} ON {' AND '.join(on)}"

    def _same(self, names: Sequence[str], aliases: Sequence[str]) -> str:
        """The last table's unit is that of a table before it, by ids or by a key."""
        last, alias = names[-1], aliases[-1]
        pairs = [
            f"{known}.{ours} = {alias}.{theirs}"
            for name, known in zip(names[:-1], aliases[:-1], strict=True)
            for ours in TABLES[name].keys
            for theirs in TABLES[last].keys
            if (ours == "fid") == (theirs == "fid")
        ]
        return self._of(pairs) if pairs else f"{alias}.{TABLES[last].keys[0]} IS NOT NULL"

    def _equal(self, names: Sequence[str], aliases: Sequence[str], *, last: bool = False) -> str:
        one = len(names) - 1 if last else self.random.randrange(len(names))
        two = self.random.randrange(len(names) - 1 if last else len(names))
        kinds = [(TABLES[names[place]].texts, TABLES[names[place]].numbers) for place in (one, two)]
        both = [(ours, theirs) for side in (0, 1) for ours in kinds[0][side] for theirs in kinds[1][side]]
        if not both:
            return self._condition(names[one:], aliases[one:])
        ours, theirs = self._of(both)
        return f"{aliases[one]}.{ours} = {aliases[two]}.{theirs}"

    def _condition(self, names: Sequence[str], aliases: Sequence[str]) -> str:
        place = self.random.randrange(len(names))
        table, alias = TABLES[names[place]], aliases[place]
        column = f"{alias}.{self._of(table.columns)}"
        if self._of([True, False, False]):
            return f"{column} IS {'NOT ' * self._of([0, 1])}NULL"
        if table.numbers:
            number = f"{alias}.{self._of(table.numbers)}"
            return self._of([f"{number} > 0", f"{number} < 2", f"({number} = 1 OR {column} IS NULL)"])
        return f"{column} IS NOT NULL"

    def _private(self, names: Sequence[str], aliases: Sequence[str]) -> tuple[str, str]:
        found = [pair for pair in zip(names, aliases, strict=True) if TABLES[pair[0]].private]
        return self._of(found)

    def _matched(self, names: Sequence[str], aliases: Sequence[str]) -> str:
        name, alias = self._private(names, aliases)
        inner = self._of(["c", "o", "r", "f"])
        ours, theirs = f"{alias}.{TABLES[name].keys[0]}", f"z.{TABLES[inner].keys[0]}"
        further = self._of(["", f" AND {self._condition([inner], ['z'])}"])
        negated = self._of(["", "NOT "])
        nested = f"NOT EXISTS (SELECT 1 FROM r x WHERE x.rid = {theirs} AND x.k > 0)"
        if name == "g":
            return f"{ours} {negated}IN (SELECT fid FROM f z WHERE TRUE{further})"
        return self._of(
            [
                f"{negated}EXISTS (SELECT 1 FROM {inner} z WHERE {theirs} = {ours}{further})",
                f"{ours} {negated}IN (SELECT {theirs} FROM {inner} z WHERE TRUE{further})",
                f"{negated}EXISTS (SELECT 1 FROM {inner} z WHERE {theirs} = {ours}{further} AND {nested})",
            ]
        )

    def _valued(self, names: Sequence[str], aliases: Sequence[str]) -> str:
        name, alias = self._private(names, aliases)
        inner = self._of(["c", "o", "r"])
        number = f"z.{TABLES[inner].numbers[0]}"
        key = f"z.{TABLES[inner].keys[0]} = {alias}.{TABLES[name].keys[0]}"
        if name == "g":
            inner, key, number = "pub", f"z.k = {alias}.n", "z.w"
        value = self._of(
            [
                f"COALESCE(SUM({number}), 0) < 2",
                f"SUM({number}) IS NULL",
                "COUNT(*) + 1 > 2",
                "COUNT(*) = 0",
                f"MAX({number}) > 0",
                f"CASE WHEN COUNT({number}) > 1 THEN 2 ELSE MIN({number}) END IS NULL",
                f"CONCAT('n', MAX({number})) = 'n'",
            ]
        )
        further = self._of(["", f" AND {self._condition([inner], ['z'])}"])
        return f"(SELECT {value} FROM {inner} z WHERE {key}{further})"

    def _shown(self, names: Sequence[str], aliases: Sequence[str]) -> str:
        numbers = [
            f"{alias}.{column}"
            for name, alias in zip(names, aliases, strict=True)
            for column in TABLES[name].numbers
            if TABLES[name].private
        ]
        name, alias = self._private(names, aliases)
        shown = ["COUNT(*)", f"COUNT({alias}.{TABLES[name].keys[0]})"]
        return ", ".join(
            [*shown, *([f"COUNT({self._of(numbers)})", f"SUM({self._of(numbers)})"] if numbers else [])]
        )

    def _of(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)
