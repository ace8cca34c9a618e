-- 1 web_and_catalog_by_item
WITH ss AS (SELECT i.item_id, SUM(s.paid) AS total FROM store_sales s, dates d, items i
            WHERE i.item_id IN (SELECT item_id FROM items WHERE color IN ('red', 'blue'))
              AND s.item_key = i.item_key AND s.date_key = d.date_key AND d.year = 2022 AND d.month = 2 GROUP BY i.item_id),
     cs AS (SELECT i.item_id, SUM(s.paid) AS total FROM catalog_sales s, dates d, items i
            WHERE i.item_id IN (SELECT item_id FROM items WHERE color IN ('red', 'blue'))
              AND s.item_key = i.item_key AND s.date_key = d.date_key AND d.year = 2022 AND d.month = 2 GROUP BY i.item_id),
     ws AS (SELECT i.item_id, SUM(s.paid) AS total FROM web_sales s, dates d, items i
            WHERE i.item_id IN (SELECT item_id FROM items WHERE color IN ('red', 'blue'))
              AND s.item_key = i.item_key AND s.date_key = d.date_key AND d.year = 2022 AND d.month = 2 GROUP BY i.item_id)
SELECT item_id, SUM(total) AS total FROM (SELECT * FROM ss UNION ALL SELECT * FROM cs UNION ALL SELECT * FROM ws) t
GROUP BY item_id ORDER BY total LIMIT 100;

-- 2 channels_rolled_up
WITH all_sales AS (
  SELECT 'store' AS channel, s.store_key AS place, s.paid AS sales, s.profit FROM store_sales s JOIN dates d USING (date_key) WHERE d.year = 2022
  UNION ALL
  SELECT 'catalog', s.center_key, s.paid, s.profit FROM catalog_sales s JOIN dates d USING (date_key) WHERE d.year = 2022
  UNION ALL
  SELECT 'web', s.site_key, s.paid, s.profit FROM web_sales s JOIN dates d USING (date_key) WHERE d.year = 2022)
SELECT channel, place, SUM(sales) AS sales, SUM(profit) AS profit FROM all_sales
GROUP BY ROLLUP (channel, place) ORDER BY channel NULLS LAST, place NULLS LAST;

-- 3 missing_keys_by_channel
SELECT channel, col_name, year, quarter, category, COUNT(*) AS sales_cnt, SUM(paid) AS sales_amt FROM (
  SELECT 'store' AS channel, 'promo' AS col_name, d.year, d.quarter, i.category, s.paid
  FROM store_sales s, items i, dates d WHERE s.promo_key IS NULL AND s.date_key = d.date_key AND s.item_key = i.item_key
  UNION ALL
  SELECT 'web', 'promo', d.year, d.quarter, i.category, s.paid
  FROM web_sales s, items i, dates d WHERE s.promo_key IS NULL AND s.date_key = d.date_key AND s.item_key = i.item_key) foo
GROUP BY channel, col_name, year, quarter, category ORDER BY 1, 2, 3, 4, 5 LIMIT 100;

-- 4 customers_of_all_three
SELECT COUNT(*) FROM (
  SELECT DISTINCT c.customer_key, d.day FROM store_sales s, dates d, customers c
  WHERE s.date_key = d.date_key AND s.customer_key = c.customer_key AND d.month_seq BETWEEN 12 AND 23
  INTERSECT
  SELECT DISTINCT c.customer_key, d.day FROM catalog_sales s, dates d, customers c
  WHERE s.date_key = d.date_key AND s.customer_key = c.customer_key AND d.month_seq BETWEEN 12 AND 23) hot;

-- 5 customers_of_the_store_only
SELECT COUNT(*) FROM (
  (SELECT DISTINCT customer_key FROM store_sales s JOIN dates d USING (date_key) WHERE d.year = 2022)
  EXCEPT (SELECT DISTINCT customer_key FROM catalog_sales s JOIN dates d USING (date_key) WHERE d.year = 2022)
  EXCEPT (SELECT DISTINCT customer_key FROM web_sales s JOIN dates d USING (date_key) WHERE d.year = 2022)) cool;

