-- purchases
SELECT COUNT(*) FROM purchases;

-- customers
SELECT COUNT(DISTINCT customer_id) FROM purchases;

-- turnover
SELECT SUM(dollars), SUM(discs) FROM purchases;

-- mean purchase
SELECT AVG(dollars), AVG(discs) FROM purchases;

-- middle purchase
SELECT MEDIAN(dollars), QUANTILE_CONT(dollars, 0.9) FROM purchases;

-- spread of purchases
SELECT STDDEV(dollars) FROM purchases WHERE dollars < 200;

-- large purchases
SELECT COUNT(*), COUNT(DISTINCT customer_id), SUM(dollars) FROM purchases WHERE dollars > 100;

-- purchases by discs
SELECT discs, COUNT(*) FROM purchases GROUP BY discs;

-- turnover by discs
SELECT discs, SUM(dollars) FROM purchases GROUP BY discs;

-- purchases by month
SELECT date_trunc('month', day) AS month, COUNT(*) FROM purchases GROUP BY month;

-- turnover by month
SELECT date_trunc('month', day) AS month, SUM(dollars), AVG(dollars) FROM purchases GROUP BY month;

-- customers by month
SELECT date_trunc('month', day) AS month, COUNT(DISTINCT customer_id) FROM purchases GROUP BY month;

-- discs by weekday
SELECT dayofweek(day) AS weekday, SUM(discs), AVG(discs) FROM purchases GROUP BY weekday;

-- customers by number of purchases
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM purchases GROUP BY customer_id) WHERE n <= 20 GROUP BY n;

-- mean turnover of a customer
SELECT AVG(total), STDDEV(total) FROM (SELECT customer_id, SUM(dollars) AS total FROM purchases GROUP BY customer_id);

-- middle turnover of a customer
SELECT MEDIAN(total) FROM (SELECT customer_id, SUM(dollars) AS total FROM purchases GROUP BY customer_id);

-- purchases by year and discs with totals
SELECT year(day) AS year, discs, COUNT(*) FROM purchases WHERE discs <= 12 GROUP BY ROLLUP (year, discs);
