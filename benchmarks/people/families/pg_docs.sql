-- source: PostgreSQL documentation: tutorial, queries, functions
-- address: https://www.postgresql.org/docs/current/
-- seen: remembered
-- in: postgres

-- maximum
SELECT max({qty}) FROM {facts}

-- rows with the maximum
-- refused: individual rows
SELECT {kind}, {day} FROM {facts} WHERE {amount} = (SELECT max({amount}) FROM {facts})

-- group, having, like
SELECT {kind}, count(*), max({amount}) FROM {facts} WHERE {kind} LIKE '%a%' GROUP BY {kind} HAVING max({qty}) > 4

-- filter beside all
SELECT {kind}, count(*) FILTER (WHERE {amount} < 45), max({amount}) FROM {facts} GROUP BY {kind}

-- window over groups
SELECT {kind}, sum({qty}), avg(sum({qty})) OVER () FROM {facts} GROUP BY {kind} ORDER BY 2 DESC

-- window beside rows
-- refused: individual rows
SELECT {kind}, {day}, {amount}, avg({amount}) OVER (PARTITION BY {kind}) FROM {facts}

-- grouping sets
SELECT {region}, {tier}, count(*), grouping({region}, {tier}) FROM {people} GROUP BY GROUPING SETS (({region}), ({tier}), ())

-- cube
SELECT {kind}, {state}, sum({qty}) FROM {facts} GROUP BY CUBE ({kind}, {state}) ORDER BY 1, 2

-- rollup of dates
SELECT extract(quarter FROM {day}) AS q, extract(month FROM {day}) AS m, count(*) FROM {facts} GROUP BY ROLLUP (1, 2) ORDER BY 1, 2

-- regional sales in a with query
WITH regional AS (SELECT {region}, sum(f.{amount}) AS total FROM {people} p JOIN {facts} f USING ({id}) GROUP BY {region}), top AS (SELECT {region} FROM regional WHERE total > (SELECT sum(total) / 10 FROM regional)) SELECT p.{region}, f.{kind}, sum(f.{qty}) AS units, sum(f.{amount}) AS sales FROM {people} p JOIN {facts} f USING ({id}) WHERE p.{region} IN (SELECT {region} FROM top) GROUP BY p.{region}, f.{kind}

-- materialized with
WITH w AS MATERIALIZED (SELECT {kind}, count(*) AS n FROM {facts} GROUP BY {kind}) SELECT max(n), min(n) FROM w

-- exists
SELECT count(*) FROM {people} p WHERE EXISTS (SELECT 1 FROM {facts} f WHERE f.{id} = p.{id} AND f.{qty} > 7)

-- not in
SELECT count(*) FROM {people} WHERE {id} NOT IN (SELECT {id} FROM {facts} WHERE {id} IS NOT NULL)

-- any of a subquery
SELECT count(*) FROM {people} WHERE {id} = ANY (SELECT {id} FROM {facts} WHERE {kind} = {k1})

-- any of an array
SELECT count(*) FROM {facts} WHERE {kind} = ANY (ARRAY[{k1}, {k2}])

-- all of an array
SELECT count(*) FROM {facts} WHERE {kind} <> ALL ('{view,books}')

-- row wise comparison
SELECT count(*) FROM {facts} WHERE ({kind}, {state}) = ({k1}, {s1})

-- rows in a list
SELECT count(*) FROM {facts} WHERE ({kind}, {state}) IN (({k1}, {s1}), ({k2}, {s2}))

-- statistics of pairs
SELECT corr({amount}, {qty}), covar_pop({amount}, {qty}), covar_samp({amount}, {qty}), regr_count({amount}, {qty}), regr_avgx({amount}, {qty}), regr_slope({amount}, {qty}) FROM {facts}

-- sums of squares of regression
SELECT regr_sxx({amount}, {qty}), regr_syy({amount}, {qty}), regr_sxy({amount}, {qty}) FROM {facts}

-- ordered set aggregates
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY {qty}), percentile_cont(0.9) WITHIN GROUP (ORDER BY {amount}) FROM {facts}

-- mode of texts
SELECT mode() WITHIN GROUP (ORDER BY {kind}) FROM {facts}

-- hypothetical rank
SELECT rank(100) WITHIN GROUP (ORDER BY {amount}), percent_rank(100) WITHIN GROUP (ORDER BY {amount}) FROM {facts}

-- bool or
-- refused: one row would decide it
SELECT bool_or({flag}), every({qty} > 0) FROM {facts}

-- string agg
-- refused: values of rows
SELECT string_agg({kind}, ',' ORDER BY {at}) FROM {facts}

-- array agg of keys
SELECT array_agg(DISTINCT {kind} ORDER BY {kind}) FROM {facts}

-- json of a summary
SELECT json_agg(t) FROM (SELECT {kind}, count(*) AS n FROM {facts} GROUP BY {kind} ORDER BY {kind}) t

