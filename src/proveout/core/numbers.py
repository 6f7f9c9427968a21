"""Format numbers, times, rates, sizes and intervals for people, and make text from outside harmless. Pure.

Every surface uses these functions: terminal, TUI, HTML, Markdown, JUnit, log, evidence of verdicts and findings.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import dataclass

CONFIRMATIONS_MIN = 9
"""Of a journal without lower ends: the full-length iterations that make the accepted rate one."""
LOWER_MIN = 5
"""`confirm.times` of a search below which its answer has no lower end."""
CONFIDENCE = 0.90
"""The level of the interval: each end is wrong in at most 5 % of searches."""
SEARCH = "search"
"""The method of the estimate."""
RATIO = "ratio"
"""The name of a number that is a ratio of two of one metric."""
RATIOS = frozenset((RATIO, *(f"{of}_ratio" for of in ("tps", "avg", "p50", "p95", "p99", "solve"))))
"""`ratio(a, b)`, and those of loads beside each other."""


Sought: TypeAlias = Literal["rate", "threads"]
"""The quantity that a search looks for."""
SOUGHT: Mapping[Sought, str] = {"rate": "rate", "threads": "number of threads"}


def confirmed(
    rate: float, upper: float | None, confirmations: int, over: Sought = "rate", *, lower: float | None = None
) -> dict[str, Any]:
    """The answer as an estimate: `mean` and `median` are the confirmed rate, `n` the number of the full-length
    iterations that accepted it or a higher one.

    Without a `lower` end (of a journal of an older release it is the rate, where `CONFIRMATIONS_MIN` iterations
    accepted it) or an `upper`, `reason` says why the end is not there.
    """
    result: dict[str, Any] = {"mean": rate, "median": rate, "n": confirmations, "values": []}
    result |= {"method": SEARCH, "confidence": CONFIDENCE}
    if upper is not None:
        result["upper"] = upper
    else:
        result["reason"] = f"no {SOUGHT[over]} above it was shown to be too high"
    if lower is not None or confirmations >= CONFIRMATIONS_MIN:
        return result | {"lower": rate if lower is None else lower}
    result["reason"] = f"a lower end of the {SOUGHT[over]} takes `confirm: {{times: {LOWER_MIN}}}` or more"
    return result


def ends(estimate: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of an estimate, infinite at an end that is not there; None without an interval."""
    if "lower" not in estimate and "upper" not in estimate:
        return None
    return float(estimate.get("lower", -math.inf)), float(estimate.get("upper", math.inf))


# - A number with an interval is rounded to the second significant digit of the interval's half-width: 12,344 ± 123 is
#   printed as 12,340 ± 120. It keeps at least 2 significant digits of its own, whatever the interval. The rule is that
#   of the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008, 7.2.6).
# - A number without an interval has at most 4 significant digits (times and percentages: 3). A whole number without
#   unit is a count and has all its digits, and so has a limit that a plan sets.
# - Numbers that are compared with each other are printed by one `Notation`: one unit, and digits enough to tell
#   different numbers apart and to keep their order. 999.7 beside a limit of 1,000 is never printed as 1,000. Numbers
#   that differ by less than the rounding of sums of floats (1e-14) are the same number.
# - A number that is missing or not finite is printed as `-`.
#
# Rounding works on exact decimals: no digit of a printed number comes from binary arithmetic.

Estimate: TypeAlias = Mapping[str, Any]


def centre(estimate: Estimate) -> Literal["mean", "median"]:
    """The key of the number that an estimate's interval is of: of an extreme the median."""
    return "median" if estimate.get("of") == "median" else "mean"


def is_estimate(value: object) -> bool:
    """Whether a value of a tree is an estimate; a group is none, also where a member of it is named `mean`."""
    return isinstance(value, Mapping) and isinstance(value.get("mean"), int | float)


