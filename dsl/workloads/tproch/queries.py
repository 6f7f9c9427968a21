"""The 22 queries of TPROC-H: a template for each with a text per dialect, and the rules that draw their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.random_streams import philox
from proveout.dsl.workloads.tproch import query_name

# A template is written once. The differences of the dialects are data: `DAY($1)` (a date from its text),
# `YEAR(column)`, `FRACTION($1)` and `MONEY($1)` (decimals from their texts) and `FIRST n ROWS` (at the end of a query)
# are written out by `_DIALECTS`, as `REVENUE()` is, the price of a line after its discount; `_INSTEAD` has the texts
# that a dialect needs of its own. Ends of date ranges are arguments (`queries`): the dialects do not share the
# arithmetic of dates. Query 15 has its view as a common table expression (variant A of the specification).

TEMPLATES: Mapping[int, str] = {
    1: """
SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price,
 SUM(REVENUE()) AS sum_disc_price, SUM(REVENUE() * (1 + l_tax)) AS sum_charge, AVG(l_quantity) AS avg_qty,
 AVG(l_extendedprice) AS avg_price, AVG(l_discount) AS avg_disc, COUNT(*) AS count_order
FROM lineitem WHERE l_shipdate <= DAY($1)
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
""",
    2: """
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part, supplier, partsupp, nation, region
WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = $1 AND p_type LIKE $2
 AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $3
 AND ps_supplycost = (SELECT MIN(ps_supplycost) FROM partsupp, supplier, nation, region
  WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
  AND n_regionkey = r_regionkey AND r_name = $3)
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey FIRST 100 ROWS
""",
    3: """
SELECT l_orderkey, SUM(REVENUE()) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = $1 AND c_custkey = o_custkey AND l_orderkey = o_orderkey
 AND o_orderdate < DAY($2) AND l_shipdate > DAY($2)
GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate FIRST 10 ROWS
""",
    4: """
SELECT o_orderpriority, COUNT(*) AS order_count FROM orders
WHERE o_orderdate >= DAY($1) AND o_orderdate < DAY($2)
 AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority
""",
    5: """
SELECT n_name, SUM(REVENUE()) AS revenue FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
 AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = $1
 AND o_orderdate >= DAY($2) AND o_orderdate < DAY($3)
GROUP BY n_name ORDER BY revenue DESC
""",
    6: """
SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem
WHERE l_shipdate >= DAY($1) AND l_shipdate < DAY($2)
 AND l_discount BETWEEN FRACTION($3) AND FRACTION($4) AND l_quantity < $5
""",
    7: """
SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue FROM (
 SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, YEAR(l_shipdate) AS l_year, REVENUE() AS volume
 FROM supplier, lineitem, orders, customer, nation n1, nation n2
 WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
  AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
  AND ((n1.n_name = $1 AND n2.n_name = $2) OR (n1.n_name = $2 AND n2.n_name = $1))
  AND l_shipdate BETWEEN DAY('1995-01-01') AND DAY('1996-12-31')) shipping
GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year
""",
    8: """
SELECT o_year, SUM(CASE WHEN nation = $1 THEN volume ELSE 0 END) / SUM(volume) AS mkt_share FROM (
 SELECT YEAR(o_orderdate) AS o_year, REVENUE() AS volume, n2.n_name AS nation
 FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
 WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
  AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = $2
  AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN DAY('1995-01-01') AND DAY('1996-12-31')
  AND p_type = $3) all_nations
GROUP BY o_year ORDER BY o_year
""",
    9: """
SELECT nation, o_year, SUM(amount) AS sum_profit FROM (
 SELECT n_name AS nation, YEAR(o_orderdate) AS o_year, REVENUE() - ps_supplycost * l_quantity AS amount
 FROM part, supplier, lineitem, partsupp, orders, nation
 WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
  AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE $1) profit
GROUP BY nation, o_year ORDER BY nation, o_year DESC
""",
    10: """
SELECT c_custkey, c_name, SUM(REVENUE()) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DAY($1) AND o_orderdate < DAY($2)
 AND l_returnflag = 'R' AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
ORDER BY revenue DESC FIRST 20 ROWS
""",
    11: """
SELECT ps_partkey, SUM(ps_supplycost * ps_availqty) AS stock_value FROM partsupp, supplier, nation
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = $1
GROUP BY ps_partkey HAVING SUM(ps_supplycost * ps_availqty) > (
 SELECT SUM(ps_supplycost * ps_availqty) * FRACTION($2) FROM partsupp, supplier, nation
 WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = $1)
ORDER BY stock_value DESC
""",
    12: """
