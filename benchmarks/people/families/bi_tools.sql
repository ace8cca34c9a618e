-- source: Superset's and Metabase's example dashboards: SQL that the tools write
-- address: https://github.com/apache/superset
-- seen: remembered
-- in: postgres snowflake bigquery duckdb

-- count by a dimension, limited
SELECT {kind} AS {q:{kind}}, COUNT(*) AS {q:count} FROM {facts} GROUP BY {kind} ORDER BY COUNT(*) DESC LIMIT 100

-- time series with a time grain
SELECT {month:{at}} AS {q:__timestamp}, SUM({amount}) AS {q:SUM_amount} FROM {facts} WHERE {at} >= '2024-01-01 00:00:00' AND {at} < '2025-01-01 00:00:00' GROUP BY {month:{at}} ORDER BY {q:SUM_amount} DESC LIMIT 10000

-- virtual table
SELECT {kind} AS {kind}, SUM(n) AS {q:sum__n} FROM (SELECT {kind}, {state}, COUNT(*) AS n FROM {facts} GROUP BY {kind}, {state}) AS virtual_table GROUP BY {kind} ORDER BY {q:sum__n} DESC LIMIT 50000

-- series limit by an inner join
SELECT {month:{day}} AS ts, f.{kind} AS k, COUNT(*) AS n FROM {facts} f JOIN (SELECT {kind} AS k__, COUNT(*) AS mme_inner__ FROM {facts} GROUP BY {kind} ORDER BY mme_inner__ DESC LIMIT 3) AS series_limit ON f.{kind} = series_limit.k__ GROUP BY {month:{day}}, f.{kind} ORDER BY n DESC LIMIT 1000

-- big number with a trend
SELECT {week:{day}} AS ts, COUNT(DISTINCT {id}) AS users FROM {facts} GROUP BY {week:{day}} ORDER BY ts ASC LIMIT 50000

-- filter box values
SELECT {state} AS {state} FROM {facts} GROUP BY {state} LIMIT 1000

-- filter with values and nulls
SELECT COUNT(*) AS {q:count} FROM {facts} WHERE {kind} IN ({k1}, {k2}) AND ({state} IS NULL OR {state} IN ({s1})) LIMIT 50000

-- metabase source table
SELECT {q:source}.{q:month} AS {q:month}, {q:source}.{q:n} AS {q:n} FROM (SELECT {month:{at}} AS month, COUNT(*) AS n FROM {facts} GROUP BY {month:{at}} ORDER BY {month:{at}} ASC) AS source WHERE source.n > 20 LIMIT 2000
-- means
SELECT source.month, source.n FROM (SELECT {month:{at}} AS month, COUNT(*) AS n FROM {facts} GROUP BY 1) AS source WHERE source.n > 20

-- qualified columns of a table
SELECT {q:{facts}}.{q:{kind}} AS {q:{kind}}, AVG({q:{facts}}.{q:{amount}}) AS {q:avg} FROM {q:{facts}} GROUP BY {q:{facts}}.{q:{kind}} ORDER BY {q:{facts}}.{q:{kind}} ASC

-- bins of an axis
SELECT (FLOOR({amount} / 20) * 20) AS bin, COUNT(*) AS n FROM {facts} GROUP BY (FLOOR({amount} / 20) * 20) ORDER BY bin ASC

-- bins with an offset
SELECT (FLOOR((({age} - 0.0) / 10.0)) * 10.0) + 0.0 AS age, COUNT(*) AS n FROM {people} GROUP BY (FLOOR((({age} - 0.0) / 10.0)) * 10.0) + 0.0 ORDER BY age ASC

-- joined question
SELECT p.{region} AS region, COUNT(*) AS n, SUM(f.{amount}) AS total FROM {facts} f LEFT JOIN {people} p ON f.{id} = p.{id} GROUP BY p.{region} ORDER BY total DESC, p.{region} ASC

-- sum of a case metric
SELECT {region}, SUM(CASE WHEN {active} THEN 1 ELSE 0 END) AS {q:active}, SUM(CASE WHEN {active} THEN 1.0 ELSE 0.0 END) / COUNT(*) AS share FROM {people} GROUP BY {region}

-- count of distinct values by a breakout of two
SELECT {kind}, {state}, COUNT(DISTINCT {id}) AS {q:count} FROM {facts} GROUP BY {kind}, {state} ORDER BY {kind} ASC, {state} ASC

-- raw rows of a table
-- refused: individual rows
SELECT {key}, {kind}, {amount} FROM {facts} LIMIT 1048575

-- cumulative sum of a breakout
SELECT month, SUM(n) OVER (ORDER BY month ASC ROWS UNBOUNDED PRECEDING) AS cumulative FROM (SELECT {month:{at}} AS month, COUNT(*) AS n FROM {facts} GROUP BY {month:{at}}) AS source ORDER BY month ASC

-- top of each series
SELECT k, s, n FROM (SELECT {kind} AS k, {state} AS s, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY {kind} ORDER BY COUNT(*) DESC, {state}) AS rn FROM {facts} GROUP BY {kind}, {state}) t WHERE rn <= 1 ORDER BY k

-- relative date filter
SELECT COUNT(*) AS n FROM {facts} WHERE {day} >= {lit:2024-03-01} AND {day} < {lit:2024-04-01}

-- hour of day, day of week
SELECT {hourof:{at}} AS hour_of_day, COUNT(*) AS n FROM {facts} GROUP BY {hourof:{at}} ORDER BY hour_of_day ASC

-- percentiles
SELECT {kind}, {med:{amount}} AS median, MIN({amount}) AS low, MAX({amount}) AS high FROM {facts} GROUP BY {kind}

-- percentages of a pivot
SELECT {kind}, COUNT(*) * 1.0 / (SELECT COUNT(*) FROM {facts}) AS pct FROM {facts} GROUP BY {kind}

-- boolean filter
SELECT {tier}, COUNT(*) AS n FROM {people} WHERE {active} = TRUE AND {age} > 20 GROUP BY {tier}

-- test of a connection
SELECT 1

-- empty limit for the columns
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} LIMIT 0

-- where one equals one
SELECT COUNT(*) AS n FROM {facts} WHERE 1 = 1 AND 0 < 1 AND {qty} <> 3 AND NOT ({kind} = {k3})

-- schema of postgres and casts of dates
-- in: postgres
SELECT CAST(DATE_TRUNC('month', {q:{facts}}.{q:{at}}) AS date) AS m, COUNT(*) FROM {q:{facts}} WHERE {q:{at}} >= TO_TIMESTAMP('2024-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY 1 ORDER BY 1
