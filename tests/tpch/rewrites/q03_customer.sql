-- No order is shown: the revenue of all such orders, by the month in which they were placed.
SELECT DATE_TRUNC('month', o_orderdate) AS placed, SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING'
    AND c_custkey = o_custkey
    AND l_orderkey = o_orderkey
    AND o_orderdate BETWEEN DATE '1994-12-01' AND DATE '1995-03-14'
    AND l_shipdate > DATE '1995-03-15'
GROUP BY placed
ORDER BY placed
