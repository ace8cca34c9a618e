-- 1 revenue_by_brand_in_december
SELECT d.year, i.brand, SUM(s.paid) AS revenue
FROM dates d, store_sales s, items i
WHERE d.date_key = s.date_key AND s.item_key = i.item_key AND i.manufacturer = 4 AND d.month = 12
GROUP BY d.year, i.brand ORDER BY d.year, revenue DESC, i.brand LIMIT 100;

-- 2 revenue_by_category_and_month
SELECT i.category, d.month, SUM(s.paid) AS revenue
FROM store_sales s JOIN dates d ON s.date_key = d.date_key JOIN items i ON s.item_key = i.item_key
WHERE d.year = 2022 GROUP BY 1, 2 ORDER BY 1, 2;

-- 3 weekday_sales_by_store
SELECT st.name, st.city,
       SUM(CASE WHEN d.day_name = 'Sunday' THEN s.sales_price ELSE 0 END) AS sun_sales,
       SUM(CASE WHEN d.day_name = 'Monday' THEN s.sales_price ELSE 0 END) AS mon_sales,
       SUM(CASE WHEN d.day_name = 'Friday' THEN s.sales_price ELSE 0 END) AS fri_sales,
       SUM(CASE WHEN d.day_name = 'Saturday' THEN s.sales_price ELSE 0 END) AS sat_sales
FROM dates d, store_sales s, stores st
WHERE d.date_key = s.date_key AND s.store_key = st.store_key AND d.year = 2021
GROUP BY st.name, st.city ORDER BY st.name LIMIT 100;

-- 4 averages_for_a_demographic
SELECT i.category, AVG(s.quantity) AS agg1, AVG(s.list_price) AS agg2, AVG(s.coupon) AS agg3, AVG(s.sales_price) AS agg4
FROM store_sales s, customers c, customer_demographics cd, dates d, items i, promotions p
WHERE s.customer_key = c.customer_key AND s.date_key = d.date_key AND s.item_key = i.item_key
  AND c.demo_key = cd.demo_key AND s.promo_key = p.promo_key
  AND cd.gender = 'F' AND cd.marital = 'S' AND cd.education = 'College'
  AND (p.by_email = 'N' OR p.by_tv = 'N') AND d.year = 2022
GROUP BY i.category ORDER BY i.category LIMIT 100;

-- 5 averages_rolled_up_by_country_and_city
SELECT st.country, st.city, GROUPING(st.city) AS g, AVG(s.quantity) AS agg1, AVG(s.list_price) AS agg2
FROM store_sales s, dates d, stores st
WHERE s.date_key = d.date_key AND s.store_key = st.store_key AND d.year = 2023
GROUP BY ROLLUP (st.country, st.city) ORDER BY st.country NULLS LAST, st.city NULLS LAST;

-- 6 customers_far_from_the_store
SELECT i.brand, i.manufacturer, SUM(s.paid) AS price
FROM dates d, store_sales s, items i, customers c, addresses a, stores st
WHERE d.date_key = s.date_key AND s.item_key = i.item_key AND d.month = 11 AND d.year = 2022
  AND s.customer_key = c.customer_key AND c.customer_key = a.customer_key
  AND substr(a.zip, 1, 2) <> '10' AND s.store_key = st.store_key
GROUP BY i.brand, i.manufacturer ORDER BY price DESC, i.brand, i.manufacturer LIMIT 100;

-- 7 quantities_under_alternatives
SELECT SUM(s.quantity)
FROM store_sales s, stores st, customer_demographics cd, customers c, addresses a, dates d
WHERE st.store_key = s.store_key AND s.date_key = d.date_key AND d.year = 2022
  AND s.customer_key = c.customer_key AND c.demo_key = cd.demo_key AND a.customer_key = c.customer_key
  AND ((cd.marital = 'M' AND cd.education = 'Degree' AND s.sales_price BETWEEN 50.00 AND 100.00)
    OR (cd.marital = 'D' AND cd.education = 'College' AND s.sales_price BETWEEN 20.00 AND 60.00))
  AND ((a.country = 'UK' AND s.profit BETWEEN 0 AND 200) OR (a.country IN ('FR', 'DE') AND s.profit BETWEEN 15 AND 300));

