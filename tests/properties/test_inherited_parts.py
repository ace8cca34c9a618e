"""Where units lie by one table confines what is read of others that are joined to it, and loses no row that counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from filling import insert
from speeds import thinned

import dpsql
from dpsql.analysis.partitions.assignment import compute_boxes, describe_box
from dpsql.errors import BudgetExhausted
from dpsql.plan.nodes import Release, list_private_scans
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box
from dpsql.sql.compile import relations
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

_ID = {"id": {"type": "integer"}}
_LISTS = {"region": ["N", "S"], "plan": ["A", "B"]}
_LISTED = {name: {"type": "varchar", "values": values} for name, values in _LISTS.items()}
_COLUMNS = {
    "people": {**_ID, "plan": _LISTED["plan"], "age": {"type": "integer", "bounds": [0, 99]}},
    "visits": {**_ID, "region": _LISTED["region"], "cost": {"type": "integer", "bounds": [0, 9]}},
    "notes": {**_ID, "n": {"type": "integer", "bounds": [0, 9]}},
}
_PARTITIONS = {"people": ["plan", "age"], "visits": ["region"]}
_PLACED: Mapping[str, list[Any]] = {
    # no visit, no plan, a plan that is none of the domain; else one place each
    "people": [(1, "A", 5), (1, "A", 5), (2, "A", 7), (3, "B", 5), (4, "B", 99), (5, None, 5), (6, "X", 7), (7, "A", 5)],
    # nobody's, and of those who are no people
    "visits": [(1, "N", 1), (1, "N", 4), (2, "S", 2), (3, "N", 3), (4, "S", 5), (5, "N", 1), (6, "S", 2), (8, "N", 3),
               (9, "S", 4), (None, "N", 5)],
    "notes": [(1, 1), (1, 5), (2, 2), (3, 1), (4, 4), (5, 3), (6, 1), (7, 2), (8, 1), (10, 2)],
}  # fmt: skip
_ASTRAY: Mapping[str, list[Any]] = {
    # of two plans, of a plan and none, of a plan and another that is none, of two ages; of two regions, of one and none
    "people": [(11, "A", 5), (11, "B", 5), (12, "A", 5), (12, None, 5), (13, "B", 7), (13, "X", 7), (14, "A", 5),
               (14, "A", 7), (15, "A", 5), (16, "B", 5)],
    "visits": [(11, "N", 1), (12, "N", 2), (13, "S", 3), (14, "N", 4), (15, "N", 5), (15, "S", 6), (16, "S", 7),
               (16, None, 8)],
    "notes": [(11, 1), (12, 2), (13, 3), (14, 4), (15, 5), (16, 6)],
}  # fmt: skip
_UNITS = range(1, 17)
_LEAVING: Sequence[range] = (_UNITS, _UNITS[::2])
"""Who leaves at once, unless they lie in the box: each of them is one more neighbour."""
_JOINED = "SELECT COUNT(*), SUM(cost) FROM visits v JOIN people p ON v.id = p.id WHERE p.plan = '{}'"
_A = _JOINED.format("A")
_BY_PLAN = {"people": "plan A", "visits": "people.plan A"}
_QUERIES: list[tuple[str, dict[str, str]]] = [
    (_A, _BY_PLAN),
    ("SELECT COUNT(*) FROM people p, visits v WHERE p.id = v.id AND p.plan = 'A'", _BY_PLAN),
    ("SELECT COUNT(*) FROM visits v JOIN people p ON v.id = p.id WHERE p.plan = 'B' AND v.region = 'N'",
     {"people": "plan B and visits.region N", "visits": "people.plan B and region N"}),
    ("SELECT region, COUNT(*) FROM visits JOIN people USING (id) WHERE age BETWEEN 5 AND 6 GROUP BY region",
     {"people": "age 5 to 6", "visits": "people.age 5 to 6"}),
    ("SELECT COUNT(v.cost) FROM people p LEFT JOIN visits v ON v.id = p.id WHERE p.plan = 'A'", _BY_PLAN),
    ("SELECT COUNT(*) FROM visits v LEFT JOIN people p ON v.id = p.id AND p.plan = 'A'", {"people": "plan A"}),
    ("SELECT COUNT(*) FROM people p LEFT JOIN visits v ON v.id = p.id AND v.region = 'N'", {"visits": "region N"}),
    ("SELECT COUNT(*) FROM visits v FULL JOIN people p ON v.id = p.id WHERE p.plan = 'A'", {"people": "plan A"}),
    ("SELECT SUM(cost) FROM visits WHERE id IN (SELECT id FROM people WHERE plan = 'A')", _BY_PLAN),
    ("SELECT COUNT(*) FROM people p WHERE p.plan = 'B' AND EXISTS (SELECT 1 FROM visits v WHERE v.id = p.id AND v.cost > 2)",
     {"people": "plan B", "visits": "people.plan B"}),
    ("SELECT COUNT(*) FROM visits v WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = v.id AND p.plan = 'A')",
     {"people": "plan A"}),
    ("SELECT COUNT(*) FROM people p WHERE p.plan = 'A' AND NOT EXISTS (SELECT 1 FROM visits v WHERE v.id = p.id AND v.cost > 2)",
     _BY_PLAN),
    ("SELECT SUM(s) FROM (SELECT id, SUM(cost) AS s FROM visits GROUP BY id) v JOIN (SELECT id FROM people WHERE plan = 'A') p USING (id)",
     _BY_PLAN),
    ("SELECT COUNT(*) FROM (SELECT id FROM visits INTERSECT SELECT id FROM people WHERE plan = 'A')", _BY_PLAN),
    ("SELECT COUNT(*) FROM (SELECT id FROM people WHERE plan = 'A' EXCEPT SELECT id FROM visits)", _BY_PLAN),
    ("SELECT COUNT(*) FROM (SELECT id FROM visits EXCEPT SELECT id FROM people WHERE plan = 'A')", {"people": "plan A"}),
    ("SELECT COUNT(*) FROM (SELECT id FROM visits UNION ALL SELECT id FROM people WHERE plan = 'A')", {"people": "plan A"}),
    ("SELECT SUM(n) FROM notes JOIN (SELECT id FROM people WHERE age = 5 UNION SELECT id FROM people WHERE age = 7 AND plan = 'A') USING (id)",
     {"people": "age 5, 7", "notes": "people.age 5, 7"}),
    ("SELECT SUM(n) FROM notes n JOIN visits v ON n.id = v.id JOIN people p ON p.id = n.id WHERE p.plan = 'A' AND region = 'N'",
     {"people": "plan A and visits.region N", "visits": "people.plan A and region N", "notes": "people.plan A and visits.region N"}),
    ("SELECT COUNT(*) FROM visits a JOIN visits b ON a.id = b.id WHERE a.region = 'N'", {"visits": "region N"}),
    ("SELECT COUNT(*) FROM people a JOIN people b ON a.id = b.id JOIN notes ON notes.id = a.id WHERE a.age < 7 AND b.age >= 5",
     {"people": "age 5 to 6", "notes": "people.age 5 to 6"}),
    ("SELECT COUNT(*) FROM (SELECT v.id, v.cost FROM visits v JOIN people p ON p.id = v.id WHERE p.plan = 'A' UNION ALL SELECT id, cost FROM visits WHERE region = 'N')",
     {"people": "plan A"}),
]  # fmt: skip


def _policy(*, parted: bool = True, **more: Any) -> dict[str, Any]:
    tables = {
        name: {"unit": "id", "rows_per_unit": 2, "columns": columns}
        | ({"partition": _PARTITIONS[name]} if parted and name in _PARTITIONS else {})
        for name, columns in _COLUMNS.items()
    }
    return {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": tables} | more


def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("CREATE TABLE people (id INTEGER, plan VARCHAR, age INTEGER)")
    database.execute("CREATE TABLE visits (id BIGINT, region VARCHAR, cost INTEGER)")
    database.execute("CREATE TABLE notes (id INTEGER, n INTEGER)")
    return database


def _hold(database: duckdb.DuckDBPyConnection, held: Mapping[str, list[Any]]) -> None:
    for table, found in held.items():
        database.execute(f"DELETE FROM {table}")
        insert(database, table, found)


def _connected(database: duckdb.DuckDBPyConnection | None = None, **more: Any) -> dpsql.Connection:
    return dpsql.connect(database or _database(), policy=_policy(**more), ledger=":memory:", epsilon=0.5)


_BOTH = {table: [*_PLACED[table], *_ASTRAY[table]] for table in _COLUMNS}


def _inside(box: Box, table: str, who: int) -> bool:
    """Whether a unit lies, in each dimension of a table's box, at one place that is in it."""
    for name, side in box.sides:
        column, _, roll = name.partition(" ")[0], *name.partition(" of ")[1:]
        named = roll.strip('"') or table
        at = [*_COLUMNS[named]].index(column)
        held = {row[at] for row in _BOTH[named] if row[0] == who}
        values = _LISTS.get(column)
        places = {
            place if values is None else {value: n for n, value in enumerate(values)}.get(place)
            for place in held
        }
        if len(places) != 1:
            return False
        (place,) = places
        if place is None or not any(low <= place <= high for low, high in side):  # type: ignore[operator]
            return False
    return True


