"""Public keys of which SQL shows those that rows have: presence is measured, absence is refused, and notices say the rest."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine import lookups

_TABLES = """
    CREATE TABLE visits AS
    SELECT i AS pid, [NULL, 'a', 'b', 'c'][1 + i % 4] AS kind, i % 3 AS lvl, i % 50 AS cost FROM range(400) AS t(i);
    CREATE TABLE kinds AS SELECT * FROM (VALUES ('a', 'x'), ('b', 'x'), ('d', 'y')) AS v(kind, class);
"""
_COLUMNS = {
    "kind": {"type": "varchar", "values": ["a", "b", "c", "d", "e"]},
    "lvl": {"type": "integer", "bounds": [0, 5]},
    "cost": {"type": "integer", "bounds": [0, 100]},
}


def _opened(epsilon: float) -> tuple[Connection, duckdb.DuckDBPyConnection]:
    database = duckdb.connect()
    database.execute(_TABLES)
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**30, "delta": 1e-9, "accountant": "basic"},
        "tables": {
            "visits": {"unit": "pid", "rows_per_unit": 1, "columns": _COLUMNS},
            "kinds": {"public": True},
        },
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=epsilon, replay=False), database


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT kind FROM visits WHERE cost > 10",
        "SELECT DISTINCT kind FROM visits WHERE cost > 90",
        "SELECT DISTINCT kind, lvl FROM visits WHERE cost < 25 OR kind = 'e'",
        "SELECT kind FROM visits WHERE cost > 10 GROUP BY kind",
        "SELECT COUNT(*) FROM (SELECT kind FROM visits WHERE cost > 10 GROUP BY kind)",
        "SELECT DISTINCT lvl + 1 AS l FROM visits WHERE cost < 40",
        "SELECT DISTINCT k.class FROM visits v JOIN kinds k ON k.kind = v.kind WHERE cost < 40",
        "SELECT COUNT(*) FROM visits WHERE kind IN (SELECT kind FROM visits WHERE cost > 90 GROUP BY kind)",
        "SELECT DISTINCT kind, lvl FROM visits WHERE lvl + LENGTH(kind) > (SELECT COUNT(*) / 1000 FROM visits)",
    ],
)
def test_query_of_keys_shows_keys_with_rows(sql: str) -> None:
    """A query of keys under a condition shows SQL's groups where there is no noise."""
    connection, database = _opened(10**9)
    assert Counter(connection.query(sql).rows) == Counter(database.execute(sql).fetchall())
    ((loss,),) = [[release.event for release in connection.explain(sql).prepared.releases][:1]]
    assert loss is not None


