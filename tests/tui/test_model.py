"""Event histories -> the view of a run."""

from __future__ import annotations

import dataclasses
from functools import reduce as fold
from typing import Any

import histories
import pytest

from proveout.coordinator.results.results import load_results
from proveout.proto.events import (
    AgentLine,
    AgentLost,
    AgentsTick,
    AgentUp,
    Event,
    FactsTaken,
    HostTick,
    InvariantsSeen,
    IterationFinished,
    IterationId,
    IterationStarted,
    IterationVoided,
    LadderCut,
    LoadTick,
    Notice,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageProgress,
    StageStarted,
    Stamped,
    SystemUp,
    TransactionsTick,
    TransactionSummary,
    TuningSeen,
    ValidityFinding,
    VerdictForeseen,
    VerdictReached,
    WaitsTick,
)
from proveout.proto.fault_events import FaultSeen
from proveout.proto.wire.results import Populated, TuningState
from proveout.tui import live_numbers
from proveout.tui.host_view import HostView
from proveout.tui.run_view import NOTICES_MAX, TICKS_MAX, RunView, reduce
from proveout.tui.widgets import host_rows, plan_tree, tables
from proveout.tui.widgets.header import alert, progress
from proveout.tui.widgets.host_rows import lease

PLAN = {
    "stages": [
        {"id": "load", "kind": "populate"},
        {"id": "base", "kind": "ladder", "threads": [1, 4], "repeat": 2},
        {"id": "cap", "kind": "search"},
    ]
}
STARTED = RunStarted(
    run_id="r-1", epoch=1, name="study", title="T", digest="d", plan=PLAN, version="1", estimate_s=100.0
)


def view_of(*events: Event | tuple[float, Event], view: RunView | None = None) -> RunView:
    """The view after these events; without a time they are a second apart from 1000 on."""
    now = 1000.0
    stamped = []
    for number, item in enumerate(events, 1):
        now, event = item if isinstance(item, tuple) else (now + 1.0, item)
        stamped.append(Stamped(sequence=number, unix_s=now, event=event))
    return fold(reduce, stamped, view or RunView())


def identity(rung: int = 4, repeat: int = 1, attempt: int = 1, stage: str = "base") -> IterationId:
    return IterationId(stage=stage, rung=rung, repeat=repeat, attempt=attempt)


def begun(**changes: Any) -> IterationStarted:
    return IterationStarted(id=identity(**changes), rate=None, starts_in_s=0.5, ramp_up_s=1, measure_s=5, ramp_down_s=1)


def ended(tps: float = 100.0, *, valid: bool = True, **changes: Any) -> IterationFinished:
    finding = ValidityFinding(check="errors", ok=valid, evidence="7 errors")
    return IterationFinished(
        id=identity(**changes),
        rate=None,
        measure_s=5.0,
        valid=valid,
        findings=(finding,),
        metrics={"tps": tps, "response": {"avg_us": 50.0, "p99_us": 90.0}},
        transactions=(),
    )


def tick(second: int) -> LoadTick:
    return LoadTick(
        id=identity(), second=second, window="measure", tps=1.0, avg_us=1.0, p50_us=1.0, p99_us=1.0, errors=0
    )


def stage(name: str, kind: str, estimate_s: float, iterations: int = 0) -> StageStarted:
    return StageStarted(stage=name, kind=kind, iterations=iterations, estimate_s=estimate_s)


def done(name: str) -> StageFinished:
    return StageFinished(stage=name, outcome="ok", seconds=1.0)


def test_a_run_shows_all_its_stages_from_the_start() -> None:
    view = view_of(STARTED)
    assert [(item.id, item.kind, item.state, item.iterations) for item in view.stages] == [
        ("load", "populate", "waiting", 0),
        ("base", "ladder", "waiting", 4),
        ("cap", "search", "waiting", 0),
    ]
    assert (view.state, view.run_id, view.elapsed_s, view.remaining_s) == ("running", "r-1", 0.0, 100.0)


