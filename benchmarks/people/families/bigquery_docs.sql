-- source: BigQuery documentation: GoogleSQL functions and query syntax
-- address: https://cloud.google.com/bigquery/docs/reference/standard-sql
-- seen: remembered
-- in: bigquery

-- countif and logical
SELECT COUNTIF({amount} < 50) AS low, COUNT(DISTINCT {kind}) AS kinds FROM {facts}

-- logical or
-- refused: one row would decide it
SELECT LOGICAL_OR({flag}) AS any_flag FROM {facts}

-- approximate quantiles
SELECT APPROX_QUANTILES({amount}, 4) AS q FROM {facts}
-- means
SELECT [MIN({amount}), QUANTILE_CONT({amount}, 0.25), QUANTILE_CONT({amount}, 0.5), QUANTILE_CONT({amount}, 0.75), MAX({amount})] AS quantile FROM {facts}

-- median by approximate quantiles
SELECT {kind}, APPROX_QUANTILES({qty}, 100)[OFFSET(50)] AS median FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, MEDIAN({qty}) AS median FROM {facts} GROUP BY 1

-- percentile over windows
SELECT DISTINCT {kind}, PERCENTILE_CONT({amount}, 0.5) OVER (PARTITION BY {kind}) AS median FROM {facts}
-- means
SELECT {kind}, MEDIAN({amount}) FROM {facts} GROUP BY 1

-- any value with having
SELECT ANY_VALUE({kind} HAVING MAX n) AS best FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind})
-- means
SELECT ARG_MAX({kind}, n) FROM (SELECT {kind}, COUNT(*) AS n FROM {facts} GROUP BY {kind})

-- array of keys
SELECT ARRAY_AGG(DISTINCT {kind} IGNORE NULLS ORDER BY {kind}) AS kinds FROM {facts}
-- means
SELECT LIST(DISTINCT {kind} ORDER BY {kind}) FROM {facts}

-- safe divide and ifnull
SELECT {kind}, SAFE_DIVIDE(SUM({amount}), SUM({qty})) AS each, IFNULL(SUM({amount}), 0) AS s FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, SUM({amount}) / SUM({qty}), COALESCE(SUM({amount}), 0) FROM {facts} GROUP BY 1

-- date arithmetic
SELECT DATE_ADD(DATE '2024-01-01', INTERVAL 1 MONTH) AS d, COUNT(*) AS n FROM {facts} WHERE {day} >= DATE_SUB(DATE '2024-09-30', INTERVAL 2 QUARTER)
-- means
SELECT DATE '2024-02-01', COUNT(*) FROM {facts} WHERE {day} >= DATE '2024-03-30'

-- generate date array
SELECT d, COUNT(f.{key}) AS n FROM UNNEST(GENERATE_DATE_ARRAY('2024-05-01', '2024-05-07')) AS d LEFT JOIN {facts} f ON f.{day} = d GROUP BY d ORDER BY d
-- means
SELECT CAST(r.d AS DATE), COUNT({key}) FROM range(DATE '2024-05-01', DATE '2024-05-08', INTERVAL 1 DAY) r(d) LEFT JOIN {facts} ON {day} = CAST(r.d AS DATE) GROUP BY 1

-- unnest a list
SELECT k, COUNT(f.{key}) AS n FROM UNNEST([{k1}, {k2}]) AS k LEFT JOIN {facts} f ON f.{kind} = k GROUP BY k
-- means
SELECT k, COUNT(f.{key}) FROM (VALUES ({k1}), ({k2})) v(k) LEFT JOIN {facts} f ON f.{kind} = k GROUP BY k

-- in unnest
SELECT COUNT(*) AS n FROM {facts} WHERE {kind} IN UNNEST([{k1}, {k3}])
-- means
SELECT COUNT(*) FROM {facts} WHERE {kind} IN ({k1}, {k3})

-- qualify
SELECT {state}, {kind}, COUNT(*) AS n FROM {facts} GROUP BY {state}, {kind} QUALIFY RANK() OVER (PARTITION BY {state} ORDER BY n DESC) = 1

-- pivot
SELECT * FROM (SELECT {state}, {kind}, {qty} FROM {facts}) PIVOT (SUM({qty}) FOR {kind} IN ({k1} AS a, {k2} AS b))
-- means
SELECT {state}, SUM({qty}) FILTER ({kind} = {k1}), SUM({qty}) FILTER ({kind} = {k2}) FROM {facts} GROUP BY 1

