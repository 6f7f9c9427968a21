"""Random arguments of the TPTBM transactions, drawn ahead in numpy batches; and the two walks that are not random.

Reads and updates take any loaded row, all alike. Inserts and deletes walk, each terminal by itself:

- *Inserts* go beyond the loaded ids: vpn_id = key + the terminal's stream (see `stripe`), vpn_nb counts from 0. No two
  terminals of a load, and no two iterations of a run, have a stripe in common, so an insert never meets a row.
- *Deletes* walk the loaded rows in their order, each terminal from a place of its own: terminal k starts at the van der
  Corput fraction of k (0, 1/2, 1/4, 3/4, 1/8 …), which keeps any number of terminals about evenly apart without any of
  them knowing how many there are; and every iteration turns all places by a fraction of its own. A walk that comes to
  where another (or an earlier iteration) has been finds nothing: a miss, which is counted, as in the original.

The original has a stripe of ids per process and starts again with each run of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from proveout.dsl.workloads.base import Request
from proveout.dsl.workloads.random_streams import RowDraw, Rows, row, sources, stripe
from proveout.dsl.workloads.tptbm import rows as tptbm_rows
from proveout.dsl.workloads.tptbm.parameters import TPTBM_TRANSACTIONS, Tptbm
from proveout.dsl.workloads.tptbm.statements import DELETE, INSERT, READ, UPDATE

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
        texts = (tptbm_rows.directory_nb(vpn_id, vpn_nb), tptbm_rows.NO_CALLER, tptbm_rows.descr(vpn_id, vpn_nb))
        yield INSERT, (vpn_id, vpn_nb, *texts)
        vpn_nb += 1


def _deletes(key: int, row: int) -> Iterator[Request]:
    while True:
        yield DELETE, divmod(row, key)
        row = (row + 1) % (key * key)
