"""Power of a plan by its own earlier runs: the changes that it can show, and how likely its verdicts are decided.

Data flow: the newest finished runs of the same plan in a folder (`earlier_results`) -> `foresee`: the deviation of
repeats at each rung, and each verdict judged on each of those runs -> `lines` for `explain` and `check`. Deviations are
taken at the upper end of their 90 % interval, and distances from limits at the lower one, so that nine statements in
ten are too low rather than too high.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from proveout.coordinator.history.runs import recorded_study, study_digest
from proveout.coordinator.results.results import RunResults, environment, load_results
from proveout.coordinator.storage import journal, run_directory
from proveout.coordinator.storage.journal import JournalFault
from proveout.coordinator.verdict.checks import judge
from proveout.core.data_classes import record
from proveout.core.json_data import at_path
from proveout.core.numbers import count_of, percent
from proveout.core.statistics import (
    ASSURANCE,
    chance_again,
    detectable,
    deviation_at_most,
    deviations_apart,
    repeats_confidence,
    repeats_expected,
)
from proveout.core.units import format_duration
from proveout.dsl.explain.timetable import estimate_s
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder

RUNS_MAX, TRIED_MAX = 3, 10
JOURNAL_MAX_BYTES = 32 << 20
"""Larger journals are not read: `check` stays fast."""
SHOWN: Mapping[str, tuple[str, ...]] = {"throughput": ("tps",), "response p99": ("response", "p99_us")}


@record
class LadderPower:
    """The smallest relative changes that the repeats of a ladder show with 80 %, by the name of the number: at the rung
    where they are smallest, and largest. `expected`: of `auto` repeats the mean number, and the seconds that these
    take, where verdicts read it."""

    id: str
    repeats: int
    changes: Mapping[str, tuple[float, float]]
    expected: tuple[float, float] | None = None


@record
class VerdictPower:
    """A verdict, its outcome in the newest run, and the chance that the plan's repeats decide it, at the least; None
    where it is not known, as of a count."""

    id: str
    outcome: str
    chance: float | None


@record
class Foreseen:
    """The power of the next run of a plan by its earlier ones; `runs` are their ids, the newest first."""

    runs: tuple[str, ...] = ()
    ladders: tuple[LadderPower, ...] = ()
    verdicts: tuple[VerdictPower, ...] = ()


def earlier_results(plan: Plan, runs: Path) -> tuple[RunResults, ...]:
    """The newest finished runs of this plan (the number of repeats aside), found by the names of their directories."""
    study, found = "", []
    stem = re.compile(rf"{re.escape(run_directory.stem(plan))}-\d{{8}}-\d{{6}}-[0-9a-f]{{4}}")
    named = (one for one in run_directory.all_runs(runs) if stem.fullmatch(one.name))
    for directory in islice(named, TRIED_MAX):
        try:
            if (directory.path / journal.FILE).stat().st_size > JOURNAL_MAX_BYTES:
                continue
            results = load_results(journal.read(directory.path))
        except (OSError, JournalFault):
            continue
        study = study or study_digest(plan)
        if results.ended and results.ended.status == "finished" and recorded_study(results) == study:
            found.append(results)
        if len(found) == RUNS_MAX:
            break
    return tuple(found)


def foresee(plan: Plan, earlier: Sequence[RunResults]) -> Foreseen:
    """The changes that the plan's repeats can show, and its verdicts, by those runs; empty without any."""
    if not earlier:
        return Foreseen()
    ladders = tuple(stage for stage in plan.stages if isinstance(stage, Ladder) and not stage.alone)
    verdicts = (_verdict(plan, check, earlier) for check in plan.verdicts)
    return Foreseen(
        runs=tuple(results.run.run_id for results in earlier if results.run),
        ladders=tuple(filter(None, (_ladder(plan, ladder, earlier) for ladder in ladders))),
        verdicts=tuple(filter(None, verdicts)),
    )


def _level(ladder: Ladder) -> float:
    return repeats_confidence(ladder.repeat, ladder.repeat_min, ladder.repeat)


