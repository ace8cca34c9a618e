-- source: Microsoft Learn: Transact-SQL reference
-- address: https://learn.microsoft.com/sql/t-sql/
-- seen: remembered
-- in: tsql

-- simple GROUP BY
SELECT {kind}, SUM({amount}) AS TotalSales FROM dbo.{facts} GROUP BY {kind} ORDER BY {kind};
-- means
SELECT {kind}, SUM({amount}) FROM {facts} GROUP BY {kind}

-- brackets and alias before
SELECT [{kind}], Total = SUM([{amount}]) FROM [{facts}] WHERE [{qty}] > 2 GROUP BY [{kind}]
-- means
SELECT {kind}, SUM({amount}) FROM {facts} WHERE {qty} > 2 GROUP BY 1

-- grouping on a year
SELECT DATEPART(yyyy, {at}) AS N'Year', SUM({amount}) AS N'Total' FROM {facts} GROUP BY DATEPART(yyyy, {at}) HAVING DATEPART(yyyy, {at}) >= N'2003' ORDER BY DATEPART(yyyy, {at})
-- means
SELECT year({at}), SUM({amount}) FROM {facts} GROUP BY 1

-- rollup, cube and grouping sets
SELECT {region}, {tier}, COUNT(*) AS n FROM {people} GROUP BY ROLLUP ({region}, {tier})

-- cube
SELECT {kind}, {state}, SUM({qty}) AS s FROM {facts} GROUP BY CUBE ({kind}, {state})

-- grouping sets with an empty one
SELECT {kind}, SUM({qty}) AS s, GROUPING({kind}) AS g FROM {facts} GROUP BY GROUPING SETS (({kind}), ())

-- mean and sum of whole numbers
SELECT AVG({qty}) AS avg_qty, SUM({qty}) AS total FROM {facts}
-- means
SELECT CAST(TRUNC(AVG({qty})) AS BIGINT), SUM({qty}) FROM {facts}

-- distinct mean
SELECT AVG(DISTINCT CAST({qty} AS FLOAT)) AS m FROM {facts}
-- means
SELECT AVG(DISTINCT {qty}) FROM {facts}

-- count big and distinct
SELECT COUNT_BIG(*) AS n, COUNT(DISTINCT {kind}) AS kinds, APPROX_COUNT_DISTINCT({id}) AS people FROM {facts}
-- means
SELECT COUNT(*), COUNT(DISTINCT {kind}), COUNT(DISTINCT {id}) FROM {facts}

-- standard deviation and variance
SELECT STDEV({amount}) AS s, STDEVP({amount}) AS sp, VAR({amount}) AS v, VARP({amount}) AS vp FROM {facts}
-- means
SELECT STDDEV({amount}), STDDEV_POP({amount}), VAR_SAMP({amount}), VAR_POP({amount}) FROM {facts}

-- string agg
-- refused: values of rows
SELECT STRING_AGG({kind}, ', ') AS kinds FROM {facts}

-- string agg of groups
SELECT STRING_AGG({kind}, ', ') WITHIN GROUP (ORDER BY {kind}) AS kinds FROM (SELECT DISTINCT {kind} FROM {facts}) t
-- means
SELECT STRING_AGG({kind}, ', ' ORDER BY {kind}) FROM (SELECT DISTINCT {kind} FROM {facts}) t

-- percentile over partitions
SELECT DISTINCT {kind}, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {amount}) OVER (PARTITION BY {kind}) AS median FROM {facts}
-- means
SELECT {kind}, MEDIAN({amount}) FROM {facts} GROUP BY 1

-- approximate percentile
SELECT {kind}, APPROX_PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {amount}) AS median FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, MEDIAN({amount}) AS percentile FROM {facts} GROUP BY 1

-- pivot
SELECT {state}, [1], [2], [3] FROM (SELECT {state}, {code}, {qty} FROM {facts}) AS src PIVOT (SUM({qty}) FOR {code} IN ([1], [2], [3])) AS pvt ORDER BY {state}
-- means
SELECT {state}, SUM({qty}) FILTER ({code} = 1), SUM({qty}) FILTER ({code} = 2), SUM({qty}) FILTER ({code} = 3) FROM {facts} GROUP BY 1

-- window totals over groups
SELECT {kind}, SUM({qty}) AS s, SUM(SUM({qty})) OVER () AS all_s, CAST(1. * SUM({qty}) / SUM(SUM({qty})) OVER () * 100 AS DECIMAL(5, 2)) AS pct FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, SUM({qty}) AS s, SUM(SUM({qty})) OVER () AS all_s, ROUND(1. * SUM({qty}) / SUM(SUM({qty})) OVER () * 100, 2) AS pct FROM {facts} GROUP BY {kind}

-- running totals
SELECT m, s, SUM(s) OVER (ORDER BY m ROWS UNBOUNDED PRECEDING) AS running FROM (SELECT MONTH({day}) AS m, SUM({qty}) AS s FROM {facts} GROUP BY MONTH({day})) t
-- means
SELECT m, s, SUM(s) OVER (ORDER BY m ROWS UNBOUNDED PRECEDING) AS running FROM (SELECT month({day}) AS m, SUM({qty}) AS s FROM {facts} GROUP BY 1) t

