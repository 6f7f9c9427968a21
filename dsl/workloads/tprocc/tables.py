"""The nine TPROC-C tables: columns, DDL and stored procedures per dialect, rows by arithmetic on Philox counters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.random_streams import Ints, Rows, rows_of_units, words
from proveout.dsl.workloads.tprocc import (
    CUSTOMERS,
    DISTRICTS,
    ITEMS,
    NEW_ORDERS,
    TABLES,
    UNITS_PER_WAREHOUSE,
    Tprocc,
    row_counts,
)

# Unlike HammerDB's they draw nothing at random: every input comes from the client, so a run can be repeated, and a call
# that is retried does the same again. An order's lines are three lists of numbers with commas. A customer is a number,
# or 0 and a last name. PL/SQL is not tried on an Oracle server here: its text is only kept as it is by a test.

# ruff: noqa: S608 - the texts are put together from our own constants


_DIST = " ".join(f"WHEN {number} THEN s_dist_{number:02}" for number in range(1, 11))


_IN_POSTGRES: Mapping[str, tuple[str, str, str]] = {
    "tprocc_neword": (
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
    "tprocc_payment": (
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
    "tprocc_ostat": (
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
    "tprocc_delivery": (
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
    "tprocc_slev": (
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

_IN_ORACLE: Mapping[str, tuple[str, str, str]] = {
    "tprocc_neword": (
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
    "tprocc_payment": (
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
    "tprocc_ostat": (
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
    "tprocc_delivery": (
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
    "tprocc_slev": (
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
POSTGRES_FUNCTIONS = {
    name: f"CREATE OR REPLACE FUNCTION {name}({arguments}) RETURNS integer LANGUAGE plpgsql AS $proveout$\n"
    f"DECLARE\n{declarations}BEGIN\n{body}END;\n$proveout$"
    for name, (arguments, declarations, body) in _IN_POSTGRES.items()
}
ORACLE_PROCEDURES = {
    name: f"CREATE OR REPLACE PROCEDURE {name}({arguments}) AS\n{declarations}BEGIN\n{body}END;"
    for name, (arguments, declarations, body) in _IN_ORACLE.items()
}
FUNCTIONS: tuple[str, ...] = tuple(POSTGRES_FUNCTIONS)


# Kinds of columns are those of a population (`base.Table`): integers, `char(n)`, `text(n)` (a varying length up to n),
# `numeric(p,s)` (whole numbers of 10^-s) and `timestamp`.

MONEY = "numeric(12,2)"
LINES_MIN, LINES_MAX = 5, 15


def _address(prefix: str) -> str:
    texts = "".join(f"{prefix}_{part} text(20), " for part in ("street_1", "street_2", "city"))
    return f"{texts}{prefix}_state char(2), {prefix}_zip char(9)"


_DISTRICT_INFO = ", ".join(f"s_dist_{number:02} char(24)" for number in range(1, DISTRICTS + 1))
SHAPES = (
    ddl.table("item", "i_id int4, i_im_id int4, i_name text(24), i_price numeric(5,2), i_data text(50)", "i_id"),
    ddl.table("warehouse", f"w_id int4, w_name text(10), {_address('w')}, w_tax numeric(4,4), w_ytd {MONEY}", "w_id"),
    ddl.table(
        "stock",
        f"s_i_id int4, s_w_id int4, s_quantity int4, {_DISTRICT_INFO}, s_ytd int8, s_order_cnt int4, "
        "s_remote_cnt int4, s_data text(50)",
        "s_w_id, s_i_id",
    ),
    ddl.table(
        "district",
        f"d_id int2, d_w_id int4, d_name text(10), {_address('d')}, d_tax numeric(4,4), d_ytd {MONEY}, "
        "d_next_o_id int4",
        "d_w_id, d_id",
    ),
    ddl.table(
        "customer",
        f"c_id int4, c_d_id int2, c_w_id int4, c_first text(16), c_middle char(2), c_last text(16), {_address('c')}, "
        f"c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim {MONEY}, c_discount numeric(4,4), "
        f"c_balance {MONEY}, c_ytd_payment {MONEY}, c_payment_cnt int4, c_delivery_cnt int4, c_data text(500)",
        "c_w_id, c_d_id, c_id",
        indexes=(("UNIQUE INDEX customer_i2", "c_w_id, c_d_id, c_last, c_first, c_id"),),
    ),
    # It has no key (1.3.1)
    ddl.table(
        "history",
        "h_c_id int4, h_c_d_id int2, h_c_w_id int4, h_d_id int2, h_w_id int4, h_date timestamp, "
        "h_amount numeric(6,2), h_data text(24)",
    ),
    ddl.table(
        "orders",
        "o_id int4, o_d_id int2, o_w_id int4, o_c_id int4, o_entry_d timestamp, o_carrier_id int2 null, o_ol_cnt int2, "
        "o_all_local int2",
        "o_w_id, o_d_id, o_id",
        indexes=(("UNIQUE INDEX orders_i2", "o_w_id, o_d_id, o_c_id, o_id"),),
    ),
    ddl.table("new_order", "no_o_id int4, no_d_id int2, no_w_id int4", "no_w_id, no_d_id, no_o_id"),
    ddl.table(
        "order_line",
        "ol_o_id int4, ol_d_id int2, ol_w_id int4, ol_number int2, ol_i_id int4, ol_supply_w_id int4, "
        "ol_delivery_d timestamp null, ol_quantity int2, ol_amount numeric(6,2), ol_dist_info char(24)",
        "ol_w_id, ol_d_id, ol_o_id, ol_number",
    ),
)
"""`null` are the columns without a value until an order is delivered."""


def before(parameters: Tprocc) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables and the procedures; a dialect without procedures is left out when they
    are asked for."""
    made = ddl.before(SHAPES)
    oracle = tuple(text.replace(" TIMESTAMP", " DATE") for text in made["oracle"])  # to the second, of seven bytes
    tables: Mapping[Dialect, tuple[str, ...]] = {**made, "oracle": oracle}
    if not parameters.procedures:
        return tables
    return {
        "postgres": (*tables["postgres"], *POSTGRES_FUNCTIONS.values()),
        "oracle": (*tables["oracle"], *ORACLE_PROCEDURES.values()),
    }


