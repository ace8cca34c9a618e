"""What is charged to a part reads nothing else: against every unit of tiny databases, removed one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from filling import insert

import dpsql
from dpsql.errors import BudgetExhausted
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box
from dpsql.sql.compile import relations, scan_conditions
from dpsql.sql.compile.compiler import Compiler

_COLUMNS = {
    "region": {"type": "varchar", "values": ["N", "S"]},
    "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
    "cost": {"type": "integer", "bounds": [0, 9]},
}
_PARTITION = ["region", "day"]
_VISITS = [
    # one place; two regions; a region and none; a value that is none of the domain; clamped days; two days
    (1, "N", "2024-01-05", 1), (1, "N", "2024-01-05", 2), (2, "N", "2024-01-05", 3), (2, "S", "2024-01-05", 4),
    (3, "N", "2024-01-05", 5), (3, None, "2024-01-05", 1), (4, "S", "2024-02-05", 2), (4, "X", "2024-02-05", 3),
    (5, "S", "2023-07-01", 4), (5, "S", "2023-08-01", 5), (6, "S", "2024-01-05", 1), (6, "S", "2024-03-05", 2),
    (7, "N", "2024-12-31", 3), (7, "N", "2025-03-01", 4), (8, "S", None, 5), (9, None, None, 1),
    (10, "S", "2024-03-05", 2), (10, "S", "2024-03-05", 1),
]  # fmt: skip
_PEOPLE = [(unit, "A" if unit % 2 else "B") for unit in range(1, 11)]
_QUERIES = [
    "SELECT COUNT(*), SUM(cost) FROM visits WHERE region = 'N'",
    "SELECT COUNT(*) FROM visits WHERE region <> 'N'",
    "SELECT COUNT(*) FROM visits WHERE day < DATE '2024-02-01'",
    "SELECT COUNT(*) FROM visits WHERE day >= DATE '2024-02-01' AND region = 'S'",
    "SELECT COUNT(*) FROM visits WHERE year(day) = 2024 AND month(day) IN (1, 12)",
    "SELECT region, COUNT(*) FROM visits WHERE day = DATE '2024-01-05' GROUP BY region",
    "SELECT COUNT(*) FROM (SELECT id, region AS r, SUM(cost) AS s FROM visits GROUP BY id, region) WHERE r = 'S'",
    "SELECT COUNT(*) FROM people JOIN visits USING (id) WHERE region = 'N' AND plan = 'A'",
    "SELECT plan, COUNT(*) FROM people LEFT JOIN visits ON people.id = visits.id AND region = 'S' GROUP BY plan",
    "SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM visits v WHERE v.id = people.id AND v.region = 'N')",
    "SELECT COUNT(*) FROM people WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.id = people.id AND v.region = 'N')",
    "SELECT COUNT(*) FROM (SELECT id FROM visits WHERE region = 'N' EXCEPT SELECT id FROM visits WHERE region = 'S')",
    "SELECT COUNT(*) FROM (SELECT id, day FROM visits WHERE region = 'N' UNION ALL SELECT id, day FROM visits WHERE region = 'N') WHERE day < DATE '2024-02-01'",
    "SELECT COUNT(*) FROM visits a JOIN visits b ON a.id = b.id WHERE a.region = 'S' AND b.region = 'S'",
]  # fmt: skip
_BY_ROW = [
    query for query in _QUERIES if "people" not in query and " id" not in query and "JOIN" not in query
]


def _policy(unit: str) -> dict[str, Any]:
    bounds = {} if unit == "row" else {"rows_per_unit": 3}
    people = {"unit": "id", "rows_per_unit": 1, "partition": "plan", "columns": {
        "id": {"type": "integer"}, "plan": {"type": "varchar", "values": ["A", "B"]},
    }}  # fmt: skip
    visits = {"unit": unit, **bounds, "partition": _PARTITION, "columns": _COLUMNS}
    tables = {"visits": visits} | ({} if unit == "row" else {"people": people})
    return {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": tables}


def _connected(
    unit: str = "id", database: duckdb.DuckDBPyConnection | None = None, epsilon: float = 0.5
) -> dpsql.Connection:
    held = database or _database()
    return dpsql.connect(held, policy=_policy(unit), ledger=":memory:", epsilon=epsilon)


def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (id INTEGER, region VARCHAR, day DATE, cost INTEGER)")
    database.execute("CREATE TABLE people (id INTEGER, plan VARCHAR)")
    _hold(database, _VISITS, _PEOPLE)
    return database


def _hold(database: duckdb.DuckDBPyConnection, visits: list[Any], people: list[Any]) -> None:
    database.execute("DELETE FROM visits; DELETE FROM people")
    insert(database, "visits", visits)
    insert(database, "people", people)


def _readers(unit: str, queries: list[str]) -> list[tuple[Mapping[str, Box], list[Any]]]:
    """For each query the boxes of its tables, and whose visits, as they alone are removed, change what it reads."""
    found = []
    database = _database()
    connection = _connected(unit, database)
    removals: list[Any] = list(range(len(_VISITS))) if unit == "row" else sorted({row[0] for row in _VISITS})
    for query in queries:
        prepared = connection.explain(query).prepared
        texts = [release.statement.sql for release in prepared.releases]
        seen = []
        for removed in [None, *removals]:
            kept = [
                row
                for at, row in enumerate(_VISITS)
                if removed is None or (at if unit == "row" else row[0]) != removed
            ]
            _hold(database, kept, _PEOPLE)
            seen.append([connection.engine.backend.run_statement(text).reveal() for text in texts])
        changed = [who for who, read in zip(removals, seen[1:], strict=True) if read != seen[0]]
        found.append(({bill.table: bill.box for bill in prepared.table_charges}, changed))
    return found


def _places(unit: str, who: Any) -> set[tuple[int | None, int | None]]:
    """Where the rows of a unit lie, as they are read: a region of the domain or none, a day that is clamped."""
    mine = [row for at, row in enumerate(_VISITS) if (at if unit == "row" else row[0]) == who]
    days = {row[2] and min(max(row[2], "2024-01-01"), "2024-12-31") for row in mine}
    ordinals = {
        duckdb.sql(f"SELECT DATE '{day}'").fetchall()[0][0].toordinal() if day else None for day in days
    }
    regions = {{"N": 0, "S": 1}.get(row[1] or "") for row in mine}
    return set(itertools.product(regions, ordinals))


def _outside(unit: str, boxes: Mapping[str, Box], who: Any) -> bool:
    """Whether a unit does not lie, in each dimension of the visits' box, at one place that is in it."""
    lying = list(zip(*_places(unit, who), strict=True))
    plans = {{"A": 0, "B": 1}[plan] for unit, plan in _PEOPLE if unit == who}
    for name, side in boxes["visits"].sides:
        by_people = name.endswith(' of "people"')
        places: set[int | None] = {*plans} if by_people else set(lying[0 if name.startswith("region") else 1])
        inside = [
            place is not None and any(low <= place <= high for low, high in side)  # type: ignore[operator]
            for place in places
        ]
        if len(places) > 1 or not all(inside):
            return True
    return False


