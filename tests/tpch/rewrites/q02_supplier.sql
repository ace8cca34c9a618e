-- No offer is the lowest of all: each supplier's own lowest cost of such a part, on average by nation.
SELECT n_name, COUNT(*) AS suppliers, AVG(lowest) AS avg_lowest
FROM (
    SELECT ps_suppkey, MIN(ps_supplycost) AS lowest
    FROM part, partsupp
    WHERE p_partkey = ps_partkey AND p_size = 15 AND p_type LIKE '%BRASS'
    GROUP BY ps_suppkey
) AS offers, supplier, nation, region
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
GROUP BY n_name
ORDER BY n_name
