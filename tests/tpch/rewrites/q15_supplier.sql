-- No supplier is shown: how many have how much revenue, in steps of 250,000.
WITH revenue (supplier_no, total_revenue) AS (
    SELECT l_suppkey, SUM(l_extendedprice * (1 - l_discount))
    FROM lineitem
    WHERE l_shipdate >= DATE '1996-01-01'
        AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
    GROUP BY l_suppkey
)
SELECT
    FLOOR(LEAST(total_revenue / 250000, 7)) AS bracket,
    COUNT(*) AS suppliers,
    AVG(LEAST(total_revenue, 2000000)) AS avg_revenue
FROM revenue
GROUP BY bracket
ORDER BY bracket