_EXACT = Context(prec=2000, rounding=ROUND_HALF_UP)
_SIGNIFICANT = {digits: Context(prec=digits, rounding=ROUND_HALF_UP) for digits in (2, 3, 4)}
_SAME = 1e-14
_COUNT_MAX = 2.0**53
"""From it on doubles are whole, also where the number is not."""
_EXACT_DIGITS = Context(prec=12, rounding=ROUND_HALF_UP)
_INTERVAL_LEAST = 1e-9
"""An interval narrower than this fraction of its number is rounding error of floats, not a spread."""


# ---- units -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit: a number of it is the value / `factor`, with `digits` significant digits when nothing asks for more.

    `padded` keeps zeros at the end (1.50 ms); `decimals` is the most decimals without an interval.
    """

    suffix: str = ""
    factor: Decimal = Decimal(1)
    digits: int = 4
    padded: bool = False
    decimals: int = 400

    def exponent(self, value: float, digits: int) -> int:
        """The decimal exponent of the value's first digit, after rounding to `digits` significant digits."""
        return _SIGNIFICANT[digits].plus(self.scaled(value)).adjusted()

    def scaled(self, value: float) -> Decimal:
        """The value in this unit."""
        return _EXACT.divide(Decimal(value), self.factor)

    def rounded(self, value: float, place: int) -> Decimal:
        """The value in this unit, rounded to a multiple of 10^place."""
        return self.scaled(value).quantize(Decimal(1).scaleb(place), context=_EXACT)


_MICROSECONDS = (
    _Unit(" s", Decimal(10) ** 6, 3, padded=True),
    _Unit(" ms", Decimal(1000), 3, padded=True),
    _Unit(" µs", Decimal(1), 3, padded=True, decimals=2),
)
_SECONDS = (
    _Unit(" s", digits=3),
    _Unit(" ms", Decimal("1e-3"), 3, padded=True),
    _Unit(" µs", Decimal("1e-6"), 3, padded=True, decimals=2),
)
_PERCENT = (_Unit(" %", Decimal("0.01"), 3),)
_SIZES = tuple(
    _Unit(suffix, Decimal(2) ** power, 3)
    for power, suffix in ((40, " TiB"), (30, " GiB"), (20, " MiB"), (10, " KiB"), (0, " B"))
)
_ENDINGS = (
    ("_bytes_per_s", " B/s"),
    ("_mb_per_s", " MB/s"),
    ("_per_s", "/s"),
    ("_bytes", " B"),
    ("_ms", " ms"),
    ("_slope", " s/s"),
)


def _units(name: str) -> tuple[_Unit, ...]:
    """The units for a metric by the ending of its name (`avg_us`, `busy_fraction`, `max_bytes`, …), largest first."""
    if name.endswith("_us"):
        return _MICROSECONDS
    if name in ("fraction", "change") or name.endswith("_fraction"):
        return _PERCENT
    whole = f"_{name}".removesuffix("_lower").removesuffix("_upper")  # an exporter's counter has a bare `per_s`
    for ending, suffix in _ENDINGS:
        if whole.endswith(ending):
            return (_Unit(suffix),)
    if whole.endswith("_s"):
        return _SECONDS
    return (_Unit("/s" if name in ("tps", "rate") else " ×" if name in RATIOS else ""),)


def _common(values: Iterable[float], units: Sequence[_Unit]) -> _Unit:
    """The unit in which the largest value is at least 1, or a smaller one where the smallest would be below 0.001."""
    sizes = [abs(value) for value in values if value != 0.0]
    if not sizes:
        return units[0] if units is _SECONDS else units[-1]
    fitting = (at for at, unit in enumerate(units) if unit.exponent(max(sizes), unit.digits) >= 0)
    at = next(fitting, len(units) - 1)
    while at < len(units) - 1 and units[at].exponent(min(sizes), 2) < -3:
        at += 1
    return units[at]


