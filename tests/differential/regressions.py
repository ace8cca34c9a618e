"""What the search has found, made small: each is a statement that plain DuckDB answers, or that the engine once failed at."""

from __future__ import annotations

from collections.abc import Mapping

MISMATCHES: Mapping[str, str] = {
    "a day at a moment after midnight": "SELECT COUNT(*) AS n0 FROM visits WHERE day = TIMESTAMP '2024-01-05 12:00:00'",
    "the one group of a constant, of no rows": "SELECT COUNT(*) AS n0, 0.25 AS q1 FROM people WHERE ward < 0 GROUP BY '2024-02-29'",
    "the text of a whole number that was computed without bounds": (
        "SELECT SUM(LEAST(LENGTH(CAST(c3 AS VARCHAR)), 8)) AS s "
        "FROM (SELECT pid, UNNEST([1, 1, NULL]) * 2 AS c3 FROM visits) t1"
    ),
    "the text of such a number out of a union": (
        "SELECT CAST(c AS VARCHAR) AS k0, COUNT(*) AS n0 FROM (SELECT pid, weight + weight AS c FROM tags "
        "UNION ALL SELECT pid, ward - 1 AS c FROM people) t GROUP BY CAST(c AS VARCHAR)"
    ),
    "the text of the greatest such number of a unit": (
        "SELECT CAST(c AS VARCHAR) AS k0, COUNT(*) AS n0 FROM (SELECT pid, MAX(ward - 1) AS c FROM people GROUP BY pid) t "
        "GROUP BY CAST(c AS VARCHAR)"
    ),
    "the quotient of such numbers that CASE chooses": (
        "SELECT CASE WHEN member THEN ward - 1 ELSE COALESCE(ward - 4, 3) END // 2 AS k0, COUNT(*) AS n0 FROM people "
        "GROUP BY CASE WHEN member THEN ward - 1 ELSE COALESCE(ward - 4, 3) END // 2"
    ),
    "the text of such a number of the row before": (
        "SELECT CAST(c AS VARCHAR) AS k0, COUNT(*) AS n0 FROM "
        "(SELECT pid, MAX(vid - 1) OVER (PARTITION BY pid) AS c FROM visits) t GROUP BY CAST(c AS VARCHAR)"
    ),
    "extremes of a key of nobody": (
        "SELECT lvl AS k0, COUNT(*) AS n0, MIN(lvl) AS v1, MAX(lvl + 1) AS v2, ANY_VALUE(lvl) AS v3 FROM visits "
        "WHERE cost > 1000 GROUP BY lvl"
    ),
    "extremes of a key under a condition on it": (
        "SELECT lvl AS k0, COUNT(*) AS n0, MIN(lvl // 2) FILTER (WHERE lvl = 0) AS v1 FROM visits WHERE cost > 1000 GROUP BY lvl"
    ),
    "keys alone under a condition that is not computed": (
        "SELECT DISTINCT lvl AS x FROM visits WHERE CAST(lvl AS VARCHAR) LIKE '1%'"
    ),
    "keys alone under a condition that is computed in part": (
        "SELECT DISTINCT status AS x FROM orders WHERE UPPER(status) <> 'NEW' OR status IS NOT NULL"
    ),
    "join behind an outer join": (
        "SELECT COUNT(*) AS a FROM orders t1 LEFT JOIN regions t2 ON t1.qty = t2.pop JOIN steps t3 ON t1.qty = t3.lvl"
    ),
    "join behind a RIGHT JOIN": (
        "SELECT COUNT(*) AS a FROM tags t1 RIGHT JOIN people t2 ON t1.pid = t2.pid JOIN regions t3 ON t2.city = t3.city"
    ),
    "filter in ON behind an outer join": (
        "SELECT COUNT(*) AS a FROM visits t1 LEFT JOIN orders t2 ON t1.pid = t2.pid "
        "JOIN regions t3 ON t1.lvl = t3.pop AND t3.city LIKE 'B%'"
    ),
    "star of two tables": (
        "SELECT COUNT(*) AS a FROM people p LEFT JOIN orders o ON o.pid = p.pid LEFT JOIN tags t ON t.pid = p.pid"
    ),
    "link join behind a join": (
        "SELECT COUNT(*) AS a FROM visits t1 JOIN visits t2 ON t1.pid = t2.pid LEFT JOIN items t3 ON t2.vid = t3.vid"
    ),
    "NULL NOT IN": (
        "SELECT AVG(t1.lvl) AS a FROM visits t1 LEFT JOIN people t2 ON t1.pid = t2.pid "
        "WHERE NOT t2.pid IN (SELECT t3.pid FROM tags t3)"
    ),
    "NOT IN where a value is NULL": (
        "SELECT COUNT(*) AS a FROM visits v WHERE v.lvl NOT IN (SELECT t.weight FROM tags t WHERE t.pid = v.pid)"
    ),
    "COALESCE over an aggregate of no rows": (
        "SELECT COUNT(*) AS a FROM tags t1 WHERE "
        "(SELECT COALESCE(SUM(t2.lvl), 0) FROM visits t2 WHERE t2.pid = t1.pid) IS NULL"
    ),
    "CASE over an aggregate of no rows": (
        "SELECT COUNT(*) AS a FROM people t1 WHERE "
        "(SELECT CASE WHEN MAX(t2.weight) IS NULL THEN 2 ELSE 0 END FROM tags t2 WHERE t2.pid = t1.pid) IS NULL"
    ),
    "an aggregate of no rows is NULL": (
        "SELECT COUNT(*) AS a FROM tags t1 WHERE "
        "(SELECT SUM(t2.lvl) IS NULL FROM visits t2 WHERE t2.pid = t1.pid AND t2.lvl > 2)"
    ),
    "COUNT_IF of no rows": (
        "SELECT COUNT(*) AS a FROM tags t1 WHERE "
        "(SELECT COUNT_IF(t2.weight < 2) FROM tags t2 WHERE t2.pid = t1.pid AND t2.weight > 3) IS NULL"
    ),
    "GROUP BY of the unit over a FULL JOIN": (
        "SELECT COUNT(*) AS a, AVG(n) AS b FROM (SELECT COALESCE(t1.pid, t2.pid) AS pid, COUNT(*) AS n "
        "FROM people t1 FULL JOIN tags t2 ON t1.pid = t2.pid GROUP BY COALESCE(t1.pid, t2.pid)) q"
    ),
    "rows without a partner, joined on": (
        "WITH c AS (SELECT v.pid FROM visits v LEFT JOIN items i ON v.vid = i.vid) "
        "SELECT COUNT(*) AS n FROM c JOIN visits w ON c.pid = w.pid"
    ),
}
"""Statements whose answers were not DuckDB's, and others of their kind."""

