"""The tables of the HLR workload: DDL, Oracle's partitions, and rows by arithmetic from subscriber numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import record
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.random_streams import Ints, Rows, Words, choice, digits15, field, fields, letters, words

# `shares(parameters)` enumerates the distributions that `workloads.hlr_tables` loads and `workloads.hlr_workload`
# draws from, so a change
# of the weights or the cardinality changes the expectation. Fresh is a load that was just made. Steady is where
# InsertCallForwarding and DeleteCallForwarding take the data in the end. A pair (special facility, start time) is a
# slot that is full or empty; inserts hit it i times a unit of time and fill it when it is empty, deletes d times and
# empty it when it is full. With p = i/(i + d), at age t:
#
#     P(full | loaded full)  = p + (1 - p) exp(-(i + d) t), of which exp(-d t) is still the loaded row
#     P(full | loaded empty) = p - p exp(-(i + d) t), all of it inserted rows
#
# so a slot ends full with probability p, one half by the specification's weights, each slot by itself. An inserted row
# ends at 1..24, whatever its start time; a loaded one 1..8 after it. That is why GetNewDestination succeeds more often
# on aged data (20.4 %) than on fresh (14.8 %) by the specification's weights. Without inserts and deletes nothing ages.
#
# Keys: the rows of a subscriber do not depend on its number, so `keys` and `range` leave every expectation as it is.
# They do change how far a load may be off it: few hot subscribers are a small sample of the population (see
# `conformance`), and hot slots age sooner. A load over subscribers of many ages is a mixture of ages, so it lies
# between `low` and `high`.

START_TIMES: tuple[int, ...] = (0, 8, 16)
END_TIMES = range(1, 25)
HOURS = range(1, 9)
ACTIVE = 0.85
LAB_FORWARDINGS = 0.1
LAB_TYPES = 5

Slots = frozenset[int]
FullAndAfter = Callable[[int, int, bool], float]


@record
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


# Tables are loaded bare and get their keys afterwards. With partitions every table is range-partitioned by s_id at the
# same edges, primary keys are local (they lead with s_id), and the number's index is a global one whose partitions
# follow the same edges (sub_nbr is s_id in 15 digits): instances that keep to their own partitions share no index
# block.
#
# TimesTen takes the same statements where it has them: it has no range partitions and no DBMS_STATS; see `timesten`.
# Source: Oracle Database SQL Language Reference, CREATE TABLE and CREATE INDEX. Not run on a live server in the tests.


def oracle_after(
    keys: Mapping[str, str], foreign_keys: tuple[tuple[str, str, str], ...], bounds: tuple[int, ...]
) -> tuple[tuple[str, ...], ...]:
    """Phases after the load: primary keys and the number's index, foreign keys, statistics."""
    local = " USING INDEX LOCAL" if bounds else ""
    primary = tuple(
        f"ALTER TABLE {name} ADD CONSTRAINT {name}_pk PRIMARY KEY ({key}){local}" for name, key in keys.items()
    )
    edges = _partitions("sub_nbr", tuple(f"'{bound:015d}'" for bound in bounds))
    number = "CREATE UNIQUE INDEX subscriber_sub_nbr ON subscriber (sub_nbr)" + (f" GLOBAL{edges}" if bounds else "")
    foreign = tuple(
        f"ALTER TABLE {name} ADD CONSTRAINT {name}_fk FOREIGN KEY ({key}) REFERENCES {to}"
        for name, key, to in foreign_keys
    )
    return ddl.oracle_after((*primary, number), [foreign], list(keys))


def _partitions(column: str, bounds: tuple[str, ...]) -> str:
    if not bounds:
        return ""
    edges = (*bounds, "MAXVALUE")
    parts = ", ".join(f"PARTITION p{part} VALUES LESS THAN ({edge})" for part, edge in enumerate(edges, start=1))
    return f" PARTITION BY RANGE ({column}) ({parts})"


# PostgreSQL tables are loaded bare and get keys, indexes and foreign keys afterwards, which is several times cheaper
# than keeping them up row by row; then they are vacuumed, so that no measured transaction pays for hint bits. SQLite
# declares keys with the table (it cannot add them) and clusters the three side tables on their keys (WITHOUT ROWID),
# which costs nothing as rows come in key order. So does MySQL, whose InnoDB tables are clustered on their primary key;
# there only the index on the number waits for the load. DuckDB takes foreign keys with the table only.
#
# Column kinds are `int2 int4 int8 char(n) varchar(n)`; every text of this population has exactly n characters.

NAMES: tuple[str, ...] = ("subscriber", "access_info", "special_facility", "call_forwarding")
PRIMARY_KEYS: Mapping[str, str] = {
    "subscriber": "s_id",
    "access_info": "s_id, ai_type",
    "special_facility": "s_id, sf_type",
    "call_forwarding": "s_id, sf_type, start_time",
}
# (table, columns, referenced table): TATP's, each to an earlier table
FOREIGN_KEYS: tuple[tuple[str, str, str], ...] = (
    ("access_info", "s_id", "subscriber"),
    ("special_facility", "s_id", "subscriber"),
    ("call_forwarding", "s_id, sf_type", "special_facility"),
)
INT4_MAX = 2**31 - 1


