-- source: dbt packages of Fivetran (Shopify, Zendesk) and dbt's jaffle shop
-- address: https://github.com/fivetran/dbt_zendesk
-- seen: read in part
-- in: snowflake bigquery postgres spark

-- totals of customers, then of all
WITH customer_orders AS (SELECT {id}, MIN({day}) AS first_order, MAX({day}) AS most_recent_order, COUNT({key}) AS number_of_orders, SUM({amount}) AS lifetime_value FROM {facts} GROUP BY {id}) SELECT COUNT(*) AS customers, AVG(number_of_orders) AS orders, AVG(lifetime_value) AS value FROM customer_orders

-- customers left joined, zero for none
WITH customers AS (SELECT * FROM {people}), orders AS (SELECT * FROM {facts}), totals AS (SELECT {id}, COUNT({key}) AS n FROM orders GROUP BY 1), final AS (SELECT customers.{id}, customers.{region}, COALESCE(totals.n, 0) AS n FROM customers LEFT JOIN totals ON customers.{id} = totals.{id}) SELECT {region}, SUM(n) AS orders, COUNT(*) AS customers FROM final GROUP BY 1

-- select star from final
WITH orders AS (SELECT * FROM {facts}), final AS (SELECT {kind}, COUNT(*) AS orders, SUM({amount}) AS amount FROM orders GROUP BY 1) SELECT * FROM final

-- pivot of payment methods by a case
SELECT {month:{day}} AS order_month, SUM(CASE WHEN {kind} = {k1} THEN {amount} ELSE 0 END) AS first_amount, SUM(CASE WHEN {kind} = {k2} THEN {amount} ELSE 0 END) AS second_amount, SUM({amount}) AS total_amount FROM {facts} GROUP BY 1

-- new and returning customers
SELECT {month:{day}} AS m, COUNT(DISTINCT CASE WHEN seq = 1 THEN {id} END) AS new_customers, COUNT(DISTINCT CASE WHEN seq > 1 THEN {id} END) AS returning_customers FROM (SELECT {id}, {day}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) AS seq FROM {facts}) o GROUP BY 1

-- new or repeat by a case
SELECT new_vs_repeat, COUNT(*) AS orders, AVG({amount}) AS average_order_value FROM (SELECT {amount}, CASE WHEN ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) = 1 THEN 'new' ELSE 'repeat' END AS new_vs_repeat FROM {facts}) o GROUP BY 1

-- daily overview
SELECT {day} AS date_day, COUNT(DISTINCT {key}) AS count_orders, COUNT(DISTINCT {id}) AS count_customers, SUM({amount}) AS order_total, AVG({qty}) AS average_quantity FROM {facts} GROUP BY 1

-- calendar spine with zero
SELECT d.cal_date, COALESCE(o.n, 0) AS orders FROM dim_date d LEFT JOIN (SELECT {day}, COUNT(*) AS n FROM {facts} GROUP BY 1) o ON o.{day} = d.cal_date WHERE d.cal_date >= '2024-05-01' AND d.cal_date < '2024-05-15'

-- tickets by status and priority
SELECT {state} AS status, {kind} AS priority, COUNT(*) AS tickets, SUM(CASE WHEN {flag} THEN 1 ELSE 0 END) AS escalated FROM {facts} GROUP BY 1, 2

-- summary of one row
SELECT SUM(CASE WHEN {state} = {s1} THEN 1 ELSE 0 END) AS open_count, SUM(CASE WHEN {state} = {s2} THEN 1 ELSE 0 END) AS solved_count, COUNT({key}) AS total FROM {facts}

-- latest value of a field history
WITH history AS (SELECT {id}, {state}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at} DESC) AS rn FROM {facts}) SELECT {state}, COUNT(*) AS n FROM history WHERE rn = 1 GROUP BY {state}

-- first and last value by windows
SELECT first_state, last_state, COUNT(*) AS n FROM (SELECT DISTINCT {id}, FIRST_VALUE({kind}) OVER (PARTITION BY {id} ORDER BY {at} ROWS UNBOUNDED PRECEDING) AS first_state, FIRST_VALUE({kind}) OVER (PARTITION BY {id} ORDER BY {at} DESC ROWS UNBOUNDED PRECEDING) AS last_state FROM {facts}) h GROUP BY 1, 2

-- mean minutes to the next update
SELECT AVG(gap) AS mean_days FROM (SELECT {days:{day};LEAD({day}) OVER (PARTITION BY {id} ORDER BY {at})} AS gap FROM {facts}) t

-- products by quantity
SELECT i.{label} AS product, i.{class} AS product_type, SUM(f.{qty}) AS quantity_sold, COUNT(DISTINCT f.{id}) AS customers FROM {facts} f LEFT JOIN {items} i ON i.{code} = f.{code} GROUP BY 1, 2

-- cohort months with a join to the first month
WITH c AS (SELECT {id}, MIN({month:{day}}) AS cohort_month FROM {facts} GROUP BY 1) SELECT c.cohort_month, {months:c.cohort_month;f.{day}} AS months_since, COUNT(DISTINCT f.{id}) AS customers, SUM(f.{amount}) AS revenue FROM {facts} f JOIN c ON c.{id} = f.{id} GROUP BY 1, 2

-- union of two sources
WITH u AS (SELECT {id}, {at} AS happened FROM {facts} UNION ALL SELECT {id}, {lat} AS happened FROM {logs}) SELECT {month:happened} AS m, COUNT(*) AS n, COUNT(DISTINCT {id}) AS people FROM u GROUP BY 1

-- counts of nulls by a test
SELECT COUNT(*) AS failures FROM {facts} WHERE {amount} IS NULL

-- uniqueness test
SELECT {key}, COUNT(*) AS n FROM {facts} WHERE {key} IS NOT NULL GROUP BY {key} HAVING COUNT(*) > 1

-- accepted values test
WITH all_values AS (SELECT {state} AS value_field, COUNT(*) AS n_records FROM {facts} GROUP BY {state}) SELECT * FROM all_values WHERE value_field NOT IN ({s1}, {s2})

-- relationships test
WITH child AS (SELECT {code} AS from_field FROM {facts} WHERE {code} IS NOT NULL), parent AS (SELECT {code} AS to_field FROM {items}) SELECT COUNT(*) AS failures FROM child LEFT JOIN parent ON child.from_field = parent.to_field WHERE parent.to_field IS NULL
