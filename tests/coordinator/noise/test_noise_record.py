"""The plan of a noise run, its record, the lines of `explain`, and a resume of it."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import SMOKE, iteration, plan
from records import begun, run_finished, run_started

from proveout.cli import execute
from proveout.coordinator import noise as coordinator_noise
from proveout.coordinator.noise import TooFewPairs, measure, remedy
from proveout.coordinator.report.history_documents import noise_document, summary
from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.storage import run_directory
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.iteration_order import ARMS, NoiseArms, NoRung, choose, groups, noise_plan
from proveout.dsl.plan.stages import Ladder, Pause
from proveout.proto import events as e

ARMS_OF_SMOKE = NoiseArms(stage="ladder", threads=4, repeats=10)


def noise_run(pairs: int = 10, factor: float = 1.0) -> RunResults:
    made, generator = noise_plan(plan(), ARMS_OF_SMOKE), np.random.default_rng(5)
    events: list[e.Event] = [
        run_started(made, "smoke-noise-1"),
        e.FactsTaken(when="start", host="db1", system="", facts={"kernel": "6.1"}),
    ]
    for arm in ARMS:
        events.append(begun(arm))
    for repeat in range(1, pairs + 1):
        shared = generator.normal(0.0, 0.01)
        for arm, of in zip(ARMS, (1.0, factor), strict=True):
            tps = 1000.0 * of * math.exp(shared + generator.normal(0.0, 0.01))
            events.append(iteration(4, repeat, tps, stage=arm))
    return load_results([*events, run_finished()])


def test_the_arms_are_one_rung_twice_and_nothing_else_is_measured() -> None:
    made = noise_plan(plan(), ARMS_OF_SMOKE)
    assert [stage.id for stage in made.stages] == ["populate", *ARMS]
    first, second = (stage for stage in made.stages if isinstance(stage, Ladder))
    assert (first.threads, first.repeat, first.interleaved_with) == ((4,), 10, None)
    assert (second.threads, second.repeat, second.interleaved_with) == ((4,), 10, ARMS[0])
    assert (made.name, made.verdicts, made.figures) == ("smoke-noise", (), ())
    assert made.systems == plan().systems


def test_each_arm_has_its_own_steps() -> None:
    steps = (Pause(id="rest", duration_s=1.0), Pause(id="cool", duration_s=1.0))
    (populate, ladder) = plan().stages
    assert isinstance(ladder, Ladder)
    whole = dataclasses.replace(ladder, before=("rest",), after=("cool",))
    made = noise_plan(dataclasses.replace(plan(), stages=(populate, steps[0], whole, steps[1])), ARMS_OF_SMOKE)
    assert [stage.id for stage in made.stages] == [
        "populate", "arm_a_rest", "arm_a", "arm_a_cool", "arm_b_rest", "arm_b", "arm_b_cool"
    ]  # fmt: skip
    first, second = (stage for stage in made.stages if isinstance(stage, Ladder))
    assert (first.before, first.after, second.before) == (("arm_a_rest",), ("arm_a_cool",), ("arm_b_rest",))
    assert groups(made.stages) == [(first, second)]


def test_defaults_are_the_first_ladder_and_its_most_threads() -> None:
    assert choose(plan(), None, None, 10) == ARMS_OF_SMOKE
    assert choose(plan(), "ladder", 2, 5) == NoiseArms(stage="ladder", threads=2, repeats=5)
    with pytest.raises(NoRung, match=r"no ladder 'other'.*\n.*It has ladder"):
        choose(plan(), "other", None, 10)


def test_the_record_has_what_was_simulated() -> None:
    record = measure(noise_run(), ARMS_OF_SMOKE)
    assert (record.plan, record.stage, record.threads, record.measure_s) == ("smoke", "ladder", 4, 1.0)
    tps = record.metrics["tps"]
    assert tps.repeats == 10
    assert not tps.arms.shown
    assert tps.repeat_total.lower < math.hypot(0.01, 0.01) < tps.repeat_total.upper
    words = summary(record, "tps")
    assert words.startswith("3 repeats of 1 s show a change in TPS of ")
    assert "to show 1 %, take " in words
    other = measure(noise_run(factor=1.1), ARMS_OF_SMOKE)
    assert other.metrics["tps"].arms.shown
    assert "DIFFERS" in str(noise_document(other).sections)
    found = remedy(record, tps, 0.01)
    assert found is not None
    assert found.seconds == pytest.approx(
        found.repeats * (found.window_s + record.ramps_s + coordinator_noise.OVERHEAD_S)
    )


def test_too_few_pairs_have_no_record() -> None:
    with pytest.raises(TooFewPairs, match="2 of 10 repeats"):
        measure(noise_run(pairs=2), ARMS_OF_SMOKE)


def test_a_stored_record_is_found_by_the_plan_whatever_its_repeats(tmp_path: Path) -> None:
    record = measure(noise_run(), ARMS_OF_SMOKE)
    (tmp_path / record.run).mkdir()
    (tmp_path / record.run / coordinator_noise.FILE).write_text(coordinator_noise.to_json(record))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / coordinator_noise.FILE).write_text("{")
    records = list(coordinator_noise.records(tmp_path))
    assert records == [record]
    for other in (plan(), plan(7), plan(7, "2s")):
        ladder = next(stage for stage in other.stages if isinstance(stage, Ladder))
        assert coordinator_noise.find(records, other, ladder) == {1: record, 4: record}
    changed = compile_plan(SMOKE, overrides={"subscribers": "2000"})
    ladder = next(stage for stage in changed.stages if isinstance(stage, Ladder))
    assert coordinator_noise.find(records, changed, ladder) == {}


def test_explain_shows_what_the_repeats_can_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["explain", str(SMOKE), "--runs-dir", str(tmp_path)]) == 0
    assert "repeats can show" not in capsys.readouterr().out
    record = measure(noise_run(), ARMS_OF_SMOKE)
    (tmp_path / record.run).mkdir()
    (tmp_path / record.run / coordinator_noise.FILE).write_text(coordinator_noise.to_json(record))
    assert execute(["explain", str(SMOKE), "--runs-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "changes that the repeats can show (in 80 of 100 runs)" in shown
    assert "ladder, 4 threads, 3 × 1 s (noise of smoke-noise-1, " in shown
    assert "ladder, 1 thread, 3 × 1 s (noise of smoke-noise-1 at 4 threads, " in shown
    assert execute(["explain", str(SMOKE), "--json", "--runs-dir", str(tmp_path)]) == 0
    noise = json.loads(capsys.readouterr().out)["noise"]
    assert [item["threads"] for item in noise] == [1, 4]
    assert noise[0]["shown"]["tps"] > noise[0]["shown_interleaved"]["tps"] * 0.01


def test_a_noise_run_can_be_resumed_with_the_same_plan_only(tmp_path: Path) -> None:
    made = noise_plan(compile_plan(SMOKE, overrides={}), ARMS_OF_SMOKE)
    command = run_directory.Command(plan=str(SMOKE), noise=ARMS_OF_SMOKE)
    results = noise_run()
    assert results.run is not None
    directory = run_directory.create(tmp_path, made, command, datetime.now().astimezone())
    assert directory.command() == command
    started = run_started({}, digest=made.digest)
    run_directory._same_as_now(directory, started, command)
    with pytest.raises(run_directory.NotResumable, match="has changed"):
        run_directory._same_as_now(directory, started, run_directory.Command(plan=str(SMOKE)))