@pytest.mark.parametrize(("unit", "queries"), [("row", _BY_ROW), ("id", _QUERIES)])
def test_charge_to_a_part_reads_no_unit_outside(unit: str, queries: list[str]) -> None:
    """Removing a unit that does not lie in the box, or not at one place, changes nothing at all."""
    for query, (boxes, changed) in zip(queries, _readers(unit, queries), strict=True):
        assert boxes["visits"] != WHOLE, query
        assert changed, query
        assert [who for who in changed if _outside(unit, boxes, who)] == [], query


def test_unenforced_constancy_reads_units_of_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are read in two parts and charged in one where only ranges are enforced."""

    def careless(compiler: Compiler, scan: Any, _unit: str, _source: str) -> list[str]:
        return [scan_conditions._emit_range_condition(compiler, side) for side in scan.partition_filters]

    monkeypatch.setattr(relations, "emit_partition_conditions", careless)
    boxes, changed = _readers("id", _QUERIES[:1])[0]
    assert {2, 3} <= {who for who in changed if _outside("id", boxes, who)}


def test_disjoint_months_cost_as_much_as_one() -> None:
    """Queries of disjoint months cost the table no more than the dearest; overlaps cost where they lie."""
    monthly = "SELECT COUNT(*) AS n FROM visits WHERE date_trunc('month', day) = DATE '2024-{:02}-01'"
    with _connected("row", epsilon=0.5) as connection:
        for month in range(1, 13):
            connection.query(monthly.format(month))
        assert connection.budget()["visits"].spent_epsilon == Fraction(1, 2)
        connection.query("SELECT COUNT(*) FROM visits WHERE day BETWEEN '2024-01-15' AND '2024-02-15'")
        assert connection.budget()["visits"].spent_epsilon == 1
        connection.query("SELECT COUNT(*) FROM visits WHERE day < DATE '2024-01-15' AND region = 'N'")
        with pytest.raises(BudgetExhausted, match="of a part of table visits, but at most epsilon 0 is left"):
            connection.query(monthly.format(2), replay=False)
        connection.query(monthly.format(3), replay=False)
        text = str(connection.explain(monthly.format(4) + " AND region IN ('S')"))
        assert "visits, only day 2024-04-01 to 2024-04-30 and region S: ε = 0.5" in text
        assert "left ε = 0.5" in text


def test_each_release_is_charged_to_its_own_part() -> None:
    """A statement with two releases charges each part its share; a row that no query reads keeps all."""
    with _connected("row", epsilon=1) as connection:
        sql = "SELECT (SELECT COUNT(*) FROM visits WHERE region = 'N') - (SELECT COUNT(*) FROM visits WHERE region = 'S')"
        prepared = connection.explain(sql).prepared
        assert len(prepared.table_charges) == 2
        result = connection.query(sql)
        assert [entry["loss"] for entry in result.receipt.entries] == ["1/2", "1/2"]
        assert connection.budget()["visits"].spent_epsilon == Fraction(1, 2)
        assert connection.query("SELECT COUNT(*) FROM visits WHERE region = 'N'", epsilon=0.5)


def test_redeclared_table_is_charged_as_a_whole() -> None:
    """Other bounds may move a row, so what was spent before counts at each new place."""
    with _connected("row") as connection:
        bill = connection.explain(
            "SELECT COUNT(*) FROM visits WHERE day < DATE '2024-02-01'"
        ).prepared.table_charges[0]
    moved = _policy("row")
    moved["tables"]["visits"]["columns"] = _COLUMNS | {
        "day": {"type": "date", "bounds": ["2023-01-01", "2024-12-31"]}
    }
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (id INTEGER, region VARCHAR, day DATE, cost INTEGER)")
    with dpsql.connect(database, policy=moved, ledger=":memory:", epsilon=1) as connection:
        other = connection.explain(
            "SELECT COUNT(*) FROM visits WHERE day > DATE '2024-03-01'"
        ).prepared.table_charges[0]
    assert bill.box.intersect_box(other.box) is not None


def test_scans_of_one_table_are_charged_together() -> None:
    """Two scans of a table in a release are charged as one box, or the whole if one reads it."""
    united = (
        "SELECT COUNT(*) FROM (SELECT id FROM visits WHERE region = 'N' UNION ALL SELECT id FROM visits{})"
    )
    with _connected() as connection:
        (bill,) = connection.explain(united.format(" WHERE region = 'S'")).prepared.table_charges
        assert [side for _, side in bill.box.sides] == [((0, 1),)]
        (bill,) = connection.explain(united.format("")).prepared.table_charges
        assert bill.box == WHOLE
        (bill,) = connection.explain(united.format(" WHERE day < DATE '2024-02-01'")).prepared.table_charges
        assert bill.box == WHOLE


def _linked() -> dpsql.Connection:
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE visits AS SELECT range AS visit, range % 5 AS id, 'N' AS region FROM range(9)"
    )
    database.execute("CREATE TABLE bills AS SELECT range AS visit, range % 3 AS cost FROM range(9)")
    visit = {"type": "integer"}
    region = {"type": "varchar", "values": ["N", "S"]}
    cost = {"type": "integer", "bounds": [0, 2]}
    tables = {
        "visits": {"unit": "id", "rows_per_unit": 2, "partition": "region", "columns": {"visit": visit, "region": region}},
        "bills": {
            "link": {"column": "visit", "references": "visits.visit"}, "rows_per_unit": 2, "partition": "cost",
            "columns": {"visit": visit, "cost": cost},
        },
    }  # fmt: skip
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": tables}
    return dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=0.5)


def test_owners_of_links_are_charged_as_a_whole() -> None:
    """Any row of the owner's table may decide to whom a linked row belongs, whatever part of it is read."""
    alone = "SELECT COUNT(*) FROM bills WHERE cost = 1"
    matched = f"{alone} AND visit IN (SELECT visit FROM visits WHERE region = 'N')"
    with _linked() as connection:
        for sql in (alone, matched):
            boxes = {bill.table: bill.box for bill in connection.explain(sql).prepared.table_charges}
            assert (boxes["visits"], boxes["bills"] == WHOLE) == (WHOLE, False)


def test_rows_with_units_unknown_to_the_scan_are_charged_as_a_whole() -> None:
    """Joined to their owner, linked rows have its unit, and the scan cannot tell which of them lie in one part."""
    joined = (
        "SELECT COUNT(*) FROM visits JOIN bills ON visits.visit = bills.visit WHERE cost = 1 AND region = 'N'"
    )
    with _linked() as connection:
        boxes = {bill.table: bill.box for bill in connection.explain(joined).prepared.table_charges}
        assert (boxes["bills"], boxes["visits"] == WHOLE) == (WHOLE, False)
