"""The HLR workload (TATP) as data: parameters, tables, statements, shares of success, description. No numpy here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proveout.dsl import engines
from proveout.dsl.engines import Dialect
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import VIOLATIONS, Sql
from proveout.dsl.workloads.mix import Range, Ranged, division_problem, mix, part, run_of, runs_any, writers

# ---- tables ---------------------------------------------------------------------------------------------------------
#
# PostgreSQL tables are loaded bare and get keys, indexes and foreign keys afterwards, which is several times cheaper
# than keeping them up row by row; then they are vacuumed, so that no measured transaction pays for hint bits. SQLite
# declares keys with the table (it cannot add them) and clusters the three side tables on their keys (WITHOUT ROWID),
# which costs nothing as rows come in key order. So does MySQL, whose InnoDB tables are clustered on their primary key;
# there only the index on the number waits for the load. DuckDB takes foreign keys with the table only.
#
# With partitions every table is range-partitioned by s_id at the same edges. Oracle's primary keys are local (they lead
# with s_id), and the number's index is a global one whose partitions follow the same edges (sub_nbr is s_id in 15
# digits): instances that keep to their own partitions share no index block. TimesTen takes Oracle's statements where it
# has them: it has no range partitions and no DBMS_STATS; see `timesten`.
# Source: Oracle Database SQL Language Reference, CREATE TABLE and CREATE INDEX. Not run on a live server in the tests.
#
# Every text of this population has exactly n characters.

INT4_MAX = 2**31 - 1


def shapes(population: int) -> tuple[ddl.TableShape, ...]:
    """The tables; s_id is as wide as the population needs."""
    s_id = f"s_id {'int4' if population <= INT4_MAX else 'int8'}"
    tens = ", ".join(f"{name}_{i} int2" for name in ("bit", "hex", "byte2") for i in range(1, 11))
    of_subscriber = (("s_id", "subscriber"),)
    return (
        ddl.table(
            "subscriber",
            f"{s_id}, sub_nbr varchar(15), {tens}, msc_location int8, vlr_location int8",
            "s_id",
            indexes=(("UNIQUE INDEX subscriber_sub_nbr", "sub_nbr"),),
        ),
        ddl.table(
            "access_info",
            f"{s_id}, ai_type int2, data1 int2, data2 int2, data3 char(3), data4 char(5)",
            "s_id, ai_type",
            foreign_keys=of_subscriber,
        ),
        ddl.table(
            "special_facility",
            f"{s_id}, sf_type int2, is_active int2, error_cntrl int2, data_a int2, data_b char(5)",
            "s_id, sf_type",
            foreign_keys=of_subscriber,
        ),
        ddl.table(
            "call_forwarding",
            f"{s_id}, sf_type int2, start_time int2, end_time int2, numberx varchar(15)",
            "s_id, sf_type, start_time",
            foreign_keys=(("s_id, sf_type", "special_facility"),),
        ),
    )


NAMES: tuple[str, ...] = tuple(shape.name for shape in shapes(1))


def before(parameters: Hlr) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables. SQLite, MySQL and DuckDB are left out where they cannot hold them
    (partitions). MySQL compares texts byte by byte, as the others do: they are ASCII."""
    tables = shapes(parameters.population)
    made, edges = dict(ddl.before(tables)), bounds(parameters)
    if edges:
        names = zip(tables, made["postgres"], strict=True)
        return {
            "postgres": tuple(text for shape, whole in names for text in _partitioned(shape.name, whole, edges)),
            "oracle": tuple(text + _partitions("s_id", map(str, edges)) for text in made["oracle"]),
        }
    subscriber = ddl.bare("sqlite", tables[0]).replace("s_id INTEGER NOT NULL", "s_id INTEGER PRIMARY KEY")
    made["sqlite"] = (subscriber, *made["sqlite"][1:])
    ascii_rows = " ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin"
    made["mysql"] = tuple(ddl.referring("mysql", shape) + ascii_rows for shape in tables)
    return made


def after(parameters: Hlr) -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases: keys and indexes, foreign keys, statistics; MySQL has
    the keys already."""
    edges = bounds(parameters)
    of_numbers = _partitions("sub_nbr", (f"'{edge:015d}'" for edge in edges))
    parts = (" LOCAL", f" GLOBAL{of_numbers}") if edges else ("", "")
    made = dict(ddl.after(shapes(parameters.population), parts))
    made["mysql"] = made["mysql"][-2:]
    if edges:
        # A unique index over all partitions would have to contain s_id; as sub_nbr is s_id in 15 digits, uniqueness
        # within each range of s_id is uniqueness over all
        (*keys, _), *later = made["postgres"]
        leaves = (f"subscriber_p{part}" for part in range(1, parameters.partitions + 1))
        numbers = (f"CREATE UNIQUE INDEX {leaf}_sub_nbr ON {leaf} (sub_nbr)" for leaf in leaves)
        made["postgres"] = ((*keys, *numbers), *later)
    return made


def bounds(parameters: Hlr) -> tuple[int, ...]:
    """Lower bounds of partitions: the first s_id of partitions 2 … k; sizes differ by one at most."""
    parts = (run_of(1, parameters.population, part, parameters.partitions) for part in range(1, parameters.partitions))
    return tuple(low for low, _ in parts)


def _partitions(column: str, edges: Iterable[str]) -> str:
    """Oracle's clause."""
    numbered = enumerate((*edges, "MAXVALUE"), start=1)
    parts = ", ".join(f"PARTITION p{number} VALUES LESS THAN ({edge})" for number, edge in numbered)
    return f" PARTITION BY RANGE ({column}) ({parts})"


