"""TPTBM: rows computed from their numbers, arguments within the loaded rows, and inserts and deletes of disjoint rows."""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any

import numpy as np
import pytest

from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Outcome, TransactionType
from proveout.dsl.workloads.conformance import Finding, Seen, chi2_survival, conform
from proveout.dsl.workloads.random_streams import stripe
from proveout.dsl.workloads.tptbm.keys import Keys, delete_start
from proveout.dsl.workloads.tptbm.parameters import Tptbm
from proveout.dsl.workloads.tptbm.rows import descr, directory_nb
from proveout.dsl.workloads.tptbm.workload import build, interval

SMALL = Tptbm(key=30, seed=3)


def stream(iteration: int, terminal: int) -> int:
    """The number of a stream, as the load computes it."""
    return iteration << 32 | terminal


def rows(parameters: Tptbm, first: int, count: int) -> list[tuple[Any, ...]]:
    (table,) = build(parameters).population.tables
    return list(zip(*(column.tolist() for column in table.rows(first, count)), strict=True))


# ---- rows --------------------------------------------------------------------------------------------------------


def test_there_are_key_squared_rows_with_every_pair_once() -> None:
    whole = rows(SMALL, 1, 900)
    assert [(row[0], row[1]) for row in whole] == list(itertools.product(range(30), range(30)))
    assert build(SMALL).population.expected == {"vpn_users": (900, 900)}
    assert build(SMALL).population.units == 900


@pytest.mark.parametrize("cut", [1, 7, 450, 899])
def test_a_row_does_not_depend_on_the_slicing(cut: int) -> None:
    assert rows(SMALL, 1, cut) + rows(SMALL, cut + 1, 900 - cut) == rows(SMALL, 1, 900)


def test_texts_are_as_wide_as_their_columns_and_name_the_row() -> None:
    big = Tptbm(key=3163)
    (row,) = rows(big, 3162 * 3163 + 42, 1)
    assert row[:2] == (3162, 41)
    assert row[2] == b"5531620041" == directory_nb(3162, 41).encode()
    assert len(row[3]) == 10
    assert row[4] == descr(3162, 41).encode()
    assert len(row[4]) == 100
    assert row[4].strip() == b"<place holder for description of VPN 03162 extension 00041>"


# ---- arguments ---------------------------------------------------------------------------------------------------


def drawn(source: str, count: int, number: int = 0, parameters: Tptbm = SMALL) -> list[tuple[Any, ...]]:
    take = getattr(Keys(parameters, number), source)
    return [take()[1] for _ in range(count)]


def test_reads_and_updates_take_any_loaded_row_alike() -> None:
    for source, of in (("read", slice(0, 2)), ("update", slice(1, 3))):
        ids = [values[of] for values in drawn(source, 90_000)]
        counts = np.bincount([vpn_id * 30 + vpn_nb for vpn_id, vpn_nb in ids], minlength=900)
        assert len(counts) == 900
        assert chi2_survival(float(((counts - 100.0) ** 2 / 100.0).sum()), 899) > 1e-4


def test_an_update_writes_what_the_original_writes() -> None:
    assert all(text == f"{i}x{n}".ljust(10) for text, i, n in drawn("update", 200))
    wide = drawn("update", 200, parameters=Tptbm(key=100_000))
    assert all(len(text) == 10 for text, _, _ in wide)


@pytest.mark.parametrize("source", Keys.__slots__)
def test_a_stream_draws_the_same_again_and_no_other_does(source: str) -> None:
    assert drawn(source, 500, stream(9, 1)) == drawn(source, 500, stream(9, 1))
    assert drawn(source, 500, stream(9, 1)) != drawn(source, 500, stream(9, 2))
    assert drawn(source, 500, stream(9, 1)) != drawn(source, 500, stream(8, 1))


def test_inserts_lie_beyond_the_loaded_ids_and_never_meet() -> None:
    """Over all terminals of several iterations, with seeds at both ends of their range."""
    seeds = (0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1)
    ids = [values[:2] for seed in seeds for k in range(64) for values in drawn("insert", 20, stream(seed, k))]
    assert len(set(ids)) == len(ids) == 6 * 64 * 20
    assert min(vpn_id for vpn_id, _ in ids) >= 30
    assert max(vpn_id for vpn_id, _ in ids) < 2**63
    assert stripe(stream(2**32 - 1, 2**24 - 1)) == 2**56 - 1


def test_an_inserted_row_is_as_wide_as_a_loaded_one() -> None:
    (row,) = drawn("insert", 1, stream(2**32 - 1, 2**24 - 1), Tptbm(key=100_000))
    assert [len(text) for text in row[2:]] == [10, 10, 100]


@pytest.mark.parametrize("terminals", [1, 2, 3, 4, 10, 64, 256])
def test_deletes_of_many_terminals_meet_late(terminals: int) -> None:
    """Starts are at least half an even share apart in every iteration."""
    table = Tptbm(key=1000).rows
    for seed in (0, 5, 2**32 - 1):
        starts = sorted(delete_start(table, stream(seed, k)) for k in range(terminals))
        gaps = [b - a for a, b in itertools.pairwise([*starts, starts[0] + table])]
        assert min(gaps) >= table // terminals // 2 - 1


def test_iterations_start_their_deletes_elsewhere() -> None:
    starts = sorted(delete_start(10**6, stream(seed, 0)) for seed in range(1000))
    assert len(set(starts)) == 1000
    assert max(b - a for a, b in itertools.pairwise(starts)) < 10_000


def test_a_walk_of_deletes_comes_to_every_row_and_begins_again() -> None:
    walked = drawn("delete", 901, stream(7, 3))
    assert set(walked[:900]) == set(itertools.product(range(30), range(30)))
    assert walked[900] == walked[0]