-- lag and lead of months
SELECT m, s, LAG(s, 1, 0) OVER (ORDER BY m) AS before, LEAD(s) OVER (ORDER BY m) AS after FROM (SELECT MONTH({day}) AS m, SUM({qty}) AS s FROM {facts} GROUP BY MONTH({day})) t
-- means
SELECT m, s, LAG(s, 1, 0) OVER (ORDER BY m) AS before, LEAD(s) OVER (ORDER BY m) AS after FROM (SELECT month({day}) AS m, SUM({qty}) AS s FROM {facts} GROUP BY 1) t

-- rank and ntile of groups
SELECT {kind}, n, ROW_NUMBER() OVER (ORDER BY n DESC) AS r, RANK() OVER (ORDER BY n DESC) AS k, NTILE(2) OVER (ORDER BY n DESC) AS q FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind}) t

-- cume dist and percent rank of groups
SELECT {kind}, CUME_DIST() OVER (ORDER BY n) AS c, PERCENT_RANK() OVER (ORDER BY n) AS p FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind}) t

-- first and last value of groups
SELECT DISTINCT FIRST_VALUE({kind}) OVER (ORDER BY n) AS least, LAST_VALUE({kind}) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS most FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind}) t

-- top with ties
SELECT TOP 2 WITH TIES {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY COUNT(*) DESC
-- means
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} QUALIFY RANK() OVER (ORDER BY n DESC) <= 2

-- top percent
SELECT TOP (50) PERCENT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC
-- means
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC LIMIT 3

-- offset fetch
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY
-- means
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC LIMIT 2 OFFSET 1

