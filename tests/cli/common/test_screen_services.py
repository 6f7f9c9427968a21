"""The services of the home screen on real folders, plans and journals."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_runs
from recorded_runs import iteration

from proveout.cli.screen_services import LocalServices, plan_files
from proveout.coordinator.storage.journal import Journal
from proveout.core.errors import PlanError, ProveoutError
from proveout.proto.events import Event, RunFinished, SearchFinished, VerdictReached
from proveout.tui.services import Start

ROOT = Path(__file__).parents[3]


def verdict(outcome: str) -> VerdictReached:
    return VerdictReached(id="answers", title="It answers", severity="fail", outcome=outcome, check="c", evidence="e")  # type: ignore[arg-type]


LAST: Sequence[Event] = (
    replace(iteration(4, 4, 9e9), valid=False),
    SearchFinished(stage="ladder", rate=4000.0, probes=2, reason="within 10 %"),
    verdict("FAIL"),
    verdict("PASS"),
    RunFinished(status="finished", exit_code=0, reason="every verdict passed", seconds=1.0),
)


def record(runs: Path, factor: float = 1.0, *, day: float = 0.0, kernel: str = "6.1") -> Path:
    rungs = {rung: [factor * (rung * 1000 + repeat) for repeat in (1, 2, 3)] for rung in (1, 4)}
    path = runs / recorded_runs.record(runs, rungs, day=day, kernel=kernel, ended=False)
    with Journal(path) as journal:
        for event in LAST:
            journal.append(event)
    return path


def services(*places: Path, runs: Path | None = None) -> LocalServices:
    return LocalServices(places, runs or places[0] / "runs", "here")


def test_plans_are_found_and_other_files_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    (tmp_path / "json.yaml").write_text('{"name": "a", "proveout": 1}')
    (tmp_path / "lines.yaml").write_text('{\n "hosts": {},\n "proveout": 1,\n "stages": []\n}\n')
    assert [path.name for path in plan_files([tmp_path])] == ["a.yml", "again.yaml", "json.yaml", "lines.yaml"]
    named = tmp_path / "compose.yaml"
    assert plan_files([named]) == [named]  # a file that is named explicitly is always a plan
    assert services(tmp_path / "nowhere").plans() == []
    listed = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder.name == "fragments":
            raise PermissionError("a folder of another user")
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert len(services(tmp_path / "fragments", tmp_path).plans()) == 4


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
    assert (card.group, lab.group) == ("runs here", "needs a lab")
    gone = here.plan(str(tmp_path / "gone.yaml"), {}, "/no/inventory.yaml")
    assert gone.state == "wrong"
    with pytest.raises(PlanError):
        here.form(str(tmp_path / "gone.yaml"))


def test_a_run_is_summarised_from_its_journal(tmp_path: Path) -> None:
    path = record(tmp_path)
    here = services(tmp_path, runs=tmp_path)
    (found,) = here.runs()
    card = here.run(found.path)
    assert (card.path, card.state, card.plan, card.reason) == (str(path), "finished", "smoke", "every verdict passed")
    assert [one.outcome for one in card.verdicts] == ["PASS"]  # reached again after a resume
    (ladder,) = card.ladders
    assert (ladder.rungs, ladder.tps) == ((1, 4), (1002.0, 4002.0))
    assert card.found == ("ladder: 4,000/s, within 10 %",)
    assert services(tmp_path, runs=tmp_path / ("x" * 300)).runs() == [], "a folder that cannot be read"


def test_running_crashed_and_unreadable_runs_have_different_states(tmp_path: Path) -> None:
    path = tmp_path / recorded_runs.record(tmp_path, {1: [1.0, 1.0]}, ended=False)
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
    before, after = record(tmp_path), record(tmp_path, 1.5, day=1.0, kernel="6.2")
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


def test_a_choice_gives_a_command_line() -> None:
    start = Start(
        plan="/p/-x.yaml", overrides={"a": "1, 2", "b": "x=y"}, inventory="/i.yaml", pki="/pki", policy="/p.yaml"
    )
    found = ["run", "/p/-x.yaml", "-p", "a=1, 2", "-p", "b=x=y"]
    assert start.words() == [*found, "--inventory", "/i.yaml", "--pki", "/pki", "--policy", "/p.yaml"]
