-- source: OHDSI Query Library: clinical questions on the OMOP common data model
-- address: https://github.com/OHDSI/QueryLibrary
-- seen: read in part
-- in: tsql

-- persons by a concept
SELECT {tier} AS concept_name, COUNT(*) AS num_persons FROM {people} GROUP BY {tier} ORDER BY num_persons DESC

-- persons by two columns of birth
SELECT MONTH({joined}) AS month_of_birth, DAY({joined}) AS day_of_birth, COUNT(*) AS num_persons FROM {people} GROUP BY MONTH({joined}), DAY({joined}) ORDER BY month_of_birth, day_of_birth
-- means
SELECT month({joined}) AS m, day({joined}) AS d, COUNT(*) AS num_persons FROM {people} GROUP BY 1, 2

-- persons with an event
SELECT COUNT(DISTINCT p.{id}) AS num_persons FROM {people} p INNER JOIN {facts} f ON p.{id} = f.{id} WHERE f.{kind} = {k1}

-- persons by year of an event
SELECT YEAR(f.{day}) AS yr, COUNT(DISTINCT f.{id}) AS persons FROM {facts} f GROUP BY YEAR(f.{day}) ORDER BY YEAR(f.{day})
-- means
SELECT year(f.{day}) AS yr, COUNT(DISTINCT f.{id}) AS persons FROM {facts} f GROUP BY 1

-- season of an event
SELECT season, COUNT(*) AS cases FROM (SELECT CASE WHEN MONTH({day}) IN (12, 1, 2) THEN 'Winter' WHEN MONTH({day}) IN (3, 4, 5) THEN 'Spring' WHEN MONTH({day}) IN (6, 7, 8) THEN 'Summer' WHEN MONTH({day}) IN (9, 10, 11) THEN 'Fall' END AS season FROM {facts} WHERE {kind} = {k1}) TMP GROUP BY season

-- distribution by row numbers
WITH w AS (SELECT {qty} AS len FROM {facts})
SELECT MIN(len) AS min_len, MAX(len) AS max_len, ROUND(AVG(CAST(len AS FLOAT)), 2) AS avg_len, MIN(CASE WHEN order_nr < .25 * population_size THEN 9999 ELSE len END) AS percentile_25, MIN(CASE WHEN order_nr < .50 * population_size THEN 9999 ELSE len END) AS median, MIN(CASE WHEN order_nr < .75 * population_size THEN 9999 ELSE len END) AS percentile_75
FROM (SELECT len, ROW_NUMBER() OVER (ORDER BY len) AS order_nr, (SELECT COUNT(*) FROM w) AS population_size FROM w) ordered_data
-- means
WITH w AS (SELECT {qty} AS len FROM {facts}) SELECT MIN(len), MAX(len), ROUND(AVG(len), 2), QUANTILE_DISC(len, 0.25), QUANTILE_DISC(len, 0.5), QUANTILE_DISC(len, 0.75) FROM w

-- distribution by row numbers and a window count
SELECT MIN(len) AS mn, MAX(len) AS mx, AVG(CAST(len AS FLOAT)) AS mean, STDEV(len) AS sd, MIN(CASE WHEN order_nr < .50 * n THEN 9999 ELSE len END) AS median
FROM (SELECT {amount} AS len, ROW_NUMBER() OVER (ORDER BY {amount}) AS order_nr, COUNT(*) OVER () AS n FROM {facts} WHERE {amount} IS NOT NULL) t
-- means
SELECT MIN({amount}), MAX({amount}), AVG({amount}), STDDEV({amount}), QUANTILE_DISC({amount}, 0.5) FROM {facts}

-- distribution by group and row numbers
SELECT kind, MIN(len) AS mn, MAX(len) AS mx, MIN(CASE WHEN order_nr < .50 * n THEN 9999 ELSE len END) AS median
FROM (SELECT {kind} AS kind, {qty} AS len, ROW_NUMBER() OVER (PARTITION BY {kind} ORDER BY {qty}) AS order_nr, COUNT(*) OVER (PARTITION BY {kind}) AS n FROM {facts}) t GROUP BY kind
-- means
SELECT {kind}, MIN({qty}), MAX({qty}), QUANTILE_DISC({qty}, 0.5) FROM {facts} GROUP BY 1

