"""Verdicts that more repeats would decide, checks of knees, advice for inconclusive verdicts, and provisional
verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from records import begun, ladder_stage, run_started
from verdict_histories import BASE, BREACH, VOID, finish, iteration, ladder, plan, verdict

from proveout.coordinator.results import results
from proveout.coordinator.results.results import load_results
from proveout.coordinator.verdict.checks import judge
from proveout.coordinator.verdict.verdicts import provisional_verdicts, reach, undecided
from proveout.core import statistics
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder, Tool
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import Event, IterationFinished, VerdictForeseen

AUTO = ladder_stage("base", threads=(1, 4), repeat=6, repeat_min=3)


def bought(check: str, needs: tuple[str, ...], rungs: dict[int, Sequence[float]], *extra: Event) -> list[Event]:
    """Return the events of a running run: its plan, and a ladder with `auto` repeats that has not ended."""
    return [run_started(planned(check, needs)), *ladder("base", rungs)[:-1], *extra]


def planned(check: str, needs: tuple[str, ...], stage: Ladder | Tool = AUTO) -> Plan:
    return plan(Check(id="v", check=Expression(text=check, needs=needs)), stages=(stage,))


def left(check: str, rungs: dict[int, Sequence[float]], repeat: int, *extra: Event, needs: Any = ("base",)) -> bool:
    found = undecided(planned(check, needs), (AUTO,), bought(check, needs, rungs, *extra), repeat)
    return [one.id for one in found] == ["v"]


def test_a_verdict_that_a_narrower_interval_would_decide_is_undecided() -> None:
    rungs = {1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]}
    assert left("base.at(4).tps >= 300", rungs, 3)
    assert not left("base.at(4).tps >= 200", rungs, 3), "it holds"
    assert not left("base.at(4).tps <= 200", rungs, 3), "it does not hold"
    assert not left("base.at(4).tps.mean >= 300.0", rungs, 3), "a point estimate has nothing to wait for"
    assert left("base.at(4).tps >= 300 && base.at(1).tps >= 50", rungs, 3)
    assert not left("base.at(4).tps >= 300 && base.at(1).tps >= 500", rungs, 3), "one part decides the whole"
    assert left("!(base.at(4).tps >= 300)", rungs, 3)
    assert left("base.at(4).tps >= 300 ? base.at(1).tps >= 50 : base.at(1).tps >= 500", rungs, 3)


def test_several_looks_widen_the_intervals() -> None:
    """270 is outside the 95 % interval (276 … 326) of three repeats, but inside the 98.2 % interval of the first of four
    looks, to which 1.8 % of the 5 % are due."""
    rungs = {1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]}
    assert verdict("base.at(4).tps >= 270", ladder("base", rungs)).outcome == "PASS"
    assert left("base.at(4).tps >= 270", rungs, 3)
    of = results.load_results(bought("true", ("base",), rungs)).stages["base"]
    tree = of.rungs[1].tree["tps"]
    level = 1.0 - 0.05 * (3 / 6) ** statistics.SPENDING
    assert tree["confidence"] == pytest.approx(level, abs=1e-4)
    p = (1.0 + level) / 2.0
    t = (2.0 * p - 1.0) * math.sqrt(2.0 / (4.0 * p * (1.0 - p)))
    assert tree["upper"] == pytest.approx(300.0 * math.exp(t * tree["cv"] / 3**0.5), rel=1e-3)
    assert "98.2 % CI" in judge("x >= 300", {"x": tree}).evidence


def test_an_open_verdict_has_the_chance_that_the_remaining_repeats_decide_it() -> None:
    def chance(check: str, values: Sequence[float]) -> tuple[float, float | None]:
        (found,) = undecided(planned(check, ("base",)), (AUTO,), bought(check, ("base",), {4: values}), len(values))
        return found.chance, found.within

    near, away = [300.0, 310.0, 290.0, 305.0, 295.0], [306.0, 310.0, 301.0, 308.0, 303.0]
    hardly, within = chance("base.at(4).tps >= 300", near)
    assert hardly < 0.01
    assert within == pytest.approx(0.0467, abs=1e-3), "upper end 314 of the interval at 97.7 %"
    likely, _ = chance("base.at(4).tps >= 300", away)
    assert likely > 0.5
    either = "base.at(4).tps >= 300 || base.at(4).tps >= 330 || base.at(4).response.avg_us >= us(1)"
    assert not left(either, {4: near}, 5), "one part decides the whole"
    assert chance("base.at(4).tps >= 300 && base.at(4).tps.lower * 2 >= 600", near)[0] == 1.0, (
        "no single number decides it"
    )


def test_a_look_ignores_later_repeats() -> None:
    rungs = {1: [100.0, 101.0, 99.0, 100.0], 4: [300.0, 300.1, 299.9, 100.0]}
    assert not left("base.at(4).tps >= 290", rungs, 3)
    assert left("base.at(4).tps >= 290", rungs, 4)


def test_missing_numbers_and_mostly_void_rungs_and_wrong_loads_get_no_more_repeats() -> None:
    rungs = {1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]}
    assert not left("base.at(8).tps >= 300", rungs, 3)
    assert not left("base.at(4).lag.avg_s >= 300", rungs, 3)
    one, two = (iteration("base", 4, 4, 300.0, VOID, attempt=attempt) for attempt in (1, 2))
    assert left("base.at(4).tps >= 300", rungs, 4, one, two), "3 of 4 repeats are valid, 2 of 5 attempts void"
    third = iteration("base", 4, 4, 300.0, VOID, attempt=3)
    assert not left("base.at(4).tps >= 300", rungs, 4, one, two, third), "half of the attempts are void"
    assert not left("base.at(4).tps >= 300", rungs, 4, iteration("base", 4, 4, 300.0, BREACH))
    pair = {1: [100.0, 101.0, 99.0], 4: [300.0, 300.1]}
    assert left("base.at(4).tps >= 290", pair, 3, iteration("base", 4, 3, 300.0, VOID)), (
        "two valid repeats decide nothing, a fourth may"
    )
    assert not left("base.at(4).tps >= later.at(4).tps", rungs, 3, needs=("base", "later")), "its time has not come"
    assert not left("true", rungs, 3, needs=())


BENT = ladder(
    "bent", {n: [tps * f for f in (0.99, 1.0, 1.01)] for n, tps in ((1, 100.0), (2, 200.0), (4, 400.0), (8, 410.0))}
)
STRAIGHT = ladder("straight", {n: [n * f for f in (99.0, 100.0, 101.0)] for n in (1, 2, 4, 8)})


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        ("bent.knee.threads <= 4", "PASS"),
        ("bent.knee.threads >= 8", "FAIL"),
        ("bent.knee.response.avg_us.mean <= 11000.0", "PASS"),
        ("straight.knee.threads >= 8", "INCONCLUSIVE"),
    ],
)
def test_knees_in_checks(check: str, outcome: str) -> None:
    assert verdict(check, [*BENT, *STRAIGHT]).outcome == outcome


def test_a_check_of_the_knee_uses_all_iterations_of_the_ladder() -> None:
    assert len(verdict("bent.knee.threads <= 4", BENT).iterations) == 12
    evidence = verdict("straight.knee.threads >= 8", STRAIGHT).evidence
    assert "straight has no knee: throughput is almost a straight line" in evidence
    assert "what to do: add rungs to straight" in evidence
    spoilt = finish("bent", [*BENT[:-1], iteration("bent", 2, 4, 200.0, VOID)])
    assert verdict("bent.knee.threads <= 4", spoilt).outcome == "PASS", "3 of 4 repeats decide it"
    mostly = finish("bent", [*BENT[:-1], *(iteration("bent", 2, n, 200.0, VOID) for n in range(4, 14))])
    assert verdict("bent.knee.threads <= 4", mostly).outcome == "INCONCLUSIVE", "10 of 22 attempts are void"


def test_an_inconclusive_verdict_has_advice() -> None:
    run = bought("base.at(4).tps >= 300", ("base",), {1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]})
    far, near = (verdict(f"base.at(4).tps >= {limit}", finish("base", run)).evidence for limit in (300, 277))
    assert "what to do: a longer `measure` of base, or a limit that is further from the value" in far
    assert "; about 3 to 30 repeats would decide it; " in near
    assert near.endswith("what to do: 3 to 30 repeats of base (`repeat`), or a longer `measure`")
    spoilt = finish("base", [*BASE[:-1], *(iteration("base", 4, 4, 300.0, VOID, attempt=n) for n in (1, 2, 3))])
    assert verdict("base.at(4).tps >= 270", spoilt).evidence.endswith(
        "what to do: take other load off the client hosts, or allow a later start (`limits: {start_skew: …}`)"
    )
    missing = verdict("base.at(4).lag.avg_s.mean <= 1.0", BASE).evidence
    assert "what to do: see the run's notices and its `capture:…` findings" in missing
    open_end = [replace(iteration("base", 4, n, 300.0), at_least={"response.p99_us": 5e3}) for n in (1, 2, 3)]
    bounded = verdict("base.at(4).response.p99_us.mean <= ms(10)", finish("base", [BASE[0], *open_end]))
    assert (bounded.outcome, "≥ 5.00 ms, limit <= 10.0 ms" in bounded.evidence) == ("INCONCLUSIVE", True)
    assert "what to do" not in bounded.evidence, "the number is there, as far as it is known"
    assert "what to do" not in verdict("base.at(4).tps >= 330", BASE).evidence


@pytest.mark.parametrize(
    ("repeat", "way"),
    [
        (1, "`repeat: 3` on reads, or a longer `measure`"),
        (3, "a longer `measure` of reads, or a limit that is further"),
    ],
)
def test_undecided_tool_stages_say_how_many_repeats_to_take(repeat: int, way: str) -> None:
    """A tool stage has a fixed number of repeats: `auto(…)` is not one of its values."""
    text = "reads.at(4).tps >= 300"
    job = FioJob(random=True, block_bytes=8192, read_fraction=0.7, jobs=4, size_bytes=1 << 20)
    stage = Tool(id="reads", clients=("c",), pattern="p", job=job, iodepths=(4,), windows=AUTO.windows, repeat=repeat)
    rungs = [e for e in ladder("reads", {4: [295.0, 305.0, 300.0][:repeat]}) if isinstance(e, IterationFinished)]
    run = [run_started(planned(text, ("reads",), stage)), begun("reads", "tool"), *rungs]
    reached = verdict(text, finish("reads", run))
    assert reached.outcome == "INCONCLUSIVE"
    assert f"what to do: {way}" in reached.evidence
    assert "capture" not in reached.evidence


# ---- while the run goes on ---------------------------------------------------------------------------------------


def needing(check: str, *needs: str) -> Check:
    return Check(id=check, check=Expression(text=check, needs=needs))


@pytest.mark.parametrize(
    ("check", "needs", "outcome"),
    [
        ("base.at(4).tps.mean >= 250", ("base",), "PASS"),
        ("base.at(4).tps.mean >= 350", ("base",), "FAIL"),
        ("base.at(4).tps >= 300", ("base",), "INCONCLUSIVE"),  # all of its results are complete
        ("fast.at(4).tps.mean >= 250", ("fast",), None),
        ("fast.at(4).tps.mean >= base.at(4).tps.mean", ("base", "fast"), None),
        (
            "base.at(4).tps.mean >= 350 && fast.at(4).tps.mean >= 1",
            ("base", "fast"),
            "FAIL",
        ),  # for any result of `fast`
        ("base.at(4).tps.mean >= 250 && fast.at(4).tps.mean >= 1", ("base", "fast"), None),
        ("base.at(4).tps.mean >= 250 || fast.at(4).tps.mean >= 1", ("base", "fast"), "PASS"),
        ("base.at(4).tps.mean >= 250 && propagation.db.lost_rows == 0", ("base",), None),
    ],
)
def test_provisional_verdicts(check: str, needs: tuple[str, ...], outcome: str | None) -> None:
    history = [*BASE, begun("fast"), iteration("fast", 4, 1, 900.0)]
    found = provisional_verdicts(plan(needing(check, *needs)), load_results(history), "base")
    assert [item.outcome for item in found] == ([outcome] if outcome else [])


def test_verdicts_do_not_depend_on_provisional_verdicts() -> None:
    written = plan(*(needing(f"base.at(4).tps.mean >= {limit}", "base") for limit in (250, 350)))
    contrary: list[Event] = [
        VerdictForeseen(id=check.id, title="", severity="fail", outcome=outcome, evidence="")
        for check in written.verdicts
        for outcome in ("INCONCLUSIVE", "FAIL", "PASS")
    ]
    mixed = [event for pair in zip(BASE, [*contrary, *BASE], strict=False) for event in pair]
    without = [event for event in mixed if not isinstance(event, VerdictForeseen)]
    assert len(mixed) > len(without)
    assert reach(written, mixed) == reach(written, without)
