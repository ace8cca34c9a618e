-- source: A. DeBarros, Practical SQL (No Starch Press), 2nd edition
-- address: https://github.com/anthonydb/practical-sql-2
-- seen: remembered
-- in: postgres duckdb

-- extremes and mean
SELECT MIN({age}) AS youngest, MAX({age}) AS oldest, ROUND(AVG({age}), 0) AS mean FROM {people}

-- sum and mean rounded
SELECT SUM({amount}) AS total, ROUND(AVG({amount})::numeric, 2) AS mean FROM {facts}
-- means
SELECT SUM({amount}) AS total, ROUND(AVG({amount}), 2) AS mean FROM {facts}

-- median by percentile
SELECT SUM({amount}) AS total, AVG({amount}) AS mean, percentile_cont(.5) WITHIN GROUP (ORDER BY {amount}) AS median FROM {facts}

-- quartiles in an array
-- in: postgres
SELECT percentile_cont(ARRAY[.25,.5,.75]) WITHIN GROUP (ORDER BY {amount}) AS quartiles FROM {facts}

-- quartiles unnested
-- in: postgres
SELECT unnest(percentile_cont(ARRAY[.25,.5,.75]) WITHIN GROUP (ORDER BY {amount})) AS quartiles FROM {facts}

-- mode within group
-- in: postgres
SELECT mode() WITHIN GROUP (ORDER BY {qty}) FROM {facts}

-- correlation, rounded
SELECT ROUND(CORR({amount}, {qty})::numeric, 2) AS r FROM {facts}
-- means
SELECT ROUND(CORR({amount}, {qty}), 2) AS r FROM {facts}

-- regression line
SELECT ROUND(REGR_SLOPE({amount}, {qty})::numeric, 2) AS slope, ROUND(REGR_INTERCEPT({amount}, {qty})::numeric, 2) AS intercept, ROUND(REGR_R2({amount}, {qty})::numeric, 3) AS r2 FROM {facts}
-- means
SELECT ROUND(REGR_SLOPE({amount}, {qty}), 2) AS slope, ROUND(REGR_INTERCEPT({amount}, {qty}), 2) AS intercept, ROUND(REGR_R2({amount}, {qty}), 3) AS r2 FROM {facts}

-- variance and standard deviation
SELECT VAR_POP({amount}) AS v, STDDEV_POP({amount}) AS s, VARIANCE({amount}) AS sample FROM {facts}

-- ranks of groups
SELECT {kind}, SUM({qty}) AS total, RANK() OVER (ORDER BY SUM({qty}) DESC) AS rank, DENSE_RANK() OVER (ORDER BY SUM({qty}) DESC) AS dense FROM {facts} GROUP BY {kind}

-- ranks within a group
SELECT {state}, {kind}, COUNT(*) AS n, RANK() OVER (PARTITION BY {state} ORDER BY COUNT(*) DESC) AS rank FROM {facts} GROUP BY {state}, {kind} ORDER BY {state}, rank

-- rates for a thousand
SELECT {region}, COUNT(*) AS people, COUNT(CASE WHEN {active} THEN 1 END) AS active, ROUND((COUNT(CASE WHEN {active} THEN 1 END)::numeric / COUNT(*)) * 1000, 1) AS rate FROM {people} GROUP BY {region} ORDER BY rate DESC
-- means
SELECT {region}, COUNT(*) AS people, COUNT(CASE WHEN {active} THEN 1 END) AS active, ROUND((COUNT(CASE WHEN {active} THEN 1 END) / COUNT(*)) * 1000, 1) AS rate FROM {people} GROUP BY {region} ORDER BY rate DESC

-- counts of distinct values
SELECT COUNT({state}) AS known, COUNT(DISTINCT {state}) AS different, COUNT(*) AS all_rows FROM {facts}

-- count by two columns
SELECT {region}, {tier}, COUNT(*) FROM {people} GROUP BY {region}, {tier} ORDER BY {region}, COUNT(*) DESC
-- means
SELECT {region}, {tier}, COUNT(*) AS c FROM {people} GROUP BY {region}, {tier} ORDER BY {region}, c DESC

-- change in percent of two sums
SELECT {kind}, SUM(CASE WHEN {monthof:{day}} > 6 THEN {qty} ELSE 0 END) AS late, SUM(CASE WHEN {monthof:{day}} <= 6 THEN {qty} ELSE 0 END) AS early, ROUND((SUM(CASE WHEN {monthof:{day}} > 6 THEN {qty} ELSE 0 END)::numeric - SUM(CASE WHEN {monthof:{day}} <= 6 THEN {qty} ELSE 0 END)) / SUM(CASE WHEN {monthof:{day}} <= 6 THEN {qty} ELSE 0 END) * 100, 1) AS pct_change FROM {facts} GROUP BY {kind} ORDER BY pct_change DESC
-- means
SELECT {kind}, SUM(CASE WHEN {monthof:{day}} > 6 THEN {qty} ELSE 0 END) AS late, SUM(CASE WHEN {monthof:{day}} <= 6 THEN {qty} ELSE 0 END) AS early, ROUND((SUM(CASE WHEN {monthof:{day}} > 6 THEN {qty} ELSE 0 END) - SUM(CASE WHEN {monthof:{day}} <= 6 THEN {qty} ELSE 0 END)) / SUM(CASE WHEN {monthof:{day}} <= 6 THEN {qty} ELSE 0 END) * 100, 1) AS pct_change FROM {facts} GROUP BY {kind} ORDER BY pct_change DESC

