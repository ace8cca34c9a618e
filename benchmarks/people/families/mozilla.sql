-- source: Mozilla: bigquery-etl, queries of telemetry
-- address: https://github.com/mozilla/bigquery-etl
-- seen: read in part
-- in: bigquery

-- counts of two tables joined in full
WITH installs AS (SELECT EXTRACT(MONTH FROM {day}) AS m, {kind}, COUNT(*) AS installs_count FROM {facts} GROUP BY m, {kind}), uninstalls AS (SELECT EXTRACT(MONTH FROM {day}) AS m, {kind}, COUNT(DISTINCT {id}) AS uninstalls_count FROM {facts} WHERE {state} = {s1} GROUP BY m, {kind}) SELECT COALESCE(a.m, b.m) AS m, COALESCE(a.{kind}, b.{kind}) AS kind, COALESCE(a.installs_count, 0) AS installs, SAFE_DIVIDE(COALESCE(b.uninstalls_count, 0), COALESCE(a.installs_count, 0)) AS ratio FROM installs a FULL OUTER JOIN uninstalls AS b ON a.{kind} = b.{kind} AND a.m = b.m
-- means
WITH installs AS (SELECT EXTRACT(MONTH FROM {day}) AS m, {kind}, COUNT(*) AS n FROM {facts} GROUP BY 1, 2), uninstalls AS (SELECT EXTRACT(MONTH FROM {day}) AS m, {kind}, COUNT(DISTINCT {id}) AS k FROM {facts} WHERE {state} = {s1} GROUP BY 1, 2) SELECT COALESCE(a.m, b.m), COALESCE(a.{kind}, b.{kind}), COALESCE(a.n, 0), COALESCE(b.k, 0) / NULLIF(COALESCE(a.n, 0), 0) FROM installs a FULL OUTER JOIN uninstalls AS b ON a.{kind} = b.{kind} AND a.m = b.m

-- daily, weekly and monthly users of a day
SELECT COUNT(DISTINCT IF({day} = '2024-08-31', {id}, NULL)) AS dau, COUNT(DISTINCT IF({day} > DATE_SUB(DATE '2024-08-31', INTERVAL 7 DAY), {id}, NULL)) AS wau, COUNT(DISTINCT {id}) AS mau FROM {facts} WHERE {day} BETWEEN DATE_SUB(DATE '2024-08-31', INTERVAL 28 DAY) AND '2024-08-31'
-- means
SELECT COUNT(DISTINCT CASE WHEN {day} = '2024-08-31' THEN {id} END), COUNT(DISTINCT CASE WHEN {day} > DATE '2024-08-24' THEN {id} END), COUNT(DISTINCT {id}) FROM {facts} WHERE {day} BETWEEN DATE '2024-08-03' AND '2024-08-31'

-- user defined function
-- refused: a function that only its owner knows
SELECT `mozfun.norm.os`({kind}) AS os, COUNT(*) AS n FROM {facts} GROUP BY os

-- clients by the value last seen
WITH last_seen AS (SELECT {id}, ARRAY_AGG({kind} IGNORE NULLS ORDER BY {at} DESC)[SAFE_OFFSET(0)] AS kind FROM {facts} GROUP BY {id}) SELECT kind, COUNT(*) AS clients FROM last_seen GROUP BY kind
-- means
SELECT kind, COUNT(*) FROM (SELECT {id}, ARG_MAX({kind}, {at}) AS kind FROM {facts} GROUP BY {id}) GROUP BY kind

-- windowed rank of clients
WITH numbered AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at} DESC) AS _n FROM {facts}) SELECT * EXCEPT (_n, {key}, {id}, {at}, {day}, {kind}, {amount}, {qty}, {code}, {flag}), COUNT(*) AS n FROM numbered WHERE _n = 1 GROUP BY {state}
-- means
WITH numbered AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at} DESC) AS _n FROM {facts}) SELECT {state}, COUNT(*) AS n FROM numbered WHERE _n = 1 GROUP BY {state}

-- histogram in logarithmic buckets
SELECT CAST(FLOOR(LOG({qty}, 2)) AS INT64) AS bucket, COUNT(*) AS n FROM {facts} WHERE {qty} > 0 GROUP BY bucket
-- means
SELECT CAST(FLOOR(LOG2({qty})) AS BIGINT), COUNT(*) FROM {facts} WHERE {qty} > 0 GROUP BY 1

-- retention in the fourth week
SELECT COUNT(DISTINCT p.{id}) AS new_profiles, COUNT(DISTINCT IF(f.{day} BETWEEN DATE_ADD(p.{joined}, INTERVAL 21 DAY) AND DATE_ADD(p.{joined}, INTERVAL 27 DAY), p.{id}, NULL)) AS retained FROM {people} p LEFT JOIN {facts} f USING ({id})
-- means
SELECT COUNT(DISTINCT p.{id}), COUNT(DISTINCT CASE WHEN f.{day} BETWEEN p.{joined} + INTERVAL 21 DAY AND p.{joined} + INTERVAL 27 DAY THEN p.{id} END) FROM {people} p LEFT JOIN {facts} f USING ({id})

-- quantities by trailing comma
SELECT {kind}, {state}, SUM({qty}) AS total, AVG({amount}) AS mean, FROM {facts} WHERE {day} = '2024-05-05' OR {qty} > 3 GROUP BY {kind}, {state}
-- means
SELECT {kind}, {state}, SUM({qty}), AVG({amount}) FROM {facts} WHERE {day} = '2024-05-05' OR {qty} > 3 GROUP BY {kind}, {state}

-- countries of clients
SELECT IFNULL(p.{region}, '??') AS country, COUNT(DISTINCT f.{id}) AS clients, SUM(f.{qty}) / COUNT(DISTINCT f.{id}) AS each FROM {facts} AS f LEFT JOIN {people} AS p ON p.{id} = f.{id} GROUP BY country
-- means
SELECT COALESCE(p.{region}, '??') AS country, COUNT(DISTINCT f.{id}), SUM(f.{qty}) / COUNT(DISTINCT f.{id}) FROM {facts} AS f LEFT JOIN {people} AS p ON p.{id} = f.{id} GROUP BY country

-- share of experiments
SELECT {tier} AS branch, COUNT(*) AS clients, COUNTIF({active}) AS active, SAFE_DIVIDE(COUNTIF({active}), COUNT(*)) AS share FROM {people} GROUP BY branch
-- means
SELECT {tier}, COUNT(*), COUNT_IF({active}), COUNT_IF({active}) / COUNT(*) FROM {people} GROUP BY 1
