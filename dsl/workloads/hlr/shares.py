"""Expected share of success of each HLR transaction, computed from the distributions of population and arguments.

`shares(parameters)` enumerates the distributions that `hlr.rows` loads and `hlr.keys` draws
from, so a change of the weights or the cardinality changes the expectation. Fresh is a load that was just made. Steady
is where InsertCallForwarding and DeleteCallForwarding take the data in the end. A pair (special facility, start time)
is a slot that is full or empty; inserts hit it i times a unit of time and fill it when it is empty, deletes d times and
empty it when it is full. With p = i/(i + d), at age t:

    P(full | loaded full)  = p + (1 - p) exp(-(i + d) t), of which exp(-d t) is still the loaded row
    P(full | loaded empty) = p - p exp(-(i + d) t), all of it inserted rows

so a slot ends full with probability p, one half by the specification's weights, each slot by itself. An inserted row
ends at 1..24, whatever its start time; a loaded one 1..8 after it. That is why GetNewDestination succeeds more often on
aged data (20.4 %) than on fresh (14.8 %) by the specification's weights. Without inserts and deletes nothing ages.

Keys: the rows of a subscriber do not depend on its number, so `keys` and `range` leave every expectation as it is. They
do change how far a load may be off it: few hot subscribers are a small sample of the population (see `conformance`),
and hot slots age sooner. A load over subscribers of many ages is a mixture of ages, so it lies between `low` and
`high`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.hlr.parameters import Hlr

START_TIMES: tuple[int, ...] = (0, 8, 16)
END_TIMES = range(1, 25)
HOURS = range(1, 9)
ACTIVE = 0.85
LAB_FORWARDINGS = 0.1
LAB_TYPES = 5

Slots = frozenset[int]
FullAndAfter = Callable[[int, int, bool], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Success fractions of one transaction: on a fresh load, after long ageing, and the extremes of any age between."""

    fresh: float
    steady: float
    low: float
    high: float


def types_of(parameters: Hlr) -> int:
    """The number of types of access information and of special facility: types are 1 … this."""
    return 4 if parameters.cardinality == "tatp" else LAB_TYPES


def shares(parameters: Hlr) -> Mapping[str, Share]:
    """Expected success fractions of each of the seven transactions under these parameters."""
    exists = 0.625 if parameters.cardinality == "tatp" else 1.0
    insert, delete = parameters.weights["InsertCallForwarding"], parameters.weights["DeleteCallForwarding"]
    slots = _loaded_slots(parameters.cardinality)
    full = sum(probability * len(chosen) for chosen, probability in slots.items()) / len(START_TIMES)
    full_steady = insert / (insert + delete) if insert + delete else full
    found = [exists * ACTIVE * part for part in _found_by_age(parameters.cardinality, insert, delete)]
    return {
        "GetBasicSubscriberData": _between(1.0, 1.0),
        "GetAccessData": _between(exists, exists),
        "GetNewDestination": Share(fresh=found[0], steady=found[-1], low=min(found), high=max(found)),
        "UpdateSubscriberData": _between(exists, exists),
        "UpdateLocation": _between(1.0, 1.0),
        "InsertCallForwarding": _between(exists * (1.0 - full), exists * (1.0 - full_steady)),
        "DeleteCallForwarding": _between(exists * full, exists * full_steady),
    }


def _between(fresh: float, steady: float) -> Share:
    """A share that goes straight from fresh to steady as the data ages."""
    return Share(fresh=fresh, steady=steady, low=min(fresh, steady), high=max(fresh, steady))


@lru_cache(maxsize=256)
def _found_by_age(cardinality: str, insert: float, delete: float) -> tuple[float, ...]:
    """`_found` at each of `_ages`. It is kept: each load of each iteration is judged by it, and it takes 20 ms."""
    slots = _loaded_slots(cardinality)
    return tuple(_found(slots, _at_age(insert, delete, age)) for age in _ages(insert, delete))


def _loaded_slots(cardinality: str) -> Mapping[Slots, float]:
    """The probability of each set of full slots in one loaded special facility."""
    if cardinality == "lab":  # one row in a tenth of the subscribers, in any of 5 types x 3 starts
        each = LAB_FORWARDINGS / (LAB_TYPES * len(START_TIMES))
        single = {frozenset((start,)): each for start in START_TIMES}
        return {frozenset[int](): 1.0 - each * len(START_TIMES)} | single
    return {chosen: 0.25 / math.comb(len(START_TIMES), len(chosen)) for chosen in _subsets()}


def _subsets() -> Iterable[Slots]:
    sizes = range(len(START_TIMES) + 1)
    return (frozenset(chosen) for size in sizes for chosen in itertools.combinations(START_TIMES, size))


def _ages(insert: float, delete: float) -> tuple[float, ...]:
    """Ages to look at, from fresh to steady; only unequal weights of both can take a turn on the way."""
    if insert == delete == 0.0:
        return (0.0,)
    if insert in (delete, 0.0) or delete == 0.0:
        return (0.0, math.inf)
    return (0.0, *(2.0**power / (insert + delete) for power in range(-4, 5)), math.inf)


def _at_age(insert: float, delete: float, age: float) -> FullAndAfter:
    """P(a slot holds a row with an end time after `e`) at that age, by start time, `e`, and whether it was loaded
    full."""
    full = insert / (insert + delete) if insert + delete else 0.0
    decay = math.exp(-(insert + delete) * age) if age else 1.0
    still_loaded = (math.exp(-delete * age) if delete else 1.0) if age else 1.0

    def full_and_after(start: int, end: int, loaded: bool) -> float:
        inserted = full + (1.0 - full) * decay - still_loaded if loaded else full - full * decay
        by_insert = inserted * sum(e > end for e in END_TIMES) / len(END_TIMES)
        return by_insert + loaded * still_loaded * sum(start + h > end for h in HOURS) / len(HOURS)

    return full_and_after


def _found(slots: Mapping[Slots, float], full_and_after: FullAndAfter) -> float:
    """P(some row has start <= s and end > e) for s one of the start times and e of 1..24, all alike."""
    total = 0.0
    for chosen, probability in slots.items():
        for end in END_TIMES:
            missed = 1.0
            for start in START_TIMES:  # s = start: the slots up to this one
                missed *= 1.0 - full_and_after(start, end, start in chosen)
                total += probability * (1.0 - missed)
    return total / (len(START_TIMES) * len(END_TIMES))
