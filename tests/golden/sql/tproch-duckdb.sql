-CREATE TABLE region (r_regionkey integer NOT NULL, r_name varchar(25) NOT NULL, r_comment varchar(152) NOT NULL)
-CREATE TABLE nation (n_nationkey integer NOT NULL, n_name varchar(25) NOT NULL, n_regionkey integer NOT NULL, n_comment varchar(152) NOT NULL)
-CREATE TABLE supplier (s_suppkey integer NOT NULL, s_name varchar(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey integer NOT NULL, s_phone varchar(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment varchar(101) NOT NULL)
-CREATE TABLE customer (c_custkey integer NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey integer NOT NULL, c_phone varchar(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment varchar(10) NOT NULL, c_comment varchar(117) NOT NULL)
-CREATE TABLE part (p_partkey integer NOT NULL, p_name varchar(55) NOT NULL, p_mfgr varchar(25) NOT NULL, p_brand varchar(10) NOT NULL, p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container varchar(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL)
-CREATE TABLE partsupp (ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL)
-CREATE TABLE orders (o_orderkey bigint NOT NULL, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority varchar(15) NOT NULL, o_clerk varchar(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL)
-CREATE TABLE lineitem (l_orderkey bigint NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct varchar(25) NOT NULL, l_shipmode varchar(10) NOT NULL, l_comment varchar(44) NOT NULL)
-CREATE TABLE refresh_state (id integer NOT NULL, inserted integer NOT NULL, deleted integer NOT NULL)
+CREATE TABLE region (r_regionkey INTEGER NOT NULL, r_name varchar(25) NOT NULL, r_comment varchar(152) NOT NULL)
+CREATE TABLE nation (n_nationkey INTEGER NOT NULL, n_name varchar(25) NOT NULL, n_regionkey INTEGER NOT NULL, n_comment varchar(152) NOT NULL)
+CREATE TABLE supplier (s_suppkey INTEGER NOT NULL, s_name varchar(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey INTEGER NOT NULL, s_phone varchar(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment varchar(101) NOT NULL)
+CREATE TABLE customer (c_custkey INTEGER NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey INTEGER NOT NULL, c_phone varchar(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment varchar(10) NOT NULL, c_comment varchar(117) NOT NULL)
+CREATE TABLE part (p_partkey INTEGER NOT NULL, p_name varchar(55) NOT NULL, p_mfgr varchar(25) NOT NULL, p_brand varchar(10) NOT NULL, p_type varchar(25) NOT NULL, p_size INTEGER NOT NULL, p_container varchar(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL)
+CREATE TABLE partsupp (ps_partkey INTEGER NOT NULL, ps_suppkey INTEGER NOT NULL, ps_availqty INTEGER NOT NULL, ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL)
+CREATE TABLE orders (o_orderkey BIGINT NOT NULL, o_custkey INTEGER NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority varchar(15) NOT NULL, o_clerk varchar(15) NOT NULL, o_shippriority INTEGER NOT NULL, o_comment varchar(79) NOT NULL)
+CREATE TABLE lineitem (l_orderkey BIGINT NOT NULL, l_partkey INTEGER NOT NULL, l_suppkey INTEGER NOT NULL, l_linenumber INTEGER NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct varchar(25) NOT NULL, l_shipmode varchar(10) NOT NULL, l_comment varchar(44) NOT NULL)
+CREATE TABLE refresh_state (id INTEGER NOT NULL, inserted INTEGER NOT NULL, deleted INTEGER NOT NULL)
-ALTER TABLE region ADD PRIMARY KEY (r_regionkey)
-ALTER TABLE nation ADD PRIMARY KEY (n_nationkey)
-ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey)
-ALTER TABLE customer ADD PRIMARY KEY (c_custkey)
-ALTER TABLE part ADD PRIMARY KEY (p_partkey)
-ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey)
-ALTER TABLE orders ADD PRIMARY KEY (o_orderkey)
-ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)
-ALTER TABLE refresh_state ADD PRIMARY KEY (id)
-CREATE INDEX supplier_nation ON supplier (s_nationkey)
-CREATE INDEX customer_nation ON customer (c_nationkey)
-CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey)
-CREATE INDEX orders_customer ON orders (o_custkey)
-CREATE INDEX lineitem_part ON lineitem (l_partkey, l_suppkey)
-VACUUM (FREEZE, ANALYZE) region
-VACUUM (FREEZE, ANALYZE) nation
-VACUUM (FREEZE, ANALYZE) supplier
-VACUUM (FREEZE, ANALYZE) customer
-VACUUM (FREEZE, ANALYZE) part
-VACUUM (FREEZE, ANALYZE) partsupp
-VACUUM (FREEZE, ANALYZE) orders
-VACUUM (FREEZE, ANALYZE) lineitem
-VACUUM (FREEZE, ANALYZE) refresh_state
+ANALYZE