SELECT l_shipmode,
 SUM(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
 SUM(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ($1, $2) AND l_commitdate < l_receiptdate
 AND l_shipdate < l_commitdate AND l_receiptdate >= DAY($3) AND l_receiptdate < DAY($4)
GROUP BY l_shipmode ORDER BY l_shipmode
""",
    13: """
SELECT c_count, COUNT(*) AS custdist FROM (
 SELECT c_custkey, COUNT(o_orderkey) AS c_count
 FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE $1
 GROUP BY c_custkey) c_orders
GROUP BY c_count ORDER BY custdist DESC, c_count DESC
""",
    14: """
SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN REVENUE() ELSE 0 END) / SUM(REVENUE()) AS promo_revenue
FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= DAY($1) AND l_shipdate < DAY($2)
""",
    15: """
WITH revenue AS (
 SELECT l_suppkey AS supplier_no, SUM(REVENUE()) AS total_revenue FROM lineitem
 WHERE l_shipdate >= DAY($1) AND l_shipdate < DAY($2) GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier, revenue
WHERE s_suppkey = supplier_no AND total_revenue = (SELECT MAX(total_revenue) FROM revenue)
ORDER BY s_suppkey
""",
    16: """
SELECT p_brand, p_type, p_size, COUNT(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part
WHERE p_partkey = ps_partkey AND p_brand <> $1 AND p_type NOT LIKE $2
 AND p_size IN ($3, $4, $5, $6, $7, $8, $9, $10)
 AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
""",
    17: """
SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part
WHERE p_partkey = l_partkey AND p_brand = $1 AND p_container = $2
 AND l_quantity < (SELECT 0.2 * AVG(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
""",
    18: """
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, SUM(l_quantity) AS quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING SUM(l_quantity) > $1)
 AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate FIRST 100 ROWS
""",
    19: """
SELECT SUM(REVENUE()) AS revenue FROM lineitem, part
WHERE (p_partkey = l_partkey AND p_brand = $1 AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
  AND l_quantity >= $4 AND l_quantity <= $5 AND p_size BETWEEN 1 AND 5
  AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
 OR (p_partkey = l_partkey AND p_brand = $2 AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
  AND l_quantity >= $6 AND l_quantity <= $7 AND p_size BETWEEN 1 AND 10
  AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
 OR (p_partkey = l_partkey AND p_brand = $3 AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
  AND l_quantity >= $8 AND l_quantity <= $9 AND p_size BETWEEN 1 AND 15
  AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
""",
    20: """
SELECT s_name, s_address FROM supplier, nation
WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp
  WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE $1)
  AND ps_availqty > (SELECT 0.5 * SUM(l_quantity) FROM lineitem
   WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DAY($2) AND l_shipdate < DAY($3)))
 AND s_nationkey = n_nationkey AND n_name = $4
ORDER BY s_name
""",
    21: """
SELECT s_name, COUNT(*) AS numwait FROM supplier, lineitem l1, orders, nation
WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
 AND l1.l_receiptdate > l1.l_commitdate
 AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
 AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
  AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
 AND s_nationkey = n_nationkey AND n_name = $1
GROUP BY s_name ORDER BY numwait DESC, s_name FIRST 100 ROWS
""",
    22: """
SELECT cntrycode, COUNT(*) AS numcust, SUM(c_acctbal) AS totacctbal FROM (
 SELECT SUBSTR(c_phone, 1, 2) AS cntrycode, c_acctbal FROM customer
 WHERE SUBSTR(c_phone, 1, 2) IN ($1, $2, $3, $4, $5, $6, $7)
  AND c_acctbal > (SELECT AVG(c_acctbal) FROM customer
   WHERE c_acctbal > 0.00 AND SUBSTR(c_phone, 1, 2) IN ($1, $2, $3, $4, $5, $6, $7))
  AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) custsale
GROUP BY cntrycode ORDER BY cntrycode
""",
}

_INSTEAD: Mapping[tuple[int, Dialect], str] = {
    # SQLite does not take a join condition that all branches of an OR share out of it, and would join every line with
    # every part.
    (19, "sqlite"): re.sub(
        r"\(p_partkey = l_partkey AND ", "(", TEMPLATES[19].replace("WHERE (", "WHERE p_partkey = l_partkey AND ((", 1)
    ).rstrip()
    + ")",
}

_COMMON = {
    r"REVENUE\(\)": "l_extendedprice * (1 - l_discount)",
    r"DAY\(([^)]*)\)": r"CAST(\1 AS date)",
    r"FRACTION\(([^)]*)\)": r"CAST(\1 AS decimal(15,10))",
    r"MONEY\(([^)]*)\)": r"CAST(\1 AS decimal(15,2))",
    r"YEAR\(([^)]*)\)": r"EXTRACT(YEAR FROM \1)",
    r"FIRST (\d+) ROWS": r"LIMIT \1",
}
_DIALECTS: Mapping[Dialect, Mapping[str, str]] = {
    "postgres": _COMMON,
    "duckdb": _COMMON,
    "mysql": _COMMON,
    "sqlite": _COMMON
    | {
        r"DAY\(([^)]*)\)": r"\1",  # dates are text there, which sorts as they do
        r"YEAR\(([^)]*)\)": r"CAST(SUBSTR(\1, 1, 4) AS integer)",
    },
    "oracle": {name: text for name, text in _COMMON.items() if "decimal" not in text}
    | {
        r"DAY\(([^)]*)\)": r"TO_DATE(\1, 'YYYY-MM-DD')",
        r"(?:FRACTION|MONEY)\(([^)]*)\)": r"TO_NUMBER(\1, '9999999999990D9999999999', 'NLS_NUMERIC_CHARACTERS=''.,''')",
        r"FIRST (\d+) ROWS": r"FETCH FIRST \1 ROWS ONLY",
    },
}


def in_dialect(text: str, dialect: Dialect) -> str:
    """A template's text in a dialect, on one line."""
    line = " ".join(text.split())
    for pattern, written in _DIALECTS[dialect].items():
        line = re.sub(pattern, written, line)
    return line


# `Parameters(seed, stream)` gives other arguments of a query at every call. They depend on the seed of the
# workload, the stream and how often the query has run, and not on the iteration, the repeat or the system: all cells of
# a matrix answer the same questions. `validation` has the parameters for which the specification has answers.

PURPOSE = 40_000
"""Keys apart from those of populations and of the other workloads."""

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS: tuple[tuple[str, int], ...] = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4),
    ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3),
    ("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
"""(name, number of its region), by nation key (4.2.3)."""
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
SHIP_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
TYPES = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
CONTAINERS = (("SM", "LG", "MED", "JUMBO", "WRAP"), ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"))
COLORS = (
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue", "blush", "brown",
    "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral", "cornflower", "cornsilk", "cream",
    "cyan", "dark", "deep", "dim", "dodger", "drab", "firebrick", "floral", "forest", "frosted", "gainsboro",
    "ghost", "goldenrod", "green", "grey", "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender",
    "lawn", "lemon", "light", "lime", "linen", "magenta", "maroon", "medium", "metallic", "midnight", "mint",
    "misty", "moccasin", "navajo", "navy", "olive", "orange", "orchid", "pale", "papaya", "peach", "peru", "pink",
    "plum", "powder", "puff", "purple", "red", "rose", "rosy", "royal", "saddle", "salmon", "sandy", "seashell",
    "sienna", "sky", "slate", "smoke", "snow", "spring", "steel", "tan", "thistle", "tomato", "turquoise", "violet",
    "wheat", "white", "yellow",
)  # fmt: skip
WORDS = (("special", "pending", "unusual", "express"), ("packages", "requests", "accounts", "deposits"))

Arguments = tuple[Any, ...]


def months_later(day: date, months: int) -> date:
    """The same day of the month so many months later; `day` is one that every month has."""
    whole = day.year * 12 + day.month - 1 + months
    return day.replace(year=whole // 12, month=whole % 12 + 1)


def span(first: date, months: int) -> tuple[str, str]:
    """The first day, and the day after the last, of so many months."""
    return first.isoformat(), months_later(first, months).isoformat()


def fraction_of(scale: float) -> str:
    """The fraction of query 11: 0.0001 at scale factor 1."""
    return f"{0.0001 / scale:.10f}"


class Parameters:
    """The draws of one stream: `arguments(number)` gives the next arguments of a query."""

    def __init__(self, seed: int, stream: int, scale: float) -> None:
        self._random = {number: np.random.Generator(philox(seed, PURPOSE + number, stream)) for number in _DRAWS}
        self._scale = scale

    def arguments(self, number: int) -> Arguments:
        """The arguments of a query, in the order of its statement."""
        return _DRAWS[number](Draw(self._random[number], self._scale))


class Draw:
    """Draws from one query's stream."""

    def __init__(self, random: np.random.Generator, scale: float) -> None:
        self._random, self.scale = random, scale

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return int(self._random.integers(low, high + 1))

    def one(self, values: Sequence[Any]) -> Any:
        return values[self.whole(0, len(values) - 1)]

    def many(self, values: Sequence[Any], count: int) -> list[Any]:
        return [values[index] for index in self._random.integers(0, len(values), count).tolist()]

    def several(self, values: Sequence[Any], count: int) -> list[Any]:
        """So many of the values, all different."""
        return [values[index] for index in self._random.permutation(len(values))[:count].tolist()]

    def year(self) -> date:
        return date(self.whole(1993, 1997), 1, 1)

    def month(self, first: date, count: int) -> date:
        """The first day of one of so many months from `first` on."""
        return months_later(first, self.whole(0, count - 1))

    def nation(self) -> str:
        """The name of a nation."""
        name: str = self.one(NATIONS)[0]
        return name

    def brand(self) -> str:
        return f"Brand#{self.whole(1, 5)}{self.whole(1, 5)}"

    def syllables(self, lists: Sequence[Sequence[str]]) -> str:
        """A text with one word of each list."""
        return " ".join(self.one(words) for words in lists)


def _q6(draw: Draw) -> Arguments:
    hundredths, year = draw.whole(2, 9), draw.year()
    return (*span(year, 12), f"{(hundredths - 1) / 100:.2f}", f"{(hundredths + 1) / 100:.2f}", draw.whole(24, 25))


def _q8(draw: Draw) -> Arguments:
    name, region = draw.one(NATIONS)
    return name, REGIONS[region], draw.syllables(TYPES)


def _q19(draw: Draw) -> Arguments:
    low = (draw.whole(1, 10), draw.whole(10, 20), draw.whole(20, 30))
    return (*(draw.brand() for _ in low), *(value for one in low for value in (one, one + 10)))


_DRAWS: Mapping[int, Callable[[Draw], Arguments]] = {
    1: lambda draw: ((date(1998, 12, 1) - timedelta(days=draw.whole(60, 120))).isoformat(),),
    2: lambda draw: (draw.whole(1, 50), f"%{draw.one(TYPES[2])}", draw.one(REGIONS)),
    3: lambda draw: (draw.one(SEGMENTS), date(1995, 3, draw.whole(1, 31)).isoformat()),
    4: lambda draw: span(draw.month(date(1993, 1, 1), 58), 3),
    5: lambda draw: (draw.one(REGIONS), *span(draw.year(), 12)),
    6: _q6,
    7: lambda draw: tuple(name for name, _ in draw.several(NATIONS, 2)),
    8: _q8,
    9: lambda draw: (f"%{draw.one(COLORS)}%",),
    10: lambda draw: span(draw.month(date(1993, 2, 1), 24), 3),
    11: lambda draw: (draw.nation(), fraction_of(draw.scale)),
    12: lambda draw: (*draw.several(SHIP_MODES, 2), *span(draw.year(), 12)),
    13: lambda draw: ("%" + "%".join(draw.one(words) for words in WORDS) + "%",),
    14: lambda draw: span(draw.month(date(1993, 1, 1), 60), 1),
    15: lambda draw: span(draw.month(date(1993, 1, 1), 58), 3),
    16: lambda draw: (draw.brand(), f"{draw.syllables(TYPES[:2])}%", *draw.several(range(1, 51), 8)),
    17: lambda draw: (draw.brand(), draw.syllables(CONTAINERS)),
    18: lambda draw: (draw.whole(312, 315),),
    19: _q19,
    20: lambda draw: (f"{draw.one(COLORS)}%", *span(draw.year(), 12), draw.nation()),
    21: lambda draw: (draw.nation(),),
    22: lambda draw: tuple(str(10 + key) for key in draw.several(range(len(NATIONS)), 7)),
}


def validation(scale: float) -> Mapping[int, Arguments]:
    """The arguments for which the specification has answers (the validation values of 2.4); others have their types."""
    return {
        1: ("1998-09-02",),
        2: (15, "%BRASS", "EUROPE"),
        3: ("BUILDING", "1995-03-15"),
        4: span(date(1993, 7, 1), 3),
        5: ("ASIA", *span(date(1994, 1, 1), 12)),
        6: (*span(date(1994, 1, 1), 12), "0.05", "0.07", 24),
        7: ("FRANCE", "GERMANY"),
        8: ("BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"),
        9: ("%green%",),
        10: span(date(1993, 10, 1), 3),
        11: ("GERMANY", fraction_of(scale)),
        12: ("MAIL", "SHIP", *span(date(1994, 1, 1), 12)),
        13: ("%special%requests%",),
        14: span(date(1995, 9, 1), 1),
        15: span(date(1996, 1, 1), 3),
        16: ("Brand#45", "MEDIUM POLISHED%", 49, 14, 23, 45, 19, 3, 36, 9),
        17: ("Brand#23", "MED BOX"),
        18: (300,),
        19: ("Brand#12", "Brand#23", "Brand#34", 1, 11, 10, 20, 20, 30),
        20: ("forest%", *span(date(1994, 1, 1), 12), "CANADA"),
        21: ("SAUDI ARABIA",),
        22: ("13", "31", "23", "29", "30", "18", "17"),
    }


def _statement(number: int, arguments: Arguments) -> Statement:
    return Statement(
        name=query_name(number).lower(),
        text={dialect: in_dialect(_INSTEAD.get((number, dialect), TEMPLATES[number]), dialect) for dialect in DIALECTS},
        arguments=tuple(map(type, arguments)),
    )


STATEMENTS: Mapping[int, Statement] = {number: _statement(number, given) for number, given in validation(1.0).items()}
"""The statements of the queries, by number."""
