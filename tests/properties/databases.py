"""Tiny databases over `laws.schema`, drawn by Hypothesis, and their neighbours.

A database has a few units, each with a share of the rows: a few rows, each as often as drawn, so that
bounds on rows and groups are passed as often as kept. Rows know their owner, so that a unit leaves all
private tables at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import duckdb
from hypothesis import strategies as st
from properties.schema import NEWCOMER, PRIVATE, PUBLIC, SCHEMA, Rules, Text

Wanted = Mapping[str, Collection[str]]
"""The tables that matter, each with the columns that do; the others stay empty, or NULL."""
UNITS = (1, 2, 3)
MOST_PUBLIC = 4
MOST_REPEATS = 4


@dataclass(frozen=True)
class Row:
    """A row and the number of the unit that it belongs to: None for nobody's, and for public rows."""

    owner: int | None
    values: tuple[Text, ...]


@dataclass(frozen=True)
class Content:
    """The rows of a table, by the columns that matter."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def kept(self, rows: Sequence[Row]) -> Content:
        """The same table with other rows."""
        return Content(self.columns, tuple(rows))

    def __str__(self) -> str:
        shown = ", ".join(
            f"({', '.join('NULL' if v is None else v for v in row.values)})" for row in self.rows
        )
        return f"({', '.join(self.columns)}) {shown or 'has no rows'}"


Tables = Mapping[str, Content]


@dataclass(frozen=True)
class Database:
    """The content of the tables, and what newcomers may bring where a unit is replaced."""

    tables: Tables
    newcomers: tuple[Tables, ...] = field(default=())

    def __str__(self) -> str:
        return show(self.tables)


def show(tables: Tables) -> str:
    """The tables, a line each."""
    return "\n".join(f"  {name}{content}" for name, content in tables.items())


def neighbours(database: Database, rules: Rules) -> Iterator[Tables]:
    """Every neighbour that lacks one unit or, for `replace`, has a newcomer in its place."""
    for rest, owned in _without_one(database.tables, rules):
        if rules.neighbors == "add_remove":
            yield rest
            continue
        for newcomer in database.newcomers:
            if not rules.by_row:
                yield {**rest, **{name: joined(rest[name], newcomer[name].rows) for name in newcomer}}
            else:
                rows = dict.fromkeys(newcomer[owned].rows)
                yield from ({**rest, owned: joined(rest[owned], [row])} for row in rows)


def _without_one(tables: Tables, rules: Rules) -> Iterator[tuple[dict[str, Content], str]]:
    """The tables less one unit, each in turn, and the name of a table that has lost a row."""
    private = {name: content for name, content in tables.items() if not SCHEMA[name].public}
    if rules.by_row:
        for name, content in private.items():
            for row in dict.fromkeys(content.rows):
                place = content.rows.index(row)
                yield {**tables, name: content.kept(content.rows[:place] + content.rows[place + 1 :])}, name
        return
    for owner in sorted({row.owner for content in private.values() for row in content.rows if row.owner}):
        rest = {name: without(content, owner) for name, content in private.items()}
        yield {**tables, **rest}, next(iter(private))


def joined(content: Content, rows: Sequence[Row]) -> Content:
    """A table with these rows besides."""
    return content.kept([*content.rows, *rows])


def without(content: Content, owner: int | None) -> Content:
    """A table less the rows of one unit, or of nobody."""
    return content.kept([row for row in content.rows if row.owner != owner])


def nobodys(tables: Tables, rules: Rules) -> Tables | None:
    """The tables less the rows that belong to nobody, or None where there are none."""
    if rules.by_row:
        return None
    rest = {
        name: content if SCHEMA[name].public else without(content, None) for name, content in tables.items()
    }
    return None if rest == tables else rest


@contextmanager
def holding(connection: duckdb.DuckDBPyConnection, tables: Tables) -> Iterator[None]:
    """Within it the tables have this content; after it they are as before."""
    connection.execute("BEGIN")
    try:
        for name, content in tables.items():
            if content.rows:
                connection.execute(_insert(name, content))
        yield
    finally:
        connection.execute("ROLLBACK")


def _insert(name: str, content: Content) -> str:
    values = ", ".join(f"({', '.join(map(_constant, row.values))})" for row in content.rows)
    return f"INSERT INTO {name} ({', '.join(content.columns)}) VALUES {values}"


def _constant(value: Text) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


@st.composite
def publics(draw: st.DrawFn) -> Tables:
    """The content of the public tables, all of it: what is derived of a plan may depend on it."""
    return {name: draw(_public(name)) for name in PUBLIC}


@st.composite
def databases(draw: st.DrawFn, wanted: Wanted, rules: Rules, public: Tables) -> Database:
    """Databases of up to three units beside public tables."""
    private = {name: _columns(name, wanted[name]) for name in PRIVATE if name in wanted}
    most = 1 if rules.by_row else rules.rows
    owners = [*UNITS[: draw(_UNIT_COUNTS)], *([None] if draw(_SELDOM) else [])]
    shares = [draw(_shares(private, owner, most)) for owner in owners]
    tables = {
        name: Content(held, tuple(row for share in shares for row in share[name].rows))
        for name, held in private.items()
    }
    newcomers = range(draw(_NEWCOMER_COUNTS) if rules.neighbors == "replace" else 0)
    return Database({**public, **tables}, tuple(draw(_shares(private, NEWCOMER, most)) for _ in newcomers))


def _columns(table: str, wanted: Collection[str]) -> tuple[str, ...]:
    """The columns that matter: who owns a row, keys, then the others."""
    held = SCHEMA[table].columns
    keys = [name for name, column in held.items() if column.key]
    first = [name for name in (SCHEMA[table].owner, *keys) if name is not None]
    return (*first, *(name for name in held if name in wanted and name not in first))


@st.composite
def _shares(
    draw: st.DrawFn, columns: Mapping[str, tuple[str, ...]], owner: int | None, most: int
) -> dict[str, Content]:
    """What a unit holds in each table: up to three different rows, each up to once more than counts."""
    found: dict[str, Content] = {}
    for name, held in columns.items():
        table = SCHEMA[name]
        link = table.link
        # A linked row has the key of one of the unit's rows, or one that no row has.
        keys = () if link is None else _keys(found[link.table], link.key)
        ids: tuple[Text, ...] = keys or ("999", None) if link else (table.ids or {}).get(owner or 0, (None,))
        values = [column for column in held if column != table.owner and not table.columns[column].key]
        whose = owner if link is None or keys else None
        rows: list[Row] = []
        for drawn, times in draw(_rows(name, tuple(values))):
            for _ in range(min(times, most + 1)):
                own = {column: f"{owner or 0}{len(rows) % 3}" for column in held if table.columns[column].key}
                known = {
                    table.owner: ids[len(rows) % len(ids)],
                    **own,
                    **dict(zip(values, drawn, strict=True)),
                }
                rows.append(Row(whose, tuple(known[column] for column in held)))
        found[name] = Content(held, tuple(rows))
    return found


def _keys(content: Content, key: str) -> tuple[Text, ...]:
    place = content.columns.index(key)
    return tuple(dict.fromkeys(row.values[place] for row in content.rows))


_UNIT_COUNTS = st.sampled_from((1, 2, 2, 3))
_NEWCOMER_COUNTS = st.integers(1, 2)
_SELDOM = st.sampled_from((False,) * 7 + (True,))


@cache
def _values(table: str, columns: tuple[str, ...]) -> st.SearchStrategy[tuple[Text, ...]]:
    return st.tuples(*(st.sampled_from(SCHEMA[table].columns[name].values) for name in columns))


@cache
def _public(table: str) -> st.SearchStrategy[Content]:
    columns = tuple(SCHEMA[table].columns)
    repeated = st.tuples(_values(table, columns), st.integers(1, 2))
    return st.lists(repeated, max_size=MOST_PUBLIC // 2).map(
        lambda drawn: Content(
            columns, tuple(Row(None, values) for values, times in drawn for _ in range(times))
        )
    )


@cache
def _rows(table: str, columns: tuple[str, ...]) -> st.SearchStrategy[list[tuple[tuple[Text, ...], int]]]:
    return st.lists(st.tuples(_values(table, columns), st.integers(1, MOST_REPEATS)), min_size=1, max_size=3)
