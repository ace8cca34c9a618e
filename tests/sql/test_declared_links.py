"""Joins on declared links: what they mean, where they are refused, and what the refusal says to declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest
import yaml

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.spark.dialect import make_spark_dialect
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy import load
from dpsql.policy.request.query import Query
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.statement import emit_release

_NO_NOISE = 10**15
_TABLES = """
    CREATE TABLE sales (customer BIGINT, ticket INTEGER, item BIGINT, price DOUBLE);
    CREATE TABLE returns (who BIGINT, ticket INTEGER, item INTEGER, amount DOUBLE);
    CREATE TABLE claims (ticket INTEGER, item BIGINT, words VARCHAR);
    CREATE TABLE calls (caller BIGINT, about INTEGER);
    CREATE TABLE rows_alone (ticket BIGINT, x INTEGER);
    INSERT INTO sales SELECT i % 50, i, i % 7, i * 37 % 100 FROM range(300) AS t(i);
    INSERT INTO sales SELECT i % 50, NULL, i % 7, 5 FROM range(20) AS t(i);
    INSERT INTO returns SELECT i % 50, i, i % 7, i * 31 % 50 FROM range(0, 300, 3) AS t(i);
    INSERT INTO returns SELECT i % 50, i, i % 7, NULL FROM range(0, 300, 30) AS t(i);
    INSERT INTO returns VALUES (3, NULL, 4, 5), (3, 3, NULL, 7), (9, 1000, 1, 8);
    INSERT INTO claims SELECT i, i % 7, 'w' FROM range(0, 300, 2) AS t(i);
    INSERT INTO claims SELECT i, i % 7, NULL FROM range(0, 300, 20) AS t(i);
    INSERT INTO calls SELECT i % 50, i FROM range(0, 300, 4) AS t(i);
