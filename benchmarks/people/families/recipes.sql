-- source: analytics recipes: Holistics, PopSQL, Silota, Amplitude and PostHog cookbooks
-- address: https://popsql.com/sql-templates
-- seen: remembered, after reading some recipes
-- in: duckdb postgres snowflake bigquery

-- cohort retention with sizes
WITH items AS (SELECT {id}, {month:{joined}} AS cohort_month FROM {people}), activity AS (SELECT f.{id}, {months:p.{joined};f.{day}} AS month_number FROM {facts} f JOIN {people} p ON p.{id} = f.{id} GROUP BY 1, 2), sizes AS (SELECT cohort_month, COUNT(1) AS num_users FROM items GROUP BY 1), retained AS (SELECT c.cohort_month, a.month_number, COUNT(1) AS num_users FROM activity a LEFT JOIN items c ON a.{id} = c.{id} GROUP BY 1, 2) SELECT b.cohort_month, s.num_users AS total_users, b.month_number, b.num_users * 100.0 / s.num_users AS percentage FROM retained b LEFT JOIN sizes s ON b.cohort_month = s.cohort_month WHERE b.cohort_month IS NOT NULL ORDER BY 1, 3

-- daily active users
SELECT {date:{at}} AS d, COUNT(DISTINCT {id}) AS dau FROM {facts} WHERE {at} >= '2024-09-01' GROUP BY 1 ORDER BY 1

-- weekly and monthly active users
SELECT {week:{at}} AS w, COUNT(DISTINCT {id}) AS wau, COUNT(*) AS events, COUNT(*) * 1.0 / COUNT(DISTINCT {id}) AS each FROM {facts} GROUP BY 1 ORDER BY 1

-- stickiness
WITH dau AS (SELECT {month:{day}} AS m, {day}, COUNT(DISTINCT {id}) AS dau FROM {facts} GROUP BY 1, 2), mau AS (SELECT {month:{day}} AS m, COUNT(DISTINCT {id}) AS mau FROM {facts} GROUP BY 1) SELECT mau.m, AVG(dau.dau) * 1.0 / MAX(mau.mau) AS stickiness FROM mau JOIN dau ON dau.m = mau.m GROUP BY mau.m ORDER BY 1

-- growth accounting
WITH monthly AS (SELECT DISTINCT {id}, {monthof:{day}} AS m FROM {facts}), firsts AS (SELECT {id}, MIN(m) AS first_m FROM monthly GROUP BY 1) SELECT a.m, SUM(CASE WHEN a.m = f.first_m THEN 1 ELSE 0 END) AS new_users, SUM(CASE WHEN b.{id} IS NOT NULL THEN 1 ELSE 0 END) AS retained, SUM(CASE WHEN b.{id} IS NULL AND a.m > f.first_m THEN 1 ELSE 0 END) AS resurrected FROM monthly a JOIN firsts f ON f.{id} = a.{id} LEFT JOIN monthly b ON b.{id} = a.{id} AND b.m = a.m - 1 GROUP BY 1 ORDER BY 1

-- churned people by month
SELECT {monthof:last_day} + 1 AS churn_month, COUNT(*) AS churned FROM (SELECT {id}, MAX({day}) AS last_day FROM {facts} GROUP BY 1) t WHERE last_day < {lit:2024-11-01} GROUP BY 1 ORDER BY 1

-- funnel in order of time
WITH s1 AS (SELECT {id}, MIN({at}) AS t1 FROM {facts} WHERE {kind} = {k1} GROUP BY 1), s2 AS (SELECT f.{id}, MIN(f.{at}) AS t2 FROM {facts} f JOIN s1 ON s1.{id} = f.{id} WHERE f.{kind} = {k2} AND f.{at} > s1.t1 GROUP BY 1), s3 AS (SELECT f.{id}, MIN(f.{at}) AS t3 FROM {facts} f JOIN s2 ON s2.{id} = f.{id} WHERE f.{kind} = {k3} AND f.{at} > s2.t2 GROUP BY 1) SELECT COUNT(s1.{id}) AS step1, COUNT(s2.{id}) AS step2, COUNT(s3.{id}) AS step3 FROM s1 LEFT JOIN s2 ON s2.{id} = s1.{id} LEFT JOIN s3 ON s3.{id} = s1.{id}

-- funnel by union
SELECT 1 AS step, {k1} AS name, COUNT(DISTINCT {id}) AS users FROM {facts} WHERE {kind} = {k1} UNION ALL SELECT 2, {k2}, COUNT(DISTINCT {id}) FROM {facts} WHERE {kind} = {k2} UNION ALL SELECT 3, {k3}, COUNT(DISTINCT {id}) FROM {facts} WHERE {kind} = {k3} ORDER BY step

