"""Comparisons of ladders: in pairs when they were interleaved, else with the finding that they were not."""

from __future__ import annotations

import pytest
from records import begun, ended, ladder_stage, run_started
from verdict_histories import iteration

from proveout.coordinator.results.results import load_results, stage_metrics
from proveout.coordinator.verdict.provenance import provenance
from proveout.dsl.rules.repeat_rules import compared
from proveout.proto.events import Event

FINDING = "a and b were not interleaved: drift is not distinguished from the difference"
TPS = {"a": (100.0, 90.0, 120.0), "b": (105.0, 96.0, 125.0)}


def history(partner: str | None, run: str = "run") -> list[Event]:
    """Two ladders of one rung; repeat 2 of `b` has no valid iteration when `a` has one."""
    stages = [{"id": "a", "kind": "ladder"}, {"id": "b", "kind": "ladder", "interleaved_with": partner}]
    found: list[Event] = [run_started({"stages": stages}, run)]
    for name, values in TPS.items():
        found.append(begun(name))
        found += [iteration(name, 4, repeat, tps) for repeat, tps in enumerate(values, 1) if (name, repeat) != ("b", 2)]
    for name in TPS:
        found.append(ended(name, stage_metrics(ladder_stage(name), load_results(found), seconds=1.0)))
    return found


def test_estimates_of_interleaved_ladders_have_their_block_and_repeats() -> None:
    results = load_results(history("a"))
    first, second = (results.stages[name].rungs[0].tree for name in TPS)
    assert first["tps"]["block"] == second["tps"]["block"] == "run/a"
    assert second["response"]["avg_us"]["block"] == "run/a"
    assert (first["tps"]["repeats"], second["tps"]["repeats"]) == ([1, 2, 3], [1, 3])
    finished = results.stages["b"].finished
    assert finished is not None
    assert finished.metrics["peak"]["tps"]["block"] == "run/a"
    other = load_results(history("a", run="other")).stages["a"]
    assert other.block == "other/a", "two runs are never paired"
    alone = load_results(history(None))
    blocks = {alone.stages[name].rungs[0].tree["tps"]["block"] for name in TPS}
    assert blocks == {"run/a@4", "run/b@4"}, "numbers of one rung are pairs, two ladders one after the other are not"


@pytest.mark.parametrize("check", ["ratio(b.peak.tps, a.peak.tps).lower > 1", "b.at(4).tps > a.at(4).tps"])
def test_a_verdict_has_the_finding_unless_the_ladders_were_interleaved(check: str) -> None:
    remarks = provenance(check, load_results(history(None))).remarks
    assert FINDING.replace("a and b", "b and a") in remarks
    assert not any("interleaved" in line for line in provenance(check, load_results(history("a"))).remarks)


def test_ladders_in_separate_comparisons_are_not_compared() -> None:
    check = "a.peak.tps.mean > 1 && (b.peak.tps.mean > 1 || !(b.peak.tps.mean < a.at(1).tps.mean))"
    assert compared(check, {"a", "b"}) == (("b", "a"),)
    assert compared("a.peak.tps.mean > 1 && b.peak.tps.mean > 1", {"a", "b"}) == ()
