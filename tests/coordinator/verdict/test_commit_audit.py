"""Histories -> the verdict `counted:<system>`: what clients saw commit against what the database has counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from records import begun, iteration

from proveout.coordinator.verdict.verdicts import judge_lost, judge_tallies, reach
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto import events as e
from proveout.proto.wire.results import Populated, TuningState

TEXT = """
proveout: 1
name: counted
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    db: {engine: postgres, host: h, provision: embedded, propagates_to: far}
    far: {engine: postgres, host: h, provision: embedded}
workloads: {orders: {kind: tprocc, warehouses: 1}}
stages:
  - populate: {id: load, workload: orders, into: [db, far]}
  - ladder: {id: first, workload: orders, target: db, threads: [1, 2], measure: 2s}
  - sql: {id: more, system: db, statements: [UPDATE district SET d_next_o_id = d_next_o_id + 1]}
  - sql: {id: look, system: db, query: SELECT count(*) AS n FROM district, metrics: {n: {column: n}}}
  - ladder: {id: second, workload: orders, target: db, threads: [2], measure: 2s}
"""
RUNNING = (
    TEXT.replace("provision: embedded, propagates_to: far", "restore: template, dsn: dbname=x")
    .replace("    far: {engine: postgres, host: h, provision: embedded}\n", "")
    .replace("[db, far]", "db")
)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("plan") / "counted.yaml"
    path.write_text(TEXT)
    return compile_plan(path)


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The same with tracked commits in its first ladder."""
    path = tmp_path_factory.mktemp("plan") / "counted.yaml"
    path.write_text(TEXT.replace("threads: [1, 2], measure: 2s", "threads: [1, 2], measure: 2s, commits: tracked"))
    return compile_plan(path)


def populated(system: str = "db") -> e.PopulateFinished:
    return e.PopulateFinished(stage="load", system=system, populated=Populated(tables=(), seconds=1.0))


def read(number: int, stage: str = "load", system: str = "db", kind: str = "") -> e.InvariantsSeen:
    return e.InvariantsSeen(
        stage=stage, iteration="", system=system, checks=(), seconds=0.1, tallies={"NewOrder": number}, kind=kind
    )


def ran(committed: int, unknown: int = 0, stage: str = "first", **fields: Any) -> e.IterationFinished:
    """An iteration; that it is not valid does not take its commits back."""
    counts = {"committed": {"NewOrder": committed, "Payment": 3}, "unknown": {"NewOrder": unknown}}
    return iteration(stage, 1, 1, valid=False, **(counts | fields))


LOST = e.IterationVoided(
    id=e.IterationId(stage="first", rung=1, repeat=1, attempt=1), reason="an agent was lost", rerun=True
)
LATER: list[e.Event] = [ran(4, stage="second"), read(134, "second")]


@pytest.mark.parametrize(
    ("history", "outcome", "words"),
    [
        ([read(100), ran(20), ran(5), read(125, "first")], "PASS", "the database counts 25 NewOrder, the clients 25"),
        ([read(100), ran(20), read(121, "first")], "FAIL", "stage first: the database counts 21"),
        ([read(100), ran(20), read(119, "first")], "FAIL", "the database counts 19 NewOrder, the clients 20"),
        ([read(100), ran(20, 2), read(122, "first")], "PASS", "the clients 20 (2 without an answer)"),
        ([read(100), ran(20, 2), read(123, "first")], "FAIL", "the clients 20 (2 without an answer)"),
        ([read(100), ran(20), LOST, read(130, "first")], "INCONCLUSIVE",
         "no span could be judged; stage first is left out"),
        ([read(100), LOST, read(130, "first"), ran(7, stage="second"), read(137, "second")], "PASS",
         "stage second: the database counts 7 NewOrder, the clients 7; stage first is left out: the clients' count of"),
        ([read(100), ran(20), read(120, "first"), begun("more", "sql"), *LATER], "PASS",
         "stage second is left out: stage more has written to it"),
        ([read(100), ran(20), begun("look", "sql"), read(121, "first")], "FAIL", "stage first: the database counts 21"),
        ([read(100), read(100, "look"), ran(20), LOST, read(130, "first")], "INCONCLUSIVE",
         "stage look: the database counts 0 NewOrder, the clients 0; stage first is left out"),
        # two workloads in one system
        ([read(100, kind="tprocc"), read(7, kind="tptbm"), ran(20), read(120, "first", kind="tprocc")], "PASS",
         "the database counts 20 NewOrder, the clients 20"),
        # made again, after its server was lost: a new beginning
        ([read(100), ran(20), populated(), read(100), ran(3), read(103, "first")], "PASS", "counts 3 NewOrder"),
    ],
)  # fmt: skip
def test_every_commit_is_on_both_sides(plan: Plan, history: Sequence[e.Event], outcome: str, words: str) -> None:
    (verdict,) = judge_tallies(plan, [populated(), *history])
    assert (verdict.id, verdict.outcome, verdict.severity) == ("counted:db", outcome, "fail")
    assert words in verdict.evidence
    assert verdict in reach(plan, [populated(), *history])