FAILURES: Mapping[str, str] = {
    "median of both ends": (
        "SELECT MEDIAN(CASE WHEN pid = 17 THEN 9223372036854775807 ELSE -9223372036854775807 END) AS r FROM visits"
    ),
    "product above a join of people": (
        "SELECT COUNT(*) AS n FROM (SELECT v.e FROM (SELECT pid, CASE WHEN pid = 17 THEN 4000000000000000000 ELSE 0 END AS e "
        "FROM visits) v JOIN visits c ON v.pid = c.pid WHERE v.e < MONTH(c.day)) s WHERE s.e * s.e < 100"
    ),
    "product above a join to a public table": (
        "SELECT COUNT(*) AS n FROM (SELECT v.e FROM (SELECT pid, lvl, CASE WHEN pid = 17 THEN 4000000000000000000 ELSE 0 END AS e "
        "FROM visits) v JOIN steps c ON v.lvl = c.lvl WHERE v.e < c.floor + 20) s WHERE s.e * s.e < 100"
    ),
    "least of both ends by group": (
        "SELECT kind AS k, MIN(CASE WHEN pid = 17 THEN 9223372036854775807 ELSE -9223372036854775807 END) AS r FROM visits GROUP BY kind"
    ),
    "keys past the calendar": (
        "SELECT COUNT(*) AS n FROM (SELECT s.e0 FROM (SELECT pid, CASE WHEN pid = 17 THEN NULL "
        "WHEN pid = 17 THEN '9999-12-31 23:59:59.999999' ELSE CAST('0001-01-01 00:00:00' AS TIMESTAMP) END AS e0 FROM visits) AS s "
        "JOIN visits AS c ON c.pid = s.pid WHERE s.e0 < CAST(c.day AS TIMESTAMP)) AS s GROUP BY s.e0 + INTERVAL '1' DAY"
    ),
    "released count as a factor": (
        "SELECT COUNT(*) AS n FROM (SELECT pid, CASE WHEN pid = 17 THEN 4000000000000000000 ELSE 0 END AS e FROM visits) v, "
        "(SELECT COUNT(*) // 1000 AS m FROM orders) r WHERE v.e * r.m < 100"
    ),
}
"""Statements that the engine failed at where unit 17 is there, and others of their kind."""