-- funnel by a tier
SELECT p.{tier}, COUNT(DISTINCT p.{id}) AS signed_up, COUNT(DISTINCT CASE WHEN f.{kind} = {k1} THEN f.{id} END) AS viewed, COUNT(DISTINCT CASE WHEN f.{kind} = {k2} THEN f.{id} END) AS carted FROM {people} p LEFT JOIN {facts} f ON f.{id} = p.{id} GROUP BY 1 ORDER BY 1

-- sessions by inactivity
WITH gaps AS (SELECT {id}, {at}, CASE WHEN {days:LAG({day}) OVER (PARTITION BY {id} ORDER BY {at});{day}} > 14 OR LAG({day}) OVER (PARTITION BY {id} ORDER BY {at}) IS NULL THEN 1 ELSE 0 END AS new_session FROM {facts}), sessions AS (SELECT {id}, SUM(new_session) OVER (PARTITION BY {id} ORDER BY {at} ROWS UNBOUNDED PRECEDING) AS session_no FROM gaps) SELECT COUNT(*) AS events, COUNT(DISTINCT {id}) AS people, AVG(session_no) AS mean_session FROM sessions

-- events of a session
WITH gaps AS (SELECT {id}, {at}, CASE WHEN {days:LAG({day}) OVER (PARTITION BY {id} ORDER BY {at});{day}} > 14 THEN 1 ELSE 0 END AS new_session FROM {facts}), sessions AS (SELECT {id}, SUM(new_session) OVER (PARTITION BY {id} ORDER BY {at} ROWS UNBOUNDED PRECEDING) AS session_no FROM gaps), sized AS (SELECT {id}, session_no, COUNT(*) AS n FROM sessions GROUP BY 1, 2) SELECT n AS events, COUNT(*) AS sessions FROM sized GROUP BY 1 ORDER BY 1

-- first touch attribution
SELECT first_channel, COUNT(*) AS people, SUM(total) AS revenue FROM (SELECT {id}, {channel} AS first_channel FROM (SELECT {id}, {channel}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {lat}) AS rn FROM {logs}) l WHERE rn = 1) a JOIN (SELECT {id}, SUM({amount}) AS total FROM {facts} GROUP BY 1) b ON a.{id} = b.{id} GROUP BY 1 ORDER BY 1

-- recency, frequency, monetary by ntile
SELECT r, f, COUNT(*) AS people FROM (SELECT {id}, NTILE(3) OVER (ORDER BY last_day) AS r, NTILE(3) OVER (ORDER BY n) AS f FROM (SELECT {id}, MAX({day}) AS last_day, COUNT(*) AS n FROM {facts} GROUP BY 1) a) b GROUP BY 1, 2 ORDER BY 1, 2

-- recency, frequency by fixed bands
SELECT CASE WHEN {days:last_day;{lit:2024-12-31}} <= 30 THEN 'recent' WHEN {days:last_day;{lit:2024-12-31}} <= 90 THEN 'lapsing' ELSE 'lost' END AS band, CASE WHEN n >= 6 THEN 'often' ELSE 'rare' END AS freq, COUNT(*) AS people, AVG(total) AS value FROM (SELECT {id}, MAX({day}) AS last_day, COUNT(*) AS n, SUM({amount}) AS total FROM {facts} GROUP BY 1) a GROUP BY 1, 2 ORDER BY 1, 2

-- pareto of groups
SELECT {code}, total, SUM(total) OVER (ORDER BY total DESC ROWS UNBOUNDED PRECEDING) * 1.0 / SUM(total) OVER () AS cumulative FROM (SELECT {code}, SUM({qty}) AS total FROM {facts} GROUP BY 1) t ORDER BY total DESC

-- pareto of people
SELECT SUM(CASE WHEN cumulative <= 0.8 THEN 1 ELSE 0 END) * 1.0 / COUNT(*) AS share_of_people FROM (SELECT {id}, SUM(total) OVER (ORDER BY total DESC ROWS UNBOUNDED PRECEDING) * 1.0 / SUM(total) OVER () AS cumulative FROM (SELECT {id}, SUM({qty}) AS total FROM {facts} GROUP BY 1) t) u

-- gini by ranks
SELECT 2.0 * SUM(rn * total) / (COUNT(*) * SUM(total)) - (COUNT(*) + 1.0) / COUNT(*) AS gini FROM (SELECT total, ROW_NUMBER() OVER (ORDER BY total) AS rn FROM (SELECT {id}, SUM({qty}) AS total FROM {facts} GROUP BY 1) t) u

-- net promoter score
SELECT {channel}, ROUND(100.0 * (SUM(CASE WHEN {score} >= 4.5 THEN 1 ELSE 0 END) - SUM(CASE WHEN {score} <= 3 THEN 1 ELSE 0 END)) / COUNT({score}), 1) AS nps FROM {logs} GROUP BY 1 ORDER BY 1