def columns(population: int) -> Mapping[str, ddl.Columns]:
    """Columns of each table; s_id is as wide as the population needs."""
    s_id = ("s_id", "int4" if population <= INT4_MAX else "int8")
    tens = tuple((f"{name}_{i}", "int2") for name in ("bit", "hex", "byte2") for i in range(1, 11))
    locations = (("msc_location", "int8"), ("vlr_location", "int8"))
    access = (("ai_type", "int2"), ("data1", "int2"), ("data2", "int2"), ("data3", "char(3)"), ("data4", "char(5)"))
    facility = (("sf_type", "int2"), ("is_active", "int2"), ("error_cntrl", "int2"), ("data_a", "int2"))
    forwarding = (("sf_type", "int2"), ("start_time", "int2"), ("end_time", "int2"), ("numberx", "varchar(15)"))
    return {
        "subscriber": (s_id, ("sub_nbr", "varchar(15)"), *tens, *locations),
        "access_info": (s_id, *access),
        "special_facility": (s_id, *facility, ("data_b", "char(5)")),
        "call_forwarding": (s_id, *forwarding),
    }


def shapes(parameters: Hlr) -> tuple[ddl.TableShape, ...]:
    return tuple(
        ddl.TableShape(
            name=name,
            columns=of,
            primary_key=PRIMARY_KEYS[name],
            foreign_keys=tuple((key, to) for referring, key, to in FOREIGN_KEYS if referring == name),
        )
        for name, of in columns(parameters.population).items()
    )


def before(parameters: Hlr) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables. SQLite, MySQL and DuckDB are left out where they cannot hold them
    (partitions). MySQL compares texts byte by byte, as the others do: they are ASCII."""
    tables, edges = shapes(parameters), _partitions("s_id", tuple(map(str, bounds(parameters))))
    made: dict[Dialect, tuple[str, ...]] = {
        "postgres": tuple(text for shape in tables for text in _postgres_table(shape, parameters)),
        "oracle": tuple(ddl.bare("oracle", shape) + edges for shape in tables),
    }
    if parameters.partitions == 1:
        rows = ddl.bare("sqlite", tables[0]).replace("s_id INTEGER NOT NULL", "s_id INTEGER PRIMARY KEY")
        ascii_rows = " ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin"
        made["sqlite"] = (rows, *(ddl.referring("sqlite", shape) + " WITHOUT ROWID" for shape in tables[1:]))
        made["mysql"] = tuple(ddl.referring("mysql", shape) + ascii_rows for shape in tables)
        made["duckdb"] = tuple(ddl.referring("duckdb", shape) for shape in tables)
    return made


def after(parameters: Hlr) -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases: keys and indexes, foreign keys, statistics."""
    keys = tuple(f"ALTER TABLE {name} ADD PRIMARY KEY ({PRIMARY_KEYS[name]})" for name in NAMES)
    numbers = tuple(f"CREATE UNIQUE INDEX {leaf}_sub_nbr ON {leaf} (sub_nbr)" for leaf in _leaves(parameters))
    foreign = tuple(f"ALTER TABLE {name} ADD FOREIGN KEY ({key}) REFERENCES {to}" for name, key, to in FOREIGN_KEYS)
    statistics = ddl.gathering(NAMES)
    unique = ("CREATE UNIQUE INDEX subscriber_sub_nbr ON subscriber (sub_nbr)",)
    return {
        **{dialect: (unique, gathered) for dialect, gathered in statistics.items()},
        "postgres": ((*keys, *numbers), foreign, statistics["postgres"]),
        "oracle": oracle_after(PRIMARY_KEYS, FOREIGN_KEYS, bounds(parameters)),
    }


def bounds(parameters: Hlr) -> tuple[int, ...]:
    """Lower bounds of partitions: the first s_id of partitions 2 … k; sizes differ by one at most."""
    size, rest = divmod(parameters.population, parameters.partitions)
    return tuple(1 + part * size + min(part, rest) for part in range(1, parameters.partitions))


def expected(parameters: Hlr) -> Mapping[str, tuple[int, int]]:
    """The range of rows of each table: six standard deviations around the mean, within the possible range.

    Per subscriber: access information and facilities 1..4 (mean 2.5, variance 1.25); forwardings the sum of 0..3 over
    each facility (mean 2.5 x 1.5, variance 2.5 x 1.25 + 1.25 x 1.5^2). The lab's: 5, 5, and one with probability 0.1.
    """
    subscribers = parameters.population
    if parameters.cardinality == "lab":
        five = (5 * subscribers, 5 * subscribers)
        forwardings = _around(subscribers, 0.1, 0.09, 0, 1)
        return dict(zip(NAMES, ((subscribers, subscribers), five, five, forwardings), strict=True))
    side = _around(subscribers, 2.5, 1.25, 1, 4)
    forwardings = _around(subscribers, 3.75, 5.9375, 0, 12)
    return dict(zip(NAMES, ((subscribers, subscribers), side, side, forwardings), strict=True))


