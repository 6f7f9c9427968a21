"""The services of the home screen on real folders, plans and journals."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.cli.common.home_services import LocalServices, plan_files
from proveout.cli.tui import words
from proveout.coordinator.results.results import ladder_metrics
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.event_codec import plan_data
from proveout.coordinator.storage.journal import Journal
from proveout.core.errors import PlanError, ProveoutError
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto.events import (
    Event,
    FactsTaken,
    IterationFinished,
    IterationId,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageStarted,
    VerdictReached,
)
from proveout.tui.home.services import Resume, Start

ROOT = Path(__file__).parents[3]


def iteration(rung: int, repeat: int, tps: float, *, valid: bool = True) -> IterationFinished:
    identity = IterationId(stage="ladder", rung=rung, repeat=repeat, attempt=1)
    return IterationFinished(
        id=identity, rate=None, measure_s=1.0, valid=valid, findings=(), transactions=(), waits=(), metrics={"tps": tps}
    )


def verdict(outcome: str) -> VerdictReached:
    return VerdictReached(id="answers", title="It answers", severity="fail", outcome=outcome, check="c", evidence="e")  # type: ignore[arg-type]


def record(runs: Path, events: Sequence[Event], kernel: str = "6.1") -> Path:
    """A run of the smoke plan with these events after its start."""
    path = ROOT / "plans" / "smoke.yaml"
    plan = compile_plan(path)
    directory = run_directory.create(runs, plan, run_directory.Command(plan=str(path)), datetime.now().astimezone())
    started = RunStarted(
        run_id=directory.name, epoch=1, name="smoke", title="One small server", digest=plan.digest,
        plan=json.loads(json.dumps(plan_data(plan))), version="1", estimate_s=1.0,
    )  # fmt: skip
    with Journal(directory.path) as journal:
        for event in (started, FactsTaken(when="start", host="db1", system="", facts={"kernel": kernel}), *events):
            journal.append(event)
    return directory.path


def whole(factor: float = 1.0) -> list[Event]:
    iterations = [iteration(rung, n, factor * (rung * 1000 + n)) for rung in (1, 4) for n in (1, 2, 3)]
    return [
        StageStarted(stage="ladder", kind="ladder", iterations=6, estimate_s=1.0),
        *iterations,
        iteration(4, 4, 9e9, valid=False),
        StageFinished(stage="ladder", outcome="ok", seconds=1.0, metrics=ladder_metrics(iterations)),
        SearchFinished(stage="cap", rate=4000.0, probes=2, reason="within 10 %"),
        verdict("FAIL"),
        verdict("PASS"),
        RunFinished(status="finished", exit_code=0, reason="every verdict passed", seconds=1.0),
    ]


def services(*places: Path, runs: Path | None = None) -> LocalServices:
    return LocalServices(places, runs or places[0] / "runs", "here")


def test_plans_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    plan = "proveout: 1\nname: a\n"
    (tmp_path / "b.yaml").write_text(plan)
    (tmp_path / "a.yml").write_text(f"# first\n{plan}")
    (tmp_path / "compose.yaml").write_text("services: {}\nname: x\n")
    (tmp_path / "inventory.yaml").write_text("proveout: 1\ntopology: {}\n")
    (tmp_path / "notes.txt").write_text(plan)
    (tmp_path / "fragments").mkdir()
    (tmp_path / "fragments" / "c.yaml").write_text(plan)
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "again.yaml").symlink_to("b.yaml")
    assert [path.name for path in plan_files([tmp_path])] == ["a.yml", "again.yaml"]
    named = tmp_path / "compose.yaml"
    assert plan_files([named]) == [named]  # a file that is named explicitly is always a plan
    assert services(tmp_path / "nowhere").plans() == []


def test_a_plan_is_read_again_when_it_or_what_it_includes_has_changed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("proveout: 1\nname: a\n")
    (tmp_path / "fragments").mkdir()
    fragment = tmp_path / "fragments" / "f.yaml"
    fragment.write_text("x")
    here = services(tmp_path)
    (before,) = here.plans()
    assert here.plans() == [before]
    os.utime(fragment, ns=(1, before.stamp[1] + 5))  # type: ignore[index]
    assert here.plans() != [before]


def test_the_card_of_a_plan_has_its_stages_or_its_errors(tmp_path: Path) -> None:
    here = services(ROOT / "plans")
    card = here.plan(str(ROOT / "plans" / "smoke.yaml"), {"repeats": "3"}, "")
    assert (card.state, card.title, card.iterations, card.remote) == ("fine", "One small server, end to end", 6, False)
    assert any("populate" in line for line in card.lines)
    (tmp_path / "bad.yaml").write_text("proveout: 1\nname: bad\nstagez: []\n")
    wrong = here.plan(str(tmp_path / "bad.yaml"), {}, "")
    assert wrong.state == "wrong"
    assert "bad.yaml:3:1: unknown key `stagez`" in wrong.lines
    lab = here.plan(str(ROOT / "plans" / "hlr-cache-lab.yaml"), {}, "")
    assert (lab.remote, lab.tunes_here, card.tunes_here) == (True, False, False)
    gone = here.plan(str(tmp_path / "gone.yaml"), {}, "/no/inventory.yaml")
    assert gone.state == "wrong"
    with pytest.raises(PlanError):
        here.form(str(tmp_path / "gone.yaml"))


def test_a_run_is_summarised_from_its_journal(tmp_path: Path) -> None:
    path = record(tmp_path, whole())
    here = services(tmp_path, runs=tmp_path)
    (found,) = here.runs()
    card = here.run(found.path)
    assert (card.path, card.state, card.plan, card.reason) == (str(path), "finished", "smoke", "every verdict passed")
    assert [one.outcome for one in card.verdicts] == ["PASS"]  # reached again after a resume
    (ladder,) = card.ladders
    assert (ladder.rungs, ladder.tps) == ((1, 4), (1002.0, 4002.0))
    assert card.found == ("cap: 4,000/s, within 10 %",)


def test_running_crashed_and_unreadable_runs_have_different_states(tmp_path: Path) -> None:
    path = record(tmp_path, [])
    here = services(tmp_path, runs=tmp_path)
    assert here.run(str(path)).state == "crashed"
    before = here.runs()
    with Journal(path):
        assert here.run(str(path)).state == "running"
        assert here.runs() != before
    (path / "journal.sqlite").write_bytes(b"no database at all, but a text of some length")
    for beside in path.glob("journal.sqlite-*"):
        beside.unlink()
    assert here.run(str(path)).state == "unreadable"


def test_two_runs_are_compared_or_refused_as_the_command_does(tmp_path: Path) -> None:
    before, after = record(tmp_path, whole()), record(tmp_path, whole(1.5), kernel="6.2")
    here = services(tmp_path, runs=tmp_path)
    refused = here.compare(str(before), str(after), despite=False)
    assert refused.refused
    assert refused.differences == ("db1: kernel: 6.1 -> 6.2",)
    found = here.compare(str(before), str(after), despite=True)
    assert found.differences == refused.differences
    rung = next(part for part in found.parts if "4 threads" in part.head)
    row = next(row for row in rung.rows if row.cells[0] == "TPS")
    assert (row.tone, row.cells[1:4]) == ("better", ("4,002.0", "6,003.0", "1.5000 ×"))
    with pytest.raises(ProveoutError):
        here.compare(str(before), str(tmp_path / "nowhere"), despite=True)


def test_a_choice_gives_a_command_line(tmp_path: Path) -> None:
    start = Start(
        plan="/p/-x.yaml", overrides={"a": "1, 2", "b": "x=y"}, inventory="/i.yaml", pki="/pki", policy="/p.yaml"
    )
    found = ["run", "/p/-x.yaml", "-p", "a=1, 2", "-p", "b=x=y", "--runs-dir", str(tmp_path)]
    assert words(start, tmp_path) == [*found, "--inventory", "/i.yaml", "--pki", "/pki", "--policy", "/p.yaml"]
    assert words(Resume(run="/r/a"), tmp_path) == ["resume", "/r/a", "--runs-dir", str(tmp_path)]


def test_the_home_screen_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tui"]) == 2
    assert "there is no terminal" in capsys.readouterr().err
