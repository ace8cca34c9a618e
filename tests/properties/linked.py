"""Tiny databases of linked private tables, their neighbours, and the exact statistics of each.

`people` have an id, `visits` name the person, `items` name the visit and `parts` the item. Keys repeat
within a person and between people, lead nowhere, and are NULL. A row of `items` belongs to each person
whose visits it leads to, so it leaves with a person only where it leads to no other; and so on for
`parts`. `bills` name the person, and refer to a visit by two columns; `notes` find the person by these two alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import duckdb
from properties.worlds import Statistics, cells_of

from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.budgets import get_table_budget
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.ledger import open_ledger
from dpsql.policy import load
from dpsql.policy.request.query import Query
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.relations import emit_rows

NEWCOMER = 4
MINE = 1
"""The person that leaves."""


class Person(NamedTuple):
    """A row of `people`."""

    id: int | None
    x: str | None
    k: str | None
    n: str | None
    raw: str | None
    s: str | None


class Visit(NamedTuple):
    """A row of `visits`."""

    vid: int | None
    person: int | None
    c: str | None
    t: str | None


class Item(NamedTuple):
    """A row of `items`."""

    iid: int | None
    visit: int | None
    a: str | None


class Part(NamedTuple):
    """A row of `parts`."""

    item: int | None
    b: str | None


class Bill(NamedTuple):
    """A row of `bills`."""

    vid: int | None
    t: str | None
    person: int | None
    m: str | None


class Note(NamedTuple):
    """A row of `notes`."""

    vid: int | None
    t: str | None
    o: str | None


Row = Person | Visit | Item | Part | Bill | Note
TABLES: Mapping[str, type[Row]] = {
    "people": Person,
    "visits": Visit,
    "items": Item,
    "parts": Part,
    "bills": Bill,
    "notes": Note,
}
Rows = Mapping[str, tuple[Row, ...]]
"""The rows of each table."""

_X = ("1.5", "-1", "4", "-0.0", "nan", "inf", "-inf", "1e308", "-7.25", None)
_RAW = ("9223372036854775807", "-9223372036854775808", "1", "-3", None)
_TEXTS = ("a", "A", "b", "", None)
_VIDS, _IIDS = (10, 10, 11, 11, None), (100, 100, 101, 101, None)
"""Few keys, so that people share them."""
_MANY = (0, 1, 1, 2, 2, 3)
"""How many different rows of a table somebody has."""
NOWHERE = 13
"""A key that only rows of nobody name."""


@dataclass(frozen=True)
class Ids:
    """How the ids of people are stored: their engine type, and the ways to write each."""

    engine: str = "BIGINT"
    spelt: Mapping[int, tuple[str, ...]] = field(
        default_factory=lambda: {1: ("1",), 2: ("2",), 3: ("3",), NEWCOMER: ("4",)}
    )
    declared: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.engine} {dict(self.declared or {})}"


@dataclass(frozen=True)
class Rules:
    """What the policy says: how many rows and groups of a person count, and how ids and keys are read."""

    rows: int = 2
    groups: int | None = None
    neighbors: str = "add_remove"
    ids: Ids = Ids()
    keys: Mapping[str, Any] | None = None
    partition: bool = False

    def __str__(self) -> str:
        own = {name: value for name, value in vars(self).items() if value != vars(Rules())[name]}
        return ", ".join(f"{name} {value}" for name, value in own.items()) or "plain"


def policy(rules: Rules) -> dict[str, Any]:
    """The policy over the linked tables."""
    declared = {} if rules.ids.declared is None else rules.ids.declared
    key = {"type": "integer", **(rules.keys or {})}
    bounds = {"rows_per_unit": rules.rows, **({"max_groups": rules.groups} if rules.groups else {})}
    people = {
        "x": {"type": "double", "bounds": [-1, 4]},
        "k": {"type": "varchar", "values": ["A", "B"]},
        "n": {"type": "integer", "bounds": [0, 5]},
        "raw": {"type": "integer"},
        "s": {"type": "varchar"},
        **({"id": declared} if declared else {}),
    }
    visits = {
        "vid": key,
        "c": {"type": "double", "bounds": [0, 3]},
        "t": {"type": "varchar"},
        **({"person": declared} if declared else {}),
    }
    partition = {"partition": "k"} if rules.partition else {}
    return {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": rules.neighbors,
        "budget": {"epsilon": 10, "delta": 1e-6},
        "tables": {
            "people": {"unit": "id", **bounds, **partition, "columns": people},
            "visits": {
                "link": {"column": "person", "references": "people.id"},
                **bounds,
                "columns": visits,
            },
            "items": {
                "link": {"column": "visit", "references": "visits.vid"},
                **bounds,
                "columns": {"iid": key, "a": {"type": "integer", "bounds": [0, 3]}},
            },
            "parts": {
                "link": {"column": "item", "references": "items.iid"},
                **bounds,
                "columns": {"b": {"type": "integer", "bounds": [-2, 2]}},
            },
            "bills": {
                "unit": "person",
                "links": [{"columns": ["vid", "t"], "references": ["visits.vid", "visits.t"]}],
                **bounds,
                "columns": {
                    "vid": key,
                    "t": {"type": "varchar"},
                    "m": {"type": "integer", "bounds": [0, 4]},
                    **({"person": declared} if declared else {}),
                },
            },
            "notes": {
                "link": {"columns": ["vid", "t"], "references": "visits.[vid, t]"},
                **bounds,
                "columns": {"t": {"type": "varchar"}, "o": {"type": "integer", "bounds": [-1, 1]}},
            },
            "p": {"public": True, "columns": {"w": {"type": "double", "bounds": [-1, 3]}}},
        },
    }


def owners(rows: Rows) -> Iterator[tuple[str, Row, frozenset[int]]]:
    """Each row with the people that it belongs to."""
    by_visit: dict[int, set[int]] = {}
    by_item: dict[int, set[int]] = {}
    by_both: dict[tuple[int, str], set[int]] = {}
    for row in rows["people"]:
        yield "people", row, frozenset({row.id} - {None})
    for row in rows["visits"]:
        mine = frozenset({row.person} - {None})
        yield "visits", row, mine
        if row.vid is not None:
            by_visit.setdefault(row.vid, set()).update(mine)
            if row.t is not None:
                by_both.setdefault((row.vid, row.t), set()).update(mine)
    for row in rows["items"]:
        mine = frozenset(by_visit.get(row.visit, ()))
        yield "items", row, mine
        if row.iid is not None:
            by_item.setdefault(row.iid, set()).update(mine)
    for row in rows["parts"]:
        yield "parts", row, frozenset(by_item.get(row.item, ()))
    for row in rows["bills"]:
        yield "bills", row, frozenset({row.person} - {None})
    for row in rows["notes"]:
        yield "notes", row, frozenset(by_both.get((row.vid, row.t), ()))


def _kept(rows: Rows, keep: Callable[[str, frozenset[int]], bool]) -> Rows:
    kept: dict[str, list[Row]] = {name: [] for name in TABLES}
    for name, row, whose in owners(rows):
        if keep(name, whose):
            kept[name].append(row)
    return {name: tuple(found) for name, found in kept.items()}


def without(rows: Rows, person: int) -> Rows:
    """The database less all rows that belong to a person and to nobody else."""
    return _kept(rows, lambda _, whose: whose != {person})


def orphaned(rows: Rows, person: int) -> Rows:
    """The database less a person, their visits and bills; items, parts and notes still lead to the visits."""
    return _kept(rows, lambda name, whose: name not in ("people", "visits", "bills") or whose != {person})


def owned(rows: Rows) -> Rows:
    """The database less the rows of nobody."""
    return _kept(rows, lambda _, whose: bool(whose))


def together(*parts: Rows) -> Rows:
    """The rows of several databases in one, the first in front."""
    return {name: tuple(row for part in parts for row in part[name]) for name in TABLES}


def share(draw: random.Random, person: int | None, most: int) -> Rows:
    """What a person may hold: a few rows of each table, in one of them each once more than `most`."""
    people = [
        Person(
            person,
            draw.choice(_X),
            draw.choice(("A", "B", "Z", None)),
            draw.choice(("0", "5", "3", "-9", None)),
            draw.choice(_RAW),
            draw.choice(_TEXTS),
        )
        for _ in range(draw.choice(_MANY))
    ]
    visits = [
        Visit(
            draw.choice(_VIDS), person, draw.choice(("0", "3", "1.5", "nan", "99", None)), draw.choice(_TEXTS)
        )
        for _ in range(draw.choice(_MANY))
    ]
    leading = [visit.vid for visit in visits] * 4 or [10]
    items = [
        Item(draw.choice(_IIDS), draw.choice((*leading, NOWHERE, None)), draw.choice(("0", "3", "7", None)))
        for _ in range(draw.choice(_MANY))
    ]
    holding = [item.iid for item in items] * 4 or [100]
    parts = [
        Part(draw.choice((*holding, NOWHERE, None)), draw.choice(("-2", "2", "5", None)))
        for _ in range(draw.choice(_MANY))
    ]
    named = [(visit.vid, visit.t) for visit in visits] * 4 or [(10, "a")]
    bills = [
        Bill(*draw.choice((*named, (NOWHERE, "a"), (10, None))), person, draw.choice(("0", "4", "9", None)))
        for _ in range(draw.choice(_MANY))
    ]
    notes = [
        Note(*draw.choice((*named, (NOWHERE, "a"), (None, "a"))), draw.choice(("-1", "1", "5", None)))
        for _ in range(draw.choice(_MANY))
    ]
    drawn: dict[str, Sequence[Row]] = {
        "people": people,
        "visits": visits,
        "items": items,
        "parts": parts,
        "bills": bills,
        "notes": notes,
    }
    repeated = draw.choice((*drawn, None))
    return {
        name: tuple(row for row in rows for _ in range(most + 1 if name == repeated else 1))
        for name, rows in drawn.items()
    }


@dataclass(frozen=True)
class Pair:
    """Two neighbours; `like_before` and `like_after` differ from them in rows of nobody alone."""

    before: Rows
    after: Rows
    like_before: Rows
    like_after: Rows


def pairs(rules: Rules, many: int) -> Iterator[Pair]:
    """Neighbours in the sense of the rules, the same ones in each run."""
    draw = random.Random(str(rules.rows))
    for _ in range(many):
        others = [person for person in (2, 3) if draw.random() < 0.7]
        base = together(*(share(draw, person, 1) for person in others), share(draw, None, 1))
        # First, so that its removal moves every other row up.
        before = together(share(draw, MINE, rules.rows), base)
        rest = without(before, MINE)
        if rules.neighbors == "add_remove":
            yield Pair(before, rest, owned(before), orphaned(before, MINE))
        else:
            # A newcomer's rows are those that belong to nobody else: without them, what is left is the rest.
            whole = together(share(draw, NEWCOMER, rules.rows), before)
            before, after = without(whole, NEWCOMER), without(whole, MINE)
            yield Pair(before, after, owned(before), owned(after))


_PUBLIC = (
    "CREATE TABLE p AS SELECT * FROM (VALUES ('A', 1.5, 10, 1), ('A', 2.5, 11, 1), ('B', -1.0, 11, 2), ('Z', 0.0, NULL, 9))"
    " AS p(k, w, v, q)"
)


@dataclass
class Linked:
    """One policy and all its tiny databases, each in a schema of its own."""

    rules: Rules
    many: int
    connection: duckdb.DuckDBPyConnection = field(init=False)
    engine: Engine = field(init=False)
    _places: dict[int, str] = field(default_factory=dict)
    _seen: dict[tuple[str, int], Statistics] = field(default_factory=dict)
    _schemas: int = 0

    def __post_init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute(f"{_PUBLIC}; {self._tables('main')}")
        rules = load(policy(self.rules))
        ledger = open_ledger(
            ":memory:", {name: get_table_budget(rules, name) for name in rules.list_private_tables()}
        )
        self.engine = Engine(rules, DuckDBBackend(self.connection), ledger, "tester")
        assert self.engine.catalog.tables

    @cached_property
    def pairs(self) -> list[Pair]:
        """The neighbours."""
        return list(pairs(self.rules, self.many))

    def prepare(self, sql: str, max_groups: int | None = None) -> QueryRun:
        """The plan of a query at ε = 1."""
        self.connection.execute("SET schema = 'main'")
        return plan_and_match(self.engine, Query(sql, epsilon=Fraction(1), max_groups=max_groups))

    def statistics(self, prepared: QueryRun, rows: Rows) -> Statistics:
        """The exact cells of each group that a plan with one release would noise."""
        known = (prepared.statement.sql, id(rows))
        if known not in self._seen:
            self._enter(rows)
            self._seen[known] = cells_of(prepared, self.engine.backend.run_statement(prepared.statement.sql))
        return self._seen[known]

    def belonging(self, prepared: QueryRun, rows: Rows) -> dict[int, Counter[str]]:
        """The rows that a plan aggregates, keys and measures, by the person that each belongs to."""
        self._enter(rows)
        found: dict[int, Counter[str]] = {}
        for unit, *values in self.engine.backend.run_statement(
            emit_rows(DUCKDB_COMPILER, prepared.plan.analysis)
        ).reveal():
            found.setdefault(self._people[str(unit)], Counter())[repr(values)] += 1
        return found

    @cached_property
    def _people(self) -> dict[str, int]:
        return {text: person for person, texts in self.rules.ids.spelt.items() for text in texts}

    def _enter(self, rows: Rows) -> None:
        if id(rows) not in self._places:
            self._places[id(rows)] = self._placed(rows)
        self.connection.execute(f"SET search_path = '{self._places[id(rows)]},main'")

    def _placed(self, rows: Rows) -> str:
        self._schemas += 1
        schema = f"w{self._schemas}"
        texts = [f"CREATE SCHEMA {schema}; {self._tables(schema)}"]
        for name, found in rows.items():
            values = ", ".join(f"({', '.join(self._texts(row))})" for row in found)
            texts += [f"INSERT INTO {schema}.{name} VALUES {values}"] if values else []
        self.connection.execute("; ".join(texts))
        return schema

    def _texts(self, row: Row) -> Iterator[str]:
        ids = {"id", "person"}
        for place, (name, value) in enumerate(zip(row._fields, row, strict=True)):
            if value is None:
                yield "NULL"
            elif name in ids:
                spelt = self.rules.ids.spelt[int(value)]
                yield f"'{spelt[(len(str(row)) + place) % len(spelt)]}'"
            else:
                yield f"'{value}'"

    def _tables(self, schema: str) -> str:
        kind = self.rules.ids.engine
        return (
            f"CREATE TABLE {schema}.people (id {kind}, x DOUBLE, k VARCHAR, n INTEGER, raw BIGINT, s VARCHAR COLLATE NOCASE);"
            f"CREATE TABLE {schema}.visits (vid INTEGER, person {kind}, c DOUBLE, t VARCHAR);"
            f"CREATE TABLE {schema}.items (iid BIGINT, visit BIGINT, a INTEGER);"
            f"CREATE TABLE {schema}.parts (item INTEGER, b INTEGER);"
            f"CREATE TABLE {schema}.bills (vid INTEGER, t VARCHAR, person {kind}, m INTEGER);"
            f"CREATE TABLE {schema}.notes (vid BIGINT, t VARCHAR, o INTEGER)"
        )
