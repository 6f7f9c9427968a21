-CREATE TABLE item (i_id integer NOT NULL, i_im_id integer NOT NULL, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, i_data varchar(50) NOT NULL)
-CREATE TABLE warehouse (w_id integer NOT NULL, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL)
-CREATE TABLE stock (s_i_id integer NOT NULL, s_w_id integer NOT NULL, s_quantity integer NOT NULL, s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, s_ytd bigint NOT NULL, s_order_cnt integer NOT NULL, s_remote_cnt integer NOT NULL, s_data varchar(50) NOT NULL)
-CREATE TABLE district (d_id smallint NOT NULL, d_w_id integer NOT NULL, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id integer NOT NULL)
-CREATE TABLE customer (c_id integer NOT NULL, c_d_id smallint NOT NULL, c_w_id integer NOT NULL, c_first varchar(16) NOT NULL, c_middle char(2) NOT NULL, c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, c_since timestamp NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt integer NOT NULL, c_delivery_cnt integer NOT NULL, c_data varchar(500) NOT NULL)
-CREATE TABLE history (h_c_id integer NOT NULL, h_c_d_id smallint NOT NULL, h_c_w_id integer NOT NULL, h_d_id smallint NOT NULL, h_w_id integer NOT NULL, h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, h_data varchar(24) NOT NULL)
-CREATE TABLE orders (o_id integer NOT NULL, o_d_id smallint NOT NULL, o_w_id integer NOT NULL, o_c_id integer NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id smallint, o_ol_cnt smallint NOT NULL, o_all_local smallint NOT NULL)
-CREATE TABLE new_order (no_o_id integer NOT NULL, no_d_id smallint NOT NULL, no_w_id integer NOT NULL)
-CREATE TABLE order_line (ol_o_id integer NOT NULL, ol_d_id smallint NOT NULL, ol_w_id integer NOT NULL, ol_number smallint NOT NULL, ol_i_id integer NOT NULL, ol_supply_w_id integer NOT NULL, ol_delivery_d timestamp, ol_quantity smallint NOT NULL, ol_amount numeric(6,2) NOT NULL, ol_dist_info char(24) NOT NULL)
+CREATE TABLE item (i_id INT NOT NULL, i_im_id INT NOT NULL, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, i_data varchar(50) NOT NULL, PRIMARY KEY (i_id)) ENGINE = InnoDB
+CREATE TABLE warehouse (w_id INT NOT NULL, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL, PRIMARY KEY (w_id)) ENGINE = InnoDB
+CREATE TABLE stock (s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT NOT NULL, s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, s_ytd BIGINT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, s_data varchar(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)) ENGINE = InnoDB
+CREATE TABLE district (d_id SMALLINT NOT NULL, d_w_id INT NOT NULL, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)) ENGINE = InnoDB
+CREATE TABLE customer (c_id INT NOT NULL, c_d_id SMALLINT NOT NULL, c_w_id INT NOT NULL, c_first varchar(16) NOT NULL, c_middle char(2) NOT NULL, c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, c_since DATETIME NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data varchar(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id)) ENGINE = InnoDB
+CREATE TABLE history (h_c_id INT NOT NULL, h_c_d_id SMALLINT NOT NULL, h_c_w_id INT NOT NULL, h_d_id SMALLINT NOT NULL, h_w_id INT NOT NULL, h_date DATETIME NOT NULL, h_amount numeric(6,2) NOT NULL, h_data varchar(24) NOT NULL) ENGINE = InnoDB
+CREATE TABLE orders (o_id INT NOT NULL, o_d_id SMALLINT NOT NULL, o_w_id INT NOT NULL, o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL, o_carrier_id SMALLINT, o_ol_cnt SMALLINT NOT NULL, o_all_local SMALLINT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)) ENGINE = InnoDB
+CREATE TABLE new_order (no_o_id INT NOT NULL, no_d_id SMALLINT NOT NULL, no_w_id INT NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id)) ENGINE = InnoDB
+CREATE TABLE order_line (ol_o_id INT NOT NULL, ol_d_id SMALLINT NOT NULL, ol_w_id INT NOT NULL, ol_number SMALLINT NOT NULL, ol_i_id INT NOT NULL, ol_supply_w_id INT NOT NULL, ol_delivery_d DATETIME, ol_quantity SMALLINT NOT NULL, ol_amount numeric(6,2) NOT NULL, ol_dist_info char(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)) ENGINE = InnoDB
-ALTER TABLE item ADD PRIMARY KEY (i_id)
-ALTER TABLE warehouse ADD PRIMARY KEY (w_id)
-ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id)
-ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id)
-ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id)
-ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id)
-ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id)
-ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
-VACUUM (FREEZE, ANALYZE) item
-VACUUM (FREEZE, ANALYZE) warehouse
-VACUUM (FREEZE, ANALYZE) stock
-VACUUM (FREEZE, ANALYZE) district
-VACUUM (FREEZE, ANALYZE) customer
-VACUUM (FREEZE, ANALYZE) history
-VACUUM (FREEZE, ANALYZE) orders
-VACUUM (FREEZE, ANALYZE) new_order
-VACUUM (FREEZE, ANALYZE) order_line
+ANALYZE TABLE item
+ANALYZE TABLE warehouse
+ANALYZE TABLE stock
+ANALYZE TABLE district
+ANALYZE TABLE customer
+ANALYZE TABLE history
+ANALYZE TABLE orders
+ANALYZE TABLE new_order
+ANALYZE TABLE order_line
-DROP FUNCTION IF EXISTS tprocc_neword
-DROP FUNCTION IF EXISTS tprocc_payment
-DROP FUNCTION IF EXISTS tprocc_ostat
-DROP FUNCTION IF EXISTS tprocc_delivery
-DROP FUNCTION IF EXISTS tprocc_slev
-SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1)
+SELECT i_id, CAST(i_price * 100 AS SIGNED), i_name, i_data FROM item WHERE i_id IN ($1)
-SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
+SELECT i_id, CAST(i_price * 100 AS SIGNED), i_name, i_data FROM item WHERE i_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
-SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
+SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE
