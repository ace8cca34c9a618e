-- source: interview questions: LeetCode's SQL 50, DataLemur, StrataScratch, InterviewQuery
-- address: https://datalemur.com/questions
-- seen: remembered
-- in: postgres duckdb tsql spark

-- second highest group
SELECT MAX(n) AS second FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind}) t WHERE n < (SELECT MAX(n) FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind}) u)

-- histogram of posts per person
SELECT n AS bucket, COUNT(*) AS users FROM (SELECT {id}, COUNT(*) AS n FROM {facts} WHERE {yearof:{day}} = 2024 GROUP BY {id}) t GROUP BY n

-- laptops against phones
SELECT SUM(CASE WHEN {kind} = {k1} THEN 1 ELSE 0 END) AS laptop_views, SUM(CASE WHEN {kind} IN ({k2}, {k3}) THEN 1 ELSE 0 END) AS mobile_views FROM {facts}

-- people with exactly the skills
SELECT COUNT(*) AS candidates FROM (SELECT {id} FROM {facts} WHERE {kind} IN ({k1}, {k2}, {k3}) GROUP BY {id} HAVING COUNT(DISTINCT {kind}) = 3) t

-- click through rate
SELECT {tier}, ROUND(100.0 * SUM(CASE WHEN {kind} = {k2} THEN 1 ELSE 0 END) / SUM(CASE WHEN {kind} = {k1} THEN 1 ELSE 0 END), 2) AS ctr FROM {facts} f JOIN {people} p ON p.{id} = f.{id} GROUP BY {tier}

-- confirmed on the second day
SELECT COUNT(DISTINCT p.{id}) AS users FROM {people} p JOIN {facts} f ON f.{id} = p.{id} WHERE {days:p.{joined};f.{day}} = 1

-- activity rate
SELECT ROUND(1.0 * COUNT(DISTINCT f.{id}) / COUNT(DISTINCT p.{id}), 2) AS activity_rate FROM {people} p LEFT JOIN {facts} f ON f.{id} = p.{id} AND f.{kind} = {k1}

-- top products of each category
SELECT {state}, {kind}, total FROM (SELECT {state}, {kind}, SUM({qty}) AS total, RANK() OVER (PARTITION BY {state} ORDER BY SUM({qty}) DESC) AS r FROM {facts} GROUP BY {state}, {kind}) t WHERE r <= 2

-- year on year growth of months
SELECT m, total, prev, ROUND(100.0 * (total - prev) / prev, 2) AS growth FROM (SELECT {monthof:{day}} AS m, SUM({qty}) AS total, LAG(SUM({qty})) OVER (ORDER BY {monthof:{day}}) AS prev FROM {facts} GROUP BY {monthof:{day}}) t

-- rolling mean of three days of each person
SELECT AVG(r) AS mean_rolling FROM (SELECT AVG({num:{qty}}) OVER (PARTITION BY {id} ORDER BY {at} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS r FROM {facts}) t

-- rolling mean of days
SELECT m, AVG({num:n}) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS rolling FROM (SELECT {monthof:{day}} AS m, COUNT(*) AS n FROM {facts} GROUP BY {monthof:{day}}) t

-- monthly active users who were active before
SELECT {monthof:a.{day}} AS m, COUNT(DISTINCT a.{id}) AS mau FROM {facts} a WHERE EXISTS (SELECT 1 FROM {facts} b WHERE b.{id} = a.{id} AND {monthof:b.{day}} = {monthof:a.{day}} - 1) GROUP BY {monthof:a.{day}}

-- people who bought on consecutive days
SELECT COUNT(DISTINCT {id}) AS users FROM (SELECT {id}, {days:LAG({day}) OVER (PARTITION BY {id} ORDER BY {day});{day}} AS gap FROM {facts}) t WHERE gap = 1

-- streaks by islands
WITH d AS (SELECT DISTINCT {id}, {monthof:{day}} AS m FROM {facts}), g AS (SELECT {id}, m - ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY m) AS island FROM d), s AS (SELECT {id}, island, COUNT(*) AS len FROM g GROUP BY {id}, island) SELECT len, COUNT(*) AS streaks FROM s GROUP BY len

-- third transaction of a person
SELECT {kind}, COUNT(*) AS n FROM (SELECT {kind}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) AS rn FROM {facts}) t WHERE rn = 3 GROUP BY {kind}

