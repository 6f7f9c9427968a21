"""Whole runs against simulated agents: the order of their tasks, what they skip, and what is left by kills, losses and
full disks at any point."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import thorough
from records import WINDOWS, plan_of, run_started, search_stage
from run_simulator import Fault, FaultKind, Simulation, World, finished
from simulated import BACKEND, FIRST, HOSTS, OTHER, PLAN, STAGES, Model, assert_ended, completed, of_ladders, simulate

from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.results.results import load_results
from proveout.coordinator.schedule import setup_stages
from proveout.coordinator.schedule.iteration import DRAINED_S
from proveout.coordinator.schedule.preflight import Moment, tuning_checks
from proveout.coordinator.schedule.state import Input, Summarise, run_progress
from proveout.coordinator.schedule.tasks import is_dispensable
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan import stages as st
from proveout.dsl.plan.plan import OnLoss, Plan, Workload
from proveout.dsl.plan.topology import Expression, Host, System
from proveout.proto import events
from proveout.proto.wire import messages, tasks
from proveout.proto.wire import results as wire


def test_a_whole_run_in_order() -> None:
    world = completed()
    assert list(world.outcomes()) == [stage.id for stage in STAGES]
    assert {k for k in world.results() if k[0] == "baseline"} == {("baseline", r, n) for r in (1, 2, 4) for n in (1, 2)}
    assert [e.at_rung for e in world.all(events.LadderCut)] == [4]
    (found,) = world.all(events.SearchFinished)
    assert found.rate is not None and 0.9 * Model().capacity <= found.rate <= Model().capacity
    assert world.results()["cached", 4, 1][0] == found.rate
    assert len(world.all(events.ProbeFinished)) == found.probes
    assert [(e.source, e.sink) for e in world.all(events.PropagationCompared)] == [("cache", "backend")]
    assert [e.system for e in world.all(events.SystemUp)] == ["backend", "cache"], "the sink is up before its source"
    what = world.what()
    first = what.index("restore:cache")
    assert what[first : first + 4] == ["restore:cache", "restore:backend", "link:cache", "checkpoint:backend"]
    taken = ["facts"] * len(HOSTS) + ["inspect:cache", "inspect:backend"]
    assert what[-9:] == ["compare:cache", *taken, "stop:cache", "stop:backend"]
    assert what[2:8] == taken, "before anything is loaded"
    assert what.index("link:cache") < what.index("save:cache") < what.index("save:backend")
    without = replace(PLAN, stages=tuple(stage for stage in STAGES if not isinstance(stage, st.Reset)))
    assert not [one for one in completed(without).what() if one.startswith(("save", "restore"))]


def test_provisional_verdicts_follow_stages_and_do_not_affect_the_result() -> None:
    world = completed()
    ended, foreseen = world.all(events.StageFinished), world.all(events.VerdictForeseen)
    assert [event.evidence for event in foreseen] == [f"{n} stages" for n in range(1, len(ended))], (
        "none after the last"
    )
    both = [event for event in world.events if event in ended or event in foreseen]
    assert both[::2] == ended, "each follows its stage"
    assert {event.outcome for event in foreseen} == {"FAIL"}
    assert [event.outcome for event in world.all(events.VerdictReached)] == ["PASS"]


def test_all_clients_of_an_iteration_have_one_schedule_and_each_iteration_its_own() -> None:
    seeds: dict[str, set[int]] = {}
    for _, task in completed().sent:
        if isinstance(task.spec, tasks.RunLoad):
            seeds.setdefault(task.spec.label, set()).add(task.spec.seed)
    assert all(len(of_label) == 1 for of_label in seeds.values()), "one schedule for all clients"
    assert len(set.union(*seeds.values())) == len(seeds)


def test_a_search_for_threads_runs_closed_loads_of_each_number_and_the_ladder_around_the_answer() -> None:
    class Threads(Model):
        def work(self, command: Summarise) -> events.IterationFinished:
            assert command.rate is None
            return finished(command, {"tps": 1.0, "ok": command.id.rung <= 11})

    fields = {"threads": 64, "over": "threads", "rate_from": 1.0, "rate_to": 64.0, "confirmations": 2}
    search = search_stage("cap", **BACKEND, **fields, around=st.Around(threads=(0.5, 2.0), repeat=2))
    plan = replace(PLAN, stages=(STAGES[0], search))
    world = completed(plan, Threads(), Fault(kind="lose", at=60, host="client1"))
    (found,), probes = world.all(events.SearchFinished), world.all(events.ProbeFinished)
    assert (found.rate, [e.rate for e in probes if e.phase == "around"]) == (11.0, [6.0, 22.0] * 2)
    assert {(e.id.rung, e.id.repeat) for e in world.all(events.IterationFinished)} == {
        (round(e.rate), e.probe) for e in probes
    }


# ---- invariants ------------------------------------------------------------------------------------------------------

AFTER_POPULATE = [("load", "", "backend"), ("load", "", "cache")]


@pytest.fixture
def occasion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """When the invariants of the workloads are checked."""
    monkeypatch.setattr(setup_stages, "invariants_after", lambda _: request.param)
    return str(request.param)


@pytest.mark.parametrize("occasion", ["iteration"], indirect=True)
def test_invariants_are_checked_after_every_iteration_and_a_broken_one_gives_a_notice_at_once(occasion: str) -> None:
    class Broken(Simulation):
        def _effect(self, spec: object) -> wire.TaskResult:
            if isinstance(spec, tasks.CheckInvariants):
                broken = wire.InvariantCheck(name="sum", holds=False, evidence="3 is not 4")
                return wire.InvariantsChecked(checks=(broken,), seconds=0.1)
            return super()._effect(spec)

    world = completed(
        PLAN, Model(invalid=frozenset({"baseline/2/1"})), kind=Broken
    )  # the verdict fails it, not the run
    expected = list(AFTER_POPULATE)
    for one in (iteration.id for iteration in run_progress(world.events).iterations):
        systems = ("backend",) if one.stage == "baseline" else ("cache", "backend")
        expected += [(one.stage, str(one), system) for system in systems]
    assert world.looked_at() == expected
    what = world.what()
    assert what.index("invariants:backend") < what.index("link:cache"), "a population is checked before it is linked"
    errors = [e.text for e in world.all(events.Notice) if e.level == "error"]
    assert "backend after baseline/1/1/1: sum: 3 is not 4" in errors


@pytest.mark.parametrize("occasion", ["stage"], indirect=True)
def test_expensive_invariants_are_checked_at_the_end_of_a_stage(occasion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of populated rows are not checked in a plan without populate."""
    after = [(stage, "", system) for stage in ("cap", "cached") for system in ("cache", "backend")]
    assert completed().looked_at() == [*AFTER_POPULATE, ("baseline", "", "backend"), *after]
    outside = System(name="backend", engine="postgres", host="db1", dsn="host=db1")
    plan = replace(PLAN, systems=(outside,), captures=PLAN.captures[:2], stages=(STAGES[2],))
    assert simulate(plan, world=World(loaded={"backend"})).world.looked_at() == [("baseline", "", "backend")]
    monkeypatch.setattr(setup_stages, "invariants_need_population", lambda _: True)
    assert simulate(plan).world.looked_at() == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lose", "fail", "silent"])
