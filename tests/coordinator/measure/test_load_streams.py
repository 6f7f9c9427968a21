"""Several loads in one iteration: sums of those with shares, numbers and findings of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proveout.coordinator.results.results import rung_tree
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Load
from proveout.proto.events import IterationFinished
from tests.coordinator.measure import test_summarise as known

MS = 1_000_000
QUICK, SLOW, REPORT = [1 * MS] * 400, [3 * MS] * 100, [900 * MS] * 5


def plan() -> Plan:
    study = known.plan()
    loads = (
        Load(name="one", workload="hlr", target="cache", clients=("client1",), share=(1, 2)),
        Load(name="two", workload="hlr", target="backend", clients=("client1", "client2"), share=(1, 2)),
        Load(name="nightly", workload="report", target="cache", clients=("client2",), threads=1),
    )
    ladder = replace(study.stages[0], loads=loads, workload="", target="", captures=())  # type: ignore[call-arg]
    statements = (("statements", (("q", "SELECT 1"),)),)
    report = Workload(name="report", kind="sql", parameters=(("transactions", (("total", statements),)),))
    return replace(study, stages=(ladder,), workloads=(*study.workloads, report))


def finished(**changes: Any) -> IterationFinished:
    get, put, report = (
        known.transaction(name, ns)
        for name, ns in (("GetAccessData", QUICK), ("UpdateLocation", SLOW), ("total", REPORT))
    )
    loads = {
        "one.client1": known.load("client1", (get,), committed=(("GetAccessData", 450),)),
        "two.client1": known.load("client1", (put,)),
        "two.client2": known.load("client2", (get, put), committed=(("GetAccessData", 470),)),
        "nightly.client2": known.load("client2", (report,)),
    }
    seconds = {
        source: [
            known.second(
                source.partition(".")[2],
                n,
                tuple(known.transaction(t.counts.name, [MS] * 20) for t in load.transactions),
            )
            for n in range(known.MEASURE_S)
        ]
        for source, load in loads.items()
    }
    changed = {source: replace(load, **changes.get(source, {})) for source, load in loads.items()}
    found: IterationFinished = known.evidence(plan=plan(), loads=changed, seconds=seconds, captures={})
    return found


def test_the_rung_has_the_sum_of_the_shares_and_each_load_its_own_numbers() -> None:
    tree = finished().metrics
    per_s = known.MEASURE_S
    assert tree["tps"] == pytest.approx(1000 / per_s) and tree["threads"] == 4
    assert [tree["loads"][name]["tps"] for name in ("one", "two", "nightly")] == [80.0, 120.0, 1.0]
    assert [tree["loads"][name]["threads"] for name in ("one", "two", "nightly")] == [2, 2, 1]
    assert tree["response"]["max_us"] == 3000.0 and tree["loads"]["nightly"]["response"]["max_us"] == 900_000.0
    assert tree["loads"]["two"]["transactions"]["UpdateLocation"]["tps"] == pytest.approx(40.0)
    assert "transactions" not in tree and "ceiling_per_s" not in tree["client"]


def test_transactions_commits_and_seconds_carry_the_name_of_their_load() -> None:
    item = finished()
    assert [one.label for one in item.transactions] == [
        "one.GetAccessData", "two.UpdateLocation", "two.GetAccessData", "nightly.total",
    ]  # fmt: skip
    assert item.committed == {"one.GetAccessData": 450, "two.GetAccessData": 470} and item.beside == ("nightly",)
    assert item.series["tps"] == (80.0,) * 5 and item.series["loads.nightly.tps"] == (20.0,) * 5


def test_findings_name_the_load_and_a_late_one_voids_the_iteration() -> None:
    item = finished(**{"two.client2": {"start_skew_ns": 80 * MS}})
    broken = [(finding.check, finding.load) for finding in item.findings if not finding.ok and finding.voids]
    assert broken == [("start-skew", "two")] and not item.valid
    checks = [finding.check for finding in item.findings if finding.check == "mix"]
    assert len(checks) == 3
    assert sum(finding.check == "other-load" for finding in item.findings) == 1


def test_a_rung_has_estimates_of_each_load() -> None:
    repeats = [replace(finished(), id=replace(finished().id, repeat=number)) for number in (1, 2)]
    tree = rung_tree(repeats)
    assert tree["loads"]["nightly"]["tps"]["mean"] == 1.0 and tree["tps"]["values"] == [200.0, 200.0]