def _scanned(release: Release) -> Iterator[str]:
    """For each scan of a private table the query that says whose rows it reads, and how many."""
    for scan in list_private_scans(release.input):
        assert scan.unit.column is not None
        source, _ = relations.emit_from_clause(DUCKDB_COMPILER, scan, [scan.unit.column])
        yield f"SELECT id, COUNT(*) FROM {source} GROUP BY id ORDER BY id"


def _strayed(queries: Iterable[str]) -> dict[str, set[str]]:
    """For each query the tables, or "all", in whose boxes some do not lie who change what is read by leaving them."""
    database = _database()
    _hold(database, _BOTH)
    database.execute("CREATE SCHEMA whole")
    for table in _COLUMNS:
        database.execute(f"CREATE TABLE whole.{table} AS FROM {table}")
    connection = _connected(database)
    found: dict[str, set[str]] = {}
    for query in queries:
        prepared = connection.explain(query).prepared
        charged = {bill.table: bill.box for bill in prepared.table_charges}
        inside = {
            table: {who for who in _UNITS if _inside(box, table, who)} for table, box in charged.items()
        }
        changed = found[query] = set()
        texts = [
            prepared.single_release.statement.sql,
            *_scanned(prepared.single_release.plan.analysis.release),
        ]
        whole = [connection.engine.backend.run_statement(text).reveal() for text in texts]
        for left, leaving in itertools.product((*charged, "all"), _LEAVING):
            tables = charged if left == "all" else [left]
            gone = {*leaving}.difference(*(inside[table] for table in tables))
            for table in tables:
                database.execute(f"DELETE FROM {table} WHERE list_contains(?, id)", [[*gone]])
            if [connection.engine.backend.run_statement(text).reveal() for text in texts] != whole:
                changed.add(left)
            for table in tables:
                database.execute(f"DELETE FROM {table}; INSERT INTO {table} FROM whole.{table}")
    return found


