-- 1 daily_active_users
SELECT CAST(seen AS DATE) AS day, COUNT(DISTINCT customer_key) AS dau FROM page_views GROUP BY 1 ORDER BY 1;

-- 2 weekly_active_users
SELECT date_trunc('week', seen) AS week, COUNT(DISTINCT customer_key) AS wau FROM page_views GROUP BY 1 ORDER BY 1;

-- 3 monthly_active_users_by_device
SELECT date_trunc('month', seen) AS month, device, COUNT(DISTINCT customer_key) AS mau FROM page_views GROUP BY 1, 2 ORDER BY 1, 2;

-- 4 stickiness
WITH daily AS (SELECT CAST(seen AS DATE) AS day, COUNT(DISTINCT customer_key) AS dau FROM page_views GROUP BY 1),
     monthly AS (SELECT date_trunc('month', seen) AS month, COUNT(DISTINCT customer_key) AS mau FROM page_views GROUP BY 1)
SELECT m.month, AVG(d.dau) / MAX(m.mau) AS stickiness FROM daily d JOIN monthly m ON date_trunc('month', d.day) = m.month GROUP BY m.month ORDER BY 1;

-- 5 seven_day_average
SELECT day, AVG(n) OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS smooth
FROM (SELECT CAST(seen AS DATE) AS day, COUNT(*) AS n FROM page_views GROUP BY 1) d ORDER BY day;

-- 6 views_by_hour_and_weekday
SELECT dayofweek(seen) AS weekday, hour(seen) AS hour, COUNT(*) AS views FROM page_views GROUP BY ALL ORDER BY ALL;

-- 7 funnel
SELECT COUNT(DISTINCT CASE WHEN page = 'item' THEN customer_key END) AS viewed,
       COUNT(DISTINCT CASE WHEN page = 'cart' THEN customer_key END) AS carted,
       COUNT(DISTINCT CASE WHEN page = 'checkout' THEN customer_key END) AS paid FROM page_views;

-- 8 funnel_in_order
WITH steps AS (SELECT customer_key, MIN(CASE WHEN page = 'item' THEN seen END) AS viewed, MIN(CASE WHEN page = 'cart' THEN seen END) AS carted,
                      MIN(CASE WHEN page = 'checkout' THEN seen END) AS paid FROM page_views GROUP BY customer_key)
SELECT COUNT(*) FILTER (viewed IS NOT NULL) AS viewed, COUNT(*) FILTER (carted > viewed) AS carted,
       COUNT(*) FILTER (paid > carted AND carted > viewed) AS paid FROM steps;

-- 9 first_page_of_a_customer
SELECT page, COUNT(*) AS n FROM (
  SELECT customer_key, page, ROW_NUMBER() OVER (PARTITION BY customer_key ORDER BY seen) AS rn FROM page_views) v
WHERE rn = 1 GROUP BY page ORDER BY n DESC;

-- 10 first_page_by_qualify
SELECT page, COUNT(*) AS n FROM (
  SELECT customer_key, page FROM page_views QUALIFY ROW_NUMBER() OVER (PARTITION BY customer_key ORDER BY seen) = 1) v GROUP BY page ORDER BY n DESC;

-- 11 what_follows_a_page
SELECT page, next_page, COUNT(*) AS n FROM (
  SELECT customer_key, page, LEAD(page) OVER (PARTITION BY customer_key ORDER BY seen) AS next_page FROM page_views) v
WHERE next_page IS NOT NULL GROUP BY page, next_page ORDER BY n DESC;

-- 12 time_between_visits
SELECT AVG(days) AS days FROM (
  SELECT customer_key, date_diff('day', LAG(seen) OVER (PARTITION BY customer_key ORDER BY seen), seen) AS days FROM page_views) g;

-- 13 sessions
SELECT COUNT(*) AS sessions FROM (
  SELECT customer_key, seen, LAG(seen) OVER (PARTITION BY customer_key ORDER BY seen) AS before FROM page_views) v
WHERE before IS NULL OR date_diff('minute', before, seen) > 30;

-- 14 pages_a_session
WITH marked AS (SELECT customer_key, seen, CASE WHEN date_diff('minute', LAG(seen) OVER (PARTITION BY customer_key ORDER BY seen), seen) <= 1440 THEN 0 ELSE 1 END AS fresh FROM page_views),
     numbered AS (SELECT customer_key, SUM(fresh) OVER (PARTITION BY customer_key ORDER BY seen ROWS UNBOUNDED PRECEDING) AS session FROM marked)
