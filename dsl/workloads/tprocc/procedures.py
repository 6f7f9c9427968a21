"""TPROC-C's transactions as stored procedures: PL/pgSQL functions and PL/SQL procedures, one for each transaction.

Unlike HammerDB's they draw nothing at random: every input comes from the client, so a run can be repeated, and a call
that is retried does the same again. An order's lines are three lists of numbers with commas. A customer is a number, or
0 and a last name. PL/SQL is not tried on an Oracle server here: its text is only kept as it is by a test.
"""

# ruff: noqa: S608 - the texts are put together from our own constants

from __future__ import annotations

from collections.abc import Mapping

_DIST = " ".join(f"WHEN {number} THEN s_dist_{number:02}" for number in range(1, 11))


def _postgres(name: str, arguments: str, declarations: str, body: str) -> str:
    return (
        f"CREATE OR REPLACE FUNCTION {name}({arguments}) RETURNS integer LANGUAGE plpgsql AS $proveout$\n"
        f"DECLARE\n{declarations}BEGIN\n{body}END;\n$proveout$"
    )


def _oracle(name: str, arguments: str, declarations: str, body: str) -> str:
    return f"CREATE OR REPLACE PROCEDURE {name}({arguments}) AS\n{declarations}BEGIN\n{body}END;"


POSTGRES_FUNCTIONS: Mapping[str, str] = {
    "tprocc_neword": _postgres(
        "tprocc_neword",
        "p_w integer, p_d integer, p_c integer, p_local integer, p_items text, p_supply text, p_quantity text",
        """\
  items integer[] := string_to_array(p_items, ',')::integer[];
  supply integer[] := string_to_array(p_supply, ',')::integer[];
  quantity integer[] := string_to_array(p_quantity, ',')::integer[];
  lines integer := cardinality(items);
  v_discount numeric; v_last varchar; v_credit varchar; v_w_tax numeric; v_d_tax numeric;
  v_o integer; v_price numeric; v_name varchar; v_data varchar; v_dist varchar;
""",
        f"""\
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
      RETURNING CASE p_d {_DIST} END INTO v_dist;
    INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
      ol_dist_info) VALUES (v_o, p_d, p_w, i, items[i], supply[i], quantity[i], quantity[i] * v_price, v_dist);
  END LOOP;
  RETURN v_o;
""",
    ),
    "tprocc_payment": _postgres(
        "tprocc_payment",
        "p_w integer, p_d integer, p_c_w integer, p_c_d integer, p_c integer, p_last text, p_amount numeric",
        """\
  v_c integer := p_c; v_w_name varchar; v_d_name varchar; v_credit varchar; v_balance numeric;
""",
        """\
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
""",
    ),
    "tprocc_ostat": _postgres(
        "tprocc_ostat",
        "p_w integer, p_d integer, p_c integer, p_last text",
        """\
  v_c integer := p_c; v_balance numeric; v_o integer; v_entered timestamp; v_carrier integer; line record;
  lines integer := 0;
""",
        """\
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
""",
    ),
    "tprocc_delivery": _postgres(
        "tprocc_delivery",
        "p_w integer, p_carrier integer",
        """\
  v_o integer; v_c integer; v_total numeric; delivered integer := 0;
""",
        """\
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
""",
    ),
    "tprocc_slev": _postgres(
        "tprocc_slev",
        "p_w integer, p_d integer, p_threshold integer",
        """\
  v_next integer; v_low integer;
""",
        """\
  SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
  SELECT count(DISTINCT s_i_id) INTO v_low FROM order_line, stock
    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
    AND s_w_id = p_w AND s_i_id = ol_i_id AND s_quantity < p_threshold;
  RETURN v_low;
""",
    ),
}

_BY_NAME = """\
  IF v_c = 0 THEN
    SELECT c_id INTO v_c FROM (SELECT c_id, ROW_NUMBER() OVER (ORDER BY c_first) place, COUNT(*) OVER () namesakes
      FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = p_last)
      WHERE place = TRUNC((namesakes + 1) / 2);
  END IF;
"""