# ---- numbers that are read together ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notation:
    """The printed form of numbers that are compared: one unit, each rounded to a multiple of 10^place.

    Made by `notation`. A number that it was not made for has the digits it would have alone.
    """

    unit: _Unit
    places: Mapping[float, int]
    padded: frozenset[float]

    def text(self, value: float | None, half: float | None = None) -> str:
        """A number with its unit; `half` is half the width of its interval."""
        if value is None or not math.isfinite(value):
            return "-"
        place = self.places.get(value, _place(value, half, self.unit))
        figure = self.unit.rounded(value, place)
        padded = self.unit.padded or _counts(value, half) or (value != 0.0 and value in self.padded)
        return f"{_figure(figure, padded=padded)}{self.unit.suffix}"

    def bounds(self, lower: float | None, upper: float | None) -> str:
        """The ends of an interval: `1,200/s … 1,270/s`, `1,200/s or more`, `below 1,270/s`; `-` without any."""
        if lower is None or upper is None:
            low = "" if lower is None else f"{self.text(lower)} or more"
            return low or ("-" if upper is None else f"below {self.text(upper)}")
        half = (upper - lower) / 2.0
        return f"{self.text(lower, half)} … {self.text(upper, half)}"

    def interval(self, estimate: Estimate) -> str:
        """An estimate in words: `1,234/s (95 % CI 1,200/s … 1,270/s, n = 3)`, or `(no interval, n = 1)`, or `(no
        interval from 2 repeats that differ so much)`."""
        of, repeats = centre(estimate), round(float(estimate.get("n", 0)))
        middle = self.text(estimate.get(of), half_width(estimate))
        lower, upper = estimate.get("lower"), estimate.get("upper")
        count = f"n = {repeats}" + _occurrences(estimate, repeats)
        if estimate.get("method") == SEARCH:
            count = "confirmed once" if repeats == 1 else f"confirmed {repeats} times"
        if lower is None and upper is None:
            why = estimate.get("reason") if estimate.get("method") == "no information" else None  # a ratio has none
            return f"{middle} ({why or f'no interval, {count}'})"
        rivals = round(float(estimate.get("chosen_from", 1)))
        chosen = f", wider as {rivals} rungs could be it" if rivals > 1 else ""
        shown = f"median {middle}" if of == "median" else middle
        return f"{shown} ({level(estimate)} CI {self.bounds(lower, upper)}, {count}{chosen})"


def _occurrences(estimate: Estimate, repeats: int) -> str:
    """The occurrences of a fault behind an estimate, or the blocks of loads in turns: of one repeat they are its
    unit."""
    occurrences = estimate.get("occurrences", repeats)
    if "unit" in estimate:
        return f" {estimate['unit']} of one repeat"
    return f", {occurrences} occurrences" if occurrences != repeats else ""


def each_repeat(name: str, found: Estimate) -> str:
    """The numbers of the repeats of an estimate: `1, 2, 3`, in the unit of the estimate.

    No repeat has the digits of the interval, not even one that equals the mean, which is printed as 2.0.
    """
    values = [float(value) for value in found["values"]]
    unit = notation(name, found, *values).unit
    places = {value: _place(value, None, unit) for value in values if math.isfinite(value)}
    _separate(places, unit)
    return ", ".join(map(Notation(unit, places, frozenset()).text, values))


def notation(name: str, *items: _Item, exact: Iterable[float] = ()) -> Notation:
    """The notation of numbers of one metric that are compared: numbers, alone or with half the width of their interval,
    and estimates with their bounds.

    Any two different numbers are printed differently, and in their order. `name` is the metric, its ending gives the
    unit. `exact`: further numbers, such as limits, of which all digits are printed.
    """
    halves: dict[float, float | None] = {}
    for item in (*items, *exact):
        for value, half in _members(item):
            if math.isfinite(value) and halves.get(value) is None:
                halves[value] = half
    unit = _common(halves, _units(name))
    places = {value: _place(value, half, unit) for value, half in halves.items()}
    places |= {value: min(places[value], _last_place(value, unit)) for value in exact if value in places}
    _separate(places, unit)
    padded = frozenset(value for value, half in halves.items() if _counts(value, half))
    return Notation(unit, places, padded)


