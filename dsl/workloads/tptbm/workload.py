"""The TPTBM workload: reads, updates, inserts and deletes by key on one table of key × key rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter, itemgetter

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads import ddl
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
from proveout.dsl.workloads.random_streams import Ints, RowDraw, Rows, five_digits, row, sources, stripe
from proveout.dsl.workloads.tptbm import TPTBM_TRANSACTIONS, Tptbm

# Row u (from 1) has vpn_id = (u - 1) div key and vpn_nb = (u - 1) mod key. directory_nb is 55 and the last four digits
# of each, descr names both, as the original does (there the numbers in descr have no leading zeros; here five digits
# make every row equally long). Texts fill their CHAR columns with spaces to the last character, so that they are as
# long in an engine that does not pad.

DESCRIPTION = "<place holder for description of VPN {:05d} extension {:05d}>"
NO_CALLER = "0" * 10
WIDTH = 100
_VPN = DESCRIPTION.index("{")
_EXTENSION = DESCRIPTION.format(0, 0).rindex("0") - 4


def directory_nb(vpn_id: int, vpn_nb: int) -> str:
    """Ten characters."""
    return f"55{vpn_id % 10_000:04d}{vpn_nb % 10_000:04d}"


def descr(vpn_id: int, vpn_nb: int) -> str:
    """A hundred characters; of an inserted row too, whose vpn_id may have more digits."""
    return DESCRIPTION.format(vpn_id, vpn_nb).ljust(WIDTH)


def vpn_users(parameters: Tptbm, first: int, count: int) -> Rows:
    """VPN_USERS: rows `first` … `first + count - 1` (from 1), one array per column."""
    number = np.arange(first - 1, first - 1 + count, dtype=np.int64)
    vpn_id, vpn_nb = np.divmod(number, parameters.key)
    left, right = _digits(vpn_id), _digits(vpn_nb)
    directory = _filled(count, b"55" + bytes(8))
    directory[:, 2:6], directory[:, 6:10] = left[:, 1:], right[:, 1:]
    described = _filled(count, DESCRIPTION.format(0, 0).ljust(WIDTH).encode())
    described[:, _VPN : _VPN + 5], described[:, _EXTENSION : _EXTENSION + 5] = left, right
    no_caller = np.full(count, NO_CALLER.encode(), dtype="S10")
    return [vpn_id, vpn_nb, directory.view("S10")[:, 0], no_caller, described.view(f"S{WIDTH}")[:, 0]]


def _digits(numbers: Ints) -> npt.NDArray[np.uint8]:
    """Shape (count, 5): the five digits of each number below 100,000."""
    five = five_digits()[numbers]
    return five.view(np.uint8).reshape(len(numbers), 5)


def _filled(count: int, text: bytes) -> npt.NDArray[np.uint8]:
    return np.tile(np.frombuffer(text, dtype=np.uint8), (count, 1))


# Source: tptbm.c of the TimesTen quickstart samples (oracle-samples/oracle-timesten-samples), `select_stmnt` and the
# others.


def everywhere(text: str) -> Mapping[Dialect, str]:
    """One text that every dialect takes."""
    return dict.fromkeys(DIALECTS, text)


READ = Statement(
    name="read",
    text=everywhere("SELECT directory_nb, last_calling_party, descr FROM vpn_users WHERE vpn_id = $1 AND vpn_nb = $2"),
    arguments=(int, int),
    columns=(str, str, str),
    rows_max=1,
)
UPDATE = Statement(
    name="update",
    text=everywhere("UPDATE vpn_users SET last_calling_party = $1 WHERE vpn_id = $2 AND vpn_nb = $3"),
    arguments=(str, int, int),
    reads=False,
)
# A duplicate is not a logical failure: no two terminals have an id in common, so it would be a fault of ours.
INSERT = Statement(
    name="insert",
    text=everywhere(
        "INSERT INTO vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr) VALUES ($1, $2, $3, $4, $5)"
    ),
    arguments=(int, int, str, str, str),
    reads=False,
)
DELETE = Statement(
    name="delete",
    text=everywhere("DELETE FROM vpn_users WHERE vpn_id = $1 AND vpn_nb = $2"),
    arguments=(int, int),
    reads=False,
)


def inserted(key: int) -> Statement:
    """The rows that inserts have added: those beyond the loaded ids, which nothing deletes."""
    text = everywhere(f"SELECT COUNT(*) FROM vpn_users WHERE vpn_id >= {key}")  # noqa: S608 - a whole number
    return Statement(name="inserted", text=text, arguments=(), columns=(int,))


def deleted(key: int) -> Statement:
    """The loaded rows that are not there."""
    text = everywhere(f"SELECT {key * key} - COUNT(*) FROM vpn_users WHERE vpn_id < {key}")  # noqa: S608
    return Statement(name="deleted", text=text, arguments=(), columns=(int,))


_KEYS = "CAST(vpn_id AS VARCHAR(20)) || 'x' || CAST(vpn_nb AS VARCHAR(20))"
_CALLERS = (
    "SELECT SUM(CASE WHEN RTRIM(last_calling_party) IN ('0000000000', SUBSTR({}, 1, 10)) THEN 1 ELSE 0 END), COUNT(*) "
    "FROM vpn_users"
)
CALLERS = Statement(
    name="callers",
    text={
        **everywhere(_CALLERS.format(_KEYS)),
        "mysql": _CALLERS.format("CONCAT(CAST(vpn_id AS CHAR), 'x', CAST(vpn_nb AS CHAR))"),
    },
    arguments=(),
    columns=(int, int),
)


# Reads and updates take any loaded row, all alike. Inserts and deletes walk, each terminal by itself:
#
# - *Inserts* go beyond the loaded ids: vpn_id = key + the terminal's stream (see `stripe`), vpn_nb counts from 0. No
#   two terminals of a load, and no two iterations of a run, have a stripe in common, so an insert never meets a row.
# - *Deletes* walk the loaded rows in their order, each terminal from a place of its own: terminal k starts at the van
#   der Corput fraction of k (0, 1/2, 1/4, 3/4, 1/8 …), which keeps any number of terminals about evenly apart without
#   any of them knowing how many there are; and every iteration turns all places by a fraction of its own. A walk that
#   comes to where another (or an earlier iteration) has been finds nothing: a miss, which is counted, as in the
#   original.
#
# The original has a stripe of ids per process and starts again with each run of it.

PURPOSE = 100  # of the first transaction; other workloads' keys have others
PLACE_BITS = 32
TURN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: multiples of it are spread evenly over the circle


class Keys:
    """One terminal's arguments: each attribute gives the next request of a transaction."""

    __slots__ = ("delete", "insert", "read", "update")

    def __init__(self, parameters: Tptbm, stream: int) -> None:
        draws = (
            RowDraw(row("i8", "i8"), lambda random, n: (_loaded(random, n, parameters.key),), READ),
            RowDraw(row("U10", "i8", "i8"), lambda random, n: (_updates(random, n, parameters.key),), UPDATE),
        )
        total = sum(parameters.weights.values()) / parameters.ops_per_transaction
        weights = (parameters.weights[name] for name in TPTBM_TRANSACTIONS[:2])
        drawn = sources(draws, weights, total, seed=parameters.seed, purpose=PURPOSE, stream=stream)
        self.read: Callable[[], Request] = drawn[0]
        self.update: Callable[[], Request] = drawn[1]
        self.insert: Callable[[], Request] = _inserts(parameters.key + stripe(stream)).__next__
        self.delete: Callable[[], Request] = _deletes(parameters.key, delete_start(parameters.rows, stream)).__next__