# ---- transactions ------------------------------------------------------------------------------------------------


class Given:
    def __init__(self, count: int) -> None:
        self.count = count

    def rows(self) -> list[tuple[Any, ...]]:
        return []


def run(kind: TransactionType, counts: list[int]) -> tuple[Outcome, int]:
    """Run a transaction whose statements find these numbers of rows; return its outcome and number of statements."""
    body, given = kind.body(kind.inputs(Keys(SMALL, 0))()), iter(counts)
    body.send(None)
    for ran in itertools.count(1):
        try:
            body.send(Given(next(given)))
        except StopIteration as stop:
            return stop.value, ran
    raise AssertionError


def test_one_statement_is_a_transaction_of_its_own() -> None:
    for kind in build(SMALL).transactions:
        assert kind.single
        assert kind.bare
        assert run(kind, [1]) == (Outcome.COMMIT, 1)
        assert run(kind, [0]) == (Outcome.LOGICAL_FAILURE, 1)


def test_several_statements_share_a_commit_until_one_misses() -> None:
    for kind in build(Tptbm(key=30, ops_per_transaction=3)).transactions:
        assert not kind.single
        assert not kind.bare
        assert run(kind, [1, 1, 1]) == (Outcome.COMMIT, 3)
        assert run(kind, [1, 0]) == (Outcome.LOGICAL_FAILURE, 2)


def test_the_default_mix_is_80_10_5_5() -> None:
    weights = {kind.name: kind.weight for kind in build(Tptbm()).transactions}
    assert weights == {"Read": 80.0, "Update": 10.0, "Insert": 5.0, "Delete": 5.0}


# ---- conformance -------------------------------------------------------------------------------------------------


def findings(seen: dict[str, tuple[int, int]], *earlier: Tptbm, **parameters: Any) -> dict[str, Finding]:
    def compiled(model: Tptbm) -> Workload:
        return Workload(name="w", kind="tptbm", parameters=to_values(model))

    counted = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in seen.items()]
    model = Tptbm.model_validate({"key": 100, **parameters})
    return {finding.check: finding for finding in conform(compiled(model), counted, list(map(compiled, earlier)))}


def test_a_right_load_conforms_fresh_and_with_many_rows_deleted() -> None:
    fresh = {"Read": (80_000, 0), "Update": (10_000, 0), "Insert": (5_000, 0), "Delete": (5_000, 0)}
    aged = {"Read": (40_100, 39_900), "Update": (5_000, 5_000), "Insert": (5_000, 0), "Delete": (100, 4_900)}
    for seen in (fresh, aged):
        assert all(finding.ok for finding in findings(seen).values()), findings(seen)


def test_reads_and_updates_must_miss_alike() -> None:
    seen = {"Read": (80_000, 0), "Update": (9_000, 1_000), "Insert": (5_000, 0), "Delete": (5_000, 0)}
    finding = findings(seen)["logical-failures"]
    assert not finding.ok
    assert "Read" in finding.evidence


def test_an_insert_never_fails() -> None:
    seen = {"Read": (80_000, 0), "Update": (10_000, 0), "Insert": (4_999, 1), "Delete": (5_000, 0)}
    assert not findings(seen)["logical-failures"].ok


def test_without_deletes_nothing_misses() -> None:
    reads = {"weights": {"Read": 1.0}}
    assert findings({"Read": (100_000, 0)}, **reads)["logical-failures"].ok
    assert not findings({"Read": (99_000, 1_000)}, **reads)["logical-failures"].ok
    assert findings({"Read": (99_000, 1_000)}, Tptbm(), **reads)["logical-failures"].ok, "an earlier load deleted"


def test_a_wrong_mix_is_detected() -> None:
    """The mix 80-10-5-5, misread as read, insert, delete, update."""
    assert not findings({"Read": (80_000, 0), "Update": (5_000, 0), "Insert": (10_000, 0), "Delete": (5_000, 0)})[
        "mix"
    ].ok


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 1.0])
def test_the_interval_holds_the_share_it_was_counted_from(share: float) -> None:
    ok = round(share * 10_000)
    low, high = interval(ok, 10_000 - ok)
    assert 0.0 <= low <= share <= high + 1e-12
    assert high - low < 0.06
    assert interval(0, 0) == (0.0, 1.0)


# ---- invariants --------------------------------------------------------------------------------------------------


def test_the_database_counts_inserts_and_deletes_and_tells_an_update_of_another_row() -> None:
    workload = build(SMALL)
    (callers,) = workload.invariants
    kinds = {one.name: one for one in workload.transactions}
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr)")
    texts = [[one.decode() if isinstance(one, bytes) else one for one in row] for row in rows(SMALL, 1, 900)]
    database.executemany("INSERT INTO vpn_users VALUES (?, ?, ?, ?, ?)", texts)

    def read(statement: Any) -> tuple[int, ...]:
        return tuple(database.execute(statement.text["sqlite"]).fetchone())

    def ran(source: str, count: int) -> int:
        done = [kinds[source].statements[0].text["sqlite"] for _ in range(count)]
        return sum(database.execute(t, v).rowcount for t, v in zip(done, drawn(source.lower(), count), strict=True))

    assert read(callers.statement) == (900, 900)
    for source in ("Insert", "Delete"):
        assert read(kinds[source].counted) == (0,)
        assert ran(source, 20) == 20
        assert read(kinds[source].counted) == (20,)
    assert ran("Update", 100) > 50
    assert read(callers.statement) == (900, 900)
    database.execute("UPDATE vpn_users SET last_calling_party = '1x2' WHERE vpn_id = 3 AND vpn_nb = 4")
    assert read(callers.statement) == (899, 900)
    assert [one.counted for one in build(Tptbm(key=30, ops_per_transaction=2)).transactions] == [None] * 4
