-- source: A. Molinaro and R. de Graaf, SQL Cookbook (O'Reilly), 2nd edition
-- address: https://www.oreilly.com/library/view/sql-cookbook-2nd/9781492077435/
-- seen: remembered
-- in: postgres tsql duckdb

-- mean by department
SELECT {region}, AVG({num:{age}}) AS mean FROM {people} GROUP BY {region}

-- extremes by department
SELECT {region}, MIN({age}) AS lo, MAX({age}) AS hi FROM {people} GROUP BY {region}

-- rows that are not null
SELECT COUNT({amount}) AS known, COUNT(*) AS n FROM {facts}

-- running total of groups
SELECT {kind}, s, SUM(s) OVER (ORDER BY s, {kind}) AS running FROM (SELECT {kind}, SUM({qty}) AS s FROM {facts} GROUP BY {kind}) t

-- mode by dense rank
SELECT {qty} FROM (SELECT {qty}, DENSE_RANK() OVER (ORDER BY cnt DESC) AS rnk FROM (SELECT {qty}, COUNT(*) AS cnt FROM {facts} GROUP BY {qty}) x) y WHERE rnk = 1

-- percent of a total
SELECT (SUM(CASE WHEN {kind} = {k1} THEN {qty} END) * 100.0 / SUM({qty})) AS pct FROM {facts}

-- mean without the extremes
SELECT AVG({num:{qty}}) AS mean FROM {facts} WHERE {qty} NOT IN ((SELECT MIN({qty}) FROM {facts}), (SELECT MAX({qty}) FROM {facts}))

-- mean without the extremes by windows
SELECT AVG({num:{qty}}) AS mean FROM (SELECT {qty}, MIN({qty}) OVER () AS lo, MAX({qty}) OVER () AS hi FROM {facts}) x WHERE {qty} NOT IN (lo, hi)

-- cumulative by two levels
SELECT {region}, {tier}, COUNT(*) AS n, SUM(COUNT(*)) OVER (PARTITION BY {region} ORDER BY {tier}) AS running FROM {people} GROUP BY {region}, {tier}

-- subtotals by rollup with labels
SELECT CASE WHEN GROUPING({kind}) = 0 THEN {kind} ELSE 'TOTAL' END AS job, SUM({qty}) AS s FROM {facts} GROUP BY ROLLUP ({kind})

-- subtotals of all combinations
SELECT {kind}, {state}, CASE WHEN GROUPING({kind}) = 0 AND GROUPING({state}) = 0 THEN 'both' WHEN GROUPING({kind}) = 0 THEN 'kind' WHEN GROUPING({state}) = 0 THEN 'state' ELSE 'all' END AS category, SUM({qty}) AS s FROM {facts} GROUP BY CUBE ({kind}, {state})

-- pivot into one row
SELECT SUM(CASE WHEN {tier} = {t1} THEN 1 ELSE 0 END) AS dept_10, SUM(CASE WHEN {tier} = {t2} THEN 1 ELSE 0 END) AS dept_20, SUM(CASE WHEN {tier} = {t3} THEN 1 ELSE 0 END) AS dept_30 FROM {people}

-- buckets of a fixed size
SELECT CEILING({qty} / 3.0) AS grp, COUNT(*) AS n FROM {facts} GROUP BY CEILING({qty} / 3.0) ORDER BY grp

-- horizontal histogram
-- in: postgres duckdb
SELECT {kind}, LPAD('*', CAST(COUNT(*) / 10 AS INTEGER), '*') AS bar FROM {facts} GROUP BY {kind}

-- difference of neighbours of groups
SELECT m, n, COALESCE(CAST(LEAD(n) OVER (ORDER BY m) - n AS VARCHAR(10)), 'N/A') AS diff FROM (SELECT {monthof:{day}} AS m, COUNT(*) AS n FROM {facts} GROUP BY {monthof:{day}}) t

-- years between the first and the last
SELECT MIN({joined}) AS first_hire, MAX({joined}) AS last_hire, {days:MIN({joined});MAX({joined})} AS days FROM {people}

-- hires by quarter
SELECT {quarterof:{joined}} AS q, COUNT(*) AS n FROM {people} GROUP BY {quarterof:{joined}} ORDER BY q

-- months with no hires from a calendar
SELECT d.cal_month, COUNT(p.{id}) AS hires FROM dim_date d LEFT JOIN {people} p ON p.{joined} = d.cal_date GROUP BY d.cal_month ORDER BY d.cal_month

-- hired on the same weekday
SELECT d.weekday_name, COUNT(*) AS n FROM {people} p JOIN dim_date d ON d.cal_date = p.{joined} GROUP BY d.weekday_name ORDER BY n DESC

-- overlapping spans of a person
SELECT COUNT(*) AS overlaps FROM {facts} a JOIN {facts} b ON a.{id} = b.{id} AND b.{day} >= a.{day} AND b.{day} <= {add:a.{day};5} AND a.{key} <> b.{key}

-- longest of a group by correlated subquery
SELECT COUNT(*) AS n FROM {facts} f WHERE f.{at} = (SELECT MAX(g.{at}) FROM {facts} g WHERE g.{id} = f.{id})

-- outliers by the median deviation
-- in: postgres duckdb
WITH m AS (SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {amount}) AS med FROM {facts}), d AS (SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY ABS({amount} - med)) AS mad FROM {facts} CROSS JOIN m) SELECT mad FROM d

-- benford's law
SELECT LEFT(CAST({qty} AS VARCHAR(10)), 1) AS digit, COUNT(*) AS n FROM {facts} GROUP BY LEFT(CAST({qty} AS VARCHAR(10)), 1) ORDER BY digit

-- names in a list
-- refused: values of rows
SELECT {region}, STRING_AGG(CAST({id} AS VARCHAR(10)), ',') AS ids FROM {people} GROUP BY {region}

-- mean of a window for each row
-- refused: individual rows
SELECT {id}, {region}, {age}, AVG({age}) OVER (PARTITION BY {region}) AS mean FROM {people}