@pytest.mark.parametrize("occasion", ["iteration", "stage"], indirect=True)
def test_all_invariants_are_checked_despite_a_fault_at_any_point(kind: FaultKind, occasion: str) -> None:
    whole = simulate()
    for at in thorough.every(25, range(0, whole.inputs, 5)):
        simulation = simulate(PLAN, None, Fault(at=at, kind=kind, host=HOSTS[at % 4]))
        if assert_ended(simulation).status == "finished":
            seen = {(stage, system) for stage, _, system in simulation.world.looked_at()}
            assert seen == {(stage, system) for stage, _, system in whole.world.looked_at()}, f"{kind} before {at}"


# ---- conditions ------------------------------------------------------------------------------------------------------


def when(stage: str, text: str, *needs: str) -> st.Condition:
    return st.Condition(stage=stage, when=Expression(text=text, needs=needs))


def test_a_stage_whose_condition_does_not_hold_is_skipped() -> None:
    conditions = when("prepare", "no"), when("breathe", "yes"), when("cap", "baseline ended", "baseline")
    world = completed(replace(PLAN, conditions=conditions))
    assert world.outcomes() == {s.id: "skipped" if s.id == "prepare" else "ok" for s in STAGES}
    assert "prepare" not in {e.stage for e in world.all(events.StageStarted)}
    notices = [(n.level, n.text) for n in world.all(events.Notice)]
    assert notices == [("info", "stage prepare is skipped: no, by the model")]
    assert "sql:backend" not in world.what()


def test_a_stage_that_needs_a_skipped_or_a_failed_stage_is_skipped() -> None:
    """Of a search that finds no rate, the ladder at that rate fails."""
    world = completed(
        replace(PLAN, conditions=(when("cap", "unknown"), st.Condition(stage="cached", needs=("baseline", "cap"))))
    )
    skipped = {name: how for name, how in world.outcomes().items() if how != "ok"}
    assert skipped == {"cap": "skipped", "cached": "skipped"}
    notices = {n.text: n.level for n in world.all(events.Notice)}
    assert notices["stage cap is skipped: its condition cannot be evaluated: no data"] == "warning"
    assert notices["stage cached is skipped: it needs cap, which was skipped"] == "info"
    assert not [k for k in world.results() if k[0] == "cached"]
    more = replace(PLAN, stages=(*STAGES, st.Pause(id="after", duration_s=1.0)))
    failing = replace(more, conditions=(st.Condition(stage="after", needs=("cached",)),))
    found = simulate(failing, Model(capacity=10.0)).world.outcomes()
    assert (found["cached"], found["after"]) == ("failed", "skipped")


# ---- the wait before a probe of a search until the sink has applied the backlog --------------------------------------

EVERY_S = 0.5
BACKLOG_S = 4.0


class Lagging(Simulation):
    """Every lag capture begins with a backlog, which shrinks by `applied` seconds each second before a load starts."""

    applied = 1.0

    def _task(self, host: str, task: tasks.Task) -> None:
        super()._task(host, task)
        if not isinstance(task.spec, tasks.RunCapture) or task.spec.capture.kind != "lag":
            return
        for number in range(round(20.0 / EVERY_S)):
            behind = max(BACKLOG_S - self.applied * number * EVERY_S, 0.0)
            readings = (wire.Reading(metric="lag.seconds", value=behind),)
            sample = wire.CaptureSample(capture="lag", at_ns=0, readings=readings)
            message = messages.Sample(key=task.key, sequence=number + 2, sample=sample)
            self._say(host, 0.03 + number * EVERY_S, message)


class Stuck(Lagging):
    """A backlog that nothing applies."""

    applied = 0.0


def draining(kind: type[Simulation], drain_s: float) -> tuple[World, list[str], list[float | None]]:
    """The world of a run, its notices of a backlog, and the rates of its probes."""
    stages = tuple(replace(one, drain_s=drain_s) if isinstance(one, st.Search) else one for one in STAGES)
    world = completed(replace(PLAN, stages=stages), kind=kind)
    notices = [event.text for event in world.all(events.Notice) if "backlog" in event.text]
    return world, notices, [event.rate for event in world.all(events.ProbeFinished)]


def test_a_probe_waits_for_the_backlog_and_a_ladder_does_not() -> None:
    def seconds(world: World, stage: str) -> float:
        return next(event.seconds for event in world.all(events.StageFinished) if event.stage == stage)

    (waiting, notices, rates), (level, _, same) = draining(Lagging, 60.0), draining(Simulation, 60.0)
    assert (notices, rates) == ([], same)
    longer_s = seconds(waiting, "cap") - seconds(level, "cap")
    assert longer_s >= len(rates) * (BACKLOG_S - DRAINED_S - EVERY_S)
    assert seconds(waiting, "cached") - seconds(level, "cached") < 1.0


def test_the_wait_is_bounded_and_its_end_tells_the_lag_and_the_remedy() -> None:
    _, notices, rates = draining(Stuck, 2.0)
    assert len(notices) == len(rates)
    assert "the lag of capture:lag on cache1 is still 4" in notices[0]
    assert "raise `drain` of the search" in notices[0]


# ---- the order of iterations -----------------------------------------------------------------------------------------


def test_ladders_take_turns_and_equal_rungs_stand_side_by_side() -> None:
    world = completed(of_ladders(FIRST, OTHER))
    order = world.ran()
    assert len(order) == 12
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all(a[1:] == b[1:] for a, b in pairs)
    assert all((a[0], b[0]) == [("other", "first"), ("first", "other")][a[2] % 2] for a, b in pairs), (
        "every second repeat has the ladders in reverse, so that a steady drift favours neither"
    )
    by_repeat = [[a[1] for a, _ in pairs if a[2] == repeat] for repeat in (1, 2)]
    assert by_repeat[0] != by_repeat[1], "each repeat has an order of its own"
    stages = [e for e in world.events if isinstance(e, events.StageStarted | events.StageFinished)][2:]
    assert [type(e).__name__ for e in stages] == ["StageStarted", "StageStarted", "StageFinished", "StageFinished"]
    assert min(e.seconds for e in world.all(events.StageFinished)[1:]) > 60.0, "each of them took as long as both"


def test_the_ramp_up_is_what_the_repeats_before_needed_to_be_steady() -> None:
    windows = replace(FIRST.windows, ramp_up_s=60.0, ramp_up_least_s=5.0)
    needed: dict[int, list[float | None]] = {1: [9.0, 7.0, 12.0, 5.0], 2: [None, 5.0, 5.0, 5.0]}

    class Warms(Model):
        def work(self, command: Summarise) -> events.IterationFinished:
            return replace(super().work(command), steady_from_s=needed[command.id.rung][command.id.repeat - 1])

    world = completed(of_ladders(replace(FIRST, threads=(1, 2), repeat=4, windows=windows)), Warms())
    started = world.all(events.IterationStarted)
    of = {rung: [one.ramp_up_s for one in started if one.id.rung == rung] for rung in (1, 2)}
    assert of == {1: [60.0, 9.0, 9.0, 12.0], 2: [60.0] * 4}, "as the slowest, the bound where one was not steady"