-- window functions over groups
SELECT {kind}, n, row_number() OVER w, ntile(2) OVER w, lag(n) OVER w, lead(n, 1, 0) OVER w, first_value({kind}) OVER w, nth_value({kind}, 2) OVER w FROM (SELECT {kind}, count(*) AS n FROM {facts} GROUP BY {kind}) s WINDOW w AS (ORDER BY n DESC, {kind})

-- frames
SELECT m, n, sum(n) OVER (ORDER BY m ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), count(*) OVER (ORDER BY m RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), avg(n) OVER (ORDER BY m GROUPS 1 PRECEDING) FROM (SELECT extract(month FROM {day}) AS m, count(*) AS n FROM {facts} GROUP BY 1) s ORDER BY m

-- frame without the current row
SELECT m, n, sum(n) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW) FROM (SELECT extract(month FROM {day}) AS m, count(*) AS n FROM {facts} GROUP BY 1) s ORDER BY m

-- date parts
SELECT extract(dow FROM {at}), extract(isodow FROM {at}), count(*) FROM {facts} GROUP BY 1, 2 ORDER BY 1

-- week and iso year
SELECT extract(isoyear FROM {day}) AS y, extract(week FROM {day}) AS w, count(*) FROM {facts} GROUP BY 1, 2 ORDER BY 1, 2

-- day of the year
SELECT extract(doy FROM {day}) > 180 AS late, count(*) FROM {facts} GROUP BY 1

-- date trunc of a timestamp
SELECT date_trunc('week', {at})::date AS week, count(*), sum({amount}) FROM {facts} GROUP BY 1 ORDER BY 1

-- date bin
SELECT date_bin('7 days', {at}, TIMESTAMP '2024-01-01') AS bin, count(*) FROM {facts} GROUP BY 1 ORDER BY 1

-- to char
SELECT to_char({at}, 'YYYY-MM') AS month, count(*) FROM {facts} GROUP BY 1 ORDER BY 1

-- to char with names
SELECT to_char({at}, 'Dy') AS weekday, count(*) FROM {facts} GROUP BY to_char({at}, 'Dy'), extract(isodow FROM {at}) ORDER BY extract(isodow FROM {at})

-- interval arithmetic
SELECT count(*) FROM {facts} WHERE {at} >= TIMESTAMP '2024-06-01' - INTERVAL '1 month' AND {at} < TIMESTAMP '2024-06-01' + INTERVAL '2 weeks 3 days'

-- difference of days
SELECT avg(f.{day} - p.{joined}) FROM {facts} f JOIN {people} p ON p.{id} = f.{id}

-- difference of timestamps in days
SELECT avg(extract(day FROM f.{at} - p.{joined})) FROM {facts} f JOIN {people} p ON p.{id} = f.{id}

-- overlaps
SELECT count(*) FROM {people} WHERE ({joined}, {joined} + 30) OVERLAPS (DATE '2024-03-01', DATE '2024-03-31')