def test_an_iteration_is_current_until_it_ends() -> None:
    running = view_of(STARTED, stage("base", "ladder", 40.0, 4), begun(), tick(0), tick(1))
    assert running.current == "base"
    assert running.iteration is not None
    assert [item.second for item in running.ticks] == [0, 1]
    finished = view_of(ended(123.0), view=running)
    assert finished.iteration is None
    (shown,) = finished.stages[1].finished
    assert (shown.tps, shown.avg_us, shown.p99_us, shown.valid, shown.why) == (123.0, 50.0, 90.0, True, "")


def test_a_new_iteration_begins_with_an_empty_series() -> None:
    view = view_of(STARTED, stage("base", "ladder", 40.0, 4), begun(), tick(0), ended(), begun(repeat=2))
    assert view.ticks == ()


def test_ladder_results_hold_valid_iterations_by_rung() -> None:
    view = view_of(
        STARTED,
        stage("base", "ladder", 40.0, 4),
        ended(1.0, rung=4),
        ended(2.0, rung=1),
        ended(9.0, rung=1, repeat=2, valid=False),
    )
    rungs = view.stages[1].rungs
    assert {rung: [item.tps for item in items] for rung, items in rungs.items()} == {1: [2.0], 4: [1.0]}
    assert list(rungs) == [1, 4]
    assert view.stages[1].finished[-1].why == "7 errors"


def test_remaining_time_goes_down_by_stages_and_by_iterations() -> None:
    def left(*events: tuple[float, Event]) -> float:
        return view_of((1000.0, STARTED), *events).remaining_s

    populate = ((1000.0, stage("load", "populate", 20.0)),)
    assert left(*populate) == 100.0
    assert left(*populate, (1005.0, tick(0))) == pytest.approx(95.0)
    over = (*populate, (1060.0, tick(0)))
    assert left(*over) == pytest.approx(80.0), "a stage that takes longer than estimated does not eat the others' time"
    loaded = (*populate, (1010.0, done("load")), (1010.0, stage("base", "ladder", 40.0, 4)))
    assert left(*loaded) == pytest.approx(80.0)
    turns = (
        *loaded,
        (1010.0, stage("cap", "ladder", 40.0, 4)),
        (1011.0, ended(rung=1)),
        (1012.0, ended(stage="cap", rung=1)),
    )
    assert left(*turns) == pytest.approx(60.0), "ladders that take turns are both under way"
    assert left(*loaded, (1011.0, ended(rung=1))) == pytest.approx(70.0)
    assert left(*loaded, (1039.0, ended(rung=1))) == pytest.approx(60.0), "time alone does not finish iterations"
    assert left(*loaded, (1011.0, ended(rung=1, valid=False))) == pytest.approx(79.0), (
        "an invalid try has to be run again"
    )
    finish = RunFinished(status="finished", exit_code=0, reason="", seconds=1.0)
    assert left(*loaded, (1012.0, finish)) == 0.0


def test_time_never_decreases() -> None:
    assert view_of((1000.0, STARTED), (1005.0, tick(0)), (1003.0, tick(1))).elapsed_s == 5.0


def numbers(view: RunView) -> str:
    """The third line of the header."""
    return "".join(text for text, _, _ in live_numbers.parts(view))


def test_all_growing_lists_are_bounded() -> None:
    notices = [Notice(level="info", host="", text=str(number)) for number in range(NOTICES_MAX + 50)]
    view = view_of(STARTED, begun(), *(tick(second) for second in range(TICKS_MAX + 50)), *notices)
    assert len(view.ticks) == TICKS_MAX
    assert view.ticks[-1].second == TICKS_MAX + 49
    assert len(view.notices) == NOTICES_MAX
    assert view.notices[-1].text == str(NOTICES_MAX + 49)


def test_hosts_connect_and_disconnect_and_show_their_newest_readings() -> None:
    up = AgentUp(host="db1", agent_version="1", machine_id="m", cores=8, offset_ns=0, uncertainty_ns=7)
    ticks = [HostTick(host="db1", capture="os", readings={"cpu.busy_fraction": value}) for value in (0.1, 0.9)]
    view = view_of(STARTED, up, *ticks, HostTick(host="db1", capture="lag", readings={"lag.seconds": 2.0}))
    host = view.hosts["db1"]
    assert (host.up, host.cores) == (True, 8)
    assert host.readings == {"os": {"cpu.busy_fraction": 0.9}, "lag": {"lag.seconds": 2.0}}
    gone = view_of(AgentLost(host="db1", reason="lease"), view=view).hosts["db1"]
    assert (gone.up, gone.lost) == (False, "lease")
    assert view_of(AgentLost(host="db1", reason="lease"), up, view=view).hosts["db1"].up


