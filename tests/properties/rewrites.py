"""Queries in other words, as data: one pair a line, with the values of `?` after a bar."""

SPELLINGS = """
    SELECT plan, COUNT(*) FROM visits GROUP BY PLAN QUALIFY RANK() OVER (ORDER BY COUNT(*)) IN (SELECT id FROM regions) <=> SELECT plan, COUNT(*) FROM visits GROUP BY plan QUALIFY RANK() OVER (ORDER BY COUNT(*)) IN (SELECT id FROM regions)
    SELECT COUNT(*) AS n FROM visits <=> select Count ( * ) as "n" from VISITS
    SELECT COUNT(*) AS n FROM visits <=> FROM "Visits" SELECT n: COUNT(),;
    SELECT COUNT(*) AS n FROM visits <=> SELECT ALL COUNT(1) n /* rows */ FROM visits -- of visits
    SELECT COUNT(DISTINCT patient_id) AS n FROM visits <=> SELECT COUNT(DISTINCT (("PATIENT_ID"))) AS 'n' FROM visits
    SELECT SUM(age) AS s FROM visits <=> SELECT SUM(ALL visits.AGE) AS s FROM visits
    SELECT AVG(cost) AS m FROM visits WHERE age > 30 <=> SELECT AVG(cost) AS m FROM visits WHERE (((age) > (30)))
    SELECT AVG(cost) AS m FROM visits WHERE age > ? <=> SELECT AVG(cost) AS m FROM visits WHERE age > 30 | [30]
    SELECT COUNT(*) AS n FROM visits WHERE note = ? AND cost < ? <=> SELECT COUNT(*) AS n FROM visits WHERE note = 'it''s' AND cost < 1.5 | ["it's", 1.5]
    SELECT COUNT(*) AS n FROM visits WHERE day > ? LIMIT ? <=> SELECT COUNT(*) AS n FROM visits WHERE day > DATE '2026-02-01' LIMIT 3 | [dt.date(2026, 2, 1), 3]
    SELECT COUNT(*) AS n FROM visits WHERE urgent = ? <=> SELECT COUNT(*) AS n FROM visits WHERE urgent = TRUE | [True]
    SELECT COUNT(*) AS n FROM visits WHERE age BETWEEN 30 AND 39 <=> SELECT COUNT(*) AS n FROM visits WHERE age >= 30 AND age <= 39
    SELECT COUNT(*) AS n FROM visits WHERE age NOT BETWEEN 30 AND 39 <=> SELECT COUNT(*) AS n FROM visits WHERE NOT (age >= 30 AND age <= 39)
    SELECT COUNT(*) AS n FROM visits WHERE age <> 30 <=> SELECT COUNT(*) AS n FROM visits WHERE age != 30
    SELECT COUNT(*) AS n FROM visits WHERE age = 30 <=> SELECT COUNT(*) AS n FROM visits WHERE age == 30
    SELECT COUNT(*) AS n FROM visits WHERE age IS NOT NULL <=> SELECT COUNT(*) AS n FROM visits WHERE age NOTNULL
    SELECT COUNT(*) AS n FROM visits WHERE age IS NULL <=> SELECT COUNT(*) AS n FROM visits WHERE age ISNULL
    SELECT COUNT(*) AS n FROM visits WHERE age NOT IN (30, 31) <=> SELECT COUNT(*) AS n FROM visits WHERE NOT age IN (30, (31),)
    SELECT COUNT(*) AS n FROM visits WHERE note NOT LIKE 'a%' <=> SELECT COUNT(*) AS n FROM visits WHERE NOT note LIKE 'a%'
    SELECT COUNT(*) AS n FROM visits WHERE note LIKE 'a%' <=> SELECT COUNT(*) AS n FROM visits WHERE note ~~ 'a%'
    SELECT SUM(CAST(age AS DOUBLE)) AS s FROM visits <=> SELECT SUM(age::DOUBLE) AS s FROM visits
    SELECT SUM(cost - 1 - 2) AS s FROM visits <=> SELECT SUM((cost - 1) - 2) AS s FROM visits
    SELECT SUM(age + 2 * 3) AS s FROM visits <=> SELECT SUM(age + (2 * 3)) AS s FROM visits
    SELECT SUM(CASE WHEN urgent THEN 1 END) AS s FROM visits <=> SELECT SUM(CASE WHEN urgent THEN 1 ELSE NULL END) AS s FROM visits
    SELECT AVG(YEAR(day)) AS y FROM visits <=> SELECT AVG(EXTRACT(year FROM day)) AS y FROM visits
    SELECT AVG(CEIL(cost)) AS c FROM visits <=> SELECT AVG(CEILING(cost)) AS c FROM visits
    SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan <=> SELECT plan, COUNT(*) AS n FROM visits GROUP BY 1
    SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan <=> SELECT plan, COUNT(*) AS n FROM visits GROUP BY ALL
    SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan <=> SELECT plan AS "plan", COUNT(*) AS n FROM visits GROUP BY (visits."PLAN")
    SELECT age > 40 AS old, COUNT(*) AS n FROM visits GROUP BY age > 40 <=> SELECT age > 40 AS old, COUNT(*) AS n FROM visits GROUP BY old
    SELECT age > 40 AS old, COUNT(*) AS n FROM visits GROUP BY 1 <=> SELECT age > 40 AS old, COUNT(*) AS n FROM visits GROUP BY ("Age" > 40), 1
    SELECT plan, SUM(cost) AS s FROM visits GROUP BY plan HAVING SUM(cost) > 9 ORDER BY 2 DESC <=> SELECT plan, SUM(cost) AS s FROM visits GROUP BY plan HAVING s > 9 ORDER BY s DESC
    SELECT plan, SUM(cost) AS s FROM visits GROUP BY plan ORDER BY plan <=> SELECT plan, SUM(cost) AS s FROM visits GROUP BY plan ORDER BY "Plan" ASC NULLS LAST
    SELECT plan, SUM(cost) AS s FROM visits GROUP BY plan LIMIT 2 OFFSET 1 <=> SELECT plan, SUM(cost) AS s FROM visits GROUP BY plan OFFSET 1 LIMIT (2)
    SELECT SUM(cost) AS s, COUNT(*) AS n, s / n AS m FROM visits <=> SELECT SUM(cost) AS s, COUNT(*) AS n, SUM(cost) / COUNT(*) AS m FROM visits
    SELECT COUNT(*) AS n FROM visits v WHERE v.urgent <=> SELECT COUNT(*) AS n FROM v: visits WHERE urgent
    SELECT COUNT(*) AS n FROM visits JOIN regions ON region = id <=> SELECT COUNT(*) AS n FROM visits INNER JOIN regions ON (regions.ID = visits.region)
    SELECT COUNT(*) AS n FROM visits JOIN regions ON region = id <=> SELECT COUNT(*) AS n FROM regions JOIN visits ON id = region
    SELECT COUNT(*) AS n FROM visits LEFT JOIN regions ON region = id <=> SELECT COUNT(*) AS n FROM visits LEFT OUTER JOIN regions ON id = region
    SELECT COUNT(*) AS n FROM visits JOIN plans USING (plan) <=> SELECT COUNT(*) AS n FROM visits JOIN plans ON visits.plan = plans.plan
    SELECT COUNT(*) AS n FROM visits JOIN regions ON region = id AND age > 30 <=> SELECT COUNT(*) AS n FROM visits JOIN regions ON region = id WHERE age > 30
    WITH v AS (SELECT * FROM visits) SELECT COUNT(*) AS n FROM v <=> with V as materialized (from VISITS) select n: count() from "v"
    WITH v AS (SELECT * FROM visits WHERE urgent) SELECT SUM(cost) AS s FROM v <=> SELECT SUM(cost) AS s FROM (SELECT * FROM visits WHERE urgent) AS v
    SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM plans p WHERE p.plan = v.plan) <=> SELECT COUNT(*) AS n FROM visits V WHERE (EXISTS (SELECT * FROM plans AS p WHERE (P.PLAN = V.plan)))
"""
"""Queries that are one plan."""
REWRITES = """
    SELECT SUM(cost) FROM visits WHERE urgent AND age > 30 AND cost > 9 <=> SELECT SUM(cost) FROM visits WHERE (urgent AND age > 30) AND cost > 9
    SELECT SUM(cost) FROM visits WHERE urgent AND age > 30 AND cost > 9 <=> SELECT SUM(cost) FROM visits WHERE urgent AND (age > 30 AND cost > 9)
    SELECT SUM(cost) FROM visits WHERE urgent OR age > 30 OR cost > 9 <=> SELECT SUM(cost) FROM visits WHERE urgent OR (age > 30 OR cost > 9)
    SELECT SUM(cost) FROM visits WHERE urgent AND age > 30 <=> SELECT SUM(cost) FROM visits WHERE age > 30 AND urgent
    SELECT SUM(cost) FROM visits WHERE urgent OR age > 30 <=> SELECT SUM(cost) FROM visits WHERE age > 30 OR urgent
    SELECT SUM(cost) FROM visits WHERE age > 30 <=> SELECT SUM(cost) FROM visits WHERE 30 < age
    SELECT SUM(cost) FROM visits WHERE cost * 2 > age <=> SELECT SUM(cost) FROM visits WHERE NOT (cost * 2 <= age)
    SELECT SUM(cost) FROM visits WHERE NOT (urgent OR age > 30) <=> SELECT SUM(cost) FROM visits WHERE NOT urgent AND NOT age > 30
    SELECT SUM(cost) FROM visits WHERE NOT (urgent AND age > 30) <=> SELECT SUM(cost) FROM visits WHERE NOT urgent OR age <= 30
    SELECT SUM(cost) FROM visits WHERE urgent AND (age > 30 OR cost > 9) <=> SELECT SUM(cost) FROM visits WHERE (urgent AND age > 30) OR (urgent AND cost > 9)
    SELECT SUM(cost) FROM visits WHERE urgent <=> SELECT SUM(cost) FROM visits WHERE urgent = TRUE AND TRUE OR FALSE
    SELECT SUM(cost) FROM visits WHERE urgent IS NULL <=> SELECT SUM(cost) FROM visits WHERE NOT (urgent IS NOT NULL)
    SELECT SUM(cost) FROM visits WHERE age IN (27, 34, 41) <=> SELECT SUM(cost) FROM visits WHERE age IN (41, 27, 34, 27)
    SELECT SUM(cost) FROM visits WHERE age IN (27, 34) <=> SELECT SUM(cost) FROM visits WHERE age = 34 OR age = 27
    SELECT SUM(cost) FROM visits WHERE age NOT IN (27, 34) <=> SELECT SUM(cost) FROM visits WHERE age <> 27 AND age <> 34
    SELECT SUM(cost) FROM visits WHERE note LIKE 'F%' <=> SELECT SUM(cost) FROM visits WHERE SUBSTRING(note, 1, 1) = 'F'
    SELECT SUM(cost) FROM visits WHERE day >= '2026-02-01' AND day < '2026-03-01' <=> SELECT SUM(cost) FROM visits WHERE MONTH(day) = 2
    SELECT SUM(cost) FROM visits WHERE day = '2026-02-01' <=> SELECT SUM(cost) FROM visits WHERE CAST(day AS TIMESTAMP) = TIMESTAMP '2026-02-01 00:00:00'
    SELECT SUM(COALESCE(cost, 5)) FROM visits <=> SELECT SUM(CASE WHEN cost IS NULL THEN 5 ELSE cost END) FROM visits
    SELECT AVG(NULLIF(age, 30)) FROM visits <=> SELECT AVG(CASE WHEN age = 30 THEN NULL ELSE age END) FROM visits
    SELECT AVG(CASE plan WHEN 'A' THEN cost WHEN 'B' THEN 7 END) FROM visits <=> SELECT AVG(CASE WHEN plan = 'A' THEN cost WHEN plan = 'B' THEN 7 END) FROM visits
    SELECT SUM(CASE WHEN urgent THEN 1 ELSE 0 END) FROM visits <=> SELECT SUM(COALESCE(CAST(urgent AS INTEGER), 0)) FROM visits
    SELECT SUM(LEAST(cost, 500)) FROM visits <=> SELECT SUM(CASE WHEN cost <= 500 THEN cost ELSE 500 END) FROM visits
    SELECT SUM(LEAST(GREATEST(weight, 0), 90)) FROM visits <=> SELECT SUM(LEAST(90, GREATEST(0, weight))) FROM visits
    SELECT SUM(ABS(age - 40)) FROM visits <=> SELECT SUM(GREATEST(age - 40, 40 - age)) FROM visits WHERE TRUE
    SELECT SUM(cost / 4) FROM visits <=> SELECT SUM(cost * 0.25) FROM visits
    SELECT SUM(age * 2) FROM visits <=> SELECT SUM(age + age) FROM visits
    SELECT SUM(cost + 0) FROM visits <=> SELECT SUM(0 + cost) FROM visits
    SELECT SUM(-cost) FROM visits <=> SELECT SUM(0 - cost) FROM visits
    SELECT SUM(cost), AVG(cost), COUNT(cost) FROM visits <=> SELECT AVG(cost), COUNT(cost) + COUNT(cost), SUM(cost) * 2 FROM visits
    SELECT SUM(cost), SUM(age) FROM visits <=> SELECT SUM(v.cost) AS a, SUM(v."AGE") AS b FROM visits AS v
    SELECT plan, SUM(cost) FROM visits GROUP BY plan <=> SELECT SUM(cost) FROM visits AS v GROUP BY v.plan HAVING COUNT(*) > 1 ORDER BY 1
    SELECT plan, SUM(cost) FROM visits WHERE plan IN ('A', 'B', 'C') GROUP BY plan <=> SELECT plan, SUM(cost) FROM visits WHERE plan IS NOT NULL GROUP BY plan
    SELECT COALESCE(note, 'none') AS k, AVG(cost) FROM visits GROUP BY k <=> SELECT CASE WHEN note IS NULL THEN 'none' ELSE note END AS k, AVG(cost) FROM visits GROUP BY k
    SELECT age > 40 AS k, AVG(cost) FROM visits GROUP BY k <=> SELECT NOT age <= 40 AS k, AVG(cost) FROM visits GROUP BY k
    SELECT FLOOR(age / 10) AS k, SUM(cost) FROM visits GROUP BY k <=> SELECT FLOOR(age * 0.1 + 1e-9) AS k, SUM(cost) FROM visits GROUP BY k
    SELECT YEAR(day) AS y, MONTH(day) AS m, SUM(cost) FROM visits GROUP BY y, m <=> SELECT 1, SUM(cost) FROM visits GROUP BY EXTRACT(year FROM day), EXTRACT(month FROM day)
    SELECT SUM(cost) FROM visits JOIN regions ON region = id <=> SELECT SUM(cost) FROM visits AS a JOIN regions AS b ON b.id = a.region
    SELECT SUM(cost) FROM visits JOIN regions ON region = id <=> SELECT SUM(cost) FROM visits LEFT JOIN regions ON region = id WHERE id IS NOT NULL
    SELECT SUM(cost) FROM visits JOIN regions ON region = id AND country = 'X' <=> SELECT SUM(cost) FROM regions r JOIN visits v ON v.region = r.id WHERE 'X' = r.country
    SELECT country, SUM(cost) FROM visits JOIN regions ON region = id JOIN plans USING (plan) GROUP BY country <=> SELECT country, SUM(cost) FROM plans p JOIN visits v ON p.plan = v.plan JOIN regions r ON v.region = r.id GROUP BY 1
    WITH v AS (SELECT * FROM visits) SELECT SUM(cost), SUM(age) FROM v <=> SELECT SUM(cost), SUM(age) FROM visits
    WITH v AS (SELECT patient_id, cost FROM visits WHERE urgent) SELECT SUM(cost), COUNT(DISTINCT patient_id) FROM v <=> SELECT SUM(cost), COUNT(DISTINCT patient_id) FROM visits WHERE urgent
    WITH a AS (SELECT * FROM visits), b AS (SELECT * FROM a WHERE age > 30) SELECT plan, AVG(cost) FROM b GROUP BY plan <=> SELECT plan, AVG(cost) FROM visits WHERE age > 30 GROUP BY plan
    WITH v(who, what) AS (SELECT patient_id, cost FROM visits) SELECT AVG(what) FROM v WHERE what > 3 <=> SELECT AVG(cost) FROM visits WHERE cost > 3
    SELECT note, AVG(x) FROM (SELECT note, cost + age AS x FROM visits) AS v GROUP BY note <=> SELECT note, AVG(cost + age) FROM visits GROUP BY note
    SELECT k, COUNT(*) FROM (SELECT COALESCE(note, 'none') AS k FROM visits) AS v GROUP BY k <=> SELECT COALESCE(note, 'none') AS k, COUNT(*) FROM visits GROUP BY k
    SELECT grade, AVG(salary) FROM (SELECT * FROM staff WHERE salary > 5) AS s GROUP BY grade <=> SELECT grade, AVG(salary) FROM staff WHERE salary > 5 GROUP BY grade
    SELECT SUM(cost) FROM visits WHERE region IN (SELECT id FROM regions WHERE country = 'X') <=> SELECT SUM(cost) FROM visits v WHERE EXISTS (SELECT 1 FROM regions r WHERE country = 'X' AND r.id = v.region)
    SELECT SUM(cost) FROM visits WHERE region IN (SELECT id FROM regions WHERE country = 'X') <=> SELECT SUM(cost) FROM regions r JOIN visits v ON r.id = v.region WHERE r.country = 'X'
    SELECT SUM(cost) FROM visits WHERE region NOT IN (SELECT id FROM regions WHERE country = 'X') <=> SELECT SUM(cost) FROM visits v WHERE region IS NOT NULL AND NOT EXISTS (SELECT 1 FROM regions r WHERE r.id = v.region AND r.country = 'X')
    SELECT SUM(cost) FROM visits LEFT JOIN regions ON region = id <=> SELECT SUM(cost) FROM regions RIGHT JOIN visits ON id = region
    SELECT SUM(x) FROM (SELECT patient_id, cost AS x FROM visits UNION ALL SELECT patient_id, age FROM visits) AS u <=> SELECT SUM(x) FROM (SELECT patient_id, age AS x FROM visits UNION ALL SELECT patient_id, cost FROM visits) AS u
    SELECT SUM(cost) FROM (SELECT patient_id, cost FROM visits WHERE urgent UNION ALL SELECT patient_id, cost FROM visits WHERE NOT urgent OR urgent IS NULL) AS u <=> SELECT SUM(cost) FROM visits
    SELECT SUM(x) FROM (UNPIVOT visits ON age, region INTO NAME k VALUE x) AS u <=> SELECT SUM(x) FROM (SELECT patient_id, age AS x FROM visits WHERE age IS NOT NULL UNION ALL SELECT patient_id, region FROM visits WHERE region IS NOT NULL) AS u
    SELECT k, COUNT(*) FROM (UNPIVOT visits ON age, region INTO NAME k VALUE x) AS u GROUP BY k <=> SELECT k, COUNT(*) FROM (SELECT patient_id, 'age' AS k, age AS x FROM visits WHERE age IS NOT NULL UNION ALL SELECT patient_id, 'region', region FROM visits WHERE region IS NOT NULL) AS u GROUP BY k
    PIVOT visits ON plan IN ('A', 'B') USING SUM(cost) GROUP BY urgent <=> SELECT urgent, SUM(cost) FILTER (plan = 'A') AS "A", SUM(cost) FILTER (plan = 'B') AS "B" FROM visits GROUP BY urgent
    SELECT COUNT(*) FROM (SELECT DISTINCT patient_id, note FROM visits) AS d <=> SELECT COUNT(*) FROM (SELECT patient_id, note FROM visits GROUP BY patient_id, note) AS d
    SELECT note, COUNT(*) FROM (SELECT patient_id, note FROM visits UNION SELECT patient_id, plan FROM visits) AS u GROUP BY note <=> SELECT k, COUNT(*) FROM (SELECT DISTINCT patient_id, k FROM (SELECT patient_id, plan AS k FROM visits UNION ALL SELECT patient_id, note FROM visits) AS a) AS u GROUP BY k
    SELECT COUNT(*) FROM (SELECT patient_id, note FROM visits INTERSECT SELECT patient_id, plan FROM visits) AS u <=> SELECT COUNT(*) FROM (SELECT patient_id, plan FROM visits INTERSECT SELECT patient_id, note FROM visits) AS u
    SELECT AVG(c) FROM (SELECT patient_id, AVG(cost + 0.1) AS c FROM visits GROUP BY patient_id) AS p <=> WITH p AS (SELECT AVG(0.1 + v.cost) AS c FROM visits AS v GROUP BY v.patient_id) SELECT AVG(p.c) FROM p
    SELECT SUM(m) FROM (SELECT patient_id, MAX(cost) AS m FROM visits GROUP BY patient_id) AS p <=> SELECT SUM(m) FROM (SELECT patient_id, -MIN(-cost) AS m FROM visits GROUP BY patient_id) AS p
    SELECT COUNT(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id WHERE a.cost < b.cost <=> SELECT COUNT(*) FROM visits b JOIN visits a ON b.patient_id = a.patient_id AND b.cost < a.cost
"""
"""Queries of other plans whose exact statistics are the same."""