-- 6 item_days_in_all_channels
SELECT COUNT(*) FROM (
  SELECT item_key, date_key FROM store_sales INTERSECT SELECT item_key, date_key FROM catalog_sales
  INTERSECT SELECT item_key, date_key FROM web_sales) x;

-- 7 demographics_of_multichannel_customers
SELECT cd.gender, cd.marital, cd.education, COUNT(*) AS cnt1
FROM customers c, addresses a, customer_demographics cd
WHERE c.customer_key = a.customer_key AND a.city IN ('Leeds', 'Lyon', 'Graz') AND cd.demo_key = c.demo_key
  AND EXISTS (SELECT * FROM store_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022 AND d.month BETWEEN 1 AND 4)
  AND (EXISTS (SELECT * FROM web_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022 AND d.month BETWEEN 1 AND 4)
    OR EXISTS (SELECT * FROM catalog_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022 AND d.month BETWEEN 1 AND 4))
GROUP BY cd.gender, cd.marital, cd.education ORDER BY 1, 2, 3 LIMIT 100;

-- 8 demographics_of_store_only_customers
SELECT cd.gender, cd.marital, COUNT(*) AS cnt1
FROM customers c, addresses a, customer_demographics cd
WHERE c.customer_key = a.customer_key AND a.country IN ('UK', 'DE') AND cd.demo_key = c.demo_key
  AND EXISTS (SELECT * FROM store_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022)
  AND NOT EXISTS (SELECT * FROM web_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022)
GROUP BY cd.gender, cd.marital ORDER BY 1, 2;

-- 9 morning_to_evening_ratio
SELECT CAST(amc AS DECIMAL(15, 4)) / CAST(pmc AS DECIMAL(15, 4)) AS am_pm_ratio FROM
  (SELECT COUNT(*) AS amc FROM web_sales s, times t WHERE s.time_key = t.time_key AND t.hour BETWEEN 8 AND 8 + 1) a,
  (SELECT COUNT(*) AS pmc FROM web_sales s, times t WHERE s.time_key = t.time_key AND t.hour BETWEEN 19 AND 19 + 1) p
ORDER BY am_pm_ratio LIMIT 100;

-- 10 discounts_far_above_average
SELECT SUM(s.coupon) AS excess
FROM catalog_sales s, items i, dates d
WHERE i.manufacturer = 7 AND i.item_key = s.item_key AND d.date_key = s.date_key AND d.year = 2022
  AND s.coupon > (SELECT 1.3 * AVG(t.coupon) FROM catalog_sales t, dates e WHERE t.item_key = i.item_key AND e.date_key = t.date_key AND e.year = 2022);

-- 11 orders_from_more_than_one_warehouse
SELECT COUNT(DISTINCT s1.order_key) AS orders, SUM(s1.paid) AS total
FROM web_sales s1, dates d, web_sites w
WHERE d.year = 2022 AND s1.date_key = d.date_key AND s1.site_key = w.site_key AND w.name = 'site_2'
  AND EXISTS (SELECT * FROM web_sales s2 WHERE s1.order_key = s2.order_key AND s1.warehouse_key <> s2.warehouse_key)
  AND NOT EXISTS (SELECT * FROM web_returns r WHERE s1.order_key = r.order_key);

-- 12 orders_of_several_items_not_returned
WITH many AS (SELECT s1.order_key FROM web_sales s1, web_sales s2 WHERE s1.order_key = s2.order_key AND s1.item_key <> s2.item_key)
SELECT COUNT(DISTINCT s.order_key) AS orders, SUM(s.profit) AS profit FROM web_sales s
WHERE s.order_key IN (SELECT order_key FROM many) AND s.order_key NOT IN (SELECT order_key FROM web_returns);

-- 13 shipping_delays_by_warehouse_and_mode
SELECT w.name, m.type,
       SUM(CASE WHEN s.time_key <= 6 THEN 1 ELSE 0 END) AS early, SUM(CASE WHEN s.time_key > 6 AND s.time_key <= 18 THEN 1 ELSE 0 END) AS midday,
       SUM(CASE WHEN s.time_key > 18 THEN 1 ELSE 0 END) AS late
