-- source: C. Tanimura, SQL for Data Analysis (O'Reilly), chapters 3 and 6: time series, anomalies
-- address: https://github.com/cathytanimura/sql_book
-- seen: read in part
-- in: postgres duckdb

-- totals by year
SELECT {yearof:{day}} AS yr, SUM({amount}) AS total FROM {facts} GROUP BY 1 ORDER BY 1

-- totals of chosen kinds by month
SELECT {month:{day}} AS month, {kind}, SUM({amount}) AS total FROM {facts} WHERE {kind} IN ({k1}, {k2}, {k3}) GROUP BY 1, 2 ORDER BY 1, 2

-- kinds side by side
SELECT {monthof:{day}} AS month_number, SUM(CASE WHEN {kind} = {k1} THEN {amount} END) AS first_total, SUM(CASE WHEN {kind} = {k2} THEN {amount} END) AS second_total FROM {facts} WHERE {kind} IN ({k1}, {k2}) GROUP BY 1 ORDER BY 1

-- difference of kinds in a subquery
SELECT month_number, first_total - second_total AS first_minus_second, second_total - first_total AS second_minus_first
FROM (
  SELECT {monthof:{day}} AS month_number, SUM(CASE WHEN {kind} = {k1} THEN {qty} END) AS first_total, SUM(CASE WHEN {kind} = {k2} THEN {qty} END) AS second_total
  FROM {facts} WHERE {kind} IN ({k1}, {k2}) AND {day} <= '2024-11-30' GROUP BY 1
) a ORDER BY 1

-- quotient of kinds as a percentage
SELECT month_number, (first_total / second_total - 1) * 100 AS pct
FROM (
  SELECT {monthof:{day}} AS month_number, SUM(CASE WHEN {kind} = {k1} THEN {num:{amount}} END) AS first_total, SUM(CASE WHEN {kind} = {k2} THEN {num:{amount}} END) AS second_total
  FROM {facts} GROUP BY 1
) a ORDER BY 1

-- share of the month by a self join
SELECT a.month, a.{kind}, a.total * 100.0 / b.total AS pct
FROM (SELECT {month:{day}} AS month, {kind}, SUM({qty}) AS total FROM {facts} GROUP BY 1, 2) a
JOIN (SELECT {month:{day}} AS month, SUM({qty}) AS total FROM {facts} GROUP BY 1) b ON a.month = b.month ORDER BY 1, 2

-- share of the month by a window
SELECT {month:{day}} AS month, {kind}, SUM({qty}) AS total, SUM(SUM({qty})) OVER (PARTITION BY {month:{day}}) AS of_month, SUM({qty}) * 100.0 / SUM(SUM({qty})) OVER (PARTITION BY {month:{day}}) AS pct FROM {facts} GROUP BY 1, 2 ORDER BY 1, 2

-- index to the first year
SELECT q, total, (total / FIRST_VALUE(total) OVER (ORDER BY q) - 1) * 100 AS pct_from_index FROM (SELECT {quarterof:{day}} AS q, SUM({num:{amount}}) AS total FROM {facts} GROUP BY 1) a

-- index by kind
SELECT q, {kind}, total, (total / FIRST_VALUE(total) OVER (PARTITION BY {kind} ORDER BY q) - 1) * 100.0 AS pct FROM (SELECT {quarterof:{day}} AS q, {kind}, SUM({num:{qty}}) AS total FROM {facts} GROUP BY 1, 2) a ORDER BY 2, 1

-- moving average of months
SELECT month, AVG(total) OVER (ORDER BY month ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS moving_avg, COUNT(total) OVER (ORDER BY month ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS records FROM (SELECT {month:{day}} AS month, SUM({amount}) AS total FROM {facts} GROUP BY 1) a ORDER BY 1

-- moving average by a self join of months
WITH m AS (SELECT {monthof:{day}} AS month, SUM({amount}) AS total FROM {facts} GROUP BY 1)
SELECT a.month, a.total, AVG(b.total) AS moving_avg, COUNT(b.total) AS records FROM m a JOIN m b ON b.month BETWEEN a.month - 2 AND a.month GROUP BY 1, 2 ORDER BY 1

-- calendar table with sparse data
SELECT d.month_start, COUNT(f.{key}) AS n, SUM(f.{qty}) AS total FROM dim_date d LEFT JOIN {facts} f ON f.{day} = d.cal_date WHERE d.cal_year = 2024 GROUP BY 1 ORDER BY 1

-- year to date
SELECT month, total, SUM(total) OVER (PARTITION BY {yearof:month} ORDER BY month) AS ytd FROM (SELECT {month:{day}} AS month, SUM({qty}) AS total FROM {facts} WHERE {kind} = {k1} GROUP BY 1) a

-- growth on the month before
SELECT month, total, LAG(month) OVER (ORDER BY month) AS prev_month, (total * 1.0 / LAG(total) OVER (ORDER BY month) - 1) * 100 AS growth FROM (SELECT {month:{day}} AS month, SUM({qty}) AS total FROM {facts} GROUP BY 1) a

-- same quarter of different kinds
SELECT {quarterof:{day}} AS q, MAX(CASE WHEN {kind} = {k1} THEN n END) AS k1, MAX(CASE WHEN {kind} = {k2} THEN n END) AS k2 FROM (SELECT {day}, {kind}, 1 AS n FROM {facts}) a GROUP BY 1

-- rows as they are
-- refused: individual rows
SELECT {day}, {kind}, {amount} FROM {facts} WHERE {kind} = {k1} ORDER BY 1

-- month names
-- in: postgres
SELECT to_char({day}, 'Month') AS month_name, date_part('month', {day}) AS m, SUM({qty}) AS total FROM {facts} GROUP BY 1, 2 ORDER BY 2

-- part of a year as whole number
-- in: postgres
SELECT date_part('year', {at})::int AS yr, COUNT(*) FROM {facts} GROUP BY 1

-- frequency of values with share
SELECT {qty}, COUNT({key}) AS n, ROUND(COUNT({key}) * 100.0 / SUM(COUNT({key})) OVER (), 4) AS pct FROM {facts} WHERE {qty} IS NOT NULL GROUP BY 1 ORDER BY 1 DESC

-- quartiles of a kind
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY {amount}) AS pct_25, percentile_cont(0.5) WITHIN GROUP (ORDER BY {amount}) AS pct_50, percentile_cont(0.75) WITHIN GROUP (ORDER BY {amount}) AS pct_75 FROM {facts} WHERE {amount} IS NOT NULL AND {kind} = {k1}

-- whiskers of a box plot
SELECT q1, median, q3, (q3 - q1) * 1.5 AS iqr, q1 - (q3 - q1) * 1.5 AS lower_whisker, q3 + (q3 - q1) * 1.5 AS upper_whisker FROM (SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY {qty}) AS q1, percentile_cont(0.5) WITHIN GROUP (ORDER BY {qty}) AS median, percentile_cont(0.75) WITHIN GROUP (ORDER BY {qty}) AS q3 FROM {facts}) a

-- quartiles by kind of two columns
SELECT {kind}, percentile_cont(0.25) WITHIN GROUP (ORDER BY {amount}) AS a25, percentile_cont(0.25) WITHIN GROUP (ORDER BY {qty}) AS q25 FROM {facts} WHERE {kind} IN ({k1}, {k2}) GROUP BY {kind}

-- extremes of quarters by ntile
SELECT ntile, MAX({qty}) AS maximum, MIN({qty}) AS minimum FROM (SELECT {qty}, NTILE(4) OVER (ORDER BY {qty}) AS ntile FROM {facts}) a GROUP BY 1 ORDER BY 1 DESC

-- z scores of rows
-- refused: individual rows
SELECT a.{amount}, (a.{amount} - b.m) / b.s AS z FROM {facts} a JOIN (SELECT AVG({amount}) AS m, STDDEV_POP({amount}) AS s FROM {facts}) b ON 1 = 1 WHERE a.{amount} IS NOT NULL ORDER BY 1 DESC

-- count of z scores beyond two
SELECT COUNT(*) AS n FROM {facts} a JOIN (SELECT AVG({amount}) AS m, STDDEV_POP({amount}) AS s FROM {facts}) b ON 1 = 1 WHERE ABS(a.{amount} - b.m) > b.s

-- spread, both ways
SELECT STDDEV_POP({amount}) AS pop, STDDEV_SAMP({amount}) AS samp FROM {facts}

-- outliers removed by a percentile
SELECT AVG({amount}) AS mean FROM {facts} WHERE {amount} <= (SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY {amount}) FROM {facts})

-- percentile rank of rows, counted
SELECT CASE WHEN p < 0.5 THEN 'low' ELSE 'high' END AS half, COUNT(*) AS n FROM (SELECT PERCENT_RANK() OVER (ORDER BY {amount}) AS p FROM {facts} WHERE {amount} IS NOT NULL) a GROUP BY 1 ORDER BY 1