@pytest.mark.parametrize("width", range(8, 60))
def test_the_plan_tree_leaves_out_whole_numbers_and_never_their_digits(width: int) -> None:
    event = dataclasses.replace(ended(), metrics={"tps": 7225.0, "response": {"avg_us": 500.0, "p99_us": 175_000.0}})
    view = view_of(STARTED, stage("base", "ladder", 5.0), begun(), event)
    whole = {path: str(label).split() for path, label in plan_tree.lines(view)}
    for path, label in plan_tree.lines(view, width):
        indent = 2 * (len(path) - 1) + (2 if len(path) < 3 else 0)
        assert label.cell_len <= max(width - indent, 1)
        words = [word for word in str(label).split() if not word.endswith("…")]
        assert [word for word in whole[path] if word in words] == words
        assert ("p99" in words) == ("175" in words and "ms" in words)


def silent_tick(second: int, errors: int = 3) -> LoadTick:
    nothing: dict[str, Any] = {"tps": 0.0, "avg_us": None, "p50_us": None, "p99_us": None}
    return dataclasses.replace(tick(second), errors=errors, **nothing)


def test_a_system_that_answers_nothing_is_an_alert_until_it_answers_again() -> None:
    going = view_of(STARTED, stage("base", "ladder", 5.0), begun(), tick(0), silent_tick(1))
    assert alert(going) is None, "a single second may have no end of a long transaction"
    down = view_of(silent_tick(2), silent_tick(3), view=going)
    assert str(alert(down)) == "! no transaction has ended for 3 s, 9 errors"
    assert alert(view_of(tick(4), view=down)) is None
    slow_start = view_of(STARTED, stage("base", "ladder", 5.0), begun(), *map(silent_tick, range(4)))
    assert alert(slow_start) is None, "nothing has ended yet: long queries"


def test_an_invalid_iteration_is_a_problem_until_it_has_been_run_again() -> None:
    invalid = dataclasses.replace(
        ended(), valid=False, findings=(ValidityFinding(check="c", ok=False, evidence="busy"),)
    )
    bad = view_of(STARTED, stage("base", "ladder", 5.0), begun(), invalid)
    assert str(alert(bad)) == "! base/4/1/1 is invalid: busy"
    other = dataclasses.replace(ended(), id=identity(repeat=2))
    assert alert(view_of(other, view=bad)) is not None, "another repeat does not replace it"
    again = dataclasses.replace(ended(), id=identity(attempt=2))
    assert alert(view_of(again, view=bad)) is None
    assert alert(view_of(done("base"), view=bad)) is None, "its stage has ended: no more attempt comes"


def test_progress_that_arrives_after_the_end_of_its_stage_is_not_shown() -> None:
    going = view_of(STARTED, stage("load", "populate", 5.0), moved("load", 5))
    assert "5 of 9 rows" in numbers(going)
    after = view_of(done("load"), moved("load", 9), view=going)
    assert progress(after, 80).plain.splitlines()[0].startswith("between stages")
    ended = RunFinished(status="interrupted", exit_code=130, reason="stopped on request", seconds=3.0)
    assert progress(view_of(ended, view=going), 80).plain.splitlines()[0] == "run interrupted: stopped on request"


def moved(name: str, rows: int) -> StageProgress:
    return StageProgress(stage=name, host="c", done=rows, total=9, unit="rows")


def test_a_refused_probe_is_not_shown_as_passed() -> None:
    first = dataclasses.replace(ended(), id=dataclasses.replace(identity(), stage="cap", repeat=1))
    probe = ProbeFinished(stage="cap", probe=1, phase="bracket", rate=100.0, accepted=False, evidence="p99")
    view = view_of(STARTED, stage("cap", "search", 5.0), first, probe)
    (label,) = [label for path, label in plan_tree.lines(view) if len(path) == 3]
    assert str(label).startswith("✗ #1")
    assert "green" not in {str(span.style) for span in label.spans}


