-- source: Snowflake documentation: SQL reference, aggregate and window functions
-- address: https://docs.snowflake.com/en/sql-reference
-- seen: remembered
-- in: snowflake

-- count if
SELECT COUNT_IF({qty} > 5) AS large, COUNT(*) AS n FROM {facts}

-- ratio to report
SELECT {kind}, SUM({amount}) AS total, RATIO_TO_REPORT(SUM({amount})) OVER () AS share FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, SUM({amount}) AS total, SUM({amount}) / SUM(SUM({amount})) OVER () FROM {facts} GROUP BY 1

-- qualify the best of each
SELECT {state}, {kind}, COUNT(*) AS n FROM {facts} GROUP BY {state}, {kind} QUALIFY ROW_NUMBER() OVER (PARTITION BY {state} ORDER BY n DESC, {kind}) = 1

-- qualify rows of a person
SELECT {kind}, COUNT(*) AS n FROM (SELECT {id}, {kind} FROM {facts} QUALIFY ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at} DESC) = 1) GROUP BY {kind}

-- median and percentile
SELECT MEDIAN({amount}) AS med, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {amount}) AS p90, APPROX_PERCENTILE({amount}, 0.25) AS p25 FROM {facts}
-- means
SELECT MEDIAN({amount}), QUANTILE_CONT({amount}, 0.9), QUANTILE_CONT({amount}, 0.25) FROM {facts}

-- approximate distinct
SELECT APPROX_COUNT_DISTINCT({id}) AS a, HLL({id}) AS h FROM {facts}
-- means
SELECT COUNT(DISTINCT {id}), COUNT(DISTINCT {id}) FROM {facts}

-- mode
SELECT MODE({qty}) AS m FROM {facts}

-- iff, zeroifnull, nvl
SELECT SUM(IFF({qty} > 5, 1, 0)) AS big, SUM(ZEROIFNULL({amount})) AS total, COUNT(NVL({state}, 'x')) AS n FROM {facts}
-- means
SELECT SUM(CASE WHEN {qty} > 5 THEN 1 ELSE 0 END), SUM(COALESCE({amount}, 0)), COUNT(*) FROM {facts}

-- nvl2, decode, nullifzero
SELECT DECODE({kind}, {k1}, 'one', {k2}, 'two', 'more') AS d, AVG(NULLIFZERO({qty})) AS m, SUM(NVL2({state}, 1, 0)) AS known FROM {facts} GROUP BY 1
-- means
SELECT CASE {kind} WHEN {k1} THEN 'one' WHEN {k2} THEN 'two' ELSE 'more' END AS d, AVG(NULLIF({qty}, 0)), SUM(CASE WHEN {state} IS NOT NULL THEN 1 ELSE 0 END) FROM {facts} GROUP BY 1

-- div0
SELECT {kind}, DIV0(SUM({amount}), SUM({qty})) AS each, DIV0NULL(COUNT(*), COUNT({state})) AS r FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, SUM({amount}) / SUM({qty}), COUNT(*) / COUNT({state}) FROM {facts} GROUP BY 1

-- date trunc and dateadd
SELECT DATE_TRUNC('month', {at}) AS m, COUNT(*) AS n FROM {facts} WHERE {day} >= DATEADD('month', -3, '2024-10-01'::date) GROUP BY 1 ORDER BY 1
-- means
SELECT date_trunc('month', {at}) AS m, COUNT(*) AS n FROM {facts} WHERE {day} >= DATE '2024-07-01' GROUP BY 1

-- trunc of a date
SELECT TRUNC({day}, 'MONTH') AS m, SUM({qty}) AS s FROM {facts} GROUP BY 1
-- means
SELECT date_trunc('month', {day}), SUM({qty}) FROM {facts} GROUP BY 1

