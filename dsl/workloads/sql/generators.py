"""The generators of `kind: sql`: random 64-bit words -> values, in numpy. One arithmetic for rows and for binds.

A generator takes a fixed number of words per value, so a row of a population finds its words in a counter-based stream
at once (`random_streams.words`), and a terminal draws a batch at a time from its own. Only raw Philox words are used,
which numpy guarantees for ever. A choice of at most 2^32 values is made of 32 bits, a wider one of 64: no value is
favoured by more than 2^-24 of its probability for ranges up to 2^8 … 2^40 and similar ones, far below what a test could
detect.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.hlr.keys import nurand_mask
from proveout.dsl.workloads.sql.parameters import LETTERS, Generator

Words: TypeAlias = npt.NDArray[np.uint64]
Values: TypeAlias = npt.NDArray[Any]
Make: TypeAlias = Callable[[Words], Values]

THETA = 0.99
HEAD_MAX = 65_536  # ranks of a Zipf distribution whose probabilities are summed one by one


class Draw:
    """A generator made ready: `make(words)` of shape (n, `each`) gives n values, one for each row of words."""

    __slots__ = ("each", "make")

    def __init__(self, each: int, make: Make) -> None:
        self.each, self.make = each, make


def draw(generator: Generator) -> Draw:  # noqa: PLR0911 - one per source
    """The arithmetic of a generator; ValueError for the two that are none: `sequence` and `from`."""
    if generator.uniform is not None:
        return _uniform(generator)
    if generator.nurand is not None:
        return _nurand(*generator.nurand, generator.a)
    if generator.zipf is not None:
        low, high = generator.zipf
        return Draw(
            1, lambda words: low - 1 + zipf_ranks(_fraction(words[:, 0]), high - low + 1, generator.theta or THETA)
        )
    if generator.pick is not None:
        return _pick(generator)
    if generator.text is not None:
        return _text(*generator.text, generator.alphabet or LETTERS)
    if generator.uuid is not None:
        return Draw(2, _uuids)
    if generator.timestamp is not None:
        return _timestamp(*generator.timestamp)
    raise ValueError(f"{generator.source} is not drawn")


def choice(words: Words, out_of: int) -> npt.NDArray[np.int64]:
    """Each word as one of 0 … out_of - 1."""
    if out_of <= 2**32:
        return ((words >> np.uint64(32)) * np.uint64(out_of) >> np.uint64(32)).astype(np.int64)
    return (words % np.uint64(out_of)).astype(np.int64)


def zipf_ranks(fractions: npt.NDArray[np.float64], ranks: int, theta: float) -> npt.NDArray[np.int64]:
    """Fractions of [0, 1) as ranks 1 … `ranks`, rank r in proportion to 1 / r^theta, by inversion.

    The first HEAD_MAX ranks have their exact probabilities; beyond, a rank's is the integral of x^-theta over r ± 1/2,
    which differs by less than theta (theta + 1) / (24 r^2) of it: under 10^-9 for any theta allowed.
    """
    cumulated, head, whole = _zipf_head(ranks, theta)
    wanted = fractions * whole
    found = np.searchsorted(cumulated, wanted, side="right").astype(np.int64) + 1
    beyond = wanted >= head
    if ranks > HEAD_MAX and beyond.any():
        area = _integral(HEAD_MAX + 0.5, theta) + (wanted[beyond] - head)
        found[beyond] = np.floor(_inverse(area, theta) + 0.5).astype(np.int64)
    clipped: npt.NDArray[np.int64] = np.clip(found, 1, ranks)
    return clipped


@cache
def _zipf_head(ranks: int, theta: float) -> tuple[npt.NDArray[np.float64], float, float]:
    """(running sums of the first ranks' weights, their sum, the sum of all)."""
    weights = np.arange(1, min(ranks, HEAD_MAX) + 1, dtype=np.float64) ** -theta
    cumulated = np.cumsum(weights)
    head = float(cumulated[-1])
    tail = _integral(ranks + 0.5, theta) - _integral(HEAD_MAX + 0.5, theta) if ranks > HEAD_MAX else 0.0
    return cumulated, head, head + tail


def _integral(x: float, theta: float) -> float:
    return float(np.log(x)) if theta == 1.0 else float(x ** (1.0 - theta) / (1.0 - theta))


def _inverse(area: npt.NDArray[np.float64], theta: float) -> npt.NDArray[np.float64]:
    inverse: npt.NDArray[np.float64] = np.exp(area) if theta == 1.0 else ((1.0 - theta) * area) ** (1.0 / (1.0 - theta))
    return inverse


def _fraction(words: Words) -> npt.NDArray[np.float64]:
    """The upper 53 bits as a number of [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _uniform(generator: Generator) -> Draw:
    low, high = generator.uniform or (0, 0)
    if generator.type is int:
        first, span = int(low), int(high) - int(low) + 1
        return Draw(1, lambda words: first + choice(words[:, 0], span))
    digits = generator.digits
    if digits is None:
        return Draw(1, lambda words: low + _fraction(words[:, 0]) * (high - low))
    scale = 10**digits  # so many steps, all alike: rounding would give the two ends half a share
    bottom, steps = round(low * scale), round(high * scale) - round(low * scale) + 1
    return Draw(1, lambda words: (bottom + choice(words[:, 0], steps)) / scale)


def _nurand(low: int, high: int, constant: int | None) -> Draw:
    """((U(0, A) | U(1, P)) mod P) + low over the P values of the range: TATP's non-uniform keys."""
    span = high - low + 1
    mask = nurand_mask(span) if constant is None else constant
    return Draw(2, lambda w: (choice(w[:, 0], mask + 1) | (1 + choice(w[:, 1], span))) % span + low)


def _pick(generator: Generator) -> Draw:
    choices = generator.pick or ()
    values = np.array([value for value, _ in choices])
    weights = np.cumsum([weight for _, weight in choices])
    if len({weight for _, weight in choices}) == 1:
        return Draw(1, lambda words: values[choice(words[:, 0], len(values))])
    edges = weights[:-1] / weights[-1]
    return Draw(1, lambda words: values[np.searchsorted(edges, _fraction(words[:, 0]), side="right")])


def _text(shortest: int, longest: int, alphabet: str) -> Draw:
    """Half a word for each character, one more where the length is drawn too. numpy drops the zeros after a short
    text."""
    letters = np.array(list(alphabet))
    if longest == 0:
        return Draw(0, lambda words: np.full(len(words), ""))
    extra = int(longest > shortest)

    def make(words: Words) -> Values:
        halves = np.ascontiguousarray(words[:, extra:]).view(np.uint32)[:, :longest].astype(np.uint64)
        chosen = letters[(halves * np.uint64(len(letters)) >> np.uint64(32)).astype(np.int64)]
        if extra:
            lengths = shortest + choice(words[:, 0], longest - shortest + 1)
            chosen = np.where(np.arange(longest) < lengths[:, None], chosen, "")
        return np.ascontiguousarray(chosen).view(f"U{longest}")[:, 0]

    return Draw(extra + (longest + 1) // 2, make)


def _uuids(words: Words) -> Values:
    pairs = words.tolist()
    return np.array([str(uuid.UUID(int=high << 64 | low, version=4)) for high, low in pairs], dtype="U36")


def _timestamp(first: str, last: str) -> Draw:
    begin = np.datetime64(datetime.fromisoformat(first), "s")
    span = int((np.datetime64(datetime.fromisoformat(last), "s") - begin).astype(np.int64)) + 1

    def make(words: Words) -> Values:
        moments = begin + choice(words[:, 0], span).astype("timedelta64[s]")
        texts = np.datetime_as_string(moments, unit="s").astype("U19")
        texts.view("U1").reshape(-1, 19)[:, 10] = " "  # in place of the T
        return texts

    return Draw(1, make)
