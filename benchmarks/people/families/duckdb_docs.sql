-- source: DuckDB's documentation: functions, friendly SQL, guides
-- address: https://duckdb.org/docs/
-- seen: remembered
-- in: duckdb

-- GROUP BY ALL
SELECT {kind}, {state}, COUNT(*) AS n, SUM({amount}) AS total FROM {facts} GROUP BY ALL ORDER BY ALL

-- FROM first
FROM {facts} SELECT {kind}, AVG({amount}) AS mean GROUP BY {kind} ORDER BY {kind}

-- count and filter
SELECT COUNT(*) AS n, COUNT(*) FILTER ({qty} > 5) AS large, COUNT({amount}) FILTER (WHERE {kind} = {k1}) AS known FROM {facts}

-- alias in WHERE
SELECT {qty} * 2 AS doubled, COUNT(*) AS n FROM {facts} WHERE doubled > 6 GROUP BY doubled ORDER BY doubled

-- alias in HAVING
SELECT {kind}, SUM({qty}) AS total FROM {facts} GROUP BY {kind} HAVING total > 50 ORDER BY total DESC

-- grouping sets
SELECT {kind}, {state}, SUM({qty}) AS total FROM {facts} GROUP BY GROUPING SETS (({kind}, {state}), ({kind}), ()) ORDER BY 1 NULLS LAST, 2 NULLS LAST

-- cube
SELECT {kind}, {state}, COUNT(*) AS n FROM {facts} GROUP BY CUBE ({kind}, {state})

-- rollup
SELECT {region}, {tier}, COUNT(*) AS n, AVG({age}) AS mean_age FROM {people} GROUP BY ROLLUP ({region}, {tier}) ORDER BY {region}, {tier}

-- grouping id
SELECT GROUPING({region}) AS g, {region}, COUNT(*) AS n FROM {people} GROUP BY ROLLUP ({region}) ORDER BY g, {region}

-- pivot
PIVOT {facts} ON {kind} USING SUM({qty}) GROUP BY {state}

-- pivot of several values
PIVOT {facts} ON {kind} IN ({k1}, {k2}) USING SUM({qty}) AS total, COUNT(*) AS n GROUP BY {state} ORDER BY {state}

-- unpivot of an aggregate
UNPIVOT (SELECT SUM({amount}) AS amount, SUM({qty}) AS qty FROM {facts}) ON amount, qty INTO NAME what VALUE total

-- qualify
SELECT {kind}, {state}, COUNT(*) AS n FROM {facts} GROUP BY {kind}, {state} QUALIFY ROW_NUMBER() OVER (PARTITION BY {kind} ORDER BY n DESC, {state}) = 1

-- arg max of an aggregate
SELECT ARG_MAX({kind}, total) AS best FROM (SELECT {kind}, SUM({amount}) AS total FROM {facts} GROUP BY {kind})

-- arg max of a person
SELECT last_kind, COUNT(*) AS people FROM (SELECT {id}, ARG_MAX({kind}, {at}) AS last_kind FROM {facts} GROUP BY {id}) GROUP BY last_kind

-- mode
SELECT MODE({kind}) AS usual FROM {facts}

-- quantiles as a list
SELECT QUANTILE_CONT({amount}, [0.25, 0.5, 0.75]) AS q FROM {facts}

-- discrete quantile
SELECT {kind}, QUANTILE_DISC({qty}, 0.9) AS p90 FROM {facts} GROUP BY {kind}

-- median absolute deviation
SELECT MAD({amount}) AS mad FROM {facts}

-- histogram
SELECT HISTOGRAM({qty}) AS h FROM {facts}

-- spread
SELECT VAR_SAMP({amount}) AS v, STDDEV_POP({amount}) AS s, SKEWNESS({amount}) AS k, KURTOSIS({amount}) AS u FROM {facts}

-- regression
SELECT REGR_SLOPE({amount}, {qty}) AS slope, REGR_INTERCEPT({amount}, {qty}) AS start, REGR_R2({amount}, {qty}) AS fit, CORR({amount}, {qty}) AS r FROM {facts}

-- approximate distinct
SELECT APPROX_COUNT_DISTINCT({id}) AS people FROM {facts}

-- entropy
SELECT ENTROPY({kind}) AS e FROM {facts}

-- bool and, bool or
-- refused: one row would decide it
SELECT {kind}, BOOL_OR({flag}) AS any_flag, BOOL_AND({flag}) AS all_flag FROM {facts} GROUP BY {kind}

-- list of values
SELECT LIST(DISTINCT {kind} ORDER BY {kind}) AS kinds FROM {facts}

-- texts together
SELECT STRING_AGG(DISTINCT {kind}, ', ' ORDER BY {kind}) AS kinds FROM {facts}

-- time bucket
SELECT time_bucket(INTERVAL '2 weeks', {day}) AS span, COUNT(*) AS n FROM {facts} GROUP BY span ORDER BY span

-- names of days
SELECT dayname({at}) AS weekday, COUNT(*) AS n FROM {facts} GROUP BY weekday ORDER BY n DESC

-- text of a date
SELECT strftime({at}, '%Y-%m') AS month, COUNT(*) AS n FROM {facts} GROUP BY month ORDER BY month

-- asof join
SELECT COUNT(*) AS n FROM {logs} ASOF JOIN {facts} ON {logs}.{id} = {facts}.{id} AND {logs}.{lat} >= {facts}.{at}