"""
_WHOLE = {"type": "integer"}


def _policy() -> dict[str, Any]:
    money = {"type": "double", "bounds": [0, 100]}
    key = {"ticket": _WHOLE, "item": _WHOLE}
    return {
        "version": 1,
        "privacy_unit": "customer",
        "budget": {"epsilon": 10**30},
        "tables": {
            "sales": {"unit": "customer", "rows_per_unit": 20, "columns": {**key, "price": money}},
            "returns": {
                "unit": "who",
                "rows_per_unit": 10,
                "link": {"columns": ["ticket", "item"], "references": "sales.[ticket, item]"},
                "columns": {**key, "amount": money},
            },
            "claims": {
                "link": {"columns": ["item", "ticket"], "references": ["sales.item", "sales.ticket"]},
                "rows_per_unit": 10,
                "columns": {"words": {"type": "varchar"}},
            },
            "calls": {"unit": "caller", "rows_per_unit": 10, "columns": {"about": _WHOLE}},
            "rows_alone": {"unit": "row", "columns": {"ticket": _WHOLE, "x": _WHOLE}},
        },
    }


def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(_TABLES)
    return connection


def _connect(policy: dict[str, Any]) -> Connection:
    return dpsql.connect(_database(), policy=policy, ledger=":memory:", epsilon=_NO_NOISE)


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with _connect(_policy()) as opened:
        yield opened


BOTH = "s.ticket = r.ticket AND s.item = r.item"
_ALL = "SELECT * FROM returns WHERE ticket IS NOT NULL AND item IS NOT NULL"
_KNOWN = f"SELECT ticket, item FROM ({_ALL})"
ANSWERED = (
    f"SELECT COUNT(*), SUM(price - amount), COUNT(amount) FROM sales s JOIN returns r ON {BOTH}",
    "SELECT COUNT(*), SUM(amount) FROM sales JOIN returns USING (ticket, item)",
    "SELECT COUNT(*) FROM sales s, returns r WHERE (s.ticket = r.ticket AND ((r.item = s.item))) AND amount < price",
    f"SELECT COUNT(*) FROM sales s, returns r WHERE ({BOTH} AND amount < 9) OR ({BOTH} AND price > 50)",
    f"SELECT COUNT(*), SUM(price), COUNT(amount) FROM sales s LEFT JOIN returns r ON {BOTH} AND amount > 10",
    f"SELECT COUNT(*), SUM(price), COUNT(amount) FROM sales s RIGHT JOIN returns r ON {BOTH}",
    "SELECT COUNT(*), COUNT(words), SUM(amount) FROM claims FULL JOIN returns USING (ticket, item)",
    f"SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT * FROM returns r WHERE {BOTH} AND amount < price)",
    f"SELECT COUNT(*) FROM sales s WHERE NOT EXISTS (SELECT * FROM returns r WHERE {BOTH})",
    "SELECT COUNT(*) FROM sales s WHERE ticket IN (SELECT ticket FROM returns r WHERE r.item = s.item)",
    f"SELECT COUNT(*) FROM sales s WHERE price > (SELECT AVG(amount) FROM returns r WHERE {BOTH})",
    f"SELECT COUNT(*) FROM sales s JOIN (SELECT ticket, item FROM returns WHERE amount > 5) AS r ON {BOTH}",
    f"SELECT COUNT(*) FROM sales s WHERE ticket IS NOT NULL AND item IS NOT NULL AND (ticket, item) NOT IN ({_KNOWN})",
    f"SELECT COUNT(*) FROM sales s WHERE ticket IS NOT NULL AND item IS NOT NULL AND (item, ticket, price) NOT IN (SELECT item, ticket, amount FROM ({_ALL}))",
    "SELECT COUNT(*), COUNT(words) FROM claims",
    "SELECT COUNT(*), SUM(price) FROM claims c JOIN sales s ON s.ticket = c.ticket AND s.item = c.item",
    "SELECT COUNT(*), SUM(a.amount) FROM returns a JOIN returns b ON a.ticket = b.ticket AND a.item = b.item",
    "SELECT COUNT(*) FROM returns r, sales s, calls WHERE calls.caller = s.customer AND s.ticket = r.ticket AND r.item = s.item",
    "SELECT COUNT(*) FROM sales s, calls l, claims c WHERE about = c.ticket AND c.ticket = s.ticket AND c.item = s.item AND caller = customer",
)
REFUSED = (
    "SELECT COUNT(*) FROM sales s JOIN returns r ON s.ticket = r.ticket",
    "SELECT COUNT(*) FROM sales s LEFT JOIN returns r ON s.item = r.item",
    "SELECT COUNT(*) FROM sales s JOIN returns r ON s.ticket = r.ticket AND s.item = r.item + 0",
    # Both parts of the key, but of two rows.
    "SELECT COUNT(*) FROM sales s JOIN sales z ON s.customer = z.customer JOIN returns r ON s.ticket = r.ticket AND z.item = r.item",
    "SELECT COUNT(*) FROM (SELECT s.ticket, z.item FROM sales s JOIN sales z USING (customer)) AS d JOIN returns r USING (ticket, item)",
    "SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT * FROM returns r WHERE s.ticket = r.ticket)",
    "SELECT COUNT(*) FROM sales s WHERE ticket NOT IN (SELECT ticket FROM returns)",
    # A NULL is compared with the rows of all, also where both parts of the key are.
    f"SELECT COUNT(*) FROM sales s WHERE (ticket, item) NOT IN ({_KNOWN})",
    f"SELECT COUNT(*) FROM sales s WHERE ticket IS NOT NULL AND (ticket, item) NOT IN ({_KNOWN})",
    "SELECT COUNT(*) FROM sales s WHERE ticket IS NOT NULL AND item IS NOT NULL AND (ticket, item) NOT IN (SELECT ticket, item FROM returns WHERE ticket IS NOT NULL)",
    "SELECT COUNT(*) FROM sales s WHERE NOT EXISTS (SELECT * FROM rows_alone r WHERE r.ticket = s.ticket)",
    "SELECT COUNT(*) FROM sales s JOIN rows_alone r ON r.ticket = s.ticket",
)


@pytest.mark.parametrize("sql", ANSWERED)
def test_join_on_a_link_gives_the_rows_of_duckdb(connection: Connection, sql: str) -> None:
    """A true declaration makes the equality of units remove nothing."""
    (ours,) = connection.query(sql).rows
    with _database() as plain:
        (theirs,) = plain.execute(sql).fetchall()
    assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("sql", REFUSED)
def test_joins_without_a_declared_link_are_refused(connection: Connection, sql: str) -> None:
    """Parts of a key, parts of two rows' keys and rows that are units themselves are no link."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.explain(sql)
    assert caught.value.code == "private_join"


