"""The HLR workload: its transactions, their statements per dialect, and their random arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads import ddl, hlr_tables
from proveout.dsl.workloads.base import Population, Table
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.hlr_tables import END_TIMES, START_TIMES, Share, columns, shares, types_of
from proveout.dsl.workloads.transactions import WHOLE, Bind, Declared, Sql, digits, whole

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


_SUBSCRIBER = ", ".join(name for name, _ in columns(1)["subscriber"])
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
            logical_errors=_MISFITS,
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

COLLISION_DRAWS = 2**18
Ints = npt.NDArray[np.int64]


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


class HlrWorkload(Declared):
    """A `base.WorkloadKind`: the HLR workload with its parameters. It has no invariants, for nothing is conserved: a
    load is judged by its success shares (`findings`)."""

    parameters: Hlr
    declared = DECLARED
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
            "numberx": Bind("U15", lambda random, count, _: digits(random.integers(0, 10**15, count), 15)),
            "type": whole(1, types_of(self.parameters)),
            "start": Bind(WHOLE, lambda random, count, _: 8 * random.integers(0, len(START_TIMES), count)),
            "end": whole(1, len(END_TIMES)),
        }

    def expected(self, transaction: str) -> tuple[float, float]:
        """See `workloads.hlr_tables.shares`."""
        share = self._shares[transaction]
        return 1.0 - share.fresh, 1.0 - share.steady

    @cached_property
    def _shares(self) -> Mapping[str, Share]:
        return shares(self.parameters)

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
            drop=ddl.drop(hlr_tables.NAMES),
            expected=hlr_tables.expected(self.parameters),
        )

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Hlr]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are those of the specification; see `conformance`."""
        tables = [shares(one) for one in (self.parameters, *earlier)]
        expected = {name: (min(t[name].low for t in tables), max(t[name].high for t in tables)) for name in tables[0]}
        units = effective_subscribers(self.parameters)
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, units)


def build(parameters: Hlr) -> HlrWorkload:
    return HlrWorkload(parameters)
