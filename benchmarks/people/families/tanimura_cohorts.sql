-- source: C. Tanimura, SQL for Data Analysis (O'Reilly), chapters 4, 5, 7, 8: cohorts, texts, experiments
-- address: https://github.com/cathytanimura/sql_book
-- seen: read in part
-- in: postgres duckdb

-- retention by months since the first
SELECT {months:a.first_day;b.{day}} AS period, COUNT(DISTINCT a.{id}) AS retained FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1 ORDER BY 1

-- retention as a share of the cohort
SELECT period, FIRST_VALUE(retained) OVER (ORDER BY period) AS cohort_size, retained, retained * 1.0 / FIRST_VALUE(retained) OVER (ORDER BY period) AS pct
FROM (SELECT {months:a.first_day;b.{day}} AS period, COUNT(DISTINCT a.{id}) AS retained FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1) aa ORDER BY 1

-- retention with periods side by side
SELECT cohort_size, MAX(CASE WHEN period = 0 THEN pct END) AS m0, MAX(CASE WHEN period = 1 THEN pct END) AS m1, MAX(CASE WHEN period = 2 THEN pct END) AS m2
FROM (
  SELECT period, FIRST_VALUE(retained) OVER (ORDER BY period) AS cohort_size, retained * 1.0 / FIRST_VALUE(retained) OVER (ORDER BY period) AS pct
  FROM (SELECT {months:a.first_day;b.{day}} AS period, COUNT(DISTINCT a.{id}) AS retained FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1) aa
) aaa GROUP BY 1

-- years by age of dates
-- in: postgres
SELECT date_part('year', age(b.{day}, a.first_day)) AS period, COUNT(DISTINCT a.{id}) AS retained FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1

-- cohorts by quarter of the first
SELECT {quarter:a.first_day} AS cohort, {months:a.first_day;b.{day}} AS period, COUNT(DISTINCT a.{id}) AS retained FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1, 2 ORDER BY 1, 2

-- cohorts by first value of a column
SELECT a.first_kind, COUNT(DISTINCT a.{id}) AS people FROM (SELECT DISTINCT {id}, MIN({day}) OVER (PARTITION BY {id}) AS first_day, FIRST_VALUE({kind}) OVER (PARTITION BY {id} ORDER BY {at}) AS first_kind FROM {facts}) a JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1

-- cohorts by an attribute of another table
SELECT d.{tier}, {months:a.first_day;b.{day}} AS period, COUNT(DISTINCT a.{id}) AS retained FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a JOIN {facts} b ON a.{id} = b.{id} JOIN {people} d ON a.{id} = d.{id} GROUP BY 1, 2 ORDER BY 2, 1

-- survivors beyond a span
SELECT {monthof:first_day} AS m, COUNT(DISTINCT {id}) AS cohort_size, COUNT(DISTINCT CASE WHEN {days:first_day;last_day} >= 60 THEN {id} END) AS survived, ROUND(COUNT(DISTINCT CASE WHEN {days:first_day;last_day} >= 60 THEN {id} END) * 1.0 / COUNT(DISTINCT {id}), 2) AS pct FROM (SELECT {id}, MIN({day}) AS first_day, MAX({day}) AS last_day FROM {facts} GROUP BY 1) a GROUP BY 1 ORDER BY 1

-- survivors by number of rows
SELECT {monthof:first_day} AS m, COUNT({id}) AS cohort_size, COUNT(CASE WHEN n >= 5 THEN {id} END) AS five FROM (SELECT {id}, MIN({day}) AS first_day, COUNT(*) AS n FROM {facts} GROUP BY 1) a GROUP BY 1

-- returnship to another kind
SELECT COUNT(DISTINCT a.{id}) AS had_first, COUNT(DISTINCT b.{id}) AS then_second FROM (SELECT {id}, MIN({at}) AS t FROM {facts} WHERE {kind} = {k1} GROUP BY 1) a LEFT JOIN {facts} b ON a.{id} = b.{id} AND b.{kind} = {k2} AND b.{at} > a.t

-- cumulative number of rows by cohort
SELECT {monthof:a.first_day} AS cohort, COUNT(b.{key}) AS n FROM (SELECT {id}, MIN({day}) AS first_day FROM {facts} GROUP BY 1) a LEFT JOIN {facts} b ON a.{id} = b.{id} AND b.{day} <= {add:a.first_day;90} GROUP BY 1 ORDER BY 1

-- cross section of a day
SELECT d.cal_date, COUNT(DISTINCT b.{id}) AS people FROM {facts} b JOIN dim_date d ON d.cal_date = b.{day} WHERE d.cal_date BETWEEN '2024-06-01' AND '2024-06-30' GROUP BY 1 ORDER BY 1

-- length of texts
SELECT {len:{region}} AS letters, COUNT(*) AS n FROM {people} GROUP BY 1 ORDER BY 1

-- begin of texts
SELECT LEFT({kind}, 2) AS prefix, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY 2 DESC

-- split of texts
SELECT SPLIT_PART({items}.{label}, ' ', 1) AS word, COUNT(*) AS n FROM {facts} JOIN {items} ON {items}.{code} = {facts}.{code} GROUP BY 1 ORDER BY 1

-- case of texts
-- in: postgres
SELECT INITCAP({kind}) AS shape, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY 2 DESC

-- cleaned texts
SELECT CASE WHEN TRIM({state}) = '' THEN 'unknown' WHEN {state} LIKE '%e%' THEN REPLACE({state}, 'e', 'E') ELSE COALESCE({state}, 'none') END AS clean, COUNT(*) AS n FROM {facts} GROUP BY 1

-- patterns in texts
SELECT CASE WHEN LOWER({kind}) LIKE '%o%' THEN 'o' WHEN LOWER({kind}) LIKE '%a%' THEN 'a' ELSE 'other' END AS has, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY 2 DESC

-- patterns by regular expression
-- in: postgres
SELECT {kind} ~ '^[a-m]' AS early, COUNT(*) AS n FROM {facts} GROUP BY 1

-- patterns without case
-- in: postgres
SELECT COUNT(*) FROM {facts} WHERE {kind} ~* 'O|A' AND {kind} NOT ILIKE '%z%'

-- experiment with a yes or no
SELECT a.{tier} AS variant, COUNT(a.{id}) AS total, COUNT(b.{id}) AS done, COUNT(b.{id}) * 1.0 / COUNT(a.{id}) AS pct FROM {people} a LEFT JOIN {facts} b ON a.{id} = b.{id} AND b.{kind} = {k1} GROUP BY 1

-- experiment with a distinct yes or no
SELECT a.{tier} AS variant, COUNT(DISTINCT a.{id}) AS total, COUNT(DISTINCT b.{id}) AS buyers, COUNT(DISTINCT b.{id}) * 1.0 / COUNT(DISTINCT a.{id}) AS pct FROM {people} a LEFT JOIN {facts} b ON a.{id} = b.{id} JOIN {logs} c ON a.{id} = c.{id} AND c.{channel} = {c1} GROUP BY 1

-- experiment with amounts
SELECT variant, COUNT({id}) AS total, AVG(amount) AS mean, STDDEV(amount) AS sd FROM (SELECT a.{tier} AS variant, a.{id}, SUM(COALESCE(b.{amount}, 0)) AS amount FROM {people} a LEFT JOIN {facts} b ON a.{id} = b.{id} GROUP BY 1, 2) a GROUP BY 1

-- experiment within seven days
SELECT variant, COUNT({id}) AS total, AVG(amount) AS mean FROM (SELECT a.{tier} AS variant, a.{id}, SUM(COALESCE(b.{amount}, 0)) AS amount FROM {people} a LEFT JOIN {facts} b ON a.{id} = b.{id} AND b.{day} <= {add:a.{joined};7} GROUP BY 1, 2) a GROUP BY 1

-- before and after
SELECT CASE WHEN a.{joined} BETWEEN '2024-02-01' AND '2024-04-30' THEN 'pre' WHEN a.{joined} BETWEEN '2024-05-01' AND '2024-07-31' THEN 'post' END AS variant, COUNT(DISTINCT a.{id}) AS cohort, COUNT(DISTINCT b.{id}) AS opted, COUNT(DISTINCT b.{id}) * 1.0 / COUNT(DISTINCT a.{id}) AS pct, COUNT(DISTINCT a.{joined}) AS days FROM {people} a LEFT JOIN {logs} b ON a.{id} = b.{id} AND b.{channel} = {c1} WHERE a.{joined} BETWEEN '2024-02-01' AND '2024-07-31' GROUP BY 1

-- natural experiment
SELECT a.{region}, COUNT(DISTINCT a.{id}) AS total, COUNT(DISTINCT b.{id}) AS buyers FROM {people} a LEFT JOIN {facts} b ON a.{id} = b.{id} WHERE a.{region} IN ({r1}, {r2}) GROUP BY 1

-- rows of a temporary step
WITH step AS (SELECT {id}, {kind}, SUM({amount}) AS total FROM {facts} GROUP BY 1, 2) SELECT {kind}, AVG(total) AS mean, COUNT(*) AS people FROM step GROUP BY 1 HAVING COUNT(*) > 3 ORDER BY 2 DESC

-- grouping sets by hand
SELECT {kind}, NULL AS {state}, SUM({qty}) AS total FROM {facts} GROUP BY 1 UNION ALL SELECT NULL, {state}, SUM({qty}) FROM {facts} WHERE {state} IS NOT NULL GROUP BY 2
