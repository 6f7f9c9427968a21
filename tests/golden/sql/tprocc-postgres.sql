-- before the load
CREATE TABLE item (i_id integer NOT NULL, i_im_id integer NOT NULL, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, i_data varchar(50) NOT NULL)
CREATE TABLE warehouse (w_id integer NOT NULL, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL)
CREATE TABLE stock (s_i_id integer NOT NULL, s_w_id integer NOT NULL, s_quantity integer NOT NULL, s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, s_ytd bigint NOT NULL, s_order_cnt integer NOT NULL, s_remote_cnt integer NOT NULL, s_data varchar(50) NOT NULL)
CREATE TABLE district (d_id smallint NOT NULL, d_w_id integer NOT NULL, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id integer NOT NULL)
CREATE TABLE customer (c_id integer NOT NULL, c_d_id smallint NOT NULL, c_w_id integer NOT NULL, c_first varchar(16) NOT NULL, c_middle char(2) NOT NULL, c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, c_since timestamp NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt integer NOT NULL, c_delivery_cnt integer NOT NULL, c_data varchar(500) NOT NULL)
CREATE TABLE history (h_c_id integer NOT NULL, h_c_d_id smallint NOT NULL, h_c_w_id integer NOT NULL, h_d_id smallint NOT NULL, h_w_id integer NOT NULL, h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, h_data varchar(24) NOT NULL)
CREATE TABLE orders (o_id integer NOT NULL, o_d_id smallint NOT NULL, o_w_id integer NOT NULL, o_c_id integer NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id smallint, o_ol_cnt smallint NOT NULL, o_all_local smallint NOT NULL)
CREATE TABLE new_order (no_o_id integer NOT NULL, no_d_id smallint NOT NULL, no_w_id integer NOT NULL)
CREATE TABLE order_line (ol_o_id integer NOT NULL, ol_d_id smallint NOT NULL, ol_w_id integer NOT NULL, ol_number smallint NOT NULL, ol_i_id integer NOT NULL, ol_supply_w_id integer NOT NULL, ol_delivery_d timestamp, ol_quantity smallint NOT NULL, ol_amount numeric(6,2) NOT NULL, ol_dist_info char(24) NOT NULL)
-- after the load, phase 1
ALTER TABLE item ADD PRIMARY KEY (i_id)
ALTER TABLE warehouse ADD PRIMARY KEY (w_id)
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id)
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id)
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id)
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id)
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id)
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
CREATE UNIQUE INDEX customer_i2 ON customer (c_w_id, c_d_id, c_last, c_first, c_id)
CREATE UNIQUE INDEX orders_i2 ON orders (o_w_id, o_d_id, o_c_id, o_id)
-- after the load, phase 2
VACUUM (FREEZE, ANALYZE) item
VACUUM (FREEZE, ANALYZE) warehouse
VACUUM (FREEZE, ANALYZE) stock
VACUUM (FREEZE, ANALYZE) district
VACUUM (FREEZE, ANALYZE) customer
VACUUM (FREEZE, ANALYZE) history
VACUUM (FREEZE, ANALYZE) orders
VACUUM (FREEZE, ANALYZE) new_order
VACUUM (FREEZE, ANALYZE) order_line
-- removal
DROP TABLE IF EXISTS order_line
DROP TABLE IF EXISTS new_order
DROP TABLE IF EXISTS orders
DROP TABLE IF EXISTS history
DROP TABLE IF EXISTS customer
DROP TABLE IF EXISTS district
DROP TABLE IF EXISTS stock
DROP TABLE IF EXISTS warehouse
DROP TABLE IF EXISTS item
DROP FUNCTION IF EXISTS tprocc_neword
DROP FUNCTION IF EXISTS tprocc_payment
DROP FUNCTION IF EXISTS tprocc_ostat
DROP FUNCTION IF EXISTS tprocc_delivery
DROP FUNCTION IF EXISTS tprocc_slev
-- get_customer
SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3
-- get_next_order
SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE
-- set_next_order
UPDATE district SET d_next_o_id = $1 WHERE d_w_id = $2 AND d_id = $3
-- add_order
INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP, $5, $6)
-- add_new_order
INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)
-- get_items_1
SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1)
-- get_items_15
SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
-- get_stock_1
SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3) FOR UPDATE
-- get_stock_15
SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) FOR UPDATE
-- set_stock
UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $3 WHERE s_w_id = $4 AND s_i_id = $5
-- add_lines_5
INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9), ($10, $11, $12, $13, $14, $15, $16, $17, $18), ($19, $20, $21, $22, $23, $24, $25, $26, $27), ($28, $29, $30, $31, $32, $33, $34, $35, $36), ($37, $38, $39, $40, $41, $42, $43, $44, $45)
-- add_lines_15
INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9), ($10, $11, $12, $13, $14, $15, $16, $17, $18), ($19, $20, $21, $22, $23, $24, $25, $26, $27), ($28, $29, $30, $31, $32, $33, $34, $35, $36), ($37, $38, $39, $40, $41, $42, $43, $44, $45), ($46, $47, $48, $49, $50, $51, $52, $53, $54), ($55, $56, $57, $58, $59, $60, $61, $62, $63), ($64, $65, $66, $67, $68, $69, $70, $71, $72), ($73, $74, $75, $76, $77, $78, $79, $80, $81), ($82, $83, $84, $85, $86, $87, $88, $89, $90), ($91, $92, $93, $94, $95, $96, $97, $98, $99), ($100, $101, $102, $103, $104, $105, $106, $107, $108), ($109, $110, $111, $112, $113, $114, $115, $116, $117), ($118, $119, $120, $121, $122, $123, $124, $125, $126), ($127, $128, $129, $130, $131, $132, $133, $134, $135)
-- pay_warehouse
UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2
-- get_warehouse
SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = $1
-- pay_district
UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3
-- get_district
SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = $1 AND d_id = $2
-- find_customers
SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first
-- get_payer
SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE
-- get_data
SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
-- pay_customer
UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2, c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5
-- pay_bad_customer
UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2, c_payment_cnt = c_payment_cnt + 1, c_data = $3 WHERE c_w_id = $4 AND c_d_id = $5 AND c_id = $6
-- add_history
INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) VALUES ($1, $2, $3, $4, $5, CURRENT_TIMESTAMP, $6, $7)
-- get_buyer
SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
-- get_last_order
SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1
-- get_lines
SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
-- get_oldest
SELECT MIN(no_o_id) FROM new_order WHERE no_w_id = $1 AND no_d_id = $2
-- take_new_order
DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3
-- get_orderer
SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3
-- set_carrier
UPDATE orders SET o_carrier_id = $1 WHERE o_w_id = $2 AND o_d_id = $3 AND o_id = $4
-- set_delivered
UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
-- get_total
SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
-- bill_customer
UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4
-- peek_next_order
SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2
-- count_low_stock
SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 AND s_w_id = $5 AND s_i_id = ol_i_id AND s_quantity < $6
-- consistency-1
SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(d.ytd * 100) THEN 1 END), COUNT(*) FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS ytd FROM district GROUP BY d_w_id) d ON d.d_w_id = w_id
-- consistency-2
SELECT COUNT(CASE WHEN d_next_o_id - 1 = o.newest AND (n.newest IS NULL OR n.newest = o.newest) THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS newest FROM orders GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id
-- consistency-3
SELECT COUNT(CASE WHEN n.waiting IS NULL OR n.newest - n.oldest + 1 = n.waiting THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest, MIN(no_o_id) AS oldest, COUNT(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id
-- consistency-4
SELECT COUNT(CASE WHEN o.line_count = l.line_count THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS line_count FROM orders GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS line_count FROM order_line GROUP BY ol_w_id, ol_d_id) l ON l.ol_w_id = d_w_id AND l.ol_d_id = d_id
-- consistency-5
SELECT COUNT(CASE WHEN (o_carrier_id IS NULL AND no_o_id IS NOT NULL) OR (o_carrier_id IS NOT NULL AND no_o_id IS NULL) THEN 1 END), COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
-- consistency-6
SELECT COUNT(CASE WHEN o_ol_cnt = l.line_count THEN 1 END), COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS line_count FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l ON l.ol_w_id = o_w_id AND l.ol_d_id = o_d_id AND l.ol_o_id = o_id
-- consistency-7
SELECT COUNT(CASE WHEN o_id IS NOT NULL AND ((ol_delivery_d IS NULL AND o_carrier_id IS NULL) OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NOT NULL)) THEN 1 END), COUNT(*) FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
-- consistency-8
SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(h.paid * 100) THEN 1 END), COUNT(*) FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id) h ON h.h_w_id = w_id
-- consistency-9
SELECT COUNT(CASE WHEN ROUND(d_ytd * 100) = ROUND(h.paid * 100) THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) h ON h.h_w_id = d_w_id AND h.h_d_id = d_id
-- consistency-10
SELECT COUNT(CASE WHEN ROUND(c_balance * 100) = ROUND((COALESCE(l.delivered, 0) - COALESCE(h.paid, 0)) * 100) THEN 1 END), COUNT(*) FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) h ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id
-- consistency-11
SELECT COUNT(CASE WHEN o.taken - COALESCE(n.waiting, 0) = 2100 + c.delivered THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS taken FROM orders GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id LEFT JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id LEFT JOIN (SELECT c_w_id, c_d_id, SUM(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) c ON c.c_w_id = d_w_id AND c.c_d_id = d_id
-- consistency-12
SELECT COUNT(CASE WHEN ROUND((c_balance + c_ytd_payment) * 100) = ROUND(COALESCE(l.delivered, 0) * 100) THEN 1 END), COUNT(*) FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id
