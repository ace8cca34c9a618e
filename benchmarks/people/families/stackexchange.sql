-- source: Stack Exchange Data Explorer: public queries in T-SQL
-- address: https://data.stackexchange.com/
-- seen: remembered
-- in: tsql

-- posts by month
SELECT DATEADD(MONTH, DATEDIFF(MONTH, 0, {at}), 0) AS [Month], COUNT(*) AS [Posts] FROM {facts} GROUP BY DATEADD(MONTH, DATEDIFF(MONTH, 0, {at}), 0) ORDER BY [Month]
-- means
SELECT date_trunc('month', {at}), COUNT(*) FROM {facts} GROUP BY 1

-- share accepted
SELECT {kind}, COUNT(*) AS Total, SUM(CASE WHEN {state} = {s1} THEN 1 ELSE 0 END) AS Accepted, (SUM(CASE WHEN {state} = {s1} THEN 1.0 ELSE 0 END) / COUNT(*)) * 100 AS [Accept %] FROM {facts} GROUP BY {kind} HAVING COUNT(*) > 10 ORDER BY [Accept %] DESC
-- means
SELECT {kind}, COUNT(*), COUNT_IF({state} = {s1}), 100.0 * COUNT_IF({state} = {s1}) / COUNT(*) FROM {facts} GROUP BY {kind} HAVING COUNT(*) > 10

-- top tags
SELECT TOP 20 i.{label} AS TagName, COUNT(*) AS UpVotes FROM {items} i INNER JOIN {facts} f ON f.{code} = i.{code} INNER JOIN {people} p ON p.{id} = f.{id} WHERE f.{qty} >= 2 GROUP BY i.{label} ORDER BY UpVotes DESC
-- means
SELECT i.{label}, COUNT(*) AS n FROM {items} i INNER JOIN {facts} f ON f.{code} = i.{code} INNER JOIN {people} p ON p.{id} = f.{id} WHERE f.{qty} >= 2 GROUP BY i.{label} ORDER BY n DESC LIMIT 20

-- users by reputation band
SELECT CASE WHEN {age} < 30 THEN 'a: under 30' WHEN {age} < 60 THEN 'b: under 60' ELSE 'c: rest' END AS band, COUNT(*) AS users FROM {people} GROUP BY CASE WHEN {age} < 30 THEN 'a: under 30' WHEN {age} < 60 THEN 'b: under 60' ELSE 'c: rest' END ORDER BY band

-- users who never posted
SELECT COUNT(*) AS lurkers FROM {people} WHERE {id} NOT IN (SELECT {id} FROM {facts} WHERE {id} IS NOT NULL)

-- top users
-- refused: individual people
SELECT TOP 100 {id} AS [User Link], SUM({qty}) AS score FROM {facts} GROUP BY {id} ORDER BY score DESC

-- hours of the day, percent
SELECT DATEPART(hh, {at}) AS [hour], COUNT(*) * 100.0 / (SELECT COUNT(*) FROM {facts}) AS pct FROM {facts} GROUP BY DATEPART(hh, {at}) ORDER BY 1
-- means
SELECT hour({at}), COUNT(*) * 100.0 / (SELECT COUNT(*) FROM {facts}) FROM {facts} GROUP BY 1

-- weekday and hour
SELECT DATENAME(dw, {at}) AS [Day], DATEPART(hour, {at}) AS [Hour], COUNT(*) AS n FROM {facts} GROUP BY DATENAME(dw, {at}), DATEPART(hour, {at})
-- means
SELECT dayname({at}), hour({at}), COUNT(*) FROM {facts} GROUP BY 1, 2

-- mean time to answer in hours
SELECT AVG(CAST(DATEDIFF(MINUTE, p.{joined}, f.{at}) / 60.0 AS FLOAT)) AS hours FROM {facts} f JOIN {people} p ON p.{id} = f.{id}
-- means
SELECT AVG(date_diff('minute', p.{joined}, f.{at}) / 60.0) FROM {facts} f JOIN {people} p ON p.{id} = f.{id}

-- declared parameter
DECLARE @kind NVARCHAR(20) = {k1}; SELECT COUNT(*) AS n FROM {facts} WHERE {kind} = @kind
-- means
SELECT COUNT(*) FROM {facts} WHERE {kind} = {k1}

-- percentile of scores by ntile
SELECT q, MIN({qty}) AS lo, MAX({qty}) AS hi, COUNT(*) AS n FROM (SELECT {qty}, NTILE(4) OVER (ORDER BY {qty}) AS q FROM {facts}) t GROUP BY q ORDER BY q

-- scores as a histogram
SELECT {qty} AS score, COUNT(*) AS n, CAST(COUNT(*) AS FLOAT) / SUM(COUNT(*)) OVER () AS share FROM {facts} GROUP BY {qty} ORDER BY {qty}

-- logarithmic bins
SELECT FLOOR(LOG({qty}, 2)) AS bin, COUNT(*) AS n FROM {facts} WHERE {qty} > 0 GROUP BY FLOOR(LOG({qty}, 2)) ORDER BY 1
-- means
SELECT FLOOR(LOG2({qty})), COUNT(*) FROM {facts} GROUP BY 1

-- growth year on year
WITH m AS (SELECT MONTH({day}) AS mo, COUNT(*) AS n FROM {facts} GROUP BY MONTH({day})) SELECT a.mo, a.n, b.n AS previous, (a.n - b.n) * 100.0 / NULLIF(b.n, 0) AS growth FROM m a LEFT JOIN m b ON b.mo = a.mo - 1 ORDER BY a.mo
-- means
WITH m AS (SELECT month({day}) AS mo, COUNT(*) AS n FROM {facts} GROUP BY 1) SELECT a.mo, a.n, b.n, (a.n - b.n) * 100.0 / NULLIF(b.n, 0) FROM m a LEFT JOIN m b ON b.mo = a.mo - 1

-- votes by kind pivoted by hand
SELECT p.{region}, SUM(CASE f.{kind} WHEN {k1} THEN 1 ELSE 0 END) AS up, SUM(CASE f.{kind} WHEN {k2} THEN 1 ELSE 0 END) AS down FROM {people} p LEFT JOIN {facts} f ON f.{id} = p.{id} GROUP BY p.{region}
