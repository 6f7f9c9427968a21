"""Event histories -> the view of a run, of a node of its plan, and the tree that follows it."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import histories
import pytest
from histories import done, ended, identity, stage, tick, view_of
from pilots import still
from results_of_runs import FakeRun

from proveout.coordinator.results.results import load_results
from proveout.proto import events as e
from proveout.proto.events import Event, FaultSeen
from proveout.proto.wire.results import Populated
from proveout.tui import charts, live_load, panes, tables
from proveout.tui.header import Top, alert, progress
from proveout.tui.panes import PlanTree
from proveout.tui.run_app import RunApp
from proveout.tui.run_view import LOAD, NOTICES_MAX, SECONDS_MAX, RunView, scoped

PLAN = {
    "stages": [
        {"id": "load", "kind": "populate"},
        {"id": "base", "kind": "ladder", "threads": [1, 4], "repeat": 2},
        {"id": "cap", "kind": "search"},
    ]
}
STARTED = histories.started(PLAN, estimate_s=100.0)
LADDER = stage("base", iterations=4, estimate_s=40.0)
BEGUN = histories.begun(4, 1)


def numbers(view: RunView) -> str:
    """The third line of the header."""
    return "".join(text for text, _, _ in live_load.parts(view))


def test_remaining_time_goes_down_by_stages_and_by_iterations() -> None:
    def left(*events: tuple[float, e.Event]) -> float:
        return view_of((0.0, STARTED), *events).remaining_s

    def first(*, stage: str = "base", valid: bool = True) -> e.IterationFinished:
        return ended(1, 1, 100.0, stage=stage, valid=valid)

    populate = ((0.0, stage("load", "populate", 0, 20.0)),)
    assert left(*populate) == 100.0
    assert left(*populate, (5.0, tick(0))) == pytest.approx(95.0)
    assert left(*populate, (60.0, tick(0))) == pytest.approx(80.0), "a late stage does not eat the others' time"
    loaded = (*populate, (10.0, done("load")), (10.0, LADDER))
    assert left(*loaded) == pytest.approx(80.0)
    turns = ((10.0, stage("cap", "ladder", 4, 40.0)), (11.0, first()), (12.0, first(stage="cap")))
    assert left(*loaded, *turns) == pytest.approx(60.0), "ladders that take turns are both under way"
    assert left(*loaded, (11.0, first())) == pytest.approx(70.0)
    assert left(*loaded, (39.0, first())) == pytest.approx(60.0), "time alone does not finish iterations"
    assert left(*loaded, (11.0, first(valid=False))) == pytest.approx(79.0), "an invalid try has to be run again"
    used_up = ((20.0, first(valid=False)), (30.0, ended(1, 2, 100.0)))
    assert left(*loaded, *used_up) == pytest.approx(60.0), "a repeat whose retries are used up counts as done"
    assert left(*loaded, (12.0, e.RunFinished(status="finished", exit_code=0, reason="", seconds=1.0))) == 0.0


def test_all_growing_lists_are_bounded() -> None:
    notices = [e.Notice(level="info", host="", text=str(number)) for number in range(NOTICES_MAX + 50)]
    view = view_of(STARTED, BEGUN, *histories.ticks(4, 1, SECONDS_MAX + 50), *notices)
    assert len(view.seconds) == SECONDS_MAX
    assert view.seconds[-1].tick.second == SECONDS_MAX + 49
    assert len(view.notices) == NOTICES_MAX
    assert view.notices[-1].text == str(NOTICES_MAX + 49)


@pytest.mark.parametrize("width", [8, 23, 40])
def test_the_plan_tree_leaves_out_whole_numbers_and_never_their_digits(width: int) -> None:
    event = dataclasses.replace(
        ended(4, 1, 0.0), metrics={"tps": 7225.0, "response": {"avg_us": 500.0, "p99_us": 175_000.0}}
    )
    view = view_of(STARTED, LADDER, BEGUN, event)
    whole = {path: str(label).split() for path, label in panes.lines(view)}
    for path, label in panes.lines(view, width):
        indent = 2 * (len(path) - 1) + (2 if len(path) < 3 else 0)
        assert label.cell_len <= max(width - indent, 1)
        words = [word for word in str(label).split() if not word.endswith("…")]
        assert [word for word in whole[path] if word in words] == words
        assert ("p99" in words) == ("175" in words and "ms" in words)


def test_the_plan_tree_shows_no_estimate_without_its_interval_at_any_width() -> None:
    answer = e.SearchFinished(stage="cap", rate=4000.0, probes=2, reason="", upper=4400.0, confirmations=9)
    close = [ended(4, repeat, 6000.0 + 55.0 * repeat) for repeat in (1, 2, 3)]
    wide = [ended(1, 1, 1000.0), ended(1, 2, 1200.0)]
    view = view_of(STARTED, LADDER, *wide, *close, done("base"), stage("cap", "search", 8, 9.0), answer)
    assert estimates(view, 38) == [
        "1 thr 1,100 (350 … 3,500)", "4 thr 6,110 (5,970 … 6,250)", "▶ cap search 0:01 4,000/s … 4,400/s"
    ]  # fmt: skip
    assert estimates(view, 27) == ["1 thr", "4 thr 6,110 ± 140", "▶ cap 4,000/s … 4,400/s"], "in 80 columns"
    assert estimates(view, 20) == ["1 thr", "4 thr", "▶ cap"]
    alone = view_of(STARTED, LADDER, ended(4, 1, 6110.0))
    assert estimates(alone, 27)[0] == "4 thr 6,110", "one repeat has no interval on any surface"


def estimates(view: RunView, width: int) -> list[str]:
    """The lines of the rungs and of the search."""
    labels = {path: str(label).strip() for path, label in panes.lines(view, width)}
    return [label for path, label in labels.items() if len(path) == 2 or path == ("cap",)]


def test_a_system_that_answers_nothing_is_an_alert_until_it_answers_again() -> None:
    def silent(second: int) -> e.Event:
        return histories.silent(tick(second), 3)

    going = view_of(STARTED, LADDER, BEGUN, tick(0), silent(1))
    assert alert(going) is None, "a single second may have no end of a long transaction"
    down = view_of(silent(2), silent(3), view=going)
    assert str(alert(down)) == "! no transaction has ended for 3 s, 9 errors"
    assert alert(view_of(tick(4), view=down)) is None
    slow_start = view_of(STARTED, LADDER, BEGUN, *map(silent, range(4)))
    assert alert(slow_start) is None, "nothing has ended yet: long queries"


def test_an_invalid_iteration_is_a_problem_until_it_has_been_run_again() -> None:
    bad = view_of(STARTED, LADDER, ended(4, 1, 100.0, valid=False))
    assert str(alert(bad)) == "! base/4/1/1 is invalid: the client was at 97 % of its CPU"
    assert alert(view_of(ended(4, 2, 100.0), view=bad)) is not None, "another repeat does not replace it"
    assert alert(view_of(ended(4, 1, 100.0, attempt=2), view=bad)) is None
    assert alert(view_of(done("base"), view=bad)) is None, "its stage has ended: no more attempt comes"


def test_progress_goes_with_its_task_and_its_stage() -> None:
    def moved(rows: int) -> e.StageProgress:
        return e.StageProgress(stage="load", host="c", done=rows, total=9, unit="rows")

    going = view_of(STARTED, stage("load", "populate", 0, 5.0), moved(5))
    assert "5 of 9 rows" in numbers(going)
    populated = e.PopulateFinished(stage="load", system="db", populated=Populated(tables=(), seconds=1.0))
    loaded = view_of(populated, view=going).stages[0]
    assert (loaded.progress, loaded.populated) == ({}, (populated,))
    after = view_of(done("load"), moved(9), view=going)
    assert progress(after, 80).plain.splitlines()[0].startswith("between stages")
    stopped = e.RunFinished(status="interrupted", exit_code=130, reason="stopped on request", seconds=3.0)
    assert progress(view_of(stopped, view=going), 80).plain.splitlines()[0] == "run interrupted: stopped on request"


def test_a_search_shows_its_probes_and_no_refused_one_as_passed() -> None:
    probe = e.ProbeFinished(stage="cap", probe=1, phase="bracket", rate=100.0, accepted=False, evidence="p99")
    found = e.SearchFinished(stage="cap", rate=5.0, probes=1, reason="")
    view = view_of(STARTED, stage("cap", "search", 20, 5.0), ended(4, 1, 100.0, stage="cap"), probe, found)
    assert (view.stages[2].probes, view.stages[2].search) == ((probe,), found)
    (label,) = [label for path, label in panes.lines(view) if len(path) == 3]
    assert str(label).startswith("✗ #1")
    assert "green" not in {str(span.style) for span in label.spans}


def test_a_search_is_shown_in_the_unit_of_what_it_looks_for_with_its_own_interval() -> None:
    def of(over: Any, level: float, **more: Any) -> RunView:
        probe = e.ProbeFinished(
            stage="cap", probe=1, phase="confirm", rate=level, accepted=True, evidence="", over=over
        )
        found = e.SearchFinished(stage="cap", rate=level, probes=1, reason="", over=over, **more)
        return view_of(STARTED, stage("cap", "search", 20, 5.0), probe, found)

    rate, threads = of("rate", 500.0, lower=450.0, upper=600.0, confirmations=6), of("threads", 64.0)
    (label,) = [str(label) for path, label in panes.lines(rate) if path == ("cap",)]
    assert label.endswith(" 450/s … 600/s")
    for view, shown, unit in ((rate, "500/s", "1/s"), (threads, "64 threads", "threads")):
        assert [row[3] for row in tables.probes(view)] == [shown, shown]
        *_, axis = charts.draw_search(view.stages[2].probes, None, 60, 12)
        assert str(axis).split("└")[0].strip() == unit
    probe = dataclasses.replace(rate.stages[2].probes[0], rate=0.4)
    slow = view_of(STARTED, stage("cap", "search", 20, 5.0), probe)
    assert "best so far 0.4/s" in str(panes.stage_text(slow, 60, 12)), "less than 1 in 2 s is not none"
    slow = view_of(dataclasses.replace(BEGUN, id=identity(4, 1, stage="cap"), rate=0.4), view=slow)
    assert " · 0.4/s" in str(progress(slow, 80))


def test_the_rung_of_a_tool_is_a_depth_over_its_numbers() -> None:
    view = view_of(STARTED, stage("disk", "tool", 3, 5.0), ended(8, 1, 100.0, stage="disk"))
    assert tables.transactions_of(view) == "transactions: disk, depth 8, #1, which has ended"


def test_a_fault_is_an_alert_while_it_is_in_place_and_a_mark_on_the_time_axis() -> None:
    def seen(step: Any, at_s: float, host: str = "h", fault: str = "crash") -> FaultSeen:
        return FaultSeen(id=identity(4, 1), host=host, fault=fault, number=2, times=3, step=step, at_s=at_s)

    going = view_of((0.0, STARTED), (0.0, BEGUN), (6.0, tick(0)), (7.0, seen("begins", 1.0)))
    assert str(alert(going)) == "! fault crash (2 of 3), for 2 s so far", "of 7 s: 0.5 s before T0, 3 s of ramp-up, 1 s"
    on_two = view_of((7.0, seen("begins", 1.1, "i")), (8.0, seen("healed", 2.0)), view=going)
    assert str(alert(on_two)) == "! fault crash (2 of 3), for 3 s so far", "until it is healed on all hosts"
    other = seen("begins", 1.0, fault="loss")
    two = str(alert(view_of((7.0, other), (7.0, seen("begins", 1.1, "i")), view=going)))
    assert two.index("crash") < two.index("loss"), "in the order of their begins"
    (mark,) = going.fault_marks
    assert mark.unix_s == going.iteration_began_unix_s + BEGUN.ramp_up_s + 1.0
    healed = view_of((8.0, seen("in_place", 1.1)), (9.0, seen("healed", 3.0)), view=going)
    assert alert(healed) is None
    assert [one.seen.step for one in healed.fault_marks] == ["begins", "healed"]
    after = view_of((10.0, ended(4, 1, 100.0)), (11.0, histories.begun(4, 2)), view=healed)
    assert after.fault_marks == healed.fault_marks, "the timeline goes over iterations"
    assert alert(after) is None


def test_a_percentile_beyond_what_was_answered_is_shown_as_a_lower_bound() -> None:
    counts: dict[str, Any] = {"ok": 99, "logical_failures": 0, "errors": {}, "retried": 0, "missed": 0, "tps": 50.0}
    line = e.TransactionSummary(name="Get", response={"p50_us": 400.0}, service={}, **counts)
    paths = {"response.p99_us": 4_999_000.0, "transactions.Get.response.p95_us": 1_000.0}
    withheld = {"transactions.Get.response.p99_us": 2_000.0}
    event = dataclasses.replace(
        ended(4, 1, 100.0),
        metrics={"tps": 100.0, "response": {"avg_us": 500.0}},
        transactions=(line,),
        at_least=paths | withheld,
        not_given=tuple(withheld),
    )
    view = view_of(STARTED, LADDER, BEGUN, event)
    assert [str(label) for _, label in panes.lines(view) if "p99" in str(label)] == ["✓ #1 100 p99 ≥ 4.99 s"]
    (row,) = tables.transactions(view)
    assert row[-3:] == ("400 µs", "≥ 1.00 ms", "-")
    for ok, failed, share in ((98, 2, "2 %"), (0, 9, "✗ 100 %")):
        some = dataclasses.replace(line, ok=ok, logical_failures=failed)
        (row,) = tables.transactions(dataclasses.replace(view, last=dataclasses.replace(event, transactions=(some,))))
        assert row[3] == share, "marked where nothing succeeded"


def test_a_resumed_run_keeps_what_is_finished_and_goes_on() -> None:
    before = view_of(
        STARTED, stage("load", "populate", 0, 20.0), done("load"), LADDER, ended(1, 1, 100.0), histories.begun(4, 1)
    )
    again = view_of((9000.0, dataclasses.replace(STARTED, resumed=1)), view=before)
    assert [item.state for item in again.stages] == ["ok", "waiting", "waiting"]
    assert (again.iteration, again.elapsed_s, again.resumed) == (None, 0.0, 1)
    assert again.remaining_s == pytest.approx(80.0)
    running = view_of((9001.0, histories.begun(4, 2)), view=again)
    assert (running.current, running.stages[1].state, len(running.stages[1].finished)) == ("base", "running", 1)


def test_a_verdict_takes_the_place_of_the_provisional_one_and_of_itself() -> None:
    early = [
        e.VerdictForeseen(id=name, title="", severity="fail", outcome="FAIL", evidence="e") for name in ("one", "two")
    ]
    again = dataclasses.replace(early[0], outcome="PASS")
    view = view_of(STARTED, *early, again)
    assert view.foreseen == (early[1], again)
    assert view.judged_ids == {"one", "two"}
    reached = e.VerdictReached(id="one", title="", severity="fail", outcome="FAIL", check="c", evidence="e")
    view = view_of(reached, view=view)
    assert (view.foreseen, view.verdicts) == ((early[1],), (reached,))
    assert [line.text for line in view.log][-4:] == [
        "verdict one: FAIL so far", "verdict two: FAIL so far", "verdict one: PASS so far", "verdict one: FAIL"
    ]  # fmt: skip
    after_a_resume = dataclasses.replace(reached, outcome="PASS")
    assert view_of(after_a_resume, view=view).verdicts == (after_a_resume,)


def test_live_values_belong_to_the_current_iteration_and_its_measure_window() -> None:
    def moving(repeat: int, window: Any, seconds: float) -> e.TransactionsTick:
        return e.TransactionsTick(id=identity(4, repeat), window=window, seconds=seconds, transactions=())

    waits = e.WaitsTick(id=identity(4, 1), host="db", capture="w", seconds=1.0, waits=())
    view = view_of(STARTED, BEGUN, moving(1, "ramp_up", 1.0), moving(1, "measure", 2.0), waits)
    assert view.transactions == moving(1, "measure", 2.0)
    assert view.waits == {"w on db": waits}
    early = view_of(STARTED, BEGUN, moving(1, "ramp_up", 1.0))
    at = [dataclasses.replace(early, now_unix_s=early.iteration_began_unix_s + second) for second in (0.5, 3.5)]
    assert [tables.transactions_of(view).split("#1, ")[1] for view in at] == [
        "ramp-up, not counted", "still of the ramp-up, not counted"
    ]  # fmt: skip
    view = view_of(moving(1, "ramp_down", 1.0), moving(2, "measure", 9.0), view=view)
    assert view.transactions == moving(1, "measure", 2.0)
    view = view_of(e.IterationVoided(id=identity(4, 1), reason="r", rerun=True), moving(1, "measure", 3.0), view=view)
    assert (view.transactions, dict(view.waits)) == (None, {})


def test_connected_agents_show_their_lease_and_lost_ones_stay_lost() -> None:
    up = histories.up("a")
    line = e.AgentLine(host="a", offset_ns=5, uncertainty_ns=6, silent_s=7.0, connected=False)
    tick = e.AgentsTick(lease_s=10.0, beat_s=2.0, agents=(line, dataclasses.replace(line, host="b")))
    view = view_of(STARTED, up, tick)
    host = view.hosts["a"]
    assert (host.uncertainty_ns, host.silent_s, host.connected) == (6, 7.0, False)
    assert set(view.hosts) == {"a"}
    view = view_of(e.AgentLost(host="a", reason="r"), tick, up, view=view)
    assert (view.hosts["a"].connected, view.hosts["a"].silent_s) == (True, 0.0)


@pytest.mark.parametrize(("repeats", "repeat_min"), [(1, None), (3, 2)])
def test_the_interval_of_a_rung_is_that_of_the_report(repeats: int, repeat_min: int | None) -> None:
    ladder = {"id": "base", "kind": "ladder", "threads": [4], "repeat": 6, "repeat_min": repeat_min}
    items = [
        dataclasses.replace(ended(4, repeat, 100.0 + repeat), series={"tps": (90.0 + repeat, 100.0, 110.0)})
        for repeat in range(repeats, 0, -1)
    ]
    taken_back = [ended(4, 8, 900.0), e.IterationVoided(id=identity(4, 8), reason="r", rerun=False)]
    events = [histories.started({"stages": [ladder]}), LADDER, *items, ended(4, 9, 7.0, valid=False), *taken_back]
    (seen,) = view_of(*events).stages
    (rung,) = load_results(events).stages["base"].rungs
    reported = rung.tree["tps"]
    shown = seen.throughput[4]
    assert (shown.mean, shown.lower, shown.upper) == (reported["mean"], reported.get("lower"), reported.get("upper"))
    assert (shown.lower is None) is (repeats == 1)
    reported = {**reported, "lower": 1.0}  # once the stage has ended, those of the results, whatever they are
    (seen,) = view_of(*events, dataclasses.replace(done("base"), metrics={"rungs": {"4": {"tps": reported}}})).stages
    assert seen.throughput[4].lower == 1.0


def test_time_never_decreases() -> None:
    assert view_of((0.0, STARTED), (5.0, tick(0)), (3.0, tick(1))).elapsed_s == 5.0


def test_equipment_is_listed_below_the_hosts() -> None:
    declared = [{"name": "db1", "kind": "host"}, {"name": "tor1", "kind": "switch"}]
    view = view_of(histories.started({**PLAN, "declared": declared}))
    assert tables.hosts_and_equipment(view)[len(view.hosts) :] == [("tor1", "", "none: switch", *["-"] * 9)]
    assert tables.hosts_and_equipment(view_of(STARTED)) == tables.hosts(view_of(STARTED))


def test_a_tool_has_depths_and_its_unit_where_a_load_has_threads() -> None:
    plan = {"stages": [{"id": "base", "kind": "tool", "iodepths": [2, 16], "repeat": 3}]}
    repeats = [
        dataclasses.replace(ended(16, repeat, 800.0 + 200 * repeat), transactions=(), waits=()) for repeat in (1, 2)
    ]
    view = view_of(
        histories.started(plan), stage("base", "tool", 6), *repeats, histories.begun(16, 3), (12.0, tick(3, 16, 3))
    )
    labels = {path: str(label) for path, label in panes.lines(view)}
    assert labels["base",].startswith("▶ base tool")
    assert labels["base", "16"] == "▶ depth 16 1,100 (350 … 3,500)"
    assert labels["base", "16", "base/16/1/1"] == "✓ #1 1,000 p99 2.15 ms"
    assert labels["base", "16", str(identity(16, 3))] == "▶ #3 running"
    assert "mean IOPS" in panes.ladder_text(view, 80).plain
    shown = live_load.timeline(view)
    assert shown is not None
    assert (shown.unit, shown.iterations[0].name) == ("IOPS", "depth 16 #3")


def two_rungs() -> list[Event]:
    """A ladder with two finished iterations, and a third one under way."""
    first = dataclasses.replace(
        histories.ended(1, 1, 3000.0),
        metrics={"tps": 3000.0, "hosts": {"db1": {"cpu": {"busy_fraction": 0.25}, "disk": {"write_bytes_per_s": 1e6}}}},
    )
    return [
        *histories.opening(), histories.done("load"), histories.stage("base"),
        histories.begun(1, 1), *histories.ticks(1, 1, 15), first,
        histories.begun(4, 1), *histories.ticks(4, 1, 15), histories.ended(4, 1, 6000.0, valid=False),
        histories.begun(4, 2), *histories.ticks(4, 2, 5), histories.readings("db1", 0.9),
        histories.transactions(4, 2, "measure", 2.0), histories.waits(4, 2, 2.0),
    ]  # fmt: skip


def test_a_finished_iteration_has_its_own_numbers_in_every_pane() -> None:
    whole = view_of(*two_rungs())
    view = scoped(whole, ("base", "1", "base/1/1/1"))
    assert view.shown == "base 1 thr #1"
    assert {moment.tick.id.rung for moment in view.seconds} == {1}
    assert [item.id.rung for item in view.stages[0].finished] == [1]
    assert [one.started.id.rung for one in view.begun] == [1]
    assert (view.transactions, dict(view.waits), view.iteration) == (None, {}, None)
    assert tables.transactions(view)[0][1] == "750"
    assert "which has ended" in tables.transactions_of(view)
    machine, *hosts = tables.hosts(view)
    assert machine[3] == "25 %", "the mean of the iteration, not the newest reading"
    assert [host[3] for host in hosts] == ["", ""], "the CPU of a machine stands once"
    assert "1 thr #1" not in [line.text for line in view.log]


def test_verdicts_are_those_that_read_the_stage() -> None:
    verdicts = [
        {"id": name, "check": {"text": "", "needs": needs}} for name, needs in (("a", ["base"]), ("b", ["cap"]))
    ]
    view = view_of(histories.started({**histories.PLAN, "verdicts": verdicts}))
    assert scoped(view, ("cap",)).planned_verdicts == {"b": ("cap",)}
    assert [*scoped(view, ()).planned_verdicts] == ["a", "b"]
    assert scoped(view, ("no such stage",)) is view


def test_a_load_limits_the_transactions() -> None:
    now = histories.transactions(4, 2, "measure", 2.0)
    lines = [
        dataclasses.replace(line, name=f"{'orders' if n else 'reads'}.{line.name}")
        for n, line in enumerate(now.transactions)
    ]
    view = view_of(*two_rungs(), dataclasses.replace(now, transactions=tuple(lines)))
    names = [row[0] for row in tables.transactions(scoped(view, ("base", "4", f"{LOAD}reads")))]
    assert names == ["reads.GetSubscriberData"]


def labels(tree: PlanTree) -> list[str]:
    """The lines that can be seen."""
    return [str(line.node.label).strip() for line in tree._tree_lines]


async def test_the_tree_follows_the_iteration_and_folds_the_other_rungs() -> None:
    app = RunApp(histories.Still(two_rungs()), FakeRun())
    async with app.run_test(size=(120, 40)) as pilot:
        await still(pilot)
        tree = app.screen.query_one(PlanTree)
        assert tree.cursor_node is not None
        assert tree.cursor_node.data == ("base", "4", "base/4/2/1")
        assert [label for label in labels(tree) if "#" in label] == ["✗ #1 INVALID 6,000 p99 2.15 ms", "▶ #2 running"]
        app.view = view_of((app.view.now_unix_s + 1 - histories.START_S, histories.begun(1, 2)), view=app.view)
        app._stale = True
        await still(pilot)
        assert tree.cursor_node.data == ("base", "1", "base/1/2/1")
        assert [label for label in labels(tree) if "#" in label] == ["✓ #1 3,000 p99 -", "▶ #2 running"]


async def test_a_selected_node_limits_the_panes_until_escape() -> None:
    app = RunApp(histories.Still(two_rungs()), FakeRun())
    async with app.run_test(size=(120, 40)) as pilot:
        await still(pilot)
        tree = app.screen.query_one(PlanTree)
        await pilot.press("home", "down", "down", "enter")
        await still(pilot)
        assert tree.cursor_node is not None
        assert tree.cursor_node.data == ("base", "1")
        assert "[only base 1 thr; Esc: all]" in str(app.screen.query_one(Top).content)
        assert "TPS" in str(app.screen.query_one("#load").content)  # type: ignore[attr-defined]
        assert "4 thr" not in str(app.screen.query_one("#load").content)  # type: ignore[attr-defined]
        await pilot.press("escape")
        await still(pilot)
        assert "[only" not in str(app.screen.query_one(Top).content)
        assert tree.cursor_node.data == ("base", "4", "base/4/2/1")


@pytest.mark.parametrize(("count", "shown"), [(0, "1 2 3 4"), (8, "7 8 9 10"), (15, "13 14 15 16")])
def test_where_few_rungs_fit_the_one_under_way_is_shown(count: int, shown: str) -> None:
    plan = {"stages": [{"id": "base", "kind": "ladder", "threads": [*range(1, 17)], "repeat": 1}]}
    each = [(histories.begun(rung, 1), ended(rung, 1, 100.0)) for rung in range(1, count + 1)]
    under_way = histories.begun(count + 1, 1)
    view = view_of(histories.started(plan), stage("base"), *itertools.chain.from_iterable(each), under_way)
    rungs = [
        line.strip("▶ ").split(" ")[0] for line in str(panes.stage_text(view, 60, 7)).splitlines() if " thr" in line
    ]
    assert " ".join(rungs) == shown