def delete_start(rows: int, stream: int) -> int:
    """The row (from 0) where a terminal's deletes begin."""
    terminal = stream & (1 << PLACE_BITS) - 1
    place = int(f"{terminal:0{PLACE_BITS}b}"[::-1], 2)
    turn = (stream >> 32) * TURN % (1 << 64) >> 64 - PLACE_BITS
    return ((place + turn) % (1 << PLACE_BITS)) * rows >> PLACE_BITS


def _loaded(random: np.random.Generator, count: int, key: int) -> Rows:
    ids, numbers = random.integers(0, key, (2, count))
    return ids, numbers


def _updates(random: np.random.Generator, count: int, key: int) -> Rows:
    """The new value is that of the original program: the row's own id and number, cut to the column."""
    ids, numbers = _loaded(random, count, key)
    texts = [f"{vpn_id}x{vpn_nb}"[:10].ljust(10) for vpn_id, vpn_nb in zip(ids, numbers, strict=True)]
    return np.array(texts, "U10"), ids, numbers


def _inserts(vpn_id: int) -> Iterator[Request]:
    vpn_nb = 0
    while True:
        texts = (directory_nb(vpn_id, vpn_nb), NO_CALLER, descr(vpn_id, vpn_nb))
        yield INSERT, (vpn_id, vpn_nb, *texts)
        vpn_nb += 1


def _deletes(key: int, row: int) -> Iterator[Request]:
    while True:
        yield DELETE, divmod(row, key)
        row = (row + 1) % (key * key)


# A read, an update or a delete of a row that has been deleted finds nothing: a *logical failure*, counted apart. With
# `ops_per_transaction: n` a transaction is n statements of its own kind in one commit, and one that misses fails as a
# whole. (In the original, n statements drawn one by one share a commit and misses are nothing special.)
#
# Source: tptbm.c of the TimesTen quickstart samples (oracle-samples/oracle-timesten-samples).