FROM catalog_sales s, warehouses w, ship_modes m, dates d
WHERE d.month_seq BETWEEN 12 AND 12 + 11 AND s.date_key = d.date_key AND s.warehouse_key = w.warehouse_key AND s.mode_key = m.mode_key
GROUP BY w.name, m.type ORDER BY w.name, m.type LIMIT 100;

-- 14 sales_by_warehouse_each_month
SELECT w.name, w.square_feet, d.year,
       SUM(CASE WHEN d.month = 1 THEN s.paid * s.quantity ELSE 0 END) AS jan, SUM(CASE WHEN d.month = 2 THEN s.paid * s.quantity ELSE 0 END) AS feb,
       SUM(CASE WHEN d.month = 3 THEN s.paid * s.quantity ELSE 0 END) AS mar, SUM(CASE WHEN d.month = 12 THEN s.paid * s.quantity ELSE 0 END) AS dec
FROM web_sales s, warehouses w, dates d, ship_modes m
WHERE s.warehouse_key = w.warehouse_key AND s.date_key = d.date_key AND s.mode_key = m.mode_key AND d.year = 2022 AND m.carrier IN ('Swift', 'Heron')
GROUP BY w.name, w.square_feet, d.year ORDER BY w.name LIMIT 100;

-- 15 catalog_pages_before_and_after
SELECT w.country, i.item_id,
       SUM(CASE WHEN d.day < CAST('2022-03-11' AS DATE) THEN s.sales_price - COALESCE(r.amount, 0) ELSE 0 END) AS sales_before,
       SUM(CASE WHEN d.day >= CAST('2022-03-11' AS DATE) THEN s.sales_price - COALESCE(r.amount, 0) ELSE 0 END) AS sales_after
FROM catalog_sales s LEFT OUTER JOIN catalog_returns r ON (s.order_key = r.order_key AND s.item_key = r.item_key), warehouses w, items i, dates d
WHERE i.price BETWEEN 10.99 AND 61.49 AND i.item_key = s.item_key AND s.warehouse_key = w.warehouse_key AND s.date_key = d.date_key
  AND d.day BETWEEN (CAST('2022-03-11' AS DATE) - INTERVAL 30 DAY) AND (CAST('2022-03-11' AS DATE) + INTERVAL 30 DAY)
GROUP BY w.country, i.item_id ORDER BY 1, 2 LIMIT 100;

-- 16 call_centers_with_losses
SELECT cc.name, cc.manager, SUM(r.amount) AS loss
FROM call_centers cc, catalog_returns r, catalog_sales s, dates d, customers c, customer_demographics cd
WHERE r.order_key = s.order_key AND r.item_key = s.item_key AND s.center_key = cc.center_key AND r.date_key = d.date_key
  AND r.customer_key = c.customer_key AND cd.demo_key = c.demo_key AND d.year = 2022 AND d.month = 11
  AND ((cd.marital = 'M' AND cd.education = 'Primary') OR (cd.marital = 'W' AND cd.education = 'Degree'))
GROUP BY cc.name, cc.manager ORDER BY loss DESC;

-- 17 returns_by_channel_and_reason
SELECT channel, reason, COUNT(*) AS n, AVG(quantity) AS quantity FROM (
  SELECT 'store' AS channel, reason_key, quantity FROM store_returns UNION ALL
  SELECT 'web', reason_key, quantity FROM web_returns UNION ALL
  SELECT 'catalog', reason_key, quantity FROM catalog_returns) r JOIN reasons USING (reason_key)
GROUP BY channel, reason ORDER BY channel, n DESC;

-- 18 return_ratio_ranks
SELECT 'web' AS channel, web.item, web.return_ratio, web.return_rank FROM (
  SELECT item, return_ratio, RANK() OVER (ORDER BY return_ratio) AS return_rank FROM (
    SELECT s.item_key AS item, CAST(SUM(COALESCE(r.quantity, 0)) AS DECIMAL(15, 4)) / CAST(SUM(COALESCE(s.quantity, 0)) AS DECIMAL(15, 4)) AS return_ratio
    FROM web_sales s LEFT OUTER JOIN web_returns r ON (s.order_key = r.order_key AND s.item_key = r.item_key)
    WHERE s.profit > 1 AND s.paid > 0 AND s.quantity > 0 GROUP BY s.item_key) in_web) web