SELECT AVG(pages) AS pages_a_session FROM (SELECT customer_key, session, COUNT(*) AS pages FROM numbered GROUP BY customer_key, session) s;

-- 15 retention_by_week
WITH firsts AS (SELECT customer_key, MIN(date_trunc('week', seen)) AS cohort FROM page_views GROUP BY customer_key)
SELECT f.cohort, date_diff('week', f.cohort, date_trunc('week', v.seen)) AS week, COUNT(DISTINCT v.customer_key) AS users
FROM page_views v JOIN firsts f USING (customer_key) GROUP BY 1, 2 ORDER BY 1, 2;

-- 16 signup_cohorts
SELECT date_trunc('month', signup) AS cohort, COUNT(*) AS customers, AVG(CASE WHEN preferred THEN 1.0 ELSE 0.0 END) AS preferred
FROM customers GROUP BY 1 ORDER BY 1;

-- 17 revenue_by_cohort
SELECT year(c.signup) AS cohort, d.year, SUM(s.paid) AS revenue FROM web_sales s JOIN customers c USING (customer_key) JOIN dates d USING (date_key)
GROUP BY 1, 2 ORDER BY 1, 2;

-- 18 returning_next_month
SELECT date_trunc('month', a.seen) AS month, COUNT(DISTINCT a.customer_key) AS retained FROM page_views a
WHERE EXISTS (SELECT 1 FROM page_views b WHERE b.customer_key = a.customer_key AND date_trunc('month', b.seen) = date_trunc('month', a.seen) + INTERVAL 1 MONTH)
GROUP BY 1 ORDER BY 1;

-- 19 month_over_month
SELECT month, revenue, revenue - LAG(revenue) OVER (ORDER BY month) AS change FROM (
  SELECT date_trunc('month', d.day) AS month, SUM(s.paid) AS revenue FROM web_sales s JOIN dates d USING (date_key) GROUP BY 1) m ORDER BY month;

-- 20 year_over_year
SELECT d.month, SUM(s.paid) FILTER (WHERE d.year = 2022) AS last_year, SUM(s.paid) FILTER (WHERE d.year = 2023) AS this_year,
       SUM(s.paid) FILTER (WHERE d.year = 2023) / NULLIF(SUM(s.paid) FILTER (WHERE d.year = 2022), 0) - 1 AS growth
FROM store_sales s JOIN dates d USING (date_key) GROUP BY d.month ORDER BY d.month;

-- 21 top_five_items
SELECT i.item_id, COUNT(*) AS n FROM store_sales s JOIN items i USING (item_key) GROUP BY i.item_id ORDER BY n DESC LIMIT 5;

-- 22 top_category_by_customers
SELECT i.category, COUNT(DISTINCT s.customer_key) AS n FROM store_sales s JOIN items i USING (item_key) GROUP BY i.category ORDER BY n DESC LIMIT 1;

-- 23 conversion_by_device
SELECT device, COUNT(DISTINCT customer_key) FILTER (page = 'checkout') * 1.0 / COUNT(DISTINCT customer_key) AS conversion FROM page_views GROUP BY device ORDER BY device;

-- 24 median_time_on_page
SELECT page, MEDIAN(seconds) AS median, QUANTILE_CONT(seconds, 0.9) AS p90 FROM page_views GROUP BY page ORDER BY page;

-- 25 kpis
SELECT COUNT(*) AS views, COUNT(DISTINCT customer_key) AS users, AVG(seconds) AS seconds, MAX(seen) AS latest FROM page_views;

-- 26 histogram_of_orders
SELECT orders, COUNT(*) AS customers FROM (SELECT customer_key, COUNT(DISTINCT order_key) AS orders FROM web_sales GROUP BY customer_key) o GROUP BY orders ORDER BY orders;

-- 27 customers_without_orders
SELECT COUNT(*) FROM customers c LEFT JOIN web_sales s ON s.customer_key = c.customer_key WHERE s.order_key IS NULL;

-- 28 average_revenue_per_user
SELECT SUM(paid) / COUNT(DISTINCT customer_key) AS arpu FROM web_sales;

-- 29 lifetime_value_by_country
SELECT a.country, AVG(v.total) AS value FROM (SELECT customer_key, SUM(paid) AS total FROM web_sales GROUP BY customer_key) v
JOIN addresses a USING (customer_key) GROUP BY a.country ORDER BY value DESC;

-- 30 repeat_rate
SELECT AVG(CASE WHEN n > 1 THEN 1.0 ELSE 0.0 END) AS repeat_rate FROM (SELECT customer_key, COUNT(DISTINCT order_key) AS n FROM web_sales GROUP BY customer_key) o;

