-- items
SELECT COUNT(*) FROM transactions;

-- households
SELECT COUNT(DISTINCT household_id) FROM transactions;

-- sales
SELECT SUM(sales_value) FROM transactions;

-- mean price
SELECT AVG(sales_value) FROM transactions;

-- several at once
SELECT COUNT(*), COUNT(DISTINCT household_id), SUM(sales_value), AVG(sales_value), SUM(retail_disc) FROM transactions;

-- stores
SELECT COUNT(DISTINCT store_id) FROM transactions;

-- discounted items
SELECT COUNT(*), SUM(retail_disc) FROM transactions WHERE retail_disc > 1;

-- coupons
SELECT COUNT(*), COUNT(DISTINCT household_id), SUM(coupon_disc) FROM transactions WHERE coupon_disc > 0;

-- middle price
SELECT MEDIAN(sales_value), QUANTILE_CONT(sales_value, 0.9) FROM transactions;

-- spread of prices
SELECT STDDEV(sales_value) FROM transactions WHERE sales_value < 20;

-- items by week
SELECT week, COUNT(*) FROM transactions GROUP BY week;

-- sales by week
SELECT week, SUM(sales_value), AVG(sales_value) FROM transactions GROUP BY week;

-- households by week
SELECT week, COUNT(DISTINCT household_id) FROM transactions GROUP BY week;

-- items by hour
SELECT hour(transaction_timestamp), COUNT(*), AVG(sales_value) FROM transactions GROUP BY hour(transaction_timestamp);

-- sales by month
SELECT month(transaction_timestamp), COUNT(*), SUM(sales_value)
FROM transactions GROUP BY month(transaction_timestamp);

-- items by store
SELECT store_id, COUNT(*) FROM transactions GROUP BY store_id;

-- households by store
SELECT store_id, COUNT(DISTINCT household_id), SUM(sales_value) FROM transactions GROUP BY store_id;

-- items by department
SELECT department, COUNT(*) FROM transactions JOIN products USING (product_id) GROUP BY department;

-- sales by department
SELECT department, SUM(sales_value), AVG(sales_value)
FROM transactions JOIN products USING (product_id) GROUP BY department;

-- sales by brand
SELECT brand, COUNT(*), SUM(sales_value), AVG(sales_value)
FROM transactions JOIN products USING (product_id) GROUP BY brand;

-- items by department and brand
SELECT department, brand, COUNT(*) FROM transactions JOIN products USING (product_id) GROUP BY department, brand;

-- items by category
SELECT product_category, COUNT(*)
FROM transactions JOIN products USING (product_id) WHERE department = 'PRODUCE' GROUP BY product_category;

-- households by age
SELECT age, COUNT(*) FROM demographics GROUP BY age;

-- households by income and size
SELECT income, household_size, COUNT(*) FROM demographics GROUP BY income, household_size;

-- sales by age
SELECT age, COUNT(*), SUM(sales_value), AVG(sales_value)
FROM transactions JOIN demographics USING (household_id) GROUP BY age;

-- sales by income
SELECT income, SUM(sales_value) FROM transactions JOIN demographics USING (household_id) GROUP BY income;

-- sales by age and size
SELECT age, household_size, COUNT(*), SUM(sales_value)
FROM transactions JOIN demographics USING (household_id) GROUP BY age, household_size;

-- households by campaign
SELECT campaign_id, COUNT(*) FROM campaigns GROUP BY campaign_id;

-- households by items
SELECT n // 100 * 100, COUNT(*)
FROM (SELECT household_id, COUNT(*) AS n FROM transactions GROUP BY household_id) GROUP BY n // 100 * 100;

-- mean basket
SELECT AVG(price), MEDIAN(price)
FROM (SELECT household_id, basket_id, SUM(sales_value) AS price FROM transactions GROUP BY household_id, basket_id);
