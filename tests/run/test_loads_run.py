"""A run with two loads that share the threads of a ladder, on two systems, and a query beside them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = str(Path(sys.executable).with_name("proveout"))
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
      ramp_up: 500ms
      measure: 2s
      ramp_down: 0s
      repeat: 2
      limits: {start_skew: 5s, client_cpu: 100%, schedule_p99: 10s, achieved: 1%}
  - ladder:
      id: sets
      loads:
        short: {workload: pages, target: one, share: 1/2}
        long: {workload: pages, target: two, share: 1/2}
      threads: 4
      passes: 3
      within: 1m
      repeat: 2
      limits: {start_skew: 5s, client_cpu: 100%}
verdicts:
  - {id: sum, check: both.at(4).tps.mean > both.at(4).loads.low.tps.mean}
  - {id: low, check: both.at(4).loads.low.errors.count.mean == 0 && both.at(4).loads.low.threads.mean == 2}
  - {id: nightly, check: both.at(4).loads.nightly.transactions.total.tps.mean > 0}
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder of the run, and its output."""
    folder = tmp_path_factory.mktemp("loads")
    (folder / "plan.yaml").write_text(PLAN)
    argv = [COMMAND, "run", "plan.yaml", "--headless", "--runs-dir", "runs", "--json", "result.json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    return next((folder / "runs").iterdir()), done


def iterations(run: Path, ladder: str = "both") -> list[Any]:
    stages = json.loads((run.parent.parent / "result.json").read_text())["stages"]
    return [item for stage in stages if stage["id"] == ladder for item in stage["iterations"] if item["valid"]]


def test_the_rung_is_the_sum_of_its_shares_and_verdicts_read_each_load(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run, done = finished
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert len(iterations(run)) == 2
    for item in iterations(run):
        loads = item["metrics"]["loads"]
        assert item["metrics"]["tps"] == pytest.approx(loads["low"]["tps"] + loads["high"]["tps"])
        assert [loads[name]["threads"] for name in ("low", "high", "nightly")] == [2, 2, 1]
        assert loads["nightly"]["rate"] == 20.0 and item["beside"] == ["nightly"]
        assert {one["load"] for one in item["findings"] if one["check"] == "mix"} == {"low", "high", "nightly"}
    assert "By load" in done.stdout


def test_every_thread_of_each_load_runs_its_passes(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run, done = finished
    found = iterations(run, "sets")
    assert len(found) == 2, done.stdout + done.stderr
    for item in found:
        loads = item["metrics"]["loads"]
        for name in ("short", "long"):
            assert loads[name]["ended"]["count"] == 2 * 3 * 2
            assert 0.0 < loads[name]["pass"]["max_s"] <= loads[name]["elapsed_s"] <= item["measure_s"] + 0.001
        passes = {one["load"]: one["ok"] for one in item["findings"] if one["check"] == "passes"}
        assert passes == {"short": True, "long": True}


def test_tables_name_the_load_of_each_transaction(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run, _ = finished
    subprocess.run([COMMAND, "report", str(run), "--csv", "rows.csv"], cwd=run, check=True, timeout=300)
    with (run / "rows.csv").open(newline="") as stream:
        rows = {(row["transaction"], row["target"]) for row in csv.DictReader(stream) if row["stage"] == "both"}
    assert {
        ("(all)", "one + two"), ("low.(all)", "one"), ("high.(all)", "two"), ("nightly.(all)", "two"),
        ("low.GetBasicSubscriberData", "one"), ("nightly.total", "two"),
    } == rows - {("high.GetBasicSubscriberData", "two")}  # fmt: skip