def test_a_load_alone_stops_where_all_loads_together_did() -> None:
    whole = replace(FIRST, order="ladder", seed=None, stop_when=Expression(text="too many"), threads=(1, 2, 4, 8))
    alone = replace(whole, id="other", stop_when=None, interleaved_with="first", order="interleaved", alone="x")
    order = completed(of_ladders(whole, alone)).ran()
    assert {rung for stage, rung, _ in order if stage == "first"} == {1, 2, 4}
    assert 8 not in {rung for stage, rung, _ in order if stage == "other"}


@pytest.mark.parametrize(
    ("decided_after", "chance", "repeats", "words"),
    [
        (1, 1.0, 3, "more would decide no verdict"),
        (4, 0.5, 4, "more would decide no verdict"),
        (99, 0.5, 6, "which did not decide v"),
        (99, 0.04, 3, "as 6 would hardly decide v (chance 4 %, within ± 1.2 % of its limit)"),
    ],
)
def test_repeats_are_bought_until_the_verdicts_are_decided_or_hardly_will_be(
    decided_after: int, chance: float, repeats: int, words: str
) -> None:
    plan = of_ladders(replace(FIRST, repeat=6, repeat_min=3))
    world = completed(plan, Model(decided_after=decided_after, chance=chance))
    assert max(repeat for _, _, repeat in world.ran()) == repeats
    said = [e for e in world.all(events.Notice) if "repeats" in e.text]
    assert [e.level for e in said] == ["warning" if decided_after > repeats else "info"]
    assert said[0].text.startswith(f"first: {repeats} of at most 6 repeats, {words} (intervals at 9")


# ---- cells with steps around each turn -------------------------------------------------------------------------------


def steps_of(world: World) -> list[str]:
    """The stages of the statements, checkpoints and loads of the cells, in the order in which they were sent."""
    keys = [key.split("/") for key in world.keys]
    kept = [(part[1], part[5]) for part in keys if part[1][0] in "ab" and part[1][1:3] in ("", "__")]
    return [stage for stage, what in kept if what.split(":")[0] in ("sql", "checkpoint", "load")]


def assert_steps_around_every_turn(world: World) -> None:
    """Each load runs with its own cell's steps in force: after them no step of the other cell has run, and a turn is
    taken back before the other begins."""
    in_force = open_turn = ""
    for stage in steps_of(world):
        if "__" not in stage:
            assert in_force == f"{stage}__before_2", f"{stage} ran with {in_force or 'nothing'}"
            open_turn = stage
        elif "__before_1" in stage:
            assert open_turn in ("", stage[0]), f"{stage} while the turn of {open_turn} was open"
            in_force = stage
        else:
            open_turn = "" if "__after" in stage else open_turn
            in_force = "" if "__after" in stage else stage
    assert not open_turn, "the last turn was not taken back"


def cells(*, repeat: int = 3) -> Plan:
    """Two interleaved cells, a statement and a reset before each turn and a statement after it."""
    stages: list[st.Stage] = []
    for name, partner in (("a", None), ("b", "a")):
        before, after = (f"{name}__before_1", f"{name}__before_2"), (f"{name}__after_1",)
        stages += [
            st.Sql(id=before[0], system="backend", statements=(f"alter system set x = '{name}'",)),
            st.Reset(id=before[1], systems=("backend",), restore=False),
            replace(
                OTHER, id=name, threads=(1, 2), repeat=repeat, interleaved_with=partner, before=before, after=after
            ),
            st.Sql(id=after[0], system="backend", statements=("alter system reset x",)),
        ]
    return replace(PLAN, stages=(STAGES[0], *stages, st.Pause(id="end", duration_s=1.0)))


def test_cells_with_steps_take_turns_a_repeat_at_a_time_in_changing_order() -> None:
    world = completed(cells())
    turns = [(repeat, name) for repeat, pair in ((1, "ab"), (2, "ba"), (3, "ab")) for name in pair]
    assert world.ran() == [(name, rung, repeat) for repeat, name in turns for rung in (1, 2)]
    assert_steps_around_every_turn(world)
    befores = [stage[0] for stage in steps_of(world) if stage.endswith("__before_1")]
    assert befores == [name for _, name in turns], "the steps run once for each turn"
    assert set(world.outcomes().values()) == {"ok"}
    started = [e.stage for e in world.all(events.StageStarted)]
    assert len(started) == len(set(started)) == 10
    assert [e.repeat for e in world.all(events.ValuesTaken) if e.stage == "a__before_1"] == [1, 2, 3]
    took_s = {e.stage: e.seconds for e in world.all(events.StageFinished)}
    steps_s = [took_s[stage] for stage in set(steps_of(world)) if "__" in stage]
    assert min(steps_s) > 0.0
    assert sum(steps_s) < took_s["a"], "a step has its own seconds, not those of all turns"


@pytest.mark.parametrize(("text", "outcome"), [("yes", "ok"), ("no", "skipped")])
def test_cells_with_one_condition_run_together_or_not_at_all(text: str, outcome: str) -> None:
    plan = cells()
    parts = [stage.id for stage in plan.stages[1:-1]]
    world = completed(replace(plan, conditions=tuple(when(name, text) for name in parts)))
    assert {world.outcomes()[name] for name in parts} == {outcome}
    assert bool(steps_of(world)) is (outcome == "ok")


def test_bought_repeats_have_their_steps() -> None:
    plan = cells(repeat=6)
    stages = tuple(replace(one, repeat_min=3) if isinstance(one, st.Ladder) else one for one in plan.stages)
    world = completed(replace(plan, stages=stages), Model(decided_after=4))
    assert len(world.ran()) == 4 * 2 * 2
    assert_steps_around_every_turn(world)


def test_each_repeat_of_a_ladder_begins_with_a_restart_of_its_server() -> None:
    steps = (st.Reset(id="a__reset_1", systems=("backend",)), st.Restart(id="a__restart_1", system="backend"))
    before = tuple(step.id for step in steps)
    ladder = replace(OTHER, id="a", threads=(1, 2), repeat=3, interleaved_with=None, before=before)
    world = completed(replace(PLAN, stages=(STAGES[0], *steps, ladder)))
    assert world.ran() == [("a", rung, repeat) for repeat in (1, 2, 3) for rung in (1, 2)]
    sent = [(part[1], part[5].split(":")[0]) for part in (key.split("/") for key in world.keys)]
    kept = [what for stage, what in sent if (stage, what) in {("a", "load"), ("a__restart_1", "start")}]
    assert kept == ["start", "load", "load", "load"] * 3, "two rungs, of which one has two clients"
    assert {"a__reset_1", "a__restart_1"} <= set(world.outcomes())


# ---- cells with populations, settings and tunings of their own -------------------------------------------------------