def test_a_repeat_whose_retries_are_used_up_counts_as_done() -> None:
    def at(repeat: int, *, valid: bool) -> IterationFinished:
        return dataclasses.replace(ended(), id=dataclasses.replace(identity(), repeat=repeat), valid=valid)

    started = stage("base", "ladder", 40.0, iterations=4)
    before = view_of((1000.0, STARTED), (1000.0, started), (1010.0, at(1, valid=False)))
    left = view_of((1020.0, at(2, valid=True)), view=before)
    assert before.remaining_s - left.remaining_s >= 10.0


def test_a_fault_is_an_alert_while_it_is_in_place_and_a_mark_on_the_time_axis() -> None:
    def seen(step: Any, at_s: float) -> FaultSeen:
        return FaultSeen(id=identity(), host="h", fault="crash", number=2, times=3, step=step, at_s=at_s)

    going = view_of((1000.0, STARTED), (1000.0, begun()), (1006.0, tick(0)), (1007.0, seen("begins", 1.0)))
    gone_s = 1007.0 - going.iteration_began_unix_s - begun().ramp_up_s - 1.0
    assert str(alert(going)) == f"! fault crash (2 of 3), for {max(gone_s, 0.0):.0f} s so far"
    (mark,) = going.fault_marks
    assert mark.unix_s == going.iteration_began_unix_s + begun().ramp_up_s + 1.0
    healed = view_of((1008.0, seen("in_place", 1.1)), (1009.0, seen("healed", 3.0)), view=going)
    assert alert(healed) is None
    assert [one.seen.step for one in healed.fault_marks] == ["begins", "healed"]
    after = view_of((1010.0, ended()), (1011.0, begun(repeat=2)), view=healed)
    assert after.fault_marks == healed.fault_marks, "the timeline goes over iterations"
    assert not after.faults


def test_a_percentile_beyond_what_was_answered_is_shown_as_a_lower_bound() -> None:
    numbers: dict[str, Any] = {"ok": 99, "logical_failures": 0, "errors": {}, "retried": 0, "missed": 0, "tps": 50.0}
    line = TransactionSummary(name="Get", response={"p50_us": 400.0}, service={}, **numbers)
    paths = {"response.p99_us": 4_999_000.0, "transactions.Get.response.p95_us": 1_000.0}
    withheld = {"transactions.Get.response.p99_us": 2_000.0}
    event = dataclasses.replace(
        ended(),
        metrics={"tps": 100.0, "response": {"avg_us": 500.0}},
        transactions=(line,),
        at_least=paths | withheld,
        not_given=tuple(withheld),
    )
    view = view_of(STARTED, stage("base", "ladder", 5.0), begun(), event)
    assert [str(label) for _, label in plan_tree.lines(view) if "p99" in str(label)] == ["✓ #1 100 p99 ≥ 4.99 s"]
    (row,) = tables.transactions(view)
    assert row[-3:] == ("400 µs", "≥ 1.00 ms", "-")


def test_a_search_shows_its_probes_and_its_answer() -> None:
    probe = ProbeFinished(stage="cap", probe=1, phase="bracket", rate=5.0, accepted=True, evidence="")
    found = SearchFinished(stage="cap", rate=5.0, probes=1, reason="")
    cap = view_of(STARTED, stage("cap", "search", 10.0, 20), probe, found).stages[2]
    assert (cap.probes, cap.search) == ((probe,), found)


def test_progress_is_removed_with_its_task() -> None:
    progress = StageProgress(stage="load", host="c1", done=5, total=10, unit="rows")
    running = view_of(STARTED, stage("load", "populate", 10.0), progress)
    assert running.stages[0].progress["c1"].done == 5
    populated = PopulateFinished(stage="load", system="db", populated=Populated(tables=(), seconds=1.0))
    loaded = view_of(populated, view=running).stages[0]
    assert (loaded.progress, loaded.populated) == ({}, (populated,))


