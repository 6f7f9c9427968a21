"""Cells of a `matrix:`: their number, order and ids, and their labels in expressions.

Whole plans with a matrix, and errors of wrong ones, are golden files (good/matrix, bad/matrix*)."""

from __future__ import annotations

from pathlib import Path

from matrix_plans import compiled, ladder, refused

from proveout.dsl.plan.stages import Ladder, ids, same


def test_the_matrices_of_a_plan_share_a_bound_and_are_refused_before_expansion(tmp_path: Path) -> None:
    thousand = list(range(1000))
    messages = refused(tmp_path, ladder("huge", matrix={"a": thousand, "b": thousand}))
    assert messages == ["the matrix has 1,000,000 cells (1000 × 1000); a plan has at most 256"]
    many = ladder("one", matrix={"a": list(range(200))})
    messages = refused(tmp_path, many, ladder("two", matrix={"a": list(range(57))}))
    assert messages == ["the matrix has 57 cells (57); a plan has at most 256, 56 of which are left"]
    assert len(compiled(tmp_path, many, ladder("two", matrix={"a": list(range(56))})).stages) == 257


def test_the_first_axis_changes_slowest_and_zip_takes_the_values_together(tmp_path: Path) -> None:
    plan = compiled(
        tmp_path,
        ladder("all", matrix={"mode": ["b", "a"], "n": [2, 1]}),
        ladder("pairs", matrix={"axes": {"mode": ["b", "a"], "n": [2, 1]}, "combine": "zip"}),
    )
    cells = [stage.cell for stage in plan.stages if isinstance(stage, Ladder)]
    assert [str(cell) for cell in cells] == [
        "mode b, n 2", "mode b, n 1", "mode a, n 2", "mode a, n 1",
        "mode b, n 2", "mode a, n 1",
    ]  # fmt: skip
    assert [cell.of for cell in cells if cell] == ["all"] * 4 + ["pairs"] * 2


def test_ids_are_all_different_and_short_enough_for_a_stage_and_labels_are_compared_as_plans_write_them() -> None:
    labels = [(("mode", text),) for text in ("a b", "a-b", "ü", "é", "x" * 300, "y" * 300, "7", "-7")]
    found = ids("solve", labels)
    assert len(set(found)) == len(labels)
    assert max(map(len, found)) <= 56
    assert found[0] == "solve__a_b"
    assert [same(2, 2.0), same(1, True), same("2", 2), same("a", "a")] == [True, False, False, True]


def test_an_expression_may_name_the_labels_in_any_order(tmp_path: Path) -> None:
    checks = [
        'm.mode("a").n(0.5).flag(true).at(1).tps.mean > 1',
        "m.flag(true).n(0.50).mode('a').at(1).tps.mean > 1",
    ]
    plan = compiled(
        tmp_path,
        ladder("m", matrix={"mode": ["a", "b"], "n": [0.5, -1], "flag": [True, False]}),
        verdicts=[{"id": f"v{number}", "check": check} for number, check in enumerate(checks)]
        + [{"id": "minus", "check": 'm.mode("b").n(-1).flag(false).peak.tps.mean > 1'}],
    )
    texts = [check.check.text for check in plan.verdicts]
    assert texts[0] == texts[1] == "m__a__n_0_5__flag_true.at(1).tps.mean > 1"
    assert texts[2] == "m__b__n_1__flag_false.peak.tps.mean > 1"
    assert plan.verdicts[0].check.needs == ("m__a__n_0_5__flag_true",)


def test_an_error_in_several_cells_is_reported_once(tmp_path: Path) -> None:
    broken = ladder("m", matrix={"target": ["db", "nowhere"], "n": [1, 2, 3]})
    broken["ladder"]["target"] = "${matrix.target}"
    verdict = {"id": "v", "check": 'm.target("nowhere").n(1).at(1).tps.mean > 1'}
    assert refused(tmp_path, broken, verdicts=[verdict]) == ["there is no system `nowhere`"]


def test_steps_belong_to_a_ladder_without_a_matrix_too(tmp_path: Path) -> None:
    steps = [{"sql": {"system": "db", "statements": ["SELECT 1"]}}]
    plan = compiled(
        tmp_path, ladder("plain", before=steps, after=[*steps, {"pause": {"duration": "1s"}}], needs="load")
    )
    assert [stage.id for stage in plan.stages] == [
        "load", "plain__before_1", "plain", "plain__after_1", "plain__after_2",
    ]  # fmt: skip
    assert {one.stage for one in plan.conditions if one.needs == ("load",)} == {s.id for s in plan.stages[1:]}
