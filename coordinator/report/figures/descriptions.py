"""Sentences about the numbers of a figure: alternative text that says what is seen, intervals of a caption. Pure.

Data flow: points in the order of an axis -> `course` ("rises from 100/s at 1 thread to 450/s at 8, then falls to
400/s at 16"); places without an order -> `ends` ("highest 12 ms at A, lowest 3 ms at B"); estimates -> `intervals`
("95 % confidence intervals over 3 repeats").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proveout.core.numbers import half_width, level, notation, safe

SERIES_MAX = 4
"""Series that a text describes; it counts the others."""
LETTERS_MAX = 900
FLAT = 0.02
"""A smaller change, as a fraction of the largest value, counts as none."""


def course(what: str, metric: str, points: Sequence[tuple[str, float]]) -> str:
    """Describe the course of a number along an axis: `points` are (place, value), `metric` gives the unit.

    >>> course("TPS", "tps", [("1 thread", 100.0), ("8", 450.0), ("16", 400.0)])
    'TPS rises from 100/s at 1 thread to 450/s at 8, then falls to 400/s at 16.'
    """
    known = [(safe(place), value) for place, value in points if value is not None]
    if not known:
        return f"{what}: no number."
    words = notation(metric, *(value for _, value in known))
    first, last = known[0], known[-1]
    if len(known) == 1:
        return f"{what} is {words.text(first[1])} at {first[0]}."
    legs = _legs([value for _, value in known])
    if not legs:
        return f"{what} stays near {words.text(first[1])} from {first[0]} to {last[0]}."
    text = f"{what} {legs[0][1]} from {words.text(first[1])} at {first[0]}"
    parts = [f"{'' if at == 0 else f'{verb} '}to {words.text(known[to][1])} at {known[to][0]}"
             for at, (to, verb) in enumerate(legs[:3])]  # fmt: skip
    text = f"{text} {', then '.join(parts)}"
    if len(legs) > 3:
        return f"{text}, and goes on up and down to {words.text(last[1])} at {last[0]}."
    return f"{text}."


def _legs(values: Sequence[float]) -> list[tuple[int, str]]:
    """(index of its end, verb) of each rise and fall; changes below `FLAT` of the largest value do not count."""
    least = FLAT * max(map(abs, values)) or 0.0
    legs: list[tuple[int, str]] = []
    turn = values[0]
    for index, value in enumerate(values[1:], 1):
        if abs(value - turn) < least or value == turn:
            continue
        verb = "rises" if value > turn else "falls"
        if legs and legs[-1][1] == verb:
            legs[-1] = (index, verb)
        else:
            legs.append((index, verb))
        turn = value
    return legs


def ends(what: str, metric: str, points: Sequence[tuple[str, float]]) -> str:
    """The highest and the lowest of places without an order.

    >>> ends("mean response", "avg_us", [("A", 3000.0), ("B", 12000.0)])
    'mean response: highest 12.0 ms at B, lowest 3.00 ms at A.'
    """
    known = [(safe(place), value) for place, value in points if value is not None]
    if not known:
        return f"{what}: no number."
    words = notation(metric, *(value for _, value in known))
    if len(known) == 1:
        return f"{what}: {words.text(known[0][1])} at {known[0][0]}."
    high, low = max(known, key=lambda one: one[1]), min(known, key=lambda one: one[1])
    return f"{what}: highest {words.text(high[1])} at {high[0]}, lowest {words.text(low[1])} at {low[0]}."


def joined(sentences: Iterable[str]) -> str:
    """The first sentences and how many more there are, below `LETTERS_MAX` letters."""
    every = list(sentences)
    kept = every[:SERIES_MAX]
    while len(kept) > 1 and sum(map(len, kept)) > LETTERS_MAX:
        kept.pop()
    more = len(every) - len(kept)
    return " ".join([*kept, *([f"{more} more in the table."] if more else [])])[: 2 * LETTERS_MAX]


def intervals(estimates: Iterable[Mapping[str, Any]]) -> str:
    """The whiskers of a caption: `the 95 % confidence interval (n = 3 repeats)`; or that there is none."""
    found = [one for one in estimates if one]
    counts = sorted({round(float(one.get("n", 1))) for one in found})
    levels = sorted({level(one) for one in found if half_width(one) is not None})
    over = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    plural = "repeat" if counts == [1] else "repeats"
    if not levels:
        return f"no confidence interval: n = {over} {plural}"
    return f"the {' and '.join(levels)} confidence interval (n = {over} {plural})"