-- datediff in parts
SELECT AVG(DATEDIFF('day', p.{joined}, f.{day})) AS d, AVG(DATEDIFF(week, p.{joined}, f.{day})) AS w, AVG(TIMESTAMPDIFF(hour, p.{joined}, f.{at})) AS h FROM {people} p JOIN {facts} f USING ({id})
-- means
SELECT AVG(date_diff('day', p.{joined}, f.{day})), AVG(date_diff('day', date_trunc('week', p.{joined}), date_trunc('week', f.{day})) // 7), AVG(date_diff('hour', p.{joined}, f.{at})) FROM {people} p JOIN {facts} f USING ({id})

-- parts of dates
SELECT YEAR({day}) AS y, MONTH({day}) AS m, DAYOFWEEK({day}) AS d, HOUR({at}) AS h, COUNT(*) AS n FROM {facts} GROUP BY 1, 2, 3, 4
-- means
SELECT year({day}), month({day}), dayofweek({day}), hour({at}), COUNT(*) FROM {facts} GROUP BY ALL

-- names of dates
SELECT MONTHNAME({day}) AS m, DAYNAME({day}) AS d, COUNT(*) AS n FROM {facts} GROUP BY 1, 2
-- means
SELECT LEFT(monthname({day}), 3), LEFT(dayname({day}), 3), COUNT(*) FROM {facts} GROUP BY 1, 2

-- to char
SELECT TO_CHAR({day}, 'YYYY-MM') AS m, COUNT(*) AS n FROM {facts} GROUP BY m ORDER BY m
-- means
SELECT strftime({day}, '%Y-%m'), COUNT(*) FROM {facts} GROUP BY 1

-- last day
SELECT LAST_DAY({day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY 1
-- means
SELECT last_day({day}), COUNT(*) FROM {facts} GROUP BY 1

-- casts by colons
SELECT {kind}, SUM({amount})::NUMBER(10, 2) AS s, AVG({qty})::FLOAT AS m, COUNT(*)::VARCHAR AS t FROM {facts} GROUP BY 1
-- means
SELECT {kind}, ROUND(SUM({amount}), 2), AVG({qty}), CAST(COUNT(*) AS VARCHAR) FROM {facts} GROUP BY 1

-- width bucket
SELECT WIDTH_BUCKET({amount}, 0, 200, 4) AS b, COUNT(*) AS n FROM {facts} WHERE {amount} IS NOT NULL GROUP BY 1
-- means
SELECT CASE WHEN {amount} >= 200 THEN 5 ELSE FLOOR({amount} / 50) + 1 END AS b, COUNT(*) FROM {facts} WHERE {amount} IS NOT NULL GROUP BY 1

-- pivot
SELECT * FROM (SELECT {kind}, {state}, {qty} FROM {facts}) PIVOT (SUM({qty}) FOR {kind} IN ({k1}, {k2})) AS p
-- means
SELECT {state}, SUM({qty}) FILTER ({kind} = {k1}), SUM({qty}) FILTER ({kind} = {k2}) FROM {facts} GROUP BY 1

-- group by cube
SELECT {kind}, {state}, COUNT(*) AS n FROM {facts} GROUP BY CUBE ({kind}, {state})

-- listagg
-- refused: values of rows
SELECT LISTAGG({kind}, ',') FROM {facts}

-- listagg of distinct keys
SELECT LISTAGG(DISTINCT {kind}, ',') WITHIN GROUP (ORDER BY {kind}) AS kinds FROM {facts}
-- means
SELECT STRING_AGG(DISTINCT {kind}, ',' ORDER BY {kind}) FROM {facts}

-- minimum and maximum by
SELECT MAX_BY({kind}, n) AS best, MIN_BY({kind}, n) AS worst FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind})
-- means
SELECT ARG_MAX({kind}, n), ARG_MIN({kind}, n) FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind})