_Item: TypeAlias = float | tuple[float | None, float | None] | Estimate | None


def _members(item: _Item) -> Iterable[tuple[float, float | None]]:
    if isinstance(item, Mapping):
        half = half_width(item)
        return [(float(item[key]), half) for key in (centre(item), "lower", "upper") if item.get(key) is not None]
    value, half = item if isinstance(item, tuple) else (item, None)
    return [] if value is None else [(float(value), half)]


def _separate(places: dict[float, int], unit: _Unit) -> None:
    """Refine places until all numbers are printed in their order, different ones differently.

    Of two neighbours that are not, the coarser takes the place of the finer; where both have the same, both get one
    digit more. It ends at the latest where all digits of both are shown.
    """
    ordered, again = sorted(places), True
    while again:
        again = False
        for low, high in pairwise(ordered):
            if high - low <= _SAME * max(abs(low), abs(high)):
                finer = min(places[low], places[high])
                again |= places[low] != places[high]
                places[low] = places[high] = finer
                continue
            while not unit.rounded(low, places[low]) < unit.rounded(high, places[high]):
                finer = min(places[low], places[high]) - (places[low] == places[high])
                places[low], places[high], again = finer, finer, True


def _place(value: float, half: float | None, unit: _Unit) -> int:
    """The decimal place that a number is rounded to, as a power of ten."""
    if half is not None and _counts(value, half):
        second = unit.exponent(half, 2) - 1
        return second if value == 0.0 else min(second, unit.exponent(value, 2) - 1)
    if value == 0.0:
        return -2 if unit.padded else 0
    if not unit.suffix and not unit.padded and abs(value) < _COUNT_MAX and float(value).is_integer():
        return 0
    digits = unit.digits if unit.scaled(abs(value)) >= Decimal("1e-4") else 3
    return max(unit.exponent(value, digits) - digits + 1, -unit.decimals)


def _last_place(value: float, unit: _Unit) -> int:
    """The decimal place of the last digit that a number was written with."""
    if value == 0.0:
        return 0
    return int(_EXACT_DIGITS.divide(Decimal(repr(float(value))), unit.factor).normalize().as_tuple().exponent)


def _counts(value: float, half: float | None) -> bool:
    return half is not None and math.isfinite(half) and half > abs(value) * _INTERVAL_LEAST


def _figure(figure: Decimal, *, padded: bool) -> str:
    """A rounded number as text: 12,340; 0.0123; 1.5e-07."""
    if not figure:
        return "0" if not padded else f"{abs(figure):f}"
    if not 1e-4 <= abs(figure) < Decimal(10) ** 21:
        mantissa, _, power = f"{float(figure):.{len(figure.as_tuple().digits) - 1}e}".partition("e")
        return f"{mantissa if padded or '.' not in mantissa else mantissa.rstrip('0').rstrip('.')}e{power}"
    text = f"{figure:,f}"
    return text if padded or "." not in text else text.rstrip("0").rstrip(".")


def half_width(estimate: Estimate) -> float | None:
    """Half the width of an estimate's interval; None when it has none."""
    lower, upper = estimate.get("lower"), estimate.get("upper")
    return None if lower is None or upper is None else (float(upper) - float(lower)) / 2.0


def together(name: str, *values: float | None) -> tuple[str, ...]:
    """Numbers of one metric that are read together, such as a value and its limit: in one unit, distinct."""
    same = notation(name, *values)
    return tuple(map(same.text, values))


