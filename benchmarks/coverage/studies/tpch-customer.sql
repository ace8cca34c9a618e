-- customers
SELECT COUNT(*) FROM customer;

-- orders
SELECT COUNT(*) FROM orders;

-- customers with orders
SELECT COUNT(DISTINCT o_custkey) FROM orders;

-- turnover
SELECT SUM(o_totalprice) FROM orders;

-- mean order
SELECT AVG(o_totalprice) FROM orders;

-- several at once
SELECT COUNT(*), COUNT(DISTINCT o_custkey), SUM(o_totalprice), AVG(o_totalprice) FROM orders;

-- balances
SELECT SUM(c_acctbal), AVG(c_acctbal) FROM customer;

-- orders of a year
SELECT COUNT(*), SUM(o_totalprice) FROM orders
WHERE o_orderdate >= DATE '1995-01-01' AND o_orderdate < DATE '1996-01-01';

-- discounted revenue
SELECT SUM(l_extendedprice * l_discount) FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07
AND l_quantity < 24;

-- parts sold
SELECT COUNT(DISTINCT l_partkey % 100) FROM lineitem WHERE l_quantity > 45;

-- middle order
SELECT MEDIAN(o_totalprice), QUANTILE_CONT(o_totalprice, 0.9) FROM orders;

-- spread of balances
SELECT STDDEV(c_acctbal) FROM customer;

-- customers by segment
SELECT c_mktsegment, COUNT(*), AVG(c_acctbal) FROM customer GROUP BY c_mktsegment;

-- customers by nation
SELECT c_nationkey, COUNT(*), SUM(c_acctbal) FROM customer GROUP BY c_nationkey;

-- customers by nation and segment
SELECT c_nationkey, c_mktsegment, COUNT(*) FROM customer GROUP BY c_nationkey, c_mktsegment;

-- orders by priority
SELECT o_orderpriority, COUNT(*) FROM orders GROUP BY o_orderpriority;

-- turnover by status
SELECT o_orderstatus, COUNT(*), SUM(o_totalprice), AVG(o_totalprice) FROM orders GROUP BY o_orderstatus;

-- orders by year
SELECT year(o_orderdate), COUNT(*), SUM(o_totalprice) FROM orders GROUP BY year(o_orderdate);

-- orders by month
SELECT year(o_orderdate), month(o_orderdate), COUNT(*) FROM orders GROUP BY year(o_orderdate), month(o_orderdate);

-- pricing summary
SELECT l_returnflag, l_linestatus, SUM(l_quantity), SUM(l_extendedprice), AVG(l_quantity), AVG(l_discount), COUNT(*)
FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus;

-- items by ship mode
SELECT l_shipmode, COUNT(*), SUM(l_quantity) FROM lineitem GROUP BY l_shipmode;

-- items by ship mode and instruction
SELECT l_shipmode, l_shipinstruct, COUNT(*), AVG(l_quantity) FROM lineitem GROUP BY l_shipmode, l_shipinstruct;

-- items by quantity
SELECT CAST(l_quantity AS INTEGER), COUNT(*) FROM lineitem GROUP BY CAST(l_quantity AS INTEGER);

-- turnover by segment
SELECT c_mktsegment, COUNT(*), SUM(o_totalprice)
FROM customer JOIN orders ON c_custkey = o_custkey GROUP BY c_mktsegment;

-- turnover by nation
SELECT n_name, COUNT(*), SUM(o_totalprice)
FROM customer JOIN orders ON c_custkey = o_custkey JOIN nation ON c_nationkey = n_nationkey GROUP BY n_name;

-- late items by priority
SELECT o_orderpriority, COUNT(*)
FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE l_commitdate < l_receiptdate GROUP BY o_orderpriority;

-- items by brand
SELECT p_brand, COUNT(*), SUM(l_extendedprice * (1 - l_discount))
FROM lineitem JOIN part ON l_partkey = p_partkey GROUP BY p_brand;

-- customers by orders
SELECT n, COUNT(*) FROM (SELECT o_custkey, COUNT(*) AS n FROM orders GROUP BY o_custkey) GROUP BY n;