def test_condition_on_a_joined_table_narrows_the_scan() -> None:
    """Each table is charged where its own and its joined tables' conditions say, except NOT and LEFT."""
    with _connected() as connection:
        for query, words in _QUERIES:
            prepared = connection.explain(query).prepared
            releases = [part.plan.analysis.release for part in prepared.releases]
            found = {bill.table: describe_box(bill.box, releases) for bill in prepared.table_charges}
            assert {table: text for table, text in found.items() if text} == words, query


def test_units_outside_an_inherited_part_change_nothing() -> None:
    """A unit that leaves a table, and lies outside its box or in no box, changes nothing that is read."""
    for query, strayed in _strayed(thinned([query for query, _ in _QUERIES], 4)).items():
        assert strayed == set(), query


def test_units_outside_a_part_matter_without_the_scan_s_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search finds cases where the query's conditions alone leave out rows that are charged nowhere."""
    monkeypatch.setattr(relations, "emit_partition_conditions", lambda *_: ())
    assert _strayed([_A])[_A] == {"people", "visits", "all"}


def test_scan_with_an_inherited_part_keeps_all_counted_rows() -> None:
    """A scan reads the same as without parts, where units lie at one place or none."""
    database = _database()
    _hold(database, _PLACED)
    parted, free = _connected(database), _connected(database, parted=False)
    for query, _ in _QUERIES:
        found = [
            connection.engine.backend.run_statement(
                connection.explain(query).prepared.single_release.statement.sql
            ).reveal()
            for connection in (parted, free)
        ]
        assert found[0] == found[1], query


