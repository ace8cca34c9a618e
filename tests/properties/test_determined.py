"""Values that group keys determine through public tables: DuckDB's answer, at no charge, and the same for all data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.nodes import Join, JoinKind
from dpsql.plan.provenance import find_provenance
from tests.sql.study import prepare

RULES: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**16, "delta": 1e-6},
    "tables": {
        "sales": {
            "unit": "person",
            "rows_per_unit": 4,
            "columns": {
                "item": {"type": "integer", "values": [0, 1, 2, 3]},
                "shop": {"type": "integer", "values": [0, 1]},
                "sold": {"type": "integer"},
            },
        },
        "items": {"public": True},
        "kinds": {"public": True},
    },
}
VALUES = (
    "name",
    "colour",
    "UPPER(name)",
    "COALESCE(name, 'none') || '!'",
    "day",
    "sold",
    "rare",
    "code + item",
)
KEYS = ("item", "id", "kinds.kind", "items.kind, shop", "item, shop", "code")
JOINS = (
    "sales JOIN items ON item = id JOIN kinds ON items.kind = kinds.kind",
    "sales LEFT JOIN items ON item = id LEFT JOIN kinds ON items.kind = kinds.kind",
    "items JOIN sales ON item = id LEFT JOIN kinds ON items.kind = kinds.kind",
    "sales LEFT JOIN items ON item = id AND shop = 1 LEFT JOIN kinds ON items.kind = kinds.kind",
    "sales JOIN items ON item >= id JOIN kinds ON items.kind = kinds.kind",
    "(SELECT item, shop, sold, items.* FROM sales JOIN items ON item = id) items JOIN kinds ON items.kind = kinds.kind",
    "(SELECT item, shop, sold, items.* FROM sales LEFT JOIN items ON item = id) items LEFT JOIN kinds ON items.kind = kinds.kind",
)
ITEMS = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 2, 3]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, "x", "y"]),
        st.sampled_from([None, 7, 8]),
    ),
    max_size=5,
)
KINDS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, "red", "blue"])), max_size=3
)
SALES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([None, 0, 1, 2, 3]), st.sampled_from([0, 1])), max_size=8
)


def database(items: list[Any], kinds: list[Any], sales: list[Any]) -> duckdb.DuckDBPyConnection:
    """A database with these rows."""
    opened = duckdb.connect()
    opened.execute(
        "CREATE TABLE items (id INTEGER, kind VARCHAR, name VARCHAR, code INTEGER, day DATE, rare DOUBLE)"
    )
    opened.execute("CREATE TABLE kinds (kind VARCHAR, colour VARCHAR)")
    opened.execute("CREATE TABLE sales (person INTEGER, item INTEGER, shop INTEGER, sold INTEGER)")
    for row in items:
        opened.execute(
            "INSERT INTO items SELECT ?, ?, ?, ?, DATE '2020-01-01' + ?::INTEGER, ? / 3",
            [*row, row[0], row[3]],
        )
    for row in kinds:
        opened.execute("INSERT INTO kinds VALUES (?, ?)", list(row))
    for row in sales:
        opened.execute("INSERT INTO sales VALUES (?, ?, ?, 1)", list(row))
    return opened


def answered(connection: Connection, query: str) -> dpsql.Result | None:
    """The result; None where the keys determine too little."""
    try:
        return connection.execute(query).result
    except dpsql.QueryRejected as error:
        if error.code in {"exact_only", "column"}:
            return None
        raise


@pytest.mark.parametrize("joined", JOINS)
@settings(max_examples=examples(100))
@given(st.tuples(ITEMS, KINDS, SALES), st.sampled_from(KEYS), st.sets(st.sampled_from(VALUES), min_size=1))
def test_determined_columns_hold_the_values_of_all_rows(
    joined: str, rows: tuple[list[Any], list[Any], list[Any]], keys: str, values: set[str]
) -> None:
    """Every row of a shown group has the shown value."""
    with database(*rows) as plain:
        connection = dpsql.connect(plain, policy=RULES, ledger=":memory:", epsilon=10**4)
        asked = sorted(values)
        wanted = [
            value
            for value in asked
            if answered(connection, f"SELECT {keys}, ANY_VALUE({value}) FROM {joined} GROUP BY {keys}")
        ]
        if not wanted:
            return
        called = ", ".join(f"MAX({value})" for value in wanted)
        result = connection.execute(f"SELECT {keys}, {called} FROM {joined} GROUP BY {keys}").result
        width = keys.count(",") + 1
        shown = {row[:width]: row[width:] for row in result.rows}
        for row in plain.execute(f"SELECT {keys}, {', '.join(wanted)} FROM {joined}").fetchall():
            assert shown.get(row[:width], row[width:]) == row[width:]


ON = "FROM sales JOIN items ON item = id"
WARES = [(0, "a", "x", 7), (1, "b", None, 8), (2, "b", "y", None)]
COLOURS = [("a", "red"), ("b", "blue")]
FREE = {
    f"SELECT id, COUNT(*), MAX(name) {ON} GROUP BY id": {0: "x", 1: None, 2: "y"},
    f"SELECT item, COUNT(*), MIN(rare) {ON} GROUP BY item": {0: 7 / 3, 1: 8 / 3, 2: None},
    f"SELECT item, COUNT(*), FIRST(COALESCE(name, '?')) {ON} GROUP BY item": {0: "x", 1: "?", 2: "y"},
    f"SELECT item, COUNT(*), ARBITRARY(item + 1) {ON} GROUP BY item": {0: 1, 1: 2, 2: 3},
    f"SELECT item, COUNT(*), ANY_VALUE(colour) {ON} JOIN kinds ON kinds.kind = items.kind GROUP BY item": {
        0: "red", 1: "blue", 2: "blue",
    },
    "SELECT id, COUNT(sold), MAX(name) FROM items LEFT JOIN sales ON item = id GROUP BY id": {0: "x", 1: None, 2: "y"},
    f"SELECT i, COUNT(*), MAX(n) FROM (SELECT id AS i, name AS n {ON}) GROUP BY i": {0: "x", 1: None, 2: "y"},
}  # fmt: skip
"""Queries with the values of all their groups, which are public: the item 3, which no row of items has, is in none of them."""


@pytest.mark.parametrize("query", FREE)
@pytest.mark.parametrize("sales", [[], [(0, 1, 0), (1, 1, 1), (1, 2, 0)]], ids=["nobody", "some"])
def test_determined_columns_are_exact_and_free(query: str, sales: list[Any]) -> None:
    """All groups have their values, and the charge is that of the query without them."""
    with database(WARES, COLOURS, sales) as plain:
        connection = dpsql.connect(plain, policy=RULES, ledger=":memory:", epsilon=1)
        result = connection.execute(query).result
        found = {row[0]: row[1:3] for row in result.rows if row[0] is not None}
        assert {key: value for key, (count, value) in found.items() if count > 0}.items() <= FREE[
            query
        ].items()
        assert found.keys() == FREE[query].keys()
        head, _, rest = query.partition(")")
        without = f"{head}) {rest[rest.index('FROM') :]}"
        fresh = dpsql.connect(plain, policy=RULES, ledger=":memory:", epsilon=1)
        alone = fresh.execute(without).result
        assert (alone.receipt.loss, alone.receipt.mechanisms) == (
            result.receipt.loss,
            result.receipt.mechanisms,
        )
        assert all(row[1] is not None and row[2] is None for row in result.intervals())


REFUSED = {
    "two rows have one key": ([*WARES, (0, "b", "z", 9)], f"SELECT item, ANY_VALUE(name) {ON} GROUP BY item"),
    "the key is no key of the public table": (WARES, f"SELECT kind, ANY_VALUE(name) {ON} GROUP BY kind"),
    "some rows have NULL for a key that they are not joined on": (
        [*WARES, (3, "a", "z", None)],
        f"SELECT code, ANY_VALUE(name) {ON} GROUP BY code",
    ),
    "the join asks for more than the key": (
        WARES,
        "SELECT item, ANY_VALUE(name) FROM sales LEFT JOIN items ON item = id AND shop = 1 GROUP BY item",
    ),
    "the value is private": (WARES, f"SELECT item, ANY_VALUE(shop) {ON} GROUP BY item"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_undetermined_columns_are_refused(case: str) -> None:
    """Such a column would be some row's value."""
    items, query = REFUSED[case]
    with database(items, COLOURS, []) as plain:
        connection = dpsql.connect(plain, policy=RULES, ledger=":memory:", epsilon=1)
        with pytest.raises(dpsql.QueryRejected) as caught:
            connection.execute(query)
        assert caught.value.code == "exact_only"