-- 8 buckets_by_quantity
SELECT CASE WHEN (SELECT COUNT(*) FROM store_sales WHERE quantity BETWEEN 1 AND 3) > 2000
            THEN (SELECT AVG(list_price) FROM store_sales WHERE quantity BETWEEN 1 AND 3)
            ELSE (SELECT AVG(paid) FROM store_sales WHERE quantity BETWEEN 1 AND 3) END AS bucket1,
       CASE WHEN (SELECT COUNT(*) FROM store_sales WHERE quantity BETWEEN 4 AND 6) > 2000
            THEN (SELECT AVG(list_price) FROM store_sales WHERE quantity BETWEEN 4 AND 6)
            ELSE (SELECT AVG(paid) FROM store_sales WHERE quantity BETWEEN 4 AND 6) END AS bucket2;

-- 9 buckets_over_a_public_row
SELECT CASE WHEN (SELECT COUNT(*) FROM store_sales WHERE quantity BETWEEN 1 AND 5) > 2000
            THEN (SELECT AVG(coupon) FROM store_sales WHERE quantity BETWEEN 1 AND 5)
            ELSE (SELECT AVG(paid) FROM store_sales WHERE quantity BETWEEN 1 AND 5) END AS bucket1
FROM reasons WHERE reason_key = 1;

-- 10 states_of_customers_above_category_price
SELECT a.country AS state, COUNT(*) AS cnt
FROM addresses a, customers c, store_sales s, dates d, items i
WHERE a.customer_key = c.customer_key AND c.customer_key = s.customer_key
  AND s.date_key = d.date_key AND s.item_key = i.item_key
  AND d.month_seq = (SELECT DISTINCT month_seq FROM dates WHERE year = 2022 AND month = 1)
  AND i.price > 1.2 * (SELECT AVG(j.price) FROM items j WHERE j.category = i.category)
GROUP BY a.country HAVING COUNT(*) >= 10 ORDER BY cnt, a.country LIMIT 100;

-- 11 half_hours_in_one_store
SELECT COUNT(*)
FROM store_sales s, household_demographics hd, times t, stores st, customers c
WHERE s.time_key = t.time_key AND s.customer_key = c.customer_key AND c.household_key = hd.household_key
  AND s.store_key = st.store_key AND t.hour = 20 AND hd.dependents = 5 AND st.name = 'Store A';

-- 12 hours_side_by_side
SELECT * FROM
  (SELECT COUNT(*) AS h8 FROM store_sales s, times t WHERE s.time_key = t.time_key AND t.hour = 8) s1,
  (SELECT COUNT(*) AS h9 FROM store_sales s, times t WHERE s.time_key = t.time_key AND t.hour = 9) s2,
  (SELECT COUNT(*) AS h10 FROM store_sales s, times t WHERE s.time_key = t.time_key AND t.hour = 10) s3;

-- 13 promotional_share
SELECT promotions, total, CAST(promotions AS DECIMAL(15, 4)) / CAST(total AS DECIMAL(15, 4)) * 100 AS share
FROM (SELECT SUM(s.paid) AS promotions FROM store_sales s, promotions p, dates d, items i
      WHERE s.date_key = d.date_key AND s.promo_key = p.promo_key AND s.item_key = i.item_key
        AND i.category = 'Books' AND (p.by_email = 'Y' OR p.by_tv = 'Y') AND d.year = 2022 AND d.month = 11) promotional,
     (SELECT SUM(s.paid) AS total FROM store_sales s, dates d, items i
      WHERE s.date_key = d.date_key AND s.item_key = i.item_key
        AND i.category = 'Books' AND d.year = 2022 AND d.month = 11) every
ORDER BY promotions, total LIMIT 100;

-- 14 class_share_of_category
SELECT i.category, i.class, SUM(s.paid) AS revenue,
       SUM(s.paid) * 100 / SUM(SUM(s.paid)) OVER (PARTITION BY i.category) AS ratio
FROM store_sales s, items i, dates d
WHERE s.item_key = i.item_key AND i.category IN ('Sports', 'Books', 'Home') AND s.date_key = d.date_key
  AND d.day BETWEEN CAST('2022-02-22' AS DATE) AND (CAST('2022-02-22' AS DATE) + INTERVAL 30 DAY)
GROUP BY i.category, i.class ORDER BY i.category, i.class, ratio;