def _around(count: int, mean: float, variance: float, low: int, high: int) -> tuple[int, int]:
    """Six standard deviations around the sum of `count` draws of that mean and variance from low … high."""
    spread = 6.0 * math.sqrt(count * variance)
    middle = count * mean
    return max(low * count, math.floor(middle - spread)), min(high * count, math.ceil(middle + spread))


def _leaves(parameters: Hlr) -> tuple[str, ...]:
    """The tables that hold SUBSCRIBER's rows.

    A unique index over all partitions would have to contain s_id; as sub_nbr is s_id in 15 digits, uniqueness within
    each range of s_id is uniqueness over all.
    """
    if parameters.partitions == 1:
        return ("subscriber",)
    return tuple(f"subscriber_p{part}" for part in range(1, parameters.partitions + 1))


def _postgres_table(shape: ddl.TableShape, parameters: Hlr) -> tuple[str, ...]:
    name, whole = shape.name, ddl.bare("postgres", shape)
    if parameters.partitions == 1:
        return (whole,)
    edges = ("MINVALUE", *(str(bound) for bound in bounds(parameters)), "MAXVALUE")
    leaves = (
        f"CREATE TABLE {name}_p{part} PARTITION OF {name} FOR VALUES FROM ({low}) TO ({high})"
        for part, (low, high) in enumerate(pairwise(edges), start=1)
    )
    return (f"{whole} PARTITION BY RANGE (s_id)", *leaves)


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
    locations = [1 + choice(column >> np.uint64(32), 2**32 - 1, 32) for column in (three, four)]
    return [ids, digits15(ids), *bits, *halves, *octets, *locations]


def access_info(parameters: Hlr, first: int, count: int) -> Rows:
    """ACCESS_INFO: 1..4 distinct types (or all five), two bytes, three letters, five letters."""
    types = types_of(parameters)
    owned = np.flatnonzero(_owned_types(parameters, Purpose.ACCESS_TYPES, first, count))
    row, kind = _divided(owned, types)
    word = words(parameters.seed, Purpose.ACCESS_DATA, first, count, 2 * types).reshape(-1, 2).take(owned, axis=0)
    drawn = word[:, 1]
    return [
        first + row,
        1 + kind,
        field(word[:, 0], 0, 8),
        field(word[:, 0], 8, 8),
        letters(drawn % np.uint64(26**3), 3),
        letters(drawn // np.uint64(26**3) % np.uint64(26**5), 5),
    ]


def special_facility(parameters: Hlr, first: int, count: int) -> Rows:
    """SPECIAL_FACILITY: 1..4 distinct types (or all five), active with probability 0.85, two bytes, five letters."""
    types = types_of(parameters)
    owned = np.flatnonzero(_owned_types(parameters, Purpose.FACILITY_TYPES, first, count))
    row, kind = _divided(owned, types)
    word = words(parameters.seed, Purpose.FACILITY_DATA, first, count, 2 * types).reshape(-1, 2).take(owned, axis=0)
    active = (word[:, 0] >> np.uint64(32)) < np.uint64(round(ACTIVE * 2**32))
    return [
        first + row,
        1 + kind,
        active.astype(np.int64),
        field(word[:, 0], 0, 8),
        field(word[:, 0], 8, 8),
        letters(word[:, 1] % np.uint64(26**5), 5),
    ]


def call_forwarding(parameters: Hlr, first: int, count: int) -> Rows:
    """CALL_FORWARDING: 0..3 distinct start times per facility (or one row in a tenth of the subscribers), 15 digits."""
    if parameters.cardinality == "lab":
        return _call_forwarding_lab(parameters, first, count)
    types, starts = types_of(parameters), len(START_TIMES)
    owned = _owned_types(parameters, Purpose.FACILITY_TYPES, first, count)
    times = words(parameters.seed, Purpose.FORWARDING_TIMES, first, count, types).ravel()
    chosen = _START_MASKS.take(choice(times >> np.uint64(32), len(_START_MASKS), 32), axis=0)
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
    kind, slot = _divided(choice(low >> np.uint64(3), slots, 29), len(START_TIMES))
    start = _STARTS[slot]
    return [first + row, 1 + kind, start, start + 1 + field(low, 0, 3), _number(word[row, 1])]


def _owned_types(parameters: Hlr, purpose: Purpose, first: int, count: int) -> npt.NDArray[np.bool_]:
    """Shape (count, types): which types each subscriber has. 1..4 of four by chance, all five in the lab's
    cardinality."""
    if parameters.cardinality == "lab":
        return np.ones((count, types_of(parameters)), dtype=np.bool_)
    drawn = words(parameters.seed, purpose, first, count, 1)[:, 0]
    return _TYPE_MASKS.take(choice(drawn >> np.uint64(32), len(_TYPE_MASKS), 32), axis=0)


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