def _partitioned(name: str, whole: str, bounds: Sequence[int]) -> Iterable[str]:
    """PostgreSQL's statements."""
    yield f"{whole} PARTITION BY RANGE (s_id)"
    for number, (low, high) in enumerate(pairwise(("MINVALUE", *bounds, "MAXVALUE")), start=1):
        yield f"CREATE TABLE {name}_p{number} PARTITION OF {name} FOR VALUES FROM ({low}) TO ({high})"


PER_SUBSCRIBER: Mapping[str, tuple[tuple[float, float, int, int], ...]] = {
    "tatp": ((1, 0, 1, 1), (2.5, 1.25, 1, 4), (2.5, 1.25, 1, 4), (3.75, 5.9375, 0, 12)),
    "lab": ((1, 0, 1, 1), (5, 0, 5, 5), (5, 0, 5, 5), (0.1, 0.09, 0, 1)),
}
"""Rows of each table by cardinality: mean, variance, fewest and most. TATP's forwardings are the sum of 0..3 over each
facility (mean 2.5 x 1.5, variance 2.5 x 1.25 + 1.25 x 1.5^2); the lab has one with probability 0.1."""


def expected(parameters: Hlr) -> Mapping[str, tuple[int, int]]:
    """The range of rows of each table: six standard deviations around the mean, within the possible range."""
    count = parameters.population

    def around(mean: float, variance: float, low: int, high: int) -> tuple[int, int]:
        middle, spread = count * mean, 6.0 * math.sqrt(count * variance)
        return max(low * count, math.floor(middle - spread)), min(high * count, math.ceil(middle + spread))

    return {name: around(*of) for name, of in zip(NAMES, PER_SUBSCRIBER[parameters.cardinality], strict=True)}


# ---- statements -----------------------------------------------------------------------------------------------------

_SUBSCRIBER = ", ".join(name for name, _ in shapes(1)[0].columns)
_FIND = Sql("find_number", "SELECT s_id FROM subscriber WHERE sub_nbr = :sub_nbr", keeps=("s_id",))

# Success and failure follow the TATP specification (version 1.0): a transaction that finds nothing, changes nothing, or
# inserts what is there already (or belongs to no special facility) has failed *logically*; it is rolled back and
# counted apart.
DECLARED: Mapping[str, Sequence[Sql]] = {
    "GetBasicSubscriberData": (Sql("get_subscriber", f"SELECT {_SUBSCRIBER} FROM subscriber WHERE s_id = :s_id"),),  # noqa: S608 (our own column names)
    "GetAccessData": (
        Sql("get_access", "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = :s_id AND ai_type = :type"),
    ),
    "GetNewDestination": (
        Sql(
            "get_destination",
            "SELECT cf.numberx FROM special_facility sf, call_forwarding cf"
            " WHERE sf.s_id = :s_id AND sf.sf_type = :type AND sf.is_active = 1 AND cf.s_id = sf.s_id"
            " AND cf.sf_type = sf.sf_type AND cf.start_time <= :start AND :end < cf.end_time",
            rows_max=3,
        ),
    ),
    # A bit of a subscriber and a byte of one of its facilities, which it may not have: then neither
    "UpdateSubscriberData": (
        Sql("set_bit", "UPDATE subscriber SET bit_1 = :bit WHERE s_id = :s_id"),
        Sql("set_data_a", "UPDATE special_facility SET data_a = :data_a WHERE s_id = :s_id AND sf_type = :type"),
    ),
    "UpdateLocation": (
        _FIND,
        Sql("set_location", "UPDATE subscriber SET vlr_location = :location WHERE s_id = :s_id"),
    ),
    # Its facility may not be there, or have a forwarding at that time already
    "InsertCallForwarding": (
        _FIND,
        Sql("get_facilities", "SELECT sf_type FROM special_facility WHERE s_id = :s_id", least=0, rows_max=5),
        Sql(
            "insert_forwarding",
            "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx)"
            " VALUES (:s_id, :type, :start, :end, :numberx)",
            logical_errors=VIOLATIONS["unique"] | VIOLATIONS["foreign_key"],
        ),
    ),
    "DeleteCallForwarding": (
        _FIND,
        Sql(
            "delete_forwarding",
            "DELETE FROM call_forwarding WHERE s_id = :s_id AND sf_type = :type AND start_time = :start",
        ),
    ),
}
HLR_TRANSACTIONS: tuple[str, ...] = tuple(DECLARED)
HLR_WEIGHTS: Mapping[str, float] = dict(zip(HLR_TRANSACTIONS, (35.0, 35.0, 10.0, 2.0, 14.0, 2.0, 2.0), strict=True))