WHERE web.return_rank <= 10 ORDER BY 1, 4, 2;

-- 19 yearly_growth_by_channel
WITH year_total AS (
  SELECT d.year, SUM(s.paid) AS total, 's' AS sale_type FROM store_sales s JOIN dates d USING (date_key) GROUP BY d.year
  UNION ALL SELECT d.year, SUM(s.paid), 'w' FROM web_sales s JOIN dates d USING (date_key) GROUP BY d.year)
SELECT cur.sale_type, cur.year, cur.total / prev.total AS growth
FROM year_total cur JOIN year_total prev ON prev.sale_type = cur.sale_type AND prev.year = cur.year - 1 ORDER BY 1, 2;

-- 20 growing_customers
WITH s AS (SELECT customer_key, d.year, SUM(paid) AS total FROM store_sales JOIN dates d USING (date_key) GROUP BY customer_key, d.year),
     w AS (SELECT customer_key, d.year, SUM(paid) AS total FROM web_sales JOIN dates d USING (date_key) GROUP BY customer_key, d.year)
SELECT COUNT(*) FROM s s1, s s2, w w1, w w2
WHERE s1.customer_key = s2.customer_key AND w1.customer_key = s1.customer_key AND w2.customer_key = s1.customer_key
  AND s1.year = 2021 AND s2.year = 2022 AND w1.year = 2021 AND w2.year = 2022 AND s1.total > 0 AND w1.total > 0
  AND w2.total / w1.total > s2.total / s1.total;

-- 21 web_share_by_country
SELECT a.country, SUM(w.paid) AS web_total FROM web_sales w JOIN addresses a USING (customer_key) GROUP BY a.country ORDER BY web_total DESC;

-- 22 bought_in_store_then_by_catalog
SELECT i.category, COUNT(*) AS n FROM store_sales s, store_returns r, catalog_sales cs, items i
WHERE s.customer_key = r.customer_key AND s.item_key = r.item_key AND s.order_key = r.order_key
  AND r.customer_key = cs.customer_key AND r.item_key = cs.item_key AND i.item_key = s.item_key
GROUP BY i.category ORDER BY i.category;

-- 23 average_quantities_across_channels
SELECT i.category, AVG(s.quantity) AS store_q, STDDEV_SAMP(s.quantity) AS store_sd, STDDEV_SAMP(s.quantity) / AVG(s.quantity) AS cov
FROM store_sales s JOIN items i USING (item_key) GROUP BY i.category ORDER BY 1;

-- 24 item_revenue_within_a_tenth
WITH ss AS (SELECT i.category, SUM(s.paid) AS rev FROM store_sales s, items i, dates d WHERE s.item_key = i.item_key AND s.date_key = d.date_key
              AND d.day IN (SELECT day FROM dates WHERE week_seq = (SELECT week_seq FROM dates WHERE day = '2022-06-03')) GROUP BY i.category),
     ws AS (SELECT i.category, SUM(s.paid) AS rev FROM web_sales s, items i, dates d WHERE s.item_key = i.item_key AND s.date_key = d.date_key
              AND d.day IN (SELECT day FROM dates WHERE week_seq = (SELECT week_seq FROM dates WHERE day = '2022-06-03')) GROUP BY i.category)
SELECT ss.category, ss.rev AS ss_rev, ws.rev AS ws_rev, (ss.rev + ws.rev) / 2 AS average FROM ss, ws WHERE ss.category = ws.category ORDER BY 1;