def test_query_of_keys_under_a_costly_condition_shows_keys_with_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A condition that is not computed of the listed values leaves those that rows have."""
    monkeypatch.setattr(lookups, "MOST_TRIED", 0)
    connection, database = _opened(10**9)
    sql = "SELECT DISTINCT kind FROM visits WHERE UPPER(kind) <> 'A'"
    assert Counter(connection.query(sql).rows) == Counter(database.execute(sql).fetchall())


def test_presence_is_read_off_noisy_counts() -> None:
    """Small groups are shown at random, empty ones seldom, and large ones as good as always."""
    connection, _ = _opened(0.2)
    shown: Counter[str | None] = Counter()
    for _ in range(60):
        shown.update(
            kind for (kind,) in connection.query("SELECT DISTINCT kind FROM visits WHERE cost < 48").rows
        )
    assert min(shown[kind] for kind in ("a", "b", "c")) > 55
    assert shown["d"] + shown["e"] < 40
    few: Counter[str | None] = Counter()
    for _ in range(60):
        few.update(
            kind for (kind,) in connection.query("SELECT DISTINCT kind FROM visits WHERE cost < 4").rows
        )
    assert 0 < few["a"] + few["b"] + few["c"] < 3 * 60


def test_listing_keys_stays_free_and_counts_show_all() -> None:
    """All listed keys of a whole table are shown, also with COUNT(*); a notice says that it is free."""
    connection, _ = _opened(10**9)
    listed = connection.query("SELECT DISTINCT kind FROM visits WHERE kind < 'e'")
    assert {kind for (kind,) in listed.rows} == {"a", "b", "c", "d"}
    assert not any(entry["loss"] for entry in listed.receipt.entries)
    assert any("nothing was measured" in notice for notice in listed.notices)
    counted = connection.query("SELECT kind, COUNT(*) FROM visits WHERE cost > 10 GROUP BY kind")
    assert {row[0] for row in counted.rows} == {"a", "b", "c", "d", "e", None}


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("v.kind IS NULL", "join"),
        ("v.pid IS NULL AND class = 'x'", "join"),
        ("v.kind IS NULL OR v.cost > 3", "join"),
        ("COALESCE(v.cost, 0) < 3", "join"),
        ("class = 'x'", None),
        ("v.cost > 3 AND v.kind = k.kind", None),
    ],
)
@pytest.mark.parametrize("select", ["SELECT DISTINCT k.kind", "SELECT k.kind, COUNT(v.pid)"])
def test_absence_is_refused(select: str, where: str, code: str | None) -> None:
    """Conditions that ask for public rows without private ones are refused: no release has them."""
    connection, _ = _opened(10**9)
    sql = f"{select} FROM kinds k LEFT JOIN visits v ON v.kind = k.kind WHERE {where} GROUP BY k.kind"
    sql = sql.replace(" GROUP BY k.kind", "") if "DISTINCT" in sql else sql
    if code is None:
        assert connection.query(sql).rows
        return
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.explain(sql)
    assert refused.value.code == code
    assert "HAVING COUNT(v.y) < 1" in str(refused.value)


def test_absence_is_counted() -> None:
    """The rewrite in the refusal gives the public rows without private ones."""
    connection, database = _opened(10**9)
    sql = "SELECT k.kind FROM kinds k LEFT JOIN visits v ON v.kind = k.kind GROUP BY k.kind HAVING COUNT(v.cost) < 1"
    assert list(connection.query(sql).rows) == database.execute(sql).fetchall() == [("d",)]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "SELECT kind FROM visits GROUP BY kind ORDER BY COUNT(*) DESC LIMIT 3",
            "groups without rows may be among",
        ),
        ("SELECT kind, COUNT(*) FROM visits GROUP BY kind ORDER BY COUNT(*) LIMIT 2", "2 of the 6 groups"),
        (
            "SELECT kind, COUNT(*) FROM visits GROUP BY kind ORDER BY kind",
            "2 of the 6 groups may have no rows",
        ),
        (
            "SELECT kind FROM (SELECT kind, DENSE_RANK() OVER (ORDER BY COUNT(*)) AS r FROM visits GROUP BY kind) WHERE r < 2",
            "2 of the 6 groups",
        ),
        (
            "SELECT kind, COUNT(*) FROM visits GROUP BY kind QUALIFY RANK() OVER (ORDER BY COUNT(*)) = 1",
            "2 of the 6",
        ),
    ],
)
def test_groups_without_rows_in_an_order_are_mentioned(sql: str, words: str) -> None:
    """A notice mentions possibly empty groups that are shown, ordered or read further."""
    connection, _ = _opened(1000)
    assert any(words in notice for notice in connection.query(sql).notices)


def test_order_of_groups_with_rows_has_no_notice() -> None:
    """No notice is printed where HAVING leaves out empty groups, or where none is left."""
    connection, _ = _opened(1000)
    for sql in (
        "SELECT kind, COUNT(*) FROM visits GROUP BY kind HAVING COUNT(*) > 0 ORDER BY 2 LIMIT 2",
        "SELECT kind, COUNT(*) FROM visits WHERE kind < 'd' GROUP BY kind ORDER BY 2 LIMIT 2",
    ):
        assert not any("may have no rows" in notice for notice in connection.query(sql).notices)