def test_queries_of_disjoint_inherited_parts_cost_one() -> None:
    """Joined to people of two plans, visits are charged once for both; overlaps add up."""
    with _connected() as connection:
        for plan in "AB":
            connection.query(_JOINED.format(plan))
        spent = connection.budget()
        assert {spent["visits"].spent_epsilon, spent["people"].spent_epsilon} == {Fraction(1, 2)}
        text = str(connection.explain(_A + " AND age < 7"))
        assert "visits, only people.age 0 to 6 and people.plan A: ε = 0.5" in text
        assert (
            "only rows of visits with people.age 0 to 6 and people.plan A are read; a person with no value or several values of "
            "people.age or of people.plan is not counted"
        ) in text
        connection.query("SELECT COUNT(*) FROM visits WHERE region = 'N'")
        assert connection.budget()["visits"].spent_epsilon == 1
        with pytest.raises(BudgetExhausted, match="of a part of table visits, but at most epsilon 0 is left"):
            connection.query(_A + " AND v.region = 'N'", replay=False)
        connection.query(_A + " AND v.region = 'S'", replay=False)


def test_column_of_another_table_is_another_dimension() -> None:
    """A unit may lie elsewhere by a column of the same name and declaration in another table."""
    policy = _policy()
    policy["tables"]["visits"]["columns"] = _COLUMNS["visits"] | {"plan": _LISTED["plan"]}
    policy["tables"]["visits"]["partition"] = ["plan"]
    database = _database()
    database.execute("ALTER TABLE visits ADD COLUMN plan VARCHAR")
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as connection:
        own, theirs = (
            {bill.table: bill.box for bill in connection.explain(sql).prepared.table_charges}["visits"]
            for sql in ("SELECT COUNT(*) FROM visits WHERE plan = 'A'", _JOINED.format("B"))
        )
    assert WHOLE not in (own, theirs)
    assert own.intersect_box(theirs) is not None


def test_rolling_windows_are_charged_where_they_are_read() -> None:
    """Many ranges are read from the first to the last, of the table that says where units lie, too."""
    listed = [", ".join(map(str, range(first, 36, 4))) for first in (0, 2)]
    either = " UNION ".join(f"SELECT id FROM people WHERE age IN ({ages})" for ages in listed)
    with _connected() as connection:
        prepared = connection.explain(f"SELECT SUM(n) FROM notes JOIN ({either}) USING (id)").prepared
        found = compute_boxes(prepared.single_release.plan.analysis.release)
    assert {table: [side for _, side in box.sides] for table, box in found.items()} == {
        "people": [((0, 34),)],
        "notes": [((0, 34),)],
    }


def test_replays_do_not_depend_on_table_names() -> None:
    """Inherited parts do not depend on the names that the query gives."""
    with _connected() as connection:
        connection.query(_A)
        other = "SELECT COUNT(*), SUM(cost) FROM visits JOIN people ON visits.id = people.id WHERE people.plan = 'A'"
        assert connection.explain(other).prepared.table_charges == ()


def test_replaced_unit_inherits_no_part() -> None:
    """One who leaves a part may be replaced by somebody in another."""
    with _connected(neighbors="replace") as connection:
        assert {bill.box for bill in connection.explain(_A).prepared.table_charges} == {WHOLE}


def test_links_lead_to_parts_where_the_scan_follows_them() -> None:
    """A scan that knows whose its rows are inherits, but not the owner, of which any row may decide; joined, neither."""
    database = _database()
    database.execute("CREATE TABLE items AS SELECT range % 9 AS visit, range % 10 AS price FROM range(30)")
    _hold(database, _PLACED)
    database.execute("ALTER TABLE visits ADD COLUMN visit BIGINT; UPDATE visits SET visit = rowid")
    counts, charged = [], []
    for parted in (True, False):
        policy, visit = _policy(parted=parted), {"visit": {"type": "integer"}}
        policy["tables"]["visits"]["columns"] = _COLUMNS["visits"] | visit
        policy["tables"]["items"] = {
            "link": {"column": "visit", "references": "visits.visit"},
            "rows_per_unit": 9,
            "columns": visit | {"price": {"type": "integer", "bounds": [0, 9]}},
        }
        with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as connection:
            for sql in (
                "SELECT SUM(price) FROM items WHERE visit IN (SELECT visit FROM visits WHERE region = 'N')",
                "SELECT SUM(price) FROM items i JOIN visits v ON i.visit = v.visit JOIN people p ON p.id = v.id WHERE p.plan = 'A'",
            ):
                prepared = connection.explain(sql).prepared
                charged.append({bill.table for bill in prepared.table_charges if bill.box != WHOLE})
                counts.append(
                    connection.engine.backend.run_statement(prepared.single_release.statement.sql).reveal()
                )
    assert charged == [{"items"}, {"visits", "people"}, set(), set()]
    assert counts[:2] == counts[2:]
