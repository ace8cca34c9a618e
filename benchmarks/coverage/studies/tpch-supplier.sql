-- suppliers
SELECT COUNT(*) FROM supplier;

-- items
SELECT COUNT(*) FROM lineitem;

-- suppliers who sell
SELECT COUNT(DISTINCT l_suppkey) FROM lineitem;

-- revenue
SELECT SUM(l_extendedprice * (1 - l_discount)) FROM lineitem;

-- mean quantity
SELECT AVG(l_quantity) FROM lineitem;

-- several at once
SELECT COUNT(*), COUNT(DISTINCT l_suppkey), SUM(l_quantity), AVG(l_extendedprice) FROM lineitem;

-- stock
SELECT SUM(ps_availqty), AVG(ps_supplycost) FROM partsupp;

-- stock value
SELECT SUM(ps_availqty * ps_supplycost) FROM partsupp;

-- items of a year
SELECT COUNT(*), SUM(l_quantity) FROM lineitem
WHERE l_shipdate >= DATE '1995-01-01' AND l_shipdate < DATE '1996-01-01';

-- scarce parts
SELECT COUNT(*), COUNT(DISTINCT ps_suppkey) FROM partsupp WHERE ps_availqty < 100;

-- middle cost
SELECT MEDIAN(ps_supplycost), QUANTILE_CONT(ps_availqty, 0.9) FROM partsupp;

-- spread of balances
SELECT STDDEV(s_acctbal) FROM supplier;

-- suppliers by nation
SELECT s_nationkey, COUNT(*), AVG(s_acctbal) FROM supplier GROUP BY s_nationkey;

-- pricing summary
SELECT l_returnflag, l_linestatus, SUM(l_quantity), SUM(l_extendedprice), AVG(l_quantity), AVG(l_discount), COUNT(*)
FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus;

-- items by ship mode
SELECT l_shipmode, COUNT(*), SUM(l_quantity) FROM lineitem GROUP BY l_shipmode;

-- suppliers by ship mode
SELECT l_shipmode, COUNT(DISTINCT l_suppkey) FROM lineitem WHERE l_quantity > 48 GROUP BY l_shipmode;

-- items by year
SELECT year(l_shipdate), COUNT(*), SUM(l_extendedprice) FROM lineitem GROUP BY year(l_shipdate);

-- items by month
SELECT year(l_shipdate), month(l_shipdate), COUNT(*) FROM lineitem GROUP BY year(l_shipdate), month(l_shipdate);

-- items by quantity
SELECT CAST(l_quantity AS INTEGER), COUNT(*) FROM lineitem GROUP BY CAST(l_quantity AS INTEGER);

-- items by ship mode and instruction
SELECT l_shipmode, l_shipinstruct, COUNT(*), AVG(l_extendedprice) FROM lineitem GROUP BY l_shipmode, l_shipinstruct;

-- revenue by nation
SELECT n_name, COUNT(*), SUM(l_extendedprice * (1 - l_discount))
FROM lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey GROUP BY n_name;

-- revenue by region
SELECT r_name, SUM(l_extendedprice * (1 - l_discount))
FROM lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey
JOIN region ON n_regionkey = r_regionkey GROUP BY r_name;

-- items by brand
SELECT p_brand, COUNT(*), SUM(l_quantity) FROM lineitem JOIN part ON l_partkey = p_partkey GROUP BY p_brand;

-- stock by size
SELECT p_size, COUNT(*), SUM(ps_availqty) FROM partsupp JOIN part ON ps_partkey = p_partkey GROUP BY p_size;

-- late items by ship mode
SELECT l_shipmode, COUNT(*) FROM lineitem
WHERE l_commitdate < l_receiptdate AND l_shipdate < l_commitdate GROUP BY l_shipmode;

-- items by order priority
SELECT o_orderpriority, COUNT(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey GROUP BY o_orderpriority;

-- suppliers by items
SELECT n // 50 * 50, COUNT(*)
FROM (SELECT l_suppkey, COUNT(*) AS n FROM lineitem GROUP BY l_suppkey) GROUP BY n // 50 * 50;
