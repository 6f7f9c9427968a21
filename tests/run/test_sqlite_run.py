"""A run on SQLite files: facts that its plan expects; two loads that share the threads of a ladder, on two systems, and
a query beside them; a load of a bank in which the plan's own SQL makes a cent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from whole_run import Done, run

PLAN = """proveout: 1
name: files
topology:
  hosts:
    h:
      roles: [client, server]
      address: local
      facts: {cpus: 100_000, rack: 7}
      expect:
        cpus: {min: 1}
        rack: [7, 8]
  systems:
    one: {engine: sqlite, host: h, provision: embedded, expect: {engine: sqlite}}
    two: {engine: sqlite, host: h, provision: embedded}
    bank: {engine: sqlite, host: h, provision: embedded}
  equipment: {array: {kind: storage, connects: h, facts: {volumes: 8}}}
workloads:
  hlr: {kind: hlr, population: 200, weights: {GetBasicSubscriberData: 1}}
  report: {kind: sql, transactions: {total: {statements: {n: "SELECT count(*) FROM subscriber"}}}}
  pages:
    kind: sql
    in_order: true
    transactions:
      First: {statements: {n: "SELECT count(*) FROM subscriber"}}
      Second: {statements: {n: "SELECT count(*) FROM access_info"}}
  ppm: {kind: prepaid, population: 100, weights: {ChangeBalance: 1}}
stages:
  - populate: {id: load, workload: hlr, into: [one, two]}
  - ladder:
      id: both
      loads:
        low: {workload: hlr, target: one, share: 1/2, range: [1, 100]}
        high: {workload: hlr, target: two, share: 1/2, range: [101, 200]}
        nightly: {workload: report, target: two, threads: 1, rate: 20/s}
      threads: 4
      ramp_up: 0s
      measure: 1s
      ramp_down: 0s
      repeat: 1
      limits: NEVER_VOID
  - ladder:
      id: sets
      loads:
        short: {workload: pages, target: one, share: 1/2}
        long: {workload: pages, target: two, share: 1/2}
      threads: 4
      passes: 3
      within: 1m
      repeat: 1
      limits: NEVER_VOID
  - populate: {id: fill, workload: ppm, into: bank}
  - ladder: {id: before, workload: ppm, target: bank, threads: [1], measure: 300ms, repeat: 1, ramp_up: 0s, ramp_down: 0s, limits: NEVER_VOID}
  - sql: {id: theft, system: bank, statements: ["UPDATE accounts SET current_balance = current_balance + 1 WHERE account_id = 7"]}
  - ladder: {id: after, workload: ppm, target: bank, threads: [1], measure: 300ms, repeat: 1, ramp_up: 0s, ramp_down: 0s, limits: NEVER_VOID}
report: {without: [others]}
verdicts:
  - {id: share, check: both.at(4).loads.low.tps.n == 1}
  - {id: nightly, check: both.at(4).loads.nightly.transactions.total.tps.n == 1}
"""

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return run(tmp_path_factory.mktemp("files"), PLAN).ended(1)


def iteration(done: Done, ladder: str) -> Any:
    (found,) = done.stages[ladder]["iterations"]
    assert found["valid"]
    return found


def test_the_rung_is_the_sum_of_its_shares_and_tables_name_the_load_of_each_transaction(finished: Done) -> None:
    item = iteration(finished, "both")
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
    item = iteration(finished, "sets")
    loads = item["metrics"]["loads"]
    for name in ("short", "long"):
        assert loads[name]["ended"]["count"] == 2 * 3 * 2
        assert 0.0 < loads[name]["pass"]["max_s"] <= loads[name]["elapsed_s"] <= item["measure_s"] + 0.001
    passes = {one["load"]: one["ok"] for one in item["findings"] if one["check"] == "passes"}
    assert passes == {"short": True, "long": True}


def test_a_cent_too_much_is_an_error_at_once_and_fails_the_run(finished: Done) -> None:
    verdicts = {one["id"]: one for one in finished.result["verdicts"]}
    assert {name: one["outcome"] for name, one in verdicts.items() if name in ("share", "nightly", "invariants:bank")} == {
        "share": "PASS", "nightly": "PASS", "invariants:bank": "FAIL"
    }  # fmt: skip
    assert "first after iteration after/1/1/" in verdicts["invariants:bank"]["evidence"]
    assert "error: bank after after/1/1/" in finished.said
    before, _, broken = finished.said.partition("stage theft")
    assert before.count("bank conserves what it must") >= 2, "after the population, and after the first iteration"
    assert "bank conserves what it must" not in broken


def test_the_report_shows_declared_facts_that_differ_from_measured_ones(finished: Done) -> None:
    assert "h: cpus is declared as 100000 and measured as " in finished.out
    host, *systems, array = finished.result["tested"]
    assert all(row["held"] for row in (*host["rows"], *systems[0]["rows"]))
    assert {row["fact"]: row["declared"] for row in array["rows"]} == {"volumes": "8"}


def test_expectations_that_do_not_hold_are_all_named_and_nothing_is_started(tmp_path: Path) -> None:
    done = run(tmp_path, PLAN.replace("{min: 1}", "{min: 90_000}\n        cpu_socket: 2")).ended(4)
    assert "plan.yaml:10:15: h: cpus is " in done.out
    assert "expected at least 90000 (correct the host, or the expectation)" in done.out
    assert "plan.yaml:11:21: h: cpu_socket is neither measured nor declared; expected 2" in done.out
    assert "2 expectations do not hold; no host or system was changed" in done.out
    assert "system one is up" not in done.out
    result = done.result
    assert (result["run"]["status"], result["run"]["exit_code"], result["systems"]) == ("failed", 4, {})