-- 15 months_that_differ_from_average
SELECT * FROM (
  SELECT i.manufacturer, d.month_seq, SUM(s.sales_price) AS sum_sales,
         AVG(SUM(s.sales_price)) OVER (PARTITION BY i.manufacturer) AS avg_sales
  FROM items i, store_sales s, dates d
  WHERE s.item_key = i.item_key AND s.date_key = d.date_key AND d.month_seq IN (12, 12 + 1, 12 + 2, 12 + 3)
  GROUP BY i.manufacturer, d.month_seq) m
WHERE CASE WHEN avg_sales > 0 THEN ABS(sum_sales - avg_sales) / avg_sales ELSE NULL END > 0.1
ORDER BY avg_sales, sum_sales LIMIT 100;

-- 16 profit_rank_within_country
SELECT st.country, st.city, SUM(s.profit) AS total,
       RANK() OVER (PARTITION BY st.country ORDER BY SUM(s.profit) DESC) AS rank_within
FROM store_sales s, dates d, stores st
WHERE d.date_key = s.date_key AND st.store_key = s.store_key AND d.month_seq BETWEEN 12 AND 12 + 11
GROUP BY st.country, st.city ORDER BY 1, 4;

-- 17 profit_rank_over_rollup
SELECT SUM(s.profit) AS total, st.country, st.city, GROUPING(st.country) + GROUPING(st.city) AS lochierarchy,
       RANK() OVER (PARTITION BY GROUPING(st.country) + GROUPING(st.city),
                    CASE WHEN GROUPING(st.city) = 0 THEN st.country END ORDER BY SUM(s.profit) DESC) AS rank_within_parent
FROM store_sales s, dates d, stores st
WHERE d.date_key = s.date_key AND st.store_key = s.store_key AND d.year = 2022
GROUP BY ROLLUP (st.country, st.city) ORDER BY lochierarchy DESC, rank_within_parent;

-- 18 gross_margin_over_rollup
SELECT SUM(s.profit) / SUM(s.paid) AS gross_margin, i.category, i.class, GROUPING(i.category) + GROUPING(i.class) AS level,
       RANK() OVER (PARTITION BY GROUPING(i.category) + GROUPING(i.class) ORDER BY SUM(s.profit) / SUM(s.paid) ASC) AS r
FROM store_sales s, dates d, items i
WHERE d.year = 2023 AND d.date_key = s.date_key AND i.item_key = s.item_key
GROUP BY ROLLUP (i.category, i.class) ORDER BY level DESC, r LIMIT 100;

-- 19 best_and_worst_items
SELECT asceding.rnk, i1.item_id AS best, i2.item_id AS worst
FROM (SELECT * FROM (SELECT item_key, RANK() OVER (ORDER BY rank_col DESC) AS rnk
        FROM (SELECT item_key, AVG(profit) AS rank_col FROM store_sales WHERE store_key = 4 GROUP BY item_key) v1) v11
      WHERE rnk < 11) asceding,
     (SELECT * FROM (SELECT item_key, RANK() OVER (ORDER BY rank_col ASC) AS rnk
        FROM (SELECT item_key, AVG(profit) AS rank_col FROM store_sales WHERE store_key = 4 GROUP BY item_key) v2) v21
      WHERE rnk < 11) descending, items i1, items i2
WHERE asceding.rnk = descending.rnk AND i1.item_key = asceding.item_key AND i2.item_key = descending.item_key
ORDER BY asceding.rnk;

-- 20 customers_with_many_items_a_ticket
SELECT cnt, COUNT(*) AS tickets FROM
  (SELECT order_key, customer_key, COUNT(*) AS cnt FROM store_sales GROUP BY order_key, customer_key) t
GROUP BY cnt ORDER BY cnt;

-- 21 names_of_customers_with_many_items
SELECT c.customer_id, order_key, cnt FROM
  (SELECT order_key, customer_key, COUNT(*) AS cnt FROM store_sales GROUP BY order_key, customer_key) dn, customers c
WHERE dn.customer_key = c.customer_key AND cnt BETWEEN 2 AND 5 ORDER BY cnt DESC, customer_id;