-- 31 age_groups
SELECT CASE WHEN birth_year >= 1990 THEN 'young' WHEN birth_year >= 1960 THEN 'middle' WHEN birth_year IS NULL THEN 'unknown' ELSE 'old' END AS age, COUNT(*) AS n
FROM customers GROUP BY 1 ORDER BY n DESC;

-- 32 cube_of_device_and_page
SELECT device, page, COUNT(*) AS n FROM page_views GROUP BY CUBE (device, page) ORDER BY device NULLS LAST, page NULLS LAST;

-- 33 share_of_total
SELECT device, COUNT(*) AS n, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS share FROM page_views GROUP BY device ORDER BY device;

-- 34 ranks_of_pages_by_device
SELECT device, page, COUNT(*) AS n, DENSE_RANK() OVER (PARTITION BY device ORDER BY COUNT(*) DESC) AS place FROM page_views GROUP BY device, page ORDER BY device, place;

-- 35 running_total
SELECT CAST(seen AS DATE) AS day, SUM(COUNT(*)) OVER (ORDER BY CAST(seen AS DATE)) AS so_far FROM page_views GROUP BY 1 ORDER BY 1;

-- 36 items_viewed_and_bought
SELECT i.category, COUNT(*) AS n FROM page_views v JOIN web_sales s ON s.customer_key = v.customer_key AND s.item_key = v.item_key
JOIN items i ON i.item_key = v.item_key GROUP BY i.category ORDER BY i.category;

-- 37 correlation_of_price_and_quantity
SELECT CORR(sales_price, quantity) AS r, COVAR_SAMP(sales_price, quantity) AS c, REGR_SLOPE(paid, quantity) AS slope FROM web_sales;

-- 38 likes_and_case
SELECT LOWER(city) AS city, COUNT(*) AS n FROM addresses WHERE city LIKE 'L%' GROUP BY 1 HAVING COUNT(*) > 10 ORDER BY n DESC;

-- 39 first_order_by_month
SELECT date_trunc('month', first_day) AS month, COUNT(*) AS customers FROM (
  SELECT s.customer_key, MIN(d.day) AS first_day FROM web_sales s JOIN dates d USING (date_key) GROUP BY s.customer_key) f GROUP BY 1 ORDER BY 1;

-- 40 second_order
SELECT COUNT(*) AS customers FROM (
  SELECT customer_key, date_key, ROW_NUMBER() OVER (PARTITION BY customer_key ORDER BY date_key, order_key) AS rn FROM web_sales) o WHERE rn = 2;

-- 41 last_device
SELECT device, COUNT(*) AS n FROM (SELECT customer_key, ARG_MAX(device, seen) AS device FROM page_views GROUP BY customer_key) l GROUP BY device ORDER BY device;

-- 42 spend_quartiles
SELECT APPROX_QUANTILE(total, 0.25) AS q1, APPROX_QUANTILE(total, 0.5) AS q2, APPROX_QUANTILE(total, 0.75) AS q3
FROM (SELECT customer_key, SUM(paid) AS total FROM web_sales GROUP BY customer_key) t;

-- 43 pivot_of_devices
SELECT page, SUM(CASE WHEN device = 'phone' THEN 1 ELSE 0 END) AS phone, SUM(CASE WHEN device = 'tablet' THEN 1 ELSE 0 END) AS tablet,
       SUM(CASE WHEN device = 'desktop' THEN 1 ELSE 0 END) AS desktop FROM page_views GROUP BY page ORDER BY page;

-- 44 filter_from_a_widget
SELECT "page", COUNT(*) AS "Number of Records" FROM "main"."page_views" WHERE ((seen >= TIMESTAMP '2023-02-01 00:00:00') AND (seen < TIMESTAMP '2023-03-01 00:00:00')) AND (device IN ('phone', 'tablet'))
GROUP BY "page" ORDER BY "Number of Records" DESC LIMIT 10000;

-- 45 custom_query_wrapped
SELECT device AS device, COUNT(*) AS count FROM (SELECT * FROM page_views) AS virtual_table WHERE seen >= '2023-01-15 00:00:00' AND seen < '2023-02-15 00:00:00' GROUP BY device ORDER BY count DESC LIMIT 1000;

