+CREATE OR REPLACE FUNCTION tprocc_neword(p_w integer, p_d integer, p_c integer, p_local integer, p_items text, p_supply text, p_quantity text) RETURNS integer LANGUAGE plpgsql AS $proveout$
+DECLARE
+  items integer[] := string_to_array(p_items, ',')::integer[];
+  supply integer[] := string_to_array(p_supply, ',')::integer[];
+  quantity integer[] := string_to_array(p_quantity, ',')::integer[];
+  lines integer := cardinality(items);
+  v_discount numeric; v_last varchar; v_credit varchar; v_w_tax numeric; v_d_tax numeric;
+  v_o integer; v_price numeric; v_name varchar; v_data varchar; v_dist varchar;
+BEGIN
+  SELECT c_discount, c_last, c_credit, w_tax INTO v_discount, v_last, v_credit, v_w_tax FROM customer, warehouse
+    WHERE w_id = p_w AND c_w_id = w_id AND c_d_id = p_d AND c_id = p_c;
+  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w AND d_id = p_d
+    RETURNING d_next_o_id - 1, d_tax INTO v_o, v_d_tax;
+  INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
+    VALUES (v_o, p_d, p_w, p_c, CURRENT_TIMESTAMP, lines, p_local);
+  INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (v_o, p_d, p_w);
+  FOR i IN 1 .. lines LOOP
+    SELECT i_price, i_name, i_data INTO v_price, v_name, v_data FROM item WHERE i_id = items[i];
+    IF NOT FOUND THEN
+      RAISE EXCEPTION 'item % does not exist', items[i] USING ERRCODE = 'TC001';
+    END IF;
+    UPDATE stock SET s_quantity = s_quantity - quantity[i] + CASE WHEN s_quantity - quantity[i] < 10 THEN 91 ELSE 0 END,
+      s_ytd = s_ytd + quantity[i], s_order_cnt = s_order_cnt + 1,
+      s_remote_cnt = s_remote_cnt + CASE WHEN supply[i] <> p_w THEN 1 ELSE 0 END
+      WHERE s_w_id = supply[i] AND s_i_id = items[i]
+      RETURNING CASE p_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END INTO v_dist;
+    INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
+      ol_dist_info) VALUES (v_o, p_d, p_w, i, items[i], supply[i], quantity[i], quantity[i] * v_price, v_dist);
+  END LOOP;
+  RETURN v_o;
+END;
+$proveout$
+CREATE OR REPLACE FUNCTION tprocc_payment(p_w integer, p_d integer, p_c_w integer, p_c_d integer, p_c integer, p_last text, p_amount numeric) RETURNS integer LANGUAGE plpgsql AS $proveout$
+DECLARE
+  v_c integer := p_c; v_w_name varchar; v_d_name varchar; v_credit varchar; v_balance numeric;
+BEGIN
+  UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w RETURNING w_name INTO v_w_name;
+  UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w AND d_id = p_d RETURNING d_name INTO v_d_name;
+  IF v_c = 0 THEN
+    SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO v_c FROM customer
+      WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_last = p_last;
+  END IF;
+  UPDATE customer SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
+    c_payment_cnt = c_payment_cnt + 1,
+    c_data = CASE WHEN c_credit = 'BC'
+      THEN left(concat_ws(' ', v_c, p_c_d, p_c_w, p_d, p_w, p_amount) || '|' || c_data, 500) ELSE c_data END
+    WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c RETURNING c_credit, c_balance INTO v_credit, v_balance;
+  INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
+    VALUES (v_c, p_c_d, p_c_w, p_d, p_w, CURRENT_TIMESTAMP, p_amount, v_w_name || '    ' || v_d_name);
+  RETURN v_c;
+END;
+$proveout$
+CREATE OR REPLACE FUNCTION tprocc_ostat(p_w integer, p_d integer, p_c integer, p_last text) RETURNS integer LANGUAGE plpgsql AS $proveout$
+DECLARE
+  v_c integer := p_c; v_balance numeric; v_o integer; v_entered timestamp; v_carrier integer; line record;
+  lines integer := 0;
+BEGIN
+  IF v_c = 0 THEN
+    SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO v_c FROM customer
+      WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_last;
+  END IF;
+  SELECT c_balance INTO v_balance FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
+  SELECT o_id, o_entry_d, o_carrier_id INTO v_o, v_entered, v_carrier FROM orders
+    WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC LIMIT 1;
+  FOR line IN SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
+    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_o LOOP
+    lines := lines + 1;
+  END LOOP;
+  RETURN lines;
+END;
+$proveout$
+CREATE OR REPLACE FUNCTION tprocc_delivery(p_w integer, p_carrier integer) RETURNS integer LANGUAGE plpgsql AS $proveout$
+DECLARE
+  v_o integer; v_c integer; v_total numeric; delivered integer := 0;
+BEGIN
+  FOR d IN 1 .. 10 LOOP
+    SELECT min(no_o_id) INTO v_o FROM new_order WHERE no_w_id = p_w AND no_d_id = d;
+    DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = d AND no_o_id = v_o;
+    IF NOT FOUND THEN
+      CONTINUE;
+    END IF;
+    UPDATE orders SET o_carrier_id = p_carrier WHERE o_w_id = p_w AND o_d_id = d AND o_id = v_o
+      RETURNING o_c_id INTO v_c;
+    UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE ol_w_id = p_w AND ol_d_id = d AND ol_o_id = v_o;
+    SELECT sum(ol_amount) INTO v_total FROM order_line WHERE ol_w_id = p_w AND ol_d_id = d AND ol_o_id = v_o;
+    UPDATE customer SET c_balance = c_balance + v_total, c_delivery_cnt = c_delivery_cnt + 1
+      WHERE c_w_id = p_w AND c_d_id = d AND c_id = v_c;
+    delivered := delivered + 1;
+  END LOOP;
+  RETURN delivered;
+END;
+$proveout$
+CREATE OR REPLACE FUNCTION tprocc_slev(p_w integer, p_d integer, p_threshold integer) RETURNS integer LANGUAGE plpgsql AS $proveout$
+DECLARE
+  v_next integer; v_low integer;
+BEGIN
+  SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
+  SELECT count(DISTINCT s_i_id) INTO v_low FROM order_line, stock
+    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
+    AND s_w_id = p_w AND s_i_id = ol_i_id AND s_quantity < p_threshold;
+  RETURN v_low;
+END;
+$proveout$
-SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3
-SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE
-UPDATE district SET d_next_o_id = $1 WHERE d_w_id = $2 AND d_id = $3
-INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP, $5, $6)
-INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)
-SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1)
-SELECT i_id, CAST(i_price * 100 AS integer), i_name, i_data FROM item WHERE i_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
-SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3) FOR UPDATE
-SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10 END FROM stock WHERE s_w_id = $2 AND s_i_id IN ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) FOR UPDATE
-UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $3 WHERE s_w_id = $4 AND s_i_id = $5
-INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9), ($10, $11, $12, $13, $14, $15, $16, $17, $18), ($19, $20, $21, $22, $23, $24, $25, $26, $27), ($28, $29, $30, $31, $32, $33, $34, $35, $36), ($37, $38, $39, $40, $41, $42, $43, $44, $45)
-INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9), ($10, $11, $12, $13, $14, $15, $16, $17, $18), ($19, $20, $21, $22, $23, $24, $25, $26, $27), ($28, $29, $30, $31, $32, $33, $34, $35, $36), ($37, $38, $39, $40, $41, $42, $43, $44, $45), ($46, $47, $48, $49, $50, $51, $52, $53, $54), ($55, $56, $57, $58, $59, $60, $61, $62, $63), ($64, $65, $66, $67, $68, $69, $70, $71, $72), ($73, $74, $75, $76, $77, $78, $79, $80, $81), ($82, $83, $84, $85, $86, $87, $88, $89, $90), ($91, $92, $93, $94, $95, $96, $97, $98, $99), ($100, $101, $102, $103, $104, $105, $106, $107, $108), ($109, $110, $111, $112, $113, $114, $115, $116, $117), ($118, $119, $120, $121, $122, $123, $124, $125, $126), ($127, $128, $129, $130, $131, $132, $133, $134, $135)
-UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2
-SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = $1
-UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3
-SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = $1 AND d_id = $2
-SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first
-SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE
-SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
-UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2, c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5
-UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2, c_payment_cnt = c_payment_cnt + 1, c_data = $3 WHERE c_w_id = $4 AND c_d_id = $5 AND c_id = $6
-INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) VALUES ($1, $2, $3, $4, $5, CURRENT_TIMESTAMP, $6, $7)
-SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
-SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1
-SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
-SELECT MIN(no_o_id) FROM new_order WHERE no_w_id = $1 AND no_d_id = $2
-DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3
-SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3
-UPDATE orders SET o_carrier_id = $1 WHERE o_w_id = $2 AND o_d_id = $3 AND o_id = $4
-UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
-SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
-UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4
-SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2
-SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 AND s_w_id = $5 AND s_i_id = ol_i_id AND s_quantity < $6
+-- call_tprocc_neword
+SELECT tprocc_neword($1, $2, $3, $4, $5, $6, $7)
+-- call_tprocc_payment
+SELECT tprocc_payment($1, $2, $3, $4, $5, $6, $7)
+-- call_tprocc_ostat
+SELECT tprocc_ostat($1, $2, $3, $4)
+-- call_tprocc_delivery
+SELECT tprocc_delivery($1, $2)
+-- call_tprocc_slev
+SELECT tprocc_slev($1, $2, $3)
