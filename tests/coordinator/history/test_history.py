"""The history of a plan: change points that later runs do not change, the power of its earlier runs, and the summaries of
a folder of runs. Rows of `stated_and_real` have the false alarms, odd runs, short histories and changes of the spread."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from recorded_runs import plan, record
from records import run_finished

from proveout.coordinator.history import power
from proveout.coordinator.history import runs as history_runs
from proveout.coordinator.history.metric_history import (
    AFTER_MIN,
    EFFECT_RUNS_MIN,
    HISTORY_MIN,
    HORIZON,
    Point,
    detect,
    effect,
    point,
)
from proveout.coordinator.history.runs import read_folder, study_digest, to_parquet, to_table
from proveout.coordinator.storage.journal import FILE, Journal
from proveout.core.json_data import to_plain
from proveout.core.units import format_duration
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import VerdictReached

RUNS, AT = 100, 50


def history(seed: int, step: float) -> list[Point]:
    """Runs that differ by 1 % beyond their three repeats, which have a cv of 1 %; the level changes at `AT`."""
    generator = np.random.default_rng(seed)
    level = generator.normal(0.0, 0.01, RUNS) + np.where(np.arange(RUNS) >= AT, math.log1p(step), 0.0)
    found = (point(list(np.exp(level[run] + 0.01 * generator.standard_normal(3)))) for run in range(RUNS))
    return [one for one in found if one is not None]


def steady(runs: int, variance: float | None = 4e-6, repeats: int = 5) -> list[Point]:
    return [Point(0.002 * (run % 5), variance, repeats) for run in range(runs)]


def moved(points: Sequence[Point], by: Sequence[float]) -> list[Point]:
    return [replace(one, value=one.value + each) for one, each in zip(points, by, strict=True)]


def singles(values: Sequence[float]) -> list[Point]:
    return [Point(value, None, 1) for value in values]


def test_the_size_of_a_change_is_of_runs_that_did_not_show_it() -> None:
    """The coverage of its interval is a row of `stated_and_real`."""
    found = history(13, step=0.08)
    changes = detect(found).changes
    (change,) = changes
    for later, runs in ((0, None), (EFFECT_RUNS_MIN - 1, None), (EFFECT_RUNS_MIN, EFFECT_RUNS_MIN), (20, 10)):
        size = effect(found[: change.decided + 1 + later], changes, 0)
        assert (size.runs if size else None) == runs
    assert effect(found, changes, 0) == size, "further runs do not move it"
    showing = slice(change.index, change.decided + 1)
    other = [*found]
    other[showing] = moved(found[showing], [1.0] * len(found[showing]))
    assert effect(other, changes, 0) == size, "the runs that showed it have no part in it"
    assert size is not None
    assert 0.065 < size.lower < 0.08 < size.upper < 0.095


def test_the_size_of_a_change_ends_at_the_next_one() -> None:
    points = moved(steady(60), [0.0] * 20 + [0.1] * 20 + [0.3] * 20)
    changes = detect(points).changes
    assert [change.index for change in changes] == [20, 40]
    early = replace(changes[1], index=changes[0].decided + 1 + EFFECT_RUNS_MIN)
    size, second = effect(points, (changes[0], early), 0), effect(points, changes, 1)
    assert size is not None and size.runs == EFFECT_RUNS_MIN
    assert effect(points, (changes[0], replace(early, index=early.index - 1)), 0) is None
    assert second is not None and second.change == pytest.approx(math.expm1(0.2), rel=0.01)


def test_a_further_run_changes_no_decision() -> None:
    """Freezing, for prefixes of a history with two changes."""
    whole = moved(history(14, step=0.05), [0.0] * 80 + [-0.08] * 20)
    last = detect(whole)
    assert len(last.changes) >= 2
    for count in range(1, RUNS, 5):
        before = detect(whole[:count])
        assert before.changes == tuple(change for change in last.changes if change.decided < count)
        for index, status in enumerate(before.statuses):
            if status in ("steady", "change"):
                assert last.statuses[index] == status


def test_a_run_is_decided_within_the_horizon() -> None:
    found = detect(history(15, step=0.05))
    assert all(AFTER_MIN - 1 <= change.decided - change.index < HORIZON for change in found.changes)
    assert found.statuses[:HISTORY_MIN] == ("history",) * HISTORY_MIN
    assert set(found.statuses[-HORIZON:]) <= {"open", "change"}
    assert "open" not in found.statuses[:-HORIZON]


def test_a_level_is_found_across_a_change_of_spread() -> None:
    values = np.random.default_rng(3).normal(0.0, 0.01, 90)
    values[30:] = 0.15 + 4.0 * values[30:]
    assert [abs(change.index - 30) <= 5 for change in detect(singles(values.tolist())).changes] == [True]


def test_most_of_the_level_is_spent_early() -> None:
    """The same runs are a change in a history of 20 and none in one of 60, whose places were looked at for longer."""
    step = [0.012, -0.012] * 5 + [0.03 + value for value in (0.012, -0.012) * 3]
    (change,) = detect(singles(step)).changes
    assert 1e-4 < change.p_value <= 2.1e-3


def test_an_odd_run_is_not_taken_for_a_change_and_hides_none() -> None:
    points = moved(steady(25, None, 1), [-0.1 * (run >= 15) - 0.5 * (run == 10) for run in range(25)])
    (change,) = detect(points).changes
    assert (change.index, change.decided) == (15, 16)


def test_a_noisy_run_weighs_less() -> None:
    """Two runs 6 % low are a change when their repeats agree, and none when these spread by 20 %."""
    low, loud = [Point(-0.06, 4e-6, 5)] * 2, [Point(-0.06, 0.04, 5)] * 2
    assert [change.index for change in detect([*steady(30), *low]).changes] == [30]
    assert not detect([*steady(30), *loud]).changes


def test_constant_and_short_histories() -> None:
    same = [Point(1.0, 0.0, 3)] * 30
    assert not detect(same).changes
    assert not detect([]).changes
    assert detect(singles([1.0] * 3)).statuses == ("history",) * 3
    assert [change.index for change in detect([*same, *[Point(1.1, 0.0, 3)] * 5]).changes] == [30]
    assert point([]) is None and point([1.0, 0.0]) is None
    apart = [found for value in (1e-300, 1e300) for _ in range(10) if (found := point([value, value]))]
    assert detect(apart).changes == (), "no change of 600 powers of ten, which is no number"
    one = point([math.e])
    assert one is not None and (one.variance, one.repeats) == (None, 1) and one.value == pytest.approx(1.0)


# ---- power of a plan by its own earlier runs ---------------------------------------------------------------------

VALUES = {1: [1000.0, 1010.0, 990.0], 4: [3000.0, 3100.0, 2900.0]}


def judged(text: str, repeat_min: int | None = None, repeat: int = 3) -> Plan:
    made = plan(3)
    stages = tuple(
        replace(one, threads=(1, 4), repeat=repeat, repeat_min=repeat_min) if isinstance(one, Ladder) else one
        for one in made.stages
    )
    check = Check(id="v", check=Expression(text=text, needs=("ladder",)))
    return replace(made, stages=stages, verdicts=(check,))


def test_earlier_runs_say_which_changes_and_verdicts_the_plan_can_show(tmp_path: Path) -> None:
    made = judged("ladder.at(4).tps >= 1000")
    for day in range(5):
        name = record(tmp_path, VALUES, day=day, of=made)
    record(tmp_path, VALUES, day=7.0, of=made, ended=False)
    record(tmp_path, VALUES, day=8.0, of=plan(3, measure="2s"))
    earlier = power.earlier_results(made, tmp_path)
    assert next(one.run.run_id for one in earlier if one.run) == name
    assert len(earlier) == power.RUNS_MAX, "the newest finished ones of this plan"
    found = power.foresee(made, earlier)
    least, most = found.ladders[0].changes["throughput"]
    assert 0.01 < least < most < 0.3
    (verdict,) = found.verdicts
    assert verdict.outcome == "PASS" and verdict.chance == pytest.approx(1.0, abs=1e-6)
    first, ladder, of_verdict = power.lines(found)
    assert first.startswith(f"by 3 earlier runs of this plan (newest {name})")
    assert ladder.startswith("  ladder: 3 repeats show changes of at least ") and ladder.endswith(" in response p99")
    assert of_verdict == "  v: decided with a chance of 100 % (PASS last time)"
    text, void = made.verdicts[0].check.text, "most attempts were void"
    reached = VerdictReached(id="v", title="", severity="fail", outcome="INCONCLUSIVE", check=text, evidence=void)
    assert power.foresee(made, [replace(earlier[0], verdicts=(reached,))]).verdicts[0].outcome == "INCONCLUSIVE"


def test_a_limit_at_the_value_is_hardly_decided_and_auto_repeats_have_an_expected_number(tmp_path: Path) -> None:
    made = judged("ladder.at(4).tps >= 3001", repeat_min=3, repeat=10)
    record(tmp_path, VALUES, of=made)
    found = power.foresee(made, power.earlier_results(made, tmp_path))
    chance = found.verdicts[0].chance
    assert chance is not None and chance < 0.1
    repeats, seconds = found.ladders[0].expected or (0.0, 0.0)
    assert repeats == pytest.approx(5.9, abs=0.5)
    assert seconds == pytest.approx(repeats * timetable(made).stages[-1].seconds / 10)
    assert f"about 6 are expected, in {format_duration(seconds)}" in "\n".join(power.lines(found))


def test_the_expected_repeats_are_of_the_same_numbers_in_each_run(tmp_path: Path) -> None:
    """The newest run is undecided by one comparison; the other one is far from its limit in both."""
    made = judged("ladder.at(1).tps >= 500 && ladder.at(4).tps >= 3001", repeat_min=3, repeat=10)
    record(tmp_path, {**VALUES, 4: [3600.0, 3700.0, 3500.0]}, day=1, of=made)
    record(tmp_path, VALUES, day=2, of=made)
    found = power.foresee(made, power.earlier_results(made, tmp_path))
    repeats, _ = found.ladders[0].expected or (0.0, 0.0)
    assert repeats == pytest.approx((5.9 + 3.0) / 2, abs=0.5), "3 by the one, 6 by the other"


def test_nothing_is_said_without_earlier_runs_or_where_a_journal_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = judged("ladder.at(4).tps >= 1000")
    assert power.earlier_results(made, tmp_path / "none") == ()
    assert list(power.lines(power.foresee(made, ()))) == []
    record(tmp_path, VALUES, of=made)
    monkeypatch.setattr(power, "JOURNAL_MAX_BYTES", 10)
    assert power.earlier_results(made, tmp_path) == ()


# ---- the summaries of a folder, their cache, and the table of all rungs ------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "proveout" / "runs"


@pytest.fixture
def runs(tmp_path: Path, cache: Path) -> Path:
    """A folder with one run."""
    record(tmp_path / "runs", {1: [100.0, 101.0]})
    return tmp_path / "runs"


def test_a_row_for_each_rung_of_each_run(tmp_path: Path, cache: Path) -> None:
    second = record(tmp_path, {1: [200.0, 202.0, 204.0]}, day=1.0)
    first = record(tmp_path, {1: [100.0, 101.0, 102.0], 4: [300.0, 303.0, 306.0]}, labels={"commit": "a1"})
    rows = to_table(read_folder(tmp_path).runs).to_pylist()
    assert [(row["run"], row["stage"], row["threads"], row["label.commit"]) for row in rows] == [
        (first, "ladder", 1, "a1"), (first, "ladder", 4, "a1"), (second, "ladder", 1, None)
    ]  # fmt: skip
    assert rows[0]["started"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert (rows[0]["plan"], rows[0]["status"], rows[0]["exit_code"], rows[0]["repeats"]) == ("smoke", "finished", 0, 3)
    assert rows[1]["tps.mean"] == pytest.approx(303.0)
    assert rows[1]["tps.lower"] < 303.0 < rows[1]["tps.upper"]
    assert rows[1]["tps.cv"] == pytest.approx(0.0099, abs=1e-4)
    assert rows[2]["response.p99_us.mean"] is not None
    assert pq.read_table(io.BytesIO(to_parquet(read_folder(tmp_path).runs))).to_pylist() == rows
    assert to_table(read_folder(tmp_path / "nothing").runs).num_rows == 0
    loads = {"loads": {"mean": {"tps": {"mean": 1.0}}, "other": {"tps": {"mean": 2.0}}}}
    assert [name for name, _ in history_runs.flat(loads)] == ["loads.mean.tps", "loads.other.tps"]


def test_runs_that_have_ended_are_read_once(runs: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = runs / record(runs, {1: [100.0, 101.0]}, day=1.0, ended=False)
    seen: list[tuple[int, int]] = []
    first = read_folder(runs, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert len(list(cache.iterdir())) == 1  # the other one may go on
    opened: list[Path] = []
    real = history_runs.journal.read
    monkeypatch.setattr(history_runs.journal, "read", lambda path: opened.append(path) or real(path))  # type: ignore[func-returns-value]
    assert read_folder(runs) == first
    assert len(opened) == 1
    for entry in cache.iterdir():
        entry.write_text('{"run": 1}')
    assert read_folder(runs) == first, "a damaged entry is not used"
    shutil.copytree(unfinished, runs / "copy")
    assert read_folder(runs) == first, "a copy is no other run"
    with Journal(unfinished) as journal:
        journal.append(run_finished())
    assert {run.status for run in read_folder(runs).runs} == {"finished"}, "a copy of before is not in place of it"


def test_a_summary_that_an_earlier_release_cached_is_not_used(
    runs: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format 2 had the rate of a search as a plain number; it is an estimate now."""
    with monkeypatch.context() as earlier:
        earlier.setattr(history_runs, "FORMAT", 2)
        old = read_folder(runs).runs[0]
        (entry,) = cache.iterdir()
        plain = replace(old, rungs=(dataclasses.replace(old.rungs[0], numbers={"rate": {"mean": 900.0}}),))
        entry.write_text(json.dumps(to_plain(plain)))
        assert read_folder(runs).runs[0] == plain
    assert read_folder(runs).runs[0] == old


def test_a_journal_that_changes_after_it_was_cached_is_read_again(runs: Path) -> None:
    (run,) = read_folder(runs).runs
    (journal,) = runs.glob(f"*/{FILE}")
    journal.write_bytes(b"not a journal")
    found = read_folder(runs)
    assert not found.runs
    assert [name for name, _ in found.unreadable] == [journal.parent.name] == [run.run]


def test_without_a_cache_and_for_a_user_without_a_home_it_works(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(read_folder(runs).runs) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # it has no account
    with pytest.raises(RuntimeError):
        Path.home()
    assert len(read_folder(runs).runs) == 1


def test_repeats_do_not_change_the_study() -> None:
    assert study_digest(plan(2)) == study_digest(plan(5))
    assert study_digest(plan(2)) != study_digest(plan(2, "2s"))
