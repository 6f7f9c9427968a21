-CREATE TABLE item (i_id integer NOT NULL, i_im_id integer NOT NULL, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, i_data varchar(50) NOT NULL)
-CREATE TABLE warehouse (w_id integer NOT NULL, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL)
-CREATE TABLE stock (s_i_id integer NOT NULL, s_w_id integer NOT NULL, s_quantity integer NOT NULL, s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, s_ytd bigint NOT NULL, s_order_cnt integer NOT NULL, s_remote_cnt integer NOT NULL, s_data varchar(50) NOT NULL)
-CREATE TABLE district (d_id smallint NOT NULL, d_w_id integer NOT NULL, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id integer NOT NULL)
-CREATE TABLE customer (c_id integer NOT NULL, c_d_id smallint NOT NULL, c_w_id integer NOT NULL, c_first varchar(16) NOT NULL, c_middle char(2) NOT NULL, c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, c_since timestamp NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt integer NOT NULL, c_delivery_cnt integer NOT NULL, c_data varchar(500) NOT NULL)
-CREATE TABLE history (h_c_id integer NOT NULL, h_c_d_id smallint NOT NULL, h_c_w_id integer NOT NULL, h_d_id smallint NOT NULL, h_w_id integer NOT NULL, h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, h_data varchar(24) NOT NULL)
-CREATE TABLE orders (o_id integer NOT NULL, o_d_id smallint NOT NULL, o_w_id integer NOT NULL, o_c_id integer NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id smallint, o_ol_cnt smallint NOT NULL, o_all_local smallint NOT NULL)
-CREATE TABLE new_order (no_o_id integer NOT NULL, no_d_id smallint NOT NULL, no_w_id integer NOT NULL)
-CREATE TABLE order_line (ol_o_id integer NOT NULL, ol_d_id smallint NOT NULL, ol_w_id integer NOT NULL, ol_number smallint NOT NULL, ol_i_id integer NOT NULL, ol_supply_w_id integer NOT NULL, ol_delivery_d timestamp, ol_quantity smallint NOT NULL, ol_amount numeric(6,2) NOT NULL, ol_dist_info char(24) NOT NULL)
+CREATE TABLE item (i_id INTEGER NOT NULL, i_im_id INTEGER NOT NULL, i_name TEXT NOT NULL, i_price NUMERIC NOT NULL, i_data TEXT NOT NULL, PRIMARY KEY (i_id)) WITHOUT ROWID
+CREATE TABLE warehouse (w_id INTEGER NOT NULL, w_name TEXT NOT NULL, w_street_1 TEXT NOT NULL, w_street_2 TEXT NOT NULL, w_city TEXT NOT NULL, w_state TEXT NOT NULL, w_zip TEXT NOT NULL, w_tax NUMERIC NOT NULL, w_ytd NUMERIC NOT NULL, PRIMARY KEY (w_id)) WITHOUT ROWID
+CREATE TABLE stock (s_i_id INTEGER NOT NULL, s_w_id INTEGER NOT NULL, s_quantity INTEGER NOT NULL, s_dist_01 TEXT NOT NULL, s_dist_02 TEXT NOT NULL, s_dist_03 TEXT NOT NULL, s_dist_04 TEXT NOT NULL, s_dist_05 TEXT NOT NULL, s_dist_06 TEXT NOT NULL, s_dist_07 TEXT NOT NULL, s_dist_08 TEXT NOT NULL, s_dist_09 TEXT NOT NULL, s_dist_10 TEXT NOT NULL, s_ytd INTEGER NOT NULL, s_order_cnt INTEGER NOT NULL, s_remote_cnt INTEGER NOT NULL, s_data TEXT NOT NULL, PRIMARY KEY (s_w_id, s_i_id)) WITHOUT ROWID
+CREATE TABLE district (d_id INTEGER NOT NULL, d_w_id INTEGER NOT NULL, d_name TEXT NOT NULL, d_street_1 TEXT NOT NULL, d_street_2 TEXT NOT NULL, d_city TEXT NOT NULL, d_state TEXT NOT NULL, d_zip TEXT NOT NULL, d_tax NUMERIC NOT NULL, d_ytd NUMERIC NOT NULL, d_next_o_id INTEGER NOT NULL, PRIMARY KEY (d_w_id, d_id)) WITHOUT ROWID
+CREATE TABLE customer (c_id INTEGER NOT NULL, c_d_id INTEGER NOT NULL, c_w_id INTEGER NOT NULL, c_first TEXT NOT NULL, c_middle TEXT NOT NULL, c_last TEXT NOT NULL, c_street_1 TEXT NOT NULL, c_street_2 TEXT NOT NULL, c_city TEXT NOT NULL, c_state TEXT NOT NULL, c_zip TEXT NOT NULL, c_phone TEXT NOT NULL, c_since TEXT NOT NULL, c_credit TEXT NOT NULL, c_credit_lim NUMERIC NOT NULL, c_discount NUMERIC NOT NULL, c_balance NUMERIC NOT NULL, c_ytd_payment NUMERIC NOT NULL, c_payment_cnt INTEGER NOT NULL, c_delivery_cnt INTEGER NOT NULL, c_data TEXT NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id)) WITHOUT ROWID
+CREATE TABLE history (h_c_id INTEGER NOT NULL, h_c_d_id INTEGER NOT NULL, h_c_w_id INTEGER NOT NULL, h_d_id INTEGER NOT NULL, h_w_id INTEGER NOT NULL, h_date TEXT NOT NULL, h_amount NUMERIC NOT NULL, h_data TEXT NOT NULL)
+CREATE TABLE orders (o_id INTEGER NOT NULL, o_d_id INTEGER NOT NULL, o_w_id INTEGER NOT NULL, o_c_id INTEGER NOT NULL, o_entry_d TEXT NOT NULL, o_carrier_id INTEGER, o_ol_cnt INTEGER NOT NULL, o_all_local INTEGER NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)) WITHOUT ROWID
+CREATE TABLE new_order (no_o_id INTEGER NOT NULL, no_d_id INTEGER NOT NULL, no_w_id INTEGER NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id)) WITHOUT ROWID
+CREATE TABLE order_line (ol_o_id INTEGER NOT NULL, ol_d_id INTEGER NOT NULL, ol_w_id INTEGER NOT NULL, ol_number INTEGER NOT NULL, ol_i_id INTEGER NOT NULL, ol_supply_w_id INTEGER NOT NULL, ol_delivery_d TEXT, ol_quantity INTEGER NOT NULL, ol_amount NUMERIC NOT NULL, ol_dist_info TEXT NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)) WITHOUT ROWID
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
+ANALYZE item
+ANALYZE warehouse
+ANALYZE stock
+ANALYZE district
+ANALYZE customer
+ANALYZE history
+ANALYZE orders
+ANALYZE new_order
+ANALYZE order_line
-DROP FUNCTION IF EXISTS tprocc_neword
-DROP FUNCTION IF EXISTS tprocc_payment
-DROP FUNCTION IF EXISTS tprocc_ostat
-DROP FUNCTION IF EXISTS tprocc_delivery
-DROP FUNCTION IF EXISTS tprocc_slev
-SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE
+SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2
-SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1)
+SELECT i_id, CAST(ROUND(i_price * 100) AS INTEGER), i_name, i_data FROM item WHERE i_id IN ($1)
-SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
+SELECT i_id, CAST(ROUND(i_price * 100) AS INTEGER), i_name, i_data FROM item WHERE i_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
-SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3) FOR UPDATE
+SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3)
-SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) FOR UPDATE
+SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
-SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE
+SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