-- lifetime value by cohort
SELECT {quarter:p.{joined}} AS cohort, COUNT(DISTINCT p.{id}) AS people, SUM(f.{amount}) * 1.0 / COUNT(DISTINCT p.{id}) AS ltv FROM {people} p LEFT JOIN {facts} f ON f.{id} = p.{id} GROUP BY 1 ORDER BY 1

-- cumulative revenue of cohorts
SELECT cohort, period, SUM(revenue) OVER (PARTITION BY cohort ORDER BY period) AS cumulative FROM (SELECT {quarterof:p.{joined}} AS cohort, {months:p.{joined};f.{day}} AS period, SUM(f.{qty}) AS revenue FROM {people} p JOIN {facts} f ON f.{id} = p.{id} GROUP BY 1, 2) t ORDER BY 1, 2

-- running total of people
SELECT m, SUM(n) OVER (ORDER BY m) AS total_users FROM (SELECT {month:{joined}} AS m, COUNT(*) AS n FROM {people} GROUP BY 1) t ORDER BY 1

-- month over month growth
SELECT m, n, (n - LAG(n) OVER (ORDER BY m)) * 100.0 / LAG(n) OVER (ORDER BY m) AS growth FROM (SELECT {month:{day}} AS m, COUNT(*) AS n FROM {facts} GROUP BY 1) t ORDER BY 1

-- seven day average of the calendar
SELECT cal_date, AVG(n) OVER (ORDER BY cal_date ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS smooth FROM (SELECT d.cal_date, COUNT(f.{key}) AS n FROM dim_date d LEFT JOIN {facts} f ON f.{day} = d.cal_date GROUP BY 1) t ORDER BY 1

-- weekday heat map
SELECT d.weekday_name, {hourof:f.{at}} AS h, COUNT(*) AS n FROM {facts} f JOIN dim_date d ON d.cal_date = f.{day} GROUP BY 1, 2 ORDER BY 1, 2

-- days until the second purchase
SELECT {days:d1;d2} AS gap, COUNT(*) AS people FROM (SELECT {id}, MIN(CASE WHEN rn = 1 THEN {day} END) AS d1, MIN(CASE WHEN rn = 2 THEN {day} END) AS d2 FROM (SELECT {id}, {day}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) AS rn FROM {facts}) a GROUP BY 1) b WHERE d2 IS NOT NULL GROUP BY 1 ORDER BY 1

-- repeat purchase rate
SELECT COUNT(CASE WHEN n > 1 THEN 1 END) * 1.0 / COUNT(*) AS repeat_rate FROM (SELECT {id}, COUNT(*) AS n FROM {facts} GROUP BY 1) t

-- products bought together
SELECT a.{code} AS one, b.{code} AS other, COUNT(DISTINCT a.{id}) AS people FROM {facts} a JOIN {facts} b ON a.{id} = b.{id} AND a.{code} < b.{code} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 10

-- correlation by hand
SELECT (COUNT(*) * SUM({qty} * {amount}) - SUM({qty}) * SUM({amount})) / SQRT((COUNT(*) * SUM({qty} * {qty}) - SUM({qty}) * SUM({qty})) * (COUNT(*) * SUM({amount} * {amount}) - SUM({amount}) * SUM({amount}))) AS r FROM {facts} WHERE {amount} IS NOT NULL

-- summary statistics
SELECT COUNT({amount}) AS n, MIN({amount}) AS lo, MAX({amount}) AS hi, AVG({amount}) AS mean, STDDEV({amount}) AS sd, {med:{amount}} AS median FROM {facts}

-- mean revenue of active people
SELECT {month:{day}} AS m, SUM({amount}) * 1.0 / COUNT(DISTINCT {id}) AS arpu FROM {facts} GROUP BY 1 ORDER BY 1

-- share of missing values
SELECT COUNT(*) AS n, COUNT(*) - COUNT({state}) AS missing, ROUND((COUNT(*) - COUNT({state})) * 100.0 / COUNT(*), 2) AS pct FROM {facts}

-- test of significance of two groups
SELECT (MAX(CASE WHEN {tier} = {t1} THEN m END) - MAX(CASE WHEN {tier} = {t2} THEN m END)) / SQRT(SUM(v / n)) AS z FROM (SELECT {tier}, AVG({age}) AS m, VARIANCE({age}) AS v, COUNT({age}) AS n FROM {people} WHERE {tier} IN ({t1}, {t2}) GROUP BY 1) t

-- first day of each person as a list
-- refused: individual rows
SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1 ORDER BY 2 LIMIT 20