-- 46 time_grain_of_a_dashboard
SELECT DATE_TRUNC('day', seen) AS __timestamp, device AS device, COUNT(*) AS count FROM page_views
JOIN (SELECT device AS device__, COUNT(*) AS mme_inner__ FROM page_views GROUP BY device ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit ON device = device__
WHERE seen >= '2023-01-01' AND seen < '2023-01-15' GROUP BY device, DATE_TRUNC('day', seen) ORDER BY 1, 2;

-- 47 fill_missing_days
SELECT d.day, COALESCE(n, 0) AS orders FROM dates d LEFT JOIN (SELECT date_key, COUNT(DISTINCT order_key) AS n FROM web_sales GROUP BY date_key) s ON s.date_key = d.date_key
WHERE d.day BETWEEN '2022-02-01' AND '2022-02-14' ORDER BY d.day;

-- 48 days_from_a_series
SELECT CAST(g.day AS DATE) AS day, COALESCE(v.n, 0) AS views FROM generate_series(DATE '2023-01-01', DATE '2023-01-07', INTERVAL 1 DAY) AS g(day)
LEFT JOIN (SELECT CAST(seen AS DATE) AS day, COUNT(*) AS n FROM page_views GROUP BY 1) v ON v.day = CAST(g.day AS DATE) ORDER BY 1;

-- 49 segments_from_values
SELECT s.label, COUNT(*) AS customers FROM customers c JOIN (VALUES (1920, 1959, 'senior'), (1960, 1989, 'middle'), (1990, 2010, 'young')) AS s(low, high, label)
ON c.birth_year BETWEEN s.low AND s.high GROUP BY s.label ORDER BY s.label;

-- 50 recent_relative_to_today
SELECT COUNT(*) FROM page_views WHERE seen >= current_date - INTERVAL 10 YEAR;

-- 51 distinct_pairs
SELECT COUNT(DISTINCT (page, device)) AS pairs, COUNT(DISTINCT item_key) AS items FROM page_views;

-- 52 distinct_rows
SELECT COUNT(*) FROM (SELECT DISTINCT page, device FROM page_views) x;

-- 53 running_spend_of_a_customer
SELECT COUNT(DISTINCT customer_key) AS reached FROM (
  SELECT customer_key, SUM(quantity) OVER (PARTITION BY customer_key ORDER BY date_key ROWS UNBOUNDED PRECEDING) AS so_far FROM web_sales WHERE date_key < 365) r WHERE so_far >= 20;

-- 54 spread_within_a_customer
SELECT AVG(spread) AS spread FROM (SELECT customer_key, STDDEV(seconds) AS spread FROM page_views GROUP BY customer_key) s;

-- 55 median_per_customer
SELECT AVG(m) AS typical FROM (SELECT customer_key, MEDIAN(seconds) AS m FROM page_views GROUP BY customer_key) s;

-- 56 buckets_of_seconds
SELECT FLOOR(seconds / 100) AS bucket, COUNT(*) AS n FROM page_views GROUP BY 1 ORDER BY 1;

-- 57 approximate_users
SELECT device, APPROX_COUNT_DISTINCT(customer_key) AS users FROM page_views GROUP BY device ORDER BY device;

-- 58 busiest_day_of_each_week
SELECT week, day, n FROM (SELECT date_trunc('week', seen) AS week, CAST(seen AS DATE) AS day, COUNT(*) AS n FROM page_views GROUP BY 1, 2) d
QUALIFY ROW_NUMBER() OVER (PARTITION BY week ORDER BY n DESC) = 1 ORDER BY week;

-- 59 bounce_rate
SELECT AVG(CASE WHEN pages = 1 THEN 1.0 ELSE 0.0 END) AS bounce FROM (SELECT customer_key, CAST(seen AS DATE) AS day, COUNT(*) AS pages FROM page_views GROUP BY 1, 2) v;

-- 60 viewed_but_not_bought
SELECT COUNT(DISTINCT v.customer_key) AS customers FROM page_views v WHERE v.page = 'cart'
AND NOT EXISTS (SELECT 1 FROM web_sales s JOIN dates d USING (date_key) WHERE s.customer_key = v.customer_key AND d.year = 2023);

-- 61 new_and_returning_by_month
SELECT date_trunc('month', v.seen) AS month, SUM(CASE WHEN date_trunc('month', v.seen) = f.first_month THEN 1 ELSE 0 END) AS fresh,
       SUM(CASE WHEN date_trunc('month', v.seen) > f.first_month THEN 1 ELSE 0 END) AS returning_views
FROM page_views v JOIN (SELECT customer_key, MIN(date_trunc('month', seen)) AS first_month FROM page_views GROUP BY customer_key) f ON f.customer_key = v.customer_key
GROUP BY 1 ORDER BY 1;

-- 62 recency_frequency_monetary
SELECT frequency, COUNT(*) AS customers, AVG(monetary) AS monetary FROM (
  SELECT customer_key, LEAST(COUNT(DISTINCT order_key), 5) AS frequency, SUM(paid) AS monetary, MAX(date_key) AS recency FROM web_sales GROUP BY customer_key) r
GROUP BY frequency ORDER BY frequency;

-- 63 customers_above_the_typical
SELECT COUNT(*) FROM (SELECT customer_key, SUM(paid) AS total FROM web_sales GROUP BY customer_key) t
WHERE total > (SELECT MEDIAN(total) FROM (SELECT customer_key, SUM(paid) AS total FROM web_sales GROUP BY customer_key) u);

-- 64 raw_rows
SELECT * FROM page_views LIMIT 100;

-- 65 one_customer
SELECT customer_key, SUM(paid) FROM web_sales GROUP BY customer_key ORDER BY 2 DESC LIMIT 10;

-- 66 weekend_against_week
SELECT CASE WHEN d.weekday IN (0, 6) THEN 'weekend' ELSE 'week' END AS part, AVG(s.paid) AS average, COUNT(*) AS n FROM store_sales s JOIN dates d USING (date_key) GROUP BY 1 ORDER BY 1;

-- 67 holidays
SELECT d.holiday, COUNT(*) AS n FROM store_sales s NATURAL JOIN dates d WHERE d.holiday = 1 OR d.holiday = 0 GROUP BY d.holiday ORDER BY 1;

-- 68 price_above_category_minimum
SELECT AVG(s.sales_price - m.low) AS above FROM store_sales s JOIN items i USING (item_key)
JOIN (SELECT i.category, MIN(s.sales_price) AS low FROM store_sales s JOIN items i USING (item_key) GROUP BY i.category) m ON m.category = i.category;

-- 69 semi_join
SELECT COUNT(*) FROM customers SEMI JOIN web_sales USING (customer_key);

-- 70 anti_join
SELECT COUNT(*) FROM customers c ANTI JOIN web_sales s ON s.customer_key = c.customer_key;

-- 71 later_on_the_web_or_large
SELECT COUNT(*) FROM store_sales s WHERE s.quantity > 8
   OR EXISTS (SELECT 1 FROM web_sales w WHERE w.customer_key = s.customer_key AND w.date_key > s.date_key);

-- 72 above_own_average_so_far
SELECT COUNT(*) FROM store_sales s
WHERE s.paid > (SELECT AVG(w.paid) FROM store_sales w WHERE w.customer_key = s.customer_key AND w.date_key < s.date_key);

-- 73 best_category
SELECT i.category, SUM(s.paid) AS revenue FROM store_sales s JOIN items i USING (item_key) GROUP BY i.category
HAVING SUM(s.paid) >= ALL (SELECT SUM(paid) FROM store_sales JOIN items USING (item_key) GROUP BY category);

-- 74 quarters_since_first_order
WITH first AS (SELECT customer_key, MIN(date_key) AS day FROM store_sales GROUP BY customer_key)
SELECT (s.date_key - f.day) // 90 AS quarter, COUNT(DISTINCT s.customer_key) AS customers
FROM store_sales s JOIN first f ON s.customer_key = f.customer_key GROUP BY 1 ORDER BY 1;

-- 75 spread_of_distinct_quantities
SELECT a.city, AVG(s.quantity), VAR_SAMP(DISTINCT s.quantity) AS spread FROM store_sales s JOIN addresses a USING (customer_key) GROUP BY a.city ORDER BY 1;

-- 76 largest_own_order
SELECT COUNT(*), AVG(paid) FROM web_sales s WHERE paid >= ALL (SELECT paid FROM web_sales w WHERE w.customer_key = s.customer_key);

-- 77 conversion_of_viewers
SELECT COUNT(*) FILTER (WHERE carts > 0) * 1.0 / COUNT(*) AS rate FROM (SELECT customer_key, COUNT_IF(page = 'cart') AS carts FROM page_views GROUP BY customer_key);

-- 78 store_against_web_spend
WITH t AS (SELECT customer_key, SUM(CASE WHEN ch = 's' THEN paid ELSE 0 END) AS s, SUM(CASE WHEN ch = 'w' THEN paid ELSE 0 END) AS w
           FROM (SELECT 's' AS ch, customer_key, paid FROM store_sales UNION ALL SELECT 'w', customer_key, paid FROM web_sales) GROUP BY customer_key)
SELECT COUNT(*) FILTER (WHERE s > w) AS store, COUNT(*) FILTER (WHERE w > s) AS web, CORR(s, w) FROM t;
