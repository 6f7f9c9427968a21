"""Facts of hosts, systems, schemas and tunings: digests, drift, declared, measured and expected values beside each other,
and where people read them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import begun, run_started
from rich.console import Console

from proveout.coordinator.comparability import differences
from proveout.coordinator.report import markdown, terminal
from proveout.coordinator.report.figures.system_figures import topology
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.fingerprint import (
    changes,
    digest,
    fingerprints,
    first_of_each,
    nodes,
    outline,
    schemas,
)
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Event, FactsTaken, TuningAct, TuningSeen
from proveout.proto.tuning_state import TunedHost, tuned
from proveout.proto.wire.results import TuningOutcome, TuningState

HOST: dict[str, Any] = {
    "cpus": 2,
    "cpu_model": "A",
    "kernel": "6.1",
    "memory_bytes": 8 * 2**30,
    "boot_id": "x",
    "host_name": "a",
}
OTHER = HOST | {"kernel": "6.2"}


def taken(when: Any, system: str = "", stage: str = "", **facts: Any) -> FactsTaken:
    return FactsTaken(when=when, host="db1", system=system, stage=stage, facts=facts)


def printed(results: RunResults) -> str:
    stream = io.StringIO()
    terminal.render(run_document(results), Console(file=stream, width=100))
    return stream.getvalue()


def written(results: RunResults) -> str:
    return markdown.render(run_document(results))


def document(results: RunResults) -> Any:
    return json.loads(result_to_json(results))


# ---- fingerprints ------------------------------------------------------------------------------------------------


def test_alike_machines_have_the_same_digest() -> None:
    assert digest(HOST) == digest(HOST | {"boot_id": "y", "host_name": "b"})
    assert digest(HOST) != digest(OTHER)
    assert digest(dict(reversed(HOST.items()))) == digest(HOST)


def test_drift_is_between_the_first_look_and_the_last_also_of_a_resume() -> None:
    later = {key: value for key, value in HOST.items() if key != "kernel"} | {"cpu_governor": "performance"}
    events = [taken("start", **HOST), taken("start", system="db", version="18"), taken("end", **later)]
    host, system = fingerprints(load_results(events))
    assert [str(change) for change in host.drift] == ["cpu_governor: none -> performance", "kernel: 6.1 -> none"]
    assert (host.name, host.whole, host.digest) == ("db1", True, digest(HOST))
    assert (system.name, system.whole, system.drift) == ("db", False, ())
    (host,) = fingerprints(load_results([taken("start", **HOST), taken("start", **OTHER), taken("end", **OTHER)]))
    assert [change.fact for change in host.drift] == ["kernel"], "numbers of both sittings are in the run"
    assert host.digest == digest(OTHER)


def test_it_is_in_every_report() -> None:
    results = load_results([taken("start", **HOST), taken("end", **OTHER)])
    (host,) = fingerprints(results)
    assert outline(host) == "2 × A, 8 GiB, Linux 6.1"
    text = written(results)
    for words in ("## Environment", host.digest[7:19], "kernel: 6.1 -\\> 6.2"):
        assert words in text
    (found,) = document(results)["environment"]
    assert found["facts"]["cpu_model"] == "A"
    assert found["drift"] == [{"fact": "kernel", "before": "6.1", "after": "6.2"}]


# ---- declared, measured and expected -----------------------------------------------------------------------------

MEASURED: dict[str, Any] = {
    "cpu_sockets": 2,
    "cpu_smt": "on",
    "kernel": "5.4.17",
    "net.ens1.mtu": 1500,
    "memory_bytes": 750 * 2**30,
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(Path(__file__).parents[2] / "golden" / "good" / "facts.yaml")


def equipped(plan: Plan, *, raid: str = "", before: dict[str, Any] | None = None) -> RunResults:
    if raid:
        host = replace(plan.declared[0], facts=(*plan.declared[0].facts, ("raid", raid)))
        plan = replace(plan, declared=(host, *plan.declared[1:]))
    first = [taken("before", **before)] if before else []
    return load_results([run_started(plan), *first, taken("start", **MEASURED)])


def test_each_fact_has_what_is_declared_measured_and_expected(plan: Plan) -> None:
    host, *_ = nodes(equipped(plan))
    rows = {row.fact: (row.declared, row.measured, row.expected, row.differs, row.held) for row in host.rows}
    assert rows["mtu"] == ("9000", "1500 (net.ens1.mtu)", "", True, True)
    assert rows["nic"] == ("2 x 25 GbE", "", "", False, True)
    assert rows["bios.turbo"] == ("true", "", "", False, True)
    assert rows["net.*.mtu"] == ("", "1500 (net.ens1.mtu)", "9000", False, False)
    assert rows["memory_bytes"] == ("", "750 GiB", "at least 700 GiB, at most 800 GiB", False, True)
    assert [row.fact for row in host.hardware] == ["net.ens1.mtu"]  # the others are expected, and shown as such


def test_expectations_are_judged_by_the_facts_before_the_run(plan: Plan) -> None:
    host, *_ = nodes(equipped(plan, before=MEASURED | {"net.ens1.mtu": 9000}))
    assert {row.fact for row in host.rows if not row.held} == set()
    (row,) = (row for row in host.rows if row.fact == "net.*.mtu")
    assert row.measured == "1500 (net.ens1.mtu) (before the run: 9000 (net.ens1.mtu))"
    assert [one.drift for one in fingerprints(equipped(plan, before={"kernel": "4"})) if one.host] == [()]


def test_every_report_has_the_section_with_equipment_and_the_difference(plan: Plan) -> None:
    results = equipped(plan)
    for text in (written(results), printed(results)):
        for words in (
            "What was tested",
            "db1: mtu is declared as 9000 and measured as 1500",
            "Equipment without an agent",
            "ports: 48 (expected: 48)",
            "9000: not so",
        ):
            assert words in text
    whole = document(results)
    assert [one["name"] for one in whole["tested"]] == [
        "db1", "db", "storage", "tor1", "array", "appliance", "hypervisor"
    ]  # fmt: skip
    array = next(one for one in whole["environment"] if one["equipment"] == "array")
    assert array["declared"] == {"kind": "storage", "description": "A closed array", "volumes": 8}
    for words in ("tor1", "switch, no agent", "connects db1, array"):
        assert words in topology(results)


def test_declared_facts_are_compared(plan: Plan) -> None:
    one, other = equipped(plan, raid="10"), equipped(plan, raid="5")
    assert [str(found) for found in differences(one, other)] == ["db1: declared.raid: 10 -> 5"]
    assert [found.allowed for found in differences(one, other, ["db1:declared.*"])] == [True]
    assert differences(one, equipped(plan, raid="10")) == ()
    assert len({fingerprints(run)[0].digest for run in (one, other, equipped(plan))}) == 3


# ---- schemas of systems at stages --------------------------------------------------------------------------------

OBJECTS = {"table t": "a integer, b text", "index by_a on t": "btree (a)", "index by_b on t": "btree (b)"}
SETTINGS = {"engine": "postgres", "version": "18", "synchronous_commit": "off"}


def without(name: str) -> dict[str, str]:
    return {other: text for other, text in OBJECTS.items() if other != name}


def run(run_id: str, objects: Mapping[str, Mapping[str, str]], **settings: str) -> RunResults:
    """The objects of `db` at each stage."""
    events: list[Event] = [run_started({}, run_id), taken("start", system="db", **SETTINGS)]
    for stage, found in objects.items():
        events += [begun(stage), taken("stage", "db", stage, **{**SETTINGS, **settings, **found})]
    return load_results(events)


def test_a_change_between_two_stages_is_named() -> None:
    altered = without("index by_b on t") | {"table t": "a integer", "table u": "n integer"}
    results = run("one", {"first": OBJECTS, "same": OBJECTS, "second": altered})
    (change,) = changes(results)
    assert (change.since, change.stage) == ("same", "second")
    assert (change.gone, change.added, change.altered) == (("index by_b on t",), ("table u",), ("table t",))
    assert str(change) == ("db at second, against same: table u is new; index by_b on t is gone; table t is altered")
    assert [one.stage for one in first_of_each(schemas(results))] == ["first"]
    assert schemas(results)[0].outline == "1 table, 2 indexes"
    assert [one.facts for one in fingerprints(results)] == [SETTINGS]  # of the start only
    assert "index by\\_b on t is gone" in written(results)
    assert [one["digest"] for one in document(results)["schemas"]] == [one.digest for one in schemas(results)]


def test_an_index_that_one_run_lacks_is_a_difference_with_its_name() -> None:
    one, two = run("A", {"first": OBJECTS}), run("B", {"first": without("index by_a on t")})
    for pair in ((one, two), (two, one)):
        assert [str(item) for item in differences(*pair)] == ["db: index by_a on t is missing in B (btree (a))"]
    assert [item.allowed for item in differences(one, two, ["index *"])] == [True]
    other = run("B", {"first": {**OBJECTS, "index by_a on t": "hash (a)"}})
    assert [str(item) for item in differences(one, other)] == ["db: index by_a on t: btree (a) -> hash (a)"]
    unread = replace(two, taken=tuple(item for item in two.taken if item.when != "stage"))
    assert [str(item) for item in differences(one, unread)] == ["db: schema: recorded -> none"]


def test_a_difference_of_all_stages_is_named_once_and_settings_count_too() -> None:
    one = run("A", dict.fromkeys(("first", "second"), OBJECTS))
    fewer = dict.fromkeys(("first", "second"), without("index by_a on t"))
    two = run("B", fewer, synchronous_commit="on")
    assert [item.name for item in differences(one, two)] == ["index by_a on t", "synchronous_commit"]


# ---- tunings -----------------------------------------------------------------------------------------------------


def seen(act: TuningAct, *states: tuple[str, TuningOutcome, tuple[str, ...]]) -> TuningSeen:
    made = (TuningState(name=name, operation="sysctl", outcome=is_now, lines=lines) for name, is_now, lines in states)
    return TuningSeen(host="db1", act=act, states=tuple(made))


CHANGES = ("vm.swappiness: 60 -> 10", "vm.dirty_ratio: 20 -> 5")
APPLIED: list[Event] = [
    seen("apply", ("swap", "applied", CHANGES), ("ports", "unchanged", ())),
    seen("look", ("swap", "in_place", ())),
]
REVERTED = seen("revert", ("swap", "reverted", ()))


def state_after(*more: Event) -> tuple[TunedHost, ...]:
    return tuned(load_results([*APPLIED, *more]).tunings)


def test_applied_and_reverted_tunings_and_one_without_an_event_for_its_end() -> None:
    for events, words in (([REVERTED], "applied, reverted"), ([], "applied, its end is not known")):
        told = [(one.host, one.name, one.describe(ended=True)) for one in state_after(*events)]
        assert told == [("db1", "swap", words), ("db1", "ports", "unchanged")]


def test_the_worst_outcome_of_several_changes_counts_and_drift_is_reported_once() -> None:
    ends = seen("revert", ("swap", "residue", ("/x could not be undone",)), ("swap", "reverted", ()))
    (one, _) = state_after(ends)
    assert (one.describe(ended=True), one.left) == ("applied, NOT reverted", ("/x could not be undone",))
    (one, _) = state_after(seen("apply", ("swap", "failed", ("no",)), ("swap", "kept", ("what mkfs has done stays",))))
    assert (one.describe(ended=True), one.left) == ("failed, kept", ("what mkfs has done stays",))
    drift = seen("look", ("swap", "drifted", ("vm.swappiness is 33",)))
    (one, _) = state_after(drift, drift, replace(drift, act="revert"))
    assert one.drift == ("vm.swappiness is 33",)
    assert one.describe(ended=True) == "applied, left as changed from outside"


def test_every_report_has_the_tunings() -> None:
    results = load_results([*APPLIED, REVERTED])
    assert document(results)["tuning"][0]["changes"] == list(CHANGES)
    assert "| db1 | swap (sysctl) | applied, reverted | vm.swappiness: 60 -\\> 10<br>" in written(results)
    lines = [line.split() for line in printed(results).splitlines()]
    assert ["db1", "swap", "(sysctl)", "applied,", "reverted", "vm.swappiness:", "60", "->", "10"] in lines
    assert ["vm.dirty_ratio:", "20", "->", "5"] in lines