def test_secret_key_is_selected_as_without_determined_columns() -> None:
    """Only shown groups have a value; the values of others stay hidden."""
    rules = {
        **RULES,
        "tables": {
            **RULES["tables"],
            "sales": {"unit": "person", "rows_per_unit": 4, "columns": {"item": {"type": "integer"}}},
        },
    }
    sales = [(person, person % 50 // 49, 0) for person in range(100)]
    with database(WARES, COLOURS, sales) as plain:
        connection = dpsql.connect(plain, policy=rules, ledger=":memory:", epsilon=1)
        result = connection.execute(
            "SELECT item, MAX(name) FROM sales LEFT JOIN items ON item = id GROUP BY item"
        ).result
    assert result.rows == ((0, "x"),)


def test_row_has_one_origin_when_the_join_matches_one_row() -> None:
    """The query groups by all keys; a join on some of them may repeat a released row."""
    with database(WARES, COLOURS, []) as plain:
        connection = dpsql.connect(plain, policy=RULES, ledger=":memory:", epsilon=1)
        asked = f"SELECT id, items.kind, COUNT(*), MAX(name) {ON} GROUP BY id, items.kind"
        outer = prepare(connection, asked).outer
        assert isinstance(outer.source, Join)
        assert len(outer.source.on) == 2
        assert find_provenance(outer) is not None
        assert find_provenance(replace(outer, source=replace(outer.source, on=outer.source.on[:1]))) is None
        assert find_provenance(replace(outer, source=replace(outer.source, kind=JoinKind.INNER))) is None