def drop(parameters: Tprocc) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that remove tables and procedures where they are; who runs Oracle's takes ORA-00942 for done."""
    tables = ddl.drop(TABLES)
    functions = (f"DROP FUNCTION IF EXISTS {name}" for name in FUNCTIONS)
    procedures = (  # unless there is none (ORA-04043)
        f"BEGIN EXECUTE IMMEDIATE 'DROP PROCEDURE {name}'; "
        "EXCEPTION WHEN OTHERS THEN IF SQLCODE != -4043 THEN RAISE; END IF; END;"
        for name in FUNCTIONS
        if parameters.procedures
    )
    return {
        **tables,
        "postgres": (*tables["postgres"], *functions),
        "oracle": (*tables["oracle"], *procedures),
    }


def expected(parameters: Tprocc) -> Mapping[str, int | tuple[int, int]]:
    """The rows of each table; of the order lines six standard deviations around 10 an order, variance 10."""
    counts = row_counts(parameters)
    lines = counts["order_line"]
    spread = 6.0 * lines**0.5
    return {**counts, "order_line": (int(lines - spread), int(lines + spread))}


Texts = npt.NDArray[np.bytes_]

DELIVERED = CUSTOMERS - NEW_ORDERS
LOADED_AT = np.datetime64("2021-07-01T00:00:00", "us")
LAST_NAMES = 1_000
# 2.1.6.1: the constants of the load and of the run differ by 65 to 119, but not by 96 or 112
C_LAST_LOAD, C_LAST_RUN = 157, 223
SYLLABLES = (b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING")
_LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# A random byte -> a letter; as 62 does not divide 256, the first eight come five times and not four
_ALPHABET = (_LETTERS * 5)[:256]
_DIGITS = (b"0123456789" * 26)[:256]


class Purpose(IntEnum):
    """The purposes of random streams."""

    ITEM = 101
    WAREHOUSE = 102
    STOCK = 103
    DISTRICT = 104
    CUSTOMER = 105
    HISTORY = 106
    ORDER = 107
    LINE = 108
    PERMUTATION = 109


class Source:
    """The random words of rows `low` … `low + count - 1` (from 0): so many numbers, then so many letters, for each
    row."""

    def __init__(self, seed: int, purpose: Purpose, low: int, count: int, *, numbers: int, letters: int = 0) -> None:
        number_words = -(-numbers // 2)
        raw = words(seed, purpose, low + 1, count, number_words + -(-letters // 8)).astype("<u8", copy=False)
        self._numbers = np.ascontiguousarray(raw[:, :number_words]).view("<u4")
        self._octets = np.ascontiguousarray(raw[:, number_words:]).view(np.uint8) if letters else raw.view(np.uint8)
        self._letters: npt.NDArray[np.uint8] | None = None
        self._number = self._letter = 0

    def only(self, rows: Ints) -> None:
        """From now on, only these rows."""
        self._numbers, self._octets = self._numbers.take(rows, axis=0), self._octets.take(rows, axis=0)

    def number(self, low: int, high: int) -> Ints:
        drawn = self._numbers[:, self._number].astype(np.uint64)
        self._number += 1
        return low + (drawn * np.uint64(high - low + 1) >> np.uint64(32)).astype(np.int64)

    def text(self, low: int, high: int) -> Texts:
        """Letters and digits, low … high of them (4.3.2.2)."""
        if self._letters is None:  # all at once
            self._letters = _translated(self._octets, _ALPHABET)
        out = self._next(self._letters, high)
        if low < high:
            out = out * (np.arange(high) < self.number(low, high)[:, None])
        return _joined(out)

    def digits(self, count: int) -> npt.NDArray[np.uint8]:
        """Shape (rows, count): digits as ASCII."""
        return _translated(self._next(self._octets, count), _DIGITS)

    def data(self) -> Texts:
        """26 … 50 letters, with ORIGINAL somewhere in a tenth of the rows (4.3.3.1)."""
        text = self.text(26, 50)
        out = text.view(np.uint8).reshape(len(text), 50)
        places, original = self.number(0, 18), np.flatnonzero(self.number(1, 10) == 1)
        for offset, letter in enumerate(b"ORIGINAL"):
            out[original, places[original] + offset] = letter
        return text

    def address(self) -> list[Texts]:
        """Two streets, city, state, zip."""
        streets = [self.text(10, 20) for _ in range(3)]
        zips = np.full((len(self._numbers), 9), ord("1"), dtype=np.uint8)
        zips[:, :4] = self.digits(4)
        return [*streets, self.text(2, 2), _joined(zips)]

    def _next(self, octets: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]:
        self._letter += count
        return octets[:, self._letter - count : self._letter]


def item(parameters: Tprocc, first: int, count: int) -> Rows:
    rows, source = _with_units(parameters, "item", first, count, numbers=6, letters=74)
    return [1 + rows, source.number(1, 10_000), source.text(14, 24), source.number(100, 10_000), source.data()]


def warehouse(parameters: Tprocc, first: int, count: int) -> Rows:
    """WAREHOUSE: tax 0 … 0.2, 300,000.00 paid so far."""
    rows, source = _with_units(parameters, "warehouse", first, count, numbers=6, letters=76)
    return [1 + rows, source.text(6, 10), *source.address(), source.number(0, 2_000), np.full(len(rows), 30_000_000)]


def stock(parameters: Tprocc, first: int, count: int) -> Rows:
    rows, source = _with_units(parameters, "stock", first, count, numbers=4, letters=24 * DISTRICTS + 50)
    zeros = np.zeros(len(rows), dtype=np.int64)
    quantity = source.number(10, 100)
    districts = [source.text(24, 24) for _ in range(DISTRICTS)]
    return [1 + rows % ITEMS, 1 + rows // ITEMS, quantity, *districts, zeros, zeros, zeros, source.data()]


def district(parameters: Tprocc, first: int, count: int) -> Rows:
    """DISTRICT: ten in each warehouse, 30,000.00 paid so far, the next order is 3001."""
    rows, source = _with_units(parameters, "district", first, count, numbers=6, letters=76)
    paid, following = np.full(len(rows), 3_000_000), np.full(len(rows), CUSTOMERS + 1)
    place = [1 + rows % DISTRICTS, 1 + rows // DISTRICTS]
    return [*place, source.text(6, 10), *source.address(), source.number(0, 2_000), paid, following]


def customer(parameters: Tprocc, first: int, count: int) -> Rows:
    """CUSTOMER: the first thousand of a district have each last name once, the others by NURand(255, 0, 999)."""
    source = Source(parameters.seed, Purpose.CUSTOMER, first - 1, count, numbers=10, letters=600)
    c_id, d_id, w_id = _places(first, count)
    drawn = nurand(source.number(0, 255), source.number(0, 999), C_LAST_LOAD, 0, 999)
    last = _last_names().take(np.where(c_id <= LAST_NAMES, c_id - 1, drawn))
    first_name = source.text(8, 16)
    address = source.address()
    phone = _joined(source.digits(16))
    credit = np.where(source.number(1, 10) == 1, np.array(b"BC"), np.array(b"GC"))
    discount = source.number(0, 5_000)
    middle, since = np.full(count, b"OE"), np.full(count, LOADED_AT)
    money = [np.full(count, cents) for cents in (5_000_000, -1_000, 1_000)]
    counts = [np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)]
    name = [first_name, middle, last]
    data = source.text(300, 500)
    return [c_id, d_id, w_id, *name, *address, phone, since, credit, money[0], discount, *money[1:], *counts, data]


def history(parameters: Tprocc, first: int, count: int) -> Rows:
    """HISTORY: one payment of 10.00 by each customer."""
    source = Source(parameters.seed, Purpose.HISTORY, first - 1, count, numbers=1, letters=24)
    c_id, d_id, w_id = _places(first, count)
    return [c_id, d_id, w_id, d_id, w_id, np.full(count, LOADED_AT), np.full(count, 1_000), source.text(12, 24)]


def orders(parameters: Tprocc, first: int, count: int) -> Rows:
    """ORDERS: one by each customer of a district in a random order; the last 900 of it have no carrier yet."""
    o_id, d_id, w_id = _places(first, count)
    lines, carriers = _order_draws(parameters, first, count)
    carrier = np.ma.masked_array(carriers, mask=o_id > DELIVERED)
    local = np.ones(count, dtype=np.int64)
    return [o_id, d_id, w_id, _customers(parameters, first, count), np.full(count, LOADED_AT), carrier, lines, local]


def new_order(_parameters: Tprocc, first: int, count: int) -> Rows:
    """NEW_ORDER: the orders that are not delivered."""
    o_id, d_id, w_id = _places(first, count)
    waiting = np.flatnonzero(o_id > DELIVERED)
    return [o_id[waiting], d_id[waiting], w_id[waiting]]


def order_line(parameters: Tprocc, first: int, count: int) -> Rows:
    """ORDER_LINE: 5 … 15 of each order; delivered ones cost nothing, the others 0.01 … 9,999.99."""
    lines, _ = _order_draws(parameters, first, count)
    slots = np.arange(LINES_MAX) < lines[:, None]
    kept = np.flatnonzero(slots)
    order, line = kept // LINES_MAX, kept % LINES_MAX
    source = Source(parameters.seed, Purpose.LINE, (first - 1) * LINES_MAX, count * LINES_MAX, numbers=2, letters=24)
    source.only(kept)
    o_id, d_id, w_id = (column[order] for column in _places(first, count))
    waiting = o_id > DELIVERED
    delivered = np.ma.masked_array(np.full(len(kept), LOADED_AT), mask=waiting)
    items, amount = source.number(1, ITEMS), np.where(waiting, source.number(1, 999_999), 0)
    return [o_id, d_id, w_id, 1 + line, items, w_id, delivered, np.full(len(kept), 5), amount, source.text(24, 24)]


ROWS = {
    one.__name__: one for one in (item, warehouse, stock, district, customer, history, orders, new_order, order_line)
}
"""The functions that make the rows, by table."""


def _with_units(parameters: Tprocc, table: str, first: int, count: int, **drawn: int) -> tuple[Ints, Source]:
    """The rows of a table, from 0, that go with units `first` … `first + count - 1`, and their random words."""
    units = parameters.warehouses * UNITS_PER_WAREHOUSE
    start, number = rows_of_units(row_counts(parameters)[table], units, first, count)
    rows = np.arange(start - 1, start - 1 + number)
    return rows, Source(parameters.seed, Purpose[table.upper()], start - 1, number, **drawn)


def nurand(hot: Ints, any_one: Ints, constant: int, low: int, high: int) -> Ints:
    """NURand(A, low, high) of 2.1.6, from draws of U(0, A) and U(low, high)."""
    return ((hot | any_one) + constant) % (high - low + 1) + low


def last_name(number: int) -> str:
    """The last name of 0 … 999 (4.3.2.3)."""
    return b"".join(SYLLABLES[int(digit)] for digit in f"{number:03d}").decode()


@cache
def _last_names() -> Texts:
    return np.array([last_name(number).encode() for number in range(LAST_NAMES)], dtype="S16")


def _places(first: int, count: int) -> tuple[Ints, Ints, Ints]:
    """Number within its district, district and warehouse of customers (or orders) `first` … (from 1)."""
    rows = np.arange(first - 1, first - 1 + count)
    return 1 + rows % CUSTOMERS, 1 + rows // CUSTOMERS % DISTRICTS, 1 + rows // UNITS_PER_WAREHOUSE


def _order_draws(parameters: Tprocc, first: int, count: int) -> tuple[Ints, Ints]:
    """Lines and carrier of each order."""
    source = Source(parameters.seed, Purpose.ORDER, first - 1, count, numbers=2)
    return source.number(LINES_MIN, LINES_MAX), source.number(1, 10)


def _customers(parameters: Tprocc, first: int, count: int) -> Ints:
    """The customer of each order: a random permutation of the district's customers."""
    low, high = (first - 1) // CUSTOMERS, (first - 2 + count) // CUSTOMERS
    drawn = words(parameters.seed, Purpose.PERMUTATION, low * CUSTOMERS + 1, (high - low + 1) * CUSTOMERS, 1)
    permuted = 1 + drawn.reshape(-1, CUSTOMERS).argsort(axis=1, kind="stable")
    start = first - 1 - low * CUSTOMERS
    return permuted.ravel()[start : start + count].astype(np.int64)


def _translated(octets: npt.NDArray[np.uint8], letters: bytes) -> npt.NDArray[np.uint8]:
    """Each octet as its letter; of the table's 256. Several times quicker than an index into an array."""
    return np.frombuffer(octets.tobytes().translate(letters), dtype=np.uint8).reshape(octets.shape)


def _joined(letters: npt.NDArray[np.uint8]) -> Texts:
    """Rows of ASCII letters, zeros at the end, as texts."""
    return np.ascontiguousarray(letters).view(f"S{letters.shape[1]}")[:, 0]
