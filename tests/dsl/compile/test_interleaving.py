"""Interleaved cells with their steps, and the reasons why other cells run one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matrix_plans import compiled, document, ladder, made, refused

from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.plan.iteration_order import groups
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Restart, Sql
from proveout.dsl.rules.repeat_rules import once_only

MODES = {"mode": ["a", "b"]}


def sql(*statements: str, **more: Any) -> dict[str, Any]:
    return {"sql": {"system": "db", "statements": list(statements), **more}}


def turns(plan: Plan) -> list[list[str]]:
    return [[one.id for one in members] for members in groups(plan.stages)]


def apart(plan: Plan) -> set[str]:
    return {stage.apart for stage in plan.stages if isinstance(stage, Ladder)}


def test_cells_take_turns_by_default_with_repeatable_steps(tmp_path: Path) -> None:
    plan = compiled(tmp_path, ladder("m", matrix=MODES), ladder("n", matrix=MODES, order="shuffled", seed=7))
    assert turns(plan) == [["m__a", "m__b"], ["n__a", "n__b"]]
    assert apart(plan) == {""}
    assert [stage.seed for stage in plan.stages if isinstance(stage, Ladder)] == [None, None, 7, None]
    before = [sql("PRAGMA cache_size = 7", "SELECT '${matrix.mode}'"), {"pause": {"duration": "4s"}}]
    plan = compiled(tmp_path, ladder("m", matrix=MODES, before=before, after=[{"reset": {"systems": ["db"]}}]))
    assert turns(plan) == [["m__a", "m__b"]]
    second = plan.stages[7]
    assert isinstance(second, Ladder)
    assert (second.before, second.after) == (("m__b__before_1", "m__b__before_2"), ("m__b__after_1",))
    shown = {line.id: line for line in timetable(plan).stages}
    assert shown["m__b__before_2"].detail == ("runs before each turn of m__b, 3 times",)
    assert shown["m__b__before_2"].seconds == 12.0, "the time of each turn counts"


SERVER = """
proveout: 1
name: each
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems: {db: {engine: postgres, host: h, provision: embedded}, other: {engine: postgres, host: h, provision: embedded}}
workloads: {w: {kind: hlr, population: 1000}}
stages:
  - populate: {workload: w, into: [db, other]}
  - restart: {system: db, settings: {work_mem: 1MB}}