def test_joined_table_may_give_the_unit_without_row_ids() -> None:
    """No row id is emitted, so that engines without row ids answer, too."""
    lines = {
        "link": {"column": "sale", "references": "sales.id"},
        "rows_per_unit": 9,
        "columns": {"sale": _WHOLE},
    }
    policy = {
        **_policy(),
        "tables": {
            "sales": {"unit": "customer", "rows_per_unit": 20, "columns": {"id": _WHOLE}},
            "lines": lines,
        },
    }
    database = duckdb.connect()
    database.execute("CREATE TABLE sales (customer BIGINT, id BIGINT); CREATE TABLE lines (sale BIGINT)")
    with dpsql.connect(database, policy=policy, ledger=":memory:") as opened:
        user_query = Query("SELECT COUNT(*) FROM sales JOIN lines ON id = sale", epsilon=Fraction(1))
        plan = plan_and_match(opened.engine, user_query).single_release.plan
        emit_release(Compiler(make_spark_dialect()), plan.analysis, plan.quantiles, plan.top_k, plan.clamps)


ONE_COLUMN = (
    (
        "WITH many AS (SELECT a.ticket FROM sales a, sales b WHERE a.customer = b.customer AND a.item <> b.item) "
        "SELECT COUNT(*), COUNT(DISTINCT about) FROM calls WHERE about IN (SELECT ticket FROM many)"
    ),
    (
        "SELECT COUNT(*) FROM calls JOIN (SELECT a.ticket FROM sales a JOIN sales b USING (customer) WHERE a.price < b.price) AS d "
        "ON about = d.ticket"
    ),
)


@pytest.mark.parametrize("sql", ONE_COLUMN)
def test_link_of_one_column_leads_through_a_join(sql: str) -> None:
    """A whole key stays one in a derived table of several private tables."""
    policy = _policy()
    policy["tables"]["calls"]["links"] = [{"column": "about", "references": "sales.ticket"}]
    policy["tables"]["sales"]["rows_per_unit"] = 100
    with _connect(policy) as opened, _database() as plain:
        assert tuple(opened.query(sql).rows) == tuple(plain.execute(sql).fetchall())


DECLARABLE = (
    ("SELECT COUNT(*) FROM sales s JOIN returns r ON s.ticket = r.ticket", "returns"),
    ("SELECT COUNT(*) FROM sales s LEFT JOIN calls c ON s.ticket = c.about", "calls"),
    ("SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT * FROM calls c WHERE s.ticket = c.about)", "calls"),
    ("SELECT COUNT(*) FROM sales s WHERE ticket IN (SELECT about FROM calls)", "calls"),
    (
        "SELECT COUNT(*) FROM sales s JOIN (SELECT about FROM calls) AS c ON s.ticket = c.about",
        "calls",
    ),
)


