-- source: PostgreSQL exercises
-- address: https://pgexercises.com/
-- seen: remembered
-- in: postgres duckdb

-- count of a table
SELECT count(*) FROM {items}

-- count of the expensive
SELECT count(*) FROM {items} WHERE {price} >= 10

-- recommendations of each member
-- refused: individual rows
SELECT {id}, count(*) FROM {facts} WHERE {code} IS NOT NULL GROUP BY {id} ORDER BY {id}

-- slots by facility
SELECT {code}, sum({qty}) AS "Total Slots" FROM {facts} GROUP BY {code} ORDER BY {code}

-- slots by facility in a month
SELECT {code}, sum({qty}) AS "Total Slots" FROM {facts} WHERE {at} >= '2024-09-01' AND {at} < '2024-10-01' GROUP BY {code} ORDER BY sum({qty})

-- slots by facility and month
SELECT {code}, extract(month FROM {at}) AS month, sum({qty}) AS "Total Slots" FROM {facts} WHERE extract(year FROM {at}) = 2024 GROUP BY {code}, month ORDER BY {code}, month

-- members with a booking
SELECT count(DISTINCT {id}) FROM {facts}

-- facilities with more than some slots
SELECT {code}, sum({qty}) AS "Total Slots" FROM {facts} GROUP BY {code} HAVING sum({qty}) > 300 ORDER BY {code}

-- revenue by facility
SELECT i.{label}, sum(f.{qty} * CASE WHEN f.{flag} THEN i.{price} ELSE i.{price} * 2 END) AS revenue FROM {facts} f INNER JOIN {items} i ON f.{code} = i.{code} GROUP BY i.{label} ORDER BY revenue

-- revenue below a bound
SELECT name, revenue FROM (SELECT i.{label} AS name, sum(f.{qty} * i.{price}) AS revenue FROM {facts} f INNER JOIN {items} i ON f.{code} = i.{code} GROUP BY i.{label}) AS agg WHERE revenue < 5000 ORDER BY revenue

-- facility with the most slots
SELECT {code}, sum({qty}) AS "Total Slots" FROM {facts} GROUP BY {code} ORDER BY sum({qty}) DESC LIMIT 1

-- facilities with the most slots by a subquery
WITH sum AS (SELECT {code}, sum({qty}) AS totalslots FROM {facts} GROUP BY {code}) SELECT {code}, totalslots FROM sum WHERE totalslots = (SELECT max(totalslots) FROM sum)

-- rollup of facility and month
SELECT {code}, extract(month FROM {at}) AS month, sum({qty}) AS slots FROM {facts} WHERE {at} >= '2024-01-01' AND {at} < '2025-01-01' GROUP BY ROLLUP({code}, month) ORDER BY {code}, month

-- hours by facility
-- in: postgres
SELECT f.{code}, i.{label}, to_char(sum(f.{qty}) / 2.0, 'FM999999990.00') AS "Total Hours" FROM {facts} f JOIN {items} i ON i.{code} = f.{code} GROUP BY f.{code}, i.{label} ORDER BY f.{code}

-- first booking after a date, counted
SELECT count(*) FROM (SELECT p.{id}, min(f.{at}) AS starttime FROM {facts} f INNER JOIN {people} p ON p.{id} = f.{id} WHERE f.{at} >= '2024-09-01' GROUP BY p.{id}) t

-- total members on each row
-- refused: individual rows
SELECT count(*) OVER (), {region} FROM {people} ORDER BY {joined}

-- rank of facilities by slots
SELECT {code}, total FROM (SELECT {code}, sum({qty}) total, rank() OVER (ORDER BY sum({qty}) DESC) rank FROM {facts} GROUP BY {code}) AS ranked WHERE rank = 1

-- rank of members by hours, counted
SELECT hours, count(*) AS members FROM (SELECT {id}, round(sum({qty}) / 10.0) * 10 AS hours FROM {facts} GROUP BY {id}) t GROUP BY hours ORDER BY hours

-- classes of facilities by ntile
SELECT name, CASE WHEN class = 1 THEN 'high' WHEN class = 2 THEN 'average' ELSE 'low' END AS revenue FROM (SELECT i.{label} AS name, ntile(3) OVER (ORDER BY sum(f.{qty} * i.{price}) DESC) AS class FROM {facts} f INNER JOIN {items} i ON f.{code} = i.{code} GROUP BY i.{label}) AS subq ORDER BY class, name

-- rolling average of revenue over fifteen days
SELECT dategen.date, (SELECT sum(f.{qty}) FROM {facts} f WHERE f.{day} > dategen.date - 15 AND f.{day} <= dategen.date) / 15.0 AS revenue FROM (SELECT cal_date AS date FROM dim_date WHERE cal_date BETWEEN '2024-08-01' AND '2024-08-10') AS dategen ORDER BY dategen.date

-- bookings by day with a union
SELECT 'members' AS who, count(*) AS n FROM {people} UNION SELECT 'bookings', count(*) FROM {facts} ORDER BY 1

-- members without
SELECT count(*) FROM {people} p WHERE NOT EXISTS (SELECT 1 FROM {facts} f WHERE f.{id} = p.{id} AND f.{kind} = {k1})

-- utilisation by month in percent
SELECT i.{label}, extract(month FROM f.{day}) AS month, round(100.0 * sum(f.{qty}) / 900, 1) AS utilisation FROM {facts} f JOIN {items} i ON i.{code} = f.{code} GROUP BY 1, 2 ORDER BY 1, 2

-- telephone numbers by a pattern
SELECT count(*) FROM {people} WHERE {region} LIKE '%o%' OR upper({region}) LIKE 'U%'

-- first letters of names
SELECT substr(p.{region}, 1, 1) AS letter, count(*) AS count FROM {people} p GROUP BY letter ORDER BY letter