def column(name: str, values: Sequence[float | None], halves: Sequence[float | None] = ()) -> list[str]:
    """The cells of a column: one unit for all, each rounded by its own interval, where it has one."""
    unit = _common((value for value in values if value is not None and math.isfinite(value)), _units(name))
    alone = Notation(unit, {}, frozenset())
    return [alone.text(value, half) for value, half in zip(values, halves or [None] * len(values), strict=True)]


def axis_unit(name: str, values: Iterable[float]) -> tuple[float, str]:
    """(factor, unit) of an axis with these numbers of a metric: a number / factor is a number of the unit.

    Bytes are in powers of 1000; a fraction stays one, its unit is `%`.

    >>> axis_unit("avg_us", [1500.0]), axis_unit("total_bytes", [2.5e9]), axis_unit("tps", [3.0])
    ((1000.0, 'ms'), (1000000000.0, 'GB'), (1.0, '1/s'))
    """
    known = [value for value in values if math.isfinite(value)]
    units = _units(name)
    if units is _PERCENT:
        return 1.0, "%"
    unit = _common(known, units)
    if unit.suffix in (" B", " B/s"):
        most = max(map(abs, known), default=0.0)
        factor, prefix = next((found for found in _DECIMAL if most >= found[0]), (1.0, ""))
        return factor, f"{prefix}{unit.suffix.strip()}"
    return float(unit.factor), "1/s" if unit.suffix == "/s" else unit.suffix.strip()


_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


# ---- one number --------------------------------------------------------------------------------------------------


def quantity(value: float | None, name: str, half: float | None = None) -> str:
    """A number with the unit that its metric's name ends in (`avg_us`, `busy_fraction`, `max_bytes`, `drain_s` …).

    `half`: half the width of its interval, where it has one.
    """
    return column(name, [value], [half])[0]


def number(value: float | None, half: float | None = None) -> str:
    """A number without unit: 12,340; 0.0123; 1.235; `-` when there is none."""
    return quantity(value, "", half)


def whole(value: float) -> str:
    """A number in all of its whole digits; one that is nearer to 0 than to 1 as it is.

    >>> whole(12345.6), whole(0.4)
    ('12,346', '0.4')
    """
    return number(round(value) or value)


def figures(value: float | None, half: float | None = None) -> str:
    """A number without unit for a column of figures: 3 digits, zeros at the end too, or the digits of its interval."""
    return Notation(_Unit(digits=3, padded=True), {}, frozenset()).text(value, half)


def microseconds(value: float | None) -> str:
    """A latency, given in µs, in µs, ms or s, with 3 digits."""
    return quantity(value, "_us")


def lower_bound(value: float | None) -> str:
    """A response time in µs of which only a lower bound is known: `≥ 4.99 s`, rounded down; `-` without one."""
    return f"≥ {microseconds(rounded_down(value))}" if value else "-"


def rounded_down(value: float) -> float:
    """A number above 0 cut to the 3 digits that are shown of it, so that a lower bound stays one.

    >>> rounded_down(4.996), rounded_down(0.3), rounded_down(9.0)
    (4.99, 0.3, 9.0)
    """
    if value <= 0.0:
        return value
    digits = 2 - math.floor(math.log10(value))
    return round(math.floor(value * 10.0**digits * (1.0 + _SAME)) / 10.0**digits, max(digits, 0))


def percent(fraction: float | None, half: float | None = None) -> str:
    """A fraction as 12.3 %."""
    return quantity(fraction, "fraction", half)


def seconds(value: float | None) -> str:
    """A duration: 41.0 µs, 0.42 s, 12 s, 2 min 05 s, 1 h 02 min."""
    if value is None or not math.isfinite(value):
        return "-"
    if 0.0 < value < 1e-4:
        return quantity(value, "_s")
    if value < 10:
        return f"{value:.2g} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock(duration_s: float) -> str:
    """Elapsed time to the second: 1:05, 1:02:05."""
    whole = max(int(duration_s), 0)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"


