"""The HLR workload: its transactions, their statements per dialect, and their random arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Row,
    Statement,
    Step,
    Table,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.hlr import HLR_TRANSACTIONS, Hlr
from proveout.dsl.workloads.hlr import tables as hlr_tables
from proveout.dsl.workloads.hlr.tables import END_TIMES, START_TIMES, columns, shares, types_of
from proveout.dsl.workloads.random_streams import RowDraw, Rows, row, sources, steps

# SQLSTATE 23505 unique_violation, 23503 foreign_key_violation, and what SQLite, Oracle and MySQL call them; MySQL's
# 1216
# is 1452 for a user who may not see the referenced table
_MISFITS = frozenset(
    {
        "23505", "23503", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_FOREIGNKEY",
        "ORA-00001", "ORA-02291", "1062", "1452", "1216",
        "DUCKDB_PRIMARY_KEY", "DUCKDB_UNIQUE", "DUCKDB_FOREIGN_KEY",
    }
)  # fmt: skip


def _all(text: str) -> Mapping[Dialect, str]:
    return dict.fromkeys(DIALECTS, text)


_SUBSCRIBER_COLUMNS = columns(1)["subscriber"]
_SUBSCRIBER_NAMES = ", ".join(name for name, _ in _SUBSCRIBER_COLUMNS)

GET_SUBSCRIBER = Statement(
    name="get_subscriber",
    text=_all(f"SELECT {_SUBSCRIBER_NAMES} FROM subscriber WHERE s_id = $1"),  # noqa: S608 (our own column names)
    arguments=(int,),
    columns=tuple(int if kind.startswith("int") else str for _, kind in _SUBSCRIBER_COLUMNS),
    rows_max=1,
)
GET_ACCESS = Statement(
    name="get_access",
    text=_all("SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2"),
    arguments=(int, int),
    columns=(int, int, str, str),
    rows_max=1,
)
GET_DESTINATION = Statement(
    name="get_destination",
    text=_all(
        "SELECT cf.numberx FROM special_facility sf, call_forwarding cf"
        " WHERE sf.s_id = $1 AND sf.sf_type = $2 AND sf.is_active = 1"
        " AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type AND cf.start_time <= $3 AND $4 < cf.end_time"
    ),
    arguments=(int, int, int, int),
    columns=(str,),
    rows_max=3,
)
SET_BIT = Statement(
    name="set_bit",
    text=_all("UPDATE subscriber SET bit_1 = $1 WHERE s_id = $2"),
    arguments=(int, int),
    reads=False,
    rows_only=True,
)
SET_DATA_A = Statement(
    name="set_data_a",
    text=_all("UPDATE special_facility SET data_a = $1 WHERE s_id = $2 AND sf_type = $3"),
    arguments=(int, int, int),
    reads=False,
    rows_only=True,
)
FIND_NUMBER = Statement(
    name="find_number",
    text=_all("SELECT s_id FROM subscriber WHERE sub_nbr = $1"),
    arguments=(str,),
    columns=(int,),
    rows_max=1,
)
SET_LOCATION = Statement(
    name="set_location",
    text=_all("UPDATE subscriber SET vlr_location = $1 WHERE s_id = $2"),
    arguments=(int, int),
    reads=False,
    rows_only=True,
)
GET_FACILITIES = Statement(
    name="get_facilities",
    text=_all("SELECT sf_type FROM special_facility WHERE s_id = $1"),
    arguments=(int,),
    columns=(int,),
    rows_max=5,
)
INSERT_FORWARDING = Statement(
    name="insert_forwarding",
    text=_all("INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx) VALUES ($1, $2, $3, $4, $5)"),
    arguments=(int, int, int, int, str),
    reads=False,
    rows_only=True,
    logical_errors=_MISFITS,
)
DELETE_FORWARDING = Statement(
    name="delete_forwarding",
    text=_all("DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3"),
    arguments=(int, int, int),
    reads=False,
    rows_only=True,
)


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


# Success and failure follow the TATP specification (version 1.0): a transaction that finds nothing, changes nothing, or
# inserts what is there already (or belongs to no special facility) has failed *logically*; it is rolled back and
# counted apart.

COMMIT, LOGICAL_FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE


def find(request: Request) -> Body:
    """One statement that finds a row or not: a subscriber's row; its access information of one type, which it may not
    have; where calls to an active special facility are forwarded to at a time of day, if they are."""
    result = yield request
    return COMMIT if result.count else LOGICAL_FAILURE


# Of each transaction: which of the keys its inputs are, and its statements
_READS: Mapping[str, tuple[str, Statement]] = {
    "GetBasicSubscriberData": ("subscriber", GET_SUBSCRIBER),
    "GetAccessData": ("access", GET_ACCESS),
    "GetNewDestination": ("destination", GET_DESTINATION),
}
_CHANGES: Mapping[str, tuple[str, tuple[Step, ...]]] = {
    # A bit of a subscriber and a byte of one of its facilities, which it may not have: then neither
    "UpdateSubscriberData": ("subscriber_data", (Step(SET_BIT), Step(SET_DATA_A))),
    "UpdateLocation": ("location", (Step(FIND_NUMBER, keeps=1), Step(SET_LOCATION, places=(1, 0)))),
    # Its facility may not be there, or have a forwarding at that time already
    "InsertCallForwarding": (
        "insert",
        (
            Step(FIND_NUMBER, keeps=1),
            Step(GET_FACILITIES, places=(0,), least=0),
            Step(INSERT_FORWARDING, places=(0, 1, 2, 3, 4)),
        ),
    ),
    "DeleteCallForwarding": ("delete", (Step(FIND_NUMBER, keeps=1), Step(DELETE_FORWARDING, places=(0, 1, 2)))),
}

_TRANSACTIONS = (
    *(
        TransactionType(
            name=name,
            weight=0.0,
            inputs=attrgetter(source),
            body=find,
            statements=(statement,),
            single=True,
            bare=True,
        )
        for name, (source, statement) in _READS.items()
    ),
    *(
        TransactionType(
            name=name,
            weight=0.0,
            inputs=attrgetter(source),
            body=partial(walk, steps),
            statements=tuple(step.statement for step in steps),
            steps=steps,
        )
        for name, (source, steps) in _CHANGES.items()
    ),
)


@dataclass(frozen=True)
class HlrWorkload:
    """A `base.WorkloadKind`: the HLR workload with its parameters."""

    parameters: Hlr

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All seven, in the specification's order; those the plan leaves out have weight 0."""
        expected = shares(self.parameters)
        return tuple(
            replace(
                transaction,
                weight=self.parameters.weights[transaction.name],
                logical_failure=(1.0 - expected[transaction.name].fresh, 1.0 - expected[transaction.name].steady),
            )
            for transaction in _TRANSACTIONS
        )

    @cached_property
    def population(self) -> Population:
        """The four tables; `rows` makes their contents."""
        columns = hlr_tables.columns(self.parameters.population)
        return Population(
            units=self.parameters.population,
            tables=tuple(
                Table(name=name, columns=columns[name], rows=partial(getattr(hlr_tables, name), self.parameters))
                for name in hlr_tables.NAMES
            ),
            before=hlr_tables.before(self.parameters),
            after=hlr_tables.after(self.parameters),
            drop=hlr_tables.drop(),
            expected=hlr_tables.expected(self.parameters),
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """None: nothing is conserved; a load is judged by its success shares (`findings`)."""
        return ()

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Hlr]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are those of the specification; see `conformance`."""
        tables = [shares(one) for one in (self.parameters, *earlier)]
        expected = {name: (min(t[name].low for t in tables), max(t[name].high for t in tables)) for name in tables[0]}
        units = effective_subscribers(self.parameters)
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, units)


def build(parameters: Hlr) -> HlrWorkload:
    """The workload of these parameters."""
    return HlrWorkload(parameters)
