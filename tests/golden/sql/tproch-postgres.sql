-- before the load
CREATE TABLE region (r_regionkey integer NOT NULL, r_name varchar(25) NOT NULL, r_comment varchar(152) NOT NULL)
CREATE TABLE nation (n_nationkey integer NOT NULL, n_name varchar(25) NOT NULL, n_regionkey integer NOT NULL, n_comment varchar(152) NOT NULL)
CREATE TABLE supplier (s_suppkey integer NOT NULL, s_name varchar(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey integer NOT NULL, s_phone varchar(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment varchar(101) NOT NULL)
CREATE TABLE customer (c_custkey integer NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey integer NOT NULL, c_phone varchar(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment varchar(10) NOT NULL, c_comment varchar(117) NOT NULL)
CREATE TABLE part (p_partkey integer NOT NULL, p_name varchar(55) NOT NULL, p_mfgr varchar(25) NOT NULL, p_brand varchar(10) NOT NULL, p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container varchar(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL)
CREATE TABLE partsupp (ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL)
CREATE TABLE orders (o_orderkey bigint NOT NULL, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority varchar(15) NOT NULL, o_clerk varchar(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL)
CREATE TABLE lineitem (l_orderkey bigint NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct varchar(25) NOT NULL, l_shipmode varchar(10) NOT NULL, l_comment varchar(44) NOT NULL)
CREATE TABLE refresh_state (id integer NOT NULL, inserted integer NOT NULL, deleted integer NOT NULL)
-- after the load, phase 1
ALTER TABLE region ADD PRIMARY KEY (r_regionkey)
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey)
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey)
ALTER TABLE customer ADD PRIMARY KEY (c_custkey)
ALTER TABLE part ADD PRIMARY KEY (p_partkey)
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey)
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey)
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)
ALTER TABLE refresh_state ADD PRIMARY KEY (id)
CREATE INDEX supplier_nation ON supplier (s_nationkey)
CREATE INDEX customer_nation ON customer (c_nationkey)
CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey)
CREATE INDEX orders_customer ON orders (o_custkey)
CREATE INDEX lineitem_part ON lineitem (l_partkey, l_suppkey)
-- after the load, phase 2
VACUUM (FREEZE, ANALYZE) region
VACUUM (FREEZE, ANALYZE) nation
VACUUM (FREEZE, ANALYZE) supplier
VACUUM (FREEZE, ANALYZE) customer
VACUUM (FREEZE, ANALYZE) part
VACUUM (FREEZE, ANALYZE) partsupp
VACUUM (FREEZE, ANALYZE) orders
VACUUM (FREEZE, ANALYZE) lineitem
VACUUM (FREEZE, ANALYZE) refresh_state
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
INSERT INTO orders (o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment) VALUES ($1, $2, $3, CAST($4 AS decimal(15,2)), CAST($5 AS date), $6, $7, $8, $9), ($10, $11, $12, CAST($13 AS decimal(15,2)), CAST($14 AS date), $15, $16, $17, $18), ($19, $20, $21, CAST($22 AS decimal(15,2)), CAST($23 AS date), $24, $25, $26, $27), ($28, $29, $30, CAST($31 AS decimal(15,2)), CAST($32 AS date), $33, $34, $35, $36), ($37, $38, $39, CAST($40 AS decimal(15,2)), CAST($41 AS date), $42, $43, $44, $45), ($46, $47, $48, CAST($49 AS decimal(15,2)), CAST($50 AS date), $51, $52, $53, $54), ($55, $56, $57, CAST($58 AS decimal(15,2)), CAST($59 AS date), $60, $61, $62, $63), ($64, $65, $66, CAST($67 AS decimal(15,2)), CAST($68 AS date), $69, $70, $71, $72), ($73, $74, $75, CAST($76 AS decimal(15,2)), CAST($77 AS date), $78, $79, $80, $81), ($82, $83, $84, CAST($85 AS decimal(15,2)), CAST($86 AS date), $87, $88, $89, $90)
-- insert-orders-1
INSERT INTO orders (o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment) VALUES ($1, $2, $3, CAST($4 AS decimal(15,2)), CAST($5 AS date), $6, $7, $8, $9)
-- insert-lineitem-10
INSERT INTO lineitem (l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment) VALUES ($1, $2, $3, $4, CAST($5 AS decimal(15,2)), CAST($6 AS decimal(15,2)), CAST($7 AS decimal(15,2)), CAST($8 AS decimal(15,2)), $9, $10, CAST($11 AS date), CAST($12 AS date), CAST($13 AS date), $14, $15, $16), ($17, $18, $19, $20, CAST($21 AS decimal(15,2)), CAST($22 AS decimal(15,2)), CAST($23 AS decimal(15,2)), CAST($24 AS decimal(15,2)), $25, $26, CAST($27 AS date), CAST($28 AS date), CAST($29 AS date), $30, $31, $32), ($33, $34, $35, $36, CAST($37 AS decimal(15,2)), CAST($38 AS decimal(15,2)), CAST($39 AS decimal(15,2)), CAST($40 AS decimal(15,2)), $41, $42, CAST($43 AS date), CAST($44 AS date), CAST($45 AS date), $46, $47, $48), ($49, $50, $51, $52, CAST($53 AS decimal(15,2)), CAST($54 AS decimal(15,2)), CAST($55 AS decimal(15,2)), CAST($56 AS decimal(15,2)), $57, $58, CAST($59 AS date), CAST($60 AS date), CAST($61 AS date), $62, $63, $64), ($65, $66, $67, $68, CAST($69 AS decimal(15,2)), CAST($70 AS decimal(15,2)), CAST($71 AS decimal(15,2)), CAST($72 AS decimal(15,2)), $73, $74, CAST($75 AS date), CAST($76 AS date), CAST($77 AS date), $78, $79, $80), ($81, $82, $83, $84, CAST($85 AS decimal(15,2)), CAST($86 AS decimal(15,2)), CAST($87 AS decimal(15,2)), CAST($88 AS decimal(15,2)), $89, $90, CAST($91 AS date), CAST($92 AS date), CAST($93 AS date), $94, $95, $96), ($97, $98, $99, $100, CAST($101 AS decimal(15,2)), CAST($102 AS decimal(15,2)), CAST($103 AS decimal(15,2)), CAST($104 AS decimal(15,2)), $105, $106, CAST($107 AS date), CAST($108 AS date), CAST($109 AS date), $110, $111, $112), ($113, $114, $115, $116, CAST($117 AS decimal(15,2)), CAST($118 AS decimal(15,2)), CAST($119 AS decimal(15,2)), CAST($120 AS decimal(15,2)), $121, $122, CAST($123 AS date), CAST($124 AS date), CAST($125 AS date), $126, $127, $128), ($129, $130, $131, $132, CAST($133 AS decimal(15,2)), CAST($134 AS decimal(15,2)), CAST($135 AS decimal(15,2)), CAST($136 AS decimal(15,2)), $137, $138, CAST($139 AS date), CAST($140 AS date), CAST($141 AS date), $142, $143, $144), ($145, $146, $147, $148, CAST($149 AS decimal(15,2)), CAST($150 AS decimal(15,2)), CAST($151 AS decimal(15,2)), CAST($152 AS decimal(15,2)), $153, $154, CAST($155 AS date), CAST($156 AS date), CAST($157 AS date), $158, $159, $160)
-- insert-lineitem-1
INSERT INTO lineitem (l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment) VALUES ($1, $2, $3, $4, CAST($5 AS decimal(15,2)), CAST($6 AS decimal(15,2)), CAST($7 AS decimal(15,2)), CAST($8 AS decimal(15,2)), $9, $10, CAST($11 AS date), CAST($12 AS date), CAST($13 AS date), $14, $15, $16)
-- q1
SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price, SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price, SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, AVG(l_quantity) AS avg_qty, AVG(l_extendedprice) AS avg_price, AVG(l_discount) AS avg_disc, COUNT(*) AS count_order FROM lineitem WHERE l_shipdate <= CAST($1 AS date) GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
-- q2
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment FROM part, supplier, partsupp, nation, region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = $1 AND p_type LIKE $2 AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $3 AND ps_supplycost = (SELECT MIN(ps_supplycost) FROM partsupp, supplier, nation, region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $3) ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100
-- q3
SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority FROM customer, orders, lineitem WHERE c_mktsegment = $1 AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < CAST($2 AS date) AND l_shipdate > CAST($2 AS date) GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10
-- q4
SELECT o_orderpriority, COUNT(*) AS order_count FROM orders WHERE o_orderdate >= CAST($1 AS date) AND o_orderdate < CAST($2 AS date) AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority ORDER BY o_orderpriority
-- q5
SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $1 AND o_orderdate >= CAST($2 AS date) AND o_orderdate < CAST($3 AS date) GROUP BY n_name ORDER BY revenue DESC
-- q6
SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= CAST($1 AS date) AND l_shipdate < CAST($2 AS date) AND l_discount BETWEEN CAST($3 AS decimal(15,10)) AND CAST($4 AS decimal(15,10)) AND l_quantity < $5
-- q7
SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue FROM ( SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, EXTRACT(YEAR FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume FROM supplier, lineitem, orders, customer, nation n1, nation n2 WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey AND ((n1.n_name = $1 AND n2.n_name = $2) OR (n1.n_name = $2 AND n2.n_name = $1)) AND l_shipdate BETWEEN CAST('1995-01-01' AS date) AND CAST('1996-12-31' AS date)) shipping GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year
-- q8
SELECT o_year, SUM(CASE WHEN nation = $1 THEN volume ELSE 0 END) / SUM(volume) AS mkt_share FROM ( SELECT EXTRACT(YEAR FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = $2 AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN CAST('1995-01-01' AS date) AND CAST('1996-12-31' AS date) AND p_type = $3) all_nations GROUP BY o_year ORDER BY o_year
-- q9
SELECT nation, o_year, SUM(amount) AS sum_profit FROM ( SELECT n_name AS nation, EXTRACT(YEAR FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount FROM part, supplier, lineitem, partsupp, orders, nation WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE $1) profit GROUP BY nation, o_year ORDER BY nation, o_year DESC
-- q10
SELECT c_custkey, c_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment FROM customer, orders, lineitem, nation WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= CAST($1 AS date) AND o_orderdate < CAST($2 AS date) AND l_returnflag = 'R' AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment ORDER BY revenue DESC LIMIT 20
-- q11
SELECT ps_partkey, SUM(ps_supplycost * ps_availqty) AS stock_value FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = $1 GROUP BY ps_partkey HAVING SUM(ps_supplycost * ps_availqty) > ( SELECT SUM(ps_supplycost * ps_availqty) * CAST($2 AS decimal(15,10)) FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = $1) ORDER BY stock_value DESC
-- q12
SELECT l_shipmode, SUM(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count, SUM(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ($1, $2) AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_receiptdate >= CAST($3 AS date) AND l_receiptdate < CAST($4 AS date) GROUP BY l_shipmode ORDER BY l_shipmode
-- q13
SELECT c_count, COUNT(*) AS custdist FROM ( SELECT c_custkey, COUNT(o_orderkey) AS c_count FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE $1 GROUP BY c_custkey) c_orders GROUP BY c_count ORDER BY custdist DESC, c_count DESC
-- q14
SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / SUM(l_extendedprice * (1 - l_discount)) AS promo_revenue FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= CAST($1 AS date) AND l_shipdate < CAST($2 AS date)
-- q15
WITH revenue AS ( SELECT l_suppkey AS supplier_no, SUM(l_extendedprice * (1 - l_discount)) AS total_revenue FROM lineitem WHERE l_shipdate >= CAST($1 AS date) AND l_shipdate < CAST($2 AS date) GROUP BY l_suppkey) SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier, revenue WHERE s_suppkey = supplier_no AND total_revenue = (SELECT MAX(total_revenue) FROM revenue) ORDER BY s_suppkey
-- q16
SELECT p_brand, p_type, p_size, COUNT(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part WHERE p_partkey = ps_partkey AND p_brand <> $1 AND p_type NOT LIKE $2 AND p_size IN ($3, $4, $5, $6, $7, $8, $9, $10) AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%') GROUP BY p_brand, p_type, p_size ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
-- q17
SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part WHERE p_partkey = l_partkey AND p_brand = $1 AND p_container = $2 AND l_quantity < (SELECT 0.2 * AVG(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
-- q18
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, SUM(l_quantity) AS quantity FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING SUM(l_quantity) > $1) AND c_custkey = o_custkey AND o_orderkey = l_orderkey GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice ORDER BY o_totalprice DESC, o_orderdate LIMIT 100
-- q19
SELECT SUM(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part WHERE (p_partkey = l_partkey AND p_brand = $1 AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') AND l_quantity >= $4 AND l_quantity <= $5 AND p_size BETWEEN 1 AND 5 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON') OR (p_partkey = l_partkey AND p_brand = $2 AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK') AND l_quantity >= $6 AND l_quantity <= $7 AND p_size BETWEEN 1 AND 10 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON') OR (p_partkey = l_partkey AND p_brand = $3 AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG') AND l_quantity >= $8 AND l_quantity <= $9 AND p_size BETWEEN 1 AND 15 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
-- q20
SELECT s_name, s_address FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE $1) AND ps_availqty > (SELECT 0.5 * SUM(l_quantity) FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= CAST($2 AS date) AND l_shipdate < CAST($3 AS date))) AND s_nationkey = n_nationkey AND n_name = $4 ORDER BY s_name
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