def test_a_database_that_is_copied_again_has_not_lost_what_its_copy_had(tmp_path: Path) -> None:
    """After a resume, or the loss of its agent."""
    (tmp_path / "counted.yaml").write_text(RUNNING)
    plan, state = compile_plan(tmp_path / "counted.yaml"), {"operation": "database_copy", "outcome": "applied"}
    copied = e.TuningSeen(host="h", act="apply", states=(TuningState(name="the copy of db", **state),))
    history = [populated(), read(100), copied, ran(20), read(120, "first"), copied, ran(5, stage="second")]
    (verdict,) = judge_tallies(plan, [*history, read(105, "second")])
    assert verdict.outcome == "PASS"
    assert "counts 20 NewOrder, the clients 20; stage second is left out: its database was" in verdict.evidence


def test_one_reading_says_nothing_nor_does_a_system_that_is_propagated_to(plan: Plan) -> None:
    assert judge_tallies(plan, [populated(), read(100), ran(5)]) == ()
    history = [populated("far"), read(100, system="far"), read(200, "first", system="far")]
    assert judge_tallies(plan, history) == (), "it has the commits of others"


def acked(
    count: int, *, attempt: int = 1, findings: tuple[e.ValidityFinding, ...] = (), **more: Any
) -> e.IterationFinished:
    """An iteration with that many acknowledged commits of tracked terminals."""
    return ran(20, commits=(e.CommitsMeasured(acknowledged=count, **more),), attempt=attempt, findings=findings)


MISSED = (e.ValidityFinding(check="fault:crash", ok=False, evidence="in place only at 12.9 s"),)


@pytest.mark.parametrize(
    ("history", "outcome", "words"),
    [
        ([acked(1_200)] * 2, "PASS", "2,400 commits were acknowledged in 2 iterations, 0 are lost"),
        ([acked(9, lost=4)], "PASS", "9 commits were acknowledged in 1 iteration, 4 are lost, 4 of them by faults"),
        ([acked(9), acked(7, lost=4, lost_apart=1)], "FAIL",
         "iteration first/1/1/1: 1 of 7 acknowledged commits are lost apart from a fault; in all 16 commits were"),
        ([acked(9, unread=2)], "INCONCLUSIVE", "those of 2 terminals could not be read back"),
        ([acked(9), ran(20)], "INCONCLUSIVE", "1 iteration without a count"),
        ([acked(9, findings=MISSED)], "INCONCLUSIVE",
         "1 iteration without a fault of the plan (first/1/1/1: fault:crash: in place only at 12.9 s)"),
        ([acked(9, lost=4, findings=MISSED), acked(7, attempt=2)], "PASS",
         "16 commits were acknowledged in 2 iterations, 4 are lost, 4 of them by faults"),
    ],
)  # fmt: skip
def test_no_commit_is_lost_apart_from_a_fault(
    tracking: Plan, history: Sequence[e.Event], outcome: str, words: str
) -> None:
    (verdict,) = judge_lost(tracking, history)
    assert (verdict.id, verdict.outcome, verdict.severity) == ("commits:first", outcome, "fail")
    assert words in verdict.evidence
    assert verdict in reach(tracking, history)


def test_a_stage_that_is_not_tracked_or_has_not_run_is_not_judged(plan: Plan, tracking: Plan) -> None:
    assert judge_lost(plan, [ran(5)]) == judge_lost(tracking, [ran(5, stage="second")]) == ()


def test_commits_that_are_known_to_be_lost_may_be_missing_in_the_database(tracking: Plan) -> None:
    history: list[e.Event] = [populated(), read(100), acked(23, lost=2)]
    (verdict,) = judge_tallies(tracking, [*history, read(118, "first")])
    assert verdict.outcome == "PASS"
    assert "the clients 20 (2 found lost, of all transactions)" in verdict.evidence
    (verdict,) = judge_tallies(tracking, [*history, read(117, "first")])
    assert verdict.outcome == "FAIL", "one more is missing than was found"