def test_a_verdict_that_is_reached_again_replaces_itself() -> None:
    first = VerdictReached(id="v", title="", severity="fail", outcome="FAIL", check="", evidence="")
    view = view_of(STARTED, first, dataclasses.replace(first, outcome="PASS"))
    assert [verdict.outcome for verdict in view.verdicts] == ["PASS"]


def test_a_resumed_run_keeps_what_is_finished_and_goes_on() -> None:
    before = view_of(
        STARTED, stage("load", "populate", 20.0), done("load"), stage("base", "ladder", 40.0, 4), ended(rung=1), begun()
    )
    again = view_of((9000.0, dataclasses.replace(STARTED, resumed=1)), view=before)
    assert [item.state for item in again.stages] == ["ok", "waiting", "waiting"]
    assert (again.iteration, again.elapsed_s, again.resumed) == (None, 0.0, 1)
    assert again.remaining_s == pytest.approx(80.0)
    running = view_of((9001.0, begun(repeat=2)), view=again)
    assert (running.current, running.stages[1].state, len(running.stages[1].finished)) == ("base", "running", 1)


def test_events_of_unknown_stages_are_accepted() -> None:
    view = view_of(STARTED, ended(stage="other"), IterationVoided(id=identity(stage="other"), reason="", rerun=True))
    assert view.stage("other") is None
    shown = view_of(stage("other", "pause", 1.0), view=view)
    assert shown.stage("other") is not None


def test_every_kind_of_event_is_accepted() -> None:
    everything: list[Event] = [
        STARTED,
        SystemUp(system="db", host="db1", engine="postgres", version="18", provisioned=True),
        stage("base", "ladder", 1.0, 4),
        begun(),
        IterationVoided(id=identity(), reason="lost", rerun=True),
        LadderCut(stage="base", at_rung=1, skipped=(4,), evidence=""),
        FactsTaken(when="start", host="db1", facts={"kernel": "6.1"}),
        InvariantsSeen(stage="base", iteration="", system="db", checks=(), seconds=0.1),
        PropagationCompared(source="a", sink="b", drained=True, drain_s=1.0, tables=()),
        RunFinished(status="interrupted", exit_code=130, reason="Ctrl-C", seconds=2.0),
    ]
    view = view_of(*everything)
    assert view.state == "interrupted"
    assert view.stages[1].voided == 1
    assert view.stages[1].cut is not None
    assert set(view.systems) == {"db"}
    assert set(view.propagations) == {"a"}


def test_a_verdict_that_is_reached_takes_the_place_of_the_provisional_one() -> None:
    early = [
        VerdictForeseen(id=name, title="", severity="fail", outcome="FAIL", evidence="e") for name in ("one", "two")
    ]
    again = dataclasses.replace(early[0], outcome="PASS")
    view = view_of(STARTED, *early, again)
    assert view.foreseen == (early[1], again)
    assert view.judged_ids == {"one", "two"}
    reached = VerdictReached(id="one", title="", severity="fail", outcome="FAIL", check="c", evidence="e")
    view = view_of(reached, view=view)
    assert (view.foreseen, view.verdicts) == ((early[1],), (reached,))
    assert [line.text for line in view.log][-4:] == [
        "verdict one: FAIL so far", "verdict two: FAIL so far", "verdict one: PASS so far", "verdict one: FAIL"
    ]  # fmt: skip


def moving(identity: IterationId, window: Any, seconds: float) -> TransactionsTick:
    return TransactionsTick(id=identity, window=window, seconds=seconds, transactions=())


