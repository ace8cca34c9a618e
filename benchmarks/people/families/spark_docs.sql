-- source: Apache Spark documentation: SQL reference
-- address: https://spark.apache.org/docs/latest/sql-ref.html
-- seen: remembered
-- in: spark

-- group and having
SELECT {kind}, sum({qty}) AS sum FROM {facts} GROUP BY {kind} HAVING sum({qty}) > 15 ORDER BY {kind}

-- count distinct beside a filter
SELECT count(DISTINCT {kind}) AS k, count(*) FILTER (WHERE {qty} > 5) AS n, count_if({flag}) AS f FROM {facts}

-- grouping sets
SELECT {kind}, {state}, sum({qty}) AS s FROM {facts} GROUP BY GROUPING SETS (({kind}, {state}), ({kind}), ({state}), ()) ORDER BY {kind}, {state}

-- with rollup
SELECT {region}, {tier}, count(*) AS n FROM {people} GROUP BY {region}, {tier} WITH ROLLUP ORDER BY {region}, {tier}

-- with cube
SELECT {region}, {tier}, count(*) AS n FROM {people} GROUP BY CUBE ({region}, {tier})

-- any and every
-- refused: one row would decide it
SELECT any({flag}), every({flag}), some({flag}) FROM {facts}

-- percentiles
SELECT percentile({amount}, 0.5) AS p, percentile_approx({amount}, 0.9) AS a, median({qty}) AS m FROM {facts}

-- percentile arrays
SELECT percentile_approx({amount}, array(0.25, 0.5, 0.75), 1000) AS p FROM {facts}

-- percentile within group
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY {amount}) AS c FROM {facts}

-- approximate distinct
SELECT approx_count_distinct({id}) AS users FROM {facts}

-- collect
-- refused: values of rows
SELECT collect_list({kind}) FROM {facts}

-- set of keys
SELECT sort_array(collect_set({kind})) AS kinds FROM {facts}

-- first and last
-- refused: values of rows
SELECT first({amount}), last({amount}) FROM {facts}

-- max by over groups
SELECT max_by({kind}, n) AS best FROM (SELECT {kind}, count(*) AS n FROM {facts} GROUP BY {kind})

-- statistics
SELECT avg({amount}) AS m, mean({qty}) AS q, stddev({amount}) AS s, std({qty}) AS d, variance({amount}) AS v, corr({amount}, {qty}) AS r FROM {facts}

-- skewness and kurtosis
SELECT skewness({amount}) AS s, kurtosis({amount}) AS k FROM {facts}

-- mode
SELECT mode({qty}) AS m FROM {facts} WHERE {qty} = 4

-- months and years
SELECT year({day}) AS y, month({day}) AS m, count(*) AS n FROM {facts} GROUP BY year({day}), month({day}) ORDER BY y, m

-- date trunc and trunc
SELECT trunc({day}, 'MM') AS m, date_trunc('WEEK', {at}) AS w, count(*) AS n FROM {facts} GROUP BY 1, 2 ORDER BY 1, 2

-- date format
SELECT date_format({day}, 'yyyy-MM') AS ym, count(*) AS n FROM {facts} GROUP BY ym ORDER BY ym

-- name of the weekday
SELECT date_format({day}, 'EEEE') AS d, count(*) AS n FROM {facts} GROUP BY 1

-- number of the weekday
SELECT dayofweek({day}) AS d, weekday({day}) AS w, count(*) AS n FROM {facts} GROUP BY 1, 2 ORDER BY 1

-- datediff and months between
SELECT avg(datediff(f.{day}, p.{joined})) AS d, avg(months_between(f.{day}, p.{joined})) AS m FROM {facts} f JOIN {people} p ON p.{id} = f.{id}

-- date add and sub
SELECT count(*) AS n FROM {facts} WHERE {day} BETWEEN date_sub(DATE'2024-07-01', 60) AND date_add(DATE'2024-07-01', 30)

-- add months
SELECT count(*) AS n FROM {facts} f JOIN {people} p USING ({id}) WHERE f.{day} <= add_months(p.{joined}, 2)

-- to date with a pattern
SELECT count(*) AS n FROM {facts} WHERE {day} > to_date('2024/06/01', 'yyyy/MM/dd')

-- last day
SELECT last_day({day}) AS m, count(*) AS n FROM {facts} GROUP BY 1 ORDER BY 1

-- extract
SELECT extract(QUARTER FROM {day}) AS q, extract(HOUR FROM {at}) AS h, count(*) AS n FROM {facts} GROUP BY 1, 2 ORDER BY 1, 2