STATEMENTS: dict[str, Statement] = dict(zip(TPTBM_TRANSACTIONS, (READ, UPDATE, INSERT, DELETE), strict=True))

VPN_USERS = ddl.TableShape(
    name="vpn_users",
    columns=(
        ("vpn_id", "int8"),  # of four bytes in the original: here inserted ids have room for every terminal's stripe
        ("vpn_nb", "int4"),
        ("directory_nb", "char(10)"),
        ("last_calling_party", "char(10)"),
        ("descr", f"char({WIDTH})"),
    ),
    primary_key="vpn_id, vpn_nb",
)


@dataclass(frozen=True)
class TptbmWorkload:
    """A `base.WorkloadKind`: TPTBM with its parameters."""

    parameters: Tptbm

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All four; those the plan leaves out have weight 0."""
        return tuple(self._transaction(name) for name in TPTBM_TRANSACTIONS)

    def _transaction(self, name: str) -> TransactionType:
        source: Callable[[Keys], Callable[[], Request]] = attrgetter(name.lower())
        operations = self.parameters.ops_per_transaction
        steps = (Step(STATEMENTS[name]),) * operations
        return TransactionType(
            name=name,
            weight=self.parameters.weights[name],
            inputs=source if operations == 1 else partial(_several, source, operations),
            body=_operation if operations == 1 else partial(walk, steps),
            statements=(STATEMENTS[name],),
            single=operations == 1,
            bare=operations == 1,
            steps=() if operations == 1 else steps,
            logical_failure=(0.0, 0.0) if name == "Insert" else None,
            counted=self._counted.get(name),
        )

    @property
    def _counted(self) -> Mapping[str, Statement]:
        """The numbers that grow by one with each transaction of one statement."""
        key = self.parameters.key
        return {"Insert": inserted(key), "Delete": deleted(key)} if self.parameters.ops_per_transaction == 1 else {}

    @cached_property
    def population(self) -> Population:
        """The one table; see `tptbm.workload`."""
        rows = self.parameters.rows
        table = Table(name=VPN_USERS.name, columns=VPN_USERS.columns, rows=partial(vpn_users, self.parameters))
        return Population(
            units=rows,
            tables=(table,),
            before=ddl.before([VPN_USERS]),
            after=ddl.after([VPN_USERS]),
            drop=ddl.drop([VPN_USERS]),
            expected={VPN_USERS.name: (rows, rows)},
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Updates write what belongs to the row; the numbers of rows are held against the clients' counts."""
        return (
            Invariant(
                name="callers",
                title="The last caller of a row is that of the load or of an update of this row",
                left="rows whose last caller is theirs",
                right="rows",
                statement=CALLERS,
            ),
        )

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Tptbm]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are the expected ones; see `conformance`."""
        counts = {one.name: (one.ok, one.logical_failures) for one in seen}
        shares = expected_shares(self.parameters, counts, earlier)
        return judge_mix(self.parameters.weights, seen), judge_expected(shares, seen, math.inf)


def _several(source: Callable[[Keys], Callable[[], Request]], count: int, keys: Keys) -> Callable[[], tuple[Row, ...]]:
    """A source of the arguments of `count` statements at a time."""
    arguments = map(itemgetter(1), iter(source(keys), None))
    return zip(*[arguments] * count, strict=True).__next__


def _operation(request: Request) -> Body:
    """One statement."""
    result = yield request
    return Outcome.COMMIT if result.count else Outcome.LOGICAL_FAILURE


def build(parameters: Tptbm) -> TptbmWorkload:
    """The workload of these parameters."""
    return TptbmWorkload(parameters)


Z = 5.0
ANYTHING = (0.0, 1.0)
ALWAYS = (1.0, 1.0)


def expected_shares(
    parameters: Tptbm, counts: Mapping[str, tuple[int, int]], earlier: Iterable[Tptbm] = ()
) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share; `counts` are (ok, logical failures) of the iteration itself.

    Inserts always succeed. Where rows are deleted, reads and updates draw their rows alike, so that they miss alike: a
    read's range is estimated from the updates (Wilson's interval at z = 5), all of 0 … 1 when there are none.
    """
    deleted = any(one.weights["Delete"] > 0 for one in (parameters, *earlier))
    if not deleted:
        return dict.fromkeys(parameters.weights, ALWAYS)
    return {"Read": interval(*counts.get("Update", (0, 0))), "Update": ANYTHING, "Insert": ALWAYS, "Delete": ANYTHING}


def interval(ok: int, failed: int) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) when nothing was counted."""
    count = ok + failed
    if not count:
        return ANYTHING
    share, weight = ok / count, Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
