-- A supplier has few customers in three months: the revenue by the supplier's nation, the highest first.
SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS total_revenue
FROM lineitem, supplier, nation
WHERE l_shipdate >= DATE '1996-01-01'
    AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
    AND l_suppkey = s_suppkey
    AND s_nationkey = n_nationkey
GROUP BY n_name
ORDER BY total_revenue DESC