SWEEP = """
proveout: 1
name: sweep
topology:
  hosts:
    db1: {roles: [server], address: local}
    client1: {roles: [client], address: local}
  systems:
    db: {engine: postgres, host: db1, provision: embedded, settings: {work_mem: 1MB}}
workloads:
  rows: {kind: hlr, population: "${matrix.rows}"}
tuning:
  - {name: own, on: db1, sysctl: {vm.dirty_ratio: 5}}
stages:
  - ladder:
      id: m
      matrix: {rows: [100, 200]}
      order: ORDER
      before:
        - tune: {tuning: [{name: swap, on: db1, sysctl: {vm.swappiness: "${matrix.rows}"}}]}
        - restart: {system: db, settings: {work_mem: "${matrix.rows}MB"}}
        - populate: {workload: rows, into: db}
      workload: rows
      target: db
      threads: [1, 2]
      measure: 3s
      repeat: 2
  - pause: {duration: 1s}
verdicts: []
"""


def sweep(order: str) -> Plan:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.yaml"
        path.write_text(SWEEP.replace("ORDER", order))
        return compile_plan(path)


def assert_as_planned(world: World) -> None:
    """Each load meets the population, the settings and the tunings of its cell, and nothing is left after the run."""
    for label, settings, population, tuned in world.measured:
        rows = label.split("/")[0].rpartition("_")[2]
        assert (settings, population) == ({"work_mem": f"{rows}MB"}, f"rows__rows_{rows}"), label
        assert tuned == ["own", "swap"], label
    assert (world.population, world.settings, world.left_tuned) == ({}, {"db": {"work_mem": "1MB"}}, set())


@pytest.mark.parametrize(
    ("order", "cells", "populated"), [("interleaved", "1221", 4), ("ladder", "1122", 2)], ids=["interleaved", "ladder"]
)
def test_each_cell_has_its_own_population_settings_and_tuning(order: str, cells: str, populated: int) -> None:
    world = completed(sweep(order))
    assert_as_planned(world)
    assert [stage.rpartition("_")[2][0] for stage, rung, _ in world.ran() if rung == 1] == list(cells)
    assert len([key for key in world.keys if "/populate:" in key]) == populated
    assert set(world.outcomes().values()) == {"ok"}


# ---- standbys --------------------------------------------------------------------------------------------------------


def standby() -> Plan:
    """A standby, its primary, a reset and a ladder of one rung."""
    own: dict[str, Any] = {"engine": "postgres", "provision": "embedded"}
    systems = (
        System(name="standby", host="db1", standby_of="main", **own),
        System(name="main", host="cache1", settings=(("max_wal_size", "1GB"),), **own),
    )
    of: dict[str, Any] = {"workload": "hlr", "clients": ("client1",)}
    stages = (
        st.Populate(id="load", into=("main",), **of),
        st.Reset(id="back", systems=("main",)),
        st.Ladder(id="run", target="main", threads=(4,), windows=WINDOWS, repeat=2, **of),
    )
    return replace(PLAN, systems=systems, captures=(), stages=stages)


def changes(world: World) -> list[str]:
    return [what for what in world.what() if what != "facts" and not what.startswith("inspect")]


def test_a_standby_starts_again_after_every_change_of_its_primary_and_every_iteration() -> None:
    world = completed(standby())
    both = ["start:main", "start:standby"]
    assert changes(world) == [
        *both, "populate:main", "save:main", "start:standby", "restore:main", "start:standby", "checkpoint:main",
        "load", *both, "load", *both, "stop:standby", "stop:main",
    ]  # fmt: skip
    assert world.settings["standby"] == {"max_wal_size": "1GB"}, "those of its primary"


def test_a_pgbouncer_starts_after_its_database_and_stops_before_it() -> None:
    """It is looked at again after each start and restore of the database."""
    front = System(name="front", engine="postgres", host="db1", provision="pgbouncer", in_front_of="main")
    whole = standby()
    load = replace(whole.stages[-1], target="front")  # type: ignore[arg-type]
    plan = replace(whole, systems=(front, whole.systems[1]), stages=(*whole.stages[:-1], load))
    assert changes(completed(plan)) == [
        "start:main", "start:front", "populate:main", "save:main", "start:front", "restore:main", "start:front",
        "checkpoint:main", "load", "load", "stop:front", "stop:main",
    ]  # fmt: skip


class Promoted(Simulation):
    """Each load promotes the standby."""

    superseded = False

    def _task(self, host: str, task: tasks.Task) -> None:
        self.superseded = self.superseded or isinstance(task.spec, tasks.RunLoad)
        super()._task(host, task)

    def _effect(self, spec: object) -> wire.TaskResult:
        result = super()._effect(spec)
        match spec:
            case tasks.StopSystem(system="standby"):
                self.superseded = False
            case tasks.StartSystem(system=System(name="main"), primary=primary, standbys=standbys):
                assert (primary, standbys) == ((), ("standby",))
                if self.superseded and isinstance(result, wire.SystemStarted):
                    return replace(result, superseded_by="standby")
            case tasks.StartSystem(system=System(name="standby"), primary=primary):
                assert not self.superseded
                assert [end.system for end in primary] == ["main"]
        return result


def test_a_promoted_standby_stops_and_its_primary_starts_again_before_the_next_load() -> None:
    what = changes(completed(standby(), kind=Promoted))
    again = ["load", "start:main", "stop:standby", "start:main", "start:standby"]
    assert what[what.index("load") :] == [*again, *again, "stop:standby", "stop:main"]


# ---- tuned hosts: before the first stage, verified after each stage, reverted at the end -----------------------------

SWAP = (("file", None), ("settings", (("vm.swappiness", "10"),)))
SWAPPED = st.Tuning(name="swap", operation="sysctl", hosts=("a", "b"), parameters=SWAP)
WORK_MEM = replace(SWAPPED, name="work_mem", hosts=("a",), system="db")
PAUSES = tuple(st.Pause(id=name, duration_s=1.0) for name in ("one", "two"))
TUNED = plan_of(
    PAUSES[0],
    st.Tune(id="more", tunings=(replace(SWAPPED, name="dirty", hosts=("b",)),)),
    PAUSES[1],
    hosts=tuple(Host(name=name, roles=("any",), address="local") for name in "abc"),
    systems=(System(name="db", engine="postgres", host="a", provision="embedded"),),
    workloads=(),
    tunings=(SWAPPED, WORK_MEM),
)
REBOOT = replace(TUNED, stages=(*TUNED.stages[:2], st.Reboot(id="again", hosts=("a", "b"), within_s=600.0), PAUSES[1]))
VERIFIED = ["verify-tuning@a", "verify-tuning@b"]


def steps(world: World) -> list[str]:
    """`task@host` in the order in which the tasks were sent."""
    found = [f"{task.key.split('/')[-2]}@{host}" for host, task in world.sent]
    return [step for step in found if "facts" not in step and "inspect" not in step]


def test_the_order_of_tuning_and_revert() -> None:
    world = completed(TUNED)
    assert steps(world) == [
        *("tune@a", "tune@b", "start:db@a", "tune@a", *VERIFIED, "tune@b", *VERIFIED, *VERIFIED),
        *("revert-tuning@a", "stop:db@a", "revert-tuning@a", "revert-tuning@b"),
    ]
    reverted = [(e.host, [one.name for one in e.states]) for e in world.all(events.TuningSeen) if e.act == "revert"]
    assert reverted == [("a", ["work_mem"]), ("a", ["swap"]), ("b", ["swap", "dirty"])]