-- length of spans in days
SELECT AVG(CAST(DATEDIFF(day, p.{joined}, f.{day}) AS FLOAT)) AS avg_days, STDEV(DATEDIFF(day, p.{joined}, f.{day})) AS sd, MIN(DATEDIFF(d, p.{joined}, f.{day})) AS mn, MAX(DATEDIFF(d, p.{joined}, f.{day})) AS mx FROM {people} p JOIN {facts} f ON f.{id} = p.{id}
-- means
SELECT AVG(date_diff('day', p.{joined}, f.{day})), STDDEV(date_diff('day', p.{joined}, f.{day})), MIN(date_diff('day', p.{joined}, f.{day})), MAX(date_diff('day', p.{joined}, f.{day})) FROM {people} p JOIN {facts} f ON f.{id} = p.{id}

-- cost of an era, with EXISTS and commas
SELECT SUM(ISNULL(f.{amount}, 0)) AS total_cost FROM {facts} f, {people} p WHERE f.{id} = p.{id} AND EXISTS (SELECT 1 FROM {logs} l WHERE l.{id} = f.{id} AND l.{channel} = {c1} AND f.{at} >= l.{lat})
-- means
SELECT SUM(COALESCE(f.{amount}, 0)) FROM {facts} f, {people} p WHERE f.{id} = p.{id} AND EXISTS (SELECT 1 FROM {logs} l WHERE l.{id} = f.{id} AND l.{channel} = {c1} AND f.{at} >= l.{lat})

-- most kinds of a person
SELECT MAX(kinds) AS most FROM (SELECT COUNT(DISTINCT f.{kind}) AS kinds FROM {facts} f JOIN {people} p ON f.{id} = p.{id} WHERE f.{day} >= DATEFROMPARTS(2024, 2, 1) AND f.{day} <= DATEFROMPARTS(2024, 12, 31) GROUP BY f.{id}) e
-- means
SELECT MAX(kinds) FROM (SELECT COUNT(DISTINCT f.{kind}) AS kinds FROM {facts} f JOIN {people} p ON f.{id} = p.{id} WHERE f.{day} >= DATE '2024-02-01' AND f.{day} <= DATE '2024-12-31' GROUP BY f.{id}) e

-- mean number of events of a person
SELECT AVG(1.0 * n) AS avg_events FROM (SELECT {id}, COUNT(*) AS n FROM {facts} GROUP BY {id}) t

-- whole mean number of events of a person
SELECT AVG(n) AS avg_events, MIN(n) AS fewest, MAX(n) AS most FROM (SELECT {id}, COUNT(*) AS n FROM {facts} GROUP BY {id}) t
-- means
SELECT CAST(TRUNC(AVG(n)) AS BIGINT), MIN(n), MAX(n) FROM (SELECT {id}, COUNT(*) AS n FROM {facts} GROUP BY {id}) t

-- age at the event in tens
SELECT FLOOR(p.{age} / 10) AS age_decile, COUNT(*) AS n FROM {people} p JOIN {facts} f ON p.{id} = f.{id} GROUP BY FLOOR(p.{age} / 10) ORDER BY age_decile
-- means
SELECT p.{age} // 10, COUNT(*) FROM {people} p JOIN {facts} f ON p.{id} = f.{id} GROUP BY 1

-- age band by CASE
SELECT age_grp, COUNT(*) AS n FROM (SELECT CASE WHEN {age} BETWEEN 0 AND 29 THEN '0 to 29' WHEN {age} BETWEEN 30 AND 59 THEN '30 to 59' WHEN {age} >= 60 THEN '60 and more' END AS age_grp FROM {people}) t GROUP BY age_grp ORDER BY age_grp

