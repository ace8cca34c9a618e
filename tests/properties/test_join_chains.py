"""Chains of joins mean what they mean in DuckDB: no condition is dropped, and no unit loses rows.

A condition of FROM that is left out, a join that counts too few rows of a unit, a NULL that is compared with
one unit's rows alone, a group of no rows: each is another answer than DuckDB's, or a refusal.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from properties.chains import Statements, answered, in_order, opened, prepared_exactly
from worlds import engine_of

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.nodes import JoinKind
from dpsql.sql.lower import joins

_TEXTS = "(SELECT cid, s, COUNT(*) AS n FROM o GROUP BY cid, s)"
MEANT = (
    # conditions behind an outer join
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid JOIN pub ON pub.s = c.s",
    "SELECT COUNT(*) FROM c LEFT JOIN f ON c.id = f.cid JOIN pub USING (s)",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid JOIN pub ON pub.s = c.s AND pub.k > 1 AND o.n IS NULL",
    "SELECT COUNT(*) FROM o RIGHT JOIN c ON c.id = o.cid JOIN pub ON pub.s = c.s",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid JOIN r ON r.rid = c.id AND r.k < 2",
    "SELECT COUNT(*), COUNT(pub.w) FROM pub FULL JOIN tag ON pub.s = tag.s RIGHT JOIN c ON c.s = pub.s WHERE tag.n IS NULL",
    "SELECT COUNT(*) FROM c LEFT JOIN pub ON pub.s = c.s JOIN tag ON tag.s = pub.s LEFT JOIN o ON o.cid = c.id AND o.n = tag.n",
    # rows of star joins
    "SELECT COUNT(*), SUM(o.n) FROM c JOIN o ON c.id = o.cid JOIN r ON c.id = r.rid",
    "SELECT COUNT(*), SUM(o.n) FROM o JOIN c ON c.id = o.cid LEFT JOIN r ON c.id = r.rid JOIN f ON f.cid = c.id",
    "SELECT SUM(t) FROM (SELECT c.id, SUM(o.n) AS t FROM c JOIN o ON c.id = o.cid JOIN r ON c.id = r.rid GROUP BY c.id)",
    # values of no rows
    "SELECT COUNT(*) FROM c p WHERE (SELECT COALESCE(SUM(n), 0) FROM o t WHERE t.cid = p.id) < 1",
    "SELECT COUNT(*) FROM c p WHERE (SELECT SUM(n) IS NULL FROM o t WHERE t.cid = p.id)",
    "SELECT COUNT(*) FROM c p WHERE (SELECT COUNT(*) + 1 FROM o t WHERE t.cid = p.id) < 2",
    "SELECT COUNT(*) FROM c p WHERE (SELECT CONCAT('a', MIN(s)) FROM o t WHERE t.cid = p.id) = 'a'",
    "SELECT SUM((SELECT CASE WHEN MAX(n) > 1 THEN 2 ELSE 7 END FROM o t WHERE t.cid = p.id)) FROM c p",
    "SELECT COUNT(*) FROM c p WHERE (SELECT COALESCE(MAX(w), 1) FROM pub WHERE pub.s = p.s) = 1",
    "SELECT COUNT(*) FROM c p WHERE (SELECT COALESCE(SUM(n), 0) FROM o t WHERE t.s = p.s) < 2",
    "SELECT COUNT(*) FROM c p WHERE (SELECT COALESCE(AVG(n), (SELECT COUNT(*) FROM r)) FROM o t WHERE t.cid = p.id) = 7",
    # NULL and NOT IN
    "SELECT COUNT(*) FROM f WHERE fid IS NOT NULL AND fid NOT IN (SELECT fid FROM g)",
    "SELECT COUNT(*) FROM g WHERE fid NOT IN (SELECT fid FROM f WHERE fid IS NOT NULL)",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid WHERE o.cid NOT IN (SELECT rid FROM r WHERE r.rid = c.id)",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid WHERE o.n NOT IN (SELECT n FROM o z WHERE z.cid = c.id AND z.s = 'a')",
    "SELECT COUNT(*) FROM c WHERE id NOT IN (SELECT cid FROM o UNION SELECT rid FROM r)",
    "SELECT COUNT(*) FROM c WHERE n NOT IN (SELECT n FROM tag WHERE tag.s = c.s)",
    "SELECT COUNT(*) FROM c WHERE s NOT IN (SELECT s FROM pub WHERE k > 0)",
    "SELECT COUNT(*) FROM g WHERE fid IN (SELECT fid FROM f)",
    "SELECT COUNT(*) FROM g JOIN (SELECT fid FROM f) d ON d.fid = g.fid",
    # marks
    "SELECT COUNT(*) FROM c WHERE n > 1 OR EXISTS (SELECT 1 FROM o WHERE o.cid = c.id AND o.s = c.s)",
    "SELECT COUNT(*) FROM c WHERE NOT (n > 1 OR EXISTS (SELECT 1 FROM r WHERE r.rid = c.id AND r.k > 0))",
    "SELECT COUNT(*) FROM c WHERE n > 1 OR n IN (SELECT k FROM pub WHERE pub.s = c.s)",
    "SELECT COUNT(*) FROM c WHERE m > 1 OR n NOT IN (SELECT o.n FROM o WHERE o.cid = c.id)",
    "SELECT COUNT(*) FROM c WHERE m > 1 OR n NOT IN (SELECT w FROM pub)",
    "SELECT COUNT(*) FROM c WHERE (n NOT IN (SELECT n FROM tag)) IS NULL",
    "SELECT COUNT(*) FROM c WHERE (n IN (SELECT n FROM tag WHERE s = 'nowhere')) IS FALSE",
    "SELECT COUNT(*) FROM c WHERE id NOT IN (SELECT rid FROM r) OR id IN (SELECT cid FROM o WHERE n IS NULL)",
    "SELECT SUM(CASE WHEN id IN (SELECT cid FROM o WHERE s = 'a') THEN 1 WHEN s IN (SELECT s FROM pub) THEN 2 ELSE 4 END) FROM c",
    "SELECT SUM(CASE s IN (SELECT s FROM pub) WHEN TRUE THEN 1 WHEN FALSE THEN 2 ELSE 4 END) FROM c",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid WHERE c.n = 1 OR o.s IN (SELECT s FROM tag UNION SELECT NULL)",
    "SELECT COUNT(*) FROM o WHERE (cid, s) IN (SELECT rid, s FROM r) OR n = 0",
    "SELECT COUNT(*) FROM o WHERE (cid, s) NOT IN (SELECT rid, s FROM r)",
    "SELECT COUNT(*) FROM o WHERE (s, n) NOT IN (SELECT s, k FROM pub)",
    "SELECT COUNT(*) FROM o WHERE (s, n) IN (('a', 1), ('b', NULL), (NULL, 3))",
    "SELECT COUNT(*) FROM o WHERE (s, n) NOT IN (('a', 1), ('b', NULL), (NULL, 3))",
    "SELECT COUNT(*) FROM o WHERE n IN (cid, 0, NULL) OR cid NOT IN (n, 2)",
    # SEMI, ANTI and NATURAL joins, and parentheses
    "SELECT COUNT(*) FROM c SEMI JOIN o ON c.id = o.cid AND o.n > 0",
    "SELECT COUNT(*) FROM c ANTI JOIN o ON c.id = o.cid AND c.s = o.s",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid ANTI JOIN tag ON tag.s = o.s",
    "SELECT COUNT(*), COUNT(k) FROM c ANTI JOIN tag USING (s) LEFT JOIN pub USING (s)",
    "SELECT COUNT(*), SUM(k) FROM c SEMI JOIN tag ON tag.n = c.n JOIN (pub JOIN tag AS u ON pub.s = u.s) ON pub.s = c.s",
    "SELECT COUNT(*), SUM(n) FROM c NATURAL JOIN (SELECT s, w FROM pub) AS p",
    "SELECT COUNT(*), SUM(w) FROM c NATURAL LEFT JOIN (SELECT s, w FROM pub) AS p",
    # values looked up
    "SELECT COUNT(*) FROM c WHERE n = (SELECT n FROM tag WHERE s = 'a') OR n = (SELECT k FROM pub WHERE s IS NULL)",
    "SELECT COUNT(*) FROM c JOIN range(3) AS i ON i = n JOIN UNNEST([1, 1, NULL]) AS t(j) ON j = i",
    # groups of a unit over outer joins
    "SELECT COUNT(*) FROM (SELECT DISTINCT fid FROM f WHERE fid IS NOT NULL)",
    "SELECT COUNT(*) FROM (SELECT fid FROM f WHERE fid > 10 UNION SELECT fid FROM g)",
    "SELECT AVG(n), COUNT(*) FROM (SELECT fid AS x, COUNT(*) AS n FROM f WHERE fid IS NOT NULL GROUP BY fid)",
    "SELECT AVG(n), COUNT(*) FROM (SELECT COALESCE(o.cid, r.rid) AS x, COUNT(*) AS n FROM r FULL JOIN o ON r.rid = o.cid GROUP BY 1)",
    "SELECT AVG(n), COUNT(*) FROM (SELECT o.cid AS x, COUNT(*) AS n FROM r FULL JOIN o ON r.rid = o.cid WHERE o.cid IS NOT NULL GROUP BY 1)",
    "SELECT AVG(n), COUNT(*) FROM (SELECT COALESCE(o.cid, r.rid) AS x, COUNT(*) AS n FROM r LEFT JOIN o ON r.rid = o.cid GROUP BY 1)",
    "SELECT COUNT(DISTINCT COALESCE(o.cid, r.rid)) FROM r FULL JOIN o ON r.rid = o.cid",
    "SELECT COUNT(*) FROM (SELECT DISTINCT cid, s, n FROM o) d JOIN r ON r.rid = d.cid WHERE d.s IN ('a', 'b')",
    f"SELECT COUNT(*) FROM (SELECT s AS t, cid, n FROM {_TEXTS} WHERE s <> 'x') d JOIN r ON r.rid = d.cid WHERE t <> 'b'",
    # rows without a partner are joined on
    "SELECT COUNT(*) FROM (SELECT f.cid FROM f LEFT JOIN g ON f.fid = g.fid AND g.n = 7) d JOIN o ON o.cid = d.cid",
    # conditions on one of two columns of a name
    f"SELECT COUNT(*) FROM {_TEXTS} d JOIN r ON r.rid = d.cid WHERE r.s = 'a'",
)
REFUSED = {
    "SELECT COUNT(*) FROM c WHERE n = 1 OR EXISTS (SELECT 1 FROM o WHERE o.s = c.s)": "private_join",
    "SELECT COUNT(*) FROM c WHERE n = 1 OR EXISTS (SELECT 1 FROM o)": "private_join",
    "SELECT COUNT(*) FROM c WHERE n = 1 OR n IN (SELECT n FROM o)": "private_join",
    "SELECT COUNT(*) FROM c WHERE n = 1 OR n NOT IN (SELECT rid FROM r)": "private_join",
    "SELECT COUNT(*) FROM f WHERE cid = 1 OR fid NOT IN (SELECT fid FROM g)": "private_join",
    "SELECT COUNT(*) FROM o WHERE (s, n) IN (SELECT s, k FROM r)": "private_join",
    "SELECT COUNT(*) FROM f WHERE (fid, cid) NOT IN (SELECT fid, n FROM g)": "private_join",
    "SELECT COUNT(*) FROM c SEMI JOIN o ON c.s = o.s": "private_join",
    "SELECT COUNT(*) FROM pub SEMI JOIN o ON pub.s = o.s": "private_join",
    "SELECT COUNT(*) FROM c WHERE n = (SELECT k FROM pub)": "subquery",
    "SELECT COUNT(*) FROM f WHERE fid NOT IN (SELECT fid FROM g)": "private_join",
    "SELECT COUNT(*) FROM g WHERE fid NOT IN (SELECT fid FROM f)": "private_join",
    "SELECT COUNT(*) FROM c LEFT JOIN o ON c.id = o.cid WHERE o.cid NOT IN (SELECT rid FROM r)": "private_join",
    **dict.fromkeys(
        (
            f"SELECT AVG(n), COUNT(*) FROM (SELECT {key} AS x, COUNT(*) AS n FROM {joined} GROUP BY {key})"
            for key, joined in (
                ("c.id", "c FULL JOIN o ON c.id = o.cid"),
                ("o.cid", "c FULL JOIN o ON c.id = o.cid"),
                ("o.cid", "c LEFT JOIN o ON c.id = o.cid"),
                ("cid + 0", "o"),
                ("-cid", "o"),
                ("CAST(cid AS VARCHAR)", "o"),
                ("COALESCE(c.id, o.cid) + 0", "c FULL JOIN o ON c.id = o.cid"),
                ("f.fid", "c LEFT JOIN f ON c.id = f.cid"),
            )
        ),
        "group_by_unit",
    ),
    "SELECT SUM(fid) FROM (SELECT DISTINCT fid FROM f)": "distinct",
    "SELECT AVG(fid) FROM (SELECT fid FROM f UNION SELECT fid FROM g)": "distinct",
    "SELECT COALESCE(o.cid, r.rid), COUNT(*) FROM r FULL JOIN o ON r.rid = o.cid GROUP BY 1": "group_by_unit",
    "SELECT cid + 0, COUNT(*) FROM o GROUP BY 1": "group_by_unit",
    "SELECT COUNT(*) FROM c p WHERE (SELECT t.cid + COUNT(*) FROM o t WHERE t.cid = p.id) > 1": "group_by",
}
_NUMBERED = "(SELECT cid, s, ROW_NUMBER() OVER (PARTITION BY cid ORDER BY n, s) AS rn FROM o)"
FULL = (
    "c JOIN o ON c.id = o.cid JOIN r ON c.id = r.rid",
    "c JOIN o ON c.id = o.cid JOIN r ON o.cid = r.rid",
    "c LEFT JOIN o ON c.id = o.cid LEFT JOIN r ON c.id = r.rid",
    "o JOIN r ON o.cid = r.rid JOIN c ON c.id = o.cid JOIN f ON f.cid = c.id",
    "c JOIN f ON c.id = f.cid JOIN g ON g.fid = f.fid",
    "c JOIN f ON c.id = f.cid JOIN g ON g.fid = f.fid JOIN o ON o.cid = c.id",
    "f a JOIN f b ON a.fid = b.fid",
    "f a JOIN f b ON a.cid = b.cid",
    "c LEFT JOIN (SELECT cid, COUNT(*) AS n FROM o GROUP BY cid) d ON d.cid = c.id JOIN r ON r.rid = d.cid",
    "c JOIN (SELECT cid, s, COUNT(*) AS n FROM o GROUP BY cid, s) d ON d.cid = c.id AND d.s = c.s",
    "o JOIN (SELECT DISTINCT rid FROM r) d ON d.rid = o.cid",
    "(SELECT c.id, r.k FROM c JOIN r ON c.id = r.rid) d JOIN o ON o.cid = d.id",
    f"{_NUMBERED} d JOIN r ON r.rid = d.cid WHERE rn = 1",
    f"r JOIN {_NUMBERED} d ON r.rid = d.cid WHERE k >= 0 AND rn <= 2",
    f"c LEFT JOIN {_NUMBERED} d ON c.id = d.cid WHERE rn = 1",
    f"{_NUMBERED} d JOIN {_NUMBERED} e ON e.cid = d.cid WHERE d.rn < 3 AND e.rn = 3",
    f"(SELECT d.rn, r.k FROM {_NUMBERED} d JOIN r ON r.rid = d.cid) e WHERE rn <= 3",
    f"{_NUMBERED} d JOIN tag ON tag.s <> 'q' WHERE rn = 1",
    f"c LEFT JOIN {_NUMBERED} d ON c.id = d.cid AND rn <= 2",
    f"r LEFT JOIN {_NUMBERED} d ON r.rid = d.cid AND rn = 9",
    f"(SELECT * FROM {_NUMBERED} WHERE rn <= 4 AND cid IS NOT NULL) d JOIN r ON r.rid = d.cid",
    f"{_TEXTS} d JOIN r ON r.rid = d.cid WHERE d.s = 'a'",
    f"{_TEXTS} d JOIN r ON r.rid = d.cid WHERE d.s IS NOT NULL",
    f"r LEFT JOIN {_TEXTS} d ON r.rid = d.cid AND d.s IN ('a', 'x')",
    f"{_TEXTS} d JOIN {_TEXTS} e ON d.cid = e.cid WHERE d.s = 'a' AND e.s IN ('b', 'x') AND d.n > 0",
)
"""Joins of which unit 1 has as many rows as anybody may have."""
DRAWN = 60
"""Statements that are drawn of each seed."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    """The tables, and next to no noise."""
    with opened() as found:
        yield found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sql", MEANT)
def test_answer_matches_duckdb(connection: Connection, sql: str) -> None:
    """An accepted query counts what DuckDB counts."""
    assert answered(connection, sql) == in_order(engine_of(connection).execute(sql).fetchall())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("joined", FULL)
def test_chain_counts_match_duckdb(connection: Connection, joined: str) -> None:
    """Joins of full tables, and of their first rows, lose none of a unit's rows."""
    sql = f"SELECT COUNT(*) FROM {joined}"
    assert answered(connection, sql) == in_order(engine_of(connection).execute(sql).fetchall())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("joined", FULL)