@pytest.mark.parametrize(("sql", "table"), DECLARABLE)
def test_hint_states_the_missing_declaration(connection: Connection, sql: str, table: str) -> None:
    """The hint's YAML, in the table that it names, makes the query answerable."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.explain(sql)
    said = re.search(r"in the table (\w+): `(links: .*)`", str(caught.value.hint))
    assert said is not None
    assert said[1] == table
    policy = _policy()
    policy["tables"][table] |= yaml.safe_load(said[2])
    with _connect(policy) as opened, _database() as plain:
        assert tuple(opened.query(sql).rows) == tuple(plain.execute(sql).fetchall())


@pytest.mark.parametrize(("sql", "table"), DECLARABLE)
def test_referenced_values_may_repeat(sql: str, table: str) -> None:
    """That rows with equal values belong to one unit does not say that one row has them: none of a join is lost."""
    with _connect(_policy()) as opened, pytest.raises(dpsql.QueryRejected) as caught:
        opened.explain(sql)
    said = re.search(r"`(links: .*)`", str(caught.value.hint))
    assert said is not None
    policy, database = _policy(), _database()
    policy["tables"][table] |= yaml.safe_load(said[1])
    database.execute(
        "INSERT INTO sales SELECT customer, ticket, item + 10 * i, price FROM sales, range(1, 9) AS t(i)"
    )
    for name, unit in (("sales", "customer"), ("returns", "who"), ("calls", "caller")):
        counts = f"SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM {name} GROUP BY {unit})"
        ((policy["tables"][name]["rows_per_unit"],),) = database.execute(counts).fetchall()
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=_NO_NOISE) as opened:
        assert tuple(opened.query(sql).rows) == tuple(database.execute(sql).fetchall())


def test_false_declaration_joins_no_rows_of_different_units() -> None:
    """Rows of two units with equal keys do not meet: what one unit changes does not rest on the declaration."""
    with _connect(_policy()) as opened:
        before = opened.query(f"SELECT COUNT(*) FROM sales s JOIN returns r ON {BOTH}").rows
    database = _database()
    # Somebody returns what everybody bought.
    database.execute("INSERT INTO returns SELECT 777, ticket, item, 1 FROM sales")
    with dpsql.connect(database, policy=_policy(), ledger=":memory:", epsilon=_NO_NOISE) as opened:
        assert opened.query(f"SELECT COUNT(*) FROM sales s JOIN returns r ON {BOTH}").rows == before


def test_forms_of_a_link_are_equivalent() -> None:
    """One column, several, a list and a bracket: what is read is written in one way, and digests of old ones stay."""
    policy = _policy()
    several = load(policy).tables["claims"].link
    assert several is not None
    assert (several.names, several.keys) == (("item", "ticket"), ("item", "ticket"))
    assert several.references == "sales.[item, ticket]"
    policy["tables"]["claims"]["link"] = {"column": "ticket", "references": "sales.ticket"}
    written = load(policy).model_dump(mode="json")["tables"]["claims"]
    assert written["link"] == {"column": "ticket", "references": "sales.ticket"}
    assert "links" not in written
    policy["tables"]["claims"]["link"] = {"columns": ["ticket"], "references": ["sales.ticket"]}
    assert load(policy).get_unit("claims").column == "ticket"


WRONG = (
    ({"columns": ["ticket", "item"], "references": "sales.ticket"}, "link_shape"),
    ({"columns": ["ticket", "ticket"], "references": "sales.[ticket, item]"}, "link_shape"),
    ({"columns": [], "references": "sales.ticket"}, "link_shape"),
    ({"column": "item", "columns": ["item"], "references": "sales.item"}, "link_shape"),
    ({"references": "sales.item"}, "missing_key"),
    ({"columns": ["ticket", "item"], "references": ["sales.ticket", "calls.about"]}, "bad_reference"),
    ({"columns": ["ticket", "item"], "references": "sales.[ticket, item"}, "bad_reference"),
    ({"columns": ["ticket", "item"], "references": "sales.[ticket, ]"}, "bad_reference"),
    ({"columns": ["ticket", "item"], "references": ["sales.ticket", "sales.ticket"]}, "bad_reference"),
    ({"columns": ["ticket", "item"], "references": []}, "bad_reference"),
    ({"columns": ["ticket", "item"], "references": "sales.[ticket, thing]"}, "dangling_link"),
    ({"columns": ["ticket"], "references": "rows_alone.[ticket]"}, "row_link"),
)


@pytest.mark.parametrize(("link", "code"), WRONG)
@pytest.mark.parametrize("key", ["link", "links"])
def test_wrong_link_is_refused(link: dict[str, Any], code: str, key: str) -> None:
    """A link has as many columns as it refers to, of one table that has a unit by its id."""
    policy = _policy()
    del policy["tables"]["returns"]["link"]
    policy["tables"]["returns"][key] = link if key == "link" else [link]
    with pytest.raises(dpsql.PolicyError) as caught:
        load(policy)
    assert caught.value.code == code


def test_columns_of_a_link_are_of_one_type() -> None:
    """Values that are converted before they are compared could be equal without being alike."""
    policy = _policy()
    del policy["tables"]["claims"], policy["tables"]["returns"]["link"]
    policy["tables"]["returns"]["links"] = [{"column": "amount", "references": "sales.ticket"}]
    with pytest.raises(dpsql.PolicyError) as caught:
        _connect(policy).explain("SELECT COUNT(*) FROM returns")
    assert caught.value.code in ("link_type", "unit_type")


def test_key_bounds_the_rows_of_a_join(connection: Connection) -> None:
    """A sale has one key: a unit has at most as many joined rows as returns; without the link it has the product."""
    bound = "contribution: at most {} rows per unit"
    text = str(connection.explain(f"SELECT COUNT(*) FROM sales s JOIN returns r ON {BOTH}"))
    assert bound.format(10) in text
    text = str(connection.explain("SELECT COUNT(*) FROM sales s JOIN returns r ON s.customer = r.who"))
    assert bound.format(200) in text