-- 25 cumulative_sales_by_channel
WITH web AS (SELECT d.month_seq, SUM(SUM(s.sales_price)) OVER (ORDER BY d.month_seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS cume
             FROM web_sales s, dates d WHERE s.date_key = d.date_key AND d.month_seq BETWEEN 12 AND 23 GROUP BY d.month_seq),
     store AS (SELECT d.month_seq, SUM(SUM(s.sales_price)) OVER (ORDER BY d.month_seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS cume
             FROM store_sales s, dates d WHERE s.date_key = d.date_key AND d.month_seq BETWEEN 12 AND 23 GROUP BY d.month_seq)
SELECT COALESCE(web.month_seq, store.month_seq) AS month_seq, web.cume AS web_sales, store.cume AS store_sales
FROM web FULL OUTER JOIN store ON web.month_seq = store.month_seq ORDER BY 1 LIMIT 100;

-- 26 neighbours_of_each_month
WITH v1 AS (SELECT i.category, d.year, d.month, SUM(s.sales_price) AS sum_sales,
                   AVG(SUM(s.sales_price)) OVER (PARTITION BY i.category, d.year) AS avg_monthly,
                   RANK() OVER (PARTITION BY i.category ORDER BY d.year, d.month) AS rn
            FROM items i, catalog_sales s, dates d WHERE s.item_key = i.item_key AND s.date_key = d.date_key
              AND (d.year = 2022 OR (d.year = 2021 AND d.month = 12) OR (d.year = 2023 AND d.month = 1))
            GROUP BY i.category, d.year, d.month)
SELECT v1.category, v1.year, v1.month, v1.avg_monthly, v1.sum_sales, lag.sum_sales AS psum, lead.sum_sales AS nsum
FROM v1, v1 lag, v1 lead
WHERE v1.category = lag.category AND v1.category = lead.category AND v1.rn = lag.rn + 1 AND v1.rn = lead.rn - 1 AND v1.year = 2022
ORDER BY v1.sum_sales - v1.avg_monthly, 3 LIMIT 100;

-- 27 zip_codes_or_large_sales
SELECT a.zip, SUM(s.sales_price) AS total
FROM catalog_sales s, customers c, addresses a, dates d
WHERE s.customer_key = c.customer_key AND c.customer_key = a.customer_key
  AND (substr(a.zip, 1, 5) IN ('10000', '12000', '15000', '18000') OR a.country IN ('UK', 'FR') OR s.sales_price > 50)
  AND s.date_key = d.date_key AND d.quarter = 2 AND d.year = 2022
GROUP BY a.zip ORDER BY a.zip LIMIT 100;

-- 28 zip_or_listed_items
SELECT a.zip, a.city, SUM(w.sales_price) AS total
FROM web_sales w, customers c, addresses a, dates d, items i
WHERE w.customer_key = c.customer_key AND c.customer_key = a.customer_key AND w.item_key = i.item_key
  AND (substr(a.zip, 1, 5) IN ('10000', '12000') OR i.item_id IN (SELECT item_id FROM items WHERE item_key IN (2, 3, 5, 7, 11, 13)))
  AND w.date_key = d.date_key AND d.quarter = 2 AND d.year = 2022 GROUP BY a.zip, a.city ORDER BY a.zip, a.city LIMIT 100;

-- 29 customer_age_by_demographics
SELECT i.category, a.country, AVG(s.quantity) AS agg1, AVG(c.birth_year) AS agg6, AVG(hd.dependents) AS agg7
FROM catalog_sales s, customer_demographics cd, customers c, addresses a, dates d, items i, household_demographics hd
WHERE s.date_key = d.date_key AND s.item_key = i.item_key AND s.customer_key = c.customer_key AND c.demo_key = cd.demo_key
  AND c.household_key = hd.household_key AND c.customer_key = a.customer_key AND cd.gender = 'F' AND d.year = 2022
GROUP BY ROLLUP (i.category, a.country) ORDER BY i.category NULLS LAST, a.country NULLS LAST LIMIT 100;

-- 30 dependents_statistics
SELECT a.country, cd.gender, cd.marital, COUNT(*) AS cnt1, AVG(hd.dependents), MAX(hd.dependents), SUM(hd.dependents)
FROM customers c, addresses a, customer_demographics cd, household_demographics hd
WHERE c.customer_key = a.customer_key AND cd.demo_key = c.demo_key AND hd.household_key = c.household_key
  AND EXISTS (SELECT * FROM store_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022 AND d.quarter < 4)
  AND (EXISTS (SELECT * FROM web_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022 AND d.quarter < 4)
    OR EXISTS (SELECT * FROM catalog_sales s, dates d WHERE c.customer_key = s.customer_key AND s.date_key = d.date_key AND d.year = 2022 AND d.quarter < 4))
GROUP BY a.country, cd.gender, cd.marital ORDER BY 1, 2, 3 LIMIT 100;

-- 31 inventory_variation
WITH inv AS (SELECT w.name, i.item_key, d.month, STDDEV_SAMP(v.on_hand) AS stdev, AVG(v.on_hand) AS mean
             FROM inventory v, items i, warehouses w, dates d
             WHERE v.item_key = i.item_key AND v.warehouse_key = w.warehouse_key AND v.date_key = d.date_key AND d.year = 2022
             GROUP BY w.name, i.item_key, d.month)
SELECT inv1.name, inv1.item_key, inv1.month, inv1.mean, inv2.month AS next, inv2.mean AS next_mean
FROM inv inv1, inv inv2 WHERE inv1.item_key = inv2.item_key AND inv1.name = inv2.name AND inv1.month = 1 AND inv2.month = 2
ORDER BY 1, 2 LIMIT 100;

-- 32 late_orders_with_inventory
SELECT i.item_id, w.name, d1.week_seq, SUM(CASE WHEN s.promo_key IS NULL THEN 1 ELSE 0 END) AS no_promo, COUNT(*) AS total
FROM catalog_sales s JOIN inventory inv ON s.item_key = inv.item_key JOIN warehouses w ON w.warehouse_key = inv.warehouse_key
JOIN items i ON i.item_key = s.item_key JOIN dates d1 ON s.date_key = d1.date_key JOIN dates d2 ON inv.date_key = d2.date_key
WHERE d1.week_seq = d2.week_seq AND inv.on_hand < s.quantity * 10 AND d1.year = 2022
GROUP BY i.item_id, w.name, d1.week_seq ORDER BY total DESC, 1, 2, 3 LIMIT 100;

-- 33 customers_of_two_channels_full_join
WITH ssci AS (SELECT customer_key, item_key FROM store_sales s JOIN dates d USING (date_key) WHERE d.year = 2022 GROUP BY customer_key, item_key),
     csci AS (SELECT customer_key, item_key FROM catalog_sales s JOIN dates d USING (date_key) WHERE d.year = 2022 GROUP BY customer_key, item_key)
SELECT SUM(CASE WHEN ssci.customer_key IS NOT NULL AND csci.customer_key IS NULL THEN 1 ELSE 0 END) AS store_only,
       SUM(CASE WHEN ssci.customer_key IS NULL AND csci.customer_key IS NOT NULL THEN 1 ELSE 0 END) AS catalog_only,
       SUM(CASE WHEN ssci.customer_key IS NOT NULL AND csci.customer_key IS NOT NULL THEN 1 ELSE 0 END) AS both
FROM ssci FULL OUTER JOIN csci ON (ssci.customer_key = csci.customer_key AND ssci.item_key = csci.item_key);

-- 34 best_hundred_customers_of_each_channel
SELECT c.customer_id, SUM(s.quantity * s.sales_price) AS sales FROM store_sales s, customers c
WHERE s.customer_key = c.customer_key GROUP BY c.customer_id ORDER BY sales DESC LIMIT 100;

-- 35 frequent_items_bought_by_best_customers
WITH frequent AS (SELECT item_key, COUNT(*) AS cnt FROM store_sales GROUP BY item_key HAVING COUNT(*) > 230),
     spend AS (SELECT customer_key, SUM(quantity * sales_price) AS csales FROM store_sales GROUP BY customer_key)
SELECT SUM(s.quantity * s.list_price) AS sales FROM catalog_sales s
WHERE s.item_key IN (SELECT item_key FROM frequent)
  AND s.customer_key IN (SELECT customer_key FROM spend WHERE csales > 5000);

-- 36 four_week_return_quantities
SELECT i.category, SUM(r.quantity) AS qty, SUM(r.quantity) * 100.0 / SUM(SUM(r.quantity)) OVER () AS percent
FROM web_returns r, items i, dates d WHERE r.item_key = i.item_key AND r.date_key = d.date_key
  AND d.day IN (SELECT day FROM dates WHERE week_seq IN (SELECT week_seq FROM dates WHERE day IN ('2022-06-30', '2022-09-27', '2022-11-17')))
GROUP BY i.category ORDER BY i.category;

-- 37 average_order_by_site
SELECT w.name, AVG(order_total) AS average FROM (
  SELECT customer_key, order_key, site_key, SUM(paid) AS order_total FROM web_sales GROUP BY customer_key, order_key, site_key) o
JOIN web_sites w USING (site_key) GROUP BY w.name ORDER BY 1;

-- 38 manufacturers_in_all_channels
SELECT manufacturer, SUM(total) AS total FROM (
  SELECT i.manufacturer, s.paid AS total FROM store_sales s JOIN items i USING (item_key) WHERE i.category = 'Music'
  UNION ALL SELECT i.manufacturer, s.paid FROM catalog_sales s JOIN items i USING (item_key) WHERE i.category = 'Music'
  UNION ALL SELECT i.manufacturer, s.paid FROM web_sales s JOIN items i USING (item_key) WHERE i.category = 'Music') x
GROUP BY manufacturer ORDER BY total;

-- 39 sales_and_returns_of_a_place
WITH ss AS (SELECT store_key, SUM(paid) AS sales, SUM(profit) AS profit FROM store_sales s JOIN dates d USING (date_key) WHERE d.year = 2022 GROUP BY store_key),
     sr AS (SELECT s.store_key, SUM(r.amount) AS returns FROM store_returns r JOIN store_sales s ON r.order_key = s.order_key AND r.item_key = s.item_key AND r.customer_key = s.customer_key GROUP BY s.store_key)
SELECT st.name, ss.sales, COALESCE(sr.returns, 0) AS returns, ss.profit FROM ss LEFT JOIN sr ON ss.store_key = sr.store_key JOIN stores st ON st.store_key = ss.store_key ORDER BY st.name;

-- 40 extended_price_over_brands
SELECT i.brand, SUM(s.quantity * s.list_price) AS ext FROM catalog_sales s JOIN items i USING (item_key) JOIN dates d USING (date_key)
WHERE d.month = 11 AND d.year = 2022 AND i.manufacturer = 1 GROUP BY i.brand ORDER BY ext DESC, i.brand LIMIT 100;

-- 41 orders_above_every_average
SELECT COUNT(*) FROM web_sales WHERE paid > ALL (SELECT AVG(paid) FROM store_sales GROUP BY store_key);

-- 42 channel_mix_per_customer
SELECT channels, COUNT(*) AS customers FROM (
  SELECT customer_key, COUNT(DISTINCT channel) AS channels FROM (
    SELECT customer_key, 'store' AS channel FROM store_sales UNION ALL
    SELECT customer_key, 'web' FROM web_sales UNION ALL SELECT customer_key, 'catalog' FROM catalog_sales) a
  GROUP BY customer_key) b GROUP BY channels ORDER BY channels;

-- 43 sets_of_columns_across_channels
SELECT COUNT(*) FROM (SELECT item_key, date_key FROM store_sales EXCEPT SELECT item_key, date_key FROM web_sales) x;

-- 44 any_channel_in_a_year
SELECT c.birth_country, COUNT(*) FROM customers c
WHERE c.customer_key IN (SELECT customer_key FROM web_sales) OR c.customer_key IN (SELECT customer_key FROM catalog_sales)
GROUP BY c.birth_country ORDER BY 2 DESC;

-- 45 top_items_in_each_category
SELECT category, item_id, revenue FROM (
  SELECT i.category, i.item_id, SUM(s.paid) AS revenue, ROW_NUMBER() OVER (PARTITION BY i.category ORDER BY SUM(s.paid) DESC) AS rn
  FROM store_sales s JOIN items i USING (item_key) GROUP BY i.category, i.item_id) t WHERE rn <= 3 ORDER BY category, rn;