-- 22 items_sold_below_a_tenth_of_average
SELECT st.name, i.item_id, sc.revenue, i.price, i.wholesale, i.brand
FROM stores st, items i,
     (SELECT store_key, AVG(revenue) AS ave FROM (SELECT store_key, item_key, SUM(sales_price) AS revenue
        FROM store_sales s, dates d WHERE s.date_key = d.date_key AND d.month_seq BETWEEN 12 AND 23
        GROUP BY store_key, item_key) sa GROUP BY store_key) sb,
     (SELECT store_key, item_key, SUM(sales_price) AS revenue FROM store_sales s, dates d
        WHERE s.date_key = d.date_key AND d.month_seq BETWEEN 12 AND 23 GROUP BY store_key, item_key) sc
WHERE sb.store_key = sc.store_key AND sc.revenue <= 0.5 * sb.ave AND st.store_key = sc.store_key AND i.item_key = sc.item_key
ORDER BY st.name, i.item_id LIMIT 100;

-- 23 weeks_against_the_year_before
WITH wss AS (
  SELECT d.week_seq, s.store_key, SUM(CASE WHEN d.day_name = 'Sunday' THEN s.sales_price END) AS sun,
         SUM(CASE WHEN d.day_name = 'Monday' THEN s.sales_price END) AS mon
  FROM store_sales s, dates d WHERE d.date_key = s.date_key GROUP BY d.week_seq, s.store_key)
SELECT y.store_key, y.week_seq, y.sun / NULLIF(x.sun, 0) AS sun_ratio, y.mon / NULLIF(x.mon, 0) AS mon_ratio
FROM wss y, wss x WHERE y.store_key = x.store_key AND y.week_seq = x.week_seq - 52 AND y.week_seq BETWEEN 10 AND 20
ORDER BY 1, 2 LIMIT 100;

-- 24 price_bands
SELECT FLOOR(sales_price / 10) * 10 AS band, COUNT(*) AS lines, SUM(quantity) AS units
FROM store_sales WHERE sales_price BETWEEN 0 AND 99.99 GROUP BY 1 ORDER BY 1;

-- 25 distinct_shoppers_by_store
SELECT st.name, COUNT(DISTINCT s.customer_key) AS shoppers, COUNT(DISTINCT s.order_key) AS tickets
FROM store_sales s JOIN stores st USING (store_key) GROUP BY st.name ORDER BY shoppers DESC;

-- 26 baskets
SELECT AVG(lines) AS lines_a_ticket, AVG(total) AS value_a_ticket
FROM (SELECT customer_key, order_key, COUNT(*) AS lines, SUM(paid) AS total FROM store_sales GROUP BY customer_key, order_key) b;

-- 27 spread_of_prices
SELECT i.category, STDDEV_SAMP(s.sales_price) AS spread, VAR_POP(s.sales_price) AS variance, MIN(s.sales_price), MAX(s.sales_price)
FROM store_sales s JOIN items i ON i.item_key = s.item_key GROUP BY i.category ORDER BY i.category;

-- 28 items_in_price_range_with_inventory
SELECT i.item_id, i.price
FROM items i, inventory inv, dates d
WHERE i.price BETWEEN 30 AND 30 + 30 AND inv.item_key = i.item_key AND d.date_key = inv.date_key
  AND d.day BETWEEN CAST('2022-05-25' AS DATE) AND (CAST('2022-05-25' AS DATE) + INTERVAL 60 DAY)
  AND i.manufacturer IN (1, 2, 3, 4) AND inv.on_hand BETWEEN 100 AND 500
GROUP BY i.item_id, i.price ORDER BY i.item_id LIMIT 100;

-- 29 inventory_before_and_after
SELECT w.name, i.item_id,
       SUM(CASE WHEN d.day < DATE '2022-03-11' THEN inv.on_hand ELSE 0 END) AS before,
       SUM(CASE WHEN d.day >= DATE '2022-03-11' THEN inv.on_hand ELSE 0 END) AS after
FROM inventory inv, warehouses w, items i, dates d
WHERE i.item_key = inv.item_key AND inv.warehouse_key = w.warehouse_key AND inv.date_key = d.date_key
  AND d.day BETWEEN DATE '2022-03-11' - INTERVAL 30 DAY AND DATE '2022-03-11' + INTERVAL 30 DAY
GROUP BY w.name, i.item_id ORDER BY 1, 2 LIMIT 100;

-- 30 inventory_rolled_up
SELECT i.category, i.class, i.brand, AVG(inv.on_hand) AS qoh
FROM inventory inv, dates d, items i
WHERE inv.date_key = d.date_key AND inv.item_key = i.item_key AND d.month_seq BETWEEN 12 AND 23
GROUP BY ROLLUP (i.category, i.class, i.brand) ORDER BY qoh, 1, 2, 3 LIMIT 100;

