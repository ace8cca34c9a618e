"""A12, whose row it is: ids that only look equal never join one person's rows to another's.

An engine compares numbers of two types by rounding one of them. Sixty neighbouring ids are then one, and a
single person in one table decides about sixty in the other.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import pytest
from worlds import assert_within, cells, connected, engine_of, observed, prepared

import dpsql
from dpsql.api.connection import Connection

FIRST = 2**60
MANY = 60
AMOUNT = {"type": "double", "bounds": [-100, 100]}
MATCHED = "SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM visits WHERE visits.id = people.id)"
TOGETHER = [
    MATCHED,
    "SELECT SUM(cost) FROM people WHERE id IN (SELECT id FROM visits)",
    "SELECT COUNT(*) FROM people WHERE NOT EXISTS (SELECT 1 FROM visits AS v WHERE v.id = people.id AND fee > 0)",
    "SELECT SUM(cost + fee) FROM people JOIN visits ON people.id = visits.id",
    "SELECT SUM(cost) FROM people LEFT JOIN visits USING (id) WHERE fee > 3 OR fee IS NULL",
    "SELECT SUM(cost) FROM (SELECT id, cost FROM people UNION ALL SELECT id, fee FROM visits) AS both_",
    "SELECT SUM(cost) FROM (SELECT cost FROM people UNION ALL SELECT fee FROM visits) AS both_",
    "SELECT COUNT(*) FROM (SELECT id FROM people INTERSECT SELECT id FROM visits) AS both_",
    "SELECT SUM(n * cost) FROM people JOIN (SELECT id, COUNT(*) AS n FROM visits GROUP BY id) AS v ON v.id = people.id",
]
OF_TWO_TYPES = [("BIGINT", "DOUBLE"), ("DOUBLE", "HUGEINT"), ("BIGINT", "FLOAT"), ("BIGINT", "DATE")]
EXACT = ["BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "VARCHAR", "DECIMAL(15,0)", "DATE"]


def ids(kind: str) -> str:
    """The id of person number i, as SQL."""
    match kind:
        case "DATE":
            return "DATE '2020-01-01' + CAST(i AS INTEGER)"
        case "TIMESTAMP_NS":
            return "make_timestamp_ns(CAST(i AS BIGINT))"
        case _ if kind.startswith("DECIMAL"):
            return f"CAST({10**14} + i AS {kind})"
        case _:
            return f"CAST(CAST({FIRST} AS BIGINT) + i AS {kind})"


def database(people: str, visits: str) -> duckdb.DuckDBPyConnection:
    """Sixty people with ids of the one type; two visits of each with ids of the other."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(
        f"CREATE TABLE people AS SELECT i, {ids(people)} AS id, 100.0 AS cost FROM range({MANY}) AS r(i)"
    )
    opened.execute(
        f"CREATE TABLE visits AS SELECT i, {ids(visits)} AS id, fee FROM range({MANY}) AS r(i), "
        "(VALUES (-100.0), (100.0), (7.0)) AS fees(fee)"
    )
    return opened


def clinic(opened: Any, **link: Any) -> Connection:
    """A connection to the two tables; with a link, visits are people's by what it references."""
    tables = {
        "people": {"unit": "id", "rows_per_unit": 1, "columns": {"cost": AMOUNT}},
        "visits": {"unit": "id", "rows_per_unit": 2, "columns": {"fee": AMOUNT}},
    }
    if link:
        tables["people"] = {
            "unit": "i",
            "rows_per_unit": 1,
            "columns": {"cost": AMOUNT, "id": {"type": link.pop("kind")}},
        }
        tables["visits"] = {"link": link, "rows_per_unit": 2, "columns": {"fee": AMOUNT}}
    return connected(opened, {"budget": {"epsilon": 100, "delta": 1e-6}, "tables": tables})


def leave(connection: Connection, person: int) -> None:
    """Removes all rows of a person from all tables."""
    for table in ("people", "visits"):
        engine_of(connection).execute(f"DELETE FROM {table} WHERE i = {person}")


