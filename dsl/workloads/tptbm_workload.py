"""The TPTBM workload: reads, updates, inserts and deletes by key on one table of key × key rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads import ddl, tptbm
from proveout.dsl.workloads.base import Population, Statement
from proveout.dsl.workloads.conformance import Finding, Seen, Z, judge_mix, judge_shares
from proveout.dsl.workloads.random_streams import Ints, Rows, five_digits, iteration_and_terminal, stripe
from proveout.dsl.workloads.tptbm import VPN_USERS, WIDTH, Tptbm
from proveout.dsl.workloads.transactions import WHOLE, Bind, Column, Declared, constant, counting, derived, whole

# Row u (from 1) has vpn_id = (u - 1) div key and vpn_nb = (u - 1) mod key. directory_nb is 55 and the last four digits
# of each, descr names both, as the original does (there the numbers in descr have no leading zeros; here five digits
# make every row equally long). Texts fill their CHAR columns with spaces to the last character, so that they are as
# long in an engine that does not pad.

DESCRIPTION = "<place holder for description of VPN {:05d} extension {:05d}>"
NO_CALLER = "0" * 10
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

PLACE_BITS = 32
TURN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: multiples of it are spread evenly over the circle


def delete_start(rows: int, stream: int) -> int:
    """The row (from 0) where a terminal's deletes begin."""
    iteration, terminal = iteration_and_terminal(stream)
    place = int(f"{terminal:0{PLACE_BITS}b}"[::-1], 2)
    turn = iteration * TURN % (1 << 64) >> 64 - PLACE_BITS
    return ((place + turn) % (1 << PLACE_BITS)) * rows >> PLACE_BITS


class TptbmWorkload(Declared):
    """A `base.WorkloadKind`: TPTBM with its parameters. Updates write what belongs to the row; the numbers of rows are
    held against the clients' counts."""

    parameters: Tptbm
    declared = tptbm.DECLARED
    purpose = 100
    invariants = (tptbm.CALLERS,)

    @property
    def repeats(self) -> int:
        return self.parameters.ops_per_transaction

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """An update writes what the original program does: the row's own id and number, cut to the column."""
        key = self.parameters.key
        if transaction == "Insert":
            vpn_id = key + stripe(stream)
            return {
                "id": constant(WHOLE, vpn_id),
                "nb": counting(),
                "directory": derived("U10", lambda drawn: [directory_nb(vpn_id, nb) for nb in drawn["nb"].tolist()]),
                "caller": constant("U10", NO_CALLER),
                "descr": derived(f"U{WIDTH}", lambda drawn: [descr(vpn_id, nb) for nb in drawn["nb"].tolist()]),
            }
        if transaction == "Delete":
            rows = self.parameters.rows
            first = delete_start(rows, stream)
            return {"id": counting(first, lambda row: row % rows // key), "nb": counting(first, lambda row: row % key)}
        loaded = whole(0, key - 1)
        return {"id": loaded, "nb": loaded, "caller": derived("U10", _callers)}

    def counted(self, transaction: str) -> Statement | None:
        return tptbm.counted(self.parameters.key).get(transaction) if self.repeats == 1 else None

    @cached_property
    def population(self) -> Population:
        """The one table."""
        own = self.parameters
        return ddl.population(
            own.rows, [VPN_USERS], lambda _, *units: vpn_users(own, *units), {VPN_USERS.name: own.rows}
        )

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Tptbm]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are the expected ones; see `conformance`.

        Inserts always succeed. Where rows are deleted, reads and updates draw their rows alike, so that they miss
        alike: a read's range is estimated from the updates (Wilson's interval at z = 5), all of 0 … 1 without any.
        """
        shares = dict.fromkeys(self.parameters.weights, (1.0, 1.0))
        if any(one.weights["Delete"] > 0 for one in (self.parameters, *earlier)):
            updates = next((one for one in seen if one.name == "Update"), Seen(name="Update", ok=0, logical_failures=0))
            shares |= {"Read": interval(updates.ok, updates.logical_failures), "Update": ANYTHING, "Delete": ANYTHING}
        return judge_mix(self.parameters.weights, seen), judge_shares(shares, seen, math.inf)


def _callers(drawn: Mapping[str, Column]) -> list[str]:
    pairs = zip(drawn["id"].tolist(), drawn["nb"].tolist(), strict=True)
    return [f"{vpn_id}x{vpn_nb}"[:10].ljust(10) for vpn_id, vpn_nb in pairs]


ANYTHING = (0.0, 1.0)


def interval(ok: int, failed: int) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) when nothing was counted."""
    count = ok + failed
    if not count:
        return ANYTHING
    share, weight = ok / count, Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