def test_a_system_is_tuned_by_its_admin_and_measured_by_its_own_account() -> None:
    system = System(name="db", engine="postgres", host="a", dsn="host=a user=load", admin="host=a user=dba")
    plan = replace(TUNED, systems=(system,))
    ((host, spec),) = tuning_checks(plan, Moment(endpoints=external_endpoints(plan, {}), hosts=("a",)))
    assert isinstance(spec, tasks.ApplyTuning)
    assert (host, spec.tunings, [one.dsn for one in spec.endpoints]) == ("a", (WORK_MEM,), ["host=a user=dba"])
    specs = [task.spec for _, task in completed(plan).sent]
    applied = [one for one in specs if isinstance(one, tasks.ApplyTuning) and one.endpoints and not one.check]
    assert [[(end.system, end.dsn) for end in one.endpoints] for one in applied] == [[("db", "host=a user=dba")]]
    assert {one.endpoint.dsn for one in specs if isinstance(one, tasks.InspectSystem)} == {"host=a user=load"}


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_run_that_leaves_a_host_tuned_does_not_end_as_finished(host: str) -> None:
    """An agent that is killed while the run ends does not revert its host before its next start: `resume` starts it."""
    left = 0
    for at in range(simulate(TUNED).inputs):
        simulation = simulate(TUNED, None, Fault(at=at, kind="lose", host=host))
        assert simulation._now_s < 60.0, f"lost at {at}: the end waits for the lost agent's revert"
        if not simulation.world.left_tuned:
            continue
        left += 1
        assert assert_ended(simulation).exit_code == 4, f"lost at {at}"
        assert not completed(TUNED, world=simulation.world, epoch=2).left_tuned
    assert left > 0


@pytest.mark.thorough
def test_a_lost_agent_is_tuned_again_before_other_tasks() -> None:
    for at in thorough.every(2, range(simulate(TUNED).inputs)):
        simulation = simulate(TUNED, None, Fault(at=at, kind="lose", host="b"))
        if assert_ended(simulation).exit_code != 0:
            continue
        history = simulation.world.events
        assert list(simulation.world.outcomes()) == ["one", "more", "two"]
        last_up = max(n for n, e in enumerate(history) if isinstance(e, events.AgentUp) and e.host == "b")
        if "two" in World(events=history[:last_up]).outcomes():
            continue
        seen = [e for e in World(events=history[last_up:]).all(events.TuningSeen) if (e.act, e.host) == ("apply", "b")]
        assert [state.name for e in seen for state in e.states] == ["swap", "dirty"], f"lost at {at}"


def tuned_as(host: str, act: type, outcome: wire.TuningOutcome, *lines: str, reboots: bool = False) -> type[Simulation]:
    """A simulation in which a task of tuning has this outcome on a host; with `reboots` until it was rebooted."""

    class Of(Simulation):
        def _tuned(self, of: str, spec: object) -> wire.TuningDone | None:
            done = super()._tuned(of, spec)
            if done is None or of != host or not isinstance(spec, act) or (reboots and self.world.boots[of]):
                return done
            return replace(done, states=tuple(replace(one, outcome=outcome, lines=lines) for one in done.states))

    return Of


@pytest.mark.parametrize("outcome", ["refused", "failed", "needs_restart"])
def test_a_host_that_cannot_be_tuned_ends_the_run(outcome: wire.TuningOutcome) -> None:
    simulation = simulate(TUNED, kind=tuned_as("b", tasks.ApplyTuning, outcome, "not here"))
    end = assert_ended(simulation)
    assert (end.exit_code, end.reason.startswith("b could not be tuned: 'swap' ")) == (4, True)
    assert not simulation.world.all(events.StageStarted)


def test_drift_gives_a_warning_and_does_not_end_the_run() -> None:
    """Of another process."""
    world = completed(TUNED, kind=tuned_as("a", tasks.VerifyTuning, "drifted", "it is 33"))
    warnings = {n.text for n in world.all(events.Notice) if n.level == "warning"}
    assert "tuning 'swap' was changed by another process since: it is 33" in warnings


def test_a_reboot_gives_each_agent_up_and_tunes_and_starts_again_when_it_is_back_from_another_boot() -> None:
    world = completed(REBOOT)
    sent = steps(world)
    assert sent.count("reboot@a") == sent.count("reboot@b") == 1
    again = sent[sent.index("reboot@b") + 1 :]
    assert again[:6] == ["tune@a", "tune@b", "tune@b", "start:db@a", "tune@a", VERIFIED[0]]
    assert not world.all(events.AgentLost), "no loss"
    assert world.boots == {"a": 1, "b": 1}
    later = completed(REBOOT, kind=tuned_as("b", tasks.ApplyTuning, "needs_restart", reboots=True))
    assert later.boots == {"a": 1, "b": 1}, "what needs a restart waits for it"


def test_a_host_that_does_not_come_back_ends_the_run() -> None:
    class Down(Simulation):
        def _dial(self, host: str) -> None:
            if self.world.boots[host]:
                self.world.gone.add(host)
            super()._dial(host)

    end = assert_ended(simulate(REBOOT, kind=Down))
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "cannot be reached" in end.reason


def test_a_host_whose_agent_agrees_to_reboot_while_the_run_drains_is_not_rebooted_twice() -> None:
    for at in range(simulate(REBOOT).inputs):
        simulation = simulate(REBOOT, None, Fault(at=at, kind="lose", host="b"))
        if assert_ended(simulation).status == "finished":
            assert simulation.world.boots["a"] == 1, at


