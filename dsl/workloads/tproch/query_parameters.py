"""The parameters of the queries: drawn by the substitution rules of TPC-H 2.4, seeded by stream.

`Parameters(seed, stream)` gives other arguments of a query at every call. They depend on the seed of the
workload, the stream and how often the query has run, and not on the iteration, the repeat or the system: all cells of
a matrix answer the same questions. `validation` has the parameters for which the specification has answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from proveout.dsl.workloads.random_streams import philox

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
        """One of the values."""
        return values[self.whole(0, len(values) - 1)]

    def several(self, values: Sequence[Any], count: int) -> list[Any]:
        """So many of the values, all different."""
        return [values[index] for index in self._random.permutation(len(values))[:count].tolist()]

    def year(self) -> date:
        """1 January of a year from 1993 to 1997."""
        return date(self.whole(1993, 1997), 1, 1)

    def month(self, first: date, count: int) -> date:
        """The first day of one of so many months from `first` on."""
        return months_later(first, self.whole(0, count - 1))

    def nation(self) -> str:
        """The name of a nation."""
        name: str = self.one(NATIONS)[0]
        return name

    def brand(self) -> str:
        """A brand."""
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
    """The arguments for which the specification has answers (the validation values of 2.4)."""
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