def size(value: float | None) -> str:
    """Bytes with 3 digits in the unit that fits: 47.7 MiB."""
    if value is None or not math.isfinite(value):
        return "-"
    return Notation(_common([value], _SIZES), {}, frozenset()).text(value)


def interval(estimate: Estimate, name: str = "") -> str:
    """An estimate in words: `1,234/s (95 % CI 1,200/s … 1,270/s, n = 3)`, or `(no interval, n = 1)`."""
    return notation(name, estimate).interval(estimate)


def with_interval(estimate: Estimate, name: str = "") -> tuple[str, str]:
    """An estimate as two cells of a table, its mean and the ends of its interval: `1,234`, `1,200 … 1,270`."""
    same = notation(name, estimate)
    ends = same.bounds(estimate.get("lower"), estimate.get("upper"))
    return same.text(estimate.get("mean"), half_width(estimate)), ends


def factor_cells(factor: Estimate) -> tuple[str, str]:
    """A ratio as two cells of a table, itself and the ends of its interval: `1.3 ×`, `1.2 … 1.4`; `-` without one."""
    mean, ends = with_interval(factor)
    return (f"{mean} ×" if "mean" in factor else "-"), ends


def bounds(lower: float | None, upper: float | None, name: str = "") -> str:
    """The ends of an interval: `1,200 … 1,270`; `-` when both are missing."""
    ends: Estimate = {"lower": lower, "upper": upper}
    return notation(name, ends).bounds(lower, upper)