def test_engine_merges_sixty_ids() -> None:
    """The attack works on the engine itself: when one person leaves, sixty people's rows are gone."""
    opened = database("BIGINT", "DOUBLE")
    before = opened.execute(MATCHED).fetchone()
    opened.execute("DELETE FROM visits WHERE i > 0")
    assert opened.execute(MATCHED).fetchone() == before == (MANY,)
    opened.execute("DELETE FROM people WHERE i = 0; DELETE FROM visits WHERE i = 0")
    assert opened.execute(MATCHED).fetchone() == (0,)


@pytest.mark.parametrize("kinds", OF_TWO_TYPES, ids="-".join)
def test_ids_of_two_types_are_not_matched(kinds: tuple[str, str]) -> None:
    """Joins, matching and set operations of tables whose ids have different types: refused, no charge."""
    connection = clinic(database(*kinds))
    for sql in TOGETHER:
        with pytest.raises(dpsql.QueryRejected):
            connection.query(sql)
    assert connection.engine.ledger.list_entries() == ()


@pytest.mark.parametrize("kind", EXACT)
def test_one_person_influences_nobody_else(kind: str) -> None:
    """A person who leaves moves each statistic by no more than was derived, for ids of one type."""
    connection = clinic(database(kind, kind))
    for sql in TOGETHER:
        plan = prepared(connection, sql)
        before = cells(connection, plan)
        engine_of(connection).execute("BEGIN")
        leave(connection, 3)
        moved = assert_within(plan, before, cells(connection, plan))
        engine_of(connection).execute("ROLLBACK")
        assert moved > 0 or "NOT EXISTS" in sql


@pytest.mark.parametrize("kind", ["DECIMAL(38,0)", "DECIMAL(16,0)", "DECIMAL(20,3)", "TIMESTAMP_NS"])
def test_inexactly_read_id_is_refused(kind: str) -> None:
    """Types whose values are read with fewer digits than they have: no unit and no link, by the policy."""
    opened = database(kind, kind)
    links: list[dict[str, str]] = [{"column": "id", "references": "people.id", "kind": "double"}]
    if kind == "TIMESTAMP_NS":  # a decimal that is not declared is read as its text, which is exact
        links = [{}, {**links[0], "kind": "timestamp"}]
    for link in links:
        with pytest.raises(dpsql.PolicyError) as caught:
            clinic(opened, **link)
        assert caught.value.code == "unit_type"


@pytest.mark.parametrize(
    "kinds", [("BIGINT", "DOUBLE"), ("BIGINT", "VARCHAR"), ("VARCHAR", "BIGINT"), ("BIGINT", "DATE")]
)
def test_link_refers_to_a_column_of_its_type(kinds: tuple[str, str]) -> None:
    """A link that would be compared by converting it fails on some row, or finds others: refused by the policy."""
    read_as = {"BIGINT": "integer", "VARCHAR": "varchar"}[kinds[0]]
    with pytest.raises(dpsql.PolicyError) as caught:
        clinic(database(*kinds), column="id", references="people.id", kind=read_as)
    assert caught.value.code == "link_type"


@pytest.mark.parametrize("odd", ["abc", " 2", 2.0, None, "9" * 40, "\ud800"], ids=ascii)
def test_odd_id_in_a_frame_makes_no_query_fail(odd: Any) -> None:
    """One row whose id is no number: all but the values is as without it, where ids are declared to be numbers."""
    seen = []
    for more in ([], [odd]):
        people = pd.DataFrame({"id": pd.Series([1, 2, 3, *more], dtype=object), "cost": 1.0})
        visits = pd.DataFrame({"id": [1, 2, 3], "fee": 2.0})
        rules = {"unit": "id", "rows_per_unit": 1}
        tables = {
            "people": {**rules, "columns": {"id": {"type": "integer"}, "cost": AMOUNT}},
            "visits": {**rules, "columns": {"fee": AMOUNT}},
        }
        connection = connected(
            {"people": people, "visits": visits},
            {"budget": {"epsilon": 100, "delta": 1e-6}, "tables": tables},
        )
        seen.append([observed(connection, sql)[0] for sql in TOGETHER])
        assert not [outcome.error for outcome in seen[-1] if outcome.error]
    assert seen[0] == seen[1]
