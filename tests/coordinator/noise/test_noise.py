"""The plan of a noise run, its record, the lines of `explain`, and a resume of it; variance components against known ones;
and detection promised against detection observed, through the chain that compares runs. Bounds are 4 standard errors."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import thorough
from recorded_runs import ROOT, SMOKE, iteration, plan
from records import begun, ladder_metrics, run_finished, run_started

from proveout.cli import execute, outputs
from proveout.cli.history import NOISE_EPILOG
from proveout.coordinator import noise as coordinator_noise
from proveout.coordinator.noise import (
    ArmDifference,
    Components,
    NoiseRecord,
    Spread,
    TooFewPairs,
    components,
    measure,
    remedy,
    showing,
)
from proveout.coordinator.report.history_documents import explain_data, noise_document, summary
from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.storage import run_directory
from proveout.core import statistics
from proveout.core.statistics import POWER
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.iteration_order import ARMS, NoiseArms, NoRung, choose, groups, noise_plan
from proveout.dsl.plan.plan import Plan, Published
from proveout.dsl.plan.stages import Condition, Ladder, Pause, Restart, Revert, Tune
from proveout.dsl.plan.topology import Expression
from proveout.proto import events as e

ARMS_OF_SMOKE = NoiseArms(stage="ladder", threads=4, repeats=10)


def noise_run(pairs: int = 10, factor: float = 1.0) -> RunResults:
    made, generator = noise_plan(plan(), ARMS_OF_SMOKE), np.random.default_rng(5)
    facts = e.FactsTaken(when="start", host="db1", system="", facts={"kernel": "6.1"})
    events: list[e.Event] = [run_started(made, "smoke-noise-1"), facts, *map(begun, ARMS)]
    for repeat in range(1, pairs + 1):
        shared = generator.normal(0.0, 0.01)
        for arm, of in zip(ARMS, (1.0, factor), strict=True):
            tps = 1000.0 * of * math.exp(shared + generator.normal(0.0, 0.01))
            events.append(iteration(4, repeat, tps, stage=arm))
    return load_results([*events, run_finished()])


def ladders(of: Plan) -> list[Ladder]:
    return [stage for stage in of.stages if isinstance(stage, Ladder)]


def test_the_arms_are_one_rung_twice_and_nothing_else_is_measured() -> None:
    shown = Published(id="figure", measured=Expression(text="ladder.at(4).tps", needs=("ladder",)), value=1.0)
    made = noise_plan(dataclasses.replace(plan(), published=(shown,)), ARMS_OF_SMOKE)
    assert [stage.id for stage in made.stages] == ["populate", *ARMS]
    assert [(one.threads, one.repeat, one.interleaved_with) for one in ladders(made)] == [
        ((4,), 10, None), ((4,), 10, ARMS[0]),
    ]  # fmt: skip
    assert (made.name, made.verdicts, made.published, made.figures) == ("smoke-noise", (), (), ())
    assert made.systems == plan().systems


def test_each_arm_has_its_own_steps() -> None:
    rest, cool = (Pause(id=name, duration_s=1.0) for name in ("rest", "cool"))
    (populate, ladder) = plan().stages
    assert isinstance(ladder, Ladder)
    whole = dataclasses.replace(ladder, before=("rest",), after=("cool",))
    made = noise_plan(dataclasses.replace(plan(), stages=(populate, rest, whole, cool)), ARMS_OF_SMOKE)
    assert [stage.id for stage in made.stages] == [
        "populate", "arm_a_rest", "arm_a", "arm_a_cool", "arm_b_rest", "arm_b", "arm_b_cool"
    ]  # fmt: skip
    first, second = ladders(made)
    assert (first.before, first.after, second.before) == (("arm_a_rest",), ("arm_a_cool",), ("arm_b_rest",))
    assert groups(made.stages) == [(first, second)]


def test_what_sets_a_tuning_back_is_that_of_its_own_arm() -> None:
    """It named the step of the ladder, which is not in the plan of the noise run."""
    (populate, ladder) = plan().stages
    assert isinstance(ladder, Ladder)
    tune, back = Tune(id="tune", tunings=()), Revert(id="back", tune="tune")
    whole = dataclasses.replace(ladder, before=("tune",), after=("back",))
    made = noise_plan(dataclasses.replace(plan(), stages=(populate, tune, whole, back)), ARMS_OF_SMOKE)
    assert [stage.tune for stage in made.stages if isinstance(stage, Revert)] == ["arm_a_tune", "arm_b_tune"]


def test_all_that_comes_before_the_ladder_and_measures_nothing_is_run() -> None:
    """Restarts and reverts were left out, so that the arms met other settings than the ladder."""
    (populate, ladder) = plan().stages
    tune, back, again = Tune(id="t", tunings=()), Revert(id="r", tune="t"), Restart(id="again", system="db")
    stages = (populate, tune, dataclasses.replace(ladder, id="first"), back, again, ladder)
    made = noise_plan(dataclasses.replace(plan(), stages=stages), ARMS_OF_SMOKE)
    assert [stage.id for stage in made.stages] == ["populate", "t", "r", "again", *ARMS]
    waits = Condition(stage="t", needs=("first",))
    made = noise_plan(dataclasses.replace(plan(), stages=stages, conditions=(waits,)), ARMS_OF_SMOKE)
    assert [stage.id for stage in made.stages] == ["populate", "again", *ARMS], "neither the change nor its end"


def test_a_stage_with_the_id_of_an_arm_is_refused() -> None:
    populate, *rest = plan().stages
    taken = dataclasses.replace(plan(), stages=(dataclasses.replace(populate, id=ARMS[1]), *rest))
    with pytest.raises(NoRung, match=f"a noise run has a stage {ARMS[1]} of its own"):
        noise_plan(taken, ARMS_OF_SMOKE)


def test_defaults_are_the_first_ladder_and_its_most_threads() -> None:
    assert choose(plan(), None, None, 10) == ARMS_OF_SMOKE
    assert choose(plan(), "ladder", 2, 5) == NoiseArms(stage="ladder", threads=2, repeats=5)
    (example,) = re.findall(r"proveout noise (\S+) --stage (\w+) --threads (\d+)", NOISE_EPILOG)
    assert choose(compile_plan(ROOT / example[0]), example[1], int(example[2]), 20), "the one of the help"
    with pytest.raises(NoRung, match=r"no ladder 'other'.*\n.*It has ladder"):
        choose(plan(), "other", None, 10)
    (populate, ladder) = plan().stages
    assert isinstance(ladder, Ladder)
    alone = dataclasses.replace(ladder, id="mix__a_alone", alone="a")  # its arms would run all loads
    with pytest.raises(NoRung, match="no ladder 'mix__a_alone'"):
        choose(dataclasses.replace(plan(), stages=(populate, ladder, alone)), "mix__a_alone", None, 10)


def test_the_record_has_what_was_simulated() -> None:
    record = measure(noise_run(), ARMS_OF_SMOKE)
    assert (record.plan, record.stage, record.threads, record.measure_s) == ("smoke", "ladder", 4, 1.0)
    tps = record.metrics["tps"]
    assert tps.repeats == 10 and not tps.arms.shown
    assert tps.repeat_total.lower < math.hypot(0.01, 0.01) < tps.repeat_total.upper
    words = summary(record, "tps")
    assert words.startswith("3 repeats of 1 s show a change in TPS of ")
    assert "to show 1 %, take " in words
    other = measure(noise_run(factor=1.1), ARMS_OF_SMOKE)
    assert other.metrics["tps"].arms.shown
    assert "DIFFERS" in str(noise_document(other).sections)
    found = remedy(record, tps, 0.01)
    assert found is not None
    each_s = found.window_s + record.ramps_s + coordinator_noise.OVERHEAD_S
    assert found.seconds == pytest.approx(found.repeats * each_s)
    with pytest.raises(TooFewPairs, match="2 of 10 repeats"):
        measure(noise_run(pairs=2), ARMS_OF_SMOKE)


def stored(runs: Path) -> NoiseRecord:
    record = measure(noise_run(), ARMS_OF_SMOKE)
    (runs / record.run).mkdir()
    (runs / record.run / coordinator_noise.FILE).write_text(coordinator_noise.to_json(record))
    return record


def test_a_stored_record_is_found_by_the_plan_whatever_its_repeats(tmp_path: Path) -> None:
    record = stored(tmp_path)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / coordinator_noise.FILE).write_text("{")
    records = list(coordinator_noise.records(tmp_path))
    assert records == [record]
    for other in (plan(), plan(7), plan(7, "2s")):
        assert coordinator_noise.find(records, other, ladders(other)[0]) == {1: record, 4: record}
    changed = compile_plan(SMOKE, overrides={"subscribers": "2000"})
    assert coordinator_noise.find(records, changed, ladders(changed)[0]) == {}
    auto = [dataclasses.replace(one, repeat_min=3) if isinstance(one, Ladder) else one for one in plan(10).stages]
    both = (explain_data(one, records)[0] for one in (plan(10), dataclasses.replace(plan(10), stages=tuple(auto))))
    fixed, wider = (one["shown"]["tps"] for one in both)  # type: ignore[index]
    assert wider > 1.1 * fixed, "the intervals of `auto` have a higher level"


def test_explain_shows_what_the_repeats_can_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def explained(*more: str) -> str:
        assert execute(["explain", str(SMOKE), *more, "--runs-dir", str(tmp_path)]) == 0
        return capsys.readouterr().out

    assert "repeats can show" not in explained()
    stored(tmp_path)
    shown = explained()
    assert "changes that the repeats can show (in 80 of 100 runs)" in shown
    assert "ladder, 4 threads, 3 × 1 s (noise of smoke-noise-1, " in shown
    assert "ladder, 1 thread, 3 × 1 s (noise of smoke-noise-1 at 4 threads, " in shown
    noise = json.loads(explained("--json"))["noise"]
    assert [item["threads"] for item in noise] == [1, 4]
    assert noise[0]["shown"]["tps"] > noise[0]["shown_interleaved"]["tps"] * 0.01


def test_a_noise_run_can_be_resumed_with_the_same_plan_only(tmp_path: Path) -> None:
    made = noise_plan(compile_plan(SMOKE, overrides={}), ARMS_OF_SMOKE)
    command = run_directory.Command(plan=str(SMOKE), noise=ARMS_OF_SMOKE)
    directory = run_directory.create(tmp_path, made, command, datetime.now().astimezone())
    assert directory.command() == command
    started = run_started({}, digest=made.digest)
    run_directory._same_as_now(directory, started, command)
    with pytest.raises(run_directory.NotResumable, match="has changed"):
        run_directory._same_as_now(directory, started, run_directory.Command(plan=str(SMOKE)))


def test_the_record_stays_with_the_run_where_a_file_is_asked_for_too(tmp_path: Path) -> None:
    made = noise_plan(compile_plan(SMOKE, overrides={}), ARMS_OF_SMOKE)
    command = run_directory.Command(plan=str(SMOKE), noise=ARMS_OF_SMOKE)
    directory = run_directory.create(tmp_path, made, command, datetime.now().astimezone())
    files = outputs.kept(directory) | {outputs.NOISE: str(tmp_path / "asked.json")}
    records = {name: path for name, path in files.items() if name not in (outputs.RESULT, outputs.PAGE)}
    assert outputs.write(noise_run(), directory, records) is None
    assert (directory.path / "noise.json").read_text() == (tmp_path / "asked.json").read_text()


# ---- variance components against known ones ----------------------------------------------------------------------

TRIALS, REPEATS, WINDOW_S = 300, 10, 10
SIGMA = {"repeat": 0.02, "iteration": 0.01, "second": 0.06}
FOUR_SIGMA = 4.0 * math.sqrt(0.95 * 0.05 / TRIALS)


@pytest.fixture(scope="module")
def found() -> list[Components]:
    generator = np.random.default_rng(12)
    result = []
    for _ in range(TRIALS):
        repeat = generator.normal(0.0, SIGMA["repeat"], REPEATS)
        iteration = repeat + generator.normal(0.0, SIGMA["iteration"], (2, REPEATS))
        noise = 1.0 + generator.normal(0.0, SIGMA["second"], (2, REPEATS, WINDOW_S))
        seconds = 1000.0 * np.exp(iteration)[..., None] * noise
        first, second = seconds.mean(axis=2).tolist()
        one = components(first, second, seconds.reshape(-1, WINDOW_S).tolist(), float(WINDOW_S))
        assert one is not None
        result.append(one)
    return result


def test_the_variances_are_unbiased_and_their_intervals_hold(found: list[Components]) -> None:
    def covered(name: str, true: float) -> float:
        return float(np.mean([getattr(one, name).lower <= true <= getattr(one, name).upper for one in found]))

    error = math.hypot(SIGMA["iteration"], SIGMA["second"] / math.sqrt(WINDOW_S))
    total = math.hypot(SIGMA["repeat"], error)
    assert np.mean([one.iteration_total.value**2 for one in found]) == pytest.approx(error**2, rel=0.12)
    assert np.mean([one.repeat_total.value**2 for one in found]) == pytest.approx(total**2, rel=0.12)
    assert np.mean([one.second or 0.0 for one in found]) == pytest.approx(SIGMA["second"], rel=0.02)
    assert abs(covered("iteration_total", error) - 0.95) < FOUR_SIGMA
    assert covered("repeat", SIGMA["repeat"]) > 0.95 - FOUR_SIGMA  # Williams: at least
    assert covered("iteration", SIGMA["iteration"]) > 0.95 - FOUR_SIGMA
    assert covered("repeat_total", total) > 0.935 - FOUR_SIGMA  # approximate degrees
    assert abs(np.mean([one.arms.shown for one in found]) - 0.05) < FOUR_SIGMA, "equal arms differ in 1 of 20"


def test_a_longer_window_helps_against_seconds_only(found: list[Components]) -> None:
    one = next(one for one in found if one.iteration.value > 0.005)
    assert one.deviation(40.0) < one.deviation(10.0) < one.deviation(2.0)
    assert one.paired_deviation(1e9) == pytest.approx(math.sqrt(2.0) * one.iteration.value, rel=1e-3)
    assert one.deviation(10.0, upper=True) > one.deviation(10.0)
    without = components([1.0, 1.1, 1.2], [1.0, 1.2, 1.1], [], 10.0)
    assert without is not None and without.second is None
    assert without.deviation(40.0) == without.deviation(10.0)
    assert components([1.0, 2.0], [1.0, 2.0], [], 1.0) is None, "too few repeats"
    assert components([1.0, 2.0, 0.0], [1.0, 2.0, 3.0], [], 1.0) is None, "a zero"


# ---- promised against observed -----------------------------------------------------------------------------------

PAIRS = thorough.count(1200, 150)
BETWEEN, WITHIN = 0.02, 0.015


@pytest.mark.thorough
@pytest.mark.parametrize(("repeats", "paired", "seed"), [(3, False, 3), (14, False, 14), (5, True, 25)])
def test_the_smallest_change_is_shown_as_often_as_promised(repeats: int, paired: bool, seed: int) -> None:
    """Of two runs, or of two interleaved ladders (`paired`), of components that are known as after a very long noise
    run: a change is shown when the interval of the ratio leaves out 1."""
    between, within, both = (Spread(value=v, lower=v, upper=v) for v in (BETWEEN, WITHIN, math.hypot(BETWEEN, WITHIN)))
    known = Components(
        repeat=between, iteration=within, iteration_total=within, repeat_total=both, repeats=1000, window_s=10.0,
        second=None, arms=ArmDifference(mean=0.0, lower=0.0, upper=0.0, confidence=0.95),
    )  # fmt: skip
    change = showing(known, repeats, 10.0, paired=paired)
    assert change is not None
    generator, shown = np.random.default_rng(seed), 0
    for _ in range(PAIRS):
        trees = []
        shared = generator.normal(0.0, BETWEEN, repeats)
        for factor in (1.0, 1.0 + change):
            logs = shared + generator.normal(0.0, WITHIN, repeats)
            shared = shared if paired else generator.normal(0.0, BETWEEN, repeats)
            made = [iteration(4, i + 1, 1000.0 * factor * math.exp(value)) for i, value in enumerate(logs)]
            trees.append(ladder_metrics(made, block="run/a" if paired else "")["rungs"]["4"]["tps"])
        ratio = statistics.ratio(trees[1], trees[0])
        shown += ratio.get("lower", 0.0) > 1.0 or ratio.get("upper", math.inf) < 1.0
    assert abs(shown / PAIRS - POWER) < 4.0 * math.sqrt(POWER * (1.0 - POWER) / PAIRS)