-- 31 popular_items_by_manufacturer
SELECT DISTINCT i.brand FROM items i
WHERE i.manufacturer BETWEEN 3 AND 7
  AND (SELECT COUNT(*) FROM items j WHERE j.manufacturer = i.manufacturer
         AND ((j.category = 'Shoes' AND j.color IN ('red', 'blue')) OR (j.category = 'Home' AND j.size = 'medium'))) > 0
ORDER BY i.brand;

-- 32 returned_lines_and_their_sale
SELECT i.item_id, st.name, SUM(s.profit) AS sale_profit, SUM(r.amount) AS returned
FROM store_sales s, store_returns r, items i, stores st, dates d
WHERE d.year = 2022 AND d.date_key = s.date_key AND i.item_key = s.item_key AND st.store_key = s.store_key
  AND s.customer_key = r.customer_key AND s.item_key = r.item_key AND s.order_key = r.order_key
GROUP BY i.item_id, st.name ORDER BY i.item_id, st.name LIMIT 100;

-- 33 returns_by_ticket_without_the_customer
SELECT st.name, COUNT(*) AS returned_lines, AVG(r.quantity) AS quantity
FROM store_sales s JOIN store_returns r ON r.order_key = s.order_key AND r.item_key = s.item_key
JOIN stores st ON st.store_key = s.store_key GROUP BY st.name ORDER BY 1;

-- 34 sales_net_of_returns
SELECT i.category, SUM(s.paid - COALESCE(r.amount, 0)) AS net
FROM store_sales s LEFT JOIN store_returns r ON r.order_key = s.order_key AND r.item_key = s.item_key
JOIN items i ON i.item_key = s.item_key GROUP BY i.category ORDER BY net DESC;

-- 35 time_to_return
SELECT st.name,
       SUM(CASE WHEN r.date_key - s.date_key <= 30 THEN 1 ELSE 0 END) AS d30,
       SUM(CASE WHEN r.date_key - s.date_key > 30 AND r.date_key - s.date_key <= 60 THEN 1 ELSE 0 END) AS d60,
       SUM(CASE WHEN r.date_key - s.date_key > 60 THEN 1 ELSE 0 END) AS later
FROM store_sales s, store_returns r, stores st
WHERE s.order_key = r.order_key AND s.item_key = r.item_key AND s.customer_key = r.customer_key AND s.store_key = st.store_key
GROUP BY st.name ORDER BY st.name;

-- 36 frequent_returners
WITH ctr AS (SELECT customer_key, SUM(amount) AS total FROM store_returns GROUP BY customer_key)
SELECT COUNT(*) FROM ctr WHERE total > 200;

-- 37 returners_above_average
WITH ctr AS (SELECT customer_key, SUM(amount) AS total FROM store_returns GROUP BY customer_key)
SELECT c.birth_country, COUNT(*) AS n
FROM ctr JOIN customers c ON c.customer_key = ctr.customer_key
WHERE ctr.total > (SELECT AVG(total) * 1.2 FROM ctr) GROUP BY c.birth_country ORDER BY n DESC;

-- 38 reasons_of_returns
SELECT re.reason, COUNT(*) AS n, AVG(r.amount) AS amount
FROM store_returns r JOIN reasons re ON re.reason_key = r.reason_key GROUP BY re.reason ORDER BY n DESC;

-- 39 sales_with_damage_removed
SELECT c.customer_key, SUM(CASE WHEN r.quantity IS NOT NULL THEN (s.quantity - r.quantity) * s.sales_price ELSE s.quantity * s.sales_price END) AS total
FROM store_sales s LEFT JOIN store_returns r ON r.item_key = s.item_key AND r.order_key = s.order_key
JOIN customers c ON c.customer_key = s.customer_key GROUP BY c.customer_key ORDER BY total LIMIT 100;

-- 40 households_by_buy_potential
SELECT hd.buy_potential, COUNT(*) AS customers, AVG(hd.vehicles) AS vehicles
FROM customers c JOIN household_demographics hd ON hd.household_key = c.household_key
JOIN income_bands b ON b.band_key = hd.band_key WHERE b.lower >= 20000 AND b.upper <= 79999
GROUP BY hd.buy_potential ORDER BY hd.buy_potential;
