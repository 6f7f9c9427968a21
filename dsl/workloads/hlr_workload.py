"""The HLR workload: the values of its statements' binds, and rows by arithmetic from subscriber numbers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property, lru_cache, partial

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads import ddl, hlr
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.hlr import ACTIVE, END_TIMES, LAB_FORWARDINGS, START_TIMES, Hlr, types_of
from proveout.dsl.workloads.random_streams import (
    Ints,
    Rows,
    Words,
    choice,
    digits15,
    field,
    fields,
    letters,
    nurand_mask,
    words,
)
from proveout.dsl.workloads.transactions import WHOLE, Bind, Declared, digits, figures, whole

COLLISION_DRAWS = 2**18


def draw_uniform(parameters: Hlr, random: np.random.Generator, count: int) -> Ints:
    """Subscribers of the load's range, all alike."""
    return random.integers(parameters.first, parameters.last + 1, count)


def draw_nurand(parameters: Hlr, random: np.random.Generator, count: int) -> Ints:
    """((U(0, A) | U(1, P)) mod P) + 1 over the P subscribers of the range, moved to where it begins."""
    subscribers = parameters.last - parameters.first + 1
    hot = random.integers(0, nurand_mask(subscribers) + 1, count)
    return (hot | random.integers(1, subscribers + 1, count)) % subscribers + parameters.first


@lru_cache(maxsize=64)
def _effective(keys: str, subscribers: int) -> float:
    """The number of equally likely subscribers that would collide as often as these keys do: 1 / Σ p_i²."""
    if keys == "uniform":
        return float(subscribers)
    drawn = draw_nurand(Hlr.model_validate({"population": subscribers}), np.random.default_rng(1), COLLISION_DRAWS)
    counts = np.unique(drawn, return_counts=True)[1].astype(np.float64)
    pairs = COLLISION_DRAWS * (COLLISION_DRAWS - 1.0)
    return pairs / max(1.0, float(np.sum(counts * (counts - 1.0))))


class HlrWorkload(Declared):
    """A `base.WorkloadKind`: the HLR workload with its parameters. It has no invariants, for nothing is conserved: a
    load is judged by its success shares."""

    parameters: Hlr
    declared = hlr.DECLARED
    purpose = 0

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """Types, times, bits and bytes are all alike; subscribers as the parameter `keys` says."""
        s_id = partial(draw_uniform if self.parameters.keys == "uniform" else draw_nurand, self.parameters)
        return {
            "s_id": Bind(WHOLE, lambda random, count, _: s_id(random, count)),
            "sub_nbr": Bind("U15", lambda random, count, _: digits(s_id(random, count), 15)),
            "location": whole(1, 2**32 - 1),
            "bit": whole(0, 1),
            "data_a": whole(0, 255),
            "numberx": figures(15),
            "type": whole(1, types_of(self.parameters)),
            "start": Bind(WHOLE, lambda random, count, _: 8 * random.integers(0, len(START_TIMES), count)),
            "end": whole(1, len(END_TIMES)),
        }

    def failures(self, transaction: str) -> tuple[float, float]:
        """See `hlr.shares`."""
        share = hlr.shares(self.parameters)[transaction]
        return 1.0 - max(share), 1.0 - min(share)

    @property
    def sample(self) -> float:
        return _effective(self.parameters.keys, self.parameters.last - self.parameters.first + 1)

    @cached_property
    def population(self) -> Population:
        """The four tables, in units of subscribers."""
        own = self.parameters
        return ddl.population(
            own.population,
            hlr.shapes(own.population),
            lambda name, *units: ROWS[name](own, *units),
            hlr.expected(own),
            before=hlr.before(own),
            after=hlr.after(own),
        )


# Every subscriber owns a fixed run of words in each stream of its own purpose (`random_streams`), so a row never
# depends on how the population was cut. Fields come from disjoint bits.


class Purpose(IntEnum):
    """The purpose of a stream: a part of the Philox key, so never renumbered."""

    SUBSCRIBER = 1
    ACCESS_TYPES = 2
    ACCESS_DATA = 3
    FACILITY_TYPES = 4
    FACILITY_DATA = 5
    FORWARDING_TIMES = 6
    FORWARDING_NUMBER = 7
    FORWARDING_LAB = 8


def subscriber(parameters: Hlr, first: int, count: int) -> Rows:
    """SUBSCRIBER: s_id, sub_nbr, ten bits, ten half-bytes, ten bytes, two locations in 1 … 2^32 - 1."""
    ids = np.arange(first, first + count, dtype=np.int64)
    word = words(parameters.seed, Purpose.SUBSCRIBER, first, count, 4)
    one, two, three, four = np.ascontiguousarray(word.T)
    bits, halves = fields(one, range(10), 1), fields(one, range(10, 50, 4), 4)
    octets = [*fields(two, range(0, 64, 8), 8), *fields(three, range(0, 16, 8), 8)]
    locations = [1 + choice(column, 2**32 - 1) for column in (three, four)]
    return [ids, digits15(ids), *bits, *halves, *octets, *locations]


