"""The DDL of sql stages that a reset removes: since the last populate, and for steps in their own list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Reset
from proveout.dsl.rules.resets import is_ddl, notes, since_copy

HEAD = """
proveout: 1
name: t
topology:
  hosts: {h: {roles: [client], address: local}}
  systems: {db: {engine: sqlite, host: h, provision: embedded}, other: {engine: sqlite, host: h, provision: embedded}}
workloads: {w: {kind: tptbm, key: 4}}
stages:
  - populate: {id: load, workload: w, into: [db, other]}
"""
Compile = Callable[[str], Plan]
MAKE = "  - sql: {{id: {0}, system: db, statements: [CREATE TABLE {0} (n int), INSERT INTO {0} VALUES (1)]}}\n"


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    def made(stages: str) -> Plan:
        path = tmp_path / "plan.yaml"
        path.write_text(HEAD + stages)
        return compile_plan(path, overrides={})

    return made


def removed(plan: Plan, reset: str) -> list[tuple[str, str, tuple[str, ...]]]:
    stage = plan.stage(reset)
    assert isinstance(stage, Reset)
    return [(one.system, one.stage.id, one.statements) for one in since_copy(plan, stage)]


def test_ddl_since_the_last_populate_counts(compiled: Compile) -> None:
    stages = MAKE.format("a") + "  - populate: {id: again, workload: w, into: db}\n" + MAKE.format("b")
    stages += "  - sql: {id: only_rows, system: db, statements: [DELETE FROM b]}\n"
    stages += "  - reset: {id: r, systems: [db, other]}\n" + MAKE.format("c")
    plan = compiled(stages)
    assert removed(plan, "r") == [("db", "b", ("CREATE TABLE b (n int)",))]
    (note,) = notes(plan)
    assert "reset `r` restores `db`" in note.message and "stage `b` has made: CREATE TABLE b (n int)" in note.message
    assert "keep: ddl" in note.hint
    assert not notes(compiled(stages.replace("[db, other]}", "[db, other], keep: ddl}")))


def test_what_an_earlier_reset_has_removed_is_not_made_again(compiled: Compile) -> None:
    reset = "  - reset: {id: %s, systems: db%s}\n"
    stages = MAKE.format("a") + reset % ("first", "%s") + MAKE.format("b") + reset % ("last", ", keep: ddl")
    assert [id for _, id, _ in removed(compiled(stages % ""), "last")] == ["b"]
    for more in (", keep: ddl", ", restore: false", ", needs: a"):
        assert [id for _, id, _ in removed(compiled(stages % more), "last")] == ["a", "b"]


def test_a_step_sees_the_stages_before_its_ladder_and_the_steps_of_its_own_list(compiled: Compile) -> None:
    plan = compiled(
        MAKE.format("a")
        + """
  - ladder:
      id: l
      workload: w
      target: db
      threads: [1]
      measure: 1s
      repeat: 2
      before:
        - sql: {system: db, statements: [CREATE TABLE s (n int)], repeatable: true}
        - reset: {systems: db}
      after:
        - sql: {system: db, statements: [DROP TABLE IF EXISTS s], repeatable: true}
        - reset: {systems: db}
"""
        + "  - ladder: {id: m, workload: w, target: db, threads: [1], measure: 1s, repeat: 2, order: interleaved, with: l}\n"
        + "  - reset: {id: r3, systems: db}\n"
    )
    first, second, last = (stage.id for stage in plan.stages if isinstance(stage, Reset))
    assert [texts[0] for _, _, texts in removed(plan, first)] == ["CREATE TABLE a (n int)", "CREATE TABLE s (n int)"]
    assert [texts[0] for _, _, texts in removed(plan, second)] == ["CREATE TABLE a (n int)", "DROP TABLE IF EXISTS s"]
    assert [texts[0] for _, _, texts in removed(plan, last)] == ["CREATE TABLE a (n int)"]


def test_a_statement_is_ddl_by_its_first_word() -> None:
    ddl = ("/* x */ create unique index i on t (a)", "ALTER TABLE t ADD COLUMN b int", "ANALYZE t")
    others = ("INSERT INTO t VALUES ('CREATE TABLE')", "SELECT 1", "")
    assert [text for text in (*ddl, *others) if is_ddl(text)] == list(ddl)
