-- No customer is shown: how many have lost how much revenue, in steps of 100,000.
SELECT FLOOR(LEAST(revenue / 100000, 4)) AS bracket, COUNT(*) AS customers, SUM(LEAST(revenue, 500000)) AS revenue
FROM (
    SELECT c_custkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue
    FROM customer, orders, lineitem
    WHERE c_custkey = o_custkey
        AND l_orderkey = o_orderkey
        AND o_orderdate >= DATE '1993-10-01'
        AND o_orderdate < DATE '1993-10-01' + INTERVAL '3' MONTH
        AND l_returnflag = 'R'
    GROUP BY c_custkey
) AS returned
GROUP BY bracket
ORDER BY bracket