def one_digit(count: int, *, up: bool) -> int:
    """A number of one digit and zeros: the next one above (`up`) or below.

    >>> one_digit(318, up=True), one_digit(318, up=False), one_digit(7, up=True)
    (400, 300, 7)
    """
    power: int = 10 ** (len(str(count)) - 1)
    return (-(-count // power) if up else count // power) * power


def level(estimate: Estimate) -> str:
    """The confidence of an estimate's interval: 95 %, or 99.4 % where repeats are bought until a verdict is decided;
    never rounded up to 100 %.

    That of one end alone is higher, since either end may be the wrong one.
    """
    confidence = float(estimate.get("confidence", 0.95))
    one_end = (estimate.get("lower") is None) != (estimate.get("upper") is None)
    confidence = (1.0 + confidence) / 2.0 if one_end else confidence
    if not 0.999 < confidence < 1.0:
        return percent(confidence)
    return f"{100.0 * confidence:.{math.ceil(round(-math.log10(100.0 - 100.0 * confidence), 6))}f} %"


def rung_name(kind: str, count: int) -> str:
    """A rung of a stage of this kind: `4 threads`, of a tool `I/O depth 4`."""
    return f"I/O depth {count}" if kind == "tool" else threads(count)


def rate_unit(kind: str) -> str:
    """The throughput unit of a stage of this kind: TPS, of a tool IOPS."""
    return "IOPS" if kind == "tool" else "TPS"


def iteration_numbers(metrics: Mapping[str, Any], unit: str) -> str:
    """The numbers of an iteration in a line: `7,200 TPS, avg 1.10 ms, p50 0.9 ms, p99 3.2 ms`."""
    response = metrics.get("response", {})
    times = ", ".join(f"{name} {microseconds(response.get(f'{name}_us'))}" for name in ("avg", "p50", "p99"))
    return f"{number(metrics.get('tps'))} {unit}, {times}"


def sought(value: float, over: Sought) -> str:
    """A level of a search: 9,000/s, or 64 threads."""
    return f"{number(value)}/s" if over == "rate" else threads(round(value))


def search_answer(found: Mapping[str, Any], outcome: str, over: Sought = "rate") -> str:
    """The answer of a search by its estimate (`confirmed`): `9,000/s (90 % CI 9,000/s … 9,400/s, confirmed 9 times)`,
    `no rate`, `undecided`; the rate alone where the confirmations were not recorded (0)."""
    if not found:
        return "undecided" if outcome == "undecided" else f"no {SOUGHT[over]}"
    if not found["n"]:
        return sought(found["mean"], over)
    mean, space, evidence = interval(found, over).partition(" ")
    return f"{mean if over == 'rate' else threads(round(found['mean']))}{space}{evidence}"


def count_of(count: int, noun: str) -> str:
    """1 stage, 4 stages."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def threads(count: int) -> str:
    """1 thread, 4 threads."""
    return count_of(count, "thread")


def threads_by_rung(counts: Sequence[int]) -> str:
    """The threads at each rung: `2, 4 threads`, `1 thread`; `1 thread at every rung` where several have the same.

    >>> threads_by_rung([1, 2]), threads_by_rung([1]), threads_by_rung([1, 1])
    ('1, 2 threads', '1 thread', '1 thread at every rung')
    """
    if len(set(counts)) == 1:
        return threads(counts[0]) + (" at every rung" if len(counts) > 1 else "")
    return f"{', '.join(map(str, counts))} threads"


def counted(repeats: int, excluded: int) -> str:
    """The number of repeats of an estimate: `3`, `2 (1 invalid)`."""
    return f"{repeats} ({excluded} invalid)" if excluded else f"{repeats}"


_ENDS = re.compile(r"CI (.+?)(?:, (?!\d)|$)")
_FIGURE = re.compile(r"^[-+≥ ]*[\d.,]+(?:e[-+]?\d+)?")

_NOTHING = re.compile(r"(?<![\d.])0\.0+(?!\d)")


def ranged(value: str, interval: str) -> str:
    """A printed number with its printed interval, the unit once.

    >>> ranged("2.28 ms", "95 % CI 2.10 ms … 2.48 ms, n = 5"), ranged("3/s", "")
    ('2.28 ms (2.10 to 2.48)', '3/s')
    """
    ends = _ENDS.search(interval)
    if ends is None or ends[1].startswith(f"{value} or"):
        return value
    unit = _FIGURE.sub("", value)
    shown = (ends[1].replace(unit, "") if unit else ends[1]).replace(" … ", " to ")
    return f"{value} ({_NOTHING.sub('0', shown)})"


def pieces(evidence: str) -> list[str]:
    """Split evidence at its semicolons, except those inside parentheses."""
    found, depth = [""], 0
    for part in re.split(r"([()]|; )", evidence):
        depth += (part == "(") - (part == ")")
        if part == "; " and depth <= 0:
            found.append("")
        else:
            found[-1] += part
    return found


def without_notes(evidence: str) -> tuple[str, ...]:
    """The pieces of evidence but the notes on its iterations, which a summary has once for all verdicts."""
    return tuple(piece for piece in pieces(evidence) if not piece.startswith("note: "))


PIECES_MAX = 2


def first_pieces(evidence: str) -> str:
    """Evidence of at most `PIECES_MAX` pieces, and the number of the others.

    >>> first_pieces("a 80 % of 10; b 70 % of 10; c 60 % of 10")
    'a 80 % of 10; b 70 % of 10 and 1 more'
    """
    first, others = pieces(evidence)[:PIECES_MAX], pieces(evidence)[PIECES_MAX:]
    return "; ".join(first) + (f" and {len(others)} more" if others else "")


def safe(text: str) -> str:
    """Text from outside (host names, a database's messages) as one line that cannot act on a terminal.

    Control characters (ANSI escapes, newlines) and bidirectional overrides become escapes such as `\\x1b`; the rest
    stays as it is.
    """
    return "".join(character if _is_harmless(character) else _escaped(character) for character in text)


def safe_lines(text: str) -> str:
    """As `safe`, but newlines stay."""
    return "\n".join(map(safe, text.split("\n")))


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\t": " ", "\r": "\\r"}.get(character, character.encode("unicode_escape", "replace").decode())
