-- An order has seven suppliers at most: what was sold in orders of over 400,000, by year.
SELECT EXTRACT(YEAR FROM o_orderdate) AS o_year, COUNT(*) AS lines, SUM(l_quantity) AS quantity
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND o_totalprice > 400000
GROUP BY o_year
ORDER BY o_year