-- summarize
-- refused: descriptions of a table's columns hold extremes and samples of rows
SUMMARIZE {facts}

-- sample of rows
-- random: yes
SELECT AVG({amount}) AS mean FROM {facts} USING SAMPLE 10%

-- lambda over a list of public values
SELECT list_sum(list_transform([1, 2, 3], lambda x: x * 2)) AS s, COUNT(*) AS n FROM {facts}

-- positional columns
SELECT COLUMNS('n|total') FROM (SELECT COUNT(*) AS n, SUM({amount}) AS total FROM {facts})

-- exclude of an aggregate
SELECT * EXCLUDE (n) FROM (SELECT {kind}, COUNT(*) AS n, SUM({qty}) AS total FROM {facts} GROUP BY {kind}) ORDER BY {kind}

-- replace of an aggregate
SELECT * REPLACE (ROUND(total, -1) AS total) FROM (SELECT {kind}, SUM({qty}) AS total FROM {facts} GROUP BY {kind}) ORDER BY {kind}

-- aggregates of all columns
-- refused: extremes of columns without bounds
SELECT MIN(COLUMNS(*)) FROM {facts}

-- max by with n
-- refused: values of single rows
SELECT MAX_BY({kind}, {amount}, 3) AS top FROM {facts}

-- union by name
SELECT {kind} AS what, COUNT(*) AS n FROM {facts} GROUP BY ALL UNION ALL BY NAME SELECT COUNT(*) AS n, 'all' AS what FROM {facts}

-- age of rows
SELECT AVG(date_diff('day', {joined}, DATE '2024-12-31')) AS days FROM {people}

-- equi width bins
SELECT FLOOR({amount} / 25) * 25 AS bin, COUNT(*) AS n FROM {facts} GROUP BY bin ORDER BY bin

-- integer division
SELECT {age} // 10 * 10 AS decade, COUNT(*) AS people FROM {people} GROUP BY 1 ORDER BY 1

-- is distinct from
SELECT COUNT(*) AS n FROM {facts} WHERE {state} IS DISTINCT FROM {s1}

-- if function
SELECT IF({qty} > 4, 'large', 'small') AS size, COUNT(*) AS n FROM {facts} GROUP BY size

-- contains
SELECT COUNT(*) AS n FROM {facts} WHERE {kind}.contains('a')

-- regular expression
SELECT COUNT(*) AS n FROM {facts} WHERE regexp_matches({kind}, '^[a-m]')

-- window frame over months
SELECT month, n, AVG(n) OVER (ORDER BY month RANGE BETWEEN INTERVAL 3 MONTHS PRECEDING AND CURRENT ROW) AS smooth FROM (SELECT date_trunc('month', {day}) AS month, COUNT(*) AS n FROM {facts} GROUP BY 1) ORDER BY month

-- cumulative distribution of groups
SELECT {kind}, n, CUME_DIST() OVER (ORDER BY n) AS c, PERCENT_RANK() OVER (ORDER BY n) AS p FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind})

-- named window
SELECT month, n, SUM(n) OVER w AS running, LAG(n) OVER w AS before FROM (SELECT date_trunc('month', {day}) AS month, COUNT(*) AS n FROM {facts} GROUP BY 1) WINDOW w AS (ORDER BY month) ORDER BY month

-- recursive calendar
WITH RECURSIVE days(d) AS (SELECT DATE '2024-03-01' UNION ALL SELECT d + 1 FROM days WHERE d < DATE '2024-03-10') SELECT CAST(d AS DATE) AS d, COUNT({facts}.{key}) AS n FROM days LEFT JOIN {facts} ON {facts}.{day} = days.d GROUP BY 1 ORDER BY 1

-- range of days
SELECT CAST(r.d AS DATE) AS d, COUNT({key}) AS n FROM range(DATE '2024-04-01', DATE '2024-04-08', INTERVAL 1 DAY) AS r(d) LEFT JOIN {facts} ON {day} = CAST(r.d AS DATE) GROUP BY 1 ORDER BY 1

-- semi and anti join
SELECT COUNT(*) AS people FROM {people} SEMI JOIN {facts} USING ({id})

-- anti join
SELECT {region}, COUNT(*) AS people FROM {people} ANTI JOIN {facts} USING ({id}) GROUP BY {region} ORDER BY {region}

-- weighted mean
SELECT SUM({amount} * {qty}) / SUM({qty}) AS weighted FROM {facts}

-- first and last by order
-- refused: a value of one row
SELECT FIRST({kind} ORDER BY {at}) AS first_kind FROM {facts}

-- any value of a dependent column
SELECT {items}.{code}, ANY_VALUE({items}.{label}) AS label, COUNT(*) AS n FROM {facts} JOIN {items} USING ({code}) GROUP BY {items}.{code} ORDER BY n DESC

-- product
-- refused: one row would decide it
SELECT PRODUCT(1 + {score} / 100) AS growth FROM {logs}

-- geometric mean
-- refused: unbounded, as the logarithm of values near zero is
SELECT GEOMEAN({amount}) AS g FROM {facts}

-- case insensitive like
SELECT COUNT(*) AS n FROM {people} WHERE {region} ILIKE '%a%'

-- between quarters
SELECT quarter({day}) AS q, COUNT(DISTINCT {id}) AS people FROM {facts} GROUP BY q ORDER BY q

-- limit as a percentage
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC LIMIT 40%

-- rows alone
-- refused: individual rows
SELECT * FROM {facts} LIMIT 10
