-- No customer is shown: how many have how large a largest order, in steps of 50.
SELECT FLOOR(LEAST(largest / 50, 7)) AS bracket, COUNT(*) AS customers, AVG(LEAST(largest, 400)) AS avg_largest
FROM (
    SELECT o_custkey, MAX(quantity) AS largest
    FROM (
        SELECT o_custkey, o_orderkey, SUM(l_quantity) AS quantity
        FROM orders, lineitem
        WHERE o_orderkey = l_orderkey
        GROUP BY o_custkey, o_orderkey
    ) AS totals
    GROUP BY o_custkey
) AS customers
GROUP BY bracket
ORDER BY bracket
