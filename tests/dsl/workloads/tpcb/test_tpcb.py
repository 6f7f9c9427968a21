"""The TPC-B-like workload: rows independent of slicing, arguments in their ranges, the statements of pgbench's scripts,
and which invariants hold beside which loads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads import kinds
from proveout.dsl.workloads.conformance import Finding, Seen, chi2_survival, conform
from proveout.dsl.workloads.kinds import division_problem, key_range, of_workload, part_of
from proveout.dsl.workloads.tpcb.keys import DELTA_MAX, Keys
from proveout.dsl.workloads.tpcb.parameters import TABLES, TPCB_TRANSACTIONS, Tpcb
from proveout.dsl.workloads.tpcb.workload import STEPS, build

SMALL = Tpcb(scale=3, accounts_per_branch=70)
SCRIPTS = {
    "TpcbLike": """
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
""",
    "SimpleUpdate": """
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
""",
}
"""Between BEGIN and END of `pgbench --show-script`."""


def compiled(**parameters: Any) -> Workload:
    return Workload(name="w", kind="tpcb", parameters=to_values(Tpcb.model_validate(parameters)))


def rows(table: str, first: int, count: int, parameters: Tpcb = SMALL) -> list[tuple[Any, ...]]:
    made = {one.name: one for one in build(parameters).population.tables}
    return list(zip(*(column.tolist() for column in made[table].rows(first, count)), strict=True))


# ---- parameters --------------------------------------------------------------------------------------------------


def test_parameters_survive_the_plan() -> None:
    for model in (Tpcb(), Tpcb(scale=9, range=(2, 5), weights={"SelectOnly": 1.0}), SMALL):
        assert of_workload(Workload(name="w", kind="tpcb", parameters=to_values(model))) == model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": {"Transfer": 1.0}}, "no transaction is called Transfer"),
        ({"scale": 0}, "greater than or equal to 1"),
        ({"scale": 2, "range": [2, 3]}, r"range \[2, 3\] does not lie within the branches 1..2"),
        ({"population": 5}, "Extra inputs"),
    ],
)
def test_invalid_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Tpcb.model_validate(given)


# ---- rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("cut", [1, 7, 8, 69, 70, 71, 209])
def test_a_row_does_not_depend_on_the_slicing(table: str, cut: int) -> None:
    whole = rows(table, 1, 210)
    assert rows(table, 1, cut) + rows(table, cut + 1, 210 - cut) == whole
    low, high = build(SMALL).population.expected[table]
    assert low == len(whole) == high


def test_tellers_and_accounts_belong_to_their_branches() -> None:
    assert rows("pgbench_branches", 1, 210) == [(branch, 0, None) for branch in (1, 2, 3)]
    tellers = [(10 * branch + teller, branch + 1, 0, None) for branch in range(3) for teller in range(1, 11)]
    assert rows("pgbench_tellers", 1, 210) == tellers
    made = rows("pgbench_accounts", 1, 210)
    assert made == [(account, (account - 1) // 70 + 1, 0, b" " * 84) for account in range(1, 211)]


def test_a_branch_with_fewer_accounts_than_tellers_has_all_its_tellers() -> None:
    few = Tpcb(scale=4, accounts_per_branch=3)
    parts = [row for first in range(1, 13) for row in rows("pgbench_tellers", first, 1, few)]
    assert [row[0] for row in parts] == list(range(1, 41))


def test_account_numbers_are_as_wide_as_pgbench_makes_them() -> None:
    for scale, kind in ((19_999, "int4"), (20_000, "int8")):
        tables = {table.name: dict(table.columns) for table in build(Tpcb(scale=scale)).population.tables}
        assert tables["pgbench_accounts"]["aid"] == tables["pgbench_history"]["aid"] == kind


# ---- arguments ---------------------------------------------------------------------------------------------------


def drawn(source: str, count: int, stream: int = 0, parameters: Tpcb = SMALL) -> list[Any]:
    take = getattr(Keys(parameters, stream), source)
    return [take() for _ in range(count)]


def test_account_teller_and_branch_are_drawn_apart_and_all_alike() -> None:
    values = np.array([history for *_, history in drawn("tpcb_like", 42_000)])
    for column, high in ((0, 30), (1, 3), (2, 210)):
        counts = np.bincount(values[:, column], minlength=high + 1)[1:]
        assert len(counts) == high
        expected = len(values) / high
        assert chi2_survival(float(((counts - expected) ** 2 / expected).sum()), high - 1) > 1e-4
    deltas = values[:, 3]
    assert (deltas.min(), deltas.max()) == (-DELTA_MAX, DELTA_MAX)
    other = (values[:, 2] - 1) // 70 + 1 != values[:, 1]
    assert other.mean() == pytest.approx(2 / 3, abs=0.02)


@pytest.mark.parametrize("source", ["tpcb_like", "simple_update"])
def test_all_statements_of_a_transaction_have_the_same_values(source: str) -> None:
    for account, balance, *changes, history in drawn(source, 500):
        tid, bid, aid, delta = history
        assert account == (delta, aid)
        assert balance == (aid,)
        assert changes == ([(delta, tid), (delta, bid)] if source == "tpcb_like" else [])


@pytest.mark.parametrize("source", Keys.__slots__)
def test_a_stream_draws_the_same_again_and_no_other_does(source: str) -> None:
    assert drawn(source, 300, 1) == drawn(source, 300, 1)
    assert drawn(source, 300, 1) != drawn(source, 300, 2)


def test_a_load_on_a_range_of_branches_touches_only_theirs() -> None:
    ranged = Tpcb(scale=9, accounts_per_branch=10, range=(4, 6))
    for *_, (tid, bid, aid, _) in drawn("tpcb_like", 2_000, parameters=ranged):
        assert 4 <= bid <= 6
        assert 31 <= tid <= 60
        assert 31 <= aid <= 60
    assert {request[1][0] for request in drawn("select_only", 2_000, parameters=ranged)} == set(range(31, 61))


def test_the_runs_of_members_cover_the_branches_and_none_is_empty() -> None:
    workload = compiled(scale=10)
    assert [key_range(part_of(workload, index, 4)) for index in range(4)] == [(1, 3), (4, 6), (7, 8), (9, 10)]
    assert division_problem(workload, 11) == "10 branches cannot be divided over 11 instances"


# ---- transactions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
def test_the_statements_are_those_of_pgbench(name: str) -> None:
    sent = [re.sub(r"\$\d", "?", step.statement.text["postgres"]) for step in STEPS[name]]
    theirs = [re.sub(r":\w+", "?", line) for line in SCRIPTS[name].strip().split("\n")]
    assert [f"{text};" for text in sent] == theirs


# ---- findings and invariants -------------------------------------------------------------------------------------


def findings(seen: dict[str, tuple[int, int]], **parameters: Any) -> dict[str, Finding]:
    counted = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in seen.items()]
    return {finding.check: finding for finding in conform(compiled(**parameters), counted)}


def test_a_missed_row_and_another_mix_do_not_conform() -> None:
    weights = {"TpcbLike": 1, "SimpleUpdate": 1, "SelectOnly": 2}
    right = {"TpcbLike": (2_500, 0), "SimpleUpdate": (2_500, 0), "SelectOnly": (5_000, 0)}
    assert all(finding.ok for finding in findings(right, weights=weights).values())
    assert not findings(right | {"SelectOnly": (4_999, 1)}, weights=weights)["logical-failures"].ok
    assert not findings(right, weights=dict.fromkeys(TPCB_TRANSACTIONS, 1))["mix"].ok


def test_branches_are_not_held_against_the_history_beside_a_load_that_changes_none() -> None:
    def names(workload: Workload) -> list[str]:
        return [invariant.name for invariant in kinds.build(workload).invariants]

    whole, updates = compiled(scale=2), compiled(scale=2, weights={"SimpleUpdate": 1})
    assert names(whole) == ["accounts", "tellers", "branches"]
    assert names(updates) == ["accounts", "tellers"]
    assert names(kinds.beside(whole, [whole, updates])) == ["accounts", "tellers"]
    other_rows = compiled(scale=3, weights={"SimpleUpdate": 1})
    assert names(kinds.beside(whole, [other_rows, Workload(name="n", kind="noop", parameters=())])) == names(whole)