"""


def ladder_of(plan: Plan, name: str) -> Ladder:
    found = plan.stage(name)
    assert isinstance(found, Ladder)
    return found


def each(folder: Path, *stages: str) -> Plan:
    path = folder / "each.yaml"
    path.write_text(SERVER + "".join(f"  - ladder: {{{stage}}}\n" for stage in stages))
    return compile_plan(path)


def test_each_repeat_is_a_turn_whose_servers_restart_with_the_settings_that_they_have(tmp_path: Path) -> None:
    more = "threads: [1, 2], measure: 10s, restart: each_repeat"
    plan = each(tmp_path, f"id: one, workload: w, target: db, reload: each_repeat, {more}")
    assert ladder_of(plan, "one").before == ("one__reset_1", "one__restart_1")
    restart = plan.stage("one__restart_1")
    assert isinstance(restart, Restart) and restart.settings == (("work_mem", "1MB"),)
    shown = {line.id: line for line in timetable(plan).stages}
    assert shown["one__restart_1"].seconds == 3 * 3.0, "each of the three repeats"
    both = "loads: {a: {workload: w, target: db}, b: {workload: w, target: other}}, versus: 500ms"
    assert ladder_of(each(tmp_path, f"id: duet, {both}, {more}"), "duet").before == (
        "duet__restart_1",
        "duet__restart_2",
    )
    pair = (
        f"id: one, workload: w, target: db, {more}",
        f"id: two, workload: w, target: db, order: interleaved, with: one, {more}",
    )
    plan = each(tmp_path, *pair)
    assert turns(plan) == [["one", "two"]]
    assert ladder_of(plan, "two").before == ("two__restart_1",)


def test_steps_of_a_ladder_that_run_once_stay_so_beside_those_of_each_repeat(tmp_path: Path) -> None:
    plan = each(tmp_path, "id: one, workload: w, target: db, threads: [1], measure: 10s, restart: each_repeat, "
                          "before: [{sql: {system: db, statements: [CREATE INDEX i ON subscriber (msc_location)]}}]")  # fmt: skip
    assert ladder_of(plan, "one").before == ("one__restart_1",)
    ids = [stage.id for stage in plan.stages]
    assert ids.index("one__before_1") < ids.index("one__restart_1") < ids.index("one")


def test_a_step_that_may_have_another_effect_the_second_time_keeps_the_cells_apart(tmp_path: Path) -> None:
    create = "CREATE INDEX i_${matrix.mode} ON subscriber (s_id)"
    plan = compiled(tmp_path, ladder("m", matrix=MODES, before=[sql(create)]))
    assert turns(plan) == [["m__a"], ["m__b"]]
    reason = "step `m__a__before_1` is not repeatable (`CREATE INDEX i_a ON subscriber (s_id)` may have another effect "
    assert apart(plan) == {reason + "the second time)"}
    order = next(line for line in timetable(plan).stages if line.id == "m__a").order
    assert any(line.endswith("drift is not distinguished from the difference") for line in order)
    undone = ladder(
        "m", matrix=MODES, before=[sql(create, repeatable=True)], after=[sql("DROP INDEX x", repeatable=True)]
    )
    assert turns(compiled(tmp_path, undone)) == [["m__a", "m__b"]]
    asked = compiled(tmp_path, ladder("m", matrix=MODES, order="ladder"))
    assert (turns(asked), apart(asked)) == ([["m__a"], ["m__b"]], {"the plan has `order: ladder`"})


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
    plan = compiled(tmp_path, ladder("m", **given))
    assert all(reason in one for one in apart(plan))


def test_cells_with_one_condition_take_turns(tmp_path: Path) -> None:
    first = ladder("first")
    plan = compiled(tmp_path, first, ladder("m", matrix=MODES, needs="first", when="first.peak.tps.mean > 1"))
    assert turns(plan) == [["first"], ["m__a", "m__b"]]


def test_plain_ladders_take_turns_with_their_steps(tmp_path: Path) -> None:
    def pair(**second: Any) -> list[dict[str, Any]]:
        return [ladder("one", before=[sql("ANALYZE")]), ladder("two", **second, order="interleaved", **{"with": "one"})]

    assert turns(compiled(tmp_path, *pair(before=[sql("ANALYZE")]))) == [["one", "two"]]
    assert refused(tmp_path, *pair(before=[sql("CREATE TABLE t (a int)")])) == [
        "`two` cannot take turns: step `two__before_1` is not repeatable (`CREATE TABLE t (a int)` may have another "
        "effect the second time)"
    ]


@pytest.mark.parametrize(
    ("statement", "repeatable"),
    [
        ("analyze t", True),
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


ROWS = {"rows": [100, 200]}
SWEPT = {"kind": "hlr", "population": "${matrix.rows}"}


def swept(folder: Path, **more: Any) -> Plan:
    """A plan whose ladder loads a population of its own in each cell."""
    text = document(ladder("m", matrix=ROWS, before=[{"populate": {"workload": "hlr", "into": "db"}}], **more))
    text["workloads"] = {"hlr": SWEPT}
    text["stages"] = text["stages"][1:]
    return made(folder, text)


def test_cells_with_populations_of_their_own_take_turns_only_with_order_interleaved(tmp_path: Path) -> None:
    plan = swept(tmp_path)
    assert [(one.name, dict(one.parameters)["population"]) for one in plan.workloads] == [
        ("hlr__rows_100", 100),
        ("hlr__rows_200", 200),
    ]
    assert turns(plan) == [["m__rows_100"], ["m__rows_200"]]
    assert apart(plan) == {"`m__rows_100__before_1` would load in each repeat, as it does with `order: interleaved`"}
    again = swept(tmp_path, order="interleaved")
    assert turns(again) == [["m__rows_100", "m__rows_200"]]
    assert [stage.kind for stage in again.stages] == ["populate", "ladder", "drop"] * 2
    alone, turned = ({line.id: line.seconds for line in timetable(one).stages} for one in (plan, again))
    assert turned["m__rows_200__before_1"] == pytest.approx(3 * alone["m__rows_200__before_1"])


def test_steps_are_taken_back_in_reverse_and_a_tuned_system_is_restarted_once_more(tmp_path: Path) -> None:
    text = document(
        ladder(
            "m",
            matrix={"pages": ["always", "never"], "tuned": [True, False]},
            before=[
                {"tune": {"when": "${matrix.tuned}", "tuning": [{"name": "p", "on": "h", "thp": PAGES}]}},
                {"restart": {"system": "server"}},
                sql("SELECT 1"),
            ],
            after=[{"pause": {"duration": "1s"}}],
        )
    )
    text["topology"]["systems"]["server"] = {"engine": "postgres", "host": "h", "provision": "embedded"}
    plan = made(tmp_path, text)
    assert [len(members) for members in turns(plan)] == [4]
    kinds: dict[str, list[str]] = {}
    for stage in plan.stages[1:]:
        kinds.setdefault(stage.id.partition("__before")[0].partition("__after")[0], []).append(stage.kind)
    assert kinds["m__always__tuned_true"] == [
        *("tune", "restart", "sql", "ladder"),
        *("pause", "restart", "revert", "restart"),
    ]
    assert kinds["m__never__tuned_false"] == ["restart", "sql", "ladder", "pause", "restart"]


def test_a_step_is_left_out_in_the_cells_for_which_its_condition_is_false(tmp_path: Path) -> None:
    pages = {"name": "p", "on": "h", "thp": {"enabled": "always", "defrag": "never"}}
    step = {"tune": {"when": '"${matrix.mode}" != "on disk"', "tuning": [pages]}}
    plan = compiled(tmp_path, ladder("m", matrix={"mode": ["on disk", "in memory"]}, before=[step]))
    assert [(stage.id, stage.kind) for stage in plan.stages[1:]] == [
        ("m__on_disk", "ladder"),
        ("m__in_memory__before_1", "tune"),
        ("m__in_memory", "ladder"),
        ("m__in_memory__after_1", "revert"),
    ]
    assert turns(plan) == [["m__on_disk", "m__in_memory"]]


PAGES = {"enabled": "${matrix.pages}", "defrag": "never"}


@pytest.mark.parametrize("level", [True, False])
def test_cells_on_both_ends_of_a_propagation_take_turns_when_each_begins_with_a_reset_of_both(
    tmp_path: Path, level: bool
) -> None:
    before = [{"reset": {"systems": ["back", "front"]}}] if level else []
    text = document(ladder("m", matrix={"system": ["back", "front"]}, before=before, target="${matrix.system}"))
    if not level:
        del text["stages"][1]["ladder"]["before"]
    text["topology"]["systems"] = {
        "front": {"engine": "postgres", "host": "h", "provision": "embedded", "propagates_to": "back"},
        "back": {"engine": "postgres", "host": "h", "provision": "embedded"},
    }
    text["workloads"]["hlr"]["weights"] = {"GetBasicSubscriberData": 1}
    text["stages"][0]["populate"]["into"] = ["back", "front"]
    if level:
        text["workloads"]["hlr"].pop("weights")
        text["stages"].append({"reset": {"id": "end", "systems": ["back", "front"]}})
    plan = made(tmp_path, text)
    assert turns(plan) == ([["m__back", "m__front"]] if level else [["m__back"], ["m__front"]])
    reason = "back and front propagate to each other, without a reset of both before each cell"
    assert apart(plan) == ({""} if level else {reason})
