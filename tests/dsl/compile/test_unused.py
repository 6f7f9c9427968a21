"""Notes on plans that are valid: names that a plan declares and does not use, times that its rate cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_plans import with_notes

from proveout.dsl.compile.compiler import compile_with_notes

OLD = "cannot be reached"
ROOT = Path(__file__).parents[3]
PLAN = """\
proveout: 1
name: t
params:
  measure: {type: duration, default: 5s}
  unread: {type: int, default: 5}
  top: {type: int, default: 4}
secrets:
  pw: {env: PW}
topology:
  hosts:
    h: {roles: [client], address: local}
  systems:
    db: {engine: postgres, host: h, provision: embedded}
    spare: {engine: sqlite, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 1000}
  more: {kind: hlr, population: 1000}
captures:
  os: {kind: os}
  waits: {kind: waits, system: db}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1, 4], measure: "${params.measure}", capture: os, repeat: 3}
verdicts:
  - {id: v, check: ladder.at(4).tps.mean > params.top}
"""


def test_each_unused_name_has_a_note_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    _, notes = compile_with_notes(tmp_path / "p.yaml")
    assert [(note.where.line, note.message) for note in notes] == [
        (5, "note: nothing uses the parameter `unread`"),
        (8, "note: nothing uses the secret `pw`"),
        (14, "note: nothing uses the system `spare`"),
        (17, "note: nothing uses the workload `more`"),
        (20, "note: nothing uses the capture `waits`"),
    ]
    assert all(note.source_line and note.hint for note in notes)


def test_what_an_include_declares_for_several_plans_has_none(tmp_path: Path) -> None:
    head, _, captures = PLAN.partition("captures:\n")
    capture, _, rest = captures.partition("stages:\n")
    (tmp_path / "captures.yaml").write_text(f"captures:\n{capture}")
    (tmp_path / "p.yaml").write_text(f"{head}include: captures.yaml\nstages:\n{rest}")
    _, notes = compile_with_notes(tmp_path / "p.yaml")
    assert "capture" not in {note.key for note in notes}
    assert "workload" in {note.key for note in notes}


FAULTY = PLAN.replace(
    'measure: "${params.measure}", capture: os, repeat: 3',
    "rate: 20/s, arrival: poisson, measure: 40s, repeat: 3, faults: [{name: crash, at: 4s, for: 1s, kill: {system: db}, "
    "destructive: true}]",
)
PHASED = PLAN.replace(
    'measure: "${params.measure}", capture: os, repeat: 3',
    "arrival: poisson, phases: [{name: calm, rate: 10/s, for: 20s}, {name: spike, rate: 60/s, for: 5s}, "
    "{name: after, rate: 10/s, for: 30s}]",
)


@pytest.mark.parametrize(
    ("plan", "rates", "words"),
    [
        (
            FAULTY,
            ("20/s", "2000/s"),
            "20/s and 4 s before `crash` chance moves throughput by more than all of it, and 50 %",
        ),
        (PHASED, ("10/s", "400/s"), "10/s and 20 s before phase `spike` chance moves throughput by 25 %, and 20 %"),
    ],
)
def test_a_recovery_that_the_rate_cannot_show_has_a_note(
    tmp_path: Path, plan: str, rates: tuple[str, str], words: str
) -> None:
    found = []
    for number, rate in enumerate(rates):
        (tmp_path / f"{number}.yaml").write_text(plan.replace(rates[0], rate))
        _, notes = compile_with_notes(tmp_path / f"{number}.yaml")
        found.append([note.message for note in notes if "recovery_s" in note.message])
    assert [words in text for text in found[0]] == [True], found[0]
    assert found[1] == []


def test_no_starter_declares_what_it_does_not_use() -> None:
    """Of the plans: `test_golden`, which compiles them."""
    found = {path.stem: compile_with_notes(path)[1] for path in (ROOT / "plans" / "starters").glob("*.yaml")}
    kept = {name: [note.message for note in notes if OLD not in note.message] for name, notes in found.items()}
    assert {name: notes for name, notes in kept.items() if notes} == {}


def test_a_version_of_timesten_that_cannot_be_driven_has_a_note() -> None:
    _, notes = with_notes("tptbm-exalogic-lab")
    nodes = ", ".join(f"node{number}" for number in range(1, 9))
    assert [note.message for note in notes] == [
        f"note: TimesTen 11.2.1.8.3 of {nodes} {OLD}: proveout drives 22.1.1.25 or newer"
    ]
