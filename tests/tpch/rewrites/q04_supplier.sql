-- Orders are joined to the late items, so that each row is some supplier's, and counted once.
SELECT o_orderpriority, COUNT(DISTINCT o_orderkey) AS order_count
FROM orders, lineitem
WHERE l_orderkey = o_orderkey
    AND l_commitdate < l_receiptdate
    AND o_orderdate >= DATE '1993-07-01'
    AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
GROUP BY o_orderpriority
ORDER BY o_orderpriority
