-- source: Mode: SQL tutorial and analytics case studies
-- address: https://mode.com/sql-tutorial
-- seen: remembered
-- in: postgres duckdb

-- count, sum, minimum, maximum, mean
SELECT COUNT({amount}) AS n, SUM({amount}) AS s, MIN({amount}) AS lo, MAX({amount}) AS hi, AVG({amount}) AS mean FROM {facts} WHERE {amount} IS NOT NULL

-- group by year and month
SELECT {yearof:{day}} AS y, {monthof:{day}} AS m, COUNT(*) AS n FROM {facts} GROUP BY 1, 2 ORDER BY 1, 2

-- having on a maximum
SELECT {monthof:{day}} AS m, MAX({qty}) AS hi FROM {facts} GROUP BY 1 HAVING MAX({qty}) > 4 ORDER BY 1

-- case within a count
SELECT CASE WHEN {tier} = {t1} THEN 'FR' ELSE 'Not FR' END AS year_group, COUNT(1) AS n FROM {people} GROUP BY 1

-- case for columns
SELECT {region}, COUNT(CASE WHEN {tier} = {t1} THEN 1 ELSE NULL END) AS a, COUNT(CASE WHEN {tier} = {t2} THEN 1 ELSE NULL END) AS b, COUNT(1) AS total FROM {people} GROUP BY {region} ORDER BY total DESC

-- distinct in an aggregate
SELECT {monthof:{day}} AS m, COUNT(DISTINCT {kind}) AS kinds, COUNT(DISTINCT {id}) / COUNT(DISTINCT {kind})::float AS each FROM {facts} GROUP BY 1 ORDER BY 1
-- means
SELECT {monthof:{day}} AS m, COUNT(DISTINCT {kind}) AS kinds, COUNT(DISTINCT {id}) / COUNT(DISTINCT {kind}) AS each FROM {facts} GROUP BY 1 ORDER BY 1

-- join and null counts
SELECT COUNT(CASE WHEN p.{id} IS NOT NULL AND f.{id} IS NULL THEN p.{id} END) AS people_only, COUNT(CASE WHEN p.{id} IS NOT NULL AND f.{id} IS NOT NULL THEN p.{id} END) AS both_tables, COUNT(CASE WHEN p.{id} IS NULL AND f.{id} IS NOT NULL THEN f.{id} END) AS facts_only FROM {people} p FULL JOIN {facts} f ON p.{id} = f.{id}

-- join with a filter in ON
SELECT p.{region}, COUNT(DISTINCT p.{id}) AS companies, COUNT(DISTINCT f.{id}) AS acquired FROM {people} p LEFT JOIN {facts} f ON p.{id} = f.{id} AND f.{at} >= p.{joined}::timestamp GROUP BY 1 ORDER BY 3 DESC
-- means
SELECT p.{region}, COUNT(DISTINCT p.{id}) AS companies, COUNT(DISTINCT f.{id}) AS acquired FROM {people} p LEFT JOIN {facts} f ON p.{id} = f.{id} AND f.{at} >= p.{joined} GROUP BY 1 ORDER BY 3 DESC

-- union of counts
SELECT {tier}, COUNT(*) AS n FROM (SELECT {id}, {tier} FROM {people} WHERE {age} < 40 UNION ALL SELECT {id}, {tier} FROM {people} WHERE {age} >= 40) t GROUP BY 1

-- subquery by day, then mean by weekday
SELECT d.weekday_name, AVG(s.n) AS mean FROM (SELECT {day}, COUNT(*) AS n FROM {facts} GROUP BY 1) s JOIN dim_date d ON d.cal_date = s.{day} GROUP BY 1 ORDER BY 1

-- subquery in a condition
SELECT COUNT(*) AS n FROM {facts} WHERE {day} IN (SELECT cal_date FROM dim_date WHERE is_weekend)

-- subquery with a limit
SELECT COUNT(*) AS n FROM {facts} WHERE {day} IN (SELECT cal_date FROM dim_date ORDER BY cal_date LIMIT 100)

