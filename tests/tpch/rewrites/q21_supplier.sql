-- No supplier is shown, and what other suppliers of an order did is left out: how many were late how often.
SELECT FLOOR(LEAST(numwait / 50, 9)) AS bracket, COUNT(*) AS suppliers, AVG(LEAST(numwait, 500)) AS avg_numwait
FROM (
    SELECT s_suppkey, COUNT(*) AS numwait
    FROM supplier, lineitem l1, orders, nation
    WHERE s_suppkey = l1.l_suppkey
        AND o_orderkey = l1.l_orderkey
        AND o_orderstatus = 'F'
        AND l1.l_receiptdate > l1.l_commitdate
        AND s_nationkey = n_nationkey
        AND n_name = 'SAUDI ARABIA'
    GROUP BY s_suppkey
) AS waits
GROUP BY bracket
ORDER BY bracket