def test_rows_are_bounded_by_full_tables(connection: Connection, joined: str) -> None:
    """The bound is the number of rows of a unit whose tables are full: less would cut rows, more is noise."""
    ((most,),) = engine_of(connection).execute(_of_unit_1(joined)).fetchall()
    (release,) = prepared_exactly(connection, f"SELECT COUNT(*) FROM {joined}").releases
    assert release.plan.analysis.bound.rows == most


def _of_unit_1(joined: str) -> str:
    """The rows of the joined tables in a database in which there is nobody else."""
    tables = {"c": "id = 1", "o": "cid = 1", "r": "rid = 1", "f": "cid = 1", "g": "fid IN (10, 11)"}
    alone = ", ".join(f"{name} AS (FROM main.{name} WHERE {where})" for name, where in tables.items())
    return f"WITH {alone} SELECT COUNT(*) FROM {joined}"


@pytest.mark.parametrize("sql", [*MEANT[:5], MEANT[6]])
def test_ignored_condition_is_refused(
    connection: Connection, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled relation is compared with the conditions of FROM."""
    join = joins._JoinBuilder.join_source

    def forgetful(assembly: joins._JoinBuilder, item: joins.FromItem) -> None:
        join(assembly, replace(item, conditions=item.conditions[:1] if item.kind is JoinKind.LEFT else ()))

    monkeypatch.setattr(joins._JoinBuilder, "join_source", forgetful)
    with pytest.raises(dpsql.QueryRejected, match=r"cannot be applied|privacy unit"):
        prepared_exactly(connection, sql)


@pytest.mark.parametrize(
    "joined",
    ["f LEFT JOIN tag ON f.fid = tag.n", "tag FULL JOIN tag z USING (s) RIGHT JOIN f ON f.fid = tag.n"],
)
def test_columns_of_the_optional_side_are_nullable(connection: Connection, joined: str) -> None:
    """Rows without a partner are in the group NULL, of whichever table of that side the key is."""
    sql = f"SELECT s, COUNT(*) FROM {joined} GROUP BY s"
    found = engine_of(connection).execute(sql).fetchall()
    answer = answered(connection, sql)
    assert answer is not None
    assert {row for row in answer if row[1]} == set(in_order(found))


@pytest.mark.parametrize("sql", REFUSED)
def test_ambiguous_joins_are_refused(connection: Connection, sql: str) -> None:
    """Other units would decide on a row, or the groups would be hidden ones; the refusal says what to write."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared_exactly(connection, sql)
    assert caught.value.code == REFUSED[sql]
    assert caught.value.hint


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(3, 40))]
)
def test_random_statements_match_duckdb(connection: Connection, seed: int) -> None:
    """Accepted random chains have DuckDB's answer, and half of all are accepted."""
    statements, database = Statements(random.Random(seed)), engine_of(connection)
    accepted = 0
    for index in range(DRAWN):
        sql = statements.grouped() if index % 6 == 0 else statements.chain()
        try:
            expected = database.execute(sql).fetchall()
        except duckdb.BinderException:
            continue  # USING of a column that two tables have
        found = answered(connection, sql)
        if found is not None:
            accepted += 1
            assert _of_nothing(found) == _of_nothing(in_order(expected)), sql
    assert accepted >= DRAWN / 3


def _of_nothing(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Rows in which a sum of nothing is 0: whether there is anything to add up is not told."""
    return [tuple(0 if value is None else value for value in row) for row in rows]