def _ladder(plan: Plan, ladder: Ladder, earlier: Sequence[RunResults]) -> LadderPower | None:
    changes: dict[str, tuple[float, float]] = {}
    for name, path in SHOWN.items():
        of_rungs = [_change(ladder, rung, path, earlier) for rung in ladder.threads]
        known = [change for change in of_rungs if change is not None]
        if known:
            changes[name] = min(known), max(known)
    if not changes:
        return None
    expected = None
    if ladder.repeat_min is not None:
        reading = [check for check in plan.verdicts if ladder.id in check.check.needs]
        of_runs = [[apart for check in reading for apart in _distances(check, results)] for results in earlier]
        means = [repeats_expected(ladder.repeat_min, ladder.repeat, apart) for apart in of_runs if apart]
        if means:
            mean = sum(means) / len(means)
            expected = mean, mean * estimate_s(ladder, plan) / ladder.repeat
    return LadderPower(id=ladder.id, repeats=ladder.repeat, changes=changes, expected=expected)


def _change(ladder: Ladder, rung: int, path: Sequence[str], earlier: Sequence[RunResults]) -> float | None:
    """The smallest change of a number of a rung that two ladders or runs of so many repeats show; None without two
    positive values in some run."""
    squares, degrees = 0.0, 0
    for results in earlier:
        of = results.stages[ladder.id].rungs if ladder.id in results.stages else ()
        for one in (one for one in of if one.threads == rung):
            values = (at_path(one.tree, *path) or {}).get("values", ())
            if len(values) > 1 and min(values) > 0.0:
                squares += float(np.var(np.log(values), ddof=1)) * (len(values) - 1)
                degrees += len(values) - 1
    if not degrees:
        return None
    deviation = deviation_at_most(math.sqrt(squares / degrees), degrees)
    found = detectable(deviation, ladder.repeat, arms=2, confidence=_level(ladder))
    return None if found is None else math.expm1(found)


def _distances(check: Check, results: RunResults) -> Iterator[float]:
    """The distance from its limit, in deviations of a repeat, of each number that decides the check in a run."""
    deciding = judge(check.check.text, environment(results)).deciding
    apart = (deviations_apart(value, limit) for value, limit in deciding if value is not None)
    yield from (one for one in apart if one is not None)


def _verdict(plan: Plan, check: Check, earlier: Sequence[RunResults]) -> VerdictPower | None:
    """The chance that all numbers that decide a check are decided, as if each missed at another time; None for a check
    of no ladder."""
    read = [stage for stage in plan.stages if isinstance(stage, Ladder) and stage.id in check.check.needs]
    if not read:
        return None
    fewest, level = min(ladder.repeat for ladder in read), max(map(_level, read))
    judged = [judge(check.check.text, environment(results)) for results in earlier]
    reached = (one.outcome for one in earlier[0].verdicts if (one.id, one.check) == (check.id, check.check.text))
    outcome = next(reached, judged[0].outcome)  # which had its void attempts and broken limits against it too
    chances = []
    for one in judged:
        each = [None if value is None else chance_again(value, limit, fewest, level) for value, limit in one.deciding]
        missed = [1.0 - chance for chance in each if chance is not None]
        if not each or len(missed) < len(each):
            return VerdictPower(id=check.id, outcome=outcome, chance=None)
        chances.append(max(1.0 - sum(missed), 0.0))
    return VerdictPower(id=check.id, outcome=outcome, chance=sum(chances) / len(chances))


def lines(found: Foreseen) -> Iterator[str]:
    """The block of `explain` and `check`; nothing without earlier runs, or where they say nothing."""
    if not found.ladders and not found.verdicts:
        return
    surely = f"in {round(10 * ASSURANCE)} of 10 cases better than stated here"
    yield f"by {count_of(len(found.runs), 'earlier run')} of this plan (newest {found.runs[0]}), {surely}"
    for one in found.ladders:
        shown = ", ".join(f"{_range(*ends)} in {name}" for name, ends in one.changes.items())
        mean = ""
        if one.expected is not None:
            mean = f"; about {one.expected[0]:.0f} are expected, in {format_duration(one.expected[1])}"
        yield f"  {one.id}: {one.repeats} repeats show changes of {shown}{mean}"
    for verdict in found.verdicts:
        chance = "an unknown chance" if verdict.chance is None else f"a chance of {percent(verdict.chance)}"
        yield f"  {verdict.id}: decided with {chance} ({verdict.outcome} last time)"


def _range(least: float, most: float) -> str:
    ends = (percent(float(f"{end:.2g}")) if end <= 1.0 else f"more than {percent(1.0)}" for end in (least, most))
    return ("at least " if least <= 1.0 else "") + " to ".join(dict.fromkeys(ends))
