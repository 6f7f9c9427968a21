"""The wait before a probe of a search until the sink has applied the backlog of the one before."""

from __future__ import annotations

from dataclasses import replace

from run_simulator import Simulation
from simulated import PLAN, assert_ended, simulate

from proveout.coordinator.schedule.iteration import DRAINED_S
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Search
from proveout.proto import events
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import CaptureSample, Reading
from proveout.proto.wire.tasks import RunCapture, Task

EVERY_S = 0.5
BACKLOG_S = 4.0


class Lagging(Simulation):
    """Every lag capture begins with a backlog, which shrinks by `applied` seconds each second before a load starts."""

    applied = 1.0

    def _task(self, host: str, task: Task) -> None:
        super()._task(host, task)
        if not isinstance(task.spec, RunCapture) or task.spec.capture.kind != "lag":
            return
        for number in range(round(20.0 / EVERY_S)):
            behind = max(BACKLOG_S - self.applied * number * EVERY_S, 0.0)
            readings = (Reading(metric="lag.seconds", value=behind),)
            sample = CaptureSample(capture="lag", at_ns=0, readings=readings)
            self._say(host, 0.03 + number * EVERY_S, Sample(key=task.key, sequence=number + 2, sample=sample))


class Stuck(Lagging):
    """A backlog that nothing applies."""

    applied = 0.0


def plan(drain_s: float) -> Plan:
    stages = tuple(replace(stage, drain_s=drain_s) if isinstance(stage, Search) else stage for stage in PLAN.stages)
    return replace(PLAN, stages=stages)


def notices(simulation: Simulation) -> list[str]:
    found = [event.text for event in simulation.world.events if isinstance(event, events.Notice)]
    return [text for text in found if "backlog" in text]


def probes(simulation: Simulation) -> list[events.ProbeFinished]:
    return [event for event in simulation.world.events if isinstance(event, events.ProbeFinished)]


def test_a_probe_waits_for_the_backlog_and_a_ladder_does_not() -> None:
    waiting, level = simulate(plan(60.0), kind=Lagging), simulate(plan(60.0))
    assert_ended(waiting)
    assert notices(waiting) == []
    assert [probe.rate for probe in probes(waiting)] == [probe.rate for probe in probes(level)]
    longer_s = _seconds(waiting, "cap") - _seconds(level, "cap")
    assert longer_s >= len(probes(waiting)) * (BACKLOG_S - DRAINED_S - EVERY_S)
    assert _seconds(waiting, "cached") - _seconds(level, "cached") < 1.0


def test_the_wait_is_bounded_and_its_end_tells_the_lag_and_the_remedy() -> None:
    stuck = simulate(plan(2.0), kind=Stuck)
    assert_ended(stuck)
    assert len(notices(stuck)) == len(probes(stuck))
    assert "the lag of capture:lag on cache1 is still 4" in notices(stuck)[0]
    assert "raise `drain` of the search" in notices(stuck)[0]


def _seconds(simulation: Simulation, stage: str) -> float:
    return next(
        event.seconds
        for event in simulation.world.events
        if isinstance(event, events.StageFinished) and event.stage == stage
    )
