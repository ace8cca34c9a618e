-- source: Google Analytics 4: BigQuery export, basic and advanced queries
-- address: https://developers.google.com/analytics/bigquery/basic-queries
-- seen: remembered, after reading guides to it
-- in: bigquery

-- users and new users
WITH info AS (SELECT {id}, MAX(IF({kind} IN ({k1}, {k2}), 1, 0)) AS is_new FROM `{facts}` WHERE {day} BETWEEN '2024-02-01' AND '2024-10-01' GROUP BY 1) SELECT COUNT(*) AS user_count, SUM(is_new) AS new_user_count FROM info
-- means
WITH info AS (SELECT {id}, MAX(CASE WHEN {kind} IN ({k1}, {k2}) THEN 1 ELSE 0 END) AS is_new FROM {facts} WHERE {day} BETWEEN '2024-02-01' AND '2024-10-01' GROUP BY 1) SELECT COUNT(*), SUM(is_new) FROM info

-- users by a count distinct
SELECT COUNT(DISTINCT {id}) AS users, APPROX_COUNT_DISTINCT({id}) AS about FROM {facts}
-- means
SELECT COUNT(DISTINCT {id}), COUNT(DISTINCT {id}) FROM {facts}

-- average transactions per purchaser
SELECT COUNT(*) / COUNT(DISTINCT {id}) AS avg_transactions FROM {facts} WHERE {kind} IN ({k4})

-- average spend per purchaser
SELECT AVG(s) AS avg_spend FROM (SELECT {id}, SUM({amount}) AS s FROM {facts} WHERE {kind} = {k1} GROUP BY 1)

-- sessions by user and their mean
SELECT SAFE_DIVIDE(SUM(n), COUNT(DISTINCT {id})) AS sessions_per_user FROM (SELECT {id}, COUNT(DISTINCT DATE({at})) AS n FROM {facts} GROUP BY {id})
-- means
SELECT SUM(n) / COUNT(DISTINCT {id}) FROM (SELECT {id}, COUNT(DISTINCT CAST({at} AS DATE)) AS n FROM {facts} GROUP BY {id})

-- latest value of a user
SELECT kind, COUNT(*) AS users FROM (SELECT {id}, ARRAY_AGG({kind} ORDER BY {at} DESC LIMIT 1)[OFFSET(0)] AS kind FROM {facts} GROUP BY {id}) GROUP BY kind
-- means
SELECT kind, COUNT(*) FROM (SELECT {id}, ARG_MAX({kind}, {at}) AS kind FROM {facts} GROUP BY {id}) GROUP BY kind

-- events by name and day
SELECT DATE({at}) AS event_date, {kind} AS event_name, COUNT(*) AS events FROM `{facts}` WHERE DATE({at}) BETWEEN DATE '2024-05-01' AND DATE '2024-05-31' GROUP BY event_date, event_name ORDER BY event_date
-- means
SELECT CAST({at} AS DATE) AS d, {kind}, COUNT(*) FROM {facts} WHERE {day} BETWEEN '2024-05-01' AND '2024-05-31' GROUP BY 1, 2

-- formatted months
SELECT FORMAT_DATE('%Y-%m', {day}) AS ym, COUNT(DISTINCT {id}) AS mau FROM {facts} GROUP BY ym ORDER BY ym
-- means
SELECT strftime({day}, '%Y-%m'), COUNT(DISTINCT {id}) FROM {facts} GROUP BY 1

-- parts of dates
SELECT EXTRACT(DAYOFWEEK FROM {day}) AS dow, EXTRACT(HOUR FROM {at}) AS hr, COUNT(*) AS n FROM {facts} GROUP BY 1, 2
-- means
SELECT dayofweek({day}) + 1, hour({at}), COUNT(*) FROM {facts} GROUP BY 1, 2

-- truncated timestamps
SELECT DATETIME_TRUNC({at}, WEEK(MONDAY)) AS w, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY 1
-- means
SELECT date_trunc('week', {at}), COUNT(*) FROM {facts} GROUP BY 1