-- window frames of months
SELECT m, n, AVG(n) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS moving, CONDITIONAL_TRUE_EVENT(n > 40) OVER (ORDER BY m) AS events FROM (SELECT MONTH({day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY 1)
-- means
SELECT m, n, AVG(n) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), SUM(CASE WHEN n > 40 THEN 1 ELSE 0 END) OVER (ORDER BY m) FROM (SELECT month({day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY 1)

-- lag ignoring nulls
SELECT m, LAG(n) IGNORE NULLS OVER (ORDER BY m) AS before FROM (SELECT MONTH({day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY 1)
-- means
SELECT m, LAG(n) OVER (ORDER BY m) FROM (SELECT month({day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY 1)

-- statistics
SELECT STDDEV({amount}) AS s, VARIANCE({amount}) AS v, CORR({amount}, {qty}) AS r, COVAR_SAMP({amount}, {qty}) AS c, REGR_SLOPE({amount}, {qty}) AS b FROM {facts}

-- skew and kurtosis
SELECT SKEW({amount}) AS s, KURTOSIS({amount}) AS k FROM {facts}
-- means
SELECT SKEWNESS({amount}), KURTOSIS({amount}) FROM {facts}

-- boolor
-- refused: one row would decide it
SELECT BOOLOR_AGG({flag}) FROM {facts}

-- texts
SELECT UPPER(LEFT({kind}, 2)) || '-' || LENGTH({kind}) AS l, COUNT(*) AS n FROM {facts} WHERE CONTAINS({kind}, 'a') OR STARTSWITH({kind}, 'v') OR {kind} ILIKE ANY ('%o%', '%i%') GROUP BY 1
-- means
SELECT UPPER(LEFT({kind}, 2)) || '-' || LENGTH({kind}) AS l, COUNT(*) FROM {facts} WHERE CONTAINS({kind}, 'a') OR {kind} LIKE 'v%' OR {kind} ILIKE '%o%' OR {kind} ILIKE '%i%' GROUP BY 1

-- regexp like
SELECT COUNT(*) AS n FROM {facts} WHERE REGEXP_LIKE({kind}, '.*[ao].*') OR {kind} RLIKE 'v.*'
-- means
SELECT COUNT(*) FROM {facts} WHERE regexp_full_match({kind}, '.*[ao].*') OR regexp_full_match({kind}, 'v.*')

-- split part
SELECT SPLIT_PART({items}.{label}, ' ', 1) AS w, COUNT(*) AS n FROM {facts} JOIN {items} USING ({code}) GROUP BY 1

-- generator as calendar
WITH d AS (SELECT DATEADD(day, SEQ4(), '2024-05-01'::date) AS dd FROM TABLE(GENERATOR(ROWCOUNT => 7))) SELECT dd, COUNT({key}) AS n FROM d LEFT JOIN {facts} ON {day} = dd GROUP BY dd ORDER BY dd
-- means
SELECT CAST(r.d AS DATE), COUNT({key}) FROM range(DATE '2024-05-01', DATE '2024-05-08', INTERVAL 1 DAY) r(d) LEFT JOIN {facts} ON {day} = CAST(r.d AS DATE) GROUP BY 1

-- top
SELECT TOP 3 {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC
-- means
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC LIMIT 3

-- sample
-- random: yes
SELECT AVG({amount}) FROM {facts} SAMPLE (10)
-- means
SELECT AVG({amount}) FROM {facts} USING SAMPLE 10%

-- group by all
SELECT {kind}, {state}, COUNT(*) AS n FROM {facts} GROUP BY ALL

-- upper case names
SELECT {q:{kind}} AS KIND, COUNT(*) AS N FROM {q:{facts}} GROUP BY KIND ORDER BY N DESC
-- means
SELECT {kind}, COUNT(*) FROM {facts} GROUP BY 1

-- square and booleans
SELECT SQRT(AVG(SQUARE({amount}))) AS rms, COUNT_IF({flag}) AS f, COUNT_IF(NOT {flag}) AS t FROM {facts}
-- means
SELECT SQRT(AVG({amount} * {amount})), COUNT_IF({flag}), COUNT_IF(NOT {flag}) FROM {facts}

-- equal null
SELECT COUNT(*) AS n FROM {facts} WHERE NOT EQUAL_NULL({state}, {s1})
-- means
SELECT COUNT(*) FROM {facts} WHERE {state} IS DISTINCT FROM {s1}

-- time slice
SELECT TIME_SLICE({at}, 7, 'DAY') AS s, COUNT(*) AS n FROM {facts} GROUP BY 1
-- means
SELECT time_bucket(INTERVAL 7 DAY, {at}, TIMESTAMP '1970-01-01') AS s, COUNT(*) FROM {facts} GROUP BY 1