def test_live_values_belong_to_the_current_iteration_and_its_measure_window() -> None:
    one, two = (IterationId(stage="base", rung=4, repeat=repeat, attempt=1) for repeat in (1, 2))
    begin = IterationStarted(id=one, rate=None, starts_in_s=0.3, ramp_up_s=1, measure_s=2, ramp_down_s=1)
    waits = WaitsTick(id=one, host="db", capture="w", seconds=1.0, waits=())
    view = view_of(STARTED, begin, moving(one, "ramp_up", 1.0), moving(one, "measure", 2.0), waits)
    assert view.transactions == moving(one, "measure", 2.0)
    assert view.waits == {"w on db": waits}
    early = view_of(STARTED, begin, moving(one, "ramp_up", 1.0))
    titles = [
        tables.transactions_of(dataclasses.replace(early, now_unix_s=early.iteration_began_unix_s + second)).split(
            "#1, "
        )[1]
        for second in (0.5, 1.5)
    ]
    assert titles == ["ramp-up, which does not count", "newest are of the ramp-up, which does not count"]
    view = view_of(moving(one, "ramp_down", 1.0), moving(two, "measure", 9.0), view=view)
    assert view.transactions == moving(one, "measure", 2.0)
    view = view_of(IterationVoided(id=one, reason="r", rerun=True), moving(one, "measure", 3.0), view=view)
    assert (view.transactions, dict(view.waits)) == (None, {})


def test_a_table_without_a_row_says_why() -> None:
    ladder = {"id": "base", "kind": "ladder", "threads": [4], "repeat": 2, "captures": ["w"]}
    plan = {"stages": [ladder], "captures": [{"name": "w", "kind": "waits"}, {"name": "l", "kind": "lag"}]}
    going = view_of(dataclasses.replace(STARTED, plan=plan), stage("base", "ladder", 40.0, 4), begun())
    nothing = WaitsTick(id=identity(), host="db", capture="w", seconds=1.0, waits=())
    views = (going, view_of(nothing, view=going), view_of(ended(), view=going))
    assert [tables.waits(view)[0][0] for view in views] == [
        "no reading in this iteration yet", "no session was seen to wait", "no session was seen to wait"
    ]  # fmt: skip
    assert tables.lags(going)[0][0] == "base has no capture of kind lag"
    assert tables.probes(going)[0][0] == "no stage of the plan is a search"
    without = view_of(dataclasses.replace(STARTED, plan={"stages": [{**ladder, "captures": []}]}), begun())
    assert tables.waits(without)[0][0] == "base has no capture of kind waits"
    assert tables.waits(view_of(STARTED)) == []


@pytest.mark.parametrize(("passes", "shown"), [(1, "1 pass"), (3, "3 passes")])
def test_a_window_of_passes_has_no_length(passes: int, shown: str) -> None:
    begin = IterationStarted(
        id=identity(), rate=None, starts_in_s=0.0, ramp_up_s=0, measure_s=1200, ramp_down_s=0, passes=passes
    )
    view = dataclasses.replace(view_of(STARTED, begin), now_unix_s=0.0)
    view = dataclasses.replace(view, now_unix_s=view.iteration_began_unix_s + 12.0)
    line = progress(view, 80).plain
    assert line.startswith("base · 4 threads · repeat 1 of 2")
    assert line.endswith(f"  {shown}, 12 s, at most 20 min 00 s")


def test_connected_agents_show_their_lease_and_lost_ones_stay_lost() -> None:
    up = AgentUp(host="a", agent_version="1", machine_id="m", cores=2, offset_ns=1, uncertainty_ns=1)
    line = AgentLine(host="a", offset_ns=5, uncertainty_ns=6, silent_s=7.0, connected=False)
    stranger = dataclasses.replace(line, host="b")
    tick = AgentsTick(lease_s=10.0, beat_s=2.0, agents=(line, stranger))
    view = view_of(STARTED, up, tick)
    host = view.hosts["a"]
    assert (host.offset_ns, host.uncertainty_ns, host.silent_s, host.connected) == (5, 6, 7.0, False)
    assert set(view.hosts) == {"a"}
    view = view_of(AgentLost(host="a", reason="r"), dataclasses.replace(tick, agents=()), up, view=view)
    assert view.hosts["a"].connected
    assert view.hosts["a"].silent_s == 0.0


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (HostView(name="h"), "· not yet"),
        (HostView(name="h", up=True, silent_s=4.0), "✓ up"),
        (HostView(name="h", up=True, silent_s=6.4), "! silent 6 s of 10"),
        (HostView(name="h", up=True, silent_s=3.0, connected=False), "! dialling again, lease ends in 7 s"),
    ],
)
def test_the_text_of_a_lease(host: HostView, text: str) -> None:
    assert lease(host, lease_s=10.0, beat_s=2.0) == text


