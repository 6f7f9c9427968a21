-- before the load
CREATE TABLE region (r_regionkey INTEGER NOT NULL, r_name TEXT NOT NULL, r_comment TEXT NOT NULL, PRIMARY KEY (r_regionkey)) WITHOUT ROWID
CREATE TABLE nation (n_nationkey INTEGER NOT NULL, n_name TEXT NOT NULL, n_regionkey INTEGER NOT NULL, n_comment TEXT NOT NULL, PRIMARY KEY (n_nationkey)) WITHOUT ROWID
CREATE TABLE supplier (s_suppkey INTEGER NOT NULL, s_name TEXT NOT NULL, s_address TEXT NOT NULL, s_nationkey INTEGER NOT NULL, s_phone TEXT NOT NULL, s_acctbal NUMERIC NOT NULL, s_comment TEXT NOT NULL, PRIMARY KEY (s_suppkey)) WITHOUT ROWID
CREATE TABLE customer (c_custkey INTEGER NOT NULL, c_name TEXT NOT NULL, c_address TEXT NOT NULL, c_nationkey INTEGER NOT NULL, c_phone TEXT NOT NULL, c_acctbal NUMERIC NOT NULL, c_mktsegment TEXT NOT NULL, c_comment TEXT NOT NULL, PRIMARY KEY (c_custkey)) WITHOUT ROWID
CREATE TABLE part (p_partkey INTEGER NOT NULL, p_name TEXT NOT NULL, p_mfgr TEXT NOT NULL, p_brand TEXT NOT NULL, p_type TEXT NOT NULL, p_size INTEGER NOT NULL, p_container TEXT NOT NULL, p_retailprice NUMERIC NOT NULL, p_comment TEXT NOT NULL, PRIMARY KEY (p_partkey)) WITHOUT ROWID
CREATE TABLE partsupp (ps_partkey INTEGER NOT NULL, ps_suppkey INTEGER NOT NULL, ps_availqty INTEGER NOT NULL, ps_supplycost NUMERIC NOT NULL, ps_comment TEXT NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)) WITHOUT ROWID
CREATE TABLE orders (o_orderkey INTEGER NOT NULL, o_custkey INTEGER NOT NULL, o_orderstatus TEXT NOT NULL, o_totalprice NUMERIC NOT NULL, o_orderdate TEXT NOT NULL, o_orderpriority TEXT NOT NULL, o_clerk TEXT NOT NULL, o_shippriority INTEGER NOT NULL, o_comment TEXT NOT NULL, PRIMARY KEY (o_orderkey)) WITHOUT ROWID
CREATE TABLE lineitem (l_orderkey INTEGER NOT NULL, l_partkey INTEGER NOT NULL, l_suppkey INTEGER NOT NULL, l_linenumber INTEGER NOT NULL, l_quantity NUMERIC NOT NULL, l_extendedprice NUMERIC NOT NULL, l_discount NUMERIC NOT NULL, l_tax NUMERIC NOT NULL, l_returnflag TEXT NOT NULL, l_linestatus TEXT NOT NULL, l_shipdate TEXT NOT NULL, l_commitdate TEXT NOT NULL, l_receiptdate TEXT NOT NULL, l_shipinstruct TEXT NOT NULL, l_shipmode TEXT NOT NULL, l_comment TEXT NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)) WITHOUT ROWID
CREATE TABLE refresh_state (id INTEGER NOT NULL, inserted INTEGER NOT NULL, deleted INTEGER NOT NULL, PRIMARY KEY (id)) WITHOUT ROWID
-- after the load, phase 1
CREATE INDEX supplier_nation ON supplier (s_nationkey)
-- after the load, phase 2
CREATE INDEX customer_nation ON customer (c_nationkey)
-- after the load, phase 3
CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey)
-- after the load, phase 4
CREATE INDEX orders_customer ON orders (o_custkey)
-- after the load, phase 5
CREATE INDEX lineitem_part ON lineitem (l_partkey, l_suppkey)
-- after the load, phase 6
ANALYZE region
ANALYZE nation
ANALYZE supplier
ANALYZE customer
ANALYZE part
ANALYZE partsupp
ANALYZE orders
ANALYZE lineitem
ANALYZE refresh_state
-- removal
DROP TABLE IF EXISTS refresh_state
DROP TABLE IF EXISTS lineitem
DROP TABLE IF EXISTS orders
DROP TABLE IF EXISTS partsupp
DROP TABLE IF EXISTS part
DROP TABLE IF EXISTS customer
DROP TABLE IF EXISTS supplier
DROP TABLE IF EXISTS nation
DROP TABLE IF EXISTS region
-- take-inserted
UPDATE refresh_state SET inserted = inserted + 1 WHERE id = 1
-- number-inserted
SELECT inserted FROM refresh_state WHERE id = 1
-- insert-orders-10
INSERT INTO orders (o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment) VALUES ($1, $2, $3, CAST($4 AS decimal(15,2)), $5, $6, $7, $8, $9), ($10, $11, $12, CAST($13 AS decimal(15,2)), $14, $15, $16, $17, $18), ($19, $20, $21, CAST($22 AS decimal(15,2)), $23, $24, $25, $26, $27), ($28, $29, $30, CAST($31 AS decimal(15,2)), $32, $33, $34, $35, $36), ($37, $38, $39, CAST($40 AS decimal(15,2)), $41, $42, $43, $44, $45), ($46, $47, $48, CAST($49 AS decimal(15,2)), $50, $51, $52, $53, $54), ($55, $56, $57, CAST($58 AS decimal(15,2)), $59, $60, $61, $62, $63), ($64, $65, $66, CAST($67 AS decimal(15,2)), $68, $69, $70, $71, $72), ($73, $74, $75, CAST($76 AS decimal(15,2)), $77, $78, $79, $80, $81), ($82, $83, $84, CAST($85 AS decimal(15,2)), $86, $87, $88, $89, $90)
-- insert-orders-1
INSERT INTO orders (o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment) VALUES ($1, $2, $3, CAST($4 AS decimal(15,2)), $5, $6, $7, $8, $9)
-- insert-lineitem-10
INSERT INTO lineitem (l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment) VALUES ($1, $2, $3, $4, CAST($5 AS decimal(15,2)), CAST($6 AS decimal(15,2)), CAST($7 AS decimal(15,2)), CAST($8 AS decimal(15,2)), $9, $10, $11, $12, $13, $14, $15, $16), ($17, $18, $19, $20, CAST($21 AS decimal(15,2)), CAST($22 AS decimal(15,2)), CAST($23 AS decimal(15,2)), CAST($24 AS decimal(15,2)), $25, $26, $27, $28, $29, $30, $31, $32), ($33, $34, $35, $36, CAST($37 AS decimal(15,2)), CAST($38 AS decimal(15,2)), CAST($39 AS decimal(15,2)), CAST($40 AS decimal(15,2)), $41, $42, $43, $44, $45, $46, $47, $48), ($49, $50, $51, $52, CAST($53 AS decimal(15,2)), CAST($54 AS decimal(15,2)), CAST($55 AS decimal(15,2)), CAST($56 AS decimal(15,2)), $57, $58, $59, $60, $61, $62, $63, $64), ($65, $66, $67, $68, CAST($69 AS decimal(15,2)), CAST($70 AS decimal(15,2)), CAST($71 AS decimal(15,2)), CAST($72 AS decimal(15,2)), $73, $74, $75, $76, $77, $78, $79, $80), ($81, $82, $83, $84, CAST($85 AS decimal(15,2)), CAST($86 AS decimal(15,2)), CAST($87 AS decimal(15,2)), CAST($88 AS decimal(15,2)), $89, $90, $91, $92, $93, $94, $95, $96), ($97, $98, $99, $100, CAST($101 AS decimal(15,2)), CAST($102 AS decimal(15,2)), CAST($103 AS decimal(15,2)), CAST($104 AS decimal(15,2)), $105, $106, $107, $108, $109, $110, $111, $112), ($113, $114, $115, $116, CAST($117 AS decimal(15,2)), CAST($118 AS decimal(15,2)), CAST($119 AS decimal(15,2)), CAST($120 AS decimal(15,2)), $121, $122, $123, $124, $125, $126, $127, $128), ($129, $130, $131, $132, CAST($133 AS decimal(15,2)), CAST($134 AS decimal(15,2)), CAST($135 AS decimal(15,2)), CAST($136 AS decimal(15,2)), $137, $138, $139, $140, $141, $142, $143, $144), ($145, $146, $147, $148, CAST($149 AS decimal(15,2)), CAST($150 AS decimal(15,2)), CAST($151 AS decimal(15,2)), CAST($152 AS decimal(15,2)), $153, $154, $155, $156, $157, $158, $159, $160)
-- insert-lineitem-1
INSERT INTO lineitem (l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment) VALUES ($1, $2, $3, $4, CAST($5 AS decimal(15,2)), CAST($6 AS decimal(15,2)), CAST($7 AS decimal(15,2)), CAST($8 AS decimal(15,2)), $9, $10, $11, $12, $13, $14, $15, $16)
-- q1
SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price, SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price, SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, AVG(l_quantity) AS avg_qty, AVG(l_extendedprice) AS avg_price, AVG(l_discount) AS avg_disc, COUNT(*) AS count_order FROM lineitem WHERE l_shipdate <= $1 GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
-- q2
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment FROM part, supplier, partsupp, nation, region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = $1 AND p_type LIKE $2 AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $3 AND ps_supplycost = (SELECT MIN(ps_supplycost) FROM partsupp, supplier, nation, region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $3) ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100
-- q3
SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority FROM customer, orders, lineitem WHERE c_mktsegment = $1 AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < $2 AND l_shipdate > $2 GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10
-- q4
SELECT o_orderpriority, COUNT(*) AS order_count FROM orders WHERE o_orderdate >= $1 AND o_orderdate < $2 AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority ORDER BY o_orderpriority
-- q5
SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $1 AND o_orderdate >= $2 AND o_orderdate < $3 GROUP BY n_name ORDER BY revenue DESC
-- q6
SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= $1 AND l_shipdate < $2 AND l_discount BETWEEN CAST($3 AS decimal(15,10)) AND CAST($4 AS decimal(15,10)) AND l_quantity < $5
-- q7
SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue FROM ( SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, CAST(SUBSTR(l_shipdate, 1, 4) AS integer) AS l_year, l_extendedprice * (1 - l_discount) AS volume FROM supplier, lineitem, orders, customer, nation n1, nation n2 WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey AND ((n1.n_name = $1 AND n2.n_name = $2) OR (n1.n_name = $2 AND n2.n_name = $1)) AND l_shipdate BETWEEN '1995-01-01' AND '1996-12-31') shipping GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year
-- q8
SELECT o_year, SUM(CASE WHEN nation = $1 THEN volume ELSE 0 END) / SUM(volume) AS mkt_share FROM ( SELECT CAST(SUBSTR(o_orderdate, 1, 4) AS integer) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = $2 AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN '1995-01-01' AND '1996-12-31' AND p_type = $3) all_nations GROUP BY o_year ORDER BY o_year
-- q9
SELECT nation, o_year, SUM(amount) AS sum_profit FROM ( SELECT n_name AS nation, CAST(SUBSTR(o_orderdate, 1, 4) AS integer) AS o_year, l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount FROM part, supplier, lineitem, partsupp, orders, nation WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE $1) profit GROUP BY nation, o_year ORDER BY nation, o_year DESC
-- q10
SELECT c_custkey, c_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment FROM customer, orders, lineitem, nation WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= $1 AND o_orderdate < $2 AND l_returnflag = 'R' AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment ORDER BY revenue DESC LIMIT 20
-- q11
SELECT ps_partkey, SUM(ps_supplycost * ps_availqty) AS stock_value FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = $1 GROUP BY ps_partkey HAVING SUM(ps_supplycost * ps_availqty) > ( SELECT SUM(ps_supplycost * ps_availqty) * CAST($2 AS decimal(15,10)) FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = $1) ORDER BY stock_value DESC
-- q12
SELECT l_shipmode, SUM(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count, SUM(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ($1, $2) AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_receiptdate >= $3 AND l_receiptdate < $4 GROUP BY l_shipmode ORDER BY l_shipmode
-- q13
SELECT c_count, COUNT(*) AS custdist FROM ( SELECT c_custkey, COUNT(o_orderkey) AS c_count FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE $1 GROUP BY c_custkey) c_orders GROUP BY c_count ORDER BY custdist DESC, c_count DESC
-- q14
SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / SUM(l_extendedprice * (1 - l_discount)) AS promo_revenue FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= $1 AND l_shipdate < $2
-- q15
WITH revenue AS ( SELECT l_suppkey AS supplier_no, SUM(l_extendedprice * (1 - l_discount)) AS total_revenue FROM lineitem WHERE l_shipdate >= $1 AND l_shipdate < $2 GROUP BY l_suppkey) SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier, revenue WHERE s_suppkey = supplier_no AND total_revenue = (SELECT MAX(total_revenue) FROM revenue) ORDER BY s_suppkey
-- q16
SELECT p_brand, p_type, p_size, COUNT(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part WHERE p_partkey = ps_partkey AND p_brand <> $1 AND p_type NOT LIKE $2 AND p_size IN ($3, $4, $5, $6, $7, $8, $9, $10) AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%') GROUP BY p_brand, p_type, p_size ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
-- q17
SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part WHERE p_partkey = l_partkey AND p_brand = $1 AND p_container = $2 AND l_quantity < (SELECT 0.2 * AVG(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
-- q18
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, SUM(l_quantity) AS quantity FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING SUM(l_quantity) > $1) AND c_custkey = o_custkey AND o_orderkey = l_orderkey GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice ORDER BY o_totalprice DESC, o_orderdate LIMIT 100
-- q19
SELECT SUM(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part WHERE p_partkey = l_partkey AND ((p_brand = $1 AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') AND l_quantity >= $4 AND l_quantity <= $5 AND p_size BETWEEN 1 AND 5 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON') OR (p_brand = $2 AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK') AND l_quantity >= $6 AND l_quantity <= $7 AND p_size BETWEEN 1 AND 10 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON') OR (p_brand = $3 AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG') AND l_quantity >= $8 AND l_quantity <= $9 AND p_size BETWEEN 1 AND 15 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON'))
-- q20
SELECT s_name, s_address FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE $1) AND ps_availqty > (SELECT 0.5 * SUM(l_quantity) FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= $2 AND l_shipdate < $3)) AND s_nationkey = n_nationkey AND n_name = $4 ORDER BY s_name
-- q21
SELECT s_name, COUNT(*) AS numwait FROM supplier, lineitem l1, orders, nation WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate) AND s_nationkey = n_nationkey AND n_name = $1 GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100
-- q22
SELECT cntrycode, COUNT(*) AS numcust, SUM(c_acctbal) AS totacctbal FROM ( SELECT SUBSTR(c_phone, 1, 2) AS cntrycode, c_acctbal FROM customer WHERE SUBSTR(c_phone, 1, 2) IN ($1, $2, $3, $4, $5, $6, $7) AND c_acctbal > (SELECT AVG(c_acctbal) FROM customer WHERE c_acctbal > 0.00 AND SUBSTR(c_phone, 1, 2) IN ($1, $2, $3, $4, $5, $6, $7)) AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) custsale GROUP BY cntrycode ORDER BY cntrycode
-- take-deleted
UPDATE refresh_state SET deleted = deleted + 1 WHERE id = 1
-- number-deleted
SELECT deleted FROM refresh_state WHERE id = 1
-- delete-lineitem
DELETE FROM lineitem WHERE l_orderkey IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
-- delete-orders
DELETE FROM orders WHERE o_orderkey IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
-- orders-there
SELECT (SELECT COUNT(*) FROM orders), 15000 + 15 * (inserted - deleted) FROM refresh_state
