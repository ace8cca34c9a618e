-- An order counts once for each of its suppliers that was late.
SELECT o_orderpriority, COUNT(*) AS order_count
FROM (
    SELECT DISTINCT l_suppkey, o_orderkey, o_orderpriority
    FROM orders, lineitem
    WHERE l_orderkey = o_orderkey
        AND l_commitdate < l_receiptdate
        AND o_orderdate >= DATE '1993-07-01'
        AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
) AS late
GROUP BY o_orderpriority
ORDER BY o_orderpriority
