"""A run with two loads that share the threads of a ladder, on two systems, and a query beside them."""

from __future__ import annotations

from typing import Any

import pytest
from whole_run import Done, run

PLAN = """
proveout: 1
name: together
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    one: {engine: sqlite, host: h, provision: embedded}
    two: {engine: sqlite, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 200, weights: {GetBasicSubscriberData: 1}}
  report: {kind: sql, transactions: {total: {statements: {n: "SELECT count(*) FROM subscriber"}}}}
  pages:
    kind: sql
    in_order: true
    transactions:
      First: {statements: {n: "SELECT count(*) FROM subscriber"}}
      Second: {statements: {n: "SELECT count(*) FROM access_info"}}
stages:
  - populate: {workload: hlr, into: [one, two]}
  - ladder:
      id: both
      loads:
        low: {workload: hlr, target: one, share: 1/2, range: [1, 100]}
        high: {workload: hlr, target: two, share: 1/2, range: [101, 200]}
        nightly: {workload: report, target: two, threads: 1, rate: 20/s}
      threads: 4
      ramp_up: 200ms
      measure: 2s
      ramp_down: 0s
      repeat: 2
      limits: NEVER_VOID
  - ladder:
      id: sets
      loads:
        short: {workload: pages, target: one, share: 1/2}
        long: {workload: pages, target: two, share: 1/2}
      threads: 4
      passes: 3
      within: 1m
      repeat: 2
      limits: NEVER_VOID
report: {without: [others]}
verdicts:
  - {id: sum, check: both.at(4).tps.mean > both.at(4).loads.low.tps.mean}
  - {id: nightly, check: both.at(4).loads.nightly.transactions.total.tps.mean > 0}
"""

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return run(tmp_path_factory.mktemp("loads"), PLAN).ended(0, 3)


def iterations(done: Done, ladder: str) -> list[Any]:
    return [item for item in done.stages[ladder]["iterations"] if item["valid"]]


def test_the_rung_is_the_sum_of_its_shares_and_tables_name_the_load_of_each_transaction(finished: Done) -> None:
    assert len(iterations(finished, "both")) == 2
    for item in iterations(finished, "both"):
        loads = item["metrics"]["loads"]
        assert item["metrics"]["tps"] == pytest.approx(loads["low"]["tps"] + loads["high"]["tps"])
        assert [loads[name]["threads"] for name in ("low", "high", "nightly")] == [2, 2, 1]
        assert loads["low"]["errors"]["count"] == 0
        assert loads["nightly"]["rate"] == 20.0 and item["beside"] == ["nightly"]
        assert {one["load"] for one in item["findings"] if one["check"] == "mix"} == {"low", "high", "nightly"}
    assert "By load" in finished.out
    rows = {(row["transaction"], row["target"]) for row in finished.table("csv") if row["stage"] == "both"}
    assert {
        ("(all)", "one + two"), ("low.(all)", "one"), ("high.(all)", "two"), ("nightly.(all)", "two"),
        ("low.GetBasicSubscriberData", "one"), ("nightly.total", "two"),
    } == rows - {("high.GetBasicSubscriberData", "two")}  # fmt: skip


def test_every_thread_of_each_load_runs_its_passes(finished: Done) -> None:
    assert len(iterations(finished, "sets")) == 2
    for item in iterations(finished, "sets"):
        loads = item["metrics"]["loads"]
        for name in ("short", "long"):
            assert loads[name]["ended"]["count"] == 2 * 3 * 2
            assert 0.0 < loads[name]["pass"]["max_s"] <= loads[name]["elapsed_s"] <= item["measure_s"] + 0.001
        passes = {one["load"]: one["ok"] for one in item["findings"] if one["check"] == "passes"}
        assert passes == {"short": True, "long": True}