-- Sunday weeks
SELECT DATE_TRUNC({day}, WEEK) AS w, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY 1
-- means
SELECT {day} - CAST(dayofweek({day}) AS INTEGER) AS w, COUNT(*) FROM {facts} GROUP BY 1

-- funnel of steps
SELECT COUNT(DISTINCT IF({kind} = {k1}, {id}, NULL)) AS step1, COUNT(DISTINCT IF({kind} = {k2}, {id}, NULL)) AS step2, COUNT(DISTINCT IF({kind} = {k3}, {id}, NULL)) AS step3 FROM {facts}
-- means
SELECT COUNT(DISTINCT CASE WHEN {kind} = {k1} THEN {id} END), COUNT(DISTINCT CASE WHEN {kind} = {k2} THEN {id} END), COUNT(DISTINCT CASE WHEN {kind} = {k3} THEN {id} END) FROM {facts}

-- conversion rate by device
SELECT p.{tier} AS device, COUNTIF(f.{kind} = {k4}) AS purchases, COUNT(*) AS events, SAFE_DIVIDE(COUNTIF(f.{kind} = {k4}), COUNT(*)) AS rate FROM {facts} AS f JOIN {people} AS p USING ({id}) GROUP BY device ORDER BY rate DESC
-- means
SELECT p.{tier}, COUNT_IF(f.{kind} = {k4}), COUNT(*), COUNT_IF(f.{kind} = {k4}) / COUNT(*) FROM {facts} f JOIN {people} p USING ({id}) GROUP BY 1

-- time between events
SELECT AVG(DATETIME_DIFF({at}, prev, MINUTE)) AS minutes FROM (SELECT {at}, LAG({at}) OVER (PARTITION BY {id} ORDER BY {at}) AS prev FROM {facts})
-- means
SELECT AVG(date_diff('minute', prev, {at})) FROM (SELECT {at}, LAG({at}) OVER (PARTITION BY {id} ORDER BY {at}) AS prev FROM {facts})

-- items of an array
-- refused: individual rows
SELECT {kind}, ARRAY_AGG(STRUCT({amount}, {qty})) AS parts FROM {facts} GROUP BY {kind}

-- user retention by week
WITH first_week AS (SELECT {id}, DATE_TRUNC(MIN({day}), ISOWEEK) AS w0 FROM {facts} GROUP BY {id}) SELECT DATE_DIFF(DATE_TRUNC(f.{day}, ISOWEEK), w0, WEEK) AS week_number, COUNT(DISTINCT f.{id}) AS users FROM {facts} f JOIN first_week USING ({id}) GROUP BY 1 ORDER BY 1
-- means
WITH first_week AS (SELECT {id}, date_trunc('week', MIN({day})) AS w0 FROM {facts} GROUP BY {id}) SELECT date_diff('day', w0, date_trunc('week', f.{day})) // 7 AS week_number, COUNT(DISTINCT f.{id}) FROM {facts} f JOIN first_week USING ({id}) GROUP BY 1

-- backticked project tables
SELECT COUNT(*) AS n FROM `my-project.analytics.{facts}` WHERE {kind} = {k1}
-- means
SELECT COUNT(*) FROM {facts} WHERE {kind} = {k1}

-- yesterday and a suffix
SELECT COUNT(*) AS n FROM {facts} WHERE {day} >= DATE_SUB(CURRENT_DATE(), INTERVAL 36500 DAY) AND {day} < CURRENT_DATE()
-- means
SELECT COUNT(*) FROM {facts}

-- share of all by a window
SELECT {kind}, COUNT(*) AS n, ROUND(COUNT(*) / SUM(COUNT(*)) OVER () * 100, 1) AS pct FROM {facts} GROUP BY {kind} ORDER BY n DESC

-- double quoted texts
SELECT COUNT(*) AS n FROM {facts} WHERE {kind} = "view" OR {state} IS NULL
-- means
SELECT COUNT(*) AS n FROM {facts} WHERE {kind} = 'view' OR {state} IS NULL