-- except columns
SELECT * EXCEPT (n) FROM (SELECT {kind}, COUNT(*) AS n, SUM({qty}) AS s FROM {facts} GROUP BY {kind})
-- means
SELECT {kind}, SUM({qty}) FROM {facts} GROUP BY 1

-- case conversion and patterns
SELECT UPPER({kind}) AS k, COUNT(*) AS n FROM {facts} WHERE REGEXP_CONTAINS({kind}, r'^[a-m]') OR STARTS_WITH({kind}, 's') OR ENDS_WITH({kind}, 'e') GROUP BY k
-- means
SELECT UPPER({kind}), COUNT(*) FROM {facts} WHERE regexp_matches({kind}, '^[a-m]') OR {kind} LIKE 's%' OR {kind} LIKE '%e' GROUP BY 1

-- regexp extract
SELECT REGEXP_EXTRACT({kind}, r'^(.)') AS first_letter, COUNT(*) AS n FROM {facts} GROUP BY 1
-- means
SELECT LEFT({kind}, 1), COUNT(*) FROM {facts} GROUP BY 1

-- range bucket
SELECT RANGE_BUCKET({age}, [18, 35, 65]) AS band, COUNT(*) AS n FROM {people} WHERE {age} IS NOT NULL GROUP BY band
-- means
SELECT CASE WHEN {age} < 18 THEN 0 WHEN {age} < 35 THEN 1 WHEN {age} < 65 THEN 2 ELSE 3 END AS band, COUNT(*) FROM {people} WHERE {age} IS NOT NULL GROUP BY 1

-- whole division and modulus
SELECT DIV({age}, 10) AS decade, COUNT(*) AS n, MOD(SUM({age}), 7) AS m FROM {people} WHERE {age} IS NOT NULL GROUP BY 1
-- means
SELECT {age} // 10, COUNT(*), SUM({age}) % 7 FROM {people} WHERE {age} IS NOT NULL GROUP BY 1

-- real division
SELECT SUM({qty}) / COUNT(*) AS each FROM {facts}

-- casts
SELECT CAST(AVG({qty}) AS INT64) AS m, CAST(COUNT(*) AS STRING) AS t, SAFE_CAST(SUM({qty}) AS FLOAT64) AS f FROM {facts}
-- means
SELECT CAST(ROUND(AVG({qty})) AS BIGINT), CAST(COUNT(*) AS VARCHAR), CAST(SUM({qty}) AS DOUBLE) FROM {facts}

-- statistics
SELECT STDDEV({amount}) AS s, VAR_POP({amount}) AS v, CORR({amount}, {qty}) AS r, COVAR_POP({amount}, {qty}) AS c FROM {facts}

-- navigation over groups
SELECT m, n, LAG(n) OVER (ORDER BY m) AS before, FIRST_VALUE(n) OVER (ORDER BY m) AS first, NTH_VALUE(n, 2) OVER (ORDER BY m ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS second FROM (SELECT EXTRACT(MONTH FROM {day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY m)

-- named window
SELECT m, SUM(n) OVER w AS running FROM (SELECT EXTRACT(MONTH FROM {day}) AS m, COUNT(*) AS n FROM {facts} GROUP BY m) WINDOW w AS (ORDER BY m)

-- tablesample
-- random: yes
SELECT AVG({amount}) FROM {facts} TABLESAMPLE SYSTEM (10 PERCENT)
-- means
SELECT AVG({amount}) FROM {facts} USING SAMPLE 10%

-- struct of totals
SELECT AS STRUCT COUNT(*) AS n, SUM({qty}) AS s FROM {facts}
-- means
SELECT struct_pack(n := COUNT(*), s := SUM({qty})) FROM {facts}

-- rollup
SELECT {region}, {tier}, COUNT(*) AS n FROM {people} GROUP BY ROLLUP ({region}, {tier})

-- parse date
SELECT COUNT(*) AS n FROM {facts} WHERE {day} >= PARSE_DATE('%Y%m%d', '20240601')
-- means
SELECT COUNT(*) FROM {facts} WHERE {day} >= DATE '2024-06-01'

-- union all
SELECT {kind} AS k, COUNT(*) AS n FROM {facts} GROUP BY k UNION ALL SELECT 'total', COUNT(*) FROM {facts}

-- format of numbers
SELECT {kind}, FORMAT('%d rows', COUNT(*)) AS t FROM {facts} GROUP BY {kind}
-- means
SELECT {kind}, COUNT(*) || ' rows' FROM {facts} GROUP BY 1