-- at time zone
SELECT date_trunc('day', {at} AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS d, count(*) FROM {facts} WHERE {day} BETWEEN '2024-06-01' AND '2024-06-10' GROUP BY 1 ORDER BY 1

-- generate series of days
SELECT d::date AS day, count(f.{key}) FROM generate_series(DATE '2024-05-01', DATE '2024-05-07', INTERVAL '1 day') AS d LEFT JOIN {facts} f ON f.{day} = d::date GROUP BY 1 ORDER BY 1

-- generate series of bins
SELECT b, count(f.{key}) FROM generate_series(1, 9) AS b LEFT JOIN {facts} f ON f.{qty} = b GROUP BY b ORDER BY b

-- width bucket
SELECT width_bucket({amount}, 0, 200, 4) AS bucket, count(*) FROM {facts} WHERE {amount} IS NOT NULL GROUP BY 1 ORDER BY 1

-- case and coalesce
SELECT CASE {kind} WHEN {k1} THEN 'one' WHEN {k2} THEN 'two' ELSE 'more' END AS c, count(coalesce({amount}, 0)), sum(nullif({qty}, 9)) FROM {facts} GROUP BY 1

-- greatest and least
SELECT avg(greatest({amount}, 50)), avg(least({qty}, 5)) FROM {facts}

-- texts
SELECT upper(left({kind}, 3)) || '-' || length({kind})::text AS label, count(*) FROM {facts} GROUP BY 1

-- substring and position
SELECT substring({kind} from 1 for 2) AS s, position('a' in {kind}) AS p, count(*) FROM {facts} GROUP BY 1, 2

-- concat_ws and format
SELECT concat_ws('/', {kind}, {state}) AS c, count(*) FROM {facts} GROUP BY 1

-- similar to
SELECT count(*) FROM {facts} WHERE {kind} SIMILAR TO '%(a|o)%'

-- regexp replace
SELECT regexp_replace({kind}, '[aeiou]', '', 'g') AS short, count(*) FROM {facts} GROUP BY 1

-- numbers
SELECT round(avg({amount})::numeric, 2), trunc(avg({qty}), 1), ceil(avg({qty})), mod(sum({qty}), 10), power(avg({qty}), 2), sqrt(avg({qty})) FROM {facts}

-- whole division
SELECT {age} / 10 * 10 AS decade, count(*) FROM {people} GROUP BY 1 ORDER BY 1

-- whole division of sums
SELECT sum({qty}) / count(*) FROM {facts}

-- casts
SELECT sum({amount})::numeric(10, 2), avg({qty})::float8, cast(count(*) AS integer) FROM {facts}

-- cast of text in a condition
SELECT count(*) FROM {people} WHERE {age} > '40' AND {joined} > '2024-03-01'::date

-- is true
SELECT count(*) FROM {facts} WHERE {flag} IS TRUE OR {flag} IS NOT TRUE AND {qty} > 3

-- is unknown
SELECT count(*) FROM {facts} WHERE {flag} IS UNKNOWN

-- is distinct from
SELECT count(*) FROM {facts} WHERE {state} IS DISTINCT FROM {s1}

-- between symmetric
SELECT count(*) FROM {people} WHERE {age} BETWEEN SYMMETRIC 60 AND 30

-- values list joined
SELECT v.name, count(*) FROM {facts} f JOIN (VALUES ({k1}, 'first'), ({k2}, 'second')) AS v (kind, name) ON v.kind = f.{kind} GROUP BY v.name

-- union all
SELECT {kind} AS k, count(*) FROM {facts} GROUP BY 1 UNION ALL SELECT 'total', count(*) FROM {facts}

-- except of keys
SELECT {kind} FROM {facts} GROUP BY {kind} EXCEPT SELECT {k1}

-- intersect of people
SELECT count(*) FROM (SELECT {id} FROM {facts} WHERE {kind} = {k1} INTERSECT SELECT {id} FROM {facts} WHERE {kind} = {k2}) t

-- distinct on people
SELECT {kind}, count(*) FROM (SELECT DISTINCT ON ({id}) {id}, {kind} FROM {facts} ORDER BY {id}, {at} DESC) t GROUP BY {kind}

-- fetch first
SELECT {kind}, count(*) FROM {facts} GROUP BY {kind} ORDER BY count(*) DESC FETCH FIRST 2 ROWS ONLY

-- fetch with ties
SELECT {kind}, count(*) AS n FROM {facts} GROUP BY {kind} ORDER BY n DESC FETCH FIRST 2 ROWS WITH TIES

-- limit and offset
SELECT {kind}, count(*) FROM {facts} GROUP BY {kind} ORDER BY 2 DESC, 1 LIMIT 2 OFFSET 1

-- order by nulls first
SELECT {state}, count(*) FROM {facts} GROUP BY {state} ORDER BY {state} DESC NULLS FIRST

-- order by an expression
SELECT {kind}, sum({qty}) AS s FROM {facts} GROUP BY {kind} ORDER BY sum({qty}) * -1

-- lateral
SELECT p.{region}, avg(x.n) FROM {people} p CROSS JOIN LATERAL (SELECT count(*) AS n FROM {facts} f WHERE f.{id} = p.{id}) x GROUP BY p.{region}

-- scalar subquery of a person
SELECT avg(n) FROM (SELECT p.{id}, (SELECT count(*) FROM {facts} f WHERE f.{id} = p.{id}) AS n FROM {people} p) t

-- sample
-- random: yes
SELECT avg({amount}) FROM {facts} TABLESAMPLE SYSTEM (10)

-- recursive series
WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 12) SELECT t.n, count(f.{key}) FROM t LEFT JOIN {facts} f ON extract(month FROM f.{day}) = t.n GROUP BY t.n ORDER BY t.n

-- current date
SELECT count(*) FROM {facts} WHERE {day} < current_date - 7 AND {at} < now()

-- full outer join of summaries
SELECT coalesce(a.m, b.m) AS m, a.n, b.n AS k FROM (SELECT extract(month FROM {day}) AS m, count(*) AS n FROM {facts} GROUP BY 1) a FULL JOIN (SELECT extract(month FROM {lat}) AS m, count(*) AS n FROM {logs} GROUP BY 1) b ON a.m = b.m ORDER BY 1

-- bit and
-- refused: one row would decide it
SELECT bit_and({qty}), bit_or({qty}) FROM {facts}

-- natural join
SELECT count(*) FROM {people} NATURAL JOIN {logs}

-- select into
-- refused: it writes a table
SELECT {kind}, count(*) INTO TEMP summary FROM {facts} GROUP BY {kind}

-- explain of rows with for update
-- refused: it locks rows
SELECT count(*) FROM {facts} FOR UPDATE