def test_a_tuning_is_followed_to_its_end() -> None:
    view = view_of(*histories.tuned())
    swapping, ports, hostile = view.tunings.values()
    assert (swapping.sign, swapping.describe(ended=False)) == ("✓", "applied, reverted")
    assert swapping.changes == ("vm.swappiness: 60 -> 10",)
    assert (ports.sign, ports.describe(ended=False)) == ("!", "unchanged, changed from outside")
    assert (hostile.sign, hostile.describe(ended=False)) == ("✗", "applied, NOT reverted")
    assert hostile.left == ("net.core.somaxconn could not be written",)
    lines = [(line.level, line.text) for line in view.log if line.text.startswith("tuning")]
    assert lines == [
        ("info", "tuning: 1 applied, 1 unchanged"), ("info", "tuning: 1 applied"),
        ("info", "tuning: 1 in place, 1 drifted"), ("info", "tuning: 1 reverted"), ("error", "tuning: 1 residue"),
    ]  # fmt: skip
    above = alert(view)
    assert above is not None
    assert "NOT reverted" in above.plain


def test_a_tuning_that_fails_reverts_the_others_and_the_worst_outcome_counts() -> None:
    def seen(act: Any, **outcomes: Any) -> TuningSeen:
        states = tuple(TuningState(name=name, operation="o", outcome=outcome) for name, outcome in outcomes.items())
        return TuningSeen(host="h", act=act, states=states)

    view = view_of(STARTED, seen("apply", one="applied"), seen("apply", two="failed"), seen("apply", one="reverted"))
    assert [one.describe(ended=False) for one in view.tunings.values()] == ["applied, reverted", "failed"]
    view = view_of(seen("revert", one="residue"), seen("revert", one="reverted"), view=view)
    assert view.tunings["h", "one"].end == "residue"
    view = view_of(seen("apply", one="applied"), view=view)  # of a host that was lost and is tuned again
    assert view.tunings["h", "one"].describe(ended=False) == "applied"


@pytest.mark.parametrize("repeats", [1, 2, 3])
@pytest.mark.parametrize("repeat_min", [None, 2])
def test_the_interval_of_a_rung_is_that_of_the_report(repeats: int, repeat_min: int | None) -> None:
    ladder = {"id": "base", "kind": "ladder", "threads": [4], "repeat": 6, "repeat_min": repeat_min}
    started = dataclasses.replace(STARTED, plan={"stages": [ladder]})
    items = [
        dataclasses.replace(ended(100.0 + repeat, repeat=repeat), series={"tps": (90.0 + repeat, 100.0, 110.0)})
        for repeat in range(repeats, 0, -1)
    ]
    invalid = ended(7.0, valid=False, repeat=9)
    taken_back = [ended(900.0, repeat=8), IterationVoided(id=identity(repeat=8), reason="r", rerun=False)]
    events = [started, stage("base", "ladder", 40.0, 6), *items, invalid, *taken_back]
    (seen,) = view_of(*events).stages
    (rung,) = load_results(events).stages["base"].rungs
    reported = rung.tree["tps"]
    shown = seen.throughput[4]
    assert (shown.mean, shown.lower, shown.upper) == (reported["mean"], reported.get("lower"), reported.get("upper"))
    assert (shown.lower is None) is (repeats == 1)
    reported = {**reported, "lower": 1.0}  # once the stage has ended, those of the results, whatever they are
    (seen,) = view_of(*events, dataclasses.replace(done("base"), metrics={"rungs": {"4": {"tps": reported}}})).stages
    assert seen.throughput[4].lower == 1.0


def test_equipment_is_listed_below_the_hosts() -> None:
    declared = [{"name": "db1", "kind": "host"}, {"name": "tor1", "kind": "switch"}]
    view = view_of(dataclasses.replace(STARTED, plan={**STARTED.plan, "declared": declared}))
    assert host_rows.hosts_and_equipment(view)[len(view.hosts) :] == [("tor1", "", "none: switch", *["-"] * 9)]
    assert host_rows.hosts_and_equipment(view_of(STARTED)) == host_rows.hosts(view_of(STARTED))
