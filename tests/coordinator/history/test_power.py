"""Power of a plan by its own earlier runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import plan, record

from proveout.coordinator.history import power
from proveout.core.units import format_duration
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder
from proveout.dsl.plan.topology import Expression

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
    assert (verdict.outcome, verdict.chance) == ("PASS", pytest.approx(1.0, abs=1e-6))
    first, ladder, of_verdict = power.lines(found)
    assert first.startswith(f"by 3 earlier runs of this plan (newest {name})")
    assert ladder.startswith("  ladder: 3 repeats show changes of at least ")
    assert of_verdict == "  v: decided with a chance of 100 % (PASS last time)"


def test_a_limit_at_the_value_is_hardly_decided_and_auto_repeats_have_an_expected_number(tmp_path: Path) -> None:
    made = judged("ladder.at(4).tps >= 3001", repeat_min=3, repeat=10)
    record(tmp_path, VALUES, of=made)
    found = power.foresee(made, power.earlier_results(made, tmp_path))
    assert found.verdicts[0].chance < 0.1
    assert found.ladders[0].expected is not None
    repeats, seconds = found.ladders[0].expected
    assert repeats == pytest.approx(5.9, abs=0.5)
    assert seconds == pytest.approx(repeats * timetable(made).stages[-1].seconds / 10)
    assert f"about 6 are expected, in {format_duration(seconds)}" in "\n".join(power.lines(found))


def test_nothing_is_said_without_earlier_runs_or_where_a_journal_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = judged("ladder.at(4).tps >= 1000")
    assert power.earlier_results(made, tmp_path / "none") == ()
    assert list(power.lines(power.foresee(made, ()))) == []
    record(tmp_path, VALUES, of=made)
    monkeypatch.setattr(power, "JOURNAL_MAX_BYTES", 10)
    assert power.earlier_results(made, tmp_path) == ()