-- dates as intervals
SELECT COUNT(CASE WHEN f.{at} <= p.{joined}::timestamp + INTERVAL '3 months' THEN 1 ELSE NULL END) AS within_three, COUNT(CASE WHEN f.{at} <= p.{joined}::timestamp + INTERVAL '1 year' THEN 1 ELSE NULL END) AS within_year FROM {people} p JOIN {facts} f ON f.{id} = p.{id}
-- means
SELECT COUNT(CASE WHEN f.{at} <= p.{joined} + INTERVAL '3 months' THEN 1 ELSE NULL END) AS a, COUNT(CASE WHEN f.{at} <= p.{joined} + INTERVAL '1 year' THEN 1 ELSE NULL END) AS b FROM {people} p JOIN {facts} f ON f.{id} = p.{id}

-- texts to dates
SELECT LEFT({kind}, 1) AS a, RIGHT({kind}, 1) AS b, COUNT(*) AS n FROM {facts} GROUP BY 1, 2 ORDER BY 1, 2

-- weekly engagement
SELECT date_trunc('week', {at}) AS week, COUNT(DISTINCT {id}) AS weekly_active_users FROM {facts} WHERE {kind} = {k1} AND {at} >= '2024-05-01' AND {at} < '2024-09-01' GROUP BY 1 ORDER BY 1

-- engagement by the age of an account
SELECT date_trunc('month', z.{at}) AS m, COUNT(DISTINCT CASE WHEN z.user_age > 70 THEN z.{id} END) AS w10, COUNT(DISTINCT CASE WHEN z.user_age <= 70 AND z.user_age > 35 THEN z.{id} END) AS w5, COUNT(DISTINCT CASE WHEN z.user_age <= 35 THEN z.{id} END) AS w0 FROM (SELECT f.{at}, f.{id}, {days:p.{joined};f.{day}} AS user_age FROM {facts} f JOIN {people} p ON p.{id} = f.{id}) z GROUP BY 1 ORDER BY 1

-- device of the week
SELECT date_trunc('month', f.{at}) AS m, COUNT(DISTINCT f.{id}) AS all_users, COUNT(DISTINCT CASE WHEN p.{tier} IN ({t1}) THEN f.{id} ELSE NULL END) AS one, COUNT(DISTINCT CASE WHEN p.{tier} IN ({t2}, {t3}) THEN f.{id} ELSE NULL END) AS others FROM {facts} f JOIN {people} p ON p.{id} = f.{id} GROUP BY 1 ORDER BY 1 LIMIT 100

-- email open rate with a self join
SELECT {monthof:e1.{at}} AS m, COUNT(CASE WHEN e1.{kind} = {k1} THEN e1.{id} ELSE NULL END) AS sent, COUNT(CASE WHEN e1.{kind} = {k1} THEN e2.{id} ELSE NULL END) AS opened FROM {facts} e1 LEFT JOIN {facts} e2 ON e2.{at} >= e1.{at} AND e2.{at} < e1.{at} + INTERVAL '30 days' AND e2.{id} = e1.{id} AND e2.{kind} = {k2} GROUP BY 1 ORDER BY 1

-- window total by rows of months
SELECT m, n, SUM(n) OVER (ORDER BY m) AS running, ROW_NUMBER() OVER (ORDER BY n DESC) AS rn, NTILE(4) OVER (ORDER BY n) AS quartile, n - LAG(n, 1) OVER (ORDER BY m) AS difference FROM (SELECT {monthof:{day}} AS m, COUNT(*) AS n FROM {facts} GROUP BY 1) t ORDER BY m

-- experiment with a t statistic
SELECT {tier}, users, total, ROUND(users * 1.0 / SUM(users) OVER (), 4) AS treatment_percent, average, stdev FROM (SELECT p.{tier}, COUNT(DISTINCT p.{id}) AS users, COUNT(f.{key}) AS total, AVG(f.{qty}) AS average, STDDEV(f.{qty}) AS stdev FROM {people} p LEFT JOIN {facts} f ON f.{id} = p.{id} GROUP BY 1) t

-- rows of a table
-- refused: individual rows
SELECT * FROM {people} WHERE {region} = {r1} LIMIT 15