def access_info(parameters: Hlr, first: int, count: int) -> Rows:
    """ACCESS_INFO: 1..4 distinct types (or all five), two bytes, three letters, five letters."""
    ids, kinds, word = _of_types(parameters, (Purpose.ACCESS_TYPES, Purpose.ACCESS_DATA), first, count)
    drawn = word[:, 1]
    return [
        ids,
        kinds,
        field(word[:, 0], 0, 8),
        field(word[:, 0], 8, 8),
        letters(drawn % np.uint64(26**3), 3),
        letters(drawn // np.uint64(26**3) % np.uint64(26**5), 5),
    ]


def special_facility(parameters: Hlr, first: int, count: int) -> Rows:
    """SPECIAL_FACILITY: 1..4 distinct types (or all five), active with probability 0.85, two bytes, five letters."""
    ids, kinds, word = _of_types(parameters, (Purpose.FACILITY_TYPES, Purpose.FACILITY_DATA), first, count)
    active = (word[:, 0] >> np.uint64(32)) < np.uint64(round(ACTIVE * 2**32))
    return [
        ids,
        kinds,
        active.astype(np.int64),
        field(word[:, 0], 0, 8),
        field(word[:, 0], 8, 8),
        letters(word[:, 1] % np.uint64(26**5), 5),
    ]


def _of_types(parameters: Hlr, purposes: tuple[Purpose, Purpose], first: int, count: int) -> tuple[Ints, Ints, Words]:
    """The subscriber, the type and the two words of each type that a subscriber has."""
    types = types_of(parameters)
    owned = np.flatnonzero(_owned_types(parameters, purposes[0], first, count))
    row, kind = _divided(owned, types)
    word = words(parameters.seed, purposes[1], first, count, 2 * types).reshape(-1, 2).take(owned, axis=0)
    return first + row, 1 + kind, word


def call_forwarding(parameters: Hlr, first: int, count: int) -> Rows:
    """CALL_FORWARDING: 0..3 distinct start times per facility (or one row in a tenth of the subscribers), 15 digits."""
    if parameters.cardinality == "lab":
        return _call_forwarding_lab(parameters, first, count)
    types, starts = types_of(parameters), len(START_TIMES)
    owned = _owned_types(parameters, Purpose.FACILITY_TYPES, first, count)
    times = words(parameters.seed, Purpose.FORWARDING_TIMES, first, count, types).ravel()
    chosen = _START_MASKS.take(choice(times, len(_START_MASKS)), axis=0)
    chosen &= owned.reshape(-1, 1)
    full = np.flatnonzero(chosen)
    facility, slot = _divided(full, starts)
    row, kind = _divided(facility, types)
    number = words(parameters.seed, Purpose.FORWARDING_NUMBER, first, count, types * starts).ravel()
    hours = 1 + ((times[facility] >> (3 * slot).astype(np.uint64)) & np.uint64(7)).astype(np.int64)
    start = _STARTS[slot]
    return [first + row, 1 + kind, start, start + hours, _number(number[full])]


def _call_forwarding_lab(parameters: Hlr, first: int, count: int) -> Rows:
    word = words(parameters.seed, Purpose.FORWARDING_LAB, first, count, 2)
    row = np.nonzero((word[:, 0] >> np.uint64(32)) < np.uint64(round(LAB_FORWARDINGS * 2**32)))[0]
    low = word[row, 0] & np.uint64(0xFFFFFFFF)
    slots = types_of(parameters) * len(START_TIMES)
    kind, slot = _divided(choice(low << np.uint64(32), slots, 29), len(START_TIMES))
    start = _STARTS[slot]
    return [first + row, 1 + kind, start, start + 1 + field(low, 0, 3), _number(word[row, 1])]


def _owned_types(parameters: Hlr, purpose: Purpose, first: int, count: int) -> npt.NDArray[np.bool_]:
    """Shape (count, types): which types each subscriber has. 1..4 of four by chance, all five in the lab's
    cardinality."""
    if parameters.cardinality == "lab":
        return np.ones((count, types_of(parameters)), dtype=np.bool_)
    drawn = words(parameters.seed, purpose, first, count, 1)[:, 0]
    return _TYPE_MASKS.take(choice(drawn, len(_TYPE_MASKS)), axis=0)


def _divided(numbers: Ints, by: int) -> tuple[Ints, Ints]:
    """Quotients and remainders; quicker than numpy's divmod."""
    quotients = numbers // by
    return quotients, numbers - quotients * by


def _masks(width: int, sizes: range) -> npt.NDArray[np.bool_]:
    """Shape (n, width): rows drawn alike give each size of subset alike, and each subset of a size alike."""
    subsets = [[bool(value >> bit & 1) for bit in range(width)] for value in range(2**width)]
    of_size = {size: [subset for subset in subsets if sum(subset) == size] for size in sizes}
    common = int(np.lcm.reduce([len(members) for members in of_size.values()]))
    return np.array([subset for m in of_size.values() for subset in m for _ in range(common // len(m))])


def _number(source: Words) -> npt.NDArray[np.bytes_]:
    return digits15((source % np.uint64(10**15)).astype(np.int64))


_STARTS = np.array(START_TIMES, dtype=np.int64)
_TYPE_MASKS = _masks(4, range(1, 5))
_START_MASKS = _masks(3, range(4))
ROWS = {one.__name__: one for one in (subscriber, access_info, special_facility, call_forwarding)}
"""The functions that make the rows, by table."""