-- concept of a joined vocabulary
SELECT c.{class} AS concept_class, c.{label} AS concept_name, COUNT_BIG(*) AS n FROM {facts} f INNER JOIN {items} c ON f.{code} = c.{code} WHERE c.{class} = {l1} GROUP BY c.{class}, c.{label} ORDER BY n DESC
-- means
SELECT c.{class}, c.{label}, COUNT(*) AS n FROM {facts} f INNER JOIN {items} c ON f.{code} = c.{code} WHERE c.{class} = {l1} GROUP BY c.{class}, c.{label}

-- concepts by a subquery of the vocabulary
SELECT COUNT(DISTINCT {id}) AS persons FROM {facts} WHERE {code} IN (SELECT DISTINCT {code} FROM {items} WHERE {class} = {l1})

-- persons with two conditions
SELECT COUNT(DISTINCT a.{id}) AS persons FROM {facts} a JOIN {facts} b ON a.{id} = b.{id} WHERE a.{kind} = {k1} AND b.{kind} = {k2} AND b.{day} > a.{day}

-- persons without
SELECT COUNT(*) AS persons FROM {people} p LEFT JOIN {facts} f ON p.{id} = f.{id} WHERE f.{id} IS NULL

-- first event of a person by kind
SELECT first_kind, COUNT(*) AS n FROM (SELECT {id}, {kind} AS first_kind, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) AS rn FROM {facts}) t WHERE rn = 1 GROUP BY first_kind

-- observation at the end of a year
SELECT SUM(CASE WHEN {joined} <= '2024-06-30' AND {active} = 1 THEN 1 ELSE 0 END) AS observed FROM {people}
-- means
SELECT SUM(CASE WHEN {joined} <= '2024-06-30' AND {active} THEN 1 ELSE 0 END) FROM {people}

-- share of a gender
SELECT {tier} AS gender, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 2) AS proportion FROM {people} GROUP BY {tier}

-- percent by a scalar subquery
SELECT {tier} AS gender, COUNT({id}) AS n, 100.0 * COUNT({id}) / (SELECT COUNT(*) FROM {people}) AS pct FROM {people} GROUP BY {tier}

-- persons by number of events
SELECT n AS events, COUNT(*) AS persons FROM (SELECT {id}, COUNT(*) AS n FROM {facts} GROUP BY {id}) t GROUP BY n ORDER BY n

-- gap between events
SELECT AVG(CAST(gap AS FLOAT)) AS mean_gap FROM (SELECT DATEDIFF(day, LAG({day}) OVER (PARTITION BY {id} ORDER BY {day}), {day}) AS gap FROM {facts}) t WHERE gap IS NOT NULL
-- means
SELECT AVG(gap) FROM (SELECT date_diff('day', LAG({day}) OVER (PARTITION BY {id} ORDER BY {day}), {day}) AS gap FROM {facts}) t

-- dates by ISNULL and DATEADD
SELECT COUNT(*) AS n FROM {facts} f JOIN {people} p ON p.{id} = f.{id} WHERE f.{day} <= DATEADD(dd, 30, p.{joined})
-- means
SELECT COUNT(*) FROM {facts} f JOIN {people} p ON p.{id} = f.{id} WHERE f.{day} <= p.{joined} + INTERVAL 30 DAY

-- counts of records of each domain
SELECT 'facts' AS domain, COUNT(*) AS n FROM {facts} UNION ALL SELECT 'logs', COUNT(*) FROM {logs} UNION ALL SELECT 'people', COUNT(*) FROM {people}

-- top ten concepts
SELECT TOP 10 {code} AS concept_id, COUNT(*) AS n FROM {facts} GROUP BY {code} ORDER BY COUNT(*) DESC
-- means
SELECT {code}, COUNT(*) AS n FROM {facts} GROUP BY {code} ORDER BY n DESC LIMIT 10

-- records of one person
-- refused: one person's rows
SELECT * FROM {facts} WHERE {id} = 5 ORDER BY {day}

-- persons as rows
-- refused: individual rows
SELECT {id}, MIN({day}) AS first_day, COUNT(*) AS n FROM {facts} GROUP BY {id}