-- odd and even
SELECT SUM(CASE WHEN rn % 2 = 1 THEN {qty} ELSE 0 END) AS odd_sum, SUM(CASE WHEN rn % 2 = 0 THEN {qty} ELSE 0 END) AS even_sum FROM (SELECT {qty}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) AS rn FROM {facts}) t

-- people above the mean
SELECT COUNT(*) AS n FROM (SELECT {id}, SUM({qty}) AS s FROM {facts} GROUP BY {id}) t WHERE s > (SELECT AVG({num:s}) FROM (SELECT {id}, SUM({qty}) AS s FROM {facts} GROUP BY {id}) u)

-- people above the mean of their department
SELECT {region}, COUNT(*) AS n FROM (SELECT {region}, {age}, AVG({num:{age}}) OVER (PARTITION BY {region}) AS m FROM {people}) t WHERE {age} > m GROUP BY {region}

-- department highest
SELECT {region}, MAX({age}) AS oldest, MIN({age}) AS youngest, MAX({age}) - MIN({age}) AS spread FROM {people} GROUP BY {region}

-- names of the oldest of a department
-- refused: individual rows
SELECT {id}, {age} FROM (SELECT {id}, {age}, DENSE_RANK() OVER (PARTITION BY {region} ORDER BY {age} DESC) AS r FROM {people}) t WHERE r <= 3

-- never ordered
SELECT COUNT(*) AS n FROM {people} p LEFT JOIN {facts} f ON p.{id} = f.{id} WHERE f.{key} IS NULL

-- managers of people
-- refused: unbounded, as a person may be in a pair with everybody
SELECT COUNT(*) AS pairs FROM {people} a JOIN {people} b ON a.{region} = b.{region} AND a.{id} < b.{id}

-- rates of cancellation by day
SELECT {day}, ROUND(SUM(CASE WHEN {state} = {s1} THEN 0.0 ELSE 1.0 END) / COUNT(*), 2) AS rate FROM {facts} WHERE {day} BETWEEN '2024-07-01' AND '2024-07-10' GROUP BY {day}

-- immediate first orders
SELECT ROUND(100.0 * AVG(CASE WHEN {days:p.{joined};first_day} <= 14 THEN 1.0 ELSE 0.0 END), 2) AS pct FROM {people} p JOIN (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY {id}) f ON f.{id} = p.{id}

-- customers of all products
SELECT COUNT(*) AS n FROM (SELECT {id} FROM {facts} GROUP BY {id} HAVING COUNT(DISTINCT {code}) = (SELECT COUNT(*) FROM {items} WHERE {code} <= 3)) t

-- biggest single number
SELECT MAX({qty}) AS num FROM (SELECT {qty} FROM {facts} GROUP BY {qty} HAVING COUNT(*) < 5) t

-- average selling price
SELECT i.{class}, ROUND({num:(SUM(f.{qty} * i.{price}) / SUM(f.{qty}))}, 2) AS average_price FROM {facts} f JOIN {items} i ON i.{code} = f.{code} GROUP BY i.{class}

-- percentage of users in contests
SELECT {code}, ROUND(COUNT(DISTINCT {id}) * 100.0 / (SELECT COUNT(*) FROM {people}), 2) AS pct FROM {facts} GROUP BY {code} ORDER BY pct DESC, {code}

-- quality and poor percentage
SELECT {channel}, ROUND({num:AVG({score} / 5.0)}, 2) AS quality, ROUND(100.0 * SUM(CASE WHEN {score} < 3 THEN 1 ELSE 0 END) / COUNT(*), 2) AS poor FROM {logs} GROUP BY {channel}

-- count of salary categories with zero
SELECT 'Low' AS category, COUNT(*) AS n FROM {people} WHERE {age} < 30 UNION ALL SELECT 'Average', COUNT(*) FROM {people} WHERE {age} BETWEEN 30 AND 60 UNION ALL SELECT 'High', COUNT(*) FROM {people} WHERE {age} > 60

-- weekend purchases against week days
SELECT CASE WHEN {yes:d.is_weekend} THEN 'weekend' ELSE 'week' END AS part, COUNT(*) AS n, SUM(f.{amount}) AS total FROM {facts} f JOIN dim_date d ON d.cal_date = f.{day} GROUP BY CASE WHEN {yes:d.is_weekend} THEN 'weekend' ELSE 'week' END