-- rides by the hour
SELECT date_part('hour', {at}) AS trip_hour, COUNT(*) FROM {facts} GROUP BY trip_hour ORDER BY trip_hour
-- means
SELECT date_part('hour', {at}) AS trip_hour, COUNT(*) AS c FROM {facts} GROUP BY trip_hour ORDER BY trip_hour

-- median of a timestamp difference by hour
-- in: postgres
SELECT date_part('hour', f.{at}) AS hour, percentile_cont(.5) WITHIN GROUP (ORDER BY f.{day} - p.{joined}) AS median_days FROM {facts} f JOIN {people} p ON p.{id} = f.{id} GROUP BY 1 ORDER BY 1

-- hours of an interval
-- in: postgres
SELECT AVG(EXTRACT(epoch FROM (f.{at} - p.{joined}::timestamp)) / 3600) AS hours FROM {facts} f JOIN {people} p ON p.{id} = f.{id}

-- mean of an interval
-- in: postgres
SELECT AVG(f.{at} - p.{joined}::timestamp) AS mean_gap FROM {facts} f JOIN {people} p ON p.{id} = f.{id}

-- rows above a percentile
SELECT COUNT(*) AS n FROM {facts} WHERE {amount} >= (SELECT percentile_cont(.9) WITHIN GROUP (ORDER BY {amount}) FROM {facts})

-- derived tables joined
SELECT a.{region}, a.people, b.total, ROUND(b.total * 1.0 / a.people, 1) AS each FROM (SELECT {region}, COUNT(*) AS people FROM {people} GROUP BY {region}) AS a JOIN (SELECT {region}, COUNT(*) AS total FROM {people} p JOIN {facts} f ON p.{id} = f.{id} GROUP BY {region}) AS b ON a.{region} = b.{region} ORDER BY a.people DESC

-- subquery as a column
SELECT {kind}, COUNT(*) AS n, COUNT(*) - (SELECT COUNT(*) FROM {facts} WHERE {kind} = {k1}) AS more_than_first FROM {facts} GROUP BY {kind}

-- table expression
WITH large({kind}, n) AS (SELECT {kind}, COUNT(*) FROM {facts} WHERE {qty} >= 5 GROUP BY {kind}) SELECT {kind}, n FROM large WHERE n > 10 ORDER BY n DESC

-- cross tabulation by filter
SELECT {kind}, COUNT(*) FILTER (WHERE {state} = {s1}) AS a, COUNT(*) FILTER (WHERE {state} = {s2}) AS b, COUNT(*) FILTER (WHERE {state} = {s3}) AS c FROM {facts} GROUP BY {kind} ORDER BY {kind}

-- cross tabulation by the extension
-- in: postgres
-- refused: the text of the inner query is run by a function
SELECT * FROM crosstab('SELECT {kind}, {tier}, count(*) FROM {facts} GROUP BY 1, 2 ORDER BY 1', 'SELECT 1') AS (k varchar, a bigint)

-- reclassified values
WITH bands AS (SELECT {region}, CASE WHEN {age} >= 65 THEN 'old' WHEN {age} >= 40 THEN 'middle' ELSE 'young' END AS band FROM {people}) SELECT {region}, band, COUNT(*) AS n FROM bands GROUP BY {region}, band ORDER BY {region}, band

-- distinct values of a column
SELECT DISTINCT {kind} FROM {facts} ORDER BY {kind}

-- duplicates
SELECT {kind}, {day}, COUNT(*) AS n FROM {facts} GROUP BY {kind}, {day} HAVING COUNT(*) > 1 ORDER BY 1, 2

-- missing values
SELECT {state}, COUNT(*) AS n FROM {facts} WHERE {state} IS NULL GROUP BY {state}

-- rolling sum over six
SELECT month, n, SUM(n) OVER (ORDER BY month ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS six FROM (SELECT {month:{at}} AS month, COUNT(*) AS n FROM {facts} GROUP BY 1) m ORDER BY month

-- lateral join of a formula
SELECT AVG(per) AS mean FROM {facts}, LATERAL (SELECT {amount} * {qty} AS per) AS x

-- full text search
-- in: postgres
SELECT COUNT(*) FROM {facts} WHERE to_tsvector({kind}) @@ to_tsquery('english', 'view')

-- age of people in years
-- in: postgres
SELECT date_part('year', age('2024-12-31'::date, {joined})) AS years, COUNT(*) FROM {people} GROUP BY 1

-- casts of numbers
SELECT {amount}::integer AS whole, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY n DESC, 1 LIMIT 5
