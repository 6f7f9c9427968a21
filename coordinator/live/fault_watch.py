"""The faults of an iteration while it runs: their steps on the coordinator's clock, and the conditions that begin them.

Data flow: `FaultStep` samples -> `FaultSeen` events; live events of the load and of captures -> the newest numbers as
`metrics.LIVE` names them -> the conditions that hold, once a second of the measure window. The scheduler decides
whether a fault whose condition holds begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.measure.samples import Gathering
from proveout.dsl.expr.evaluation import ExpressionFault, evaluate
from proveout.dsl.plan.faults import Fault
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.dsl.plan.topology import Capture
from proveout.proto.events import Event, HostTick, LoadTick
from proveout.proto.fault_events import FaultSeen
from proveout.proto.wire.results import FaultStep
from proveout.proto.wire.tasks import exported_name, measured_name


class FaultWatch:
    """The steps and conditions of the faults of one iteration."""

    def __init__(self, plan: Plan, gathering: Gathering) -> None:
        stage = plan.stage(gathering.id.stage)
        faults = stage.faults if isinstance(stage, Ladder) else ()
        self._gathering = gathering
        self._ramp_up_s = stage.windows.ramp_up_s if isinstance(stage, Ladder) else 0.0
        self._times = {fault.name: fault.times for fault in faults}
        self._began_s: dict[tuple[str, str, int], float] = {}
        self._conditional: tuple[Fault, ...] = tuple(fault for fault in faults if fault.when is not None)
        self._captures = {capture.name: capture for capture in plan.captures}
        self._live: dict[str, Any] = {}

    def seen(self, host: str, step: FaultStep) -> FaultSeen:
        """A step as an event, its instant moved to the coordinator's clock."""
        offset_ns = self._gathering.clocks.get(host, (0, 0))[0]
        at_s = (step.at_ns - offset_ns - self._gathering.t0_ns) / 1e9 - self._ramp_up_s
        began_s = self._began_s.setdefault((host, step.fault, step.number), at_s)
        return FaultSeen(
            id=self._gathering.id,
            host=host,
            fault=step.fault,
            number=step.number,
            step=step.step,
            at_s=at_s,
            text=step.text,
            times=self._times.get(step.fault, 1),
            after_s=at_s - began_s,
        )

    def due(self, event: Event) -> Iterator[str]:
        """The faults whose conditions hold after a live event."""
        if not self._conditional:
            return
        if isinstance(event, HostTick):
            self._take(event)
        elif isinstance(event, LoadTick) and event.window == "measure":
            response = {"avg_us": event.avg_us, "p50_us": event.p50_us, "p99_us": event.p99_us}
            self._live |= {"tps": event.tps, "errors_per_s": float(event.errors), "response": response}
            yield from (fault.name for fault in self._conditional if _holds(fault, {"live": self._live}))

    def _take(self, event: HostTick) -> None:
        """Keep the newest numbers of a capture."""
        capture = self._captures[event.capture]
        if capture.kind == "lag":
            lags = {"seconds": event.readings["lag.seconds"]} if "lag.seconds" in event.readings else {}
            self._live["lag"] = lags
        elif capture.kind == "os":
            busy = event.readings.get("cpu.busy_fraction")
            self._live.setdefault("hosts", {})[event.host] = {"cpu": {"busy_fraction": busy}}
        elif names := _names(capture):
            found = {name: event.readings[shown] for name, shown in names.items() if shown in event.readings}
            self._live.setdefault(capture.kind, {})[capture.name] = found


def _names(capture: Capture) -> Mapping[str, str]:
    """The name of each number of a capture in a plan -> that of its live reading; counters are shown per second."""
    metrics = {value.name: measured_name(capture.kind, value) for value in capture.values}
    metrics |= {scrape.alias: exported_name(scrape) for scrape in capture.scrapes}
    return {
        name: f"{metric.removesuffix('_total')}_per_s" if metric.endswith("_total") else metric
        for name, metric in metrics.items()
    }


def _holds(fault: Fault, numbers: Mapping[str, Any]) -> bool:
    """Whether the condition of a fault holds; not while it has no value."""
    assert fault.when is not None  # noqa: S101  # `due` evaluates only those with one
    try:
        return bool(evaluate(fault.when.text, numbers))
    except ExpressionFault:
        return False
