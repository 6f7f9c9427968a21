DROP TABLE IF EXISTS order_line;

DROP TABLE IF EXISTS new_order;

DROP TABLE IF EXISTS orders;

DROP TABLE IF EXISTS history;

DROP TABLE IF EXISTS customer;

DROP TABLE IF EXISTS district;

DROP TABLE IF EXISTS stock;

DROP TABLE IF EXISTS warehouse;

DROP TABLE IF EXISTS item;

DROP FUNCTION IF EXISTS tprocc_neword;

DROP FUNCTION IF EXISTS tprocc_payment;

DROP FUNCTION IF EXISTS tprocc_ostat;

DROP FUNCTION IF EXISTS tprocc_delivery;

DROP FUNCTION IF EXISTS tprocc_slev;

CREATE TABLE item (i_id integer NOT NULL, i_im_id integer NOT NULL, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, i_data varchar(50) NOT NULL);

CREATE TABLE warehouse (w_id integer NOT NULL, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL);

CREATE TABLE stock (s_i_id integer NOT NULL, s_w_id integer NOT NULL, s_quantity integer NOT NULL, s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, s_ytd bigint NOT NULL, s_order_cnt integer NOT NULL, s_remote_cnt integer NOT NULL, s_data varchar(50) NOT NULL);

CREATE TABLE district (d_id smallint NOT NULL, d_w_id integer NOT NULL, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL, d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id integer NOT NULL);

CREATE TABLE customer (c_id integer NOT NULL, c_d_id smallint NOT NULL, c_w_id integer NOT NULL, c_first varchar(16) NOT NULL, c_middle char(2) NOT NULL, c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, c_since timestamp NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt integer NOT NULL, c_delivery_cnt integer NOT NULL, c_data varchar(500) NOT NULL);

CREATE TABLE history (h_c_id integer NOT NULL, h_c_d_id smallint NOT NULL, h_c_w_id integer NOT NULL, h_d_id smallint NOT NULL, h_w_id integer NOT NULL, h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, h_data varchar(24) NOT NULL);

CREATE TABLE orders (o_id integer NOT NULL, o_d_id smallint NOT NULL, o_w_id integer NOT NULL, o_c_id integer NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id smallint, o_ol_cnt smallint NOT NULL, o_all_local smallint NOT NULL);

CREATE TABLE new_order (no_o_id integer NOT NULL, no_d_id smallint NOT NULL, no_w_id integer NOT NULL);

CREATE TABLE order_line (ol_o_id integer NOT NULL, ol_d_id smallint NOT NULL, ol_w_id integer NOT NULL, ol_number smallint NOT NULL, ol_i_id integer NOT NULL, ol_supply_w_id integer NOT NULL, ol_delivery_d timestamp, ol_quantity smallint NOT NULL, ol_amount numeric(6,2) NOT NULL, ol_dist_info char(24) NOT NULL);

CREATE OR REPLACE FUNCTION tprocc_neword(p_w integer, p_d integer, p_c integer, p_local integer, p_items text, p_supply text, p_quantity text) RETURNS integer LANGUAGE plpgsql AS $proveout$
DECLARE
  items integer[] := string_to_array(p_items, ',')::integer[];
  supply integer[] := string_to_array(p_supply, ',')::integer[];
  quantity integer[] := string_to_array(p_quantity, ',')::integer[];
  lines integer := cardinality(items);
  v_discount numeric; v_last varchar; v_credit varchar; v_w_tax numeric; v_d_tax numeric;
  v_o integer; v_price numeric; v_name varchar; v_data varchar; v_dist varchar;
BEGIN
  SELECT c_discount, c_last, c_credit, w_tax INTO v_discount, v_last, v_credit, v_w_tax FROM customer, warehouse
    WHERE w_id = p_w AND c_w_id = w_id AND c_d_id = p_d AND c_id = p_c;
  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w AND d_id = p_d
    RETURNING d_next_o_id - 1, d_tax INTO v_o, v_d_tax;
  INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    VALUES (v_o, p_d, p_w, p_c, CURRENT_TIMESTAMP, lines, p_local);
  INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (v_o, p_d, p_w);
  FOR i IN 1 .. lines LOOP
    SELECT i_price, i_name, i_data INTO v_price, v_name, v_data FROM item WHERE i_id = items[i];
    IF NOT FOUND THEN
      RAISE EXCEPTION 'item % does not exist', items[i] USING ERRCODE = 'TC001';
    END IF;
    UPDATE stock SET s_quantity = s_quantity - quantity[i] + CASE WHEN s_quantity - quantity[i] < 10 THEN 91 ELSE 0 END,
      s_ytd = s_ytd + quantity[i], s_order_cnt = s_order_cnt + 1,
      s_remote_cnt = s_remote_cnt + CASE WHEN supply[i] <> p_w THEN 1 ELSE 0 END
      WHERE s_w_id = supply[i] AND s_i_id = items[i]
      RETURNING CASE p_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END INTO v_dist;
    INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
      ol_dist_info) VALUES (v_o, p_d, p_w, i, items[i], supply[i], quantity[i], quantity[i] * v_price, v_dist);
  END LOOP;
  RETURN v_o;