ORACLE_PROCEDURES: Mapping[str, str] = {
    "tprocc_neword": _oracle(
        "tprocc_neword",
        "p_w NUMBER, p_d NUMBER, p_c NUMBER, p_local NUMBER, p_items VARCHAR2, p_supply VARCHAR2, p_quantity VARCHAR2",
        """\
  lines PLS_INTEGER := REGEXP_COUNT(p_items, ',') + 1;
  v_discount NUMBER; v_last VARCHAR2(16); v_credit CHAR(2); v_w_tax NUMBER; v_d_tax NUMBER;
  v_o NUMBER; v_item NUMBER; v_supply NUMBER; v_quantity NUMBER; v_price NUMBER; v_name VARCHAR2(24); \
v_data VARCHAR2(50);
  v_dist CHAR(24);
""",
        f"""\
  SELECT c_discount, c_last, c_credit, w_tax INTO v_discount, v_last, v_credit, v_w_tax FROM customer, warehouse
    WHERE w_id = p_w AND c_w_id = w_id AND c_d_id = p_d AND c_id = p_c;
  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w AND d_id = p_d
    RETURNING d_next_o_id - 1, d_tax INTO v_o, v_d_tax;
  INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    VALUES (v_o, p_d, p_w, p_c, SYSDATE, lines, p_local);
  INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (v_o, p_d, p_w);
  FOR i IN 1 .. lines LOOP
    v_item := TO_NUMBER(REGEXP_SUBSTR(p_items, '[0-9]+', 1, i));
    v_supply := TO_NUMBER(REGEXP_SUBSTR(p_supply, '[0-9]+', 1, i));
    v_quantity := TO_NUMBER(REGEXP_SUBSTR(p_quantity, '[0-9]+', 1, i));
    BEGIN
      SELECT i_price, i_name, i_data INTO v_price, v_name, v_data FROM item WHERE i_id = v_item;
    EXCEPTION WHEN NO_DATA_FOUND THEN
      ROLLBACK;
      RAISE_APPLICATION_ERROR(-20001, 'item ' || v_item || ' does not exist');
    END;
    UPDATE stock SET s_quantity = s_quantity - v_quantity + CASE WHEN s_quantity - v_quantity < 10 THEN 91 ELSE 0 END,
      s_ytd = s_ytd + v_quantity, s_order_cnt = s_order_cnt + 1,
      s_remote_cnt = s_remote_cnt + CASE WHEN v_supply <> p_w THEN 1 ELSE 0 END
      WHERE s_w_id = v_supply AND s_i_id = v_item
      RETURNING CASE p_d {_DIST} END INTO v_dist;
    INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
      ol_dist_info) VALUES (v_o, p_d, p_w, i, v_item, v_supply, v_quantity, v_quantity * v_price, v_dist);
  END LOOP;
  COMMIT;
""",
    ),
    "tprocc_payment": _oracle(
        "tprocc_payment",
        "p_w NUMBER, p_d NUMBER, p_c_w NUMBER, p_c_d NUMBER, p_c NUMBER, p_last VARCHAR2, p_amount VARCHAR2",
        """\
  v_c NUMBER := p_c; v_amount NUMBER := TO_NUMBER(p_amount, '9999D99', 'NLS_NUMERIC_CHARACTERS=''.,''');
  v_w_name VARCHAR2(10); v_d_name VARCHAR2(10); v_credit CHAR(2); v_balance NUMBER;
""",
        """\
  UPDATE warehouse SET w_ytd = w_ytd + v_amount WHERE w_id = p_w RETURNING w_name INTO v_w_name;
  UPDATE district SET d_ytd = d_ytd + v_amount WHERE d_w_id = p_w AND d_id = p_d RETURNING d_name INTO v_d_name;
"""
        + _BY_NAME.format(w="p_c_w", d="p_c_d")
        + """\
  UPDATE customer SET c_balance = c_balance - v_amount, c_ytd_payment = c_ytd_payment + v_amount,
    c_payment_cnt = c_payment_cnt + 1,
    c_data = CASE WHEN c_credit = 'BC' THEN SUBSTR(v_c || ' ' || p_c_d || ' ' || p_c_w || ' ' || p_d || ' ' || p_w
      || ' ' || p_amount || '|' || c_data, 1, 500) ELSE c_data END
    WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c RETURNING c_credit, c_balance INTO v_credit, v_balance;
  INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (v_c, p_c_d, p_c_w, p_d, p_w, SYSDATE, v_amount, v_w_name || '    ' || v_d_name);
  COMMIT;
""",
    ),
    "tprocc_ostat": _oracle(
        "tprocc_ostat",
        "p_w NUMBER, p_d NUMBER, p_c NUMBER, p_last VARCHAR2",
        """\
  v_c NUMBER := p_c; v_balance NUMBER; v_o NUMBER; v_entered DATE; v_carrier NUMBER; lines NUMBER := 0;
""",
        _BY_NAME.format(w="p_w", d="p_d")
        + """\
  SELECT c_balance INTO v_balance FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
  SELECT o_id, o_entry_d, o_carrier_id INTO v_o, v_entered, v_carrier FROM (SELECT o_id, o_entry_d, o_carrier_id
    FROM orders WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC) WHERE ROWNUM = 1;
  FOR line IN (SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_o) LOOP
    lines := lines + 1;
  END LOOP;
""",
    ),
    "tprocc_delivery": _oracle(
        "tprocc_delivery",
        "p_w NUMBER, p_carrier NUMBER",
        """\
  v_o NUMBER; v_c NUMBER; v_total NUMBER;
""",
        """\
  FOR d IN 1 .. 10 LOOP
    SELECT MIN(no_o_id) INTO v_o FROM new_order WHERE no_w_id = p_w AND no_d_id = d;
    DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = d AND no_o_id = v_o;
    IF SQL%ROWCOUNT = 0 THEN
      CONTINUE;
    END IF;
    UPDATE orders SET o_carrier_id = p_carrier WHERE o_w_id = p_w AND o_d_id = d AND o_id = v_o
      RETURNING o_c_id INTO v_c;
    UPDATE order_line SET ol_delivery_d = SYSDATE WHERE ol_w_id = p_w AND ol_d_id = d AND ol_o_id = v_o;
    SELECT SUM(ol_amount) INTO v_total FROM order_line WHERE ol_w_id = p_w AND ol_d_id = d AND ol_o_id = v_o;
    UPDATE customer SET c_balance = c_balance + v_total, c_delivery_cnt = c_delivery_cnt + 1
      WHERE c_w_id = p_w AND c_d_id = d AND c_id = v_c;
  END LOOP;
  COMMIT;
""",
    ),
    "tprocc_slev": _oracle(
        "tprocc_slev",
        "p_w NUMBER, p_d NUMBER, p_threshold NUMBER",
        """\
  v_next NUMBER; v_low NUMBER;
""",
        """\
  SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
  SELECT COUNT(DISTINCT s_i_id) INTO v_low FROM order_line, stock
    WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
    AND s_w_id = p_w AND s_i_id = ol_i_id AND s_quantity < p_threshold;
""",
    ),
}
FUNCTIONS: tuple[str, ...] = tuple(POSTGRES_FUNCTIONS)
