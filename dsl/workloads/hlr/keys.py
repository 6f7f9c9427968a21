"""Random arguments of the HLR transactions: one stream per terminal and transaction, drawn ahead in numpy batches.

Flow: (parameters, stream) -> Philox keyed (seed, transaction), set apart by stream -> batches of rows -> one row
per transaction: its request, or the drawn values of each of its statements.
Subscribers are uniform over the load's range, or the specification's non-uniform `nurand`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.base import Request, Row
from proveout.dsl.workloads.hlr.parameters import HLR_TRANSACTIONS, Hlr
from proveout.dsl.workloads.hlr.shares import END_TIMES, START_TIMES, types_of
from proveout.dsl.workloads.hlr.statements import GET_ACCESS, GET_DESTINATION, GET_SUBSCRIBER
from proveout.dsl.workloads.random_streams import RowDraw, Rows, row, sources, steps

COLLISION_DRAWS = 2**18
Ints = npt.NDArray[np.int64]
Subscribers = Callable[[np.random.Generator, int], Ints]
Values = tuple[Row, ...]  # the values drawn for each statement
NUMBER = "U15"


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
        draws = (
            RowDraw(row("i8"), lambda random, n: ((s_id(random, n),),), GET_SUBSCRIBER),
            RowDraw(row("i8", "i8"), lambda random, n: ((s_id(random, n), _upto(random, types, n)),), GET_ACCESS),
            RowDraw(row("i8", "i8", "i8", "i8"), partial(_destinations, s_id, types), GET_DESTINATION),
            RowDraw(steps(row("i8", "i8"), row("i8", "i8", "i8")), partial(_subscriber_data, s_id, types)),
            RowDraw(
                steps(row(NUMBER), row("i8")),
                lambda random, n: ((_texts(s_id(random, n)),), (random.integers(1, 2**32, n),)),
            ),
            RowDraw(steps(row(NUMBER), row(), row("i8", "i8", "i8", NUMBER)), partial(_inserts, s_id, types)),
            RowDraw(
                steps(row(NUMBER), row("i8", "i8")),
                lambda random, n: ((_texts(s_id(random, n)),), (_upto(random, types, n), _starts(random, n))),
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


def _upto(random: np.random.Generator, high: int, count: int) -> Ints:
    """Numbers of 1 … high."""
    return random.integers(1, high + 1, count)


def _starts(random: np.random.Generator, count: int) -> Ints:
    return 8 * random.integers(0, len(START_TIMES), count)


def _texts(numbers: Ints) -> npt.NDArray[np.str_]:
    """The numbers of telephones and subscribers, 15 digits."""
    return np.array([f"{number:015d}" for number in numbers.tolist()], NUMBER)


def _destinations(s_id: Subscribers, types: int, random: np.random.Generator, count: int) -> Sequence[Rows]:
    s_ids, kinds, starts = s_id(random, count), _upto(random, types, count), _starts(random, count)
    return ((s_ids, kinds, starts, _upto(random, len(END_TIMES), count)),)


def _subscriber_data(s_id: Subscribers, types: int, random: np.random.Generator, count: int) -> Sequence[Rows]:
    s_ids = s_id(random, count)
    bits = random.integers(0, 2, count)
    octets = random.integers(0, 256, count)
    return (bits, s_ids), (octets, s_ids, _upto(random, types, count))


def _inserts(s_id: Subscribers, types: int, random: np.random.Generator, count: int) -> Sequence[Rows]:
    s_ids, numbers = s_id(random, count), random.integers(0, 10**15, count)
    kinds, starts = _upto(random, types, count), _starts(random, count)
    return (_texts(s_ids),), (), (kinds, starts, _upto(random, len(END_TIMES), count), _texts(numbers))


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
