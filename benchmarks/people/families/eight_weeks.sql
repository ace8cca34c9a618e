-- source: D. Ma, 8 Week SQL Challenge
-- address: https://8weeksqlchallenge.com/
-- seen: remembered
-- in: postgres tsql snowflake

-- total amount by category
SELECT {kind}, SUM({amount}) AS total_spent FROM {facts} GROUP BY {kind} ORDER BY total_spent DESC

-- days visited by people of a tier
SELECT p.{tier}, COUNT(DISTINCT f.{day}) AS visit_days FROM {facts} f INNER JOIN {people} p ON p.{id} = f.{id} GROUP BY p.{tier}

-- first item of each person
WITH ordered AS (SELECT {id}, {kind}, DENSE_RANK() OVER (PARTITION BY {id} ORDER BY {day}) AS r FROM {facts}) SELECT {kind}, COUNT(DISTINCT {id}) AS people FROM ordered WHERE r = 1 GROUP BY {kind}

-- most purchased
SELECT {top:1}{kind}, COUNT(*) AS times FROM {facts} GROUP BY {kind} ORDER BY times DESC {limit:1}

-- favourite of each person
WITH c AS (SELECT {id}, {kind}, COUNT(*) AS n, RANK() OVER (PARTITION BY {id} ORDER BY COUNT(*) DESC) AS r FROM {facts} GROUP BY {id}, {kind}) SELECT {kind}, COUNT(*) AS people FROM c WHERE r = 1 GROUP BY {kind}

-- first purchase after joining
WITH a AS (SELECT f.{id}, f.{kind}, ROW_NUMBER() OVER (PARTITION BY f.{id} ORDER BY f.{at}) AS rn FROM {facts} f JOIN {people} p ON p.{id} = f.{id} WHERE f.{day} > p.{joined}) SELECT {kind}, COUNT(*) AS n FROM a WHERE rn = 1 GROUP BY {kind}

-- points by a case
SELECT p.{region}, SUM(CASE WHEN f.{kind} = {k1} THEN f.{qty} * 20 ELSE f.{qty} * 10 END) AS points FROM {facts} f JOIN {people} p ON p.{id} = f.{id} GROUP BY p.{region}

-- points in the first week
SELECT SUM(CASE WHEN f.{day} BETWEEN p.{joined} AND {add:p.{joined};6} THEN f.{qty} * 20 WHEN f.{kind} = {k1} THEN f.{qty} * 20 ELSE f.{qty} * 10 END) AS points FROM {facts} f JOIN {people} p ON p.{id} = f.{id} WHERE f.{day} <= {lit:2024-06-30}

-- orders by hour
SELECT {hourof:{at}} AS hour_of_day, COUNT({key}) AS n FROM {facts} GROUP BY {hourof:{at}} ORDER BY hour_of_day

-- churned after a trial
SELECT COUNT(*) AS churned, ROUND(100.0 * COUNT(*) / (SELECT COUNT(DISTINCT {id}) FROM {people}), 1) AS pct FROM (SELECT {id}, MAX({day}) AS last_day FROM {facts} GROUP BY {id}) t WHERE last_day < {lit:2024-08-01}

-- next plan of a person
WITH n AS (SELECT {id}, {kind}, LEAD({kind}) OVER (PARTITION BY {id} ORDER BY {at}) AS next_kind FROM {facts}) SELECT next_kind, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / (SELECT COUNT(DISTINCT {id}) FROM {facts}), 1) AS pct FROM n WHERE next_kind IS NOT NULL AND {kind} = {k1} GROUP BY next_kind

-- thirty day buckets until an event
WITH first_a AS (SELECT {id}, MIN({day}) AS d1 FROM {facts} WHERE {kind} = {k1} GROUP BY {id}), first_b AS (SELECT {id}, MIN({day}) AS d2 FROM {facts} WHERE {kind} = {k2} GROUP BY {id}) SELECT AVG({num:{days:d1;d2}}) AS avg_days FROM first_a JOIN first_b ON first_a.{id} = first_b.{id} WHERE d2 > d1

-- unique nodes by region
SELECT {region}, COUNT(DISTINCT {tier}) AS nodes, COUNT({id}) AS people FROM {people} GROUP BY {region}

-- closing balances by month
SELECT m, SUM(delta) OVER (ORDER BY m ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS balance FROM (SELECT {monthof:{day}} AS m, SUM(CASE WHEN {kind} = {k1} THEN {qty} ELSE -{qty} END) AS delta FROM {facts} GROUP BY {monthof:{day}}) t

-- sales before and after a change
SELECT SUM(CASE WHEN {day} < {lit:2024-06-15} THEN {qty} END) AS before_sales, SUM(CASE WHEN {day} >= {lit:2024-06-15} THEN {qty} END) AS after_sales, 100.0 * (SUM(CASE WHEN {day} >= {lit:2024-06-15} THEN {qty} END) - SUM(CASE WHEN {day} < {lit:2024-06-15} THEN {qty} END)) / SUM(CASE WHEN {day} < {lit:2024-06-15} THEN {qty} END) AS pct FROM {facts}

-- percentage of sales by platform
WITH t AS (SELECT {monthof:{day}} AS m, {state} AS platform, SUM({qty}) AS s FROM {facts} GROUP BY {monthof:{day}}, {state}) SELECT m, ROUND(100.0 * MAX(CASE WHEN platform = {s1} THEN s END) / SUM(s), 2) AS one, ROUND(100.0 * MAX(CASE WHEN platform = {s2} THEN s END) / SUM(s), 2) AS two FROM t GROUP BY m ORDER BY m

-- views, carts and purchases by product
SELECT i.{class}, SUM(CASE WHEN f.{kind} = {k1} THEN 1 ELSE 0 END) AS views, SUM(CASE WHEN f.{kind} = {k2} THEN 1 ELSE 0 END) AS carts FROM {facts} f JOIN {items} i ON i.{code} = f.{code} GROUP BY i.{class}

-- index of interests by rank
WITH r AS (SELECT {monthof:{day}} AS m, {kind}, SUM({qty}) AS s, RANK() OVER (PARTITION BY {monthof:{day}} ORDER BY SUM({qty}) DESC) AS rnk FROM {facts} GROUP BY {monthof:{day}}, {kind}) SELECT {kind}, COUNT(*) AS months_first FROM r WHERE rnk = 1 GROUP BY {kind} ORDER BY months_first DESC

-- rows of a person with ranks
-- refused: individual rows
SELECT {id}, {day}, {kind}, CASE WHEN {qty} > 5 THEN RANK() OVER (PARTITION BY {id} ORDER BY {day}) END AS ranking FROM {facts}