# ---- parameters -----------------------------------------------------------------------------------------------------


class Hlr(Ranged):
    """Parameters of `kind: hlr` (the home location register workload, TATP)."""

    KEYS = ("population", "subscribers")

    population: int = Field(default=100_000, ge=1, le=10_000_000_000, description="Subscribers: rows in SUBSCRIBER.")
    keys: Literal["uniform", "nurand"] = Field(
        default="uniform", description="Distribution of subscribers: all alike, or with the specification's hot spots."
    )
    cardinality: Literal["tatp", "lab"] = Field(
        default="tatp",
        description="Rows beside each subscriber: the specification's 2.5 / 2.5 / 3.75 on average, or exactly 5 / 5, "
        "and 0.1 on average.",
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the data and of the keys drawn.")
    partitions: int = Field(default=1, ge=1, le=1_000, description="Range partitions of every table, by subscriber.")
    range: Range = Field(
        default=None, description="First and last subscriber that the load touches; all of them by default."
    )
    weights: Annotated[dict[str, float], mix(HLR_TRANSACTIONS)] = Field(
        default_factory=lambda: dict(HLR_WEIGHTS),
        description="The mix: a weight per transaction; a transaction that is left out does not run.",
    )

    @model_validator(mode="after")
    def _no_empty_partitions(self) -> Self:
        if self.partitions > self.population:
            raise ValueError(f"{self.partitions} partitions of {self.population} subscribers would leave some empty")
        return self


def _engine_problem(model: Hlr, engine: str) -> str | None:
    if model.partitions == 1:
        return None
    if engine in {"sqlite", "duckdb", "timesten"}:
        title = engines.of(engine).title
        return f"{title} has no partitioned tables, but the workload asks for {model.partitions} partitions"
    if engine == "mysql":
        return (
            "MySQL's partitioned tables have no foreign keys, by which this workload's inserts fail where they should; "
            f"the workload asks for {model.partitions} partitions"
        )
    return None


# ---- shares of success ----------------------------------------------------------------------------------------------
#
# `shares(parameters)` enumerates the distributions that `workloads.hlr_workload` loads and draws from, so a change of
# the weights or the cardinality changes the expectation. Fresh is a load that was just made. Steady is where
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
# between the extremes.

START_TIMES: tuple[int, ...] = (0, 8, 16)
END_TIMES = range(1, 25)
HOURS = range(1, 9)
ACTIVE = 0.85
LAB_FORWARDINGS = 0.1
LAB_TYPES = 5

Slots = frozenset[int]
FullAndAfter = Callable[[int, int, bool], float]


def types_of(parameters: Hlr) -> int:
    """The number of types of access information and of special facility: types are 1 … this."""
    return 4 if parameters.cardinality == "tatp" else LAB_TYPES


def shares(parameters: Hlr) -> Mapping[str, Sequence[float]]:
    """Expected success fractions of each of the seven transactions under these parameters, from a fresh load to one
    that has aged for ever; at any age between, they lie between the least and the largest of these."""
    exists = 0.625 if parameters.cardinality == "tatp" else 1.0
    insert, delete = parameters.weights["InsertCallForwarding"], parameters.weights["DeleteCallForwarding"]
    slots = _loaded_slots(parameters.cardinality)
    full = sum(probability * len(chosen) for chosen, probability in slots.items()) / len(START_TIMES)
    full_steady = insert / (insert + delete) if insert + delete else full
    found = [exists * ACTIVE * part for part in _found_by_age(parameters.cardinality, insert, delete)]
    return {
        "GetBasicSubscriberData": (1.0,),
        "GetAccessData": (exists,),
        "GetNewDestination": found,
        "UpdateSubscriberData": (exists,),
        "UpdateLocation": (1.0,),
        "InsertCallForwarding": (exists * (1.0 - full), exists * (1.0 - full_steady)),
        "DeleteCallForwarding": (exists * full, exists * full_steady),
    }


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
    sizes = range(len(START_TIMES) + 1)
    subsets = [chosen for size in sizes for chosen in itertools.combinations(START_TIMES, size)]
    return {frozenset(chosen): 0.25 / math.comb(len(START_TIMES), len(chosen)) for chosen in subsets}


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


KIND = WorkloadExtension(
    parameters=Hlr,
    transactions=lambda _: HLR_TRANSACTIONS,
    build="proveout.dsl.workloads.hlr_workload:HlrWorkload",
    writes=runs_any(writers(DECLARED)),
    rows=lambda model: model.population * sum(mean for mean, *_ in PER_SUBSCRIBER[model.cardinality]),
    tables=lambda _: NAMES,
    load_only=frozenset({"keys", "range", "weights"}),
    engine_problem=_engine_problem,
    division_problem=division_problem,
    part=part,
)
