"""Ladders: the order of their iterations, the loads of a stage, the cells of a `matrix:`, and turns with their steps.

Whole plans with a matrix, and the messages of wrong ones, are golden files (good/matrix, bad/matrix*).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_documents import Entry, compiled, document, embedded, ladder, made, populate, refused, reset, sql

from proveout.core.errors import PlanError
from proveout.dsl.explain.text import _span, render
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.plan.iteration_order import groups, rungs, slots
from proveout.dsl.plan.loads import alone_ladders, connections, named, part, parts, targets, workloads
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import (
    Closed,
    Ladder,
    Load,
    Open,
    Pause,
    Phased,
    Restart,
    Search,
    Sessions,
    Sql,
    Stage,
    Think,
    Windows,
    ids,
    label_text,
    same,
)
from proveout.dsl.plan.topology import Expression
from proveout.dsl.rules.repeat_rules import once_only

WINDOWS = Windows(ramp_up_s=1.0, measure_s=5.0, ramp_down_s=0.0)
BASE = Ladder(id="a", workload="w", target="t", clients=("c",), threads=(1, 2, 4, 8), windows=WINDOWS)
SHUFFLED = replace(BASE, order="shuffled", seed=2)
TURNS = replace(BASE, id="b", order="interleaved", interleaved_with="a", threads=(2, 4))
PAUSE = Pause(id="p", duration_s=1.0)


def turns(*stages: Stage) -> list[list[str]]:
    return [[one.id for one in members] for members in groups(stages)]


# ---- the order of iterations


@given(
    seed=st.integers(0, 2**31 - 1),
    repeat=st.integers(1, 20),
    threads=st.sets(st.integers(1, 10_000), min_size=1, max_size=20),
)
def test_every_slot_comes_once(seed: int, repeat: int, threads: set[int]) -> None:
    one = replace(SHUFFLED, seed=seed, repeat=repeat, threads=tuple(sorted(threads)))
    two = replace(TURNS, repeat=repeat)
    ran = list(slots((one, two), one))
    wanted = {(s.id, rung, number) for s in (one, two) for rung in s.threads for number in range(1, repeat + 1)}
    assert Counter((s.ladder.id, s.rung, s.repeat) for s in ran) == Counter(wanted)
    assert [s.repeat for s in ran] == sorted(s.repeat for s in ran), "a repeat ends before the next begins"


def test_shuffling_is_fair_and_the_draw_of_a_seed_never_changes() -> None:
    """Each of the 24 orders of 4 rungs is as likely: 2,400 seeds give each about 100 times (5 sigma: 51 to 149). A plan's
    digest determines its order."""
    seen = Counter(rungs(SHUFFLED, replace(SHUFFLED, seed=seed), 1) for seed in range(2400))
    assert len(seen) == 24
    assert 51 <= min(seen.values()) <= max(seen.values()) <= 149
    three = replace(SHUFFLED, threads=(1, 2, 4))
    assert [rungs(three, three, repeat) for repeat in (1, 2, 3)] == [(2, 1, 4), (1, 2, 4), (4, 2, 1)]


def test_ladders_take_turns_and_every_second_repeat_has_them_in_reverse() -> None:
    """The longer one ends alone. A turn with steps is a whole ladder."""
    ran = [(s.repeat, s.ladder.id, s.rung) for s in slots((BASE, TURNS), BASE) if s.repeat < 3]
    assert ran == [
        *((1, "a", 1), (1, "b", 2), (1, "a", 2), (1, "b", 4), (1, "a", 4), (1, "a", 8)),
        *((2, "b", 2), (2, "a", 1), (2, "b", 4), (2, "a", 2), (2, "a", 4), (2, "a", 8)),
    ]
    one, two = replace(BASE, threads=(1, 2), after=("a__after_1",)), replace(TURNS, before=("b__before_1",))
    whole = [(s.ladder.id, s.rung) for s in slots((one, two), one) if s.repeat < 3]
    assert whole == [("a", 1), ("a", 2), ("b", 2), ("b", 4), ("b", 2), ("b", 4), ("a", 1), ("a", 2)]
    between = replace(PAUSE, id="a__after_1"), replace(PAUSE, id="b__before_1")
    assert turns(one, *between, two) == [["a", "b"]]
    assert turns(one, *between, PAUSE, two) == [["a"], ["b"]]


def test_only_neighbours_are_a_group() -> None:
    assert turns(BASE, TURNS, replace(TURNS, id="c", interleaved_with="b")) == [["a", "b", "c"]]
    assert turns(BASE, PAUSE, TURNS) == [["a"], ["b"]]
    assert turns(BASE, replace(BASE, id="c")) == [["a"], ["c"]]


# ---- the loads of a stage

LOADS = (
    Load(name="a", workload="w", target="one", clients=("c1",), share=(1, 6), think=Think(mean_s=0.5)),
    Load(name="b", workload="v", target="two", clients=("c1", "c2"), share=(1, 3)),
    Load(name="c", workload="w", target="two", clients=("c2",), share=(1, 2), session=(("x", "1"),)),
    Load(name="nightly", workload="q", target="one", clients=("c2",), threads=3, rate=2.0, distribution="poisson"),
)


def of_loads(**changes: Any) -> Ladder:
    loaded = replace(BASE, id="l", workload="", target="", clients=("c1", "c2"), threads=(6, 7, 64), loads=LOADS)
    return replace(loaded, **changes)


@pytest.mark.parametrize("rung", [6, 7, 8, 63, 64, 1000])
def test_the_shares_of_a_rung_add_up_to_it_and_own_threads_stay(rung: int) -> None:
    *shared, own = parts(of_loads())
    assert sum(one.threads(rung) for one in shared) == rung
    assert all(abs(one.threads(rung) - rung * one.share) < 1 for one in shared)
    assert own.threads(rung) == 3 and own.beside and not any(one.beside for one in shared)
    for whole in (*shared, own):
        (alone,) = parts(of_loads(alone=whole.name, interleaved_with="l", id="m"))
        assert targets(alone.stage) == (whole.stage.target,), "also of its own stage, which has no loads"
        assert alone.threads(rung) == whole.threads(rung) and alone.arrival == whole.arrival
        assert not alone.beside, "its numbers are the rung's own"


def test_a_rate_is_divided_and_a_rate_of_its_own_is_not() -> None:
    assert [one.rate(600.0) for one in parts(of_loads())] == [pytest.approx(100.0), pytest.approx(200.0), 300.0, 2.0]
    assert [one.rate(None) for one in parts(of_loads())] == [None, None, None, 2.0]
    line = Level(for_s=10.0, at_s=(0.0, 10.0), values=(60.0, 120.0))
    wave = Level(for_s=10.0, values=(60.0,), amplitude=20.0, period_s=5.0)
    divided = part(of_loads(arrival=Phased(levels=(line, wave))), "c").arrival
    assert isinstance(divided, Phased)
    assert [(level.values, level.amplitude) for level in divided.levels] == [((30.0, 60.0), 0.0), ((30.0,), 10.0)]
    later = Open(rate=Expression(text="cap.rate"))
    assert part(of_loads(arrival=later), "c").arrival == later
    search = Search(
        id="s", workload="", target="", clients=("c1",), threads=12, rate_from=1.0, rate_to=9.0,
        accept=Expression(text="tps > 1"), probe=WINDOWS, confirm=WINDOWS, loads=LOADS,
    )  # fmt: skip
    assert [one.threads(12) for one in parts(search)] == [2, 4, 6, 3]
    stages = [one.stage for one in parts(search)]
    assert [one.distribution for one in stages if isinstance(one, Search)][2:] == ["constant", "poisson"]


def test_each_part_is_a_stage_of_that_load_alone() -> None:
    first, _, third, own = parts(of_loads(arrival=Closed(think=Think(mean_s=9.0))))
    assert first.arrival == Closed(think=Think(mean_s=0.5)) and third.arrival == Closed(think=Think(mean_s=9.0))
    assert (third.stage.id, third.stage.workload, third.stage.target, third.stage.clients) == ("l", "w", "two", ("c2",))
    assert third.stage.session == (("x", "1"),) and third.stage.loads == ()
    assert own.arrival == Open(rate=2.0, distribution="poisson")
    (one,) = parts(BASE)
    assert one.stage is BASE and one.name == "" and one.threads(5) == 5 and one.rate(7.0) == 7.0


def test_targets_workloads_and_connections_are_those_of_all_loads_that_run() -> None:
    assert targets(of_loads()) == ("one", "two") and workloads(of_loads()) == ("w", "v", "q")
    assert [max(connections(of_loads(), name)) for name in ("one", "two")] == [11 + 3, 21 + 32]
    assert targets(of_loads(alone="c")) == ("two",) and workloads(of_loads(alone="nightly")) == ("q",)
    assert max(connections(of_loads(alone="nightly"), "one")) == 3
    assert connections(replace(BASE, sessions=Sessions(pool=3)), "t") == (1, 2, 3, 3)
    data = {"id": "l", "workload": "", "loads": [{"workload": one.workload, "target": one.target} for one in LOADS]}
    assert (named(data)["workload"], named(data)["target"]) == ("w + v + q", "one + two")
    data = {"id": "x", "alone": "b", "loads": [{"name": n, "workload": n, "target": n} for n in "ab"]}
    assert (named(data)["workload"], named(data)["target"]) == ("b", "b")
    one, other = (of_loads(id=f"l__{name}", alone=name, interleaved_with=of) for name, of in (("a", "l"), ("b", "k")))
    turned = of_loads(id="z", interleaved_with="l")
    assert alone_ladders((of_loads(), one, other, turned), of_loads()) == {"a": one}


def test_every_rung_and_the_ladder_around_an_answer_have_a_thread_for_each_load(tmp_path: Path) -> None:
    loads = {name: {"workload": "hlr", "target": "db", "share": "1/2"} for name in "ab"}
    search = {"id": "s", "loads": loads, "threads": {"from": 2, "to": 8}, "accept": "errors.count == 0"}
    found = refused(tmp_path, {"search": {**search, "then": {"threads": ["50%", "150%"]}}})
    assert found == ["a rung of 1 thread has none for load `b`"]
    assert compiled(tmp_path, {"search": {**search, "then": {"threads": ["100%", "150%"]}}})
    shares = {"a": "3/10", "b": "1/10", "c": "3/5"}
    loads = {name: {"workload": "hlr", "target": "db", "share": share} for name, share in shares.items()}
    rungs = {"ladder": {"loads": loads, "threads": [3, 4], "measure": "1s"}}
    assert refused(tmp_path, rungs) == ["a rung of 4 threads has none for load `b`"]


@pytest.mark.parametrize(("threads", "few"), [([5, 6, 7, 9], False), ([5, 8], True)])
def test_every_rung_has_keys_of_a_programs_range_for_each_client_host(
    threads: list[int], few: bool, tmp_path: Path
) -> None:
    argv = ["bench", "{threads}", "{seconds}", "{range_from}"]
    program = {"kind": "program", "argv": argv, "range": [1, 6], "output": "pgbench"}
    plan = document(ladder("m", workload="w", threads=threads), workloads={"w": program})
    plan["stages"] = plan["stages"][1:]
    plan["topology"]["hosts"] |= {f"c{n}": {"roles": ["client"], "address": "local"} for n in range(4)}
    if not few:
        assert made(tmp_path, plan)
        return
    with pytest.raises(PlanError) as raised:
        made(tmp_path, plan)
    (problem,) = raised.value.problems
    assert "at 8 threads a client host gets none of the keys" in problem.message


def test_a_table_that_is_none_is_not_read_to_its_end(tmp_path: Path) -> None:
    phased = ladder("run", phases=[{"name": "day", "from": "rates.csv"}])
    del phased["ladder"]["measure"]
    huge = "5" * 200_000  # the csv module ends there
    (tmp_path / "rates.csv").write_text("seconds,rate\n" + "60\n" * 10 + huge)
    assert refused(tmp_path, phased) == ["a row of 1 values"] * 10
    (tmp_path / "rates.csv").write_text(f"seconds,rate\n0,{huge}\n")
    assert refused(tmp_path, phased) == ["not a table: field larger than field limit (131072)"]


# ---- the cells of a matrix

MODES = {"mode": ["a", "b"]}


def test_the_matrices_of_a_plan_share_a_bound_and_are_refused_before_expansion(tmp_path: Path) -> None:
    thousand = list(range(1000))
    messages = refused(tmp_path, ladder("huge", matrix={"a": thousand, "b": thousand}))
    assert messages == ["the matrix has 1,000,000 cells (1000 × 1000); a plan has at most 256"]
    many = ladder("one", matrix={"a": list(range(200))})
    messages = refused(tmp_path, many, ladder("two", matrix={"a": list(range(57))}))
    assert messages == ["the matrix has 57 cells; a plan has at most 256, 56 of which are left"]
    assert len(compiled(tmp_path, many, ladder("two", matrix={"a": list(range(56))})).stages) == 257


def test_a_value_may_be_in_several_cells_of_zipped_axes_and_no_cell_twice(tmp_path: Path) -> None:
    def zipped(modes: list[str]) -> Entry:
        return ladder("m", matrix={"axes": {"mode": modes, "degree": [0, 2, 0]}, "combine": "zip"})

    found = [stage.id for stage in compiled(tmp_path, zipped(["heap", "heap", "cover"])).stages]
    assert found[1:] == ["m__heap__degree_0", "m__heap__degree_2", "m__cover__degree_0"]
    assert refused(tmp_path, zipped(["heap", "cover", "heap"])) == ["two cells have the same values"]


def test_a_misspelt_name_of_a_matrix_or_an_axis_is_one_problem(tmp_path: Path) -> None:
    check = {"verdicts": [{"id": "v", "check": 'mm.mode("a").at(1).tps.mean > 1'}]}
    assert refused(tmp_path, ladder("m", matrix=MODES), **check) == ["the results have no `mm`"]
    swept = ladder("m", matrix=MODES, before=[{"populate": {"workload": "hlr", "into": "db"}}])
    plan = document(swept, workloads={"hlr": {"kind": "hlr", "population": "${matrix.rows}"}})
    with pytest.raises(PlanError) as caught:
        made(tmp_path, plan | {"stages": [swept]})
    assert [one.message for one in caught.value.problems] == [
        "workload `hlr` has ${matrix.rows}, and the matrix has no axis `rows`"
    ]
    fine = ladder("m", matrix={"rows": [1, 2]}, before=swept["ladder"]["before"])
    with pytest.raises(PlanError) as caught:
        made(tmp_path, plan | {"stages": [populate("load"), fine]})
    assert [one.message for one in caught.value.problems] == [
        "workload `hlr` has ${matrix.rows}, and this stage has no matrix"
    ]


def test_ids_are_all_different_and_short_enough_for_a_stage_and_labels_are_compared_as_plans_write_them() -> None:
    labels = [(("mode", text),) for text in ("a b", "c3", "a-b", "ü", "é", "x" * 300, "y" * 300, "7", "-7")]
    found = ids("solve", labels)
    assert len(set(found)) == len(labels)
    assert max(map(len, found)) <= 56
    assert found[0] == "solve__a_b"
    assert [same(2, 2.0), same(1, True), same("2", 2), same("a", "a")] == [True, False, False, True]


def test_the_shortest_time_of_a_ladder_has_its_longest_ramp_up_once(tmp_path: Path) -> None:
    plan = compiled(tmp_path, ladder("l", threads=[1, 2], measure="5s", ramp_up="auto(2s..10s)", ramp_down="0s"))
    line = timetable(plan).stages[1]
    assert (line.seconds_min, line.seconds) == (2 * (10 + 2 + 2) + 6 * (5 + 1), 6 * (10 + 5 + 1))


def test_a_ladder_of_fixed_repeats_has_one_time(tmp_path: Path) -> None:
    """It had two that look alike, `17.1s to 17.1s`, where three thirds of a number are another one."""
    ladders = [ladder(f"l{tenths}", measure=f"{tenths / 10}s", repeat=3) for tenths in range(10, 100)]
    lines = timetable(compiled(tmp_path, *ladders)).stages
    assert [(line.seconds_min, line.seconds) for line in lines if line.seconds_min != line.seconds] == []
    assert [_span(*pair) for pair in ((66.1, 66.2), (60.0, 66.2))] == ["1m 6s", "1m to 1m 6s"]


def test_the_shortest_time_of_a_plan_is_without_what_the_run_may_leave_out(tmp_path: Path) -> None:
    then = {"pause": {"id": "p", "duration": "1h", "when": "l.peak.tps.mean > 1"}}
    after = {"pause": {"id": "q", "duration": "1h", "needs": "p"}}
    table = timetable(compiled(tmp_path, ladder("l"), then, after))
    assert table.seconds - table.seconds_min == pytest.approx(7200.0)


def test_the_rate_of_a_phase_alone_is_explained_as_a_phase(tmp_path: Path) -> None:
    wave = {"name": "day", "for": "10s", "rate": {"mean": "100/s", "amplitude": "50/s", "period": "5s"}}
    phased = ladder("l", phases=[wave])
    del phased["ladder"]["measure"]
    assert "3 times; constant arrival in phases" in render(timetable(compiled(tmp_path, phased)))


def test_cells_are_shown_whose_labels_are_digits_and_no_numbers(tmp_path: Path) -> None:
    text = render(
        timetable(
            compiled(
                tmp_path, ladder("m", matrix={"x": ["²", "³"]}, before=[sql("SELECT ${matrix.x}", repeatable=True)])
            )
        )
    )
    assert "the other cells and what is different" in text


def test_a_number_within_a_text_is_the_one_that_the_plan_has(tmp_path: Path) -> None:
    """`:g` has six digits, and `str` an exponent."""
    step = sql("SELECT ${matrix.x}, ${params.eps}, ${params.n}", repeatable=True)
    params = {"eps": {"type": "float"}, "n": {"type": "int"}}
    plan = document(ladder("m", matrix={"x": [0.1234567, 0.1234568]}, before=[step]), params=params)
    found = made(tmp_path, plan, eps="0.00001", n="1_000")
    statements = [stage.statements[0] for stage in found.stages if isinstance(stage, Sql)]
    assert statements == ["SELECT 0.1234567, 0.00001, 1000", "SELECT 0.1234568, 0.00001, 1000"]
    assert [label_text([("x", value)]) for value in (0.1234567, 2.0, 1_000_000.0)] == [
        "x 0.1234567",
        "x 2",
        "x 1000000",
    ]


def test_an_expression_may_name_the_labels_in_any_order(tmp_path: Path) -> None:
    checks = {
        "one": 'm.mode("a").n(0.5).flag(true).at(1).tps.mean > 1',
        "two": "m.flag(true).n(0.50).mode('a').at(1).tps.mean > 1",
        "minus": 'm.mode("b").n(-1).flag(false).peak.tps.mean > 1',
    }
    cells = ladder("m", matrix={"mode": ["a", "b"], "n": [0.5, -1], "flag": [True, False]})
    plan = compiled(tmp_path, cells, verdicts=[{"id": name, "check": check} for name, check in checks.items()])
    texts = [check.check.text for check in plan.verdicts]
    assert texts[0] == texts[1] == "m__a__n_0_5__flag_true.at(1).tps.mean > 1"
    assert texts[2] == "m__b__n_1__flag_false.peak.tps.mean > 1"
    assert plan.verdicts[0].check.needs == ("m__a__n_0_5__flag_true",)


def test_steps_belong_to_a_ladder_without_a_matrix_too(tmp_path: Path) -> None:
    steps = [sql("SELECT 1")]
    plain = ladder("plain", before=steps, after=[*steps, {"pause": {"duration": "1s"}}], needs="load")
    plan = compiled(tmp_path, plain)
    names = ["plain__before_1", "plain", "plain__after_1", "plain__after_2"]
    assert [stage.id for stage in plan.stages] == ["load", *names]
    assert {one.stage for one in plan.conditions if one.needs == ("load",)} == set(names)


def test_a_stage_that_needs_a_ladder_runs_after_its_steps_and_after_those_that_take_turns_with_it(
    tmp_path: Path,
) -> None:
    """It ran before the steps after the ladder, which take its changes back."""
    needy = {"pause": {"id": "p", "duration": "1s", "needs": "l"}}
    more = {"before": [sql("ANALYZE")], "after": [sql("SELECT 1")]}
    loads = {name: {"workload": "hlr", "target": "db", "share": "1/2"} for name in "ab"}
    together = {"id": "l", "loads": loads, "interference": True, "threads": 2, "measure": "1s"}
    for stages in (
        [ladder("l", **more)],
        [ladder("l", matrix=MODES, **more)],
        [ladder("l"), ladder("k", order="interleaved", **{"with": "l"})],
        [{"ladder": together}],
    ):
        assert compiled(tmp_path, needy, *stages).stages[-1].id == "p"


def test_a_ladder_and_those_that_run_its_loads_alone_have_one_condition(tmp_path: Path) -> None:
    loads = {name: {"workload": "hlr", "target": "db", "share": "1/2"} for name in "ab"}
    together = {"id": "l", "loads": loads, "interference": True, "threads": 2, "measure": "1s", "needs": "load"}
    conditions = compiled(tmp_path, {"ladder": together}).conditions
    assert [one.stage for one in conditions] == ["l", "l__a_alone", "l__b_alone"]


def test_a_pool_needs_no_connection_for_each_thread(tmp_path: Path) -> None:
    systems = {"db": embedded("postgres")}
    assert compiled(tmp_path, ladder("l", threads=1_000, sessions={"pool": 280}), systems=systems)
    found = refused(tmp_path, ladder("l", threads=1_000, sessions={"pool": 281}), systems=systems)
    assert found == ["stage `l` needs 281 connections, but `db` has 300: 20 are kept for what is not load"]


# ---- turns with their steps


def apart(plan: Plan) -> set[str]:
    return {stage.apart for stage in plan.stages if isinstance(stage, Ladder)}


def ladder_of(plan: Plan, name: str) -> Ladder:
    found = plan.stage(name)
    assert isinstance(found, Ladder)
    return found


def test_cells_take_turns_by_default_and_the_first_one_has_the_seed_of_a_shuffled_order(tmp_path: Path) -> None:
    plan = compiled(tmp_path, ladder("m", matrix=MODES), ladder("n", matrix=MODES, order="shuffled", seed=7))
    assert turns(*plan.stages) == [["m__a", "m__b"], ["n__a", "n__b"]]
    assert apart(plan) == {""}
    assert [stage.seed for stage in plan.stages if isinstance(stage, Ladder)] == [None, None, 7, None]


def test_cells_that_take_turns_are_repeated_until_the_verdicts_on_some_are_decided(tmp_path: Path) -> None:
    verdicts = [{"id": "v", "check": 'm.mode("a").at(1).tps > 1'}]
    assert compiled(tmp_path, ladder("m", matrix=MODES, repeat="auto(3..5)"), verdicts=verdicts)
    one_by_one = ladder("m", matrix=MODES, repeat="auto(3..5)", order="ladder")
    (problem,) = refused(tmp_path, one_by_one, verdicts=verdicts)
    assert problem == "`m__b` is repeated until its verdicts are decided, but no verdict reads it"


def restarting(folder: Path, *stages: Entry) -> Plan:
    """A plan with two servers, of which one has been restarted with a setting."""
    restart = {"restart": {"system": "db", "settings": {"work_mem": "1MB"}}}
    systems = {"db": embedded("postgres"), "other": embedded("postgres")}
    text = document(restart, *stages, systems=systems)
    text["stages"][0] = populate("load", ["db", "other"])
    return made(folder, text)


EACH = {"measure": "10s", "restart": "each_repeat"}


def test_each_repeat_is_a_turn_whose_servers_restart_with_the_settings_that_they_have(tmp_path: Path) -> None:
    plan = restarting(tmp_path, ladder("one", reload="each_repeat", **EACH))
    assert ladder_of(plan, "one").before == ("one__reset_1", "one__restart_1")
    restart = plan.stage("one__restart_1")
    assert isinstance(restart, Restart) and restart.settings == (("work_mem", "1MB"),)
    shown = {line.id: line for line in timetable(plan).stages}
    assert shown["one__restart_1"].seconds == 3 * 3.0, "each of the three repeats"
    both = {"a": {"workload": "hlr", "target": "db"}, "b": {"workload": "hlr", "target": "other"}}
    duet = {"ladder": {"id": "duet", "loads": both, "versus": "500ms", "threads": 2, **EACH}}
    assert ladder_of(restarting(tmp_path, duet), "duet").before == ("duet__restart_1", "duet__restart_2")
    second = ladder("two", order="interleaved", **{"with": "one"}, **EACH)
    plan = restarting(tmp_path, ladder("one", **EACH), second)
    assert turns(*plan.stages) == [["one", "two"]]
    assert ladder_of(plan, "two").before == ("two__restart_1",)


def test_parameters_can_be_in_what_is_read_before_they_are_put_in(tmp_path: Path) -> None:
    """`reload: ${params.r}` was accepted, and nothing was restored; with an id of a parameter it was restored once."""
    params = {"r": {"type": "text", "default": "each_repeat"}, "c": {"type": "text", "default": "zip"}}
    axes = {"axes": {"n": [1, 2], "o": [3, 4]}, "combine": "${params.c}"}
    params["id"] = {"type": "text", "default": "l"}
    plan = compiled(tmp_path, ladder("${params.id}", reload="${params.r}"), ladder("m", matrix=axes), params=params)
    assert [stage.id for stage in plan.stages] == ["load", "l__reset_1", "l", "m__n_1__o_3", "m__n_2__o_4"]
    assert ladder_of(plan, "l").before == ("l__reset_1",)
    sizes = {"hlr": {"kind": "hlr", "population": 100}, "of": {"kind": "hlr", "population": "${matrix.n}"}}
    of = ladder(
        "s", matrix={"n": [50, 60]}, workload="${params.w}", before=[{"populate": {"workload": "of", "into": "db"}}]
    )
    plan = compiled(tmp_path, of, params={"w": {"type": "text", "default": "of"}}, workloads=sizes)
    assert [stage.workload for stage in plan.stages if isinstance(stage, Ladder)] == ["of__n_50", "of__n_60"]


def test_steps_of_a_ladder_that_run_once_stay_so_beside_those_of_each_repeat(tmp_path: Path) -> None:
    once = sql("CREATE INDEX i ON subscriber (msc_location)")
    plan = restarting(tmp_path, ladder("one", before=[once], **EACH))
    assert ladder_of(plan, "one").before == ("one__restart_1",)
    names = [stage.id for stage in plan.stages]
    assert names.index("one__before_1") < names.index("one__restart_1") < names.index("one")


def test_a_step_that_may_have_another_effect_the_second_time_keeps_the_cells_apart(tmp_path: Path) -> None:
    create = "CREATE INDEX i_${matrix.mode} ON subscriber (s_id)"
    plan = compiled(tmp_path, ladder("m", matrix=MODES, before=[sql(create)]))
    assert turns(*plan.stages) == [["m__a"], ["m__b"]]
    reason = "step `m__a__before_1` is not repeatable (`CREATE INDEX i_a ON subscriber (s_id)` may have another effect "
    assert apart(plan) == {reason + "the second time)"}
    order = next(line for line in timetable(plan).stages if line.id == "m__a").order
    assert any(line.endswith("drift is not distinguished from the difference") for line in order)
    steps = {"before": [sql(create, repeatable=True)], "after": [sql("DROP INDEX x", repeatable=True)]}
    assert turns(*compiled(tmp_path, ladder("m", matrix=MODES, **steps)).stages) == [["m__a", "m__b"]]
    asked = compiled(tmp_path, ladder("m", matrix=MODES, order="ladder"))
    assert (turns(*asked.stages), apart(asked)) == ([["m__a"], ["m__b"]], {"the plan has `order: ladder`"})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"repeat": "${matrix.n}"}, "they are not repeated alike"),
        ({"when": "${matrix.n} > 3"}, "their `when` differs"),
        ({"before": [sql("SELECT 1", repeatable=False)]}, "it has `repeatable: false`"),
    ],
)
def test_cells_that_cannot_take_turns_have_a_reason(tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    given = {"matrix": {"n": [3, 4]}, **more}
    messages = refused(tmp_path, ladder("m", **given, order="interleaved"))
    assert any(message.startswith("the cells cannot take turns: ") and reason in message for message in messages)
    assert all(reason in one for one in apart(compiled(tmp_path, ladder("m", **given))))


def test_cells_with_one_condition_and_plain_ladders_take_turns_with_their_steps(tmp_path: Path) -> None:
    conditional = ladder("m", matrix=MODES, needs="first", when="first.peak.tps.mean > 1")
    assert turns(*compiled(tmp_path, ladder("first"), conditional).stages) == [["first"], ["m__a", "m__b"]]

    def pair(step: Entry) -> list[Entry]:
        second = ladder("two", before=[step], order="interleaved", **{"with": "one"})
        return [ladder("one", before=[sql("ANALYZE")]), second]

    assert turns(*compiled(tmp_path, *pair(sql("ANALYZE"))).stages) == [["one", "two"]]
    assert refused(tmp_path, *pair(sql("CREATE TABLE t (a int)"))) == [
        "`two` cannot take turns: step `two__before_1` is not repeatable (`CREATE TABLE t (a int)` may have another "
        "effect the second time)"
    ]


@pytest.mark.parametrize(
    ("statement", "repeatable"),
    [
        ("analyze t", True),
        ("PRAGMA cache_size = 7", True),
        ("VACUUM INTO 'copy.db'", False),
        ("ALTER SYSTEM SET work_mem = '1MB'", True),
        ("SELECT pg_prewarm('t')", True),
        ("SELECT 1 INTO t", False),
        ("WITH d AS (DELETE FROM t RETURNING a) SELECT a FROM d", False),
        ("UPDATE t SET a = a + 1", False),
        ("", False),
    ],
)
def test_which_statements_are_repeatable(statement: str, *, repeatable: bool) -> None:
    assert (once_only(Sql(id="s", system="db", statements=(statement,))) == "") is repeatable


def swept(folder: Path, **more: Any) -> Plan:
    """A plan whose ladder loads a population of its own in each cell."""
    load = {"populate": {"workload": "hlr", "into": "db"}}
    cells = ladder("m", matrix={"rows": [100, 200]}, before=[load], **more)
    return compiled(folder, stages=[cells], workloads={"hlr": {"kind": "hlr", "population": "${matrix.rows}"}})


def test_cells_with_populations_of_their_own_take_turns_only_with_order_interleaved(tmp_path: Path) -> None:
    plan = swept(tmp_path)
    populations = {one.name: dict(one.parameters)["population"] for one in plan.workloads}
    assert populations == {"hlr__rows_100": 100, "hlr__rows_200": 200}
    assert turns(*plan.stages) == [["m__rows_100"], ["m__rows_200"]]
    assert apart(plan) == {"`m__rows_100__before_1` would load in each repeat, as it does with `order: interleaved`"}
    again = swept(tmp_path, order="interleaved")
    assert turns(*again.stages) == [["m__rows_100", "m__rows_200"]]
    assert [stage.kind for stage in again.stages] == ["populate", "ladder", "drop"] * 2
    alone, turned = ({line.id: line.seconds for line in timetable(one).stages} for one in (plan, again))
    assert turned["m__rows_200__before_1"] == pytest.approx(3 * alone["m__rows_200__before_1"])


def test_steps_are_taken_back_in_reverse_and_a_tuned_system_is_restarted_once_more(tmp_path: Path) -> None:
    tuning = [{"name": "p", "on": "h", "thp": {"enabled": "${matrix.pages}", "defrag": "never"}}]
    tune = {"tune": {"when": "${matrix.tuned}", "tuning": tuning}}
    before = [tune, {"restart": {"system": "server"}}, sql("SELECT 1")]
    matrix = {"pages": ["always", "never"], "tuned": [True, False]}
    cells = ladder("m", matrix=matrix, before=before, after=[{"pause": {"duration": "1s"}}])
    plan = compiled(tmp_path, cells, systems={"db": embedded("sqlite"), "server": embedded("postgres")})
    assert [len(members) for members in turns(*plan.stages)] == [4]
    kinds: dict[str, list[str]] = {}
    for stage in plan.stages[1:]:
        kinds.setdefault(stage.id.partition("__before")[0].partition("__after")[0], []).append(stage.kind)
    tuned = ["tune", "restart", "sql", "ladder", "pause", "restart", "revert", "restart"]
    assert kinds["m__always__tuned_true"] == tuned
    assert kinds["m__never__tuned_false"] == ["restart", "sql", "ladder", "pause", "restart"]


@pytest.mark.parametrize("level", [True, False])
def test_cells_on_both_ends_of_a_propagation_take_turns_when_each_begins_with_a_reset_of_both(
    tmp_path: Path, level: bool
) -> None:
    ends = ["back", "front"]
    steps = {"before": [reset(*ends)]} if level else {}
    weights = {} if level else {"weights": {"GetBasicSubscriberData": 1}}
    text = document(
        ladder("m", matrix={"system": ends}, target="${matrix.system}", **steps),
        *([reset(*ends, id="end")] if level else []),
        systems={"front": embedded("postgres", propagates_to="back"), "back": embedded("postgres")},
        workloads={"hlr": {"kind": "hlr", "population": 100, **weights}},
    )
    text["stages"][0] = populate("load", ends)
    plan = made(tmp_path, text)
    assert turns(*plan.stages) == ([["m__back", "m__front"]] if level else [["m__back"], ["m__front"]])
    reason = "back and front propagate to each other, without a reset of both before each cell"
    assert apart(plan) == ({""} if level else {reason})