END;
$proveout$;

CREATE OR REPLACE FUNCTION tprocc_payment(p_w integer, p_d integer, p_c_w integer, p_c_d integer, p_c integer, p_last text, p_amount numeric) RETURNS integer LANGUAGE plpgsql AS $proveout$
DECLARE
  v_c integer := p_c; v_w_name varchar; v_d_name varchar; v_credit varchar; v_balance numeric;
BEGIN
  UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w RETURNING w_name INTO v_w_name;
  UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w AND d_id = p_d RETURNING d_name INTO v_d_name;
  IF v_c = 0 THEN
    SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO v_c FROM customer
      WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_last = p_last;
  END IF;
  UPDATE customer SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
    c_payment_cnt = c_payment_cnt + 1,
    c_data = CASE WHEN c_credit = 'BC'
      THEN left(concat_ws(' ', v_c, p_c_d, p_c_w, p_d, p_w, p_amount) || '|' || c_data, 500) ELSE c_data END
    WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c RETURNING c_credit, c_balance INTO v_credit, v_balance;
  INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (v_c, p_c_d, p_c_w, p_d, p_w, CURRENT_TIMESTAMP, p_amount, v_w_name || '    ' || v_d_name);
  RETURN v_c;
END;
$proveout$;

CREATE OR REPLACE FUNCTION tprocc_ostat(p_w integer, p_d integer, p_c integer, p_last text) RETURNS integer LANGUAGE plpgsql AS $proveout$
DECLARE
  v_c integer := p_c; v_balance numeric; v_o integer; v_entered timestamp; v_carrier integer; line record;
  lines integer := 0;
BEGIN
  IF v_c = 0 THEN
    SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO v_c FROM customer
      WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_last;
  END IF;
  SELECT c_balance INTO v_balance FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
  SELECT o_id, o_entry_d, o_carrier_id INTO v_o, v_entered, v_carrier FROM orders
    WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC LIMIT 1;
  FOR line IN SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_o LOOP
    lines := lines + 1;
  END LOOP;
  RETURN lines;
END;
$proveout$;

CREATE OR REPLACE FUNCTION tprocc_delivery(p_w integer, p_carrier integer) RETURNS integer LANGUAGE plpgsql AS $proveout$
DECLARE
  v_o integer; v_c integer; v_total numeric; delivered integer := 0;
BEGIN
  FOR d IN 1 .. 10 LOOP
    SELECT min(no_o_id) INTO v_o FROM new_order WHERE no_w_id = p_w AND no_d_id = d;
    DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = d AND no_o_id = v_o;
    IF NOT FOUND THEN
      CONTINUE;
    END IF;
    UPDATE orders SET o_carrier_id = p_carrier WHERE o_w_id = p_w AND o_d_id = d AND o_id = v_o
      RETURNING o_c_id INTO v_c;
    UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE ol_w_id = p_w AND ol_d_id = d AND ol_o_id = v_o;
    SELECT sum(ol_amount) INTO v_total FROM order_line WHERE ol_w_id = p_w AND ol_d_id = d AND ol_o_id = v_o;
    UPDATE customer SET c_balance = c_balance + v_total, c_delivery_cnt = c_delivery_cnt + 1
      WHERE c_w_id = p_w AND c_d_id = d AND c_id = v_c;
    delivered := delivered + 1;
  END LOOP;
  RETURN delivered;
END;
$proveout$;

CREATE OR REPLACE FUNCTION tprocc_slev(p_w integer, p_d integer, p_threshold integer) RETURNS integer LANGUAGE plpgsql AS $proveout$
DECLARE
  v_next integer; v_low integer;
BEGIN
  SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
  SELECT count(DISTINCT s_i_id) INTO v_low FROM order_line, stock
    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
    AND s_w_id = p_w AND s_i_id = ol_i_id AND s_quantity < p_threshold;
  RETURN v_low;
END;
$proveout$;

ALTER TABLE item ADD CONSTRAINT item_i1 PRIMARY KEY (i_id);

ALTER TABLE warehouse ADD CONSTRAINT warehouse_i1 PRIMARY KEY (w_id);

ALTER TABLE stock ADD CONSTRAINT stock_i1 PRIMARY KEY (s_w_id, s_i_id);

