"""The findings on the steadiness and the variation of the throughput: of the measure window, or of each phase. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.coordinator.measure import steady_state
from proveout.coordinator.measure.observed import Observed
from proveout.core.numbers import together
from proveout.dsl.rules.repeat_rules import changing_phases, unsteady_by_plan
from proveout.proto.events import ValidityFinding


def judge(seen: Observed, unit: str = "TPS") -> Iterator[ValidityFinding]:
    """Is the throughput shown to be steady, and how much does it vary from second to second? Warnings: the behaviour of
    the system over time is in its numbers, and a rerun would choose among them. Each phase is judged by itself: the
    plan has the load change between them."""
    why = unsteady_by_plan(seen.plan, seen.stage)
    if why:
        yield _finding(steady_state.CHECK, True, f"not judged: {why}", voids=False)
        return
    if not seen.tps_in_phases:
        yield from _of_window(seen, "", seen.tps_per_second, unit)
        return
    changing = changing_phases(seen.stage)
    for phase, per_second in seen.tps_in_phases.items():
        if phase not in changing:
            yield from _of_window(seen, phase, per_second, unit)
    if changing:
        text = f"not judged in {', '.join(changing)}: the plan has the load change"
        yield _finding(steady_state.CHECK, True, text, voids=False)


def _of_window(seen: Observed, phase: str, per_second: Sequence[float], unit: str) -> Iterator[ValidityFinding]:
    """The findings on the seconds of the measure window, or of one phase of it."""
    found = steady_state.of_window(per_second, seen.limits.tps_slope_fraction_max)
    check = steady_state.check_of(phase)
    if len(per_second) < steady_state.BLOCKS:
        yield _finding(check, True, f"{steady_state.ALONE}: {found.over}", voids=False)
    else:
        yield _finding(check, found.state == "steady", found.text(unit), voids=False)
    cv = steady_state.variation(per_second)
    if cv is not None:
        limit, seconds = seen.limits.tps_cv_max, len(per_second)
        varies, most = together("fraction", cv, limit)
        text = f"{unit} per second varies by {varies} (CV beyond counting noise, {seconds} s, limit {most})"
        yield _finding(f"variation:{phase}" if phase else "variation", cv <= limit, text, voids=False)


def _finding(check: str, ok: bool, evidence: str, *, voids: bool) -> ValidityFinding:
    return ValidityFinding(check=check, ok=ok, evidence=evidence, voids=voids)
