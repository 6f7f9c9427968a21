"""TPTBM: rows computed from their numbers, arguments within the loaded rows, and inserts and deletes of disjoint rows."""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any

import pytest
from driven import Given, assert_even, built, drive, in_turn, rows
from driven import drawn as inputs

from proveout.dsl.workloads.base import Outcome
from proveout.dsl.workloads.random_streams import stripe
from proveout.dsl.workloads.tptbm import Tptbm
from proveout.dsl.workloads.tptbm_workload import delete_start, descr, directory_nb

SMALL = {"key": 30, "seed": 3}


def stream(iteration: int, terminal: int) -> int:
    """The number of a stream, as the load computes it."""
    return iteration << 32 | terminal


def test_texts_are_as_wide_as_their_columns_and_name_the_row() -> None:
    (row,) = rows(built("tptbm", {"key": 3163}), "vpn_users", 3162 * 3163 + 42, 1)
    assert row[:2] == (3162, 41)
    assert row[2] == b"5531620041" == directory_nb(3162, 41).encode()
    assert (len(row[3]), len(row[4])) == (10, 100)
    assert row[4] == descr(3162, 41).encode()
    assert row[4].strip() == b"<place holder for description of VPN 03162 extension 00041>"


# ---- arguments


def drawn(name: str, count: int, number: int = 0, key: int = 30) -> list[tuple[Any, ...]]:
    return [values for _, values in inputs(built("tptbm", SMALL | {"key": key}), name, count, number)]


def test_reads_and_updates_take_any_loaded_row_alike() -> None:
    for name, of in (("Read", slice(0, 2)), ("Update", slice(1, 3))):
        assert_even([i * 30 + n for i, n in (values[of] for values in drawn(name, 90_000))], 0, 899)
    assert all(text == f"{i}x{n}".ljust(10) for text, i, n in drawn("Update", 200)), "as the original writes"
    assert all(len(text) == 10 for text, _, _ in drawn("Update", 200, key=100_000))


def test_inserts_lie_beyond_the_loaded_ids_and_never_meet() -> None:
    """Over all terminals of several iterations, with seeds at both ends of their range."""
    seeds = (0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1)
    ids = [values[:2] for seed in seeds for k in range(64) for values in drawn("Insert", 20, stream(seed, k))]
    assert len(set(ids)) == len(ids) == 6 * 64 * 20
    assert 30 <= min(vpn_id for vpn_id, _ in ids) <= max(vpn_id for vpn_id, _ in ids) < 2**63
    assert stripe(stream(2**32 - 1, 2**24 - 1)) == 2**56 - 1
    (row,) = drawn("Insert", 1, stream(2**32 - 1, 2**24 - 1), key=100_000)
    assert [len(text) for text in row[2:]] == [10, 10, 100], "as wide as a loaded one"


@pytest.mark.parametrize("terminals", [1, 3, 64])
def test_deletes_of_many_terminals_meet_late(terminals: int) -> None:
    """Starts are at least half an even share apart in every iteration."""
    table = Tptbm(key=1000).rows
    for seed in (0, 5, 2**32 - 1):
        starts = sorted(delete_start(table, stream(seed, k)) for k in range(terminals))
        gaps = [b - a for a, b in itertools.pairwise([*starts, starts[0] + table])]
        assert min(gaps) >= table // terminals // 2 - 1


def test_iterations_start_their_deletes_elsewhere_and_walk_over_every_row() -> None:
    starts = sorted(delete_start(10**6, stream(seed, 0)) for seed in range(1000))
    assert len(set(starts)) == 1000
    assert max(b - a for a, b in itertools.pairwise(starts)) < 10_000
    walked = drawn("Delete", 901, stream(7, 3))
    assert set(walked[:900]) == set(itertools.product(range(30), range(30)))
    assert walked[900] == walked[0]


# ---- transactions


@pytest.mark.parametrize(
    ("statements", "found", "outcome"),
    [
        (1, [1], Outcome.COMMIT),
        (1, [0], Outcome.LOGICAL_FAILURE),
        (3, [1, 1, 1], Outcome.COMMIT),
        (3, [1, 0], Outcome.LOGICAL_FAILURE),
    ],
)
def test_statements_share_a_commit_until_one_misses(statements: int, found: list[int], outcome: Outcome) -> None:
    one = built("tptbm", SMALL | {"ops_per_transaction": statements})
    for kind in one.transactions:
        assert kind.single == kind.bare == (statements == 1)
        sent, ended = drive(kind, kind.inputs(one.keys(0))(), in_turn(*map(Given, found)))
        assert (len(sent), ended) == (len(found), outcome)


# ---- invariants --------------------------------------------------------------------------------------------------


def test_the_database_counts_inserts_and_deletes_and_tells_an_update_of_another_row() -> None:
    workload = built("tptbm", SMALL)
    (callers,) = workload.invariants
    kinds = {one.name: one for one in workload.transactions}
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr)")
    texts = [
        [one.decode() if isinstance(one, bytes) else one for one in row] for row in rows(workload, "vpn_users", 1, 900)
    ]
    database.executemany("INSERT INTO vpn_users VALUES (?, ?, ?, ?, ?)", texts)

    def read(statement: Any) -> tuple[int, ...]:
        return tuple(database.execute(statement.text["sqlite"]).fetchone())

    def ran(source: str, count: int) -> int:
        done = [kinds[source].statements[0].text["sqlite"] for _ in range(count)]
        return sum(database.execute(t, v).rowcount for t, v in zip(done, drawn(source, count), strict=True))

    assert read(callers.statement) == (900, 900)
    for source in ("Insert", "Delete"):
        assert read(kinds[source].counted) == (0,)
        assert ran(source, 20) == 20
        assert read(kinds[source].counted) == (20,)
    assert ran("Update", 100) > 50
    assert read(callers.statement) == (900, 900)
    database.execute("UPDATE vpn_users SET last_calling_party = '1x2' WHERE vpn_id = 3 AND vpn_nb = 4")
    assert read(callers.statement) == (899, 900)
    assert [one.counted for one in built("tptbm", {**SMALL, "ops_per_transaction": 2}).transactions] == [None] * 4
