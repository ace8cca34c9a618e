-- A part has four suppliers: the value of the stock in Germany, by brand.
SELECT p_brand, SUM(ps_supplycost * ps_availqty) AS value
FROM partsupp, supplier, nation, part
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY' AND ps_partkey = p_partkey
GROUP BY p_brand
ORDER BY value DESC