ALTER TABLE district ADD CONSTRAINT district_i1 PRIMARY KEY (d_w_id, d_id);

ALTER TABLE customer ADD CONSTRAINT customer_i1 PRIMARY KEY (c_w_id, c_d_id, c_id);

ALTER TABLE orders ADD CONSTRAINT orders_i1 PRIMARY KEY (o_w_id, o_d_id, o_id);

ALTER TABLE new_order ADD CONSTRAINT new_order_i1 PRIMARY KEY (no_w_id, no_d_id, no_o_id);

ALTER TABLE order_line ADD CONSTRAINT order_line_i1 PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);

CREATE UNIQUE INDEX customer_i2 ON customer (c_w_id, c_d_id, c_last, c_first, c_id);

CREATE UNIQUE INDEX orders_i2 ON orders (o_w_id, o_d_id, o_c_id, o_id);

VACUUM (FREEZE, ANALYZE) item;

VACUUM (FREEZE, ANALYZE) warehouse;

VACUUM (FREEZE, ANALYZE) stock;

VACUUM (FREEZE, ANALYZE) district;

VACUUM (FREEZE, ANALYZE) customer;

VACUUM (FREEZE, ANALYZE) history;

VACUUM (FREEZE, ANALYZE) orders;

VACUUM (FREEZE, ANALYZE) new_order;

VACUUM (FREEZE, ANALYZE) order_line;

-- call_tprocc_neword
SELECT tprocc_neword($1, $2, $3, $4, $5, $6, $7);

-- call_tprocc_payment
SELECT tprocc_payment($1, $2, $3, $4, $5, $6, $7);

-- call_tprocc_ostat
SELECT tprocc_ostat($1, $2, $3, $4);

-- call_tprocc_delivery
SELECT tprocc_delivery($1, $2);

-- call_tprocc_slev
SELECT tprocc_slev($1, $2, $3);

-- consistency-1
SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(d.ytd * 100) THEN 1 END), COUNT(*) FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS ytd FROM district GROUP BY d_w_id) d ON d.d_w_id = w_id;

-- consistency-2
SELECT COUNT(CASE WHEN d_next_o_id - 1 = o.newest AND (n.newest IS NULL OR n.newest = o.newest) THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS newest FROM orders GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id;

-- consistency-3
SELECT COUNT(CASE WHEN n.waiting IS NULL OR n.newest - n.oldest + 1 = n.waiting THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest, MIN(no_o_id) AS oldest, COUNT(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id;

-- consistency-4
SELECT COUNT(CASE WHEN o.line_count = l.line_count THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS line_count FROM orders GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS line_count FROM order_line GROUP BY ol_w_id, ol_d_id) l ON l.ol_w_id = d_w_id AND l.ol_d_id = d_id;

-- consistency-5
SELECT COUNT(CASE WHEN (o_carrier_id IS NULL AND no_o_id IS NOT NULL) OR (o_carrier_id IS NOT NULL AND no_o_id IS NULL) THEN 1 END), COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id;

-- consistency-6
SELECT COUNT(CASE WHEN o_ol_cnt = l.line_count THEN 1 END), COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS line_count FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l ON l.ol_w_id = o_w_id AND l.ol_d_id = o_d_id AND l.ol_o_id = o_id;

-- consistency-7
SELECT COUNT(CASE WHEN o_id IS NOT NULL AND ((ol_delivery_d IS NULL AND o_carrier_id IS NULL) OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NOT NULL)) THEN 1 END), COUNT(*) FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id;

-- consistency-8
SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(h.paid * 100) THEN 1 END), COUNT(*) FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id) h ON h.h_w_id = w_id;

-- consistency-9
SELECT COUNT(CASE WHEN ROUND(d_ytd * 100) = ROUND(h.paid * 100) THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) h ON h.h_w_id = d_w_id AND h.h_d_id = d_id;

-- consistency-10
SELECT COUNT(CASE WHEN ROUND(c_balance * 100) = ROUND((COALESCE(l.delivered, 0) - COALESCE(h.paid, 0)) * 100) THEN 1 END), COUNT(*) FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) h ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id;

-- consistency-11
SELECT COUNT(CASE WHEN o.taken - COALESCE(n.waiting, 0) = 2100 + c.delivered THEN 1 END), COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS taken FROM orders GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id LEFT JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id LEFT JOIN (SELECT c_w_id, c_d_id, SUM(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) c ON c.c_w_id = d_w_id AND c.c_d_id = d_id;

-- consistency-12
SELECT COUNT(CASE WHEN ROUND((c_balance + c_ytd_payment) * 100) = ROUND(COALESCE(l.delivered, 0) * 100) THEN 1 END), COUNT(*) FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id;
