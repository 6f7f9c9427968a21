"""Random arguments of the HLR transactions: one stream per terminal and transaction, drawn ahead in numpy batches.

Flow: (parameters, stream) -> Philox keyed (seed, transaction), set apart by stream -> batches of plain Python values ->
one `next()` per transaction, which gives its request, or the drawn values of each of its statements.
Subscribers are uniform over the load's range, or the specification's non-uniform `nurand`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import repeat

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.base import Request, Row
from proveout.dsl.workloads.hlr.parameters import HLR_TRANSACTIONS, Hlr
from proveout.dsl.workloads.hlr.shares import END_TIMES, START_TIMES, types_of
from proveout.dsl.workloads.hlr.statements import GET_ACCESS, GET_DESTINATION, GET_SUBSCRIBER
from proveout.dsl.workloads.random_streams import Draw, sources

COLLISION_DRAWS = 2**18
Ints = npt.NDArray[np.int64]
Values = tuple[Row, ...]  # the values drawn for each statement


class Keys:
    """One terminal's arguments: each attribute gives the next ones of a transaction, drawn in batches from its own
    stream.

    Reads give their request, the others the drawn values of each of their statements. Streams are Philox, keyed
    (seed, transaction) and set apart by `stream` (0 <= stream < 2^128), so no two terminals draw the same keys and the
    same stream draws the same again.
    """

    __slots__ = ("access", "delete", "destination", "insert", "location", "subscriber", "subscriber_data")

    def __init__(self, parameters: Hlr, stream: int) -> None:
        s_id = partial(draw_uniform if parameters.keys == "uniform" else draw_nurand, parameters)
        types = types_of(parameters)
        draws: tuple[Draw, ...] = (
            lambda random, n: zip(repeat(GET_SUBSCRIBER), zip(s_id(random, n).tolist())),
            lambda random, n: zip(
                repeat(GET_ACCESS), zip(s_id(random, n).tolist(), _upto(random, types, n), strict=True)
            ),
            lambda random, n: _destinations(random, n, s_id(random, n), types),
            lambda random, n: _subscriber_data(random, n, s_id(random, n), types),
            lambda random, n: zip(_numbers(s_id(random, n)), zip(random.integers(1, 2**32, n).tolist()), strict=True),
            lambda random, n: _inserts(random, n, s_id(random, n), types),
            lambda random, n: zip(
                _numbers(s_id(random, n)), zip(_upto(random, types, n), _starts(random, n), strict=True), strict=True
            ),
        )
        weights = parameters.weights
        chosen = [weights[name] for name in HLR_TRANSACTIONS]
        next_of = sources(draws, chosen, sum(weights.values()), seed=parameters.seed, purpose=0, stream=stream)
        self.subscriber: Callable[[], Request] = next_of[0]
        self.access: Callable[[], Request] = next_of[1]
        self.destination: Callable[[], Request] = next_of[2]
        self.subscriber_data: Callable[[], Values] = next_of[3]
        self.location: Callable[[], Values] = next_of[4]
        self.insert: Callable[[], Values] = next_of[5]
        self.delete: Callable[[], Values] = next_of[6]


def nurand_mask(subscribers: int) -> int:
    """The constant A of the specification's non-uniform keys, for a load over that many subscribers."""
    if subscribers <= 1_000_000:
        return 65_535
    return 1_048_575 if subscribers <= 10_000_000 else 2_097_151


def draw_uniform(parameters: Hlr, random: np.random.Generator, count: int) -> Ints:
    """Subscribers of the load's range, all alike."""
    return random.integers(parameters.first, parameters.last + 1, count)


def draw_nurand(parameters: Hlr, random: np.random.Generator, count: int) -> Ints:
    """((U(0, A) | U(1, P)) mod P) + 1 over the P subscribers of the range, moved to where it begins."""
    subscribers = parameters.last - parameters.first + 1
    hot = random.integers(0, nurand_mask(subscribers) + 1, count)
    return (hot | random.integers(1, subscribers + 1, count)) % subscribers + parameters.first


def _upto(random: np.random.Generator, high: int, count: int) -> list[int]:
    """Numbers of 1 … high."""
    drawn: list[int] = random.integers(1, high + 1, count).tolist()
    return drawn


def _starts(random: np.random.Generator, count: int) -> list[int]:
    drawn: list[int] = (8 * random.integers(0, len(START_TIMES), count)).tolist()
    return drawn


def _numbers(s_ids: Ints) -> Iterator[Row]:
    """Each subscriber's number."""
    return zip([f"{s_id:015d}" for s_id in s_ids.tolist()])


def _destinations(random: np.random.Generator, count: int, s_ids: Ints, types: int) -> Iterable[Request]:
    kinds, starts, ends = _upto(random, types, count), _starts(random, count), _upto(random, len(END_TIMES), count)
    return zip(repeat(GET_DESTINATION), zip(s_ids.tolist(), kinds, starts, ends, strict=True))


def _subscriber_data(random: np.random.Generator, count: int, s_ids: Ints, types: int) -> Iterable[Values]:
    subscribers = s_ids.tolist()
    bits = zip(random.integers(0, 2, count).tolist(), subscribers, strict=True)
    octets = zip(random.integers(0, 256, count).tolist(), subscribers, _upto(random, types, count), strict=True)
    return zip(bits, octets, strict=True)


def _inserts(random: np.random.Generator, count: int, s_ids: Ints, types: int) -> Iterable[Values]:
    numbers = [f"{number:015d}" for number in random.integers(0, 10**15, count).tolist()]
    kinds, starts = _upto(random, types, count), _starts(random, count)
    forwardings = zip(kinds, starts, _upto(random, len(END_TIMES), count), numbers, strict=True)
    return zip(_numbers(s_ids), repeat(()), forwardings)


@lru_cache(maxsize=64)
def _effective(keys: str, subscribers: int) -> float:
    if keys == "uniform":
        return float(subscribers)
    drawn = draw_nurand(Hlr.model_validate({"population": subscribers}), np.random.default_rng(1), COLLISION_DRAWS)
    counts = np.unique(drawn, return_counts=True)[1].astype(np.float64)
    pairs = COLLISION_DRAWS * (COLLISION_DRAWS - 1.0)
    return pairs / max(1.0, float(np.sum(counts * (counts - 1.0))))


def effective_subscribers(parameters: Hlr) -> float:
    """The number of equally likely subscribers that would collide as often as this load's keys do: 1 / Σ p_i²."""
    return _effective(parameters.keys, parameters.last - parameters.first + 1)