-- window over groups
SELECT {kind}, n, RANK() OVER (ORDER BY n DESC) AS r, SUM(n) OVER () AS total, n / SUM(n) OVER () AS share FROM (SELECT {kind}, count(*) AS n FROM {facts} GROUP BY {kind})

-- lag over months
SELECT m, n, lag(n) OVER (ORDER BY m) AS before, lead(n, 2) OVER (ORDER BY m) AS after FROM (SELECT month({day}) AS m, count(*) AS n FROM {facts} GROUP BY 1) ORDER BY m

-- qualify by a subquery
SELECT {state}, {kind}, n FROM (SELECT {state}, {kind}, count(*) AS n, row_number() OVER (PARTITION BY {state} ORDER BY count(*) DESC, {kind}) AS rn FROM {facts} GROUP BY {state}, {kind}) WHERE rn = 1

-- pivot
SELECT * FROM (SELECT {state}, {kind}, {qty} FROM {facts}) PIVOT (sum({qty}) AS s FOR {kind} IN ({k1} AS a, {k2} AS b))

-- lateral view
SELECT k, count(*) AS n FROM {facts} LATERAL VIEW explode(array(1, 2)) t AS k GROUP BY k

-- sequence of days
SELECT d, count(f.{key}) AS n FROM (SELECT explode(sequence(DATE'2024-05-01', DATE'2024-05-07', INTERVAL 1 DAY)) AS d) c LEFT JOIN {facts} f ON f.{day} = d GROUP BY d ORDER BY d

-- semi and anti joins
SELECT count(*) AS n FROM {people} p LEFT SEMI JOIN {facts} f ON p.{id} = f.{id}

-- anti join
SELECT {region}, count(*) AS n FROM {people} p LEFT ANTI JOIN {facts} f ON p.{id} = f.{id} GROUP BY {region}

-- null functions
SELECT nvl({state}, 'none') AS s, sum(ifnull({amount}, 0)) AS a, sum(if({qty} > 5, 1, 0)) AS b FROM {facts} GROUP BY nvl({state}, 'none')

-- null safe comparison
SELECT count(*) AS n FROM {facts} WHERE NOT {state} <=> {s1}

-- texts
SELECT upper(substr({kind}, 1, 2)) AS p, length({kind}) AS l, concat({kind}, '-', {kind}) AS c, count(*) AS n FROM {facts} WHERE {kind} RLIKE '^[a-m]' OR contains({kind}, 'o') GROUP BY 1, 2, 3

-- division
SELECT sum({qty}) / count(*) AS q, sum({qty}) DIV count(*) AS d, sum({qty}) % 7 AS m FROM {facts}

-- casts
SELECT cast(avg({qty}) AS INT) AS i, cast(sum({amount}) AS DECIMAL(12, 2)) AS d, cast(count(*) AS STRING) AS t, double(avg({qty})) AS f FROM {facts}

-- casts of a column
SELECT cast({amount} AS INT) AS whole, count(*) AS n FROM {facts} GROUP BY 1 ORDER BY n DESC, whole LIMIT 3

-- width bucket
SELECT width_bucket({amount}, 0, 200, 4) AS b, count(*) AS n FROM {facts} WHERE {amount} IS NOT NULL GROUP BY b ORDER BY b

-- bround and ceil
SELECT round(avg({amount}), 1) AS r, ceil(avg({qty})) AS c, floor(avg({qty})) AS f, pow(avg({qty}), 2) AS p FROM {facts}

-- backticks
SELECT `{kind}` AS `the kind`, count(1) AS `how many` FROM `{facts}` GROUP BY `{kind}`

-- sample
-- random: yes
SELECT avg({amount}) FROM {facts} TABLESAMPLE (10 PERCENT)

-- group by an alias and ALL
SELECT {kind} AS k, {state} AS s, count(*) AS n FROM {facts} GROUP BY ALL ORDER BY k, s

-- hints
SELECT /*+ BROADCAST(p) */ p.{region}, count(*) AS n FROM {facts} f JOIN {people} p ON p.{id} = f.{id} GROUP BY p.{region}

-- count of nulls
SELECT count(*) - count({state}) AS missing, sum(CASE WHEN isnull({amount}) THEN 1 ELSE 0 END) AS unknown, count_if(isnotnull({flag})) AS known FROM {facts}

-- try functions
SELECT try_divide(sum({amount}), sum({qty})) AS q, try_add(sum({qty}), 1) AS a FROM {facts}