-- datetrunc
SELECT DATETRUNC(month, {day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY DATETRUNC(month, {day})
-- means
SELECT date_trunc('month', {day}) AS m, COUNT(*) FROM {facts} GROUP BY 1

-- month by DATEADD of DATEDIFF
SELECT DATEADD(month, DATEDIFF(month, 0, {at}), 0) AS m, COUNT(*) AS n FROM {facts} GROUP BY DATEADD(month, DATEDIFF(month, 0, {at}), 0)
-- means
SELECT date_trunc('month', {at}) AS m, COUNT(*) FROM {facts} GROUP BY 1

-- day of a timestamp
SELECT CONVERT(date, {at}) AS d, COUNT(*) AS n FROM {facts} WHERE {at} < '2024-07-01' GROUP BY CONVERT(date, {at})
-- means
SELECT CAST({at} AS DATE) AS d, COUNT(*) FROM {facts} WHERE {at} < '2024-07-01' GROUP BY 1

-- text of a month by CONVERT
SELECT CONVERT(varchar(7), {day}, 120) AS m, COUNT(*) AS n FROM {facts} GROUP BY CONVERT(varchar(7), {day}, 120)
-- means
SELECT strftime({day}, '%Y-%m') AS m, COUNT(*) FROM {facts} GROUP BY 1

-- text of a month by FORMAT
SELECT FORMAT({day}, 'yyyy-MM') AS m, COUNT(*) AS n FROM {facts} GROUP BY FORMAT({day}, 'yyyy-MM')
-- means
SELECT strftime({day}, '%Y-%m') AS m, COUNT(*) FROM {facts} GROUP BY 1

-- end of the month
SELECT EOMONTH({day}) AS m, SUM({qty}) AS s FROM {facts} GROUP BY EOMONTH({day})
-- means
SELECT last_day({day}) AS m, SUM({qty}) FROM {facts} GROUP BY 1

-- names of days and months
SELECT DATENAME(month, {day}) AS m, DATENAME(weekday, {day}) AS d, COUNT(*) AS n FROM {facts} GROUP BY DATENAME(month, {day}), DATENAME(weekday, {day})
-- means
SELECT monthname({day}), dayname({day}), COUNT(*) FROM {facts} GROUP BY 1, 2

-- number of the weekday
SELECT DATEPART(weekday, {day}) AS d, COUNT(*) AS n FROM {facts} GROUP BY DATEPART(weekday, {day})
-- means
SELECT dayofweek({day}) + 1 AS d, COUNT(*) FROM {facts} GROUP BY 1

-- quarter and week
SELECT DATEPART(quarter, {day}) AS q, DATEPART(ISO_WEEK, {day}) AS w, COUNT(*) AS n FROM {facts} GROUP BY DATEPART(quarter, {day}), DATEPART(ISO_WEEK, {day})
-- means
SELECT quarter({day}), week({day}), COUNT(*) FROM {facts} GROUP BY 1, 2

-- hour of the day
SELECT DATEPART(HOUR, {at}) AS h, COUNT(*) AS n FROM {facts} GROUP BY DATEPART(HOUR, {at}) ORDER BY h
-- means
SELECT hour({at}), COUNT(*) FROM {facts} GROUP BY 1

-- the last month by GETDATE
SELECT COUNT(*) AS n FROM {facts} WHERE {day} >= DATEADD(month, -60, GETDATE())
-- means
SELECT COUNT(*) FROM {facts}

-- IIF and CHOOSE
SELECT IIF({qty} > 5, 'large', 'small') AS size, COUNT(*) AS n FROM {facts} GROUP BY IIF({qty} > 5, 'large', 'small')
-- means
SELECT CASE WHEN {qty} > 5 THEN 'large' ELSE 'small' END AS size, COUNT(*) FROM {facts} GROUP BY 1

-- ISNULL, COALESCE, NULLIF
SELECT ISNULL({state}, 'none') AS s, COUNT(NULLIF({qty}, 9)) AS n, SUM(COALESCE({amount}, 0)) AS a FROM {facts} GROUP BY ISNULL({state}, 'none')
-- means
SELECT COALESCE({state}, 'none') AS s, COUNT(NULLIF({qty}, 9)), SUM(COALESCE({amount}, 0)) FROM {facts} GROUP BY 1

-- bit columns
SELECT COUNT(*) AS n FROM {people} WHERE {active} = 1

-- sum of a bit by CAST
SELECT {tier}, SUM(CAST({active} AS INT)) AS active FROM {people} GROUP BY {tier}

-- cast to decimals
SELECT {kind}, CAST(AVG(CAST({qty} AS DECIMAL(10, 2))) AS DECIMAL(10, 2)) AS m FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, ROUND(AVG({qty}), 2) FROM {facts} GROUP BY 1

-- cross apply
SELECT AVG(CAST(x.n AS FLOAT)) AS m FROM {people} p CROSS APPLY (SELECT COUNT(*) AS n FROM {facts} f WHERE f.{id} = p.{id}) x
-- means
SELECT AVG(n) FROM (SELECT p.{id}, COUNT(f.{id}) AS n FROM {people} p LEFT JOIN {facts} f ON f.{id} = p.{id} GROUP BY 1)

-- concatenation by plus
SELECT {kind} + '/' + {state} AS label, COUNT(*) AS n FROM {facts} GROUP BY {kind} + '/' + {state}
-- means
SELECT {kind} || '/' || {state} AS label, COUNT(*) FROM {facts} GROUP BY 1

-- text functions
SELECT LEFT({kind}, 2) AS p, LEN({kind}) AS l, UPPER(SUBSTRING({kind}, 1, 1)) AS u, CHARINDEX('a', {kind}) AS a, COUNT(*) AS n FROM {facts} GROUP BY LEFT({kind}, 2), LEN({kind}), UPPER(SUBSTRING({kind}, 1, 1)), CHARINDEX('a', {kind})
-- means
SELECT LEFT({kind}, 2), LENGTH({kind}), UPPER(SUBSTR({kind}, 1, 1)), INSTR({kind}, 'a'), COUNT(*) FROM {facts} GROUP BY ALL

-- NOLOCK hint
SELECT COUNT(*) AS n FROM {facts} WITH (NOLOCK) WHERE {kind} = {k1}
-- means
SELECT COUNT(*) AS n FROM {facts} WHERE {kind} = {k1}

-- common table expressions
WITH Sales_CTE ({id}, n) AS (SELECT {id}, COUNT(*) FROM {facts} GROUP BY {id}) SELECT AVG(CAST(n AS FLOAT)) AS average FROM Sales_CTE

-- exists
SELECT COUNT(*) AS n FROM {people} AS p WHERE NOT EXISTS (SELECT * FROM {facts} AS f WHERE f.{id} = p.{id})

-- table variable of values
SELECT v.name, COUNT(*) AS n FROM {facts} f JOIN (VALUES ({k1}, 'first'), ({k2}, 'second')) AS v (kind, name) ON v.kind = f.{kind} GROUP BY v.name

-- select into a temporary table
-- refused: it writes a table
SELECT {kind}, COUNT(*) AS n INTO #summary FROM {facts} GROUP BY {kind}

-- option hint
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind} OPTION (RECOMPILE)
-- means
SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind}

-- rows with a window
-- refused: individual rows
SELECT {key}, {amount}, SUM({amount}) OVER (PARTITION BY {id}) AS total FROM {facts}

-- try convert
SELECT AVG(TRY_CONVERT(FLOAT, {qty})) AS m FROM {facts}
-- means
SELECT AVG({qty}) FROM {facts}

-- square and power
SELECT SQRT(SUM(SQUARE({amount}))) AS norm FROM {facts}
-- means
SELECT SQRT(SUM({amount} * {amount})) FROM {facts}

-- lag over persons
SELECT AVG(CAST(DATEDIFF(hour, prev, {at}) AS FLOAT)) AS hours FROM (SELECT {at}, LAG({at}) OVER (PARTITION BY {id} ORDER BY {at}) AS prev FROM {facts}) t
-- means
SELECT AVG(date_diff('hour', prev, {at})) FROM (SELECT {at}, LAG({at}) OVER (PARTITION BY {id} ORDER BY {at}) AS prev FROM {facts}) t