# ---- kills and losses at any point -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan whose run is killed before every `kills`-th input, and of which a host meets a fault of `kinds` before
    every `faults`-th: each of `hosts` in turn, so that `faults` and their number have no common divisor."""

    plan: Plan
    kills: int
    faults: int = 1
    kinds: tuple[FaultKind, ...] = ()
    hosts: tuple[str, ...] = HOSTS
    recovers: bool = True
    kind: type[Simulation] = Simulation
    model: Callable[[], Model] = Model
    check: Callable[[World], None] = lambda _: None

    def run(self, *faults: Fault, world: World | None = None) -> Simulation:
        epoch = 2 if world else 1
        return simulate(self.plan, self.model(), *faults, world=world, epoch=epoch, kind=self.kind)

    def found(self, world: World) -> tuple[object, ...]:
        """Return the contents of a run of the plan at its end, independent of their order."""
        self.check(world)
        values = sorted((event.stage, event.repeat) for event in world.all(events.ValuesTaken))
        rows = sorted((event.stage, event.metrics.get("rows", 0)) for event in world.all(events.StageFinished))
        return world.results(), sorted(world.ran()), world.outcomes(), values, rows, world.boots


LOSSES: tuple[FaultKind, ...] = ("lose", "interrupt")
EVERY: tuple[FaultKind, ...] = ("lose", "fail", "silent", "lose_for_good", "interrupt")
BOUGHT = of_ladders(replace(FIRST, repeat=5, repeat_min=3), replace(OTHER, repeat=5, repeat_min=3))
SKIPPED = replace(PLAN, conditions=(when("breathe", "no"), st.Condition(stage="cap", needs=("baseline",))))
VALUES = replace(PLAN, stages=(STAGES[0], st.Sql(id="grow", system="backend", statements=("grow",), repeat=3)))
SWEEPS: dict[str, Any] = {"kills": 17, "faults": 29, "kinds": LOSSES, "hosts": ("db1",), "check": assert_as_planned}
CASES = {
    "the usual plan": Case(plan=PLAN, kills=19, faults=31, kinds=EVERY),
    "repeats that are bought": Case(plan=BOUGHT, kills=27, model=lambda: Model(decided_after=4)),
    "skipped stages": Case(plan=SKIPPED, kills=31),
    "values": Case(plan=VALUES, kills=3),
    "an interleaved sweep": Case(plan=sweep("interleaved"), **SWEEPS),
    "a sweep": Case(plan=sweep("ladder"), **SWEEPS),
    "a promoted standby": Case(
        plan=standby(), kills=6, faults=3, kinds=("lose",), hosts=("db1", "cache1"), kind=Promoted
    ),
    "tuned hosts": Case(plan=TUNED, kills=3, faults=3, kinds=EVERY, hosts=("a",)),
    "tuned hosts, of a run that stops": Case(
        plan=replace(TUNED, on_loss="stop"), kills=3, faults=3, kinds=EVERY, hosts=("b",), recovers=False
    ),
    "reboots": Case(plan=REBOOT, kills=1),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_killed_before_any_input_and_resumed_gives_the_same(case: Case) -> None:
    whole = case.run()
    assert assert_ended(whole).status == "finished"
    wanted, order = case.found(whole.world), whole.world.ran()
    for at in thorough.every(case.kills, range(whole.inputs)):
        first = case.run(Fault(at=at, kind="kill"))
        ended_before = [str(event.id) for event in first.world.all(events.IterationFinished)]
        end = assert_ended(case.run(world=first.world))
        assert (end.status, end.exit_code) == ("finished", 0), at
        assert (case.found(first.world), first.world.ran()) == (wanted, order), at
        started = [str(event.id) for event in first.world.all(events.IterationStarted)]
        assert len(started) == len(set(started)), "no iteration is run under the same name twice"
        assert all(started.count(name) == 1 for name in ended_before)


def test_a_stage_that_a_resume_goes_on_with_begins_again() -> None:
    """Screen and metrics would show it as waiting, without its progress."""
    killed = (simulate(VALUES, None, Fault(at=at, kind="kill")).world for at in itertools.count())
    world = next(one for one in killed if one.all(events.ValuesTaken))
    length = len(world.events)
    completed(VALUES, world=world, epoch=2)
    assert [one.stage for one in world.events[length:] if isinstance(one, events.StageStarted)] == ["grow"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "kind"),
    [pytest.param(case, kind, id=f"{name}-{kind}") for name, case in CASES.items() for kind in case.kinds],
)
def test_a_fault_at_any_point_ends_definitely(case: Case, kind: FaultKind) -> None:
    whole = case.run()
    wanted = case.found(whole.world)
    for at in thorough.every(case.faults, range(whole.inputs)):
        host = case.hosts[at % len(case.hosts)]
        simulation = case.run(Fault(at=at, kind=kind, host=host))
        end = assert_ended(simulation)
        context = f"{host} before input {at}: {end.reason}"
        if end.status == "finished":
            assert case.found(simulation.world) == wanted, context
            continue
        assert end.exit_code == (130 if kind == "interrupt" else 4), context
        if kind == "lose" and case.recovers and at > len(case.plan.hosts):
            assert "they stay on" in end.reason, f"{context}: lost at the very end, before it was set back"


@pytest.mark.thorough
def test_killed_after_every_event_and_resumed_gives_the_same() -> None:
    """The journal may end at any event, also between two of one turn; the databases are where the crash left them."""
    whole = simulate()
    wanted, journal = whole.world.results(), list(whole.world.events)
    for length in thorough.every(13, range(len(journal))):
        world = World(events=journal[:length])
        facts = run_progress(world.events)
        world.data = {"backend", "cache"} if world.all(events.SystemUp) else set()
        world.loaded = {system for _, system in facts.populated}
        completed(world=world, epoch=2)
        assert world.results() == wanted, length
        again = [str(e.id) for e in world.events[length:] if isinstance(e, events.IterationStarted)]
        assert not {str(i.id) for i in facts.iterations} & set(again), length


def test_data_that_is_gone_is_made_again() -> None:
    whole = simulate()
    world = simulate(PLAN, None, Fault(at=whole.inputs * 3 // 4, kind="kill")).world
    world.data.discard("cache")
    before = len(world.keys)
    completed(world=world, epoch=2)
    what = world.what()[before:]
    assert what.index("stop:backend") < what.index("populate:backend") < what.index("link:cache"), what
    assert what.index("populate:cache") < what.index("link:cache")
    assert what.index("link:cache") < what.index("sql:backend"), "so is what the other end had, which was emptied too"
    assert world.results() == whole.world.results()


def test_statements_that_have_run_a_part_of_their_repeats_are_part_of_lost_data() -> None:
    killed = (simulate(VALUES, None, Fault(at=at, kind="kill")).world for at in itertools.count())
    world = next(one for one in killed if one.all(events.ValuesTaken))
    world.data.discard("backend")
    before = len(world.keys)
    completed(VALUES, world=world, epoch=2)
    assert world.what()[before:].count("sql:backend") == 3, "the first again, then the second and the third"
    assert [one.repeat for one in world.all(events.ValuesTaken)] == [1, 2, 3]


def test_a_lost_client_does_not_hide_that_data_is_gone() -> None:
    """The server's answer crosses the Cancel, and a repeated start does not say it again."""
    inputs = simulate().inputs
    for at in range(len(HOSTS), 20):
        world = simulate(PLAN, None, Fault(at=inputs * 3 // 4, kind="kill")).world
        world.data.discard("cache")
        before = len(world.keys)
        completed(PLAN, None, Fault(at=at, kind="lose", host="client1"), world=world, epoch=2)
        assert "populate:cache" in world.what()[before:], at


def test_of_systems_that_a_populate_has_filled_the_one_without_data_is_filled_again() -> None:
    """The other has been changed since."""
    apart = tuple(replace(system, propagates_to=None) for system in PLAN.systems)
    plan = replace(PLAN, systems=apart, stages=(*STAGES[:3], STAGES[3]))
    world = simulate(plan, None, Fault(at=simulate(plan).inputs * 3 // 4, kind="kill")).world
    world.data.discard("cache")
    before = len(world.keys)
    completed(plan, world=world, epoch=2)
    again = [what for what in world.what()[before:] if what.split(":")[0] in ("populate", "save", "sql")]
    assert [*dict.fromkeys(again)] == ["populate:cache", "save:cache"]


def test_data_that_a_resume_has_not_made_again_is_made_by_the_next() -> None:
    inputs, cut_short = simulate().inputs, 0
    for at in range(6, 40, 3):
        world = simulate(PLAN, None, Fault(at=inputs * 3 // 4, kind="kill")).world
        world.data.discard("cache")
        first = len(world.events)
        simulate(PLAN, None, Fault(at=at, kind="interrupt"), world=world, epoch=2)
        again = World(events=world.events[first:])
        if not any("is lost; it is" in one.text for one in again.all(events.Notice)):
            continue
        remade = {one.system for one in again.all(events.PopulateFinished)}
        before = len(world.keys)
        completed(world=world, epoch=3)
        if "cache" not in remade:
            cut_short += 1
            assert "populate:cache" in world.what()[before:], at
        assert not any(one.emptied for one in load_results(world.events).systems.values())
    assert cut_short > 2


@pytest.mark.parametrize(("kind", "host"), [("kill", ""), ("lose", "cache1"), ("lose", "db1")])
def test_the_data_of_a_server_elsewhere_is_removed_by_a_resume_that_has_only_the_end_to_run(
    kind: FaultKind, host: str
) -> None:
    elsewhere = tuple(Host(name=name, roles=(), address=f"{name}:1") for name in HOSTS)
    own = replace(of_ladders(FIRST), tunings=())
    plan = replace(of_ladders(FIRST), hosts=elsewhere)
    inputs = simulate(plan).inputs
    for at in range(inputs - 9, inputs) if kind == "lose" else ():
        end = assert_ended(simulate(own, None, Fault(at=at, kind=kind, host=host)))
        assert end.status == "finished", "data on this machine is removed by the coordinator"
    for at in range(inputs - 9, inputs):
        simulation = simulate(plan, None, Fault(at=at, kind=kind, host=host))
        if simulation.killed or assert_ended(simulation).status != "finished":
            completed(plan, world=simulation.world, epoch=2)


def test_a_run_is_not_finished_whose_agents_do_not_answer_that_their_data_is_removed() -> None:
    class Stuck(Simulation):
        def _finish(self, host: str, key: str, spec: object) -> Input | None:
            return None if isinstance(spec, tasks.StopSystem) else super()._finish(host, key, spec)

    elsewhere = tuple(Host(name=name, roles=(), address=f"{name}:1") for name in HOSTS)
    plan = replace(of_ladders(FIRST), hosts=elsewhere)
    stuck = simulate(plan, kind=Stuck)
    assert assert_ended(stuck).exit_code == 4
    completed(plan, world=stuck.world, epoch=2)


@pytest.mark.parametrize("provision", [None, "embedded"])
def test_a_run_that_is_broken_off_says_which_slots_of_the_user_it_keeps(provision: Literal["embedded"] | None) -> None:
    systems = tuple(replace(one, provision=provision, dsn=None if provision else "host=x") for one in PLAN.systems)
    stages = tuple(one for one in STAGES if not isinstance(one, st.Reset))
    plan = replace(PLAN, systems=systems, stages=stages)
    last = simulate(plan).inputs - 1
    for faults, kept in {
        (): "",
        (Fault(at=1, kind="interrupt"),): "",
        (Fault(at=last * 3 // 4, kind="interrupt"),): "for `proveout resume`",
        (Fault(at=last, kind="lose", host="cache1"),): "as its agent was lost",
    }.items():
        told = [one.text for one in simulate(plan, None, *faults).world.all(events.Notice) if "slot" in one.text]
        assert len(told) == (provision is None and kept != ""), faults
        assert all(kept in text for text in told)


def test_a_second_populate_of_a_propagation_replaces_the_first() -> None:
    other = Workload(name="other", kind="tpcb", parameters=(("scale", 1),))
    stages = (STAGES[0], replace(STAGES[0], id="again", workload="other"), STAGES[4])
    world = completed(replace(PLAN, stages=stages, workloads=(*PLAN.workloads, other)))
    populated = [(one.stage, one.system) for one in world.all(events.PopulateFinished)]
    assert populated == [(stage, system) for stage in ("load", "again") for system in ("backend", "cache")]
    links = [number for number, key in enumerate(world.keys) if "/link:" in key]
    assert len(links) == 2, "each when both ends are loaded"
    assert not [key for key in world.keys[links[1] :] if "/populate:" in key]
    of = [
        task.spec.workload.name
        for _, task in world.sent
        if isinstance(task.spec, tasks.LinkSystems | tasks.CompareSystems)
    ]
    assert of == ["hlr", "other", "other"], "that of the rows, also when both are compared"


def test_invalid_iterations_are_rerun_then_kept() -> None:
    iterations = run_progress(completed(PLAN, Model(invalid=frozenset({"baseline/2/1"}))).events).iterations
    assert [i.id.attempt for i in iterations if (i.id.rung, i.id.repeat) == (2, 1)] == [1, 2]


def test_an_agent_lost_three_times_ends_the_run() -> None:
    inputs = simulate().inputs
    end = assert_ended(simulate(PLAN, None, *(Fault(at=inputs * n // 5, kind="lose", host="db1") for n in (1, 2, 3))))
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "db1" in end.reason


# ---- hosts that are done without -------------------------------------------------------------------------------------


def losses_at_every_input(on_loss: OnLoss) -> list[Simulation]:
    plan = of_ladders(FIRST, on_loss=on_loss)
    inputs = range(len(HOSTS) + 1, simulate(plan).inputs, 5)
    return [simulate(plan, None, Fault(at=at, kind="lose_for_good", host="client2")) for at in inputs]


def test_continue_goes_on_without_a_client() -> None:
    seen_without = 0
    for simulation in losses_at_every_input("continue"):
        end = assert_ended(simulation)
        facts = run_progress(simulation.world.events)
        assert end.status == "finished", end.reason
        assert sorted(simulation.world.ran()) == sorted(("first", r, n) for r in (1, 2, 4) for n in (1, 2))
        lost = [n for n, e in enumerate(facts.history) if isinstance(e, events.AgentLost) and e.abandoned]
        later = [e.id for e in facts.history[lost[0] :] if isinstance(e, events.IterationStarted)] if lost else []
        for i in later:
            loads = [k for k in simulation.world.keys if f"/{i.stage}/{i.rung}/{i.repeat}/1.{i.attempt}/load/" in k]
            assert [load.rpartition("/")[2] for load in loads] == ["client1"]
        seen_without += bool(later)
    assert seen_without > 5


def test_continue_has_a_host_with_a_system_back_and_does_not_go_on_without_the_last_client() -> None:
    plan = of_ladders(FIRST, on_loss="continue")
    world = completed(plan, None, Fault(at=simulate(plan).inputs // 2, kind="lose", host="db1"))
    assert not run_progress(world.events).without
    plan = of_ladders(replace(FIRST, clients=("client2",)), on_loss="continue")
    last = simulate(plan, None, Fault(at=simulate(plan).inputs // 2, kind="lose_for_good", host="client2"))
    assert assert_ended(last).status == "failed"


@pytest.mark.parametrize("kind", ["command", "reboot"])
def test_continue_has_a_host_back_that_a_later_stage_is_about(kind: str) -> None:
    stages: dict[str, st.Stage] = {
        "command": st.CommandRun(id="last", host="client2", command=st.Command(argv=("sync",)), values=()),
        "reboot": st.Reboot(id="last", hosts=("client2",)),
    }
    plan = of_ladders(FIRST, on_loss="continue")
    plan = replace(plan, stages=(*plan.stages, stages[kind]))
    world = completed(plan, None, Fault(at=simulate(plan).inputs // 2, kind="lose", host="client2"))
    assert not any(lost.abandoned for lost in world.all(events.AgentLost))
    slow = st.Fault(name="slow", at_s=1.0, for_s=1.0, tunings=(replace(SWAPPED, hosts=("client2",)),))
    disturbed = of_ladders(replace(FIRST, faults=(slow,)), on_loss="continue")
    assert is_dispensable(disturbed, "client1", (), ())
    assert not is_dispensable(disturbed, "client2", (), ()), "later repeats would be undisturbed"


def test_a_resume_dials_a_host_again_that_the_last_sitting_went_without() -> None:
    plan = of_ladders(FIRST, on_loss="continue")
    inputs = simulate(plan).inputs
    faults = [Fault(at=inputs // 2, kind="lose", host="client2"), Fault(at=inputs - 5, kind="kill")]
    world = simulate(plan, None, *faults).world
    assert run_progress(world.events).without == {"client2"}
    world.events.append(run_started({}, epoch=2))
    assert not run_progress(completed(plan, world=world, epoch=2).events).without


def test_stop_ends_the_run_at_the_first_loss() -> None:
    for simulation in losses_at_every_input("stop"):
        end = assert_ended(simulation)
        if end.status == "finished":
            continue  # it was lost when all work was done
        assert end.exit_code == 4
        assert "client2" in end.reason
        assert [e.host for e in simulation.world.all(events.AgentUp)].count("client2") == 1


# ---- full disks: no retry is used up, and a resume runs every iteration ----------------------------------------------

LADDER = replace(FIRST, retries=0, captures=("os",))
FULL = wire.TaskError(code="disk_full", message="no space is left", way_out="free some")


class Filling(Simulation):
    """The `number`th task of a kind, and of the server all that follow, meet a full disk; `then` is the error of a server
    that does not start then."""

    kinds: ClassVar = {"load": tasks.RunLoad, "start": tasks.StartSystem, "populate": tasks.PopulateSystem}
    what, number, then = "load", 0, FULL

    def _full(self, key: str) -> bool:
        task = self.world.running.get(key)
        if task is None or not isinstance(task.spec, self.kinds[self.what]):
            return False
        self.number -= 1
        return self.number == 0 or (self.number < 0 and self.what == "start")

    def _start(self, host: str, key: str, in_s: float) -> None:
        if self._full(key):
            self._say(host, in_s + 1.0, messages.TaskFailed(key=key, error=FULL))
        else:
            super()._start(host, key, in_s)

    def _finish(self, host: str, key: str, spec: object) -> Input | None:
        silent = self.then is not FULL and self.number <= 0 and isinstance(spec, tasks.StartSystem)
        if silent or self._full(key):
            return self._heard(host, messages.TaskFailed(key=key, error=self.then))
        return super()._finish(host, key, spec)


def filled(plan: Plan, what: str, number: int, model: Model | None = None, then: wire.TaskError = FULL) -> World:
    """The world of a run that a full disk has stopped, and that a resume has finished."""
    kind = type("Of", (Filling,), {"what": what, "number": number, "then": then})
    first = simulate(plan, model, kind=kind)
    end = assert_ended(first)
    assert (end.status, end.exit_code) == ("failed", 4)
    for words in ("no space is left", "free some", then.message):
        assert words in end.reason
    stopped = World(events=list(first.world.events), keys=list(first.world.keys))
    world = completed(plan, world=first.world, epoch=2)
    assert sorted(world.ran()) == [("first", rung, repeat) for rung in LADDER.threads for repeat in (1, 2)]
    return stopped


@pytest.mark.parametrize(("what", "number"), [("load", 5), ("start", 1), ("populate", 2)])
def test_a_full_disk_stops_the_run_and_a_resume_runs_every_iteration(what: str, number: int) -> None:
    filled(of_ladders(LADDER), what, number)


def test_a_load_that_met_a_full_disk_is_explained_by_the_agent_of_the_database() -> None:
    """A server that cannot write its log does not name the full disk; the client's message does."""
    stopped = filled(of_ladders(LADDER), "load", 3)
    assert len([key for key in stopped.keys if "start:backend" in key]) == 2, "it was asked again after the load"
    assert "load" in stopped.all(events.RunFinished)[-1].reason
    filled(of_ladders(LADDER), "load", 3, then=replace(FULL, code="fault", message="no start"))


def test_iterations_that_ended_with_errors_before_the_full_disk_was_found_do_not_count() -> None:
    """The server died of a full disk, so that the load saw lost connections; only its restart finds why."""

    class Spoilt(Model):
        def work(self, command: Summarise) -> events.IterationFinished:
            found = super().work(command)
            return replace(found, findings=(events.ValidityFinding(check="errors", ok=found.valid, evidence="lost"),))

    plan = of_ladders(replace(LADDER, retries=1, order="ladder", seed=0))
    stopped = filled(plan, "start", 5, Spoilt(invalid=frozenset({"first/2/1"})))
    facts, found = run_progress(stopped.events), load_results(stopped.events).stages["first"]
    assert (len(facts.voided), len(found.voided)) == (2, 2)
    assert all(item.valid for item in (*facts.iterations, *found.iterations))


class Failing(Model):
    """All iterations but those of the stage `second` have errors of the database."""

    def work(self, command: Summarise) -> events.IterationFinished:
        finding = events.ValidityFinding(check="errors", ok=command.id.stage == "second", evidence="40001")
        return replace(super().work(command), findings=(finding,))


def test_the_report_of_a_probe_that_a_full_disk_has_voided_is_that_of_its_repetition() -> None:
    search = next(stage for stage in PLAN.stages if isinstance(stage, st.Search))
    plan = replace(PLAN, stages=(STAGES[0], replace(search, rate_to=10_000.0)))
    kind = type("Of", (Filling,), {"what": "load", "number": 4})
    stopped = simulate(plan, Failing(capacity=1e9), kind=kind)
    assert not load_results(stopped.world.events).stages["cap"].probes
    found = load_results(completed(plan, Model(), world=stopped.world, epoch=2).events).stages["cap"]
    reported = [(one.probe, one.rate, one.accepted) for one in found.probes]
    assert reported == [(one.id.repeat, one.rate, one.metrics["ok"]) for one in found.iterations]


def test_iterations_with_errors_of_a_stage_that_has_ended_count_when_a_disk_is_full_later() -> None:
    plan = of_ladders(LADDER, replace(LADDER, id="second"))
    whole = completed(plan, Failing())
    loads = sum("/first/" in key and "/load/" in key for key in whole.keys)
    stopped = simulate(plan, Failing(), kind=type("Of", (Filling,), {"what": "load", "number": loads + 1}))
    assert assert_ended(stopped).exit_code == 4
    assert sorted(completed(plan, Failing(), world=stopped.world, epoch=2).ran()) == sorted(whole.ran())
